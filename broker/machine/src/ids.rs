//! Identities: numbers and names that must not be mixed up.

pub use walser_protocol::types::{BrokerId, LeaderEpoch, TopicId, Uuid};

/// Names a log directory of a broker across restarts and mount points (KIP-858).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(Uuid);

impl DirectoryId {
    /// No directory has been chosen yet.
    pub const UNASSIGNED: Self = Self(Uuid::ZERO);

    pub const fn new(raw: Uuid) -> Self {
        Self(raw)
    }

    pub const fn get(self) -> Uuid {
        self.0
    }
}

/// Random ids from a seed: xoshiro256++, so that the same seed gives the same ids on every machine. The broker seeds it from the
/// kernel, the simulator from its own seed.
#[derive(Clone, Debug)]
pub struct IdGenerator {
    state: [u64; 4],
}

impl IdGenerator {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let mut state = [0u64; 4];
        for (word, bytes) in state.iter_mut().zip(seed.chunks_exact(8)) {
            let mut raw = [0u8; 8];
            raw.copy_from_slice(bytes);
            *word = u64::from_le_bytes(raw);
        }
        // The all-zero state is the one from which the generator never leaves.
        if state == [0; 4] {
            state[0] = 0x9e37_79b9_7f4a_7c15;
        }
        Self { state }
    }

    /// A version 4 UUID, so never zero, and never one whose text would begin with a dash, which command line tools would take
    /// for an option.
    pub fn uuid(&mut self) -> Uuid {
        loop {
            let mut raw = [0u8; 16];
            raw[..8].copy_from_slice(&self.next().to_be_bytes());
            raw[8..].copy_from_slice(&self.next().to_be_bytes());
            if raw[0] >> 2 != 62 {
                return Uuid::from_random(raw);
            }
        }
    }

    /// An id for a new topic.
    pub fn topic_id(&mut self) -> TopicId {
        loop {
            if let Some(topic_id) = TopicId::from_wire(self.uuid()) {
                return topic_id;
            }
        }
    }

    /// An even draw would need rejection; the bias of a remainder does not matter where replicas start.
    pub fn index_below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        let [first, second, third, fourth] = self.state;
        let result = first.wrapping_add(fourth).rotate_left(23).wrapping_add(first);
        let shifted = second << 17;
        let third = third ^ first;
        let fourth = fourth ^ second;
        self.state = [first ^ fourth, second ^ third, third ^ shifted, fourth.rotate_left(45)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_usable_and_repeatable() {
        // Rule: the same seed gives the same ids, none is zero, none prints with a leading dash.
        let mut one = IdGenerator::from_seed([7; 32]);
        let mut other = IdGenerator::from_seed([7; 32]);
        for _ in 0..10_000 {
            let id = one.uuid();
            assert_eq!(id, other.uuid());
            assert!(!id.is_zero());
            assert!(!id.to_string().starts_with('-'));
            assert_eq!(id.as_bytes()[6] >> 4, 4);
        }
    }
}
