//! Fair Tree: the ranks of users by shares and usage, as Slurm computes them.
//!
//! Siblings are sorted by shares over usage; of equal ones users come before accounts, then the order is by
//! name. Users are ranked in that order from the root down, and equal users share a rank. If an account
//! equals the sibling before it, its first users share the rank of that sibling. Equal accounts are not
//! merged; Slurm's code does so too, unlike its documentation.

use std::cmp::Ordering;

use super::Shares;
use super::usage::Amount;

/// An association in the tree.
#[derive(Clone, Debug)]
pub struct Leaf<K> {
    /// Position in the list of the association above; the first entry is the root and its own parent.
    pub parent: usize,
    /// True if the association is that of a user.
    pub is_user: bool,
    /// Raw shares of the leaf.
    pub shares: Shares,
    /// Usage of the association and of all below it.
    pub usage: Amount,
    /// The order among equal siblings, which also identifies the association.
    pub key: K,
}

/// The fair-share standing of an association.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// The rank of a user among all users: the best has the number of users, equal users share a rank; 0 for
    /// accounts.
    pub rank: u32,
    /// Raw shares divided by the sum of all siblings' shares; in classic fair share, times the normalized
    /// shares of the association above.
    pub norm_shares: f64,
    /// Usage divided by that of the association above; in classic fair share, the effective usage.
    pub effective_usage: f64,
    /// Normalized shares over effective usage, infinite without usage; `None` in classic fair share.
    pub level: Option<f64>,
    /// The fair-share factor, from 0 to 1; `None` for accounts in Fair Tree, which have no rank.
    pub factor: Option<f64>,
}

/// The level of an association in integers, which compare exactly.
#[derive(Clone, Copy, Debug)]
enum Level {
    /// No shares: ranked behind all others.
    Nothing,
    /// Shares over usage: `shares / all / usage`, times the usage above, which all siblings have in common.
    Ratio { shares: u64, all: u64, usage: Amount },
    /// No usage, or the shares of the parent: ranked before all others.
    Infinite,
}

impl Level {
    fn order(self, other: Level) -> Ordering {
        match (self, other) {
            (
                Level::Ratio { shares, all, usage },
                Level::Ratio { shares: other_shares, all: other_all, usage: other_usage },
            ) => {
                let own = wide(u128::from(shares) * u128::from(other_all), other_usage.0);
                own.cmp(&wide(u128::from(other_shares) * u128::from(all), usage.0))
            }
            (one, other) => one.class().cmp(&other.class()),
        }
    }

    fn class(self) -> u8 {
        match self {
            Level::Nothing => 0,
            Level::Ratio { .. } => 1,
            Level::Infinite => 2,
        }
    }
}

/// The product of two numbers, as its upper and lower 128 bits.
fn wide(one: u128, other: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (a, b) = (one >> 64, one & LOW);
    let (c, d) = (other >> 64, other & LOW);
    let (low, left, right) = (b * d, a * d, b * c);
    let middle = (low >> 64) + (left & LOW) + (right & LOW);
    (a * c + (left >> 64) + (right >> 64) + (middle >> 64), (middle << 64) | (low & LOW))
}

/// The standings of all associations, in the order of the list. The first entry is the root; every other one
/// follows the one above it.
#[must_use]
pub fn fair_tree<K: Ord>(leaves: &[Leaf<K>]) -> Vec<Standing> {
    let tree = Tree::new(leaves);
    let levels: Vec<Level> = (0..leaves.len()).map(|at| tree.level(at)).collect();
    let mut standings: Vec<Standing> =
        levels.iter().enumerate().map(|(at, level)| tree.standing(at, *level)).collect();
    let order = |one: &usize, other: &usize| {
        let (a, b) = (&leaves[*one], &leaves[*other]);
        levels[*other]
            .order(levels[*one])
            .then_with(|| b.is_user.cmp(&a.is_user))
            .then_with(|| a.key.cmp(&b.key))
    };
    let mut children = tree.children;
    children.iter_mut().for_each(|siblings| siblings.sort_by(order));
    let users = leaves.iter().filter(|leaf| leaf.is_user).count();
    let users = u32::try_from(users).unwrap_or(u32::MAX);
    let (mut next, mut rank) = (users, users);
    // The siblings under way on each level: their parent, the number that is done, and true if the first is
    // tied.
    let mut open: Vec<(usize, usize, bool)> =
        if leaves.is_empty() { Vec::new() } else { vec![(0, 0, false)] };
    while let Some((parent, done, first_is_tied)) = open.pop() {
        let siblings = &children[parent];
        let Some(at) = siblings.get(done).copied() else { continue };
        let tied = match done.checked_sub(1) {
            None => first_is_tied,
            Some(before) => levels[siblings[before]].order(levels[at]) == Ordering::Equal,
        };
        open.push((parent, done + 1, first_is_tied));
        if leaves[at].is_user {
            rank = if tied { rank } else { next };
            next = next.saturating_sub(1);
            standings[at].rank = rank;
            standings[at].factor = Some(f64::from(rank) / f64::from(users));
        } else {
            open.push((at, 0, tied));
        }
    }
    standings
}

