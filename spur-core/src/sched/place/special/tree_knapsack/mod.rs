//! The best nodes or leaves of one domain: the 0/1 knapsack on a tree, solved by a dynamic programme.
//!
//! This gives the result of the general search where a node or leaf is either used or not and everything that
//! matters adds up: spans, nodes, slots of what is used. The programme runs from the last item to the first.
//! It keeps the least price for every amount still wanted and every part of the path from the holder already
//! in use. Of equally good choices it takes the one whose items come first.

mod price;
mod step;

use crate::model::fabric::{DomainId, Pos};
use crate::sched::place::answer::Missed;
use crate::sched::place::problem::{Problem, gcd};

pub(super) use price::{Price, PriceScale, Total, below};
use step::KnapsackStep;

/// Number of table entries that take as long as one step of a search, for short and for long prices.
const AT_ONCE: (usize, usize) = (1 << 7, 1 << 4);

/// A node that may be used, or a leaf, which is represented by its first position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnapsackItem {
    pub(super) pos: Pos,
    /// The largest amount that the item can take.
    pub(super) takes: u32,
}

/// The number that must be exact or limited beside the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// No such number: prices alone decide.
    Nothing,
    /// Exactly this number of nodes is used.
    Nodes(u32),
    /// At most this number of leaves is used.
    Leaves(u32),
}

impl Beside {
    fn number(self) -> u32 {
        match self {
            Beside::Nothing => 0,
            Beside::Nodes(number) | Beside::Leaves(number) => number,
        }
    }
}

/// An item in the dynamic programme.
struct ItemStage {
    item: KnapsackItem,
    /// The amount that the item takes, in units of the greatest common divisor of all amounts.
    takes: usize,
    /// Number of domains, from below the holder to the item's leaf, that it shares with the item before.
    shared: usize,
    /// Number of domains from below the holder to the item's leaf.
    depth: usize,
    /// The index of the item's first price; prices are listed by the number of these domains already in use.
    prices: usize,
    /// The least and the most of the amount that can still be wanted at this stage.
    wanted: (usize, usize),
    /// The index of the stage's first answer.
    answers: usize,
}

/// The items of one domain, in fabric order.
struct TreeKnapsack {
    stages: Vec<ItemStage>,
    prices: Vec<Price>,
    /// The largest number of shared domains, plus one.
    depth: usize,
    /// The number beside the amount, and how many values it can have.
    beside: Beside,
    numbers: usize,
    /// Number of amounts that can be wanted.
    width: usize,
    /// Number of answers over all stages.
    answers: usize,
}

impl TreeKnapsack {
    fn new(
        problem: &Problem<'_>,
        holder: DomainId,
        items: &[KnapsackItem],
        (amount, unit): (usize, u32),
        scale: &PriceScale<'_>,
        beside: Beside,
    ) -> Self {
        let width = amount + 1;
        let numbers = beside.number() as usize + 1;
        let stages = Vec::with_capacity(items.len());
        let mut walk = Self { stages, prices: Vec::new(), depth: 1, beside, numbers, width, answers: 0 };
        let mut next = items.iter();
        scale.along(problem, holder, items.iter().map(|item| item.pos), |shared, prices| {
            let Some(&item) = next.next() else { return };
            let (depth, first) = (prices.len() - 1, walk.prices.len());
            walk.prices.extend(prices);
            let takes = (item.takes / unit) as usize;
            let (wanted, answers) = ((0, 0), 0);
            walk.stages.push(ItemStage { item, takes, shared, depth, prices: first, wanted, answers });
            walk.depth = walk.depth.max(shared + 1);
        });
        walk.bound(amount);
        walk
    }

    /// Computes the amounts that can be wanted at each stage: at least what the items before cannot take, at
    /// most what this item and those after it can take.
    fn bound(&mut self, amount: usize) {
        let mut before = 0;
        for stage in &mut self.stages {
            stage.wanted.0 = amount.saturating_sub(before);
            before += stage.takes;
        }
        let mut after = 0;
        for stage in self.stages.iter_mut().rev() {
            after += stage.takes;
            stage.wanted.1 = amount.min(after);
        }
        for stage in &mut self.stages {
            stage.answers = self.answers;
            let amounts = (stage.wanted.1 + 1).saturating_sub(stage.wanted.0);
            self.answers = self.answers.saturating_add((stage.shared + 1) * self.numbers * amounts);
        }
    }

    /// Number of domains that the item at an index shares with the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stages.get(index + 1).map_or(0, |stage| stage.shared)
    }

    fn row(&self, used: usize, number: usize) -> usize {
        (used * self.numbers + number) * self.width
    }
}

