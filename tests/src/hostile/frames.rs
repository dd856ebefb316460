//! Frames that lie about their size or what is in them, that never end, or that hold more than anybody sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use walser_protocol::ApiKey;
use walser_protocol::messages::api_versions::ApiVersionsRequest;

use super::Target;
use crate::lossy_fs::prng::Prng;
use crate::raw_client::{ClientError, RawClient, request_frame};

/// Between two connections of an attacker, so that it does not take the whole machine for itself.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for the broker to close or answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);
const HALF_FRAMES: usize = 200;
/// Connections that each hold most of a small frame.
const SMALL_HALF_FRAMES: usize = 4000;
const SMALL_FRAME_BYTES: usize = 16_000;
const SLOW_CLIENTS: usize = 20;
/// As many elements as Kafka allows in an array.
const ELEMENTS: usize = 1_000_000;

fn io_error(error: std::io::Error) -> String {
    format!("the attacker's own socket: {error}")
}

fn connect(target: &Target) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(&target.address).map_err(io_error)?;
    stream.set_nodelay(true).map_err(io_error)?;
    stream.set_read_timeout(Some(ANSWER_DEADLINE)).map_err(io_error)?;
    Ok(stream)
}

/// Sends bytes and reads until the broker closes; true when it did, false when it just goes on.
fn send_and_wait_for_end(target: &Target, bytes: &[u8], wait: Duration) -> Result<bool, String> {
    let mut stream = connect(target)?;
    stream.set_read_timeout(Some(wait)).map_err(io_error)?;
    // The broker may have closed already.
    drop(stream.write_all(bytes));
    let mut sink = [0; 64 << 10];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(_) => return Ok(true),
        }
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

