//! Fronts: the ways to use a part of the fabric of which none is better than another in every respect.

use super::cost::Cost;

/// How many limited spans one problem may have.
pub(super) const MAX_SPAN_CAPS: usize = 2;
/// How many counted sets one problem may have.
pub(super) const MAX_COUNTS: usize = super::Ask::MAX_COUNTS;

/// What must come out at an exact or limited number, besides the amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Nodes used, where their number is given besides that of the tasks.
    pub(crate) nodes: u32,
    /// What nodes of a leaf bring, where that is limited; 0 beyond it.
    pub(crate) load: u32,
    /// Domains used of the layers whose span is limited.
    pub(crate) spans: [u32; MAX_SPAN_CAPS],
    /// Nodes used of the counted sets, no more than are needed.
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

/// One way to use a part of the fabric: it can hold every amount from `lo` to `hi` that is a multiple of the unit of
/// its layer, at this cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item<C> {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    pub(crate) key: Key,
    pub(crate) cost: C,
}

impl<C: Cost> Item<C> {
    /// Using nothing.
    pub(crate) fn nothing(width: usize) -> Self {
        Self { lo: 0, hi: 0, key: Key::default(), cost: C::zero(width) }
    }

    /// Two disjoint parts used together.
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

    /// Whether the other way is never needed next to this one.
    fn makes_needless(&self, other: &Self) -> bool {
        self.key == other.key && self.lo <= other.lo && self.hi >= other.hi && self.cost <= other.cost
    }
}

/// Drops every way that another makes needless, and joins neighbours of one key and cost; `step` is the unit of the
/// amounts. The result is sorted by key, then cost.
pub(crate) fn prune<C: Cost>(items: &mut Vec<Item<C>>, step: u32) {
    items.sort_unstable_by(|a, b| {
        (a.key.cmp(&b.key)).then_with(|| a.cost.cmp(&b.cost)).then(a.lo.cmp(&b.lo)).then(b.hi.cmp(&a.hi))
    });
    let mut kept: Vec<Item<C>> = Vec::new();
    let mut group = 0;
    // The kept way of this key that holds most: it settles nearly every question.
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