/// The best way to put an amount on items of a domain, which are in fabric order. [`Missed::UNKNOWN`] if more
/// than `most` table entries are needed.
pub(super) fn solve(
    problem: &Problem<'_>,
    holder: DomainId,
    amount: u32,
    items: &[KnapsackItem],
    scale: &PriceScale<'_>,
    (beside, most): (Beside, usize),
) -> Result<Vec<KnapsackItem>, Missed> {
    let sum: u64 = items.iter().map(|item| u64::from(item.takes)).sum();
    if sum < u64::from(amount) {
        return Err(Missed::NONE);
    }
    let unit = items.iter().fold(0, |unit, item| gcd(unit, item.takes)).max(1);
    let amount = amount.div_ceil(unit) as usize;
    let walk = TreeKnapsack::new(problem, holder, items, (amount, unit), scale, beside);
    let widest = walk.depth.saturating_mul(walk.numbers * walk.width);
    let (tail, all) = scale.bits();
    let at_once = if all < u64::BITS { AT_ONCE.0 } else { AT_ONCE.1 };
    if walk.answers.max(widest) > most || !problem.meter.take((walk.answers + widest) / at_once) {
        return Err(Missed::UNKNOWN);
    }
    let found = if all < u64::BITS {
        walk.prices_from_the_end::<u64>(tail)
    } else {
        walk.prices_from_the_end::<Price>(tail)
    };
    Ok(walk.follow(&found.ok_or(Missed::NONE)?, amount))
}

impl TreeKnapsack {
    /// Computes for every stage and every amount wanted there whether the item is used in the choice with the
    /// least price. `None` if no choice holds the job.
    fn prices_from_the_end<P: Total>(&self, tail: u32) -> Option<Vec<bool>> {
        let mut after = vec![P::NEVER; self.depth * self.numbers * self.width];
        let mut here = after.clone();
        let mut uses = vec![false; self.answers];
        // An exact number of nodes has to be reached even after the amount is.
        let needs_more = matches!(self.beside, Beside::Nodes(_));
        let done = if needs_more { 1 } else { self.numbers };
        (0..self.depth).for_each(|used| {
            (0..done).for_each(|number| after[self.row(used, number)] = P::NOTHING);
        });
        // Only amounts that the later items can take have valid entries.
        let mut most_after = 0;
        for (index, stage) in self.stages.iter().enumerate().rev() {
            let (least, most) = stage.wanted;
            let next = self.shared_after(index);
            let amounts = (most + 1).saturating_sub(least);
            let mut answer = stage.answers;
            for used in 0..=stage.shared {
                let price = P::pack(self.prices[stage.prices + used], tail);
                for number in 0..self.numbers {
                    let (row, skipped) = (self.row(used, number), self.row(used.min(next), number));
                    if most > most_after {
                        after[skipped + most_after + 1..=skipped + most].fill(P::NEVER);
                    }
                    let left = self.left(stage, used, number);
                    let step = KnapsackStep {
                        skips: &after[skipped + least..skipped + least + amounts],
                        taken: left.map(|number| &after[self.row(next, number)..][..self.width]),
                        takes: stage.takes,
                        least,
                        price,
                    };
                    let outcome = &mut here[row + least..row + least + amounts];
                    step.choose(outcome, &mut uses[answer..answer + amounts], needs_more);
                    answer += amounts;
                }
            }
            most_after = most;
            std::mem::swap(&mut here, &mut after);
        }
        let wanted = self.width - 1;
        let price = after[self.row(0, self.numbers - 1) + wanted];
        (wanted <= most_after && price != P::NEVER).then_some(uses)
    }

    /// The number beside the amount that remains once the item of a stage is used; `None` if the item may not
    /// be used.
    fn left(&self, stage: &ItemStage, used: usize, number: usize) -> Option<usize> {
        match self.beside {
            Beside::Nothing => Some(number),
            Beside::Nodes(_) => number.checked_sub(1),
            Beside::Leaves(_) => number.checked_sub(usize::from(used < stage.depth)),
        }
    }

    /// The items of the best choice, read from the answers.
    fn follow(&self, uses: &[bool], amount: usize) -> Vec<KnapsackItem> {
        let (mut used, mut number, mut left) = (0, self.numbers - 1, amount);
        let mut items = Vec::new();
        for (index, stage) in self.stages.iter().enumerate() {
            let next = self.shared_after(index);
            let (least, most) = stage.wanted;
            let answer = stage.answers + (used * self.numbers + number) * (most - least + 1) + left - least;
            if uses[answer] {
                number = self.left(stage, used, number).unwrap_or(0);
                items.push(stage.item);
                left = left.saturating_sub(stage.takes);
                used = next;
            }
            used = used.min(next);
        }
        items
    }
}
