//! DescribeConfigs, versions 1 to 4.
//!
//! Topics, this broker, the defaults of all brokers (a broker without a name), client metrics subscriptions and groups have
//! configs; a broker's loggers are none here, since nothing can be set by their names. Synonyms and documentation come only
//! where they were asked for, and secrets never have a value.

use std::collections::BTreeSet;

use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::records::ConfigResource;
use walser_machine::metadata::topic_name::validate_topic_name;
use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};

use super::{Frame, HandlerOutcome, RequestContext};
use crate::config::describe::{
    ConfigEntry, describe_broker, describe_client_metrics, describe_cluster, describe_group, describe_topic,
};

/// Why there are no configs: the code and a message, empty where the code says it all.
type Refusal = (ErrorCode, String);

const TYPES: [i8; 5] = [
    ConfigResource::TYPE_TOPIC,
    ConfigResource::TYPE_BROKER,
    ConfigResource::TYPE_BROKER_LOGGER,
    ConfigResource::TYPE_CLIENT_METRICS,
    ConfigResource::TYPE_GROUP,
];

/// Describes the configs of resources.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeConfigsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    if request.resources.iter().any(|resource| !TYPES.contains(&resource.resource_type)) {
        // Kafka looks at the types before anything else, and refuses all or nothing.
        let results = request.resources.iter().map(|resource| refused(resource)).collect();
        return context.reply(&DescribeConfigsResponse { throttle_time_ms: 0, results });
    }
    let image = context.shard.image();
    let mut room = context.shard.request_elements_max();
    let described: Vec<Result<Vec<ConfigEntry>, Refusal>> =
        request.resources.iter().map(|resource| describe(&context, &image, resource, &mut room)).collect();
    let results = request.resources.iter().zip(&described).map(|(resource, described)| {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..DescribeConfigsResult::default()
        };
        match described {
            Ok(entries) => result.configs = entries.iter().map(|entry| config(entry, &request)).collect(),
            Err((code, message)) => {
                result.error_code = code.code();
                result.error_message = Some(message);
            }
        }
        result
    });
    context.reply(&DescribeConfigsResponse { throttle_time_ms: 0, results: results.collect() })
}

fn refused<'a>(resource: &DescribeConfigsResource<'a>) -> DescribeConfigsResult<'a> {
    DescribeConfigsResult {
        error_code: ErrorCode::InvalidRequest.code(),
        error_message: Some("Unexpected resource type"),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        ..DescribeConfigsResult::default()
    }
}

fn describe(
    context: &RequestContext,
    image: &MetadataImage,
    resource: &DescribeConfigsResource<'_>,
    room: &mut usize,
) -> Result<Vec<ConfigEntry>, Refusal> {
    if *room == 0 {
        // A few bytes of request name configs of many kilobytes, and may do so over and over.
        return Err(invalid("there is no memory for so many configs in one answer; ask for fewer".to_owned()));
    }
    let mut entries = all(context, image, resource)?;
    if let Some(keys) = &resource.configuration_keys
        && !keys.is_empty()
    {
        let wanted: BTreeSet<&str> = keys.iter().copied().collect();
        entries.retain(|entry| wanted.contains(entry.name.as_str()));
    }
    *room = room.saturating_sub(entries.len());
    Ok(entries)
}

fn all(
    context: &RequestContext,
    image: &MetadataImage,
    resource: &DescribeConfigsResource<'_>,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let view = context.shard.broker_view(image);
    let name = resource.resource_name;
    let named = |what: &str| if name.is_empty() { Err(invalid(format!("{what} must not be empty"))) } else { Ok(()) };
    match resource.resource_type {
        ConfigResource::TYPE_TOPIC => {
            validate_topic_name(name).map_err(|error| (ErrorCode::InvalidTopicException, error.to_string()))?;
            let topic = image.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, String::new()))?;
            Ok(describe_topic(image.topic_configs(&topic.name), &view))
        }
        ConfigResource::TYPE_BROKER if name.is_empty() => Ok(describe_cluster(&view)),
        ConfigResource::TYPE_BROKER => {
            verify_broker(context, name, " or empty string,")?;
            Ok(describe_broker(&view))
        }
        ConfigResource::TYPE_BROKER_LOGGER => {
            named("Broker id")?;
            verify_broker(context, name, "")?;
            Ok(Vec::new())
        }
        ConfigResource::TYPE_CLIENT_METRICS => {
            named("Client metrics subscription name")?;
            Ok(describe_client_metrics(image.configs(&ConfigResource::ClientMetrics(name.to_owned())), &view))
        }
        ConfigResource::TYPE_GROUP => {
            named("Group name")?;
            Ok(describe_group(image.configs(&ConfigResource::Group(name.to_owned())), &view))
        }
        _ => Err(invalid("Unsupported resource type: UNKNOWN".to_owned())),
    }
}

/// Clients ask a broker for its own configs.
fn verify_broker(context: &RequestContext, name: &str, alternative: &str) -> Result<(), Refusal> {
    let Ok(id) = name.parse::<i32>() else {
        return Err(invalid(format!("Broker id must be an integer, but it is: {name}")));
    };
    let expected = context.shard.node_id().get();
    if id == expected {
        return Ok(());
    }
    Err(invalid(format!("Unexpected broker id, expected {expected}{alternative} but received {name}")))
}

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, message)
}

fn config<'a>(entry: &'a ConfigEntry, request: &DescribeConfigsRequest<'_>) -> DescribeConfigsResourceResult<'a> {
    let synonyms = if request.include_synonyms { entry.synonyms.as_slice() } else { &[] };
    DescribeConfigsResourceResult {
        name: &entry.name,
        value: entry.value.as_deref().filter(|_| !entry.sensitive),
        read_only: entry.read_only,
        config_source: entry.source as i8,
        is_sensitive: entry.sensitive,
        synonyms: synonyms
            .iter()
            .map(|synonym| DescribeConfigsSynonym {
                name: &synonym.name,
                value: synonym.value.as_deref(),
                source: synonym.source as i8,
            })
            .collect(),
        config_type: entry.kind,
        documentation: entry.doc.filter(|_| request.include_documentation),
    }
}
