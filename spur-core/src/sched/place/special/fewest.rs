//! The fewest sizes that hold an amount.

use smallvec::{SmallVec, smallvec};

use crate::sched::place::problem::reach;

/// Distinct values per size up to which counting is faster than sorting.
const KINDS: usize = 4;

/// The smallest number of sizes, at least 1, whose sum reaches an amount, the largest taken first; and the
/// smallest size taken, at least 1. `None` if all sizes together do not reach it.
pub(super) fn largest(sizes: &mut [u32], amount: u64) -> Option<(u64, u64)> {
    let most = sizes.iter().fold(0, |most, &size| most.max(size));
    match sizes.len() {
        count if most > 0 && sizes.iter().all(|&size| size == most) => {
            let needed = amount.div_ceil(most.into()).max(1);
            (needed <= count as u64).then_some((needed, most.into()))
        }
        count if KINDS * count > most as usize => largest_of_few_kinds(sizes, most, amount),
        _ => {
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let count = reach(sizes.iter().copied(), amount)?;
            Some((count as u64, u64::from(sizes[count - 1]).max(1)))
        }
    }
}

/// Does the work of [`largest`] by counting sizes, where there are few distinct ones.
fn largest_of_few_kinds(sizes: &[u32], most: u32, amount: u64) -> Option<(u64, u64)> {
    let mut counts: SmallVec<[u32; 64]> = smallvec![0; most as usize + 1];
    sizes.iter().for_each(|&size| counts[size as usize] += 1);
    let (mut left, mut before) = (amount, 0);
    for size in (1..=most).rev() {
        let (size, count) = (u64::from(size), u64::from(counts[size as usize]));
        if left <= count * size {
            return Some((before + left.div_ceil(size).max(1), size));
        }
        left -= count * size;
        before += count;
    }
    None
}
