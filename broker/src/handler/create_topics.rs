//! CreateTopics, versions 2 to 7.
//!
//! Answered when every shard serves the new topics. -1 partitions or replicas mean the broker's default; from version 5 on
//! the answer has the topic's configs with their sources, from 7 on its id. `validate_only` changes nothing.

use walser_machine::metadata::controller::{
    Command, ControlError, CreatableTopic, CreatableTopicResult as Outcome, CreateTopics, ManualAssignment, Reply,
};
use walser_protocol::ErrorCode;
use walser_protocol::messages::create_topics::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};

use super::{Frame, HandlerOutcome, RequestContext};
use crate::config::describe::{ConfigEntry, describe_new_topic};

/// Makes topics.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match CreateTopicsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let topics: Vec<CreatableTopic> = request
        .topics
        .iter()
        .map(|topic| CreatableTopic {
            name: topic.name.to_owned(),
            num_partitions: topic.num_partitions,
            replication_factor: topic.replication_factor,
            assignments: topic
                .assignments
                .iter()
                .map(|assignment| ManualAssignment {
                    partition_index: assignment.partition_index,
                    broker_ids: assignment.broker_ids.clone(),
                })
                .collect(),
            configs: topic
                .configs
                .iter()
                .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)))
                .collect(),
        })
        .collect();
    let command = Command::CreateTopics(CreateTopics { topics, validate_only: request.validate_only });
    let Some(Reply::CreateTopics(outcomes)) = context.shard.control(command).await else {
        let topics = request.topics.iter().map(|topic| CreatableTopicResult {
            name: topic.name,
            error_code: ErrorCode::UnknownServerError.code(),
            ..CreatableTopicResult::default()
        });
        return context.reply(&CreateTopicsResponse { throttle_time_ms: 0, topics: topics.collect() });
    };
    let image = context.shard.image();
    let view = context.shard.broker_view(&image);
    let described: Vec<Vec<ConfigEntry>> = outcomes
        .iter()
        .map(|outcome| {
            outcome.result.as_ref().map_or_else(|_| Vec::new(), |made| describe_new_topic(&made.configs, &view))
        })
        .collect();
    let messages: Vec<Option<String>> =
        outcomes.iter().map(|outcome| outcome.result.as_ref().err().and_then(ControlError::message)).collect();
    let topics = outcomes.iter().zip(&described).zip(&messages);
    let topics = topics.map(|((outcome, configs), message)| result(outcome, configs, message.as_deref())).collect();
    context.reply(&CreateTopicsResponse { throttle_time_ms: 0, topics })
}

fn result<'a>(outcome: &'a Outcome, configs: &'a [ConfigEntry], message: Option<&'a str>) -> CreatableTopicResult<'a> {
    match &outcome.result {
        Ok(made) => CreatableTopicResult {
            name: &outcome.name,
            // Null, where the schema's default is empty.
            error_message: None,
            topic_id: made.topic_id.get(),
            num_partitions: made.num_partitions,
            replication_factor: made.replication_factor,
            configs: Some(configs.iter().map(config).collect()),
            ..CreatableTopicResult::default()
        },
        Err(error) => CreatableTopicResult {
            name: &outcome.name,
            error_code: ErrorCode::from(error).code(),
            error_message: message,
            ..CreatableTopicResult::default()
        },
    }
}

fn config(entry: &ConfigEntry) -> CreatableTopicConfigs<'_> {
    CreatableTopicConfigs {
        name: &entry.name,
        value: entry.value.as_deref(),
        read_only: entry.read_only,
        config_source: entry.source as i8,
        is_sensitive: entry.sensitive,
    }
}
