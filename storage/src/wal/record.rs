//! Bytes of one record.
//!
//! Every number is big-endian. The first 40 bytes keep their meaning in every format, so that a newer one is recognised.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic `WALR` |
//! | 4 | 1 | format, 1 |
//! | 5 | 1 | kind: 1 data, 2 mark (no payload, takes no sequence: it only says how far the log is durable) |
//! | 6 | 2 | low bits of the file's salt: a look-alike is refused before its payload is read |
//! | 8 | 8 | generation of the file: each use of a recycled file has its own |
//! | 16 | 8 | sequence, from 1, without gaps over all files |
//! | 24 | 8 | durable_through: every record up to this sequence was on stable storage when this one was written |
//! | 32 | 4 | length of the payload in bytes |
//! | 36 | 4 | CRC-32C over the file's salt (8 bytes), bytes 0 to 35 and the payload |
//! | 40 | length | payload |
//!
//! Zeros follow up to the next multiple of 8, after the last record of a commit up to the next block.
//!
//! The salt is a random number in the file's name and in no file. A payload is what a client sent; without the salt it
//! could contain a record that verifies, and a scan behind a torn write would believe it.

use crate::limits::WAL_PAYLOAD_BYTES_MAX;

pub(super) const FORMAT: u8 = 1;
pub(super) const HEADER_BYTES: usize = 40;
pub(super) const MAGIC: [u8; 4] = *b"WALR";
const CRC_AT: usize = 36;
pub(super) const ALIGN_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Mark,
}

/// What makes a file's use unique; both are in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileIdentity {
    pub generation: u64,
    pub salt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub sequence: u64,
    pub durable_through: u64,
    pub payload_len: usize,
}

/// Bytes that a record takes.
pub(super) fn encoded_len(payload_len: usize) -> usize {
    (HEADER_BYTES + payload_len).next_multiple_of(ALIGN_BYTES)
}

/// Writes the record at the start of `target`, padding included, and returns the bytes written. The payload is `head`, then
/// `body`.
pub(super) fn encode(target: &mut [u8], identity: FileIdentity, header: Header, head: &[u8], body: &[u8]) -> usize {
    let payload_bytes = head.len() + body.len();
    assert_eq!(header.payload_len, payload_bytes);
    let len = encoded_len(payload_bytes);
    let kind = match header.kind {
        Kind::Data => 1,
        Kind::Mark => 2,
    };
    let payload_len = u32::try_from(payload_bytes).expect("a payload is below its limit");
    target[..4].copy_from_slice(&MAGIC);
    let [.., hint_high, hint_low] = identity.salt.to_be_bytes();
    target[4..8].copy_from_slice(&[FORMAT, kind, hint_high, hint_low]);
    target[8..16].copy_from_slice(&identity.generation.to_be_bytes());
    target[16..24].copy_from_slice(&header.sequence.to_be_bytes());
    target[24..32].copy_from_slice(&header.durable_through.to_be_bytes());
    target[32..36].copy_from_slice(&payload_len.to_be_bytes());
    let (head_end, body_end) = (HEADER_BYTES + head.len(), HEADER_BYTES + payload_bytes);
    target[HEADER_BYTES..head_end].copy_from_slice(head);
    target[head_end..body_end].copy_from_slice(body);
    // Of the copy, which is in the cache now.
    let crc = checksum(identity.salt, &target[..CRC_AT], &target[HEADER_BYTES..body_end]);
    target[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    target[body_end..len].fill(0);
    len
}

/// A header as found, not yet verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unverified {
    format: u8,
    kind: u8,
    sequence: u64,
    durable_through: u64,
    pub payload_len: usize,
    crc: u32,
}

/// What a position holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Valid(Header),
    /// Its checksum is right, its format unknown.
    Newer(u8),
    Bad,
}

