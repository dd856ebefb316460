//! What a key is: its type, its default, what it allows, and how a value is read and shown.
//!
//! The texts of errors are those clients of Kafka know: tools print them as they are.

use std::fmt;

use thiserror::Error;

/// One key of a broker, topic, group or client metrics subscription.
#[derive(Debug)]
pub struct ConfigKey {
    pub name: &'static str,
    pub kind: ConfigType,
    /// Canonical text; `None` where there is no value unless one is given.
    pub default: Option<&'static str>,
    pub allowed: Allowed,
    pub mode: Mode,
    pub effect: Effect,
    /// Shown by DescribeConfigs only when it is set: internal keys and those that exist only dynamically.
    pub hidden: bool,
    /// The broker key that stands in for a topic or group key that is not set.
    pub synonym: Option<&'static str>,
    /// One sentence.
    pub doc: &'static str,
}

/// Types as DescribeConfigs names them; the number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

/// Where a broker key may be changed while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only in `server.properties` and by `--set`.
    ReadOnly,
    /// For one broker.
    PerBroker,
    /// For one broker or for all.
    ClusterWide,
}

/// What the broker makes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Acted,
    /// Accepted, shown and stored, but nothing depends on it; a start that sets one says so.
    Inert,
    /// Asks for something that is not there when it differs from its default: such a start is refused, because
    /// running without it would be an open door.
    Refused,
}

/// What a value must satisfy beyond its type.
#[derive(Debug)]
pub enum Allowed {
    Any,
    AtLeast(i64),
    /// Both inclusive.
    Between(i64, i64),
    /// Both inclusive.
    Fraction(f64, f64),
    OneOf(&'static [&'static str]),
    OneOfIgnoringCase(&'static [&'static str]),
    /// Any elements, each once.
    AnyList,
    /// Any elements, each once, at least one.
    FilledList,
    ListOf(&'static [&'static str]),
    FilledListOf(&'static [&'static str]),
    NonEmpty,
    GzipLevel,
    ThrottledReplicas,
    OffsetReset,
    /// Bytes with an optional unit: 128MB, 1GiB, 4096.
    MemorySize,
    /// CPU numbers and ranges of them: 0,2-3.
    CpuList,
    /// host:port.
    SocketAddress,
    /// host:count pairs.
    HostCounts,
}

/// A value of a key's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Boolean(bool),
    /// INT, SHORT and LONG.
    Integer(i64),
    Double(f64),
    /// STRING, CLASS and PASSWORD.
    Text(String),
    List(Vec<String>),
}

/// A value its key does not take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("Invalid value {value} for configuration {key}: {allowed}")]
    Value { key: String, value: String, allowed: String },
    #[error("Configuration '{key}' values must not be empty.")]
    EmptyElement { key: String },
    #[error("Configuration '{key}' must not be empty.")]
    EmptyList { key: String },
}

impl fmt::Display for ConfigType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        })
    }
}

impl fmt::Display for Value {
    /// The canonical text, as DescribeConfigs answers it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Double(value) => formatter.write_str(&java_double(*value)),
            Self::Text(value) => formatter.write_str(value),
            Self::List(elements) => formatter.write_str(&elements.join(",")),
        }
    }
}

impl ConfigKey {
    /// Whether the value is a secret, which is never shown.
    pub fn sensitive(&self) -> bool {
        self.kind == ConfigType::Password
    }

    /// The value `raw` means, or why it means none.
    pub fn parse(&self, raw: &str) -> Result<Value, ConfigError> {
        let trimmed = raw.trim();
        let value = match self.kind {
            ConfigType::Boolean => match trimmed {
                _ if trimmed.eq_ignore_ascii_case("true") => Value::Boolean(true),
                _ if trimmed.eq_ignore_ascii_case("false") => Value::Boolean(false),
                _ => return Err(self.refuse(raw, "Expected value to be either true or false")),
            },
            ConfigType::Int => self.integer(trimmed, i32::MIN.into(), i32::MAX.into())?,
            ConfigType::Short => self.integer(trimmed, i16::MIN.into(), i16::MAX.into())?,
            ConfigType::Long => self.integer(trimmed, i64::MIN, i64::MAX)?,
            ConfigType::Double => Value::Double(self.double(trimmed)?),
            ConfigType::String | ConfigType::Class => Value::Text(trimmed.to_owned()),
            // A secret may begin or end with a space.
            ConfigType::Password => Value::Text(raw.to_owned()),
            ConfigType::List if trimmed.is_empty() => Value::List(Vec::new()),
            ConfigType::List => Value::List(trimmed.split(',').map(|element| element.trim().to_owned()).collect()),
        };
        self.check(value)
    }

