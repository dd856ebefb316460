//! How many connections the process takes, in total and from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::BrokerView;
use crate::config::key::{Value, host_counts};

/// What the configs allow at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// `max.connections`.
    pub total_max: usize,
    /// `max.connections.per.ip`.
    pub per_ip_max: usize,
    /// `max.connections.per.ip.overrides`.
    pub overrides: BTreeMap<IpAddr, usize>,
}

impl ConnectionBounds {
    /// Reads them as they count now. Overrides of host names are left out: looking one up could block the shard.
    pub fn of(view: &BrokerView<'_>) -> Self {
        let count = |key| usize::try_from(view.integer(key)).unwrap_or(usize::MAX);
        let overrides = match view.value("max.connections.per.ip.overrides") {
            Some(Value::Text(text)) => host_counts(&text).unwrap_or_default(),
            _ => Vec::new(),
        };
        let addresses = overrides.into_iter().filter_map(|(host, max)| {
            let ip: IpAddr = host.parse().ok()?;
            Some((ip.to_canonical(), usize::try_from(max).unwrap_or(usize::MAX)))
        });
        Self {
            total_max: count("max.connections"),
            per_ip_max: count("max.connections.per.ip"),
            overrides: addresses.collect(),
        }
    }
}

/// Shared by all shards; touched once when a connection comes and once when it goes.
pub struct ConnectionLimits {
    /// What the machine has room for, whatever the configs say.
    total_ceiling: usize,
    per_ip_ceiling: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bounds: ConnectionBounds,
    total: usize,
    by_ip: BTreeMap<IpAddr, usize>,
}

impl ConnectionLimits {
    /// Admits nobody before [`Self::set_bounds`].
    pub fn new(total_ceiling: usize, per_ip_ceiling: usize) -> Self {
        Self { total_ceiling, per_ip_ceiling, state: Mutex::default() }
    }

    /// Takes over what the configs allow from now on. Connections that are open stay.
    pub fn set_bounds(&self, bounds: ConnectionBounds) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bounds = bounds;
    }

    /// A place for a connection from `ip`; `None` when there is none left.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<ConnectionSlot> {
        // An IPv4 client of a listener on every interface comes as a mapped IPv6 address.
        let ip = ip.to_canonical();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let total_max = state.bounds.total_max.min(self.total_ceiling);
        let per_ip_max = state.bounds.overrides.get(&ip).copied().unwrap_or(state.bounds.per_ip_max);
        let of_ip = state.by_ip.get(&ip).copied().unwrap_or(0);
        if state.total >= total_max || of_ip >= per_ip_max.min(self.per_ip_ceiling) {
            return None;
        }
        state.total += 1;
        *state.by_ip.entry(ip).or_default() += 1;
        Some(ConnectionSlot { limits: Arc::clone(self), ip })
    }
}

/// A connection's place; given back when dropped.
pub struct ConnectionSlot {
    limits: Arc<ConnectionLimits>,
    ip: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.limits.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.total -= 1;
        if let Some(count) = state.by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                state.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn limits(pairs: &[(&str, &str)], ceiling: usize) -> Arc<ConnectionLimits> {
        let config = BrokerConfig::from_pairs(pairs).expect("fits");
        let limits = Arc::new(ConnectionLimits::new(ceiling, usize::MAX));
        limits.set_bounds(ConnectionBounds::of(&BrokerView::fixed(&config)));
        limits
    }

    fn admitted(limits: &Arc<ConnectionLimits>, ip: &str) -> Vec<ConnectionSlot> {
        let ip = ip.parse().expect("an address");
        std::iter::from_fn(|| limits.admit(ip)).take(100).collect()
    }

    #[test]
    fn connections_are_bounded_in_total_and_by_address() {
        // Rule: the tightest of the total, the address's own bound and the machine's room counts; a place comes back.
        let limits = limits(
            &[
                ("max.connections", "7"),
                ("max.connections.per.ip", "2"),
                ("max.connections.per.ip.overrides", "10.0.0.1:4,[::1]:1"),
            ],
            100,
        );
        let first = admitted(&limits, "10.0.0.1");
        assert_eq!(first.len(), 4);
        let mapped = admitted(&limits, "::ffff:10.0.0.1");
        assert_eq!(mapped.len(), 0, "the same address in its IPv6 form");
        let (second, third) = (admitted(&limits, "::1"), admitted(&limits, "10.0.0.2"));
        assert_eq!((second.len(), third.len()), (1, 2));
        assert!(admitted(&limits, "10.0.0.3").is_empty(), "seven in all");
        drop(second);
        assert_eq!(admitted(&limits, "10.0.0.3").len(), 1);
    }

    #[test]
    fn bounds_change_while_connections_are_open() {
        // Rule: a changed config counts for the next connection, and never above what the machine has room for.
        let limits = limits(&[], 5);
        let open = admitted(&limits, "10.0.0.1");
        assert_eq!(open.len(), 5, "the machine's room");
        limits.set_bounds(ConnectionBounds { total_max: 3, per_ip_max: 3, ..ConnectionBounds::default() });
        let kept: Vec<_> = open.into_iter().take(3).collect();
        assert!(admitted(&limits, "10.0.0.2").is_empty());
        drop(kept);
        assert_eq!(admitted(&limits, "10.0.0.2").len(), 3);
    }
}
