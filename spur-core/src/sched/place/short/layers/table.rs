//! Ways side by side by what they take: the best for each, and then of those none that takes less and is no better.

use super::ways::{Link, NONE, Way};

/// See the module.
pub(super) struct Table {
    /// By what they take, from the least on.
    slots: Vec<u32>,
    least: u32,
    offered: Vec<(Way, (u32, u32), Link)>,
}

impl Table {
    /// For ways that take no less and no more than so much.
    pub(super) fn new(least: u32, most: u32) -> Self {
        let width = most.saturating_sub(least) as usize + 1;
        Self { slots: vec![NONE; width], least, offered: Vec::new() }
    }

    /// Offers a way; `order` are the places of its first part and of the rest.
    #[inline]
    pub(super) fn offer(&mut self, way: Way, order: (u32, u32), link: Link) {
        let slot = &mut self.slots[(way.takes - self.least) as usize];
        match self.offered.get_mut(*slot as usize) {
            None => {
                *slot = u32::try_from(self.offered.len()).unwrap_or(NONE);
                self.offered.push((way, order, link));
            }
            Some(known) if (way.head, way.tail, order) < (known.0.head, known.0.tail, known.1) => {
                *known = (way, order, link);
            }
            Some(_) => {}
        }
    }

    /// The ways that are worth keeping, those that take most first, and how each was put together.
    pub(super) fn best(self) -> (Vec<Way>, Vec<Link>) {
        let Self { slots, offered, .. } = self;
        let mut kept: Vec<(Way, (u32, u32), Link)> = Vec::new();
        for slot in slots.into_iter().rev() {
            let Some(one) = offered.get(slot as usize) else { continue };
            let is_better = |last: &(Way, (u32, u32), Link)| {
                (one.0.head, one.0.tail, one.1) < (last.0.head, last.0.tail, last.1)
            };
            if kept.last().is_none_or(is_better) {
                kept.push(*one);
            }
        }
        let mut places: Vec<usize> = (0..kept.len()).collect();
        places.sort_unstable_by_key(|&at| kept[at].1);
        for (place, at) in (0..).zip(places) {
            let (way, order, _) = &mut kept[at];
            // Nothing comes after everything else.
            way.order = if *order == (NONE, NONE) { NONE } else { place };
        }
        for (at, (way, _, _)) in (0..).zip(&mut kept) {
            way.link = at;
        }
        kept.into_iter().map(|(way, _, link)| (way, link)).unzip()
    }
}