    fn integer(&self, trimmed: &str, least: i64, most: i64) -> Result<Value, ConfigError> {
        match trimmed.parse::<i64>() {
            Ok(value) if (least..=most).contains(&value) => Ok(Value::Integer(value)),
            _ => Err(self.refuse(trimmed, format!("Not a number of type {}", self.kind))),
        }
    }

    fn double(&self, trimmed: &str) -> Result<f64, ConfigError> {
        let number = trimmed.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        match trimmed.parse::<f64>() {
            Ok(value) if number => Ok(value),
            _ => Err(self.refuse(trimmed, format!("Not a number of type {}", self.kind))),
        }
    }

    fn refuse(&self, value: impl fmt::Display, allowed: impl Into<String>) -> ConfigError {
        let value = if self.sensitive() { "[hidden]".to_owned() } else { value.to_string() };
        ConfigError::Value { key: self.name.to_owned(), value, allowed: allowed.into() }
    }

    fn check(&self, value: Value) -> Result<Value, ConfigError> {
        match value {
            Value::Integer(number) => self.check_integer(number)?,
            Value::Double(number) => self.check_double(number)?,
            Value::Text(text) => return self.check_text(text).map(Value::Text),
            Value::List(elements) => return self.check_list(elements).map(Value::List),
            Value::Boolean(_) => {}
        }
        Ok(value)
    }

    fn check_integer(&self, number: i64) -> Result<(), ConfigError> {
        let (least, most) = if let Allowed::AtLeast(least) = self.allowed {
            (least, i64::MAX)
        } else if let Allowed::Between(least, most) = self.allowed {
            (least, most)
        } else if matches!(self.allowed, Allowed::GzipLevel) && number != -1 && !(1..=9).contains(&number) {
            return Err(self.refuse(number, "Value must be between 1 and 9 or equal to -1"));
        } else {
            return Ok(());
        };
        if number < least {
            return Err(self.refuse(number, format!("Value must be at least {least}")));
        }
        if number > most {
            return Err(self.refuse(number, format!("Value must be no more than {most}")));
        }
        Ok(())
    }

    fn check_double(&self, number: f64) -> Result<(), ConfigError> {
        let Allowed::Fraction(least, most) = self.allowed else { return Ok(()) };
        if number < least {
            return Err(self.refuse(java_double(number), format!("Value must be at least {least}")));
        }
        if number > most {
            return Err(self.refuse(java_double(number), format!("Value must be no more than {most}")));
        }
        Ok(())
    }

    fn check_text(&self, text: String) -> Result<String, ConfigError> {
        match self.text_refusal(&text) {
            Some(reason) => Err(self.refuse(text, reason)),
            None => Ok(text),
        }
    }

    /// Why `text` is not allowed.
    fn text_refusal(&self, text: &str) -> Option<String> {
        let (fits, reason): (bool, &str) = if let Allowed::OneOf(choices) = self.allowed {
            let fits = choices.contains(&text);
            return (!fits).then(|| format!("String must be one of: {}", choices.join(", ")));
        } else if let Allowed::OneOfIgnoringCase(choices) = self.allowed {
            let fits = choices.iter().any(|choice| choice.eq_ignore_ascii_case(text));
            return (!fits).then(|| format!("String must be one of (case insensitive): {}", choices.join(", ")));
        } else if matches!(self.allowed, Allowed::NonEmpty) {
            (!text.is_empty(), "String must be non-empty")
        } else if matches!(self.allowed, Allowed::OffsetReset) {
            (offset_reset(text), "must be latest, earliest or by_duration: and a duration as in PT1H")
        } else if matches!(self.allowed, Allowed::MemorySize) {
            let fits = memory_size(text).is_some();
            (fits, "must be a number of bytes with an optional unit, as in 128MB, 1GiB or 4096")
        } else if matches!(self.allowed, Allowed::CpuList) {
            (cpu_list(text).is_some(), "must be CPU numbers and ranges, as in 0,2-3")
        } else if matches!(self.allowed, Allowed::SocketAddress) {
            (socket_address(text), "must be host:port, as in 127.0.0.1:9644 or [::1]:9644")
        } else if matches!(self.allowed, Allowed::HostCounts) {
            (host_counts(text).is_some(), "must be host:count pairs, as in 127.0.0.1:100,[::1]:5")
        } else {
            return None;
        };
        (!fits).then(|| reason.to_owned())
    }

