//! Lower bounds on starts for the rest of a pass: a request that finds no start before some time finds none
//! before that time later in the pass.
//!
//! Amounts only shrink while a pass books. So the bound of a request also holds for other requests of the
//! same family. These must be no smaller and no shorter, and need no less of each node.

use std::collections::BTreeMap;

use crate::model::fabric::Layer;
use crate::sched::place::{Ask, Strategy};
use crate::sched::request::{Need, Slot};
use crate::text::gres::GresSpec;
use crate::text::time::Time;

/// The properties in which requests must agree to be compared: the nodes that they admit, and their
/// constraints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Family {
    outline: usize,
    must: Option<Layer>,
    is_flat: bool,
    contiguous: bool,
    /// Number of adjacent leaves. Leaves that hold a job hold any smaller job that uses each of them.
    adjacent: Option<u32>,
    whole_leaves: bool,
    max_spans: Vec<(Layer, u32)>,
    min_speed: Option<u64>,
    per_leaf: (Option<u32>, Option<u32>),
    /// The cap on GPUs per leaf, where nodes have unequal numbers; the outline identifies the nodes.
    gpus_per_leaf: Option<u32>,
    /// The most nodes of a job that counts tasks.
    most_nodes: Option<u32>,
}

impl Family {
    /// The family of an ask; `None` if a larger ask may fit where a smaller one does not.
    pub(crate) fn of(outline: usize, ask: &Ask) -> Option<Self> {
        let grows = ask.multiples.is_empty()
            && ask.segment.is_none()
            && ask.adjacent.is_none_or(|leaves| !ask.contiguous && reaches(ask, leaves))
            && ask.counts.is_empty()
            && ask.required.is_empty()
            && ask.strategy != Strategy::Block;
        grows.then(|| Self {
            outline,
            must: ask.must,
            is_flat: ask.strategy == Strategy::Flat,
            contiguous: ask.contiguous,
            adjacent: ask.adjacent,
            whole_leaves: ask.whole_leaves,
            max_spans: ask.max_spans.clone(),
            min_speed: ask.min_speed,
            per_leaf: (ask.max_nodes_per_leaf, ask.max_slots_per_leaf),
            gpus_per_leaf: ask.leaf_load.as_ref().map(|load| load.most),
            most_nodes: ask.tasks.and(ask.nodes).map(|(_, most)| most),
        })
    }
}

/// True if every size in the ask's range has something for each of `leaves` leaves.
fn reaches(ask: &Ask, leaves: u32) -> bool {
    let nodes = ask.nodes.map(|(least, _)| least);
    nodes.into_iter().chain(ask.tasks).all(|least| least >= leaves)
}

/// The size and the run time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) nodes: u32,
    pub(crate) slots: u64,
    /// The planned run time in seconds.
    pub(crate) run_time: u64,
}

impl Size {
    /// True if this size is no larger and no longer than the other. All parts are compared without a branch,
    /// because it is unpredictable which one decides.
    #[inline]
    pub(crate) fn within(&self, other: &Self) -> bool {
        (self.nodes <= other.nodes) & (self.slots <= other.slots) & (self.run_time <= other.run_time)
    }
}

/// For every need, the needs that are no larger; see [`Need::within`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Smaller(Vec<Vec<usize>>);

/// Number of needs that are compared with all others; each further need is compared only with itself.
const COMPARED: usize = 256;

impl Smaller {
    /// Adds the last need of `all`, whose number is its index.
    pub(crate) fn add(&mut self, all: &[Need]) {
        let Some((new, known)) = all.split_last() else { return };
        let number = known.len();
        let mut smaller = vec![number];
        for (other, need) in known.iter().enumerate().take(COMPARED).filter(|_| number < COMPARED) {
            if need.within(new) {
                smaller.push(other);
            }
            if new.within(need) {
                self.0[other].push(number);
            }
        }
        self.0.push(smaller);
    }

    /// The numbers of a need and of all needs that are no larger.
    pub(crate) fn than(&self, need: usize) -> &[usize] {
        &self.0[need]
    }
}

/// The bounds of every family, by need.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartBounds(BTreeMap<Family, Vec<Flight>>);

/// The bounds of one need, the latest last.
#[derive(Clone, Debug, Default)]
struct Flight {
    steps: Vec<(Size, Time)>,
    /// Number of bounds above which implied ones are dropped.
    room: usize,
}

