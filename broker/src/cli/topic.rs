//! `walser topic`: create, list, describe, alter and delete topics of any Kafka-compatible broker.

use std::io::{BufWriter, Write};

use serde_json::{Value, json};
use walser_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use walser_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use walser_protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use walser_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use walser_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use walser_protocol::{ApiKey, ErrorCode};

use super::client::{Client, ConnectArgs, TopicMetadata};
use super::error::CliError;
use super::output::{bold, json_line, red, table};

/// A config resource of type topic, in DescribeConfigs and AlterConfigs.
const RESOURCE_TOPIC: i8 = 2;
/// A value set on the topic itself.
const SOURCE_DYNAMIC_TOPIC: i8 = 1;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print JSON, one object per topic and line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create topics
    Create(CreateArgs),
    /// List the names of all topics
    List(ListArgs),
    /// Show partitions, leaders, replicas and configs
    Describe(DescribeArgs),
    /// Add partitions, set or unset configs
    Alter(AlterArgs),
    /// Delete topics and all their records
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Number of partitions [default: the broker's num.partitions]
    #[arg(short, long, value_name = "COUNT", default_value_t = -1, hide_default_value = true)]
    partitions: i32,
    /// Copies of each partition [default: the broker's default.replication.factor]
    #[arg(short, long, value_name = "COUNT", default_value_t = -1, hide_default_value = true)]
    replication_factor: i16,
    /// A config of the topic, for instance retention.ms=3600000
    #[arg(short, long = "config", value_name = "KEY=VALUE")]
    configs: Vec<String>,
    /// A topic that exists already is no error
    #[arg(long)]
    if_not_exists: bool,
    /// Only check whether it could be done
    #[arg(long)]
    validate_only: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Include internal topics such as __consumer_offsets
    #[arg(long)]
    internal: bool,
}

#[derive(Debug, clap::Args)]
struct DescribeArgs {
    /// Topics to describe [default: all]
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show every config, not only those set on the topic
    #[arg(long)]
    all_configs: bool,
}

#[derive(Debug, clap::Args)]
struct AlterArgs {
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Raise the number of partitions to this
    #[arg(short, long, value_name = "COUNT")]
    partitions: Option<i32>,
    /// Set a config
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Give a config its default again
    #[arg(short = 'd', long = "unset", value_name = "KEY")]
    unsets: Vec<String>,
    /// Add values to a list
    #[arg(long = "append", value_name = "KEY=VALUE")]
    appends: Vec<String>,
    /// Take values out of a list
    #[arg(long = "subtract", value_name = "KEY=VALUE")]
    subtracts: Vec<String>,
    /// Only check whether it could be done
    #[arg(long)]
    validate_only: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// A topic that does not exist is no error
    #[arg(long)]
    if_exists: bool,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let mut client = Client::connect(&args.connect)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    match &args.command {
        Command::Create(create_args) => create(&mut client, create_args, args.json, &mut out)?,
        Command::List(list_args) => list(&mut client, list_args, args.json, &mut out)?,
        Command::Describe(describe_args) => describe(&mut client, describe_args, args.json, &mut out)?,
        Command::Alter(alter_args) => alter(&mut client, alter_args, args.json, &mut out)?,
        Command::Delete(delete_args) => delete(&mut client, delete_args, args.json, &mut out)?,
    }
    out.flush()?;
    Ok(())
}

fn key_value(text: &str) -> Result<(&str, &str), CliError> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.ok_or_else(|| CliError::Usage(format!("'{text}' is not KEY=VALUE")))
}

/// What became of one topic among several.
struct Outcome {
    name: String,
    error: Option<CliError>,
    /// What stands beside the name when it went well.
    done: String,
    json: Value,
}

/// Prints each topic's fate; one that failed makes the command fail, but hides no other.
fn report(outcomes: Vec<Outcome>, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let total = outcomes.len();
    let mut failed = Vec::new();
    for outcome in outcomes {
        match outcome.error {
            Some(error) if json_wanted => {
                json_line(out, &json!({"topic": outcome.name, "error": error.to_string()}))?;
                failed.push(error);
            }
            Some(error) => failed.push(error),
            None if json_wanted => json_line(out, &outcome.json)?,
            None => writeln!(out, "{} {}", outcome.done, outcome.name)?,
        }
    }
    out.flush()?;
    match failed.len() {
        0 => Ok(()),
        1 => Err(failed.remove(0)),
        count => {
            for error in &failed {
                eprintln!("{} {error}", red("error:"));
            }
            Err(CliError::SomeFailed { failed: count, total })
        }
    }
}