/// The tree, with the sums of shares on each level.
pub(super) struct Tree<'a, K> {
    leaves: &'a [Leaf<K>],
    /// For each association, the nearest one above that has shares of its own.
    above: Vec<usize>,
    /// For each association, the sum of shares of those that divide its share among them.
    level_shares: Vec<u64>,
    children: Vec<Vec<usize>>,
}

impl<'a, K> Tree<'a, K> {
    pub(super) fn new(leaves: &'a [Leaf<K>]) -> Self {
        let mut above = vec![0; leaves.len()];
        let mut level_shares = vec![0_u64; leaves.len()];
        let mut children = vec![Vec::new(); leaves.len()];
        for (at, leaf) in leaves.iter().enumerate().skip(1) {
            let parent = leaf.parent;
            let passes_on = parent != 0 && leaves[parent].shares == Shares::Parent;
            above[at] = if passes_on { above[parent] } else { parent };
            if let Shares::Raw(shares) = leaf.shares {
                level_shares[above[at]] += u64::from(shares);
            }
            children[parent].push(at);
        }
        Self { leaves, above, level_shares, children }
    }

    /// The position of the nearest association above that has shares of its own.
    pub(super) fn above(&self, at: usize) -> usize {
        self.above[at]
    }

    /// True if none of the associations that divide a share with this one has shares.
    pub(super) fn level_is_empty(&self, at: usize) -> bool {
        self.level_shares[self.above[at]] == 0
    }

    /// The raw shares of an association over the sum that they are part of; 0 if that is 0.
    pub(super) fn share_of_level(&self, at: usize) -> f64 {
        let (shares, all) = self.shares(at);
        quotient(shares, all)
    }

    /// The shares of an association and the sum that they are part of. With the shares of the parent, the
    /// parent's count.
    fn shares(&self, at: usize) -> (u64, u64) {
        let own = match self.leaves[at].shares {
            Shares::Raw(_) => at,
            Shares::Parent => self.above[at],
        };
        match self.leaves[own].shares {
            Shares::Raw(shares) if own != 0 => (u64::from(shares), self.level_shares[self.above[own]]),
            Shares::Raw(_) | Shares::Parent => (0, 0),
        }
    }

    fn level(&self, at: usize) -> Level {
        let leaf = &self.leaves[at];
        if leaf.is_user && leaf.shares == Shares::Parent {
            return Level::Infinite;
        }
        let (shares, all) = self.shares(at);
        if shares == 0 {
            return Level::Nothing;
        }
        let above = self.leaves[self.above[at]].usage;
        match leaf.usage == Amount::ZERO || above == Amount::ZERO {
            true => Level::Infinite,
            false => Level::Ratio { shares, all, usage: leaf.usage },
        }
    }

    fn standing(&self, at: usize, level: Level) -> Standing {
        if at == 0 {
            return Standing { effective_usage: 1.0, level: Some(0.0), ..Standing::default() };
        }
        let (shares, all) = self.shares(at);
        let above = self.leaves[self.above[at]].usage.real();
        let norm_shares = quotient(shares, all);
        let effective_usage = if above == 0.0 { 0.0 } else { self.leaves[at].usage.real() / above };
        let level = match level {
            Level::Nothing => 0.0,
            Level::Ratio { .. } => norm_shares / effective_usage,
            Level::Infinite => f64::INFINITY,
        };
        Standing { rank: 0, norm_shares, effective_usage, level: Some(level), factor: None }
    }
}

