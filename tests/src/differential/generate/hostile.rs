//! Frames that are no request: keys and versions that nobody serves, bodies cut short or too long, counts that lie.

use bytes::BytesMut;
use walser_protocol::header::encode_request;
use walser_protocol::messages::api_versions::ApiVersionsRequest;
use walser_protocol::messages::list_offsets::ListOffsetsRequest;
use walser_protocol::messages::metadata::MetadataRequest;
use walser_protocol::{ApiKey, Writer};

use super::super::prng::Prng;
use super::super::world::World;
use super::{Expect, Request};

pub(super) fn request(rng: &mut Prng, _world: &World, _side: usize) -> Request {
    let (text, key, version, body) = match rng.below(9) {
        0 => ("a key that was removed", *rng.pick(&[4, 5, 6, 7]), 0, vec![0; 10]),
        1 => ("a key that never was", *rng.pick(&[95, 1000, -1, i16::MAX]), 0, vec![0; 10]),
        2 => (
            "a version that is too new",
            *rng.pick(&[0, 1, 2, 3, 19, 20, 32, 60]),
            *rng.pick(&[30, 1000, i16::MAX]),
            vec![0; 20],
        ),
        3 => ("a version below zero", *rng.pick(&[0, 1, 3, 19]), -1, vec![0; 20]),
        4 => ("a version that was removed", *rng.pick(&[0, 1, 2, 19]), 0, vec![0; 20]),
        5 => return api_versions(rng),
        6 => ("an array longer than the frame", 3, *rng.pick(&[1, 4, 8]), i32::MAX.to_be_bytes().to_vec()),
        7 => return cut_short(rng),
        _ => ("nothing behind the header", *rng.pick(&[1, 2, 3, 19, 32]), *rng.pick(&[4, 2]), Vec::new()),
    };
    raw(text, key, version, &body)
}

/// Size, header without tagged fields, body.
fn raw(text: &str, key: i16, version: i16, body: &[u8]) -> Request {
    let mut writer = Writer::new(BytesMut::new());
    writer.i32(i32::try_from(14 + body.len()).unwrap_or(i32::MAX));
    writer.i16(key);
    writer.i16(version);
    writer.i32(1);
    writer.i16(4);
    writer.raw(b"test");
    writer.raw(body);
    let text = format!("{text}: key {key}, version {version}, {} bytes", body.len());
    Request { key: None, version, frame: writer.into_inner(), text, expect: Expect::Anything, effects: Vec::new() }
}

/// KIP-511: a version nobody knows is answered in version 0, with what is known.
fn api_versions(rng: &mut Prng) -> Request {
    let version = *rng.pick(&[6, 7, 100, i16::MAX]);
    let mut request = raw("ApiVersions of the future", ApiKey::ApiVersions.code(), version, b"\0\x01\x01\0");
    request.key = Some(ApiKey::ApiVersions);
    // The answer is of version 0.
    request.version = 0;
    request.expect = Expect::Answer;
    request
}

/// A good request whose frame ends too early: its size is right, its body is not all there.
fn cut_short(rng: &mut Prng) -> Request {
    let version = *rng.pick(&[1, 4, 7]);
    let whole = match rng.below(3) {
        0 => encode_request(ApiKey::Metadata, version, 1, Some("walser-tests"), &MetadataRequest::default()),
        1 => encode_request(ApiKey::ListOffsets, version, 1, Some("walser-tests"), &ListOffsetsRequest::default()),
        _ => encode_request(ApiKey::ApiVersions, 3, 1, Some("walser-tests"), &ApiVersionsRequest::default()),
    };
    let mut frame = whole.unwrap_or_default();
    let cut = 1 + usize::try_from(rng.below(3)).unwrap_or(0);
    frame.truncate(frame.len().saturating_sub(cut));
    let size = i32::try_from(frame.len() - 4).unwrap_or(0);
    frame[..4].copy_from_slice(&size.to_be_bytes());
    let text = format!("cut short by {cut}: {:?}", &frame[..]);
    Request { key: None, version, frame, text, expect: Expect::Anything, effects: Vec::new() }
}