    fn check_list(&self, mut elements: Vec<String>) -> Result<Vec<String>, ConfigError> {
        let (choices, may_be_empty): (&[&str], bool) = if let Allowed::ListOf(choices) = self.allowed {
            (choices, true)
        } else if let Allowed::FilledListOf(choices) = self.allowed {
            (choices, false)
        } else if matches!(self.allowed, Allowed::AnyList | Allowed::FilledList) {
            (&[], matches!(self.allowed, Allowed::AnyList))
        } else if matches!(self.allowed, Allowed::ThrottledReplicas) && !throttled_replicas(&elements) {
            let wanted = format!(
                "{} must be the literal '*' or a list of replicas in the following format: \
                 [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                self.name
            );
            return Err(self.refuse(format!("[{}]", elements.join(", ")), wanted));
        } else {
            return Ok(elements);
        };
        if elements.is_empty() && !may_be_empty {
            return Err(ConfigError::EmptyList { key: self.name.to_owned() });
        }
        if elements.iter().any(String::is_empty) {
            return Err(ConfigError::EmptyElement { key: self.name.to_owned() });
        }
        if let Some(stranger) =
            elements.iter().find(|element| !choices.is_empty() && !choices.contains(&element.as_str()))
        {
            return Err(self.refuse(stranger, format!("String must be one of: {}", choices.join(", "))));
        }
        // KIP-1161: a duplicate is dropped, the first one stays.
        let mut seen = 0;
        while seen < elements.len() {
            let (before, rest) = elements.split_at(seen);
            if rest.first().is_some_and(|element| before.contains(element)) {
                elements.remove(seen);
            } else {
                seen += 1;
            }
        }
        Ok(elements)
    }
}

fn throttled_replicas(elements: &[String]) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(elements, [all] if all == "*")
        || elements
            .iter()
            .all(|pair| pair.split_once(':').is_some_and(|(partition, broker)| number(partition) && number(broker)))
}

fn offset_reset(text: &str) -> bool {
    matches!(text, "latest" | "earliest")
        || text.strip_prefix("by_duration:").is_some_and(|duration| {
            duration.len() > 2
                && duration.starts_with('P')
                && duration.bytes().all(|byte| byte.is_ascii_digit() || b"PDTHMS.".contains(&byte))
        })
}

fn socket_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
    })
}

/// Hosts and what each is allowed, of a text such as 127.0.0.1:100,[::1]:5. `None` if it is no such text.
pub fn host_counts(text: &str) -> Option<Vec<(String, u32)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (host, count) = pair.rsplit_once(':')?;
            let host = host.trim().trim_start_matches('[').trim_end_matches(']');
            (!host.is_empty()).then_some(())?;
            Some((host.to_owned(), count.trim().parse().ok()?))
        })
        .collect()
}

/// Bytes of a text such as 128MB, 64k or 1GiB: units are powers of 1024. `None` if it is no such text, zero, or too large.
pub fn memory_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes > 0).then_some(bytes)
}

/// CPU numbers of a text such as 0,2-3, ascending and each once. `None` if it is no such text or names a CPU above 4095.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    const CPUS_MAX: usize = 4096;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// A double as Java writes it: 0.5, 1.0E-5, 1.7976931348623157E308.
fn java_double(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:E}");
        return match text.split_once('E') {
            Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
            _ => text,
        };
    }
    format!("{value:?}")
}

