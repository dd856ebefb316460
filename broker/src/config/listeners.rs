//! Listeners: where the broker binds and what it tells clients.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// `NAME://host:port`. A host without a name is every interface; an IPv6 host is kept without its brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As in the configuration, in capitals.
    pub listener: String,
    pub host: String,
    /// 0 asks for a free one.
    pub port: u16,
}

/// A text that is no endpoint, or a set of them that does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenerError {
    #[error("'{0}' is not NAME://host:port, as in PLAINTEXT://127.0.0.1:9092 or PLAINTEXT://[::1]:9092")]
    Endpoint(String),
    #[error("the listener name {0} is used twice; give each listener a name of its own")]
    DuplicateName(String),
    #[error("port {0} is used twice; give each listener a port of its own")]
    DuplicatePort(u16),
    #[error("'{0}' is not NAME:PROTOCOL, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL as PROTOCOL")]
    Protocol(String),
    #[error("listener {0} has no security protocol; add {0}:PLAINTEXT to listener.security.protocol.map")]
    NoProtocol(String),
    #[error("no listener {0} in `listeners`; advertise only what is opened")]
    NotOpened(String),
    #[error("{0} cannot be reached by clients; name a host in advertised.listeners")]
    NotReachable(Endpoint),
    #[error("port 0 stands for a free port and can be advertised only by a listener on port 0")]
    NoPort(String),
}

/// Kafka's security protocols. Only `Plaintext` is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(Self::Plaintext),
            "SSL" => Some(Self::Ssl),
            "SASL_PLAINTEXT" => Some(Self::SaslPlaintext),
            "SASL_SSL" => Some(Self::SaslSsl),
            _ => None,
        }
    }

    /// As the configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "{}://[{}]:{}", self.listener, self.host, self.port)
        } else {
            write!(formatter, "{}://{}:{}", self.listener, self.host, self.port)
        }
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, ListenerError> {
        let wrong = || ListenerError::Endpoint(text.to_owned());
        let (listener, address) = text.split_once("://").ok_or_else(wrong)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            // A scope such as %eth0 may follow the address.
            Some(inner) if inner.split('%').next().is_some_and(|plain| plain.parse::<Ipv6Addr>().is_ok()) => inner,
            Some(_) => return Err(wrong()),
            None if host.contains([':', '/', '[', ']']) || host.contains(char::is_whitespace) => return Err(wrong()),
            None => host,
        };
        let name_fits =
            !listener.is_empty() && listener.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let port = port.parse().map_err(|_| wrong())?;
        if !name_fits {
            return Err(wrong());
        }
        Ok(Self { listener: listener.to_ascii_uppercase(), host: host.to_owned(), port })
    }

    /// Whether the host stands for every interface: none, 0.0.0.0 or ::.
    pub fn is_wildcard(&self) -> bool {
        self.host.is_empty()
            || self.host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_unspecified())
            || self.host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unspecified())
    }
}

