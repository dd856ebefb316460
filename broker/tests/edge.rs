//! Raw sockets against a broker in this process: framing, ordering, limits, stop.
#![expect(clippy::disallowed_methods, reason = "a client outside of the shards may block and look at the clock")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use walser_broker::shard::ShardSettings;
use walser_broker::shard::start::{RunningBroker, Stopped};

mod support;
use support::settings;

/// Generous: machines that test are busy.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
const IDLE_MAX: Duration = Duration::from_millis(300);

struct Client(TcpStream);

impl Client {
    fn connect(broker: &RunningBroker) -> Self {
        let stream = TcpStream::connect(broker.listeners()[0].bound).unwrap();
        stream.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Correlation id and the rest of the next response; `None` when the connection was closed.
    fn receive(&mut self) -> Option<(i32, Vec<u8>)> {
        let mut prefix = [0; 4];
        if !self.read_or_end(&mut prefix) {
            return None;
        }
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(prefix)).unwrap()];
        assert!(self.read_or_end(&mut body), "closed inside a response");
        let correlation_id = i32::from_be_bytes(body[..4].try_into().unwrap());
        Some((correlation_id, body.split_off(4)))
    }

    fn read_or_end(&mut self, buffer: &mut [u8]) -> bool {
        match self.0.read_exact(buffer) {
            Ok(()) => true,
            Err(error) => {
                use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
                assert!(matches!(error.kind(), UnexpectedEof | ConnectionReset), "{error}");
                false
            }
        }
    }
}

/// An ApiVersions request with its size prefix; version 0 has no body.
fn api_versions(version: i16, correlation_id: i32) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(18_i16.to_be_bytes());
    header.extend(version.to_be_bytes());
    header.extend(correlation_id.to_be_bytes());
    header.extend((-1_i16).to_be_bytes());
    framed(&header)
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = i32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

fn error_code(body: &[u8]) -> i16 {
    i16::from_be_bytes(body[..2].try_into().unwrap())
}

/// Runs `test` against a broker of so many shards and stops it cleanly.
fn with_shards(shards: usize, test: impl FnOnce(&RunningBroker)) {
    let (settings, _data_dir) = settings(shards);
    with_broker(&settings, test);
}

/// Runs `test` against a broker and stops it cleanly.
fn with_broker(settings: &ShardSettings, test: impl FnOnce(&RunningBroker)) {
    let broker = RunningBroker::start(settings).unwrap();
    test(&broker);
    assert_eq!(broker.stop(), Stopped::Clean);
}

#[test]
fn api_versions_is_answered() {
    // Rule: version 0 to 5 get the table, any other version gets UNSUPPORTED_VERSION in version 0 with the range.
    with_shards(2, |broker| {
        let mut client = Client::connect(broker);
        client.send(&api_versions(0, 1));
        let (correlation_id, body) = client.receive().unwrap();
        assert_eq!((correlation_id, error_code(&body)), (1, 0));
        client.send(&api_versions(77, 2));
        let (correlation_id, body) = client.receive().unwrap();
        assert_eq!((correlation_id, error_code(&body)), (2, 35));
        assert_eq!(body[2..], [0, 0, 0, 1, 0, 18, 0, 0, 0, 5]);
    });
}

/// An ApiVersions request of version 5 from a client that expects to talk to the given cluster and node.
fn api_versions_expecting(cluster_id: Option<&str>, node_id: i32) -> Vec<u8> {
    let compact = |text: &str| [&[u8::try_from(text.len() + 1).unwrap()], text.as_bytes()].concat();
    let mut request = api_versions(5, 3).split_off(4);
    request.push(0);
    request.extend(compact("test"));
    request.extend(compact("1.0"));
    request.extend(cluster_id.map_or(vec![0], compact));
    request.extend(node_id.to_be_bytes());
    request.push(0);
    framed(&request)
}

#[test]
fn who_expects_another_broker_is_sent_away() {
    // Rule: KIP-1242: another cluster or node gives REBOOTSTRAP_REQUIRED (129), one without the other INVALID_REQUEST (42).
    with_shards(1, |broker| {
        let mut client = Client::connect(broker);
        let cases = [(None, -1, 0), (None, 1, 42), (Some("elsewhere"), -1, 42), (Some("elsewhere"), 1, 129)];
        for (cluster_id, node_id, want) in cases {
            client.send(&api_versions_expecting(cluster_id, node_id));
            let (correlation_id, body) = client.receive().unwrap();
            assert_eq!((correlation_id, error_code(&body)), (3, want), "{cluster_id:?} {node_id}");
        }
    });
}

