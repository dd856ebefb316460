//! Listeners, sockets and connections.

use crate::config::key::Allowed::{Any, AnyList, AtLeast, FilledList, HostCounts};
use crate::config::key::keys;

keys! { KEYS:
    "listeners" List = Some("PLAINTEXT://127.0.0.1:9092"), FilledList, PerBroker, Acted,
        "Addresses the broker binds, as NAME://host:port; port 0 takes a free one and an empty host binds every interface.";
    "advertised.listeners" List = None, AnyList, ReadOnly, Acted,
        "Addresses given to clients, one per listener; unset, they are derived from `listeners`.";
    "listener.security.protocol.map" String = Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"), Any, PerBroker, Acted,
        "Security protocol of each listener name, as NAME:PROTOCOL pairs.";
    "socket.send.buffer.bytes" Int = Some("102400"), Any, ReadOnly, Acted,
        "Send buffer of a connection's socket in bytes; -1 leaves it to the system.";
    "socket.receive.buffer.bytes" Int = Some("-1"), Any, ReadOnly, Acted,
        "Receive buffer of a connection's socket in bytes; -1 leaves it to the system, which lets it grow as fast as the broker takes what comes.";
    "socket.request.max.bytes" Int = Some("104857600"), AtLeast(1), ReadOnly, Acted,
        "Largest request frame accepted; a larger one closes its connection.";
    "socket.listen.backlog.size" Int = Some("50"), AtLeast(1), ReadOnly, Acted,
        "Connections the kernel may hold before they are accepted, per listener and shard.";
    "max.connections.per.ip" Int = Some("2147483647"), AtLeast(0), ClusterWide, Acted,
        "Connections one address may hold at a time.";
    "max.connections.per.ip.overrides" String = Some(""), HostCounts, ClusterWide, Acted,
        "Exceptions to max.connections.per.ip, as host:count pairs.";
    "max.connections" Int = Some("2147483647"), AtLeast(0), ClusterWide, Acted,
        "Connections the broker holds at a time, over all listeners.";
    "max.connection.creation.rate" Int = Some("2147483647"), AtLeast(0), ClusterWide, Inert,
        "New connections accepted per second.";
    "connections.max.idle.ms" Long = Some("600000"), Any, ReadOnly, Acted,
        "A connection that has been silent for this long is closed.";
    "connection.failed.authentication.delay.ms" Int = Some("100"), AtLeast(0), ReadOnly, Inert,
        "Time by which the answer to a failed authentication is held back.";
    "queued.max.requests" Int = Some("500"), AtLeast(1), ReadOnly, Inert,
        "Requests that may wait for a handler thread; here each connection has its own bound.";
    "queued.max.request.bytes" Long = Some("-1"), Any, ReadOnly, Inert,
        "Bytes of requests that may wait; here `walser.memory` is the bound.";
    "num.network.threads" Int = Some("3"), AtLeast(1), ClusterWide, Inert,
        "Network threads per listener; here every shard serves its own connections.";
}