fn create(client: &mut Client, args: &CreateArgs, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let mut configs = Vec::new();
    for config in &args.configs {
        let (name, value) = key_value(config)?;
        configs.push(CreatableTopicConfig { name, value: Some(value) });
    }
    let topic = |name| CreatableTopic {
        name,
        num_partitions: args.partitions,
        replication_factor: args.replication_factor,
        assignments: Vec::new(),
        configs: configs.clone(),
    };
    let request = CreateTopicsRequest {
        topics: args.topics.iter().map(|name| topic(name.as_str())).collect(),
        timeout_ms: client.args().timeout_ms(),
        validate_only: args.validate_only,
    };
    let response = client.request_controller(ApiKey::CreateTopics, 7, &request)?;
    let answer = response.decode(CreateTopicsResponse::decode)?;
    let exists = ErrorCode::TopicAlreadyExists.code();
    let outcomes = answer.topics.iter().map(|topic| {
        let existed = topic.error_code == exists && args.if_not_exists;
        let code = if existed { 0 } else { topic.error_code };
        let done = match (existed, args.validate_only) {
            (true, _) => "exists",
            (false, true) => "could create",
            (false, false) => "created",
        };
        Outcome {
            name: topic.name.to_owned(),
            error: CliError::check(code, || format!("topic {}", topic.name), topic.error_message).err(),
            done: done.to_owned(),
            json: json!({
                "topic": topic.name,
                "topic_id": topic.topic_id.to_string(),
                "created": !existed && !args.validate_only,
                "partitions": topic.num_partitions,
                "replication_factor": topic.replication_factor,
            }),
        }
    });
    report(outcomes.collect(), json_wanted, out)
}

fn list(client: &mut Client, args: &ListArgs, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let mut topics = client.metadata(None, false)?.topics;
    topics.retain(|topic| args.internal || !topic.is_internal);
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    for topic in topics {
        if json_wanted {
            let partitions = topic.partitions.len();
            json_line(out, &json!({"topic": topic.name, "partitions": partitions, "internal": topic.is_internal}))?;
        } else {
            writeln!(out, "{}", topic.name)?;
        }
    }
    Ok(())
}

/// One config of a topic.
struct Config {
    name: String,
    value: Option<String>,
    source: i8,
}

fn describe(client: &mut Client, args: &DescribeArgs, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let names: Vec<&str> = args.topics.iter().map(String::as_str).collect();
    let mut topics = client.metadata(if names.is_empty() { None } else { Some(&names) }, false)?.topics;
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    for topic in &topics {
        CliError::check(topic.error_code, || format!("topic {}", topic.name), None)?;
    }
    let configs = match topic_configs(client, &topics) {
        // The partitions are worth showing all the same.
        Err(error) if matches!(error, CliError::UnsupportedApi { .. }) => {
            eprintln!("no configs: {error}");
            topics.iter().map(|_| Vec::new()).collect()
        }
        configs => configs?,
    };
    for (topic, mut configs) in topics.iter().zip(configs) {
        configs.retain(|config| args.all_configs || config.source == SOURCE_DYNAMIC_TOPIC);
        if json_wanted {
            json_line(out, &topic_json(topic, &configs))?;
        } else {
            print_topic(topic, &configs, out)?;
        }
    }
    Ok(())
}

fn topic_configs(client: &mut Client, topics: &[TopicMetadata]) -> Result<Vec<Vec<Config>>, CliError> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    let request = DescribeConfigsRequest {
        resources: names
            .iter()
            .map(|name| DescribeConfigsResource {
                resource_type: RESOURCE_TOPIC,
                resource_name: name,
                configuration_keys: None,
            })
            .collect(),
        ..DescribeConfigsRequest::default()
    };
    let response = client.request_any(ApiKey::DescribeConfigs, 4, &request)?;
    let answer = response.decode(DescribeConfigsResponse::decode)?;
    let mut by_topic = Vec::new();
    for name in &names {
        let result = answer.results.iter().find(|result| result.resource_name == *name);
        let mut configs = Vec::new();
        if let Some(result) = result {
            CliError::check(result.error_code, || format!("configs of {name}"), result.error_message)?;
            configs.extend(result.configs.iter().map(|config| Config {
                name: config.name.to_owned(),
                value: config.value.map(str::to_owned),
                source: config.config_source,
            }));
        }
        configs.sort_by(|one, other| one.name.cmp(&other.name));
        by_topic.push(configs);
    }
    Ok(by_topic)
}

fn topic_json(topic: &TopicMetadata, configs: &[Config]) -> Value {
    let partitions: Vec<Value> = topic
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.in_sync,
                "offline": partition.offline,
            })
        })
        .collect();
    let configs: serde_json::Map<String, Value> =
        configs.iter().map(|config| (config.name.clone(), Value::from(config.value.clone()))).collect();
    json!({
        "topic": topic.name,
        "topic_id": topic.topic_id.to_string(),
        "internal": topic.is_internal,
        "partitions": partitions,
        "configs": configs,
    })
}

