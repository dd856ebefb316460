//! The simulator's random numbers: the same seed gives the same numbers on every machine, for ever.

/// xoshiro256++ seeded by splitmix64 (both public domain algorithms by Blackman and Vigna). Not for secrets.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed;
        let state = std::array::from_fn(|_| splitmix(&mut mixed));
        Self { state }
    }

    /// Another generator that does not disturb this one's sequence beyond one number.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// Uniform in `0..end`.
    ///
    /// # Panics
    /// When `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        // Multiply-shift: the bias is under 2^-32 for every range used here.
        let wide = u128::from(self.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).expect("a product shifted by 64 fits")
    }

    /// Uniform index of a collection of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        let below = self.below(u64::try_from(len).expect("a length fits in u64"));
        usize::try_from(below).expect("below a usize")
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Seeds for a test: the same ones every time, others when `WALSER_FIRST_SEED` says where to begin.
#[cfg(test)]
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("WALSER_FIRST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    first..first.saturating_add(count)
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
