//! Choice of devices on a node. Devices near the CPUs that come with them are preferred, then the set with
//! the most links inside. The set with the fewest links to devices that stay free is next, then the lowest.
//! With `--gres-flags=disable-binding` nearness is ignored.
//!
//! Nodes report the locations of their devices ([`NodeShape::places`]); without a report the lowest are
//! taken.

use std::cmp::Reverse;

use crate::model::idset::IdSet;
use crate::model::node::{DevicePlace, NodeShape};

/// Number of device sets that are compared before the search becomes greedy. Covers all sets of 14 devices,
/// and any four of 16.
const MOST_SETS: u64 = 4_000;

/// Devices of one entry of a node's `gres`, with their reported locations.
struct Places<'a> {
    /// By device number: its index among all devices of the same name, and its location.
    known: Vec<(usize, &'a DevicePlace)>,
    threads_per_core: u32,
}

/// Chooses `count` of the `free` devices of an entry, near `cpus` if given; fewer if there are not enough.
pub(super) fn choose(shape: &NodeShape, entry: u16, free: &IdSet, count: u32, cpus: Option<&IdSet>) -> IdSet {
    let places = Places::of(shape, entry);
    if places.known.is_empty() || free.len() <= count {
        return free.lowest(count);
    }
    let is_near = |id: &u32| cpus.is_none_or(|cpus| places.is_near(*id, cpus));
    let (near, far): (Vec<u32>, Vec<u32>) = free.iter().partition(is_near);
    let enough = near.len() >= count as usize;
    let (certain, pool) = if enough { (Vec::new(), near) } else { (near, far) };
    places.best_linked(free, certain, &pool, count as usize)
}

/// Number of these devices that are not near the CPUs.
pub(super) fn far(shape: &NodeShape, entry: u16, ids: &IdSet, cpus: &IdSet) -> usize {
    let places = Places::of(shape, entry);
    ids.iter().filter(|id| !places.is_near(*id, cpus)).count()
}

/// The distinct sets of cores near the given devices of an entry.
pub(super) fn regions(shape: &NodeShape, entry: u16, ids: &IdSet) -> Vec<IdSet> {
    let places = Places::of(shape, entry);
    let mut regions: Vec<IdSet> = Vec::new();
    for (_, place) in ids.iter().filter_map(|id| places.known.get(id as usize)) {
        if !place.cores.is_empty() && !regions.contains(&place.cores) {
            regions.push(place.cores.clone());
        }
    }
    regions
}

impl<'a> Places<'a> {
    fn of(shape: &'a NodeShape, entry: u16) -> Self {
        let threads_per_core = shape.threads_per_core.max(1);
        let Some(gres) = shape.gres.get(usize::from(entry)) else {
            return Self { known: Vec::new(), threads_per_core };
        };
        let named = shape.places.iter().filter(|place| place.name == gres.name).enumerate();
        let typed = |kind: &str| gres.kind.is_empty() || *gres.kind == *kind;
        let mut known: Vec<_> = named.filter(|(_, place)| typed(&place.kind)).collect();
        if shape.is_shared(usize::from(entry)) {
            // All shards of a GPU are where the GPU is.
            known = known
                .get(shape.alike_before(usize::from(entry)))
                .map_or_else(Vec::new, |own| vec![*own; gres.count as usize]);
        }
        Self { known, threads_per_core }
    }

    fn is_near(&self, id: u32, cpus: &IdSet) -> bool {
        let cores = self.known.get(id as usize).map(|(_, place)| &place.cores);
        let Some(cores) = cores.filter(|cores| !cores.is_empty()) else { return true };
        cpus.iter().any(|cpu| cores.contains(cpu / self.threads_per_core))
    }

    fn links(&self, one: u32, other: u32) -> u64 {
        let directed = |from: u32, to: u32| {
            let (from, to) = (self.known.get(from as usize)?, self.known.get(to as usize)?);
            from.1.links.get(to.0).copied()
        };
        u64::from(directed(one, other).unwrap_or(0)) + u64::from(directed(other, one).unwrap_or(0))
    }