#[test]
fn replies_keep_the_order_of_requests() {
    // Rule: many requests sent at once, cut anywhere, are answered one by one in order.
    with_shards(2, |broker| {
        let requests: Vec<u8> = (0..500).flat_map(|id| api_versions(if id % 3 == 0 { 9 } else { 0 }, id)).collect();
        for cut in [1, 7, 1000, requests.len()] {
            let mut client = Client::connect(broker);
            let mut sending = Client(client.0.try_clone().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| requests.chunks(cut).for_each(|part| sending.send(part)));
                for id in 0..500 {
                    assert_eq!(client.receive().unwrap().0, id, "cut at {cut}");
                }
            });
        }
    });
}

#[test]
fn bad_frames_close_the_connection() {
    // Rule: a size out of range, an unknown key or version, or a header that is cut short ends the connection; others go on.
    with_shards(2, |broker| {
        let mut unknown_key = api_versions(0, 1);
        unknown_key[5] = 200;
        let mut unknown_version = api_versions(0, 1);
        unknown_version[4..8].copy_from_slice(&[0, 3, 0, 99]);
        let cases: [(&str, Vec<u8>); 7] = [
            ("negative", vec![0xff, 0xff, 0xff, 0xff]),
            ("two gigabytes", vec![0x7f, 0xff, 0xff, 0xff, 0, 0]),
            ("above the limit", vec![0, 0x10, 0, 1, 0]),
            ("empty", vec![0, 0, 0, 0]),
            ("short header", framed(&[0, 18, 0])),
            ("unknown key", unknown_key),
            ("unknown version", unknown_version),
        ];
        let mut other = Client::connect(broker);
        for (name, bytes) in cases {
            let mut client = Client::connect(broker);
            client.send(&bytes);
            assert_eq!(client.receive(), None, "{name}");
            other.send(&api_versions(0, 5));
            assert_eq!(other.receive().unwrap().0, 5, "{name}");
        }
        // Noise of all kinds, from a generator that anybody can repeat.
        let mut state = 1_u64;
        for _ in 0..200 {
            let mut client = Client::connect(broker);
            let noise: Vec<u8> = (0..97)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            drop(client.0.write_all(&noise));
        }
        other.send(&api_versions(0, 6));
        assert_eq!(other.receive().unwrap().0, 6);
    });
}

#[test]
fn answers_before_a_fault_still_leave() {
    // Rule: what was asked before the bytes that close the connection is answered.
    with_shards(1, |broker| {
        let mut client = Client::connect(broker);
        let mut bytes = api_versions(0, 1);
        bytes.extend([0xff; 4]);
        client.send(&bytes);
        assert_eq!(client.receive().unwrap().0, 1);
        assert_eq!(client.receive(), None);
    });
}

#[test]
fn half_frames_do_not_starve_others() {
    // Rule: a client that announces a frame and never sends it holds its memory only until others wait for it.
    let (mut settings, _data_dir) = settings(1);
    settings.frame_memory_bytes = 1 << 20;
    with_broker(&settings, |broker| {
        let mut halves: Vec<_> = (0..2)
            .map(|_| {
                let mut client = Client::connect(broker);
                client.send(&[0, 7, 0, 0, 0, 18]);
                client
            })
            .collect();
        let mut small = Client::connect(broker);
        small.send(&api_versions(0, 1));
        // The reaper needs half a minute of silence; here it only has to be seen that nobody panics and the stop is clean.
        small.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut byte = [0];
        drop(small.0.read(&mut byte));
        halves.clear();
        small.0.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
        drop(small);
        let mut late = Client::connect(broker);
        late.send(&api_versions(0, 2));
        assert_eq!(late.receive().unwrap().0, 2);
    });
}

#[test]
fn idle_connections_are_reaped() {
    // Rule: connections.max.idle.ms without a byte closes, and one that speaks stays.
    let (mut settings, _data_dir) = settings(2);
    settings.idle_max = IDLE_MAX;
    with_broker(&settings, |broker| {
        let mut idle: Vec<_> = (0..20).map(|_| Client::connect(broker)).collect();
        assert!((0..100).any(|_| speak(broker)), "the machine never lets a client speak in time");
        for client in &mut idle {
            assert_eq!(client.receive(), None);
        }
    });
}

