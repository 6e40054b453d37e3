//! How few of some nodes hold a job, told by what they take: the first, the largest, as few of the heavier as will do.

/// How many of some numbers come to an amount, from the first on; None where all do not.
pub(crate) fn reach<T: Into<u64>>(numbers: impl IntoIterator<Item = T>, amount: u64) -> Option<usize> {
    let mut sum = 0;
    let reached = |number: T| {
        sum += number.into();
        sum >= amount
    };
    numbers.into_iter().position(reached).map(|last| last + 1)
}

/// What so many of the largest of some numbers come to.
pub(crate) fn sum_of_largest<T: Ord + Into<u64>>(mut numbers: Vec<T>, count: usize) -> u64 {
    if count < numbers.len() {
        numbers.select_nth_unstable_by(count, |a, b| b.cmp(a));
        numbers.truncate(count);
    }
    numbers.into_iter().map(Into::into).sum()
}

/// How many nodes of each class but the last hold an amount, the fewest of the first, then of the next; of each class the
/// largest are used before the others. None where all do not hold it.
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

/// How few nodes of each heavier weight hold a job on exactly so many nodes.
pub(crate) fn fewest_heavy(mut takes: Vec<Vec<u32>>, nodes: usize, amount: u64) -> Option<Vec<u32>> {
    let mut needed = Vec::with_capacity(takes.len() - 1);
    // By class: what the largest of it and of those after it take, the largest first.
    let mut lighter: Vec<Vec<u32>> = Vec::with_capacity(takes.len());
    for class in takes.iter_mut().rev() {
        class.sort_unstable_by(|a, b| b.cmp(a));
        let mut all = lighter.last().cloned().unwrap_or_default();
        all.extend(class.iter().take(nodes));
        // Two parts in order.
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
                // What was the smallest of the others makes room.
                rest -= others.get(open - count).map_or(0, |&takes| u64::from(takes));
            }
            open - count <= others.len() && own + rest >= left
        })?;
        (open, left) = (open - count, left.saturating_sub(own));
        needed.push(u32::try_from(count).unwrap_or(u32::MAX));
    }
    // Where all weigh the same nothing has looked at these.
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
        // There are no more light ones.
        assert_eq!(of(50, 50), Some(vec![10]));
        assert_eq!(of(81, 50), None);
        // A few of the heaviest would do with fewer of the next, which come later.
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
