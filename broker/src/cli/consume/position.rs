//! Where a consumer begins.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::cli::client::{Client, TopicMetadata};
use crate::cli::error::CliError;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    Beginning,
    End,
    Offset(i64),
    /// So many records before the end of each partition.
    BeforeEnd(i64),
    /// The first record of this time or later.
    Timestamp(i64),
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let parsed = match text {
            "beginning" | "earliest" | "start" => Some(Self::Beginning),
            "end" | "latest" => Some(Self::End),
            _ => match (text.strip_prefix('@'), text.strip_prefix('-')) {
                (Some(timestamp), _) => number(timestamp).map(Self::Timestamp),
                (None, Some(count)) => number(count).map(Self::BeforeEnd),
                (None, None) => number(text).map(Self::Offset),
            },
        };
        parsed.ok_or_else(|| "beginning, end, an offset, -N (the last N) or @MS (a timestamp)".to_owned())
    }
}

impl StartAt {
    /// The first offset to read, by partition.
    pub fn resolve(
        self,
        client: &mut Client,
        topic: &TopicMetadata,
        partitions: &[i32],
        isolation_level: i8,
    ) -> Result<BTreeMap<i32, i64>, CliError> {
        let mut at = |timestamp: i64| {
            let wanted: Vec<_> = partitions.iter().map(|partition| (*partition, timestamp)).collect();
            client.list_offsets(topic, &wanted, isolation_level)
        };
        let known = |offsets: BTreeMap<i32, Option<i64>>| -> BTreeMap<i32, i64> {
            offsets.into_iter().map(|(partition, offset)| (partition, offset.unwrap_or(0))).collect()
        };
        match self {
            Self::Beginning => at(EARLIEST).map(known),
            Self::End => at(LATEST).map(known),
            Self::Offset(offset) => {
                for partition in partitions {
                    topic.leader(*partition)?;
                }
                Ok(partitions.iter().map(|partition| (*partition, offset)).collect())
            }
            Self::BeforeEnd(count) => {
                let (first, mut last) = (known(at(EARLIEST)?), known(at(LATEST)?));
                for (partition, offset) in &mut last {
                    *offset = offset.saturating_sub(count).max(first.get(partition).copied().unwrap_or(0));
                }
                Ok(last)
            }
            Self::Timestamp(timestamp) => {
                let (found, end) = (at(timestamp)?, known(at(LATEST)?));
                // Nothing as late as that: begin with what comes.
                let or_end = |(partition, end)| (partition, found.get(&partition).copied().flatten().unwrap_or(end));
                Ok(end.into_iter().map(or_end).collect())
            }
        }
    }
}

/// First offset of a partition, and the one its next record will have.
pub fn range(client: &mut Client, topic: &TopicMetadata, partition: i32) -> Result<(i64, i64), CliError> {
    let mut at = |timestamp| {
        let offsets = client.list_offsets(topic, &[(partition, timestamp)], 0)?;
        Ok::<i64, CliError>(offsets.get(&partition).copied().flatten().unwrap_or(0))
    };
    Ok((at(EARLIEST)?, at(LATEST)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_begin_are_parsed() {
        // Rule: the forms the help names, and nothing else.
        for (text, want) in [
            ("beginning", Some(StartAt::Beginning)),
            ("end", Some(StartAt::End)),
            ("12", Some(StartAt::Offset(12))),
            ("-12", Some(StartAt::BeforeEnd(12))),
            ("@12", Some(StartAt::Timestamp(12))),
            ("@-1", None),
            ("--1", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<StartAt>().ok(), want, "{text}");
        }
    }
}
