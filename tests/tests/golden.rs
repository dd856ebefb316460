//! Frames of real clients and brokers: read in full, and written back to the same bytes.

use walser_protocol::header::{RequestHeader, ResponseHeader};
use walser_protocol::{Reader, Writer};
use walser_tests::codec::Catalog;
use walser_tests::golden::{Golden, Kind, load_all};

#[test]
fn captured_frames_round_trip() {
    // Rule: what real clients and brokers send is read to its end, and encoding it again gives their bytes.
    let catalog = Catalog::load();
    let files = load_all();
    assert!(files.len() > 100, "{} golden files", files.len());
    for (path, golden) in files {
        let (header, body) = split(&golden);
        let mut bytes = header;
        let name =
            format!("{}{}", golden.key.name(), if golden.kind == Kind::Request { "Request" } else { "Response" });
        match catalog.translate(&name, golden.version, golden.version, body) {
            Ok(body) => bytes.extend_from_slice(&body),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
        assert_eq!(bytes, golden.frame, "{}", path.display());
    }
}

/// The header as we write it, and the bytes behind it.
fn split(golden: &Golden) -> (Vec<u8>, &[u8]) {
    let mut reader = Reader::new(&golden.frame);
    let mut writer = Writer::with_capacity(0);
    match golden.kind {
        Kind::Request => {
            let header = RequestHeader::decode(&mut reader).expect("a request header");
            assert_eq!((header.api_key, header.api_version), (golden.key.code(), golden.version));
            header.encode(&mut writer, golden.key.request_header_version(golden.version)).expect("a short client id");
        }
        Kind::Response => {
            let version = golden.key.response_header_version(golden.version);
            ResponseHeader::decode(&mut reader, version).expect("a response header").encode(&mut writer, version);
        }
    }
    (writer.into_inner().to_vec(), reader.left())
}