/// `part` over `whole`; 0 if `whole` is 0.
#[expect(clippy::cast_precision_loss, reason = "shares are shown with six decimals")]
fn quotient(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::accounts::usage::Rate;

    fn leaf(parent: usize, user: bool, shares: u32, usage: u64, key: usize) -> Leaf<usize> {
        let usage = Amount::of(Rate::ONE, usage);
        Leaf { parent, is_user: user, shares: Shares::Raw(shares), usage, key }
    }

    fn ranks(leaves: &[Leaf<usize>]) -> Vec<u32> {
        fair_tree(leaves).iter().map(|standing| standing.rank).collect()
    }

    #[test]
    fn equal_accounts_hand_their_tie_down_and_are_not_merged() {
        // As on Slurm 22.05: three users rank before accounts a and b, which have no shares.
        let leaves = [
            leaf(0, false, 1, 1000, 0),
            leaf(0, true, 5, 0, 1),
            leaf(0, true, 4, 100, 2),
            leaf(0, true, 3, 100, 3),
            leaf(0, false, 0, 100, 4),
            leaf(0, false, 0, 100, 5),
            leaf(4, true, 1, 100, 6),
            leaf(4, true, 1, 0, 7),
            leaf(5, true, 1, 100, 8),
            leaf(5, true, 1, 0, 9),
        ];
        assert_eq!(ranks(&leaves)[1..4], [7, 6, 5]);
        // refa1 3/7, refa2 4/7, refb2 1/7, refb1 3/7.
        assert_eq!(ranks(&leaves)[6..], [3, 4, 1, 3]);
    }

    #[test]
    fn nobody_who_has_used_nothing_is_behind_another() {
        let leaves = [
            leaf(0, false, 1, 0, 0),
            leaf(0, true, 1, 0, 1),
            leaf(0, false, 7, 0, 2),
            leaf(2, true, 3, 0, 3),
        ];
        assert_eq!(ranks(&leaves), [0, 2, 0, 2]);
    }

    #[test]
    fn a_user_with_the_shares_of_his_parent_is_first() {
        let mut leaves = vec![leaf(0, false, 1, 30, 0), leaf(0, false, 3, 30, 1), leaf(1, true, 9, 10, 2)];
        leaves.push(Leaf { shares: Shares::Parent, ..leaf(1, true, 0, 20, 3) });
        let standings = fair_tree(&leaves);
        assert_eq!((standings[3].rank, standings[2].rank), (2, 1));
        assert_eq!(standings[3].level, Some(f64::INFINITY));
        // The user has the shares of the account.
        assert_eq!((standings[3].norm_shares, standings[2].norm_shares), (1.0, 1.0));
    }

    /// An independent implementation in real numbers, recursive like Slurm's.
    fn by_recursion(leaves: &[Leaf<usize>], factors: &mut [u32]) {
        struct Walk<'a> {
            leaves: &'a [Leaf<usize>],
            rank: u32,
            left: u32,
        }
        impl Walk<'_> {
            fn level(&self, at: usize) -> f64 {
                let leaf = &self.leaves[at];
                let siblings =
                    self.leaves.iter().enumerate().skip(1).filter(|(_, other)| other.parent == leaf.parent);
                let raw = |leaf: &Leaf<usize>| match leaf.shares {
                    Shares::Raw(shares) => f64::from(shares),
                    Shares::Parent => unreachable!("none is generated"),
                };
                let all: f64 = siblings.map(|(_, other)| raw(other)).sum();
                let above = self.leaves[leaf.parent].usage.real();
                if raw(leaf) == 0.0 {
                    return 0.0;
                }
                let usage = if above == 0.0 { 0.0 } else { leaf.usage.real() / above };
                if usage == 0.0 { f64::INFINITY } else { raw(leaf) / all / usage }
            }

            fn children(&mut self, of: usize, mut tied: bool, factors: &mut [u32]) {
                let mut all: Vec<(f64, bool, usize)> = Vec::new();
                for (at, leaf) in self.leaves.iter().enumerate().skip(1) {
                    if leaf.parent == of {
                        all.push((self.level(at), !leaf.is_user, at));
                    }
                }
                all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
                for (index, (level, _, at)) in all.iter().enumerate() {
                    if index > 0 {
                        tied = *level == all[index - 1].0;
                    }
                    if self.leaves[*at].is_user {
                        if !tied {
                            self.rank = self.left;
                        }
                        factors[*at] = self.rank;
                        self.left -= 1;
                    } else {
                        self.children(*at, tied, factors);
                    }
                }
            }
        }
        let users = leaves.iter().filter(|leaf| leaf.is_user).count() as u32;
        Walk { leaves, rank: users, left: users }.children(0, false, factors);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn ranks_are_those_of_an_independent_implementation(
            all in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0_u32..4, 0_u64..4), 0..40)
        ) {
            let mut leaves = vec![leaf(0, false, 1, 0, 0)];
            for (parent, user, shares, usage) in all {
                let accounts: Vec<usize> =
                    (0..leaves.len()).filter(|at| !leaves[*at].is_user).collect();
                let parent = *parent.get(&accounts);
                let at = leaves.len();
                // Powers of two keep the ratios of real numbers exact where they tie.
                leaves.push(leaf(parent, user, [0, 1, 2, 4][shares as usize], if user { [0, 1, 2, 4][usage as usize] } else { 0 }, at));
            }
            for at in (1..leaves.len()).rev() {
                let usage = leaves[at].usage;
                let parent = leaves[at].parent;
                leaves[parent].usage = leaves[parent].usage.plus(usage);
            }
            let mut expected = vec![0; leaves.len()];
            by_recursion(&leaves, &mut expected);
            prop_assert_eq!(ranks(&leaves), expected);
        }

        #[test]
        fn wide_products_compare_like_exact_ones(a: u64, b: u64, c: u128) {
            let (high, low) = wide(u128::from(a) * u128::from(b), c);
            let (by_a, rest) = wide(u128::from(a), c);
            let (top, below) = wide(rest, u128::from(b));
            prop_assert_eq!((high, low), (by_a * u128::from(b) + top, below));
        }
    }
}
