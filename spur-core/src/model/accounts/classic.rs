//! Classic fair share (`NO_FAIR_TREE`): each association's factor from its normalized shares and its
//! effective usage, as Slurm computes them.
//!
//! The factor is `2^(-(U/S)/d)`, with the effective usage `U`, the normalized shares `S` and the dampening
//! factor `d`; it is 0 without shares. All values are computed from the root down.

use super::Shares;
use super::fair_tree::{Leaf, Standing, Tree};

/// The settings of classic fair share.
#[derive(Clone, Copy, Debug)]
pub struct Classic {
    /// `fair_share_dampening_factor`: the larger, the slower the factor falls with usage.
    pub dampening: u16,
    /// True if the depth of an association does not matter (`DEPTH_OBLIVIOUS`).
    pub depth_oblivious: bool,
}

/// The strength with which an unbalanced parent keeps a child from balancing it (`DEPTH_OBLIVIOUS`); the
/// number is Slurm's.
const PARENT_STRENGTH: f64 = 5.0;

/// The standings of all associations, in the order of the list. The first entry is the root; every other one
/// follows the one above it.
#[must_use]
pub fn classic<K>(leaves: &[Leaf<K>], settings: Classic) -> Vec<Standing> {
    let tree = Tree::new(leaves);
    let root = leaves.first().map_or(0.0, |root| root.usage.real());
    let share = |leaf: &Leaf<K>| if root == 0.0 { 0.0 } else { (leaf.usage.real() / root).min(1.0) };
    let usage: Vec<f64> = leaves.iter().map(share).collect();
    // The usage of the children that divide an association's shares among them.
    let mut below = vec![0.0; leaves.len()];
    for at in 1..leaves.len() {
        if leaves[at].shares != Shares::Parent {
            below[tree.above(at)] += usage[at];
        }
    }
    let mut standings: Vec<Standing> = Vec::with_capacity(leaves.len());
    for (at, leaf) in leaves.iter().enumerate() {
        let above = standings
            .get(tree.above(at))
            .copied()
            .unwrap_or(Standing { norm_shares: 1.0, ..Standing::default() });
        let norm_shares = match leaf.shares {
            Shares::Raw(_) if at != 0 => above.norm_shares * tree.share_of_level(at),
            Shares::Raw(_) | Shares::Parent => above.norm_shares,
        };
        let effective_usage = match leaf.shares {
            _ if at == 0 => 1.0,
            _ if tree.above(at) == 0 => usage[at],
            Shares::Parent => above.effective_usage,
            Shares::Raw(_) if settings.depth_oblivious => {
                let own = Level { norm_shares, usage: usage[at] };
                own.depth_oblivious(&above, below[tree.above(at)])
            }
            Shares::Raw(_) => match tree.level_is_empty(at) {
                true => above.effective_usage,
                false => usage[at] + (above.effective_usage - usage[at]) * tree.share_of_level(at),
            },
        };
        let used = effective_usage / norm_shares / f64::from(settings.dampening);
        let factor = if norm_shares > 0.0 { (-used).exp2() } else { 0.0 };
        standings.push(Standing { rank: 0, norm_shares, effective_usage, level: None, factor: Some(factor) });
    }
    standings
}

/// The normalized shares and the normalized usage of an association.
#[derive(Clone, Copy, Debug)]
struct Level {
    norm_shares: f64,
    usage: f64,
}

