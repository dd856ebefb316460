//! Keys as 128 bits: SipHash-2-4 with a secret key (Aumasson and Bernstein, 2012), the variant with the long output.
//!
//! Two keys with one hash would lose a record, so the hash must hold against somebody who chooses the keys: without the
//! secret nobody can look for a pair.

/// The secret of one cleaning.
#[derive(Clone, Copy, Debug)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// From random numbers.
    pub fn new(random: [u64; 2]) -> Self {
        Self(random)
    }

    /// The hash of `bytes`.
    pub(super) fn hash(self, bytes: &[u8]) -> [u64; 2] {
        let mut state = State::new(self.0);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length's lowest byte ends the input.
        last[7] = bytes.len() as u8;
        state.absorb(u64::from_le_bytes(last));
        state.finish()
    }
}

struct State([u64; 4]);

impl State {
    fn new([low, high]: [u64; 2]) -> Self {
        Self([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }

    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self) -> [u64; 2] {
        self.0[2] ^= 0xee;
        let low = self.squeeze();
        self.0[1] ^= 0xdd;
        [low, self.squeeze()]
    }

    fn squeeze(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        // Rule: it is SipHash-2-4-128 as published: key 00..0f, input 00, 01, 02 … of the lengths 0 and 1.
        let key = HashKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let bytes = |hash: [u64; 2]| [hash[0].to_le_bytes(), hash[1].to_le_bytes()].concat();
        let want = [
            (&[][..], [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93]),
            (
                &[0][..],
                [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45],
            ),
        ];
        for (input, want) in want {
            assert_eq!(bytes(key.hash(input)), want, "{input:?}");
        }
    }

    #[test]
    fn every_byte_and_every_length_counts() {
        // Rule: inputs that differ in one byte, or only in their length, have other hashes.
        let key = HashKey::new([1, 2]);
        let mut seen = std::collections::BTreeSet::new();
        for len in 0..40 {
            assert!(seen.insert(key.hash(&vec![0; len])), "{len} zeros");
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                assert!(seen.insert(key.hash(&bytes)), "one at {at} of {len}");
            }
        }
        assert_ne!(key.hash(b"key"), HashKey::new([2, 1]).hash(b"key"));
    }
}