/// The listeners in `elements`, each name once. Ports may repeat on different hosts only.
pub fn parse_endpoints(elements: &[String]) -> Result<Vec<Endpoint>, ListenerError> {
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(elements.len());
    for element in elements {
        let endpoint = Endpoint::parse(element)?;
        if endpoints.iter().any(|other| other.listener == endpoint.listener) {
            return Err(ListenerError::DuplicateName(endpoint.listener));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// Refuses two listeners that would bind one port of one host.
pub fn verify_ports(listeners: &[Endpoint]) -> Result<(), ListenerError> {
    for (index, endpoint) in listeners.iter().enumerate() {
        let clash = listeners.iter().skip(index + 1).any(|other| {
            other.port == endpoint.port
                && (other.host == endpoint.host || other.is_wildcard() || endpoint.is_wildcard())
        });
        if endpoint.port != 0 && clash {
            return Err(ListenerError::DuplicatePort(endpoint.port));
        }
    }
    Ok(())
}

/// `listener.security.protocol.map`.
pub fn parse_protocols(text: &str) -> Result<BTreeMap<String, SecurityProtocol>, ListenerError> {
    let mut protocols = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let parsed = pair.split_once(':').and_then(|(name, protocol)| {
            SecurityProtocol::from_name(protocol.trim()).map(|protocol| (name.trim().to_ascii_uppercase(), protocol))
        });
        let (name, protocol) = parsed.ok_or_else(|| ListenerError::Protocol(pair.to_owned()))?;
        protocols.insert(name, protocol);
    }
    Ok(protocols)
}

/// What clients are told of `bound`, which holds the ports really taken. `advertised` is what the configuration says,
/// as it was written; a listener it does not name advertises where it is bound. `local_host` stands in for a
/// listener on every interface.
pub fn advertise(bound: &[Endpoint], advertised: &[Endpoint], local_host: &str) -> Vec<Endpoint> {
    bound
        .iter()
        .map(|listener| {
            let mut endpoint = advertised
                .iter()
                .find(|endpoint| endpoint.listener == listener.listener)
                .cloned()
                .unwrap_or_else(|| listener.clone());
            if endpoint.is_wildcard() {
                local_host.clone_into(&mut endpoint.host);
            }
            if endpoint.port == 0 {
                endpoint.port = listener.port;
            }
            endpoint
        })
        .collect()
}

/// Refuses advertised addresses no client could use, and those of listeners that are not opened.
pub fn verify_advertised(
    listeners: &[Endpoint],
    advertised: &[Endpoint],
    controllers: &[String],
) -> Result<(), ListenerError> {
    for endpoint in advertised.iter().filter(|endpoint| !controllers.contains(&endpoint.listener)) {
        let listener = listeners
            .iter()
            .find(|listener| listener.listener == endpoint.listener)
            .ok_or_else(|| ListenerError::NotOpened(endpoint.listener.clone()))?;
        if endpoint.is_wildcard() {
            return Err(ListenerError::NotReachable(endpoint.clone()));
        }
        if endpoint.port == 0 && listener.port != 0 {
            return Err(ListenerError::NoPort(endpoint.listener.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(text: &str) -> Result<Vec<Endpoint>, ListenerError> {
        parse_endpoints(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn endpoints_are_read_and_shown() {
        // Rule: IPv4, IPv6, names, empty hosts and port 0 are all endpoints; the rest is refused.
        for text in [
            "PLAINTEXT://127.0.0.1:9092",
            "PLAINTEXT://[::1]:9092",
            "A://:0,B://host.example:1",
            "PLAINTEXT://[fe80::1%eth0]:9092",
        ] {
            let shown = endpoints(text).expect(text).iter().map(Endpoint::to_string).collect::<Vec<_>>().join(",");
            assert_eq!(shown, text);
        }
        for text in
            ["foo", "A://b", "A://b:x", "A://b:70000", "://b:1", "A://::1:9092", "A://[zz]:1", "A://a/b:1", "A b://c:1"]
        {
            assert_eq!(endpoints(text), Err(ListenerError::Endpoint(text.to_owned())), "{text}");
        }
        assert_eq!(endpoints("a://b:1,A://c:2"), Err(ListenerError::DuplicateName("A".to_owned())));
    }

    #[test]
    fn one_port_is_bound_once_per_host() {
        // Rule: a port may repeat on different hosts, and port 0 always.
        for (text, fits) in [
            ("A://h:1,B://h:2", true),
            ("A://h:1,B://h:1", false),
            ("A://h:1,B://i:1", true),
            ("A://h:1,B://:1", false),
            ("A://:0,B://:0", true),
        ] {
            assert_eq!(verify_ports(&endpoints(text).expect(text)).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn clients_are_told_addresses_they_can_reach() {
        // Rule: port 0 becomes the port taken, every interface becomes a host name, several listeners stay apart.
        let bound = endpoints("A://0.0.0.0:41000,B://[::]:41001,C://127.0.0.1:41002").expect("endpoints");
        let advertised = endpoints("A://broker.example:0,B://[2001:db8::1]:9999").expect("endpoints");
        let told: Vec<String> = advertise(&bound, &advertised, "box").iter().map(Endpoint::to_string).collect();
        assert_eq!(told, ["A://broker.example:41000", "B://[2001:db8::1]:9999", "C://127.0.0.1:41002"]);
        let told = advertise(&bound, &[], "box");
        assert_eq!(told.iter().map(|endpoint| endpoint.host.as_str()).collect::<Vec<_>>(), ["box", "box", "127.0.0.1"]);
    }

    #[test]
    fn advertised_addresses_belong_to_listeners() {
        // Rule: nothing is advertised that is not opened or that no client could connect to.
        let listeners = endpoints("A://:9092,B://:0").expect("endpoints");
        for (text, want) in [
            ("A://h:1,B://h:0", Ok(())),
            ("CONTROLLER://h:9093", Ok(())),
            ("C://h:1", Err(ListenerError::NotOpened("C".to_owned()))),
            ("A://h:0", Err(ListenerError::NoPort("A".to_owned()))),
        ] {
            let advertised = endpoints(text).expect(text);
            assert_eq!(verify_advertised(&listeners, &advertised, &["CONTROLLER".to_owned()]), want, "{text}");
        }
        let wildcard = endpoints("A://0.0.0.0:9092").expect("endpoints");
        assert!(matches!(verify_advertised(&listeners, &wildcard, &[]), Err(ListenerError::NotReachable(_))));
    }
}