/// Asks over and over for three times as long as an idle connection lives. False when it was closed, which is right only
/// when this machine stood still for so long that nothing could be asked.
fn speak(broker: &RunningBroker) -> bool {
    let began = Instant::now();
    let mut client = Client::connect(broker);
    let mut spoke = began;
    while began.elapsed() < IDLE_MAX * 3 {
        let asking = Instant::now();
        let is_sent = client.0.write_all(&api_versions(0, 1)).is_ok();
        let answer = if is_sent { client.receive() } else { None };
        let Some((correlation_id, _)) = answer else {
            assert!(spoke.elapsed() >= IDLE_MAX, "a connection that speaks was closed");
            return false;
        };
        assert_eq!(correlation_id, 1);
        spoke = asking;
    }
    true
}

#[test]
fn connections_are_limited() {
    // Rule: above max.connections or max.connections.per.ip a connection is closed at once, and room comes back.
    let (mut settings, _data_dir) = settings(2);
    settings.connections_per_ip_max = 3;
    with_broker(&settings, |broker| {
        let mut open: Vec<_> = (0..3)
            .map(|id| {
                let mut client = Client::connect(broker);
                client.send(&api_versions(0, id));
                assert_eq!(client.receive().unwrap().0, id);
                client
            })
            .collect();
        assert_eq!(Client::connect(broker).receive(), None);
        open.pop();
        wait_for_place(broker);
    });
}

/// Connects until there is a place.
fn wait_for_place(broker: &RunningBroker) {
    let began = Instant::now();
    loop {
        let mut again = Client::connect(broker);
        drop(again.0.write_all(&api_versions(0, 9)));
        if again.receive().is_some() {
            break;
        }
        assert!(began.elapsed() < ANSWER_WAIT, "the place did not come back");
    }
}

/// Sends until the broker, whose answers are not taken, reads no further.
fn send_until_stopped(client: &mut Client) {
    client.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let requests: Vec<u8> = (0..1000).flat_map(|id| api_versions(0, id)).collect();
    let mut sent = 0_usize;
    while sent < 256 << 20 {
        match client.0.write(&requests) {
            Ok(count) => sent += count,
            Err(_) => return,
        }
    }
    panic!("reading never stopped");
}

#[test]
fn a_reset_ends_a_connection_that_is_being_answered() {
    // Rule: a client that goes with answers unread resets the connection: what waits to be sent waits no longer.
    let (mut settings, _data_dir) = settings(1);
    settings.connections_per_ip_max = 1;
    with_broker(&settings, |broker| {
        let mut deaf = Client::connect(broker);
        send_until_stopped(&mut deaf);
        drop(deaf);
        wait_for_place(broker);
    });
}

#[test]
fn a_client_that_never_reads_is_bounded() {
    // Rule: when replies are not taken, reading stops; others are served and the stop is clean.
    let (mut settings, _data_dir) = settings(1);
    settings.stop_wait = Duration::from_millis(200);
    let broker = RunningBroker::start(&settings).unwrap();
    let mut deaf = Client::connect(&broker);
    send_until_stopped(&mut deaf);
    let mut other = Client::connect(&broker);
    other.send(&api_versions(0, 1));
    assert_eq!(other.receive().unwrap().0, 1);
    broker.stop();
}

#[test]
fn a_stop_answers_and_closes() {
    // Rule: a clean stop closes idle connections, and a new broker can take the same port at once.
    let (mut settings, _data_dir) = settings(2);
    let broker = RunningBroker::start(&settings).unwrap();
    let bound = broker.listeners()[0].bound;
    let mut client = Client::connect(&broker);
    client.send(&api_versions(0, 1));
    assert_eq!(client.receive().unwrap().0, 1);
    assert_eq!(broker.stop(), Stopped::Clean);
    assert_eq!(client.receive(), None);
    settings.binds[0] = bound;
    with_broker(&settings, |broker| {
        assert!(RunningBroker::start(&settings).is_err(), "the port is taken");
        let mut client = Client::connect(broker);
        client.send(&api_versions(0, 2));
        assert_eq!(client.receive().unwrap().0, 2);
    });
}