/// Number of bounds of one need up to which implied ones are kept.
const FEW: usize = 64;

impl Flight {
    /// The latest bound of a size that is no larger.
    fn bound(&self, size: &Size) -> Option<Time> {
        self.steps.iter().rev().find(|(smaller, _)| smaller.within(size)).map(|(_, time)| *time)
    }

    fn note(&mut self, size: Size, time: Time) {
        let at = self.steps.partition_point(|(_, bound)| *bound < time);
        self.steps.insert(at, (size, time));
        if self.steps.len() > self.room.max(FEW) {
            self.drop_implied();
            self.room = 2 * self.steps.len();
        }
    }

    /// Drops every bound that another one implies: no larger a size, no earlier a time.
    fn drop_implied(&mut self) {
        let mut kept: Vec<(Size, Time)> = Vec::with_capacity(2 * self.steps.len());
        for step in self.steps.drain(..).rev() {
            if !kept.iter().rev().any(|(smaller, _)| smaller.within(&step.0)) {
                kept.push(step);
            }
        }
        kept.reverse();
        self.steps = kept;
    }
}

impl StartBounds {
    /// A lower bound on the start of a request with this need and size; `None` if there is none.
    pub(crate) fn bound(&self, family: &Family, need: usize, size: &Size, smaller: &Smaller) -> Option<Time> {
        let flights = self.0.get(family)?;
        let flights = smaller.than(need).iter().filter_map(|need| flights.get(*need));
        flights.filter_map(|flight| flight.bound(size)).max()
    }

    /// Notes that a request with this need and size cannot start before `time`. The time should be later than
    /// its [bound](StartBounds::bound); a bound that is known already only costs time.
    pub(crate) fn note(&mut self, family: Family, need: usize, size: Size, time: Time) {
        let flights = self.0.entry(family).or_default();
        flights.resize(flights.len().max(need + 1), Flight::default());
        flights[need].note(size, time);
    }

