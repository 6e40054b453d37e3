//! A bounded store of keys and values. spurstepd keeps it for the tasks, in memory that is not accounted to
//! the job.

use std::collections::BTreeMap;

/// Smallest bound of a store, in bytes.
const LEAST: usize = 256 << 10;
/// Bytes that a store may hold for each task. MPICH puts about 2 KiB for a task; a value has at most 1 KiB.
const FOR_EACH_TASK: usize = 16 << 10;
/// Memory that an entry takes beside its key and its value, in bytes.
const ENTRY: usize = 96;

/// A bounded store of keys and values.
#[derive(Debug)]
pub(crate) struct Space {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    bound: usize,
}

/// The error of an entry that exceeds the store's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keys and values would take more than {0} bytes")]
pub(crate) struct Full(pub(crate) usize);

impl Space {
    /// Returns an empty store for this number of tasks.
    pub(crate) fn of_tasks(tasks: usize) -> Space {
        let bound = tasks.saturating_mul(FOR_EACH_TASK).max(LEAST);
        Space { entries: BTreeMap::new(), bytes: 0, bound }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.entries.get(key)
    }

    /// Adds an entry, or replaces the value of its key.
    ///
    /// # Errors
    /// [`Full`] if the store would exceed its bound; the store is then unchanged.
    pub(crate) fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let old = self.entries.get(key).map_or(0, |old| cost(key, old));
        let bytes = self.bytes - old + cost(key, value);
        if bytes > self.bound {
            return Err(Full(self.bound));
        }
        self.entries.insert(key.to_vec(), value.to_vec());
        self.bytes = bytes;
        Ok(())
    }

    /// Removes an entry, and returns true if there was one.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let old = self.entries.remove(key);
        self.bytes -= old.as_ref().map_or(0, |old| cost(key, old));
        old.is_some()
    }

    /// Takes all entries out.
    pub(crate) fn take(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }

    /// Returns the bytes that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the largest number of bytes that the entries may take.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_counts_what_it_holds() {
        let mut space = Space::of_tasks(1);
        let value = [b'v'; 1024];
        let mut count = 0_u32;
        while space.insert(&count.to_be_bytes(), &value).is_ok() {
            count += 1;
        }
        assert_eq!(space.insert(b"more", &value), Err(Full(LEAST)));
        assert_eq!(count as usize, LEAST / cost(&[0; 4], &value));
        assert_eq!(space.insert(&[0; 4], &value), Ok(()), "a value is replaced");
        assert!(space.remove(&[0; 4]) && !space.remove(&[0; 4]));
        assert_eq!(space.insert(b"more", &value), Ok(()));
        space.take();
        assert_eq!(space.bytes(), 0);
    }
}
