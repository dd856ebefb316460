//! Which names a topic may have.

use thiserror::Error;

/// Longest topic name; with a partition number behind it, it still fits a directory name of 255 bytes.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Kafka keeps its metadata log under this name; clients may not make a topic of it.
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// Why a topic cannot have this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopicNameError {
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    #[error("Topic name is invalid: '{name}' is not allowed")]
    Dots { name: String },
    #[error(
        "Topic name is invalid: the length of '{name}' is longer than the max allowed length {TOPIC_NAME_BYTES_MAX}"
    )]
    TooLong { name: String },
    #[error(
        "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    Characters { name: String },
}

/// Legal names are 1 to 249 of `[a-zA-Z0-9._-]`, but not `.` and `..`, which are directories.
pub fn validate_topic_name(name: &str) -> Result<(), TopicNameError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Err(TopicNameError::Empty),
        "." | ".." => Err(TopicNameError::Dots { name: name.to_owned() }),
        _ if name.len() > TOPIC_NAME_BYTES_MAX => Err(TopicNameError::TooLong { name: name.to_owned() }),
        _ if !name.bytes().all(legal) => Err(TopicNameError::Characters { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// Metric names turn `.` into `_`, so two names that differ only there collide.
pub fn has_collision_characters(name: &str) -> bool {
    name.bytes().any(|byte| matches!(byte, b'.' | b'_'))
}

/// Two names collide when they are the same but for `.` and `_`.
pub fn unify_collision_characters(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_as_in_kafka() {
        // Rule: 1 to 249 of [a-zA-Z0-9._-], not "." or "..".
        let long = "a".repeat(249);
        for legal in ["a", "A.b_c-9", "...", "__consumer_offsets", long.as_str()] {
            assert_eq!(validate_topic_name(legal), Ok(()), "{legal}");
        }
        let longer = "a".repeat(250);
        for (name, message) in [
            ("", "Topic name is invalid: the empty string is not allowed"),
            (".", "Topic name is invalid: '.' is not allowed"),
            ("..", "Topic name is invalid: '..' is not allowed"),
            (
                "bad name!",
                "Topic name is invalid: 'bad name!' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
        ] {
            assert_eq!(validate_topic_name(name).unwrap_err().to_string(), message);
        }
        assert!(matches!(validate_topic_name(&longer), Err(TopicNameError::TooLong { .. })));
        assert!(matches!(validate_topic_name("ä"), Err(TopicNameError::Characters { .. })));
    }
}
