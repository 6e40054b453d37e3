//! What a choice of so many parts costs at least with each of them, told by the parts alone.
//!
//! Each part costs something if it is used, and it spends something of what there is if it is used and if it is left out. Of
//! all ways to use so many of them that spend no more than there is, those with a part in it are told from what the parts
//! before it come to and what those behind it do.

use super::table::NEVER;

/// What there is to say of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// What leaving it out spends, if that can be.
    pub(super) skipped: Option<usize>,
    /// What using it spends at least, if that can be.
    pub(super) used: Option<usize>,
    /// What using it costs.
    pub(super) price: u64,
}

/// Numbers that are worked out at most; beyond that they save too little.
const MOST: usize = 1 << 17;

/// For every part the least that exactly so many of them cost with it, spending no more than so much, or 2⁶² if it cannot be
/// used; None where nothing is to be left out, or where it is too much to find out.
pub(super) fn least_with(offers: &[Offer], parts: usize, slack: usize) -> Option<Vec<u64>> {
    let usable = offers.iter().filter(|offer| offer.used.is_some()).count();
    let size = (parts + 1).checked_mul(slack + 1)?;
    let are_few = size.checked_mul(offers.len()).is_some_and(|numbers| numbers <= MOST);
    if usable <= parts || !are_few {
        return None;
    }
    let row = slack + 1;
    // By the number of parts used and by what may be spent.
    let mut least = vec![NEVER; size];
    least[..row].fill(0);
    let mut before = Vec::with_capacity(size * offers.len());
    for offer in offers {
        before.extend_from_slice(&least);
        least = joined(&least, offer, row);
    }
    least.fill(NEVER);
    least[..row].fill(0);
    let mut bounds = vec![NEVER; offers.len()];
    for ((bound, offer), before) in bounds.iter_mut().zip(offers).zip(before.chunks_exact(size)).rev() {
        if let Some(left) = offer.used.and_then(|used| slack.checked_sub(used)) {
            let others = before.chunks_exact(row).zip(least.chunks_exact(row).rev().skip(1));
            let sums = others.flat_map(|(before, after)| {
                before[..=left].iter().zip(after[..=left].iter().rev()).map(|(before, after)| before + after)
            });
            *bound = sums.min().map_or(NEVER, |sum| (sum + offer.price).min(NEVER));
        }
        least = joined(&least, offer, row);
    }
    Some(bounds)
}

/// The least prices with one part more.
fn joined(least: &[u64], offer: &Offer, row: usize) -> Vec<u64> {
    let mut next = vec![NEVER; least.len()];
    let mut lower = |from: usize, spent: usize, price: u64| {
        for (next, least) in next[from..].chunks_exact_mut(row).zip(least.chunks_exact(row)) {
            let next = next.iter_mut().skip(spent);
            next.zip(least).for_each(|(next, least)| *next = (*next).min(least + price));
        }
    };
    if let Some(spent) = offer.skipped {
        lower(0, spent, 0);
    }
    if let Some(spent) = offer.used {
        lower(row, spent, offer.price);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::table::NEVER;
    use super::{Offer, least_with};

    /// Every way to use so many of some parts.
    fn by_hand(offers: &[Offer], parts: usize, slack: usize) -> Vec<u64> {
        let mut bounds = vec![NEVER; offers.len()];
        for way in 0..1_u32 << offers.len() {
            let is_used = |at: usize| way >> at & 1 == 1;
            let spent = offers
                .iter()
                .enumerate()
                .map(|(at, offer)| if is_used(at) { offer.used } else { offer.skipped });
            let spent: Option<usize> = spent.sum();
            if way.count_ones() as usize != parts || spent.is_none_or(|spent| spent > slack) {
                continue;
            }
            let all = || (0..offers.len()).filter(|&at| is_used(at));
            let price: u64 = all().map(|at| offers[at].price).sum();
            all().for_each(|at| bounds[at] = bounds[at].min(price));
        }
        bounds
    }

    #[test]
    fn bounds_are_those_of_every_way() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let count = 2 + next(6) as usize;
            let mut some = |times: u64, below: u64| (next(times) > 0).then(|| next(below) as usize);
            let offers: Vec<Offer> = (0..count)
                .map(|_| {
                    let (skipped, used) = (some(8, 4), some(8, 4));
                    Offer { skipped, used, price: some(8, 50).unwrap_or(0) as u64 }
                })
                .collect();
            let (parts, slack) = (1 + next(count as u64) as usize, next(9) as usize);
            if let Some(bounds) = least_with(&offers, parts, slack) {
                assert_eq!(bounds, by_hand(&offers, parts, slack), "{offers:?} {parts} {slack}");
            }
        }
    }
}
