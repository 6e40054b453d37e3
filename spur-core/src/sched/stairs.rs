//! Lower bounds that hold for the rest of a pass: what did not fit before some time does not fit before it later.
//!
//! Room only shrinks while a pass books. So a request that is no smaller and no shorter than an earlier one of the
//! same family, and wants the same in all other respects, starts no earlier than that one was found to.

use std::collections::BTreeMap;

use crate::model::fabric::Layer;
use crate::text::time::Time;

use super::place::{Ask, Strategy};

/// What requests have to agree in to be compared: the lens they look through and their constraints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Family {
    lens: usize,
    must: Option<Layer>,
    is_flat: bool,
    contiguous: bool,
    whole_leaves: bool,
    max_spans: Vec<(Layer, u32)>,
    min_speed: Option<u64>,
    per_leaf: (Option<u32>, Option<u32>),
    /// Where tasks are counted: on how many nodes at most.
    most_nodes: Option<u32>,
}

impl Family {
    /// The family of an ask; `None` where a larger one may fit although a smaller one does not.
    pub(super) fn of(lens: usize, ask: &Ask) -> Option<Self> {
        let grows = ask.multiples.is_empty()
            && ask.segment.is_none()
            && ask.adjacent.is_none()
            && ask.counts.is_empty()
            && ask.required.is_empty()
            && ask.tasks_per_node.is_none()
            && ask.strategy != Strategy::Block;
        grows.then(|| Self {
            lens,
            must: ask.must,
            is_flat: ask.strategy == Strategy::Flat,
            contiguous: ask.contiguous,
            whole_leaves: ask.whole_leaves,
            max_spans: ask.max_spans.clone(),
            min_speed: ask.min_speed,
            per_leaf: (ask.max_nodes_per_leaf, ask.max_slots_per_leaf),
            most_nodes: ask.tasks.and(ask.nodes).map(|(_, most)| most),
        })
    }
}

/// How much a request wants, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) slots: u64,
    /// Seconds.
    pub(super) run_time: u64,
}

impl Size {
    pub(super) fn within(&self, other: &Self) -> bool {
        self.nodes <= other.nodes && self.slots <= other.slots && self.run_time <= other.run_time
    }
}

/// The bounds of every family.
#[derive(Clone, Debug, Default)]
pub(super) struct Stairs(BTreeMap<Family, Vec<(Size, Time)>>);

impl Stairs {
    /// No request of that size can start before.
    pub(super) fn bound(&self, family: &Family, size: &Size) -> Option<Time> {
        let steps = self.0.get(family)?.iter();
        steps.filter(|(smaller, _)| smaller.within(size)).map(|(_, time)| *time).max()
    }

    /// Notes that a request of that size cannot start before `time`.
    pub(super) fn note(&mut self, family: Family, size: Size, time: Time) {
        let steps = self.0.entry(family).or_default();
        if steps.iter().any(|(smaller, bound)| smaller.within(&size) && *bound >= time) {
            return;
        }
        steps.retain(|(larger, bound)| !(size.within(larger) && *bound <= time));
        steps.push((size, time));
    }

    /// Forgets everything: room was given back.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_for_what_is_no_smaller() {
        let family = Family::of(0, &Ask::nodes(1)).expect("a plain ask grows");
        let size = |nodes, run_time| Size { nodes, slots: u64::from(nodes), run_time };
        let mut stairs = Stairs::default();
        stairs.note(family.clone(), size(4, 100), Time(50));
        stairs.note(family.clone(), size(2, 200), Time(70));
        for (nodes, run_time, bound) in
            [(4, 100, Some(50)), (3, 100, None), (4, 150, Some(50)), (2, 200, Some(70)), (4, 200, Some(70))]
        {
            assert_eq!(
                stairs.bound(&family, &size(nodes, run_time)),
                bound.map(Time),
                "{nodes} for {run_time}"
            );
        }
        stairs.note(family.clone(), size(1, 1), Time(80));
        assert_eq!(stairs.bound(&family, &size(9, 9)), Some(Time(80)));
        assert_eq!(stairs.0[&family].len(), 1, "what is implied is dropped");
        let block = Ask { strategy: Strategy::Block, ..Ask::nodes(1) };
        assert_eq!(Family::of(0, &block), None);
    }
}
