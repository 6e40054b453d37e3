//! A sorted map whose clones share memory: a change after a clone copies one chunk of entries, not all of
//! them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries in a chunk before it is cut in two.
const FULL: usize = 128;

/// A sorted map in chunks. Chunks are in ascending order of their keys, and none is empty.
#[derive(Clone, Debug)]
pub(super) struct SharedMap<K, V> {
    chunks: Vec<Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

/// The place of a key: its chunk, and its position there. `Err` holds the position for an insertion if the
/// map does not contain the key.
struct Place {
    chunk: usize,
    position: Result<usize, usize>,
}

impl<K: Ord, V> SharedMap<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        let behind = self.chunks.partition_point(|chunk| Borrow::<Q>::borrow(&chunk[0].0) <= key);
        let chunk = behind.saturating_sub(1);
        let entries = self.chunks.get(chunk).map_or(&[][..], |entries| entries);
        Place { chunk, position: entries.binary_search_by(|(known, _)| Borrow::<Q>::borrow(known).cmp(key)) }
    }

    /// The value of a key; `None` if the map does not contain the key.
    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let Place { chunk, position } = self.place(key);
        Some(&self.chunks.get(chunk)?[position.ok()?].1)
    }

    /// True if the map contains the key.
    pub(super) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).position.is_ok()
    }

    /// All entries in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// All values in the order of their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The keys for which `order` returns `Equal`, in ascending order. The keys must be sorted by `order`.
    pub(super) fn keys_at<'a>(
        &'a self,
        order: &dyn Fn(&K) -> Ordering,
    ) -> impl Iterator<Item = &'a K> + use<'a, K, V> {
        let (first, skipped) = self.bound(|key| order(key) == Ordering::Less);
        let (last, taken) = self.bound(|key| order(key) != Ordering::Greater);
        let before: usize = self.chunks[first..last].iter().map(|chunk| chunk.len()).sum();
        let found = self.chunks[first..].iter().flat_map(|chunk| chunk.iter());
        found.take(before + taken).skip(skipped).map(|(key, _)| key)
    }

    /// The chunk that holds the end of the keys that come before, and the number of these keys in the chunk.
    /// All of them precede every other key of the map.
    fn bound(&self, comes_before: impl Fn(&K) -> bool) -> (usize, usize) {
        let behind = self.chunks.partition_point(|chunk| comes_before(&chunk[0].0));
        let chunk = behind.saturating_sub(1);
        let entries = self.chunks.get(chunk).map_or(&[][..], |entries| entries);
        (chunk, entries.partition_point(|(key, _)| comes_before(key)))
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Sets the value of a key; returns the previous value.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Place { chunk, position } = self.place(&key);
        if self.chunks.is_empty() {
            self.chunks.push(Arc::new(Vec::new()));
        }
        let entries = Arc::make_mut(&mut self.chunks[chunk]);
        match position {
            Ok(position) => return Some(std::mem::replace(&mut entries[position].1, value)),
            Err(position) => entries.insert(position, (key, value)),
        }
        if entries.len() > FULL {
            // Keys mostly come in ascending order: a full chunk stays full, and the next begins with the last
            // key.
            let at = if matches!(position, Err(last) if last == FULL) { FULL } else { FULL / 2 };
            let rest = entries.split_off(at);
            entries.shrink_to_fit();
            self.chunks.insert(chunk + 1, Arc::new(rest));
        }
        None
    }

    /// Removes a key; returns its value.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Place { chunk, position } = self.place(key);
        let position = position.ok()?;
        let entries = Arc::make_mut(self.chunks.get_mut(chunk)?);
        let (_, value) = entries.remove(position);
        if entries.is_empty() {
            self.chunks.remove(chunk);
        }
        Some(value)
    }

    /// The value of a key for a change, which first copies the chunk if a clone shares it.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let Place { chunk, position } = self.place(key);
        let position = position.ok()?;
        Some(&mut Arc::make_mut(self.chunks.get_mut(chunk)?)[position].1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_and_clones_stay_as_they_were(
            changes in prop::collection::vec((0_u16..600, any::<bool>()), 0..2000), cut in 0_usize..2000
        ) {
            let (mut map, mut known) = (SharedMap::default(), BTreeMap::new());
            let mut before = None;
            for (number, (key, adds)) in changes.into_iter().enumerate() {
                if number == cut {
                    before = Some((map.clone(), known.clone()));
                }
                match adds {
                    true => prop_assert_eq!(map.insert(key, number), known.insert(key, number)),
                    false => prop_assert_eq!(map.remove(&key), known.remove(&key)),
                }
            }
            for (map, known) in std::iter::once((map, known)).chain(before) {
                let all: Vec<(u16, usize)> = map.iter().copied().collect();
                prop_assert_eq!(all, known.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
                for key in 0..600 {
                    prop_assert_eq!(map.get(&key), known.get(&key));
                    let tens: Vec<u16> = map.keys_at(&|other| (other / 10).cmp(&key)).copied().collect();
                    prop_assert_eq!(tens, known.range(key * 10..key * 10 + 10).map(|(key, _)| *key).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_change_after_a_clone_copies_one_chunk() {
        let mut map: SharedMap<u32, u32> = SharedMap::default();
        for key in 0..10_000 {
            map.insert(key, key);
        }
        assert!(map.chunks.len() < 10_000 / FULL + 2, "chunks that are filled in order are full");
        let before = map.clone();
        map.insert(5_000, 1);
        *map.get_mut(&5_001).unwrap() = 2;
        let own = map.chunks.iter().zip(&before.chunks).filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!((own.count(), before.get(&5_000), map.get(&5_001)), (1, Some(&5_000), Some(&2)));
    }
}
