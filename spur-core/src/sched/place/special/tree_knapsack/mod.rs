//! The best nodes of one domain, or leaves: the 0/1 knapsack on a tree, a dynamic programme.
//!
//! What the general solver finds with fronts of every domain, found for the cases in which a node or leaf is used or not and
//! everything that matters adds up: spans, nodes, slots of what is used. It goes from the last item to the first and keeps the
//! least price for everything that may still be wanted then and for every part of the way down from the holder that may be in
//! use already. Of equally good choices it takes the one whose items come first.

mod price;
mod step;

use crate::model::fabric::{DomainId, Pos};
use crate::sched::place::answer::Missed;
use crate::sched::place::problem::{Problem, gcd};

pub(super) use price::{Price, PriceScale, Total, below};
use step::KnapsackStep;

/// Numbers that are worked out in the time of one step of a search, if they are short and if they are long.
const AT_ONCE: (usize, usize) = (1 << 7, 1 << 4);

/// A node that may be used, or a leaf, which goes by its first position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnapsackItem {
    pub(super) pos: Pos,
    /// The most of the amount that it can take.
    pub(super) takes: u32,
}

/// What comes out at a number of its own, next to the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing: the fewest nodes of each way to lie are best.
    Nothing,
    /// Exactly so many nodes are used.
    Nodes(u32),
    /// At most so many leaves are used.
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

/// An item where it is decided on.
struct ItemStage {
    item: KnapsackItem,
    /// What it takes, in units of what all of them take multiples of.
    takes: usize,
    /// How many of the domains from the holder down to its leaf it shares with the item before it.
    shared: usize,
    /// Domains from the holder down to its leaf.
    depth: usize,
    /// Where its prices begin: by how many of these domains are in use.
    prices: usize,
    /// Most and least of the amount that can still be wanted here.
    wanted: (usize, usize),
    /// Where the answers begin.
    answers: usize,
}

/// The items of one domain, in fabric order.
struct TreeKnapsack {
    stages: Vec<ItemStage>,
    prices: Vec<Price>,
    /// Parts of the way down that can be told apart.
    depth: usize,
    /// What comes out beside the amount, and its numbers.
    beside: Beside,
    numbers: usize,
    /// Amounts that can be wanted.
    width: usize,
    /// How many answers there are in all.
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

    /// Finds what can still be wanted at each stage: no less than what those before cannot take, no more than what it
    /// and those after it can.
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

    /// What is shared between the item at an index and the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stages.get(index + 1).map_or(0, |stage| stage.shared)
    }

    fn row(&self, used: usize, number: usize) -> usize {
        (used * self.numbers + number) * self.width
    }
}

/// The best way to put an amount on some items of a domain, which are in fabric order; unknown where more than `most` numbers
/// would have to be worked out.
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
    /// Says for every stage and everything that may be wanted there whether its item is used in the choice of the least price;
    /// None where nothing holds the job.
    fn prices_from_the_end<P: Total>(&self, tail: u32) -> Option<Vec<bool>> {
        let mut after = vec![P::NEVER; self.depth * self.numbers * self.width];
        let mut here = after.clone();
        let mut uses = vec![false; self.answers];
        // Nodes are used though nothing is wanted any more, if they have to be.
        let needs_more = matches!(self.beside, Beside::Nodes(_));
        let done = if needs_more { 1 } else { self.numbers };
        (0..self.depth).for_each(|used| {
            (0..done).for_each(|number| after[self.row(used, number)] = P::NOTHING);
        });
        // Of nothing but what those after can take is anything known.
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

    /// What is left of what comes out beside the amount once the item of a stage is used, if it may be.
    fn left(&self, stage: &ItemStage, used: usize, number: usize) -> Option<usize> {
        match self.beside {
            Beside::Nothing => Some(number),
            Beside::Nodes(_) => number.checked_sub(1),
            Beside::Leaves(_) => number.checked_sub(usize::from(used < stage.depth)),
        }
    }

    /// The items that are used.
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
