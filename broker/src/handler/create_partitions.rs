//! CreatePartitions, versions 0 to 3: more partitions for topics that exist. Answered when every shard serves them.

use walser_machine::metadata::controller::{
    Command, ControlError, CreatePartitions, CreatePartitionsTopic as Wish, Reply,
};
use walser_protocol::ErrorCode;
use walser_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};

use super::{Frame, HandlerOutcome, RequestContext};

/// Adds partitions.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match CreatePartitionsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let topics = request
        .topics
        .iter()
        .map(|topic| Wish {
            name: topic.name.to_owned(),
            count: topic.count,
            assignments: topic
                .assignments
                .as_ref()
                .map(|lists| lists.iter().map(|assignment| assignment.broker_ids.clone()).collect()),
        })
        .collect();
    let command = Command::CreatePartitions(CreatePartitions { topics, validate_only: request.validate_only });
    let Some(Reply::CreatePartitions(outcomes)) = context.shard.control(command).await else {
        let results = request
            .topics
            .iter()
            .map(|topic| CreatePartitionsTopicResult {
                name: topic.name,
                error_code: ErrorCode::UnknownServerError.code(),
                ..CreatePartitionsTopicResult::default()
            })
            .collect();
        return context.reply(&CreatePartitionsResponse { throttle_time_ms: 0, results });
    };
    let messages: Vec<Option<String>> =
        outcomes.iter().map(|outcome| outcome.result.as_ref().err().and_then(ControlError::message)).collect();
    let results = outcomes
        .iter()
        .zip(&messages)
        .map(|(outcome, message)| CreatePartitionsTopicResult {
            name: &outcome.name,
            error_code: outcome.result.as_ref().err().map_or(ErrorCode::None, ErrorCode::from).code(),
            error_message: message.as_deref(),
        })
        .collect();
    context.reply(&CreatePartitionsResponse { throttle_time_ms: 0, results })
}
