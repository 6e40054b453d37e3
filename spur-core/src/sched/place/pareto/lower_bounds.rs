//! What is known of the best placements of a domain before fronts are made: which ways to use its members can still be a
//! part of one.

use crate::model::fabric::DomainId;
use crate::sched::place::problem::{Cost, Item, Problem};

use super::{Front, Member, Solver};

/// What is known of the best placements in one domain before best fit is looked at.
///
/// With the spans of the best placement there is room for `slack` more than the job. A way to use a part belongs to a
/// best placement only if it holds at most `slack` less than the most that ways of its spans do: otherwise taking one
/// of those instead would make that room larger.
pub(super) struct Guide<'p, 'a, C> {
    pub(super) holder: DomainId,
    pub(super) slack: u32,
    /// The spans of the best placement.
    pub(super) best: C,
    pub(super) heads: Solver<'p, 'a, C>,
}

impl<C: Cost> Guide<'_, '_, C> {
    /// For every number of members from the first on, how the best placement could use them; the last is all.
    pub(super) fn befores(
        &mut self,
        id: DomainId,
        members: &[(Member, Front<C>)],
        reach: &Reach,
    ) -> Vec<Vec<Item<C>>> {
        let mut befores = vec![vec![Item::nothing(self.heads.problem.layout.width())]];
        for (member, _) in members {
            let front = self.heads.member_front(*member);
            let part: Vec<Item<C>> = front.iter().filter(|item| reach.admits_part(item)).cloned().collect();
            let last = befores.last().expect("it starts with one");
            let mut next = self.heads.join(last, &part, true, id);
            next.retain(|item| item.cost <= self.best);
            befores.push(next);
        }
        befores
    }

    /// Whether a way, together with one of `others`, can be the job without more than the best spans; `others` rises
    /// in cost and with it in what it holds.
    pub(super) fn completes(&self, item: &Item<C>, others: &[Item<C>], head: usize) -> bool {
        let mut left = self.best.clone();
        left.sub(&item.cost);
        let left = &left.fields()[..head];
        let at = others.partition_point(|other| other.cost.fields()[..head] <= *left);
        let most = others[..at].iter().map(|other| other.hi).max();
        most.is_some_and(|most| item.hi.saturating_add(most) >= self.heads.problem.amount)
    }
}

/// How far the members of the holder that are still to come can take a way to use the others, with no more pieces in
/// all, domains of the layer whose span decides first, than the fewest that hold the job.
pub(super) struct Reach {
    amount: u32,
    /// Where the number of pieces stands in a cost.
    field: usize,
    fewest: usize,
    /// `ahead[i][n]`: the most that n pieces of the first i members hold.
    ahead: Vec<Vec<u32>>,
}

impl Reach {
    pub(super) fn new<C: Cost>(
        problem: &Problem<'_>,
        id: DomainId,
        members: &[(Member, Front<C>)],
    ) -> Option<Self> {
        let (layer, field) = problem.first_span(id)?;
        let (mut largest, mut pieces) = (Vec::new(), Vec::new());
        problem.pieces(id, layer, &mut largest);
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let fewest = sums(&largest).iter().position(|&sum| sum >= problem.amount)?;
        largest.clear();
        let mut ahead = vec![vec![0]];
        for (member, _) in members {
            pieces.clear();
            match *member {
                Member::Domain(child) => problem.pieces(child, layer, &mut pieces),
                Member::Node(pos) => pieces.push(problem.most_on(pos)),
            }
            for &most in &pieces {
                largest.insert(largest.partition_point(|&other| other >= most), most);
                largest.truncate(fewest);
            }
            ahead.push(sums(&largest));
        }
        Some(Self { amount: problem.amount, field, fewest, ahead })
    }

    /// Whether a way to use members from the one at `index` on can still become the whole job.
    pub(super) fn admits<C: Cost>(&self, item: &Item<C>, index: usize) -> bool {
        let used = usize::try_from(item.cost.fields()[self.field]).unwrap_or(usize::MAX);
        let ahead = &self.ahead[index];
        used <= self.fewest
            && item.hi.saturating_add(ahead[(self.fewest - used).min(ahead.len() - 1)]) >= self.amount
    }

    /// Whether a way to use one member can be a part of the whole job.
    pub(super) fn admits_part<C: Cost>(&self, item: &Item<C>) -> bool {
        self.admits(item, self.ahead.len() - 1)
    }
}

/// The sums of the first none, one, two, … of some numbers.
pub(super) fn sums(numbers: &[u32]) -> Vec<u32> {
    let mut sum = 0_u32;
    let rest = numbers.iter().map(|&number| {
        sum = sum.saturating_add(number);
        sum
    });
    std::iter::once(0).chain(rest).collect()
}

/// Drops ways that hold too little for their spans, but none that holds `enough`; `floor` has the most that each
/// spans hold.
pub(super) fn keep_near<C: Cost>(
    items: &mut Vec<Item<C>>,
    floor: &[Item<C>],
    enough: u32,
    slack: u32,
    head: usize,
) {
    let mut most = 0;
    let steps: Vec<u32> = (floor.iter())
        .map(|item| {
            most = most.max(item.hi);
            most
        })
        .collect();
    items.retain(|item| {
        let fields = &item.cost.fields()[..head];
        let at = floor.partition_point(|other| other.cost.fields()[..head] <= *fields);
        at == 0 || item.hi >= enough || item.hi.saturating_add(slack) >= steps[at - 1]
    });
}
