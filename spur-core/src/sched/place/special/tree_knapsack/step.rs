//! One step of a walk from the last to the first: the least price for everything that may be wanted.

use super::price::Total;

/// One node or leaf, and everything that may be wanted where it is looked at: from `least` on.
pub(super) struct KnapsackStep<'w, P> {
    /// The least prices if it is not used.
    pub(super) skips: &'w [P],
    /// The least prices of everything that may be left once it is used, without what it costs; `None` if it may not be used.
    pub(super) taken: Option<&'w [P]>,
    /// The amount that it holds if it is used.
    pub(super) takes: usize,
    /// The least amount that may be wanted.
    pub(super) least: usize,
    /// The cost of its use.
    pub(super) price: P,
}

impl<P: Total> KnapsackStep<'_, P> {
    /// Works out the least prices, and for which of them the node or leaf is used. Where nothing is wanted it is used only if
    /// `needs_more`.
    pub(super) fn choose(&self, outcome: &mut [P], uses: &mut [bool], needs_more: bool) {
        let Some(taken) = self.taken else {
            outcome.copy_from_slice(self.skips);
            return;
        };
        // It holds all that is wanted of the first few.
        let few = self.takes.saturating_sub(self.least).min(outcome.len());
        let all = std::iter::repeat_n(&taken[0], few);
        let rest = taken.get(self.least + few - self.takes.min(self.least + few)..).unwrap_or_default();
        let steps = outcome.iter_mut().zip(uses.iter_mut()).zip(self.skips);
        for (((outcome, uses), &skip), &taken) in steps.zip(all.chain(rest)) {
            let take = taken.plus(self.price);
            *uses = take <= skip;
            *outcome = take.min(skip);
        }
        if self.least == 0 && !needs_more {
            outcome[0] = self.skips[0];
            uses[0] = false;
        }
    }
}