    /// The quality of a set of devices: more links inside is better, then fewer links to devices that stay
    /// free.
    fn score(&self, free: &IdSet, chosen: &[u32]) -> (u64, Reverse<u64>) {
        let (mut inside, mut outside) = (0, 0);
        for one in chosen {
            for other in free.iter() {
                let sum = if chosen.contains(&other) { &mut inside } else { &mut outside };
                *sum += self.links(*one, other);
            }
        }
        (inside, Reverse(outside))
    }

    /// The best set of `count` devices: all of `certain` and some of `pool`; of equally good sets the lowest.
    fn best_linked(&self, free: &IdSet, certain: Vec<u32>, pool: &[u32], count: usize) -> IdSet {
        let more = count - certain.len();
        if self.known.iter().all(|(_, place)| place.links.iter().all(|links| *links == 0)) {
            return certain.into_iter().chain(pool.iter().copied().take(more)).collect();
        }
        let mut best = None;
        if sets(pool.len() as u64, more as u64) <= MOST_SETS {
            self.all(free, &mut certain.clone(), pool, count, &mut best);
        } else {
            for seed in pool {
                let mut chosen = certain.clone();
                let mut next = Some(*seed);
                while let Some(id) = next.filter(|_| chosen.len() < count) {
                    chosen.push(id);
                    let linked = |id: &u32| chosen.iter().map(|own| self.links(*own, *id)).sum::<u64>();
                    let left = pool.iter().filter(|id| !chosen.contains(id));
                    next = left.max_by_key(|id| (linked(id), Reverse(**id))).copied();
                }
                self.keep_better(free, &chosen, &mut best);
            }
        }
        best.map_or_else(IdSet::default, |(_, chosen)| chosen)
    }

    /// Compares every set of `count` devices.
    fn all(
        &self,
        free: &IdSet,
        chosen: &mut Vec<u32>,
        pool: &[u32],
        count: usize,
        best: &mut Option<((u64, Reverse<u64>), IdSet)>,
    ) {
        if chosen.len() == count {
            return self.keep_better(free, chosen, best);
        }
        for (at, id) in pool.iter().enumerate() {
            chosen.push(*id);
            self.all(free, chosen, &pool[at + 1..], count, best);
            chosen.pop();
        }
    }

    fn keep_better(&self, free: &IdSet, chosen: &[u32], best: &mut Option<((u64, Reverse<u64>), IdSet)>) {
        let score = self.score(free, chosen);
        if best.as_ref().is_none_or(|(before, _)| score > *before) {
            *best = Some((score, chosen.iter().copied().collect()));
        }
    }
}

