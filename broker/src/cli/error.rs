//! What can go wrong in a command, each in one sentence.

use std::io;

use walser_protocol::records::builder::BuildError;
use walser_protocol::records::record::RecordError;
use walser_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("lost the connection to {address}: {source}")]
    Connection { address: String, source: io::Error },
    #[error("{address} sent an answer that is not {api}: {source}")]
    Decode { address: String, api: ApiKey, source: DecodeError },
    #[error("{address} sent a malformed frame")]
    Frame { address: String },
    #[error("cannot put this into a request: {0}")]
    Encode(#[from] EncodeError),
    #[error("{address} does not serve {api} in a version between {min} and {max}")]
    UnsupportedApi { address: String, api: ApiKey, min: i16, max: i16 },
    #[error("{subject}: {}", describe_code(*.code, .message.as_deref()))]
    Kafka { subject: String, code: i16, message: Option<String> },
    #[error("{what} did not succeed within {seconds} s: {last}")]
    Deadline { what: String, seconds: u64, last: String },
    #[error("{topic}-{partition} at offset {offset}: {source}")]
    Record { topic: String, partition: i32, offset: i64, source: RecordError },
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{0}")]
    Usage(String),
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    #[error("{count} of the files or batches are damaged")]
    Damaged { count: usize },
    #[error("{failed} of {total} topics failed")]
    SomeFailed { failed: usize, total: usize },
    /// The machine lacks something, or something is taken.
    #[error("{0}")]
    Unfit(String),
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// 2 for a command line that cannot be meant, 3 where something is lacking or taken, 1 for everything that failed while
    /// running.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => super::exit::USAGE,
            Self::Unfit(_) => super::exit::UNFIT,
            Self::Connect { .. }
            | Self::Connection { .. }
            | Self::Decode { .. }
            | Self::Frame { .. }
            | Self::Encode(_)
            | Self::UnsupportedApi { .. }
            | Self::Kafka { .. }
            | Self::Deadline { .. }
            | Self::Record { .. }
            | Self::Build(_)
            | Self::Read { .. }
            | Self::Output(_)
            | Self::Damaged { .. }
            | Self::SomeFailed { .. }
            | Self::Failed(_) => super::exit::FAILED,
        }
    }

    /// The reader of our output has gone, as `head` does: no error of ours.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The same request may succeed later, or elsewhere.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Connection { .. } => true,
            Self::Kafka { code, .. } => ErrorCode::from_wire(*code).is_some_and(ErrorCode::is_retriable),
            Self::Decode { .. }
            | Self::Frame { .. }
            | Self::Encode(_)
            | Self::UnsupportedApi { .. }
            | Self::Deadline { .. }
            | Self::Record { .. }
            | Self::Build(_)
            | Self::Usage(_)
            | Self::Read { .. }
            | Self::Output(_)
            | Self::Damaged { .. }
            | Self::SomeFailed { .. }
            | Self::Unfit(_)
            | Self::Failed(_) => false,
        }
    }

    /// `Ok` for code 0.
    pub fn check(code: i16, subject: impl FnOnce() -> String, message: Option<&str>) -> Result<(), Self> {
        if code == 0 {
            return Ok(());
        }
        Err(Self::Kafka { subject: subject(), code, message: message.map(str::to_owned) })
    }
}

/// The broker's own words where it has some, else what the code means; with the code's name.
fn describe_code(code: i16, message: Option<&str>) -> String {
    let known = ErrorCode::from_wire(code);
    let name = known.map_or_else(|| format!("error {code}"), |known| known.name().to_owned());
    match (message.filter(|text| !text.is_empty()), known) {
        (Some(text), _) => format!("{text} ({name})"),
        (None, Some(known)) => format!("{} ({name})", known.meaning()),
        (None, None) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kafka_error_says_code_and_reason() {
        // Rule: the broker's message wins, the name is always there, an unknown code keeps its number.
        let text = |code, message| describe_code(code, message);
        assert_eq!(text(36, Some("Topic 'a' already exists.")), "Topic 'a' already exists. (TOPIC_ALREADY_EXISTS)");
        assert!(text(3, None).ends_with("(UNKNOWN_TOPIC_OR_PARTITION)"));
        assert_eq!(text(3, Some("")), text(3, None));
        assert_eq!(text(9999, None), "error 9999");
    }
}
