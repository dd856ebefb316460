//! AlterConfigs, versions 0 to 2, and IncrementalAlterConfigs, versions 0 and 1.
//!
//! The first replaces everything that is set on a resource, the second changes single keys. Answered when every shard
//! works by the new configs; `validate_only` changes nothing.

use walser_machine::metadata::controller::{
    AlterConfigs, AlterConfigsResourceResult, Command, ConfigOperation, ControlError, IncrementalAlterConfigs,
    IncrementalAlterConfigsResource, ReplaceConfigsResource, Reply,
};
use walser_protocol::ErrorCode;
use walser_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use walser_protocol::messages::incremental_alter_configs::{self as incremental, IncrementalAlterConfigsRequest};

use super::{Frame, HandlerOutcome, RequestContext};

/// AlterConfigs.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match AlterConfigsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let resource = |resource: &walser_protocol::messages::alter_configs::AlterConfigsResource<'_>| {
        let configs = resource.configs.iter().map(|config| (config.name.to_owned(), config.value.map(str::to_owned)));
        ReplaceConfigsResource {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.to_owned(),
            configs: configs.collect(),
        }
    };
    let resources = request.resources.iter().map(resource).collect();
    let command = Command::AlterConfigs(AlterConfigs { resources, validate_only: request.validate_only });
    let results = match context.shard.control(command).await {
        Some(Reply::AlterConfigs(results)) => Some(results),
        _ => None,
    };
    let names = request.resources.iter().map(|resource| (resource.resource_type, resource.resource_name));
    let answers = answers(names, results.as_deref());
    let responses = answers.iter().map(|answer| AlterConfigsResourceResponse {
        error_code: answer.error.code(),
        error_message: answer.message.as_deref(),
        resource_type: answer.resource_type,
        resource_name: &answer.resource_name,
    });
    context.reply(&AlterConfigsResponse { throttle_time_ms: 0, responses: responses.collect() })
}

/// IncrementalAlterConfigs.
pub async fn handle_incremental(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match IncrementalAlterConfigsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let resource = |resource: &incremental::AlterConfigsResource<'_>| {
        let operations = resource.configs.iter().map(|config| ConfigOperation {
            key: config.name.to_owned(),
            operation: config.config_operation,
            value: config.value.map(str::to_owned),
        });
        IncrementalAlterConfigsResource {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.to_owned(),
            operations: operations.collect(),
        }
    };
    let resources = request.resources.iter().map(resource).collect();
    let command =
        Command::IncrementalAlterConfigs(IncrementalAlterConfigs { resources, validate_only: request.validate_only });
    let results = match context.shard.control(command).await {
        Some(Reply::IncrementalAlterConfigs(results)) => Some(results),
        _ => None,
    };
    let names = request.resources.iter().map(|resource| (resource.resource_type, resource.resource_name));
    let answers = answers(names, results.as_deref());
    let responses = answers.iter().map(|answer| incremental::AlterConfigsResourceResponse {
        error_code: answer.error.code(),
        error_message: answer.message.as_deref(),
        resource_type: answer.resource_type,
        resource_name: &answer.resource_name,
    });
    let responses = responses.collect();
    context.reply(&incremental::IncrementalAlterConfigsResponse { throttle_time_ms: 0, responses })
}

/// What both responses say of a resource.
struct Answer {
    error: ErrorCode,
    message: Option<String>,
    resource_type: i8,
    resource_name: String,
}

/// One answer per result; where the controller could not be reached, one per resource asked about.
fn answers<'a>(
    names: impl Iterator<Item = (i8, &'a str)>,
    results: Option<&[AlterConfigsResourceResult]>,
) -> Vec<Answer> {
    let Some(results) = results else {
        let unanswered = |(resource_type, name): (i8, &str)| Answer {
            error: ErrorCode::UnknownServerError,
            message: None,
            resource_type,
            resource_name: name.to_owned(),
        };
        return names.map(unanswered).collect();
    };
    let answer = |result: &AlterConfigsResourceResult| Answer {
        error: result.result.as_ref().err().map_or(ErrorCode::None, ErrorCode::from),
        message: result.result.as_ref().err().and_then(ControlError::message),
        resource_type: result.resource_type,
        resource_name: result.resource_name.clone(),
    };
    results.iter().map(answer).collect()
}