impl Level {
    /// The effective usage under `DEPTH_OBLIVIOUS`: the normalized shares times `p · l^k`. Here `p` is the
    /// ratio of effective usage to shares of the association above, and `l` the same ratio of this
    /// association over that of all siblings, whose normalized usage is `siblings`. The exponent `k` is below
    /// 1 where `l` would bring the product back towards 1. Without usage or shares, the effective usage is
    /// the normalized usage.
    fn depth_oblivious(self, above: &Standing, siblings: f64) -> f64 {
        if self.norm_shares == 0.0
            || self.usage == 0.0
            || above.norm_shares == 0.0
            || above.effective_usage == 0.0
        {
            return self.usage;
        }
        let parent = above.effective_usage / above.norm_shares;
        let own = (self.usage / self.norm_shares) / (siblings / above.norm_shares);
        let exponent = match parent.ln() * own.ln() {
            product if product >= 0.0 => 1.0,
            _ => 1.0 / (1.0 + (PARENT_STRENGTH * parent.ln()).powi(2)),
        };
        parent * own.powf(exponent) * self.norm_shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::accounts::usage::{Amount, Rate};

    /// An association: its name, the position of the one above, its raw shares (`None` for the parent's) and
    /// its usage; then the normalized shares, and the effective usage and the factor of both kinds of classic
    /// fair share.
    type Row = (&'static str, usize, Option<u32>, u64, f64, (f64, f64), (f64, f64));

    /// The values that `sshare` of Slurm 22.05 printed for this tree; those of `DEPTH_OBLIVIOUS` after two
    /// periods.
    #[rustfmt::skip]
    const SLURM: [Row; 17] = [
        ("root", 0, Some(1), 1255, 1.0, (1.0, 0.5), (1.0, 0.5)),
        ("root/root", 0, Some(1), 0, 0.012346, (0.0, 1.0), (0.0, 1.0)),
        ("arts", 0, Some(40), 305, 0.493827, (0.243028, 0.710974), (0.243028, 0.710974)),
        ("arts/lp", 2, Some(1), 300, 0.493827, (0.243028, 0.710974), (0.239044, 0.714961)),
        ("idle", 2, Some(0), 5, 0.0, (0.003984, 0.0), (0.003984, 0.0)),
        ("idle/mail", 4, Some(1), 5, 0.0, (0.003984, 0.0), (0.003984, 0.0)),
        ("idle/news", 4, Some(1), 0, 0.0, (0.001992, 0.0), (0.0, 0.0)),
        ("sci", 0, Some(40), 950, 0.493827, (0.756972, 0.345590), (0.756972, 0.345590)),
        ("chem", 7, Some(5), 100, 0.308642, (0.502988, 0.323160), (0.343442, 0.462411)),
        ("chem/uucp", 8, Some(0), 10, 0.0, (0.007968, 0.0), (0.007968, 0.0)),
        ("deep", 8, None, 90, 0.308642, (0.502988, 0.323160), (0.343442, 0.462411)),
        ("deep/games", 10, Some(3), 90, 0.154321, (0.287351, 0.275089), (0.309098, 0.249489)),
        ("deep/man", 10, Some(3), 0, 0.154321, (0.251494, 0.323160), (0.0, 1.0)),
        ("phys", 7, Some(3), 850, 0.185185, (0.707171, 0.070868), (0.677291, 0.079254)),
        ("phys/bin", 13, Some(2), 100, 0.092593, (0.393426, 0.052592), (0.327911, 0.085885)),
        ("phys/daemon", 13, Some(2), 700, 0.092593, (0.632470, 0.008785), (0.592629, 0.011838)),
        ("phys/sys", 13, None, 50, 0.185185, (0.707171, 0.070868), (0.677291, 0.079254)),
    ];

    fn standings(settings: Classic) -> Vec<Standing> {
        let leaf = |(name, parent, shares, usage, ..): &Row| Leaf {
            parent: *parent,
            is_user: name.contains('/'),
            shares: shares.map_or(Shares::Parent, Shares::Raw),
            usage: Amount::of(Rate::ONE, *usage),
            key: *name,
        };
        classic(&SLURM.iter().map(leaf).collect::<Vec<_>>(), settings)
    }

    #[test]
    fn values_are_slurms_to_six_decimals() {
        for depth_oblivious in [false, true] {
            let found = standings(Classic { dampening: 1, depth_oblivious });
            for (row, standing) in SLURM.iter().zip(found) {
                let (name, .., norm_shares, plain, oblivious) = row;
                let (usage, factor) = if depth_oblivious { oblivious } else { plain };
                let own = [standing.norm_shares, standing.effective_usage, standing.factor.unwrap()];
                let decimals = own.map(|value| format!("{value:.6}"));
                assert_eq!(
                    decimals,
                    [norm_shares, usage, factor].map(|value| format!("{value:.6}")),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn dampening_divides_the_exponent() {
        let factor = |dampening| standings(Classic { dampening, depth_oblivious: false })[15].factor.unwrap();
        assert!((factor(3).powi(3) - factor(1)).abs() < 1e-12);
    }
}
