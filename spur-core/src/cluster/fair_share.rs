//! Fair share: the standing of every user, computed from the policy tree and from usage as it was last
//! rolled.
//!
//! Planner and readers compute standings on demand; applying entries never does.

use std::sync::Arc;

use super::Cluster;
use super::holder::Holder;
use super::usage::ROOT_ASSOCIATION;
use crate::model::accounts::classic::{Classic, classic};
use crate::model::accounts::fair_tree::{Leaf, Standing, fair_tree};
use crate::model::accounts::usage::Amount;
use crate::model::accounts::{Association, AssociationId, Shares};
use crate::model::config::PriorityFlag;

/// The standings of all associations and outsiders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FairShares {
    /// Number of users who share.
    pub users: u32,
    /// In the order of holders.
    standings: Vec<(Holder, Standing)>,
}

impl FairShares {
    /// The standing of an association or an outsider; `None` for other payers.
    #[must_use]
    pub fn standing(&self, holder: &Holder) -> Option<&Standing> {
        let found = self.standings.binary_search_by(|(known, _)| known.cmp(holder)).ok()?;
        Some(&self.standings[found].1)
    }

    /// The fair-share factor of a user, from 0 to 1; 0 for a holder without a standing.
    #[must_use]
    pub fn factor(&self, holder: &Holder) -> f64 {
        self.standing(holder).and_then(|standing| standing.factor).unwrap_or(0.0)
    }
}

/// The order of siblings with equal standing: by name, then by partition.
type Key<'a> = (&'a str, &'a str);

impl Cluster {
    /// The standings that follow from the policy tree and the usage last rolled. They are computed once, and
    /// again after either changes.
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
        let scheduler = &self.policy.scheduler;
        let found = match scheduler.has_flag(PriorityFlag::NoFairTree) {
            false => fair_tree(&leaves),
            true => {
                let dampening = scheduler.fair_share_dampening_factor;
                let depth_oblivious = scheduler.has_flag(PriorityFlag::DepthOblivious);
                classic(&leaves, Classic { dampening, depth_oblivious })
            }
        };
        let mut standings: Vec<(Holder, Standing)> = holders.into_iter().zip(found).collect();
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

    /// Adds the users without an association who count as children of an account.
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