fn print_topic(topic: &TopicMetadata, configs: &[Config], out: &mut impl Write) -> Result<(), CliError> {
    let replicas = topic.partitions.first().map_or(0, |partition| partition.replicas.len());
    writeln!(
        out,
        "{}  id {}  partitions {}  replication factor {replicas}",
        bold(&topic.name),
        topic.topic_id,
        topic.partitions.len()
    )?;
    let heads = ["  partition", "leader", "epoch", "replicas", "isr", "offline"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for partition in &topic.partitions {
        rows.push(vec![
            format!("  {}", partition.index),
            if partition.leader_id < 0 { "none".to_owned() } else { partition.leader_id.to_string() },
            partition.leader_epoch.to_string(),
            node_ids(&partition.replicas),
            node_ids(&partition.in_sync),
            node_ids(&partition.offline),
        ]);
    }
    table(out, &rows)?;
    for config in configs {
        writeln!(out, "  {}={}", config.name, config.value.as_deref().unwrap_or("(hidden)"))?;
    }
    Ok(())
}

fn node_ids(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn alter(client: &mut Client, args: &AlterArgs, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let mut configs = Vec::new();
    for (operation, pairs) in [(SET, &args.sets), (APPEND, &args.appends), (SUBTRACT, &args.subtracts)] {
        for pair in pairs {
            let (name, value) = key_value(pair)?;
            configs.push(AlterableConfig { name, config_operation: operation, value: Some(value) });
        }
    }
    let unset = |name| AlterableConfig { name, config_operation: DELETE, value: None };
    configs.extend(args.unsets.iter().map(|name| unset(name.as_str())));
    if configs.is_empty() && args.partitions.is_none() {
        return Err(CliError::Usage(
            "nothing to alter: give --partitions, --set, --unset, --append or --subtract".into(),
        ));
    }
    if let Some(count) = args.partitions {
        add_partitions(client, args, count)?;
    }
    if !configs.is_empty() {
        alter_configs(client, args, configs)?;
    }
    if json_wanted {
        json_line(out, &json!({"topic": args.topic, "altered": !args.validate_only}))?;
    } else {
        writeln!(out, "{} {}", if args.validate_only { "could alter" } else { "altered" }, args.topic)?;
    }
    Ok(())
}

fn add_partitions(client: &mut Client, args: &AlterArgs, count: i32) -> Result<(), CliError> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: &args.topic, count, assignments: None }],
        timeout_ms: client.args().timeout_ms(),
        validate_only: args.validate_only,
    };
    let response = client.request_controller(ApiKey::CreatePartitions, 3, &request)?;
    let answer = response.decode(CreatePartitionsResponse::decode)?;
    for result in &answer.results {
        CliError::check(result.error_code, || format!("topic {}", result.name), result.error_message)?;
    }
    Ok(())
}

fn alter_configs(client: &mut Client, args: &AlterArgs, configs: Vec<AlterableConfig<'_>>) -> Result<(), CliError> {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource { resource_type: RESOURCE_TOPIC, resource_name: &args.topic, configs }],
        validate_only: args.validate_only,
    };
    let response = client.request_controller(ApiKey::IncrementalAlterConfigs, 1, &request)?;
    let answer = response.decode(IncrementalAlterConfigsResponse::decode)?;
    for result in &answer.responses {
        CliError::check(result.error_code, || format!("topic {}", result.resource_name), result.error_message)?;
    }
    Ok(())
}

fn delete(client: &mut Client, args: &DeleteArgs, json_wanted: bool, out: &mut impl Write) -> Result<(), CliError> {
    let request = DeleteTopicsRequest {
        topic_names: args.topics.iter().map(String::as_str).collect(),
        timeout_ms: client.args().timeout_ms(),
        ..DeleteTopicsRequest::default()
    };
    // Version 5 is the last that takes names alone.
    let response = client.request_controller(ApiKey::DeleteTopics, 5, &request)?;
    let answer = response.decode(DeleteTopicsResponse::decode)?;
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let outcomes = answer.responses.iter().map(|result| {
        let name = result.name.unwrap_or_default();
        let absent = result.error_code == unknown && args.if_exists;
        let code = if absent { 0 } else { result.error_code };
        Outcome {
            name: name.to_owned(),
            error: CliError::check(code, || format!("topic {name}"), result.error_message).err(),
            done: if absent { "no topic" } else { "deleted" }.to_owned(),
            json: json!({"topic": name, "deleted": !absent}),
        }
    });
    report(outcomes.collect(), json_wanted, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_are_key_and_value() {
        // Rule: only the first '=' splits, and a key is needed.
        assert_eq!(key_value("a=b=c").unwrap(), ("a", "b=c"));
        assert_eq!(key_value("a=").unwrap(), ("a", ""));
        for bad in ["a", "=b", ""] {
            assert!(matches!(key_value(bad), Err(CliError::Usage(_))), "{bad}");
        }
    }
}
