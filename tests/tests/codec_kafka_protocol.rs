//! Our codec against the `kafka-protocol` crate and against an encoder that interprets the schema.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};
use walser_codegen::Message;
use walser_tests::codec::Catalog;

const SAMPLES: u64 = 40;

/// Versions of a message, each with seeds for samples.
fn cases(message: &Message) -> impl Iterator<Item = (i16, u64)> {
    (message.versions.first..=message.versions.last)
        .flat_map(|version| (0..SAMPLES).map(move |seed| (version, seed * 1000 + version as u64)))
}

#[test]
fn samples_of_the_schema_come_back_unchanged() {
    // Rule: encode(decode(x)) = x for every message and version, where x comes from an encoder that interprets the schema.
    let catalog = Catalog::load();
    let mut checked = 0;
    for message in catalog.messages() {
        for (version, seed) in cases(message) {
            let name = &message.name;
            let bytes = catalog.sample(name, version, seed).expect("known");
            let back = catalog.translate(name, version, version, &bytes);
            assert_eq!(back.as_ref(), Ok(&bytes), "{name} version {version} seed {seed}: {bytes:02x?}");
            checked += 1;
        }
    }
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn every_cut_of_a_message_is_an_error_or_a_shorter_message() {
    // Rule: no prefix of a message panics.
    let catalog = Catalog::load();
    for message in catalog.messages() {
        for version in message.versions.first..=message.versions.last {
            let bytes = catalog.sample(&message.name, version, 7).expect("known");
            let decode = catalog.codec(&message.name).expect("known").decode;
            for len in (0..bytes.len()).take(400) {
                decode(&bytes[..len], version);
            }
        }
    }
}

#[test]
fn kafka_protocol_reads_and_writes_the_same_bytes() {
    // Rule: for every message and version that crate knows, decoding there and encoding there gives our bytes.
    let catalog = Catalog::load();
    let (mut checked, mut unknown, mut differences) = (0, Vec::new(), BTreeMap::new());
    for schema in catalog.schemas() {
        let (Some(api), [request, response]) = (&schema.api, schema.messages.as_slice()) else { continue };
        let Ok(key) = ApiKey::try_from(api.key) else {
            unknown.push(api.name.clone());
            continue;
        };
        let known = key.valid_versions();
        for (message, is_request) in [(request, true), (response, false)] {
            for (version, seed) in cases(message).filter(|(version, _)| (known.min..=known.max).contains(version)) {
                let bytes = catalog.sample(&message.name, version, seed).expect("known");
                let theirs = if is_request {
                    theirs_request(key, version, &bytes)
                } else {
                    theirs_response(key, version, &bytes)
                };
                let differs = match theirs {
                    Ok(theirs) if theirs == bytes => None,
                    Ok(_) => Some("other bytes".to_owned()),
                    Err(error) => Some(error),
                };
                if let Some(problem) = differs {
                    differences
                        .entry(format!("{} version {version}", message.name))
                        .or_insert(format!("{problem}: seed {seed}: {bytes:02x?}"));
                }
                checked += 1;
            }
        }
    }
    // Versions its key table names but its messages do not have: they were unstable in the Kafka it follows.
    for unstable in
        ["InitProducerIdRequest version 6", "OffsetCommitRequest version 10", "OffsetFetchRequest version 10"]
    {
        assert!(differences.remove(unstable).is_some(), "{unstable} is known there now: take it off this list");
    }
    println!("{checked} samples; not known there: {unknown:?}");
    assert!(checked > 10_000, "{checked}");
    assert!(differences.is_empty(), "{differences:#?}");
}

fn theirs_request(key: ApiKey, version: i16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut left = Bytes::copy_from_slice(bytes);
    let value = RequestKind::decode(key, &mut left, version).map_err(|error| error.to_string())?;
    let mut out = BytesMut::new();
    value.encode(&mut out, version).map_err(|error| error.to_string())?;
    Ok(out.to_vec())
}

fn theirs_response(key: ApiKey, version: i16, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut left = Bytes::copy_from_slice(bytes);
    let value = ResponseKind::decode(key, &mut left, version).map_err(|error| error.to_string())?;
    let mut out = BytesMut::new();
    value.encode(&mut out, version).map_err(|error| error.to_string())?;
    Ok(out.to_vec())
}
