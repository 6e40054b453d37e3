//! The amounts that the nodes of a leaf take, computed by plain loops over adjacent numbers, which the
//! compiler vectorises.

use std::ops::Range;

use crate::model::fabric::Layer;

use super::View;

/// The amount of a job that each node takes, computed from its slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes<'a> {
    slots: &'a [u16],
    /// The weight class of each position, and the class that alone may be used; `None` if every class may
    /// be used.
    lightest: Option<(&'a [u16], u16)>,
    /// The largest amount that one node takes.
    most: u16,
    /// True if the slots of no leaf add up to more than [`u16::MAX`].
    are_few: bool,
}

impl<'a> Takes<'a> {
    /// The amounts where a node takes at most `most` of its slots. `None` where slots are whole nodes, a
    /// node has [`u16::MAX`] slots or more, or a root has more than [`u32::MAX`].
    pub(crate) fn new(view: &View<'a>, most: u32) -> Option<Self> {
        let slots = view.slots.small_tasks()?;
        let fit = view.fabric.roots().iter().all(|&root| view.slots.of(root) <= u64::from(u32::MAX));
        let are_few = || {
            let mut leaves = view.fabric.domains_of(Layer::LEAF);
            leaves.all(|leaf| view.slots.of(leaf) <= u64::from(u16::MAX))
        };
        fit.then(|| Self { slots, lightest: None, most: narrow(most), are_few: are_few() })
    }

    /// The amounts of the nodes of one weight; all other nodes take 0. `None` if the weight has no class.
    pub(crate) fn of_weight(self, view: &View<'a>, weight: u32) -> Option<Self> {
        Some(Self { lightest: Some(view.weights?.class_of(weight)?), ..self })
    }

    /// Calls `see` with the index and the amount of each node of a leaf that takes anything.
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

    /// The amount that the nodes of a leaf take together.
    pub(crate) fn room(&self, leaf: Range<usize>) -> u32 {
        self.sum(leaf, |takes| takes)
    }

    /// The sum over the nodes of a leaf of the amount that each takes beyond `number`.
    pub(crate) fn beyond(&self, leaf: Range<usize>, number: u32) -> u32 {
        let number = narrow(number);
        self.sum(leaf, |takes| takes.saturating_sub(number))
    }

    /// The sum of `of` over the nodes of a leaf; `of` returns no more than the amount that it gets.
    fn sum(&self, leaf: Range<usize>, of: impl Fn(u16) -> u16) -> u32 {
        if self.are_few {
            // Sixteen-bit sums let the processor add twice as many at once.
            self.fold(leaf, 0_u16, |sum, _, takes| sum.wrapping_add(of(takes))).into()
        } else {
            self.fold(leaf, 0_u32, |sum, _, takes| sum.wrapping_add(of(takes).into()))
        }
    }

    /// The largest amount that one of these nodes takes, and the fewest slots of a node that has at least
    /// `wanted`, if any.
    pub(crate) fn extremes(&self, nodes: Range<usize>, wanted: u32) -> (u32, Option<u32>) {
        let Ok(wanted) = u16::try_from(wanted) else {
            return (self.fold(nodes, 0, |peak, _, takes| peak.max(takes)).into(), None);
        };
        let (peak, over) = self.fold(nodes, (0, u16::MAX), |(peak, over), slots, takes| {
            (takes.max(peak), slots.wrapping_sub(wanted).min(over))
        });
        // Where a node has fewer than `wanted`, the difference wraps round to more than any node can have
        // in excess.
        (peak.into(), wanted.checked_add(over).map(u32::from))
    }

    /// The first node of a leaf that has exactly `slots` slots.
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

    /// Folds over nodes with the slots and the amount of each; both are 0 where a node may not be used.
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

/// A number to compare with the slots of nodes, which are all below [`u16::MAX`]; larger numbers become
/// [`u16::MAX`].
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
