//! How many connections the process takes, in total and from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by all shards; touched once when a connection comes and once when it goes.
pub struct ConnectionLimits {
    total_max: usize,
    per_ip_max: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_ip: BTreeMap<IpAddr, usize>,
}

impl ConnectionLimits {
    /// Kafka's `max.connections` and `max.connections.per.ip`.
    pub fn new(total_max: usize, per_ip_max: usize) -> Self {
        Self { total_max, per_ip_max, counts: Mutex::default() }
    }

    /// A place for a connection from `ip`; `None` when there is none left.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<ConnectionSlot> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= self.total_max || counts.by_ip.get(&ip).copied().unwrap_or(0) >= self.per_ip_max {
            return None;
        }
        counts.total += 1;
        *counts.by_ip.entry(ip).or_default() += 1;
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
        let mut counts = self.limits.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(count) = counts.by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                counts.by_ip.remove(&self.ip);
            }
        }
    }
}
