//! DeleteTopics, versions 1 to 6, by name and, in version 6, by id. Answered when no shard serves the topics any more.

use walser_machine::metadata::controller::{Command, ControlError, DeleteTopics, Reply, TopicSelector};
use walser_protocol::ErrorCode;
use walser_protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};

use super::{Frame, HandlerOutcome, RequestContext};

/// First version with an error code of its own for deletion that is switched off.
const DELETION_DISABLED_FROM: i16 = 3;
/// First version in which topics may be named by id.
const TOPIC_IDS_FROM: i16 = 6;

/// Deletes topics.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DeleteTopicsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let selectors: Vec<TopicSelector> = if context.version >= TOPIC_IDS_FROM {
        let one = |topic: &walser_protocol::messages::delete_topics::DeleteTopicState<'_>| TopicSelector {
            name: topic.name.map(str::to_owned),
            topic_id: topic.topic_id,
        };
        request.topics.iter().map(one).collect()
    } else {
        request.topic_names.iter().map(|name| TopicSelector::by_name(name)).collect()
    };
    let asked = selectors.clone();
    let command = Command::DeleteTopics(DeleteTopics { topics: selectors });
    let Some(Reply::DeleteTopics(outcomes)) = context.shard.control(command).await else {
        let responses = asked
            .iter()
            .map(|topic| DeletableTopicResult {
                name: topic.name.as_deref(),
                topic_id: topic.topic_id,
                error_code: ErrorCode::UnknownServerError.code(),
                ..DeletableTopicResult::default()
            })
            .collect();
        return context.reply(&DeleteTopicsResponse { throttle_time_ms: 0, responses });
    };
    let messages: Vec<Option<String>> =
        outcomes.iter().map(|outcome| outcome.result.as_ref().err().and_then(ControlError::message)).collect();
    let responses = outcomes
        .iter()
        .zip(&messages)
        .map(|(outcome, message)| DeletableTopicResult {
            name: outcome.name.as_deref(),
            topic_id: outcome.topic_id,
            error_code: outcome.result.as_ref().err().map_or(ErrorCode::None, |error| code(&context, error)).code(),
            error_message: message.as_deref(),
        })
        .collect();
    context.reply(&DeleteTopicsResponse { throttle_time_ms: 0, responses })
}

fn code(context: &RequestContext, error: &ControlError) -> ErrorCode {
    let code = ErrorCode::from(error);
    let is_unknown_to_client = code == ErrorCode::TopicDeletionDisabled && context.version < DELETION_DISABLED_FROM;
    if is_unknown_to_client { ErrorCode::InvalidRequest } else { code }
}
