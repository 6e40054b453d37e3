//! What the nodes of a leaf take, all at once: plain loops over numbers that lie side by side.

use std::ops::Range;

use crate::model::fabric::Fabric;

use super::View;

/// How much of a job each node takes, told from its slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes<'a> {
    slots: &'a [u32],
    /// The weights of all nodes, and the one that alone will do.
    lightest: Option<(&'a [u32], u32)>,
    /// The most that a node takes.
    most: u32,
    /// What a node must have to take one unit of the job, where each takes one at most.
    each: Option<u32>,
}

/// What is found out about a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// What its nodes take, in sum.
    pub(super) room: u32,
    /// The most that one of them takes.
    pub(super) peak: u32,
    /// The fewest slots of a node that has at least as many as are wanted, less those.
    pub(super) over: u32,
}

impl<'a> Takes<'a> {
    /// Nodes that take `most` of their slots, or one unit each; None where slots are whole nodes, or so many that their
    /// sums are too large.
    pub(super) fn new(fabric: &Fabric, view: &View<'a>, most: u32, each: Option<u32>) -> Option<Self> {
        let slots = view.slots.tasks_at(0..fabric.len())?;
        let fit = fabric.roots().iter().all(|&root| view.slots.of(root) <= u64::from(u32::MAX));
        fit.then_some(Self { slots, lightest: None, most, each })
    }

    /// The same of nodes of one weight alone.
    pub(super) fn of_weight(self, view: &View<'a>, weight: u32) -> Self {
        Self { lightest: view.weights.map(|weights| (weights.by_position(), weight)), ..self }
    }

    /// What the nodes of a leaf take, each changed by `value`, in sum; of what takes nothing nothing may come.
    pub(super) fn sum(&self, leaf: Range<usize>, value: impl Fn(u32) -> u32) -> u32 {
        self.fold(leaf, 0_u32, |sum, _, takes| sum.wrapping_add(value(takes)))
    }

    /// Looks at a leaf; see [`Found`].
    pub(super) fn look(&self, leaf: Range<usize>, wanted: u32) -> Found {
        let nothing = Found { room: 0, peak: 0, over: u32::MAX };
        self.fold(leaf, nothing, |found, slots, takes| Found {
            room: found.room.wrapping_add(takes),
            peak: found.peak.max(takes),
            over: found.over.min(slots.wrapping_sub(wanted)),
        })
    }

    /// The first node of a leaf that has exactly so many slots.
    pub(super) fn first_with(&self, leaf: Range<usize>, slots: u32) -> Option<usize> {
        let start = leaf.start;
        let mut found = self.slots[leaf.clone()].iter().enumerate().filter(|(_, has)| **has == slots);
        let at = match self.lightest {
            None => found.next()?.0,
            Some((weights, lightest)) => found.find(|(at, _)| weights[start + at] == lightest)?.0,
        };
        Some(start + at)
    }

    /// Goes through the nodes of a leaf: their slots and what they take, 0 and 0 where a node may not be used.
    fn fold<T>(&self, leaf: Range<usize>, start: T, see: impl Fn(T, u32, u32) -> T) -> T {
        let slots = &self.slots[leaf.clone()];
        let Self { most, each, .. } = *self;
        let weighed =
            |lightest: u32| move |(&slots, &weight): (&u32, &u32)| if weight == lightest { slots } else { 0 };
        match (self.lightest, each) {
            (None, None) => slots.iter().fold(start, |sum, &has| see(sum, has, has.min(most))),
            (None, Some(each)) => slots.iter().fold(start, |sum, &has| see(sum, has, u32::from(has >= each))),
            (Some((weights, lightest)), None) => {
                let slots = slots.iter().zip(&weights[leaf]).map(weighed(lightest));
                slots.fold(start, |sum, has| see(sum, has, has.min(most)))
            }
            (Some((weights, lightest)), Some(each)) => {
                let slots = slots.iter().zip(&weights[leaf]).map(weighed(lightest));
                slots.fold(start, |sum, has| see(sum, has, u32::from(has >= each)))
            }
        }
    }
}
