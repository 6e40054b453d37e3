//! What the nodes of a leaf take, all at once: plain loops over numbers that lie side by side.

use std::ops::Range;

use crate::model::fabric::Layer;

use super::View;

/// How much of a job each node takes, told from its slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes<'a> {
    slots: &'a [u16],
    /// For each position a number for its weight, and that of the weight that alone will do.
    lightest: Option<(&'a [u16], u16)>,
    /// The most that a node takes.
    most: u16,
    /// Whether the slots of no leaf come to more than a slot count of a node can say.
    are_few: bool,
}

impl<'a> Takes<'a> {
    /// Nodes that take `most` of their slots at most; None where slots are whole nodes, or so many that their
    /// sums are too large.
    pub(crate) fn new(view: &View<'a>, most: u32) -> Option<Self> {
        let slots = view.slots.small_tasks()?;
        let fit = view.fabric.roots().iter().all(|&root| view.slots.of(root) <= u64::from(u32::MAX));
        let are_few = || {
            let mut leaves = view.fabric.domains_of(Layer::LEAF);
            leaves.all(|leaf| view.slots.of(leaf) <= u64::from(u16::MAX))
        };
        fit.then(|| Self { slots, lightest: None, most: narrow(most), are_few: are_few() })
    }

    /// What nodes of one weight take; nothing for all others.
    pub(crate) fn of_weight(self, view: &View<'a>, weight: u32) -> Option<Self> {
        Some(Self { lightest: Some(view.weights?.class_of(weight)?), ..self })
    }

    /// Shows the nodes of a leaf that take something: where they are and what they take.
    pub(crate) fn each(&self, leaf: Range<usize>, mut see: impl FnMut(usize, u32)) {
        for index in leaf {
            let is_light = self.lightest.is_none_or(|(classes, lightest)| classes[index] == lightest);
            let has = self.slots[index];
            let takes = has.min(self.most);
            if is_light && takes > 0 {
                see(index, takes.into());
            }
        }
    }

    /// What the nodes of a leaf take, in sum.
    pub(crate) fn room(&self, leaf: Range<usize>) -> u32 {
        self.sum(leaf, |takes| takes)
    }

    /// What the nodes of a leaf take beyond a number, in sum.
    pub(crate) fn beyond(&self, leaf: Range<usize>, number: u32) -> u32 {
        let number = narrow(number);
        self.sum(leaf, |takes| takes.saturating_sub(number))
    }

    /// The sum over the nodes of a leaf of no more than what each takes.
    fn sum(&self, leaf: Range<usize>, of: impl Fn(u16) -> u16) -> u32 {
        if self.are_few {
            // Twice as many are added up at once.
            self.fold(leaf, 0_u16, |sum, _, takes| sum.wrapping_add(of(takes))).into()
        } else {
            self.fold(leaf, 0_u32, |sum, _, takes| sum.wrapping_add(of(takes).into()))
        }
    }

    /// The most that one of some nodes takes; and the fewest slots of one that has at least as many as are wanted, if
    /// there is such a node.
    pub(crate) fn extremes(&self, nodes: Range<usize>, wanted: u32) -> (u32, Option<u32>) {
        let Ok(wanted) = u16::try_from(wanted) else {
            return (self.fold(nodes, 0, |peak, _, takes| peak.max(takes)).into(), None);
        };
        let (peak, over) = self.fold(nodes, (0, u16::MAX), |(peak, over), slots, takes| {
            (takes.max(peak), slots.wrapping_sub(wanted).min(over))
        });
        // Of those that have fewer the difference goes round, to more than any node can have over.
        (peak.into(), wanted.checked_add(over).map(u32::from))
    }

    /// The first node of a leaf that has exactly so many slots.
    pub(crate) fn first_with(&self, leaf: Range<usize>, slots: u32) -> Option<usize> {
        let slots = u16::try_from(slots).ok()?;
        let start = leaf.start;
        let has = self.slots[leaf.clone()].iter();
        let at = match self.lightest {
            None => has.into_iter().position(|&has| has == slots)?,
            Some((classes, lightest)) => {
                let both = has.zip(&classes[leaf]);
                both.into_iter().position(|(&has, &class)| has == slots && class == lightest)?
            }
        };
        Some(start + at)
    }

    /// Goes through some nodes: their slots and what they take, 0 and 0 where a node may not be used.
    fn fold<T>(&self, nodes: Range<usize>, start: T, see: impl Fn(T, u16, u16) -> T) -> T {
        let slots = &self.slots[nodes.clone()];
        let most = self.most;
        let weighed =
            |lightest: u16| move |(&slots, &class): (&u16, &u16)| if class == lightest { slots } else { 0 };
        match self.lightest {
            None => slots.iter().fold(start, |sum, &has| see(sum, has, has.min(most))),
            Some((classes, lightest)) => {
                let slots = slots.iter().zip(&classes[nodes]).map(weighed(lightest));
                slots.fold(start, |sum, has| see(sum, has, has.min(most)))
            }
        }
    }
}

/// A number that is compared with what nodes have, which is less than the largest there is.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