/// A request header of the old kind, with a null client id, and what follows it.
fn request(key: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10 + body.len());
    bytes.extend(key.code().to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(1_i32.to_be_bytes());
    bytes.extend((-1_i16).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Every key and version, its body an array that claims to be as long as can be said, in 8 bytes or so.
pub fn huge_array(target: &Target) -> Result<(), String> {
    let bodies: [&[u8]; 4] = [
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[0, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0],
        &[0x00, 0x0f, 0x42, 0x40, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0x7f, 0xff, 0xff],
    ];
    loop {
        for key in 0..92 {
            let Some(key) = ApiKey::from_wire(key) else { continue };
            for version in 0..19 {
                for body in bodies {
                    if target.is_over() {
                        return Ok(());
                    }
                    // Some of these are requests like any other: they are answered, and nothing follows.
                    let frame = framed(&request(key, version, body));
                    send_and_wait_for_end(target, &frame, Duration::from_millis(1))?;
                }
            }
        }
    }
}

/// Sizes that no frame may have close the connection.
pub fn frame_sizes(target: &Target) -> Result<(), String> {
    while !target.is_over() {
        for size in [i32::MAX, i32::MIN, -1, -2, 0x6974_7470, 200 << 20] {
            let mut bytes = size.to_be_bytes().to_vec();
            bytes.extend([0; 12]);
            if !send_and_wait_for_end(target, &bytes, ANSWER_DEADLINE)? {
                return Err(format!("a frame of {size} bytes does not close the connection"));
            }
            std::thread::sleep(PAUSE);
        }
        // No header fits into these.
        for size in 0..8 {
            let bytes = vec![0; size];
            if !send_and_wait_for_end(target, &framed(&bytes), ANSWER_DEADLINE)? {
                return Err(format!("a frame of {size} bytes does not close the connection"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Frames that begin and go no further, cut everywhere.
pub fn half_a_frame(target: &Target) -> Result<(), String> {
    let frame = request_frame(ApiKey::ApiVersions, 0, 1, &ApiVersionsRequest::default()).map_err(|e| e.to_string())?;
    let mut held = Vec::new();
    for number in 0..HALF_FRAMES {
        let mut stream = connect(target)?;
        let cut = 1 + number % (frame.len() - 1);
        stream.write_all(&frame[..cut]).map_err(io_error)?;
        held.push(stream);
    }
    hold(target);
    Ok(())
}

/// Nearly all of a small frame, on very many connections: together they are more than there is memory for.
pub fn half_frames_of_many(target: &Target) -> Result<(), String> {
    let mut bytes = i32::try_from(SMALL_FRAME_BYTES + 100).unwrap_or(0).to_be_bytes().to_vec();
    bytes.extend(request(ApiKey::Metadata, 1, &[]));
    bytes.resize(SMALL_FRAME_BYTES, 0);
    let mut held = Vec::new();
    for _ in 0..target.scaled(SMALL_HALF_FRAMES) {
        let mut stream = connect(target)?;
        // The broker may stop reading, and close those that are in the way of others.
        drop(stream.set_nonblocking(true));
        drop(stream.write(&bytes));
        held.push(stream);
    }
    hold(target);
    Ok(())
}

/// Slow clients that do nothing wrong: every one of their requests is answered.
pub fn byte_at_a_time(target: &Target) -> Result<(), String> {
    let frame = request_frame(ApiKey::ApiVersions, 0, 1, &ApiVersionsRequest::default()).map_err(|e| e.to_string())?;
    let mut clients = Vec::new();
    for _ in 0..SLOW_CLIENTS {
        clients.push(RawClient::connect(&target.address).map_err(io_error)?);
    }
    while !target.is_over() {
        for byte in &frame {
            for client in &mut clients {
                client.send_raw(std::slice::from_ref(byte)).map_err(|error| format!("a slow client: {error}"))?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for client in &mut clients {
            client.receive(ApiKey::ApiVersions, 0, 1).map_err(|error| format!("a slow client: {error}"))?;
        }
    }
    Ok(())
}

fn hold(target: &Target) {
    while !target.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A body of so many equal elements between two fixed parts.
fn repeated(before: &[&[u8]], element: impl Fn(i32) -> Vec<u8>, after: &[u8]) -> Vec<u8> {
    let mut body: Vec<u8> = before.concat();
    body.extend(i32::try_from(ELEMENTS).unwrap_or(0).to_be_bytes());
    for index in 0..ELEMENTS {
        body.extend(element(i32::try_from(index).unwrap_or(0)));
    }
    body.extend(after);
    body
}

/// Requests with a million of something. They may be answered or refused; the broker has to bear them.
pub fn million_elements(target: &Target) -> Result<(), String> {
    let one: &[u8] = &1_i32.to_be_bytes();
    let attacked: &[u8] = b"\x00\x08attacked";
    let fetch_head: &[u8] = b"\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00";
    let session_head = [fetch_head, &[0; 8]].concat();
    let partition = |index: i32| [&index.to_be_bytes()[..], &[0; 8], &(-1_i64).to_be_bytes(), &[0, 0, 1, 0]].concat();
    let old_partition = |index: i32| [&index.to_be_bytes()[..], &[0; 8], &[0, 0, 1, 0]].concat();
    let session_partition =
        |index: i32| [&index.to_be_bytes()[..], &[0; 8], &(-1_i64).to_be_bytes(), &[0, 0, 1, 0]].concat();
    let bodies: Vec<(ApiKey, i16, Vec<u8>)> = vec![
        (ApiKey::Metadata, 1, repeated(&[], |_| vec![0, 0], &[])),
        (ApiKey::Metadata, 1, repeated(&[], |_| vec![0, 1, b'x'], &[])),
        (ApiKey::Metadata, 4, repeated(&[], |index| format!("\0\x07{index:07}").into_bytes(), &[0])),
        (ApiKey::Produce, 3, repeated(&[b"\xff\xff\x00\x01\x00\x00\x75\x30"], |_| vec![0; 6], &[])),
        (
            ApiKey::Produce,
            3,
            repeated(
                &[b"\xff\xff\xff\xff\x00\x00\x75\x30", one, attacked],
                |_| vec![0, 0, 0, 1, 255, 255, 255, 255],
                &[],
            ),
        ),
        (ApiKey::Fetch, 4, repeated(&[fetch_head], |_| vec![0; 6], &[])),
        (ApiKey::Fetch, 4, repeated(&[fetch_head, one, attacked], old_partition, &[])),
        (ApiKey::Fetch, 5, repeated(&[fetch_head, one, attacked], partition, &[])),
        (ApiKey::Fetch, 7, repeated(&[&session_head, one, attacked], session_partition, &[0, 0, 0, 0])),
        (
            ApiKey::ListOffsets,
            1,
            repeated(&[b"\xff\xff\xff\xff", one, attacked], |_| [&[0, 0, 0, 1][..], &[0xff; 8]].concat(), &[]),
        ),
        (ApiKey::DeleteTopics, 1, repeated(&[], |_| vec![0, 1, b'x'], &[0, 0, 0, 1])),
        (ApiKey::CreateTopics, 2, repeated(&[], |_| vec![0; 16], &[0, 0, 0, 1, 1])),
        (ApiKey::OffsetForLeaderEpoch, 2, repeated(&[one, attacked], |_| vec![0; 12], &[])),
        (ApiKey::DescribeConfigs, 1, repeated(&[], |_| b"\x02\x00\x01x\xff\xff\xff\xff".to_vec(), &[0])),
        (ApiKey::DescribeConfigs, 1, repeated(&[], |_| b"\x04\x00\x011\xff\xff\xff\xff".to_vec(), &[1])),
        (ApiKey::IncrementalAlterConfigs, 0, repeated(&[], |_| b"\x02\x00\x01x\x00\x00\x00\x00".to_vec(), &[1])),
        (
            ApiKey::CreatePartitions,
            0,
            repeated(&[], |_| b"\x00\x01x\x00\x00\x00\x01\xff\xff\xff\xff".to_vec(), &[0, 0, 0, 1, 1]),
        ),
        (ApiKey::DescribeLogDirs, 1, repeated(&[one, attacked], |_| vec![0; 4], &[])),
    ];
    let frames: Vec<Vec<u8>> =
        bodies.into_iter().map(|(key, version, body)| framed(&request(key, version, &body))).collect();
    while !target.is_over() {
        // Two at a time, most likely one on each shard.
        for pair in frames.chunks(2) {
            std::thread::scope(|scope| {
                for frame in pair {
                    scope.spawn(|| answer_or_end(target, frame));
                }
            });
            if target.is_over() {
                break;
            }
        }
    }
    Ok(())
}

/// Sends a request and reads its answer, if there is one.
fn answer_or_end(target: &Target, frame: &[u8]) -> Result<(), ClientError> {
    let mut client = RawClient::connect(&target.address)?;
    client.send_raw(frame)?;
    client.receive_frame().map(drop)
}

/// A good handshake, then noise.
pub fn garbage(target: &Target) -> Result<(), String> {
    let hello = request_frame(ApiKey::ApiVersions, 0, 1, &ApiVersionsRequest::default()).map_err(|e| e.to_string())?;
    let mut prng = Prng::new(target.seed);
    while !target.is_over() {
        let mut client = RawClient::connect(&target.address).map_err(io_error)?;
        client.send_raw(&hello).map_err(|error| error.to_string())?;
        client.receive(ApiKey::ApiVersions, 0, 1).map_err(|error| format!("the handshake: {error}"))?;
        let len = usize::try_from(prng.below(4096)).unwrap_or(0) + 8;
        let mut noise: Vec<u8> = (0..len).map(|_| prng.draw() as u8).collect();
        if prng.below(2) == 0 {
            // A frame of the right size around it, and a key that is served: it gets further.
            let size = i32::try_from(len - 4).unwrap_or(0);
            noise[..4].copy_from_slice(&size.to_be_bytes());
            noise[4..8].copy_from_slice(&[0, prng.below(76) as u8, 0, prng.below(12) as u8]);
        }
        drop(client.send_raw(&noise));
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