    /// Forgets all bounds, because something was given back.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Need {
    /// True if every amount of every node has at least as many slots for this need as for the other. False
    /// where that is not obvious.
    fn within(&self, other: &Self) -> bool {
        let tasks = match (self.slot, other.slot) {
            (Slot::Node { tasks: mine }, Slot::Node { tasks: theirs }) => Some((mine, theirs)),
            (Slot::Tasks { each: mine }, Slot::Tasks { each: theirs }) if mine == theirs => Some((1, 1)),
            _ => None,
        };
        let Some((mine, theirs)) = tasks else { return self == other };
        let cpus = |need: &Self, tasks: u32| {
            (u64::from(tasks) * u64::from(need.cpus_per_task)).max(u64::from(need.min_cpus))
        };
        let gres = |mine: &[GresSpec], theirs: &[GresSpec], times: (u32, u32)| {
            let smaller = |(one, other): (&GresSpec, &GresSpec)| {
                let counts = (one.count.checked_mul(times.0.into()), other.count.checked_mul(times.1.into()));
                one.name == other.name
                    && one.kind == other.kind
                    && counts.0.zip(counts.1).is_some_and(|(one, other)| one <= other)
            };
            mine.is_empty() || (mine.len() == theirs.len() && mine.iter().zip(theirs).all(smaller))
        };
        // Devices per task and per node are not compared with each other.
        let plain = self.gres_per_task.is_empty() || self.gres_per_node.is_empty();
        plain
            && self.cores == other.cores
            && (self.limits == other.limits || !self.limits.limit_cpus())
            && cpus(self, mine) <= cpus(other, theirs)
            && (self.counts_nodes()
                || (self.cpus_per_task <= other.cpus_per_task && self.min_cpus == other.min_cpus))
            && self.most.unwrap_or(u32::MAX) >= other.most.unwrap_or(u32::MAX)
            && self.memory_per_node <= other.memory_per_node
            && (other.memory_per_node < u64::MAX || other.memory_per_node == self.memory_per_node)
            && self.memory_per_cpu <= other.memory_per_cpu
            && self.tmp_disk_mb <= other.tmp_disk_mb
            && gres(&self.gres_per_node, &other.gres_per_node, (1, 1))
            && gres(&self.gres_per_task, &other.gres_per_task, (mine, theirs))
            && (self.whole == other.whole || (!self.whole && self.memory_per_cpu == 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    use super::*;
    use crate::model::job::CoreAsk;
    use crate::sched::inventory::LimitEntries;

    fn need(tasks: u32, gpus: u64) -> Need {
        let gres = GresSpec::new("gpu", None, gpus);
        Need {
            slot: Slot::Node { tasks },
            most: None,
            cpus_per_task: 2,
            min_cpus: 0,
            memory_per_node: 0,
            memory_per_cpu: 0,
            tmp_disk_mb: 0,
            gres_per_node: if gpus > 0 { vec![gres] } else { Vec::new() },
            gres_per_task: Vec::new(),
            whole: false,
            cores: CoreAsk::default(),
            limits: LimitEntries::default(),
        }
    }

    #[test]
    fn needs_are_smaller_where_they_want_no_more_of_anything() {
        for (mine, theirs, within) in [
            (need(1, 0), need(1, 0), true),
            (need(1, 0), need(2, 0), true),
            (need(2, 0), need(1, 0), false),
            (need(1, 1), need(2, 2), true),
            (need(1, 2), need(2, 1), false),
            (need(1, 0), need(1, 1), true),
            (need(1, 1), need(1, 0), false),
            (need(1, 0), Need { whole: true, ..need(1, 0) }, true),
            (Need { whole: true, ..need(1, 0) }, need(1, 0), false),
            (Need { memory_per_cpu: 5, ..need(1, 0) }, Need { memory_per_cpu: 5, ..need(2, 0) }, true),
            (Need { slot: Slot::TASK, ..need(1, 0) }, need(1, 0), false),
        ] {
            assert_eq!(mine.within(&theirs), within, "{mine:?} within {theirs:?}");
        }
    }

    #[test]
    fn bounds_hold_for_what_is_no_smaller() {
        let family = Family::of(0, &Ask::nodes(1)).expect("a plain ask grows");
        let size = |nodes, run_time| Size { nodes, slots: u64::from(nodes), run_time };
        let mut start_bounds = StartBounds::default();
        let mut smaller = Smaller::default();
        smaller.add(&[need(1, 0)]);
        start_bounds.note(family.clone(), 0, size(4, 100), Time(50));
        start_bounds.note(family.clone(), 0, size(2, 200), Time(70));
        for (nodes, run_time, bound) in
            [(4, 100, Some(50)), (3, 100, None), (4, 150, Some(50)), (2, 200, Some(70)), (4, 200, Some(70))]
        {
            let found = start_bounds.bound(&family, 0, &size(nodes, run_time), &smaller);
            assert_eq!(found, bound.map(Time), "{nodes} for {run_time}");
        }
        start_bounds.note(family.clone(), 0, size(1, 1), Time(80));
        assert_eq!(start_bounds.bound(&family, 0, &size(9, 9), &smaller), Some(Time(80)));
        let flight = &mut start_bounds.0.get_mut(&family).expect("it was noted")[0];
        flight.drop_implied();
        assert_eq!(flight.steps.len(), 1, "what is implied is dropped");
        let block = Ask { strategy: Strategy::Block, ..Ask::nodes(1) };
        assert_eq!(Family::of(0, &block), None);
    }

    proptest! {
        #[test]
        fn bounds_are_the_latest_of_all_that_were_noted(
            requests in prop::collection::vec((1_u32..8, 1_u64..8, 0_i64..200, any::<bool>()), 1..400),
        ) {
            let family = Family::of(0, &Ask::nodes(1)).expect("a plain ask grows");
            let (mut start_bounds, mut smaller) = (StartBounds::default(), Smaller::default());
            smaller.add(&[need(1, 0)]);
            let mut noted: Vec<(Size, Time)> = Vec::new();
            for (nodes, run_time, time, notes) in requests {
                let size = Size { nodes, slots: u64::from(nodes), run_time };
                let within = noted.iter().filter(|(noted, _)| noted.within(&size));
                let bound = within.map(|(_, time)| *time).max();
                prop_assert_eq!(start_bounds.bound(&family, 0, &size, &smaller), bound);
                if notes && bound.is_none_or(|bound| bound < Time(time)) {
                    start_bounds.note(family.clone(), 0, size, Time(time));
                    noted.push((size, Time(time)));
                }
            }
        }
    }
}
