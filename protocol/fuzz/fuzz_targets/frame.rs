//! A frame as a connection sees it: size, header, and the body of whatever the header names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walser_protocol::frame::{REQUEST_LEN_MIN, SIZE_LEN, frame_len};
use walser_protocol::header::{RequestHeader, ResponseHeader};
use walser_protocol::{ApiKey, Reader};

const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((size, rest)) = data.split_first_chunk::<SIZE_LEN>() else { return };
    let Ok(len) = frame_len(*size, REQUEST_LEN_MIN, LIMIT) else { return };
    assert!((REQUEST_LEN_MIN..=LIMIT).contains(&len));
    let mut reader = Reader::new(rest.get(..len).unwrap_or(rest));
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let Some(key) = ApiKey::from_wire(header.api_key) else { return };
    let version = key.response_header_version(header.api_version);
    std::hint::black_box(ResponseHeader::decode(&mut reader, version).is_ok());
});
