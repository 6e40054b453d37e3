//! Fair share: the standings of all who share, by the tree as it is and usage as it was last rolled.
//!
//! Planner and readers ask for them; whoever only applies entries never computes them.

use std::sync::Arc;

use super::Cluster;
use super::holder::Holder;
use super::usage::ROOT_ASSOCIATION;
use crate::model::accounts::fair_tree::{Leaf, Standing, fair_tree};
use crate::model::accounts::usage::Amount;
use crate::model::accounts::{Association, AssociationId, Shares};

/// Everybody's standing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FairShares {
    /// How many users share.
    pub users: u32,
    /// In the order of holders.
    standings: Vec<(Holder, Standing)>,
}

impl FairShares {
    /// The standing of an association or an outsider.
    #[must_use]
    pub fn standing(&self, holder: &Holder) -> Option<&Standing> {
        let found = self.standings.binary_search_by(|(known, _)| known.cmp(holder)).ok()?;
        Some(&self.standings[found].1)
    }

    /// The factor of a user, from 0 to 1: the rank over the number of users; 0 for whoever does not share.
    #[must_use]
    pub fn factor(&self, holder: &Holder) -> f64 {
        let rank = self.standing(holder).map_or(0, |standing| standing.rank);
        if self.users == 0 { 0.0 } else { f64::from(rank) / f64::from(self.users) }
    }
}

/// The order of equal siblings: by name, then by partition.
type Key<'a> = (&'a str, &'a str);

impl Cluster {
    /// The standings that follow from the tree and from usage when it was last rolled: computed once, and again when
    /// either changes.
    #[must_use]
    pub fn fair_shares(&self) -> Arc<FairShares> {
        Arc::clone(self.usage.shares.get_or_init(|| Arc::new(self.compute_shares())))
    }

    fn compute_shares(&self) -> FairShares {
        let (mut holders, mut leaves): (Vec<Holder>, Vec<Leaf<Key<'_>>>) = (Vec::new(), Vec::new());
        // The account under way on each level, by its position.
        let mut open: Vec<usize> = Vec::new();
        let placed = self.accounts().walk();
        for placed in &placed {
            let association = &**placed.association;
            open.truncate(placed.depth);
            let parent = open.last().copied().unwrap_or(0);
            let is_user = association.user.is_some();
            holders.push(Holder::Association(association.id));
            leaves.push(self.leaf(association, parent));
            if !is_user {
                open.push(leaves.len() - 1);
                self.push_outsiders(association.id, leaves.len() - 1, &mut holders, &mut leaves);
            }
        }
        if placed.is_empty() {
            holders.push(Holder::Association(ROOT_ASSOCIATION));
            let usage = self.ranked(&Holder::Association(ROOT_ASSOCIATION));
            leaves.push(Leaf { parent: 0, is_user: false, shares: Shares::Raw(1), usage, key: ("", "") });
            self.push_outsiders(ROOT_ASSOCIATION, 0, &mut holders, &mut leaves);
        }
        let users = leaves.iter().filter(|leaf| leaf.is_user).count();
        let mut standings: Vec<(Holder, Standing)> = holders.into_iter().zip(fair_tree(&leaves)).collect();
        standings.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        FairShares { users: u32::try_from(users).unwrap_or(u32::MAX), standings }
    }

    fn leaf<'a>(&self, association: &'a Association, parent: usize) -> Leaf<Key<'a>> {
        let name = association.user.as_deref().unwrap_or(&association.account);
        Leaf {
            parent,
            is_user: association.user.is_some(),
            shares: association.shares,
            usage: self.ranked(&Holder::Association(association.id)),
            key: (name, association.partition.as_deref().unwrap_or_default()),
        }
    }

    /// Adds the users who are children of an account without an association.
    fn push_outsiders<'a>(
        &'a self,
        account: AssociationId,
        parent: usize,
        holders: &mut Vec<Holder>,
        leaves: &mut Vec<Leaf<Key<'a>>>,
    ) {
        for (user, used) in self.usage.outsiders(account) {
            holders.push(Holder::Outsider { account, user: Arc::clone(user) });
            let (shares, usage) = (Shares::Raw(1), used.ranked);
            leaves.push(Leaf { parent, is_user: true, shares, usage, key: (user, "") });
        }
    }

    fn ranked(&self, holder: &Holder) -> Amount {
        self.usage.of(holder).map_or(Amount::ZERO, |used| used.ranked)
    }
}
