//! Subscriptions by regular expression: RE2 syntax, matched against whole topic names.
//!
//! Members send RE2 syntax, which differs from that of the `regex` crate in a few places; [`translate`] covers them. An
//! expression is compiled within a bound of memory, and matching takes time proportional to the names.
//!
//! Resolving looks at every topic of the cluster, so it is a job of its own: a heartbeat asks for it, the coordinator goes on,
//! and the result comes back as a command ([`super::Effect::ResolveRegexes`]).

mod translate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;

use self::translate::translate;
use super::records::ResolvedRegex;
use crate::metadata::MetadataImage;

/// Bytes one compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Groups within groups; the parser needs stack for each.
const NESTING_MAX: u32 = 100;

/// A group resolves its expressions again this long after the last time, at the earliest.
pub const REFRESH_INTERVAL_MIN_MS: i64 = 10_000;

/// The text is no regular expression in RE2 syntax, or one that needs too much memory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{regex}` is not a regular expression this broker can use: {reason}")]
pub struct InvalidRegex {
    pub regex: String,
    pub reason: String,
}

/// A regular expression that matches whole names.
#[derive(Clone, Debug)]
pub struct TopicRegex(regex::Regex);

impl TopicRegex {
    pub fn new(text: &str) -> Result<Self, InvalidRegex> {
        let invalid = |reason: String| InvalidRegex { regex: text.to_owned(), reason };
        let translated = translate(text).map_err(|reason| invalid(reason.to_owned()))?;
        // Alone first: in a group of ours an unbalanced parenthesis of theirs could find its other half.
        compile(&translated).map_err(&invalid)?;
        compile(&format!(r"\A(?:{translated})\z")).map(Self).map_err(invalid)
    }

    pub fn is_match(&self, topic_name: &str) -> bool {
        self.0.is_match(topic_name)
    }
}

fn compile(pattern: &str) -> Result<regex::Regex, String> {
    let mut builder = regex::RegexBuilder::new(pattern);
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).nest_limit(NESTING_MAX).octal(true);
    builder.build().map_err(|error| error.to_string())
}

/// Regular expressions and the topics they stand for.
pub type ResolvedRegexes = BTreeMap<Arc<str>, ResolvedRegex>;

/// The topics of each expression, as of now. `may_describe` says whether the member that asked may know of a topic.
pub fn resolve(
    regexes: &BTreeSet<Arc<str>>,
    image: &MetadataImage,
    wall_ms: i64,
    may_describe: &dyn Fn(&str) -> bool,
) -> ResolvedRegexes {
    let version = i64::try_from(image.end_offset()).unwrap_or(i64::MAX);
    let resolve = |regex: &Arc<str>| {
        // All have been compiled when a member brought them; one of a log that another broker wrote may match nothing here.
        let compiled = TopicRegex::new(regex).ok();
        let matched = compiled.iter().flat_map(|compiled| {
            image.topics().map(|topic| &topic.name).filter(|name| compiled.is_match(name) && may_describe(name))
        });
        let topic_names = Arc::new(matched.cloned().collect());
        let resolved = ResolvedRegex { topic_names, version, timestamp_ms: wall_ms };
        (regex.clone(), resolved)
    };
    regexes.iter().map(resolve).collect()
}

#[cfg(test)]
mod tests;
