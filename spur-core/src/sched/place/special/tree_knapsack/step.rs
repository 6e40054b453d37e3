//! One step of a walk from the last to the first: the least price for everything that may be wanted.

use super::price::Total;

/// Works out the least prices of everything that may be wanted where a node or leaf is looked at, from `least` on, and for which
/// of them it is used; where nothing is wanted it is only if `needs_more`. `skips` are the least prices if it is not used, `taken`
/// those of everything that may be left once it is, if it may be, without what it costs.
pub(super) fn choose<P: Total>(
    skips: &[P],
    taken: Option<&[P]>,
    (takes, least): (usize, usize),
    price: P,
    outcome: &mut [P],
    uses: &mut [bool],
    needs_more: bool,
) {
    let Some(taken) = taken else {
        outcome.copy_from_slice(skips);
        return;
    };
    // It holds all that is wanted of the first few.
    let few = takes.saturating_sub(least).min(outcome.len());
    let all = std::iter::repeat_n(&taken[0], few);
    let rest = taken.get(least + few - takes.min(least + few)..).unwrap_or_default();
    let steps = outcome.iter_mut().zip(uses.iter_mut()).zip(skips);
    for (((outcome, uses), &skip), &taken) in steps.zip(all.chain(rest)) {
        let take = taken.plus(price);
        *uses = take <= skip;
        *outcome = take.min(skip);
    }
    if least == 0 && !needs_more {
        outcome[0] = skips[0];
        uses[0] = false;
    }
}
