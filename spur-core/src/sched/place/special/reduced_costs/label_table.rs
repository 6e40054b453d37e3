//! A table of labels by the amount that they take. It keeps the best label for each amount, and drops labels
//! that take less and are no better. Where layers have a limit, a label that uses less of the limited layers
//! stays.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::labels::{Label, Link, NONE};
use super::packed_cost::CostLayout;

/// The cost of a label, with the order of its first piece and of the rest as tie-breaks.
type LabelCost = (u128, u128, (u32, u32));

/// A label with the places of its first piece and of the rest, and the link to its parts.
type OfferedLabel = (Label, (u32, u32), Link);

/// The best label offered for each amount.
pub(super) struct LabelTable<'s> {
    layout: &'s CostLayout,
    /// The index in `offered` for each amount, from `least` up; empty where layers have a limit.
    slots: Vec<u32>,
    least: u32,
    /// The index in `offered` for each amount and use of limited layers, where layers have a limit.
    limited: BTreeMap<(Reverse<u32>, u128), u32>,
    offered: Vec<OfferedLabel>,
}

impl<'s> LabelTable<'s> {
    /// A table for labels that take from `least` to `most`.
    pub(super) fn new(least: u32, most: u32, layout: &'s CostLayout) -> Self {
        let width = if layout.has_limits() { 0 } else { most.saturating_sub(least) as usize + 1 };
        Self { layout, slots: vec![NONE; width], least, limited: BTreeMap::new(), offered: Vec::new() }
    }

    /// Keeps a label if it is better than the one in its slot; `order` has the places of its first piece and
    /// of the rest.
    #[inline]
    pub(super) fn offer(&mut self, label: Label, order: (u32, u32), link: Link) {
        let slot = if self.slots.is_empty() {
            let limited = self.layout.limited(label.head);
            self.limited.entry((Reverse(label.takes), limited)).or_insert(NONE)
        } else {
            &mut self.slots[(label.takes - self.least) as usize]
        };
        let offer = (label, order, link);
        match self.offered.get_mut(*slot as usize) {
            None => {
                *slot = u32::try_from(self.offered.len()).unwrap_or(NONE);
                self.offered.push(offer);
            }
            Some(known) if cost(&offer) < cost(known) => *known = offer,
            Some(_) => {}
        }
    }

    /// The labels worth keeping, the largest amount first, and the link of each to its parts.
    pub(super) fn best(self) -> (Vec<Label>, Vec<Link>) {
        let mut kept = if self.slots.is_empty() { self.unbeaten() } else { self.rising() };
        let mut places: Vec<((u32, u32), usize)> = kept.iter().map(|one| one.1).zip(0..).collect();
        places.sort_unstable();
        for (place, (_, at)) in (0..).zip(places) {
            let (label, order, _) = &mut kept[at];
            // The empty label comes after all others.
            label.order = if *order == (NONE, NONE) { NONE } else { place };
        }
        for (at, (label, _, _)) in (0..).zip(&mut kept) {
            label.link = at;
        }
        kept.into_iter().map(|(label, _, link)| (label, link)).unzip()
    }

    /// The labels that are better than all labels that take more.
    fn rising(self) -> Vec<OfferedLabel> {
        let mut kept: Vec<OfferedLabel> = Vec::new();
        for slot in self.slots.into_iter().rev() {
            let Some(one) = self.offered.get(slot as usize) else { continue };
            if kept.last().is_none_or(|last| cost(one) < cost(last)) {
                kept.push(*one);
            }
        }
        kept
    }

    /// The labels that are better than all labels that take more and use no more of limited layers.
    fn unbeaten(self) -> Vec<OfferedLabel> {
        let mut kept: Vec<OfferedLabel> = Vec::new();
        let mut known: BTreeMap<u128, LabelCost> = BTreeMap::new();
        for ((_, own), slot) in self.limited {
            let Some(one) = self.offered.get(slot as usize) else { continue };
            let cost = cost(one);
            let beats =
                |(used, best): (&u128, &LabelCost)| self.layout.uses_no_more(*used, own) && *best <= cost;
            if !known.range(..=own).any(beats) {
                known.insert(own, cost);
                kept.push(*one);
            }
        }
        kept
    }
}

#[inline]
fn cost((label, order, _): &OfferedLabel) -> LabelCost {
    (label.head, label.tail, *order)
}
