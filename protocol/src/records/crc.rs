//! CRC-32C (Castagnoli), the checksum of record batches.

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn matches_the_published_vectors() {
        // Rule: the checksum is the one of RFC 3720, appendix B.4; any other polynomial makes every client refuse us.
        let ascending: Vec<u8> = (0..32).collect();
        let cases: [(&[u8], u32); 5] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ];
        for (bytes, want) in cases {
            assert_eq!(crc32c(bytes), want, "{bytes:?}");
        }
    }
}
