//! The cost of a set of victims, and a lower bound on the cost of the cheapest set.

use crate::model::config::PreemptCost;

/// The loss by a set of victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The highest level among the victims: the tier of a partition, or the priority of a QOS.
    pub(crate) level: u32,
    /// Node-seconds they have run since their last checkpoints, or since their starts.
    pub(crate) work: u64,
    /// Number of victims.
    pub(crate) jobs: u64,
}

/// A loss as it is compared under one `[preempt] cost`, from left to right; less is better.
pub(crate) type ComparedLoss = [u64; 3];

impl Loss {
    /// The loss by both sets.
    pub(crate) fn and(self, other: Loss) -> Loss {
        Loss {
            level: self.level.max(other.level),
            work: self.work.saturating_add(other.work),
            jobs: self.jobs + other.jobs,
        }
    }

    /// The loss in the order of comparison. Every order includes all three numbers, so a larger set always
    /// costs more than a part of it.
    pub(crate) fn price(self, by: PreemptCost) -> ComparedLoss {
        let level = u64::from(self.level);
        match by {
            PreemptCost::Priority => [level, self.work, self.jobs],
            PreemptCost::Jobs => [self.jobs, level, self.work],
            PreemptCost::Work => [self.work, level, self.jobs],
        }
    }
}

/// The order in which victims are decided: those that a cheap set probably contains come first. The key has
/// the level, and the work for the gain.
pub(crate) fn likely(by: PreemptCost, level: u32, ratio: u128, gain: u64) -> [u128; 3] {
    match by {
        PreemptCost::Priority => [level.into(), ratio, 0],
        PreemptCost::Jobs => [(u64::MAX - gain).into(), level.into(), ratio],
        PreemptCost::Work => [ratio, level.into(), 0],
    }
}

/// A victim as far as bounds need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) loss: Loss,
    /// The largest gain of slots, in [`UNIT`]s of a slot. Where several jobs must leave a node together, each
    /// has an equal part.
    pub(crate) gain: u64,
    /// The largest gain, shared in proportion to the work that each loses.
    pub(crate) worth: u64,
}

/// Number of parts of a slot in which gains are counted.
pub(crate) const UNIT: u64 = 1 << 20;

/// The orders in which bounds visit victims, each a permutation.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// The least work for the gain first.
    pub(crate) by_work: Vec<usize>,
    /// The largest gain first.
    by_gain: Vec<usize>,
    /// The lowest level first.
    by_level: Vec<usize>,
}

impl Orders {
    pub(crate) fn of(shares: &[Share]) -> Self {
        let all: Vec<usize> = (0..shares.len()).collect();
        let mut orders = Self { by_work: all.clone(), by_gain: all.clone(), by_level: all };
        orders.by_work.sort_by(|one, other| {
            let (one, other) = (&shares[*one], &shares[*other]);
            let (mine, theirs) = (product(one.loss.work, other.worth), product(other.loss.work, one.worth));
            mine.cmp(&theirs).then(other.worth.cmp(&one.worth))
        });
        orders.by_gain.sort_by_key(|index| std::cmp::Reverse(shares[*index].gain));
        orders.by_level.sort_by_key(|index| shares[*index].loss.level);
        orders
    }
}

fn product(one: u64, other: u64) -> u128 {
    u128::from(one) * u128::from(other)
}

/// The missing slots, in the units of gains and of worths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) gain: u64,
    pub(crate) worth: u64,
}

/// A lower bound on the further loss until `missing` is reached, among the victims that are still `open`.
/// `None` if all of them are not enough.
///
/// Each of the three numbers is a bound, so together they bound every order of them. Work is bounded as if
/// victims could be taken in part; where the level comes first, only over the levels that are needed anyway.
pub(crate) fn least(
    shares: &[Share],
    orders: &Orders,
    by: PreemptCost,
    missing: Missing,
    open: impl Fn(usize) -> bool,
) -> Option<Loss> {
    let mut bound = Loss::default();
    let mut left = missing.gain;
    for index in orders.by_level.iter().filter(|index| open(**index)) {
        bound.level = shares[*index].loss.level;
        left = left.saturating_sub(shares[*index].gain);
        if left == 0 {
            break;
        }
    }
    if left > 0 {
        return None;
    }
    let mut left = missing.gain;
    for index in orders.by_gain.iter().filter(|index| open(**index)) {
        bound.jobs += 1;
        left = left.saturating_sub(shares[*index].gain);
        if left == 0 {
            break;
        }
    }
    let counts = |share: &Share| by != PreemptCost::Priority || share.loss.level <= bound.level;
    let mut left = missing.worth;
    for index in orders.by_work.iter().filter(|index| open(**index)) {
        let share = &shares[*index];
        if !counts(share) || share.worth == 0 {
            continue;
        }
        let part = product(share.loss.work, left.min(share.worth)) / u128::from(share.worth);
        bound.work = bound.work.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        left = left.saturating_sub(share.worth);
        if left == 0 {
            break;
        }
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(level: u32, work: u64, gain: u64) -> Share {
        Share { loss: Loss { level, work, jobs: 1 }, gain: gain * UNIT, worth: gain * UNIT }
    }

    #[test]
    fn bounds_take_the_best_of_each() {
        let shares = [share(1, 90, 1), share(2, 10, 1), share(1, 50, 2)];
        let orders = Orders::of(&shares);
        let least = |by, slots: u64| {
            least(&shares, &orders, by, Missing { gain: slots * UNIT, worth: slots * UNIT }, |_| true)
        };
        let loss = |level, work, jobs| Some(Loss { level, work, jobs });
        assert_eq!(least(PreemptCost::Priority, 1), loss(1, 25, 1));
        assert_eq!(least(PreemptCost::Work, 1), loss(1, 10, 1));
        assert_eq!(least(PreemptCost::Priority, 3), loss(1, 140, 2));
        assert_eq!(least(PreemptCost::Priority, 4), loss(2, 150, 3));
        assert_eq!(least(PreemptCost::Jobs, 5), None);
    }

    #[test]
    fn losses_are_compared_as_configured() {
        let (few, cheap, low) = (
            Loss { level: 2, work: 100, jobs: 1 },
            Loss { level: 2, work: 10, jobs: 3 },
            Loss { level: 1, work: 500, jobs: 2 },
        );
        for (by, best) in [(PreemptCost::Priority, low), (PreemptCost::Jobs, few), (PreemptCost::Work, cheap)]
        {
            let found = [few, cheap, low].into_iter().min_by_key(|loss| loss.price(by));
            assert_eq!(found, Some(best), "{by:?}");
        }
    }
}
