//! The fewest nodes that hold a job, from the amounts that nodes take: in order, the largest first, or with
//! as few heavy nodes as possible.

/// Number of leading numbers that reach an amount together; `None` if all numbers do not reach it.
pub(crate) fn reach<T: Into<u64>>(numbers: impl IntoIterator<Item = T>, amount: u64) -> Option<usize> {
    let mut sum = 0;
    let reached = |number: T| {
        sum += number.into();
        sum >= amount
    };
    numbers.into_iter().position(reached).map(|last| last + 1)
}

/// The sum of the `count` largest numbers.
pub(crate) fn sum_of_largest<T: Ord + Into<u64>>(mut numbers: Vec<T>, count: usize) -> u64 {
    if count < numbers.len() {
        numbers.select_nth_unstable_by(count, |a, b| b.cmp(a));
        numbers.truncate(count);
    }
    numbers.into_iter().map(Into::into).sum()
}

/// The fewest nodes of each weight class that reach an amount, for every class but the last, by lexicographic
/// order from the heaviest class on. Of each class the largest nodes count first. `None` if all nodes do not
/// reach the amount.
pub(crate) fn fewest_heavy_of_any(mut takes: Vec<Vec<u32>>, amount: u64) -> Option<Vec<u32>> {
    let sums: Vec<u64> =
        takes.iter().map(|class| class.iter().map(|&takes| u64::from(takes)).sum()).collect();
    let mut left = amount;
    let mut lighter: u64 = sums.iter().sum();
    if lighter < left {
        return None;
    }
    let mut needed = Vec::with_capacity(takes.len() - 1);
    for (class, sum) in takes.iter_mut().zip(&sums).take(sums.len() - 1) {
        lighter -= sum;
        let mut count = 0;
        if lighter < left {
            class.sort_unstable_by(|a, b| b.cmp(a));
            for &takes in class.iter() {
                left = left.saturating_sub(takes.into());
                count += 1;
                if lighter >= left {
                    break;
                }
            }
        }
        needed.push(count);
    }
    Some(needed)
}

/// The fewest nodes of each heavier class with which exactly `nodes` nodes reach an amount; `None` if none
/// do.
pub(crate) fn fewest_heavy(mut takes: Vec<Vec<u32>>, nodes: usize, amount: u64) -> Option<Vec<u32>> {
    let mut needed = Vec::with_capacity(takes.len() - 1);
    // For each class, the largest amounts of this class and all lighter ones together, at most `nodes`, in
    // descending order.
    let mut lighter: Vec<Vec<u32>> = Vec::with_capacity(takes.len());
    for class in takes.iter_mut().rev() {
        class.sort_unstable_by(|a, b| b.cmp(a));
        let mut all = lighter.last().cloned().unwrap_or_default();
        all.extend(class.iter().take(nodes));
        // A stable sort merges two sorted runs in linear time.
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(nodes);
        lighter.push(all);
    }
    lighter.pop();
    let sum = |takes: &[u32]| takes.iter().map(|&takes| u64::from(takes)).sum::<u64>();
    let (mut open, mut left) = (nodes, amount);
    for class in &takes[..takes.len() - 1] {
        let others = lighter.pop()?;
        let (mut own, mut rest) = (0, sum(&others[..open.min(others.len())]));
        let count = (0..=open.min(class.len())).find(|&count| {
            if let Some(last) = count.checked_sub(1) {
                own += u64::from(class[last]);
                // The node of this class replaces the smallest of the lighter ones.
                rest -= others.get(open - count).map_or(0, |&takes| u64::from(takes));
            }
            open - count <= others.len() && own + rest >= left
        })?;
        (open, left) = (open - count, left.saturating_sub(own));
        needed.push(u32::try_from(count).unwrap_or(u32::MAX));
    }
    // With a single class the loop above has checked nothing.
    let last = takes.last()?;
    (open <= last.len() && sum(&last[..open]) >= left).then_some(needed)
}

#[cfg(test)]
mod tests {
    use super::{fewest_heavy, fewest_heavy_of_any};

    #[test]
    fn heavier_nodes_only_for_what_lighter_ones_do_not_take() {
        let of = |nodes, amount| fewest_heavy(vec![vec![16; 40], vec![8; 40]], nodes, amount);
        assert_eq!(of(30, 240), Some(vec![0]));
        assert_eq!(of(30, 333), Some(vec![12]));
        assert_eq!(of(30, 480), Some(vec![30]));
        assert_eq!(of(30, 481), None);
        // Only 40 light nodes exist, so 10 nodes must be heavy.
        assert_eq!(of(50, 50), Some(vec![10]));
        assert_eq!(of(81, 50), None);
        // Fewer nodes of the heaviest class come first, even if more of the second class are then needed.
        let takes = || vec![vec![9, 7], vec![5, 5, 1], vec![1, 1, 1]];
        assert_eq!(fewest_heavy(takes(), 3, 11), Some(vec![0, 2]));
        assert_eq!(fewest_heavy(takes(), 3, 12), Some(vec![1, 1]));
        assert_eq!(fewest_heavy(takes(), 3, 17), Some(vec![1, 2]));
        assert_eq!(fewest_heavy(takes(), 3, 20), Some(vec![2, 1]));
        assert_eq!(fewest_heavy(takes(), 3, 22), None);
        assert_eq!(fewest_heavy_of_any(takes(), 14), Some(vec![0, 3]));
        assert_eq!(fewest_heavy_of_any(takes(), 15), Some(vec![1, 1]));
    }
}