/// Number of subsets of size `count` of a set of size `of`; saturates.
fn sets(of: u64, count: u64) -> u64 {
    let count = count.min(of.saturating_sub(count));
    (1..=count).fold(1_u64, |sets, at| sets.saturating_mul(of + 1 - at) / at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::NodeGres;

    /// A node with two threads per core, and devices with these near cores and links.
    fn node(places: &[(&str, &str, &[u32])]) -> NodeShape {
        let place = |(kind, cores, links): &(&str, &str, &[u32])| DevicePlace {
            name: "gpu".into(),
            kind: (*kind).into(),
            cores: if cores.is_empty() { IdSet::default() } else { cores.parse().expect("a list") },
            links: links.to_vec(),
        };
        let gres = |kind: &str| {
            let count = places.iter().filter(|(own, ..)| *own == kind).count() as u32;
            NodeGres { name: "gpu".into(), kind: kind.into(), count }
        };
        let mut kinds: Vec<&str> = places.iter().map(|(kind, ..)| *kind).collect();
        kinds.dedup();
        NodeShape {
            threads_per_core: 2,
            gres: kinds.into_iter().map(gres).collect(),
            places: places.iter().map(place).collect(),
            ..NodeShape::default()
        }
    }

    fn chosen(node: &NodeShape, entry: u16, free: &str, count: u32, cpus: &str) -> String {
        let list = |text: &str| text.parse::<IdSet>().expect("a list");
        choose(node, entry, &list(free), count, Some(&list(cpus))).to_string()
    }

    #[test]
    fn the_lowest_are_taken_where_nothing_is_known() {
        assert_eq!(chosen(&node(&[]), 0, "1-3", 2, "0"), "1-2");
        let shape = node(&[("", "", &[]), ("", "", &[]), ("", "", &[])]);
        assert_eq!(chosen(&shape, 0, "1-2", 1, "0"), "1");
    }

    #[test]
    fn those_near_the_cpus_come_first() {
        let shape = node(&[("", "0-1", &[]), ("", "0-1", &[]), ("", "2-3", &[]), ("", "2-3", &[])]);
        // CPUs 4 to 7 are the threads of cores 2 and 3.
        assert_eq!(chosen(&shape, 0, "0-3", 1, "5"), "2");
        assert_eq!(chosen(&shape, 0, "0-3", 3, "4-7"), "0,2-3");
        assert_eq!(chosen(&shape, 0, "0-3", 3, "0-7"), "0-2");
        assert_eq!(choose(&shape, 0, &"0-3".parse().expect("a list"), 1, None).to_string(), "0");
        assert_eq!(far(&shape, 0, &"0,2".parse().expect("a list"), &"0".parse().expect("a list")), 1);
    }

    #[test]
    fn then_those_with_the_most_links() {
        // Devices 0 and 3 are linked, and 1 and 2.
        let pairs = [
            ("", "", &[0, 1, 1, 4][..]),
            ("", "", &[1, 0, 4, 1]),
            ("", "", &[1, 4, 0, 1]),
            ("", "", &[4, 1, 1, 0]),
        ];
        let shape = node(&pairs);
        assert_eq!(chosen(&shape, 0, "0-3", 2, "0"), "0,3");
        assert_eq!(chosen(&shape, 0, "0-2", 2, "0"), "1-2");
        assert_eq!(chosen(&shape, 0, "0-2", 1, "0"), "0", "a pair stays whole");
        assert_eq!(chosen(&shape, 0, "1-3", 1, "0"), "3", "a pair stays whole");
        // Nearness to the cores counts for more than links.
        let mut shape = node(&pairs);
        for (place, cores) in shape.places.iter_mut().zip(["0", "0", "1", "1"]) {
            place.cores = cores.parse().expect("a list");
        }
        assert_eq!(chosen(&shape, 0, "0-3", 2, "2"), "2-3");
        assert_eq!(chosen(&shape, 0, "1-3", 2, "0"), "1-2");
    }

    #[test]
    fn links_are_those_to_all_of_the_name() {
        let shape = node(&[
            ("a", "", &[0, 9, 0, 1]),
            ("b", "", &[9, 0, 0, 5]),
            ("b", "", &[]),
            ("b", "", &[1, 5, 0, 0]),
        ]);
        assert_eq!(chosen(&shape, 1, "0-2", 2, "0"), "0,2");
    }

    #[test]
    fn of_many_devices_a_good_set_is_found() {
        // Islands of four among 32 devices.
        let links: Vec<Vec<u32>> = (0..32)
            .map(|one| (0..32).map(|other| u32::from(one != other && one % 8 == other % 8)).collect())
            .collect();
        let places: Vec<(&str, &str, &[u32])> =
            links.iter().map(|links| ("", "", links.as_slice())).collect();
        let shape = node(&places);
        assert!(sets(31, 4) > MOST_SETS);
        assert_eq!(chosen(&shape, 0, "1-31", 4, "0"), "1,9,17,25");
        assert_eq!((sets(8, 4), sets(5, 5), sets(5, 0)), (70, 1, 1));
    }
}
