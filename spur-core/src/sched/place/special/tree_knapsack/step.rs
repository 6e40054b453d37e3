//! One stage of the dynamic programme: the least price for every amount that may be wanted.

use super::price::Total;

/// One node or leaf, with the amounts that may be wanted at its stage, from `least` on.
pub(super) struct KnapsackStep<'w, P> {
    /// The least prices if the item is not used.
    pub(super) skips: &'w [P],
    /// The least prices of the amounts that are left once the item is used, without the item's price. `None`
    /// if the item may not be used.
    pub(super) taken: Option<&'w [P]>,
    /// The amount that the item takes if it is used.
    pub(super) takes: usize,
    /// The least amount that may be wanted.
    pub(super) least: usize,
    /// The price of using the item.
    pub(super) price: P,
}

impl<P: Total> KnapsackStep<'_, P> {
    /// Computes the least prices, and for which of them the item is used. For amount 0 the item is used only
    /// if `needs_more`.
    pub(super) fn choose(&self, outcome: &mut [P], uses: &mut [bool], needs_more: bool) {
        let Some(taken) = self.taken else {
            outcome.copy_from_slice(self.skips);
            return;
        };
        // For the first few amounts the item alone is enough.
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
