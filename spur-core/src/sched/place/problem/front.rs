//! Pareto fronts: the ways to use a part of the fabric that no other way dominates.

use super::cost::Cost;

/// The largest number of limited spans in one problem.
pub(super) const MAX_SPAN_CAPS: usize = 2;
/// The largest number of counted sets in one problem.
pub(super) const MAX_COUNTS: usize = super::Ask::MAX_COUNTS;

/// Numbers besides the amount that must reach an exact or limited value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Number of nodes used, where it is given besides the number of tasks, or limited per leaf.
    pub(crate) nodes: u32,
    /// The GPUs that the used nodes of a leaf bring, where they are limited; 0 above leaves.
    pub(crate) load: u32,
    /// Number of domains used at each layer whose span is limited.
    pub(crate) spans: [u32; MAX_SPAN_CAPS],
    /// Number of nodes used of each counted set, cut at the number that is needed.
    pub(crate) counts: [u32; MAX_COUNTS],
}

impl Key {
    /// The key of two disjoint parts together.
    pub(crate) fn plus(&self, other: &Key, needs: &[u32; MAX_COUNTS]) -> Key {
        let mut sum = *self;
        sum.nodes += other.nodes;
        sum.load = sum.load.saturating_add(other.load);
        sum.spans.iter_mut().zip(other.spans).for_each(|(span, more)| *span += more);
        for ((count, more), need) in sum.counts.iter_mut().zip(other.counts).zip(needs) {
            *count = (*count + more).min(*need);
        }
        sum
    }
}

/// One way to use a part of the fabric: it can hold every amount from `lo` to `hi` that is a multiple of its
/// layer's unit, at this cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item<C> {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    pub(crate) key: Key,
    pub(crate) cost: C,
}

impl<C: Cost> Item<C> {
    /// The way that uses nothing.
    pub(crate) fn nothing(width: usize) -> Self {
        Self { lo: 0, hi: 0, key: Key::default(), cost: C::zero(width) }
    }

    /// The way that uses two disjoint parts together.
    pub(crate) fn plus(&self, other: &Self, needs: &[u32; MAX_COUNTS]) -> Self {
        let mut cost = self.cost.clone();
        cost.add(&other.cost);
        Self {
            lo: self.lo.saturating_add(other.lo),
            hi: self.hi.saturating_add(other.hi),
            key: self.key.plus(&other.key, needs),
            cost,
        }
    }

    /// True if this way dominates the other, which is then never needed.
    fn makes_needless(&self, other: &Self) -> bool {
        self.key == other.key && self.lo <= other.lo && self.hi >= other.hi && self.cost <= other.cost
    }
}

/// Drops every dominated way, and merges neighbours with the same key and cost; `step` is the unit of the
/// amounts. The result is sorted by key, then by cost.
pub(crate) fn prune<C: Cost>(items: &mut Vec<Item<C>>, step: u32) {
    items.sort_unstable_by(|a, b| {
        (a.key.cmp(&b.key)).then_with(|| a.cost.cmp(&b.cost)).then(a.lo.cmp(&b.lo)).then(b.hi.cmp(&a.hi))
    });
    let mut kept: Vec<Item<C>> = Vec::new();
    let mut group = 0;
    // The way of this key with the largest `hi` dominates nearly every dominated way, so it is compared
    // first.
    let mut widest = 0;
    for item in items.drain(..) {
        if kept.last().is_some_and(|last| last.key != item.key) {
            group = kept.len();
        }
        if kept.len() > group && widest >= group && kept[widest].makes_needless(&item) {
            continue;
        }
        if let Some(last) = kept.last_mut()
            && last.key == item.key
            && last.cost == item.cost
            && item.lo <= last.hi.saturating_add(step)
        {
            last.hi = last.hi.max(item.hi);
            let hi = last.hi;
            if widest < group || hi > kept[widest].hi {
                widest = kept.len() - 1;
            }
            continue;
        }
        let is_widest = kept.len() == group || widest < group || item.hi > kept[widest].hi;
        if is_widest || !kept[group..].iter().rev().any(|better| better.makes_needless(&item)) {
            kept.push(item);
            if is_widest {
                widest = kept.len() - 1;
            }
        }
    }
    *items = kept;
}
