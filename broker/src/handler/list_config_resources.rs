//! ListConfigResources, versions 0 and 1: the names of what has configs.
//!
//! Version 0 lists client metrics subscriptions only. Topics and brokers are listed whether anything is set on them or not,
//! subscriptions and groups where something is.

use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::records::ConfigResource;
use walser_protocol::ErrorCode;
use walser_protocol::messages::list_config_resources::{
    ConfigResource as Listed, ListConfigResourcesRequest, ListConfigResourcesResponse,
};

use super::{Frame, HandlerOutcome, RequestContext};

const ALL_TYPES: [i8; 5] = [
    ConfigResource::TYPE_GROUP,
    ConfigResource::TYPE_CLIENT_METRICS,
    ConfigResource::TYPE_BROKER_LOGGER,
    ConfigResource::TYPE_BROKER,
    ConfigResource::TYPE_TOPIC,
];

/// Lists resources.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match ListConfigResourcesRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let served: &[i8] = if context.version == 0 { &[ConfigResource::TYPE_CLIENT_METRICS] } else { &ALL_TYPES };
    if request.resource_types.iter().any(|wanted| !served.contains(wanted)) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return context.reply(&ListConfigResourcesResponse { error_code, ..ListConfigResourcesResponse::default() });
    }
    let image = context.shard.image();
    let is_wanted = |number: &&i8| request.resource_types.is_empty() || request.resource_types.contains(number);
    let named: Vec<(i8, String)> = served
        .iter()
        .filter(is_wanted)
        .flat_map(|number| names(&image, *number).into_iter().map(|name| (*number, name)))
        .collect();
    let config_resources =
        named.iter().map(|(resource_type, name)| Listed { resource_name: name, resource_type: *resource_type });
    let config_resources = config_resources.collect();
    context.reply(&ListConfigResourcesResponse { config_resources, ..ListConfigResourcesResponse::default() })
}

fn names(image: &MetadataImage, resource_type: i8) -> Vec<String> {
    match resource_type {
        ConfigResource::TYPE_TOPIC => image.topics().map(|topic| topic.name.to_string()).collect(),
        ConfigResource::TYPE_BROKER | ConfigResource::TYPE_BROKER_LOGGER => {
            image.brokers().map(|broker| broker.broker_id.to_string()).collect()
        }
        _ => {
            let of_type = image.config_resources().filter(|resource| resource.type_number() == resource_type);
            of_type.map(ConfigResource::name).collect()
        }
    }
}