/// `None` when no record of this file's use starts here.
pub(super) fn parse(bytes: &[u8], identity: FileIdentity) -> Option<Unverified> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (flags, rest) = rest.split_first_chunk::<4>()?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (durable_through, rest) = rest.split_first_chunk::<8>()?;
    let (payload_len, rest) = rest.split_first_chunk::<4>()?;
    let (crc, _) = rest.split_first_chunk::<4>()?;
    let payload_len = usize::try_from(u32::from_be_bytes(*payload_len)).ok()?;
    let [.., hint_high, hint_low] = identity.salt.to_be_bytes();
    let ours = *magic == MAGIC && flags[2..] == [hint_high, hint_low];
    if !ours || u64::from_be_bytes(*generation) != identity.generation || payload_len > WAL_PAYLOAD_BYTES_MAX {
        return None;
    }
    Some(Unverified {
        format: flags[0],
        kind: flags[1],
        sequence: u64::from_be_bytes(*sequence),
        durable_through: u64::from_be_bytes(*durable_through),
        payload_len,
        crc: u32::from_be_bytes(*crc),
    })
}

/// `record`: the bytes from the header's start to the payload's end.
pub(super) fn verify(found: Unverified, identity: FileIdentity, record: &[u8]) -> Verdict {
    let Some((header, payload)) = record.split_at_checked(HEADER_BYTES) else { return Verdict::Bad };
    if payload.len() != found.payload_len || checksum(identity.salt, &header[..CRC_AT], payload) != found.crc {
        return Verdict::Bad;
    }
    if found.format > FORMAT {
        return Verdict::Newer(found.format);
    }
    let kind = match found.kind {
        1 => Kind::Data,
        2 if payload.is_empty() => Kind::Mark,
        _ => return Verdict::Bad,
    };
    let (sequence, durable_through) = (found.sequence, found.durable_through);
    if sequence == 0 || durable_through >= sequence {
        return Verdict::Bad;
    }
    Verdict::Valid(Header { kind, sequence, durable_through, payload_len: found.payload_len })
}

fn checksum(salt: u64, header: &[u8], payload: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&salt.to_be_bytes());
    digest.update(header);
    digest.update(payload);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

/// The record as a version with another format would have written it.
#[cfg(test)]
pub(super) fn with_format(record: &[u8], identity: FileIdentity, format: u8) -> Vec<u8> {
    let mut changed = record.to_vec();
    changed[4] = format;
    let crc = checksum(identity.salt, &changed[..CRC_AT], &changed[HEADER_BYTES..]);
    changed[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: FileIdentity = FileIdentity { generation: 3, salt: 0x1234 };

    fn sample(payload: &[u8]) -> (Header, Vec<u8>) {
        let header = Header { kind: Kind::Data, sequence: 9, durable_through: 8, payload_len: payload.len() };
        let mut bytes = vec![0xA5; encoded_len(payload.len())];
        assert_eq!(
            encode(&mut bytes, IDENTITY, header, &payload[..payload.len() / 2], &payload[payload.len() / 2..]),
            bytes.len()
        );
        (header, bytes)
    }

    fn check(bytes: &[u8], identity: FileIdentity) -> Verdict {
        let Some(found) = parse(bytes, identity) else { return Verdict::Bad };
        match bytes.get(..HEADER_BYTES + found.payload_len) {
            Some(record) => verify(found, identity, record),
            None => Verdict::Bad,
        }
    }

    #[test]
    fn what_is_encoded_verifies_and_nothing_else() {
        // Rule: any changed bit, another generation or another salt make a record bad.
        let (header, bytes) = sample(b"hello");
        assert_eq!(bytes.len(), 48);
        assert_eq!(check(&bytes, IDENTITY), Verdict::Valid(header));
        assert_eq!(check(&bytes, FileIdentity { generation: 4, ..IDENTITY }), Verdict::Bad);
        assert_eq!(check(&bytes, FileIdentity { salt: 0x1235, ..IDENTITY }), Verdict::Bad);
        for bit in 0..(HEADER_BYTES + 5) * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&changed, IDENTITY), Verdict::Bad, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_garbage() {
        // Rule: a format above ours counts only under a right checksum.
        let (_, mut bytes) = sample(b"");
        let newer = with_format(&bytes, IDENTITY, FORMAT + 1);
        assert_eq!(check(&newer, IDENTITY), Verdict::Newer(FORMAT + 1));
        bytes[4] = FORMAT + 1;
        assert_eq!(check(&bytes, IDENTITY), Verdict::Bad);
    }
}
