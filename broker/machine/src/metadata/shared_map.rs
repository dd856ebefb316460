//! An ordered map whose copies share what did not change.

use std::borrow::Borrow;
use std::sync::Arc;

/// A chunk splits in two when it outgrows this. Small enough that copying one is cheap, large enough that the list of
/// chunks, which every copy of the map has for itself, stays short: 10,000 topics are about 160 to 320 pointers.
const CHUNK_ENTRIES_MAX: usize = 64;

/// Sorted entries in chunks behind `Arc`. A clone copies the list of chunks; a change copies the one chunk it touches, and
/// only if another copy of the map still holds it. An image per metadata change stays cheap with tens of thousands of topics,
/// where copying a `BTreeMap` would cost milliseconds each.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    /// None is empty; keys ascend within and across chunks.
    chunks: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    /// Equal when the entries are; where chunks begin depends on history.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self.chunks.iter().flat_map(|chunk| chunk.iter()).eq(other.chunks.iter().flat_map(|chunk| chunk.iter()))
    }
}

impl<K: Eq, V: Eq> Eq for SharedMap<K, V> {}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let position = chunk.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        chunk.get(position).map(|(_, value)| value)
    }

    /// Entries in ascending order of key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// Entries from `first` on (inclusive), ascending.
    pub fn iter_from<'a, Q: Ord + ?Sized>(
        &'a self,
        first: &Q,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, Q, K, V>
    where
        K: Borrow<Q>,
    {
        let chunk_index = self.chunk_of(first);
        let skipped =
            self.chunks.get(chunk_index).map_or(0, |chunk| chunk.partition_point(|(known, _)| known.borrow() < first));
        self.chunks
            .get(chunk_index..)
            .unwrap_or_default()
            .iter()
            .flat_map(|chunk| chunk.iter())
            .skip(skipped)
            .map(|(key, value)| (key, value))
    }

    /// The value that was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let chunk_index = self.chunk_of(&key);
        let Some(chunk) = self.chunks.get_mut(chunk_index) else {
            self.chunks.push(Arc::new(vec![(key, value)]));
            self.len += 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(position) => Some(std::mem::replace(&mut chunk[position].1, value)),
            Err(position) => {
                chunk.insert(position, (key, value));
                self.len += 1;
                if chunk.len() > CHUNK_ENTRIES_MAX {
                    let upper = chunk.split_off(chunk.len() / 2);
                    self.chunks.insert(chunk_index + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// The value that was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let chunk_index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(chunk_index)?;
        let position = chunk.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        let chunk = Arc::make_mut(chunk);
        let (_, value) = chunk.remove(position);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(chunk_index);
        }
        Some(value)
    }

    /// The chunk that holds `key`, or would: the last one whose first key is not above it, else the first.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first.borrow() <= key))
            .saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_btree_map_and_leaves_copies_alone(
            steps in proptest::collection::vec((0u16..300, any::<bool>(), any::<bool>()), 0..600)
        ) {
            // Rule: a shared map is a BTreeMap whose clones never see later changes.
            let mut model = BTreeMap::new();
            let mut map = SharedMap::default();
            let mut copies = Vec::new();
            for (serial, (key, insert, copy)) in steps.into_iter().enumerate() {
                if insert {
                    prop_assert_eq!(map.insert(key, serial), model.insert(key, serial));
                } else {
                    prop_assert_eq!(map.remove(&key), model.remove(&key));
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.len(), model.len());
                if copy && copies.len() < 8 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert!(map.iter().eq(model.iter()));
                for first in [0u16, 77, 150, 299, 300] {
                    prop_assert!(map.iter_from(&first).eq(model.range(first..)));
                }
            }
        }
    }
}