/// Declares a table of keys: name, type, default, what is allowed, where it may be changed, what the broker makes of
/// it, `hidden` where it is shown only when set, `~` and the broker key that stands in, and a sentence.
macro_rules! keys {
    ($table:ident: $($name:literal $kind:ident = $default:expr, $allowed:expr, $mode:ident, $effect:ident $($hidden:ident)? $(~ $synonym:literal)?, $doc:literal;)+) => {
        pub(super) const $table: &[$crate::config::key::ConfigKey] = &[$(
            $crate::config::key::ConfigKey {
                name: $name,
                kind: $crate::config::key::ConfigType::$kind,
                default: $default,
                allowed: $allowed,
                mode: $crate::config::key::Mode::$mode,
                effect: $crate::config::key::Effect::$effect,
                hidden: $crate::config::key::keys!(@hidden $($hidden)?),
                synonym: $crate::config::key::keys!(@synonym $($synonym)?),
                doc: $doc,
            },
        )+];
    };
    (@hidden) => { false };
    (@hidden hidden) => { true };
    (@synonym) => { None };
    (@synonym $synonym:literal) => { Some($synonym) };
}
pub(crate) use keys;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::TOPIC_KEYS;

    #[test]
    fn values_are_read_and_refused_as_kafka_does() {
        // Rule: the canonical form and the text of a refusal are Kafka's.
        let at_least = |value: &str, key: &str, least: i64| {
            Err(format!("Invalid value {value} for configuration {key}: Value must be at least {least}"))
        };
        let cases: &[(&str, &str, Result<&str, String>)] = &[
            ("retention.ms", " 77 ", Ok("77")),
            ("retention.ms", "-5", at_least("-5", "retention.ms", -1)),
            ("retention.ms", "", Err("Invalid value  for configuration retention.ms: Not a number of type LONG".into())),
            ("segment.bytes", "100", at_least("100", "segment.bytes", 1_048_576)),
            (
                "segment.bytes",
                "3000000000",
                Err("Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT".into()),
            ),
            ("cleanup.policy", "", Ok("")),
            ("cleanup.policy", " compact , delete ", Ok("compact,delete")),
            ("cleanup.policy", "compact,compact", Ok("compact")),
            ("cleanup.policy", "delete,", Err("Configuration 'cleanup.policy' values must not be empty.".into())),
            (
                "cleanup.policy",
                "foo",
                Err("Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete".into()),
            ),
            (
                "compression.gzip.level",
                "0",
                Err("Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1".into()),
            ),
            ("preallocate", "TRUE", Ok("true")),
            (
                "preallocate",
                "yes",
                Err("Invalid value yes for configuration preallocate: Expected value to be either true or false".into()),
            ),
            ("min.cleanable.dirty.ratio", "1e-3", Ok("0.001")),
            (
                "min.cleanable.dirty.ratio",
                "2",
                Err("Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1".into()),
            ),
            ("max.message.bytes", "+5", Ok("5")),
            ("leader.replication.throttled.replicas", "0:1,1:2", Ok("0:1,1:2")),
            ("leader.replication.throttled.replicas", "*", Ok("*")),
        ];
        for (key, raw, want) in cases {
            let parsed = TOPIC_KEYS.find(key).expect("a topic key").parse(raw);
            let got = parsed.map(|value| value.to_string()).map_err(|error| error.to_string());
            assert_eq!(got.as_deref(), want.as_deref(), "{key}={raw}");
        }
    }

    #[test]
    fn doubles_are_shown_as_java_shows_them() {
        // Rule: DescribeConfigs texts are compared byte by byte by configuration tools.
        for (value, want) in
            [(0.5, "0.5"), (1.0, "1.0"), (f64::MAX, "1.7976931348623157E308"), (1e-5, "1.0E-5"), (1e7, "1.0E7")]
        {
            assert_eq!(java_double(value), want);
        }
    }

    #[test]
    fn sizes_and_cpus_are_read_or_refused() {
        // Rule: what the operator writes is understood in full or not at all.
        for (text, want) in [
            ("4096", Some(4096)),
            ("128MB", Some(128 << 20)),
            ("1GiB", Some(1 << 30)),
            ("64k", Some(64 << 10)),
            ("0", None),
            ("", None),
            ("12parsecs", None),
            ("99999999999999999999", None),
            ("99999999T", None),
        ] {
            assert_eq!(memory_size(text), want, "{text}");
        }
        for (text, want) in [
            ("0,2-3", Some(vec![0, 2, 3])),
            ("3,1,1", Some(vec![1, 3])),
            ("3-1", None),
            ("", None),
            ("x", None),
            ("0-9999999", None),
        ] {
            assert_eq!(cpu_list(text), want, "{text}");
        }
    }
}
