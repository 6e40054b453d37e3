//! The distribution of a step's tasks over nodes: the one place that numbers tasks.
//!
//! Nodes are given in rank order, each with the number of tasks that it can take; the result is the ranks of
//! each node. The rules are those of Slurm's `--distribution` (src/common/slurm_step_layout.c): tasks are
//! dealt in rounds, one to each node that can take more.

use super::distribution::Distribution;
use super::idset::IdSet;

/// The number of tasks that one node can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Number of tasks that the node gets before any node gets more than its own.
    pub own: u32,
    /// The largest number of tasks on the node.
    pub most: u32,
}

/// The ranks of each node for `tasks` tasks; `None` if they do not fit. With `overcommit` they always fit, if
/// there is a node. Every node gets a task, if there are enough.
#[must_use]
pub fn ranks(rooms: &[Room], tasks: u32, how: Distribution, overcommit: bool) -> Option<Vec<IdSet>> {
    let dealt = deal(rooms, tasks, how, overcommit)?;
    let counts = counts(rooms.len(), &dealt);
    let order = match how {
        Distribution::Block | Distribution::Pack => (0..rooms.len())
            .flat_map(|node| std::iter::repeat_n(node, counts[node] as usize))
            .collect::<Vec<usize>>(),
        Distribution::Plane(size) => planes(counts, size.max(1)),
        Distribution::Cyclic | Distribution::Arbitrary => dealt,
    };
    Some(by_node(rooms.len(), &order))
}

/// Number of tasks of each node when `tasks` are distributed evenly, at most `most` per node; `None` if they
/// do not fit.
#[must_use]
pub fn evenly(most: impl IntoIterator<Item = u32>, tasks: u32) -> Option<Vec<u32>> {
    let rooms: Vec<Room> = most.into_iter().map(|most| Room { own: most, most }).collect();
    deal(&rooms, tasks, Distribution::Block, false).map(|dealt| counts(rooms.len(), &dealt))
}

/// Number of tasks that each of `nodes` nodes was dealt.
fn counts(nodes: usize, dealt: &[usize]) -> Vec<u32> {
    let mut counts = vec![0; nodes];
    dealt.iter().for_each(|&node| counts[node] += 1);
    counts
}

/// The ranks of each of `nodes` nodes; `order` has the node of each rank.
#[must_use]
pub fn by_node(nodes: usize, order: &[usize]) -> Vec<IdSet> {
    let mut ranks = vec![Vec::new(); nodes];
    for (rank, &node) in (0_u32..).zip(order) {
        ranks[node].push(rank);
    }
    ranks.into_iter().map(IdSet::from_iter).collect()
}

/// The node of each task, in the order of dealing; `None` if the tasks do not fit.
fn deal(rooms: &[Room], tasks: u32, how: Distribution, overcommit: bool) -> Option<Vec<usize>> {
    let mut given = vec![0_u32; rooms.len()];
    let mut dealt = Vec::new();
    let mut left = tasks;
    // Nodes are filled up to their own number, then to their largest number, then beyond. Planes ignore own
    // numbers.
    let own = |node: usize| match how {
        Distribution::Plane(_) => rooms[node].most,
        _ => rooms[node].own.min(rooms[node].most),
    };
    let caps: [&dyn Fn(usize) -> u32; 3] =
        [&own, &|node| rooms[node].most, &|_| if overcommit { u32::MAX } else { 0 }];
    for cap in caps {
        while left > 0 {
            let before = left;
            // Later nodes without a task must get one, too.
            let mut later = given.iter().fold(0, |later, given| later + u32::from(*given == 0));
            for (node, given) in given.iter_mut().enumerate() {
                later -= u32::from(*given == 0);
                let step = match how {
                    Distribution::Plane(size) => size.min(left.saturating_sub(later)).max(1),
                    Distribution::Pack if *given > 0 => u32::MAX,
                    Distribution::Pack
                    | Distribution::Block
                    | Distribution::Cyclic
                    | Distribution::Arbitrary => 1,
                };
                let more = step.min(left).min(cap(node).saturating_sub(*given));
                *given += more;
                left -= more;
                dealt.extend(std::iter::repeat_n(node, more as usize));
            }
            if left == before {
                break;
            }
        }
    }
    (left == 0).then_some(dealt)
}

/// The node of each rank, in blocks of `size` round the nodes, until every node has its number.
fn planes(mut counts: Vec<u32>, size: u32) -> Vec<usize> {
    let mut order = Vec::new();
    while counts.iter().any(|&count| count > 0) {
        for (node, count) in counts.iter_mut().enumerate() {
            let now = size.min(*count);
            *count -= now;
            order.extend(std::iter::repeat_n(node, now as usize));
        }
    }
    order
}

/// The value of `PMI_process_mapping` in MPICH's format, which lists the ranks of each node:
/// `(vector,(FIRST_NODE,NODES,RANKS_EACH),...)`, without blanks.
#[must_use]
pub fn process_mapping<'a>(nodes: impl IntoIterator<Item = &'a IdSet>) -> String {
    let mut order: Vec<(u32, u32)> =
        (0..).zip(nodes).flat_map(|(node, ranks)| ranks.iter().map(move |rank| (rank, node))).collect();
    order.sort_unstable();
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let node = order[at].1;
        let count = order[at..].iter().take_while(|(_, other)| *other == node).count();
        at += count;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match runs.last_mut() {
            Some((first, nodes, each)) if *first + *nodes == node && *each == count => *nodes += 1,
            _ => runs.push((node, 1, count)),
        }
    }
    let runs: Vec<String> =
        runs.iter().map(|(first, nodes, each)| format!("({first},{nodes},{each})")).collect();
    format!("(vector,{})", runs.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::distribution::Distributions;
    use super::*;

    fn shown(most: &[u32], tasks: u32, how: &str, overcommit: bool) -> String {
        let rooms: Vec<Room> = most.iter().map(|&most| Room { own: 0, most }).collect();
        let how = how.parse::<Distributions>().unwrap().over_nodes().unwrap_or_default();
        match ranks(&rooms, tasks, how, overcommit) {
            Some(ranks) => ranks.iter().map(IdSet::to_string).collect::<Vec<_>>().join(" | "),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn tasks_are_laid_out_as_slurm_does() {
        let cases: [(&[u32], u32, &str, &str); 18] = [
            (&[4, 2, 1], 7, "block", "0-3 | 4-5 | 6"),
            (&[4, 2, 1], 7, "cyclic", "0,3,5-6 | 1,4 | 2"),
            (&[4, 2, 1], 7, "plane=2", "0-1,5-6 | 2-3 | 4"),
            (&[4, 2, 1], 7, "pack", "0-3 | 4-5 | 6"),
            (&[4, 2, 1], 5, "block", "0-1 | 2-3 | 4"),
            (&[4, 2, 1], 5, "pack", "0-2 | 3 | 4"),
            (&[4, 2, 1], 5, "plane=2", "0-1 | 2-3 | 4"),
            (&[4, 4], 6, "plane=2", "0-1,4-5 | 2-3"),
            (&[4, 4, 4], 4, "plane=4", "0-1 | 2 | 3"),
            (&[4, 4, 4], 10, "plane=3", "0-2,9 | 3-5 | 6-8"),
            (&[4, 2, 1], 3, "cyclic", "0 | 1 | 2"),
            (&[4, 2, 1], 8, "block", "none"),
            (&[2, 2], 4, "cyclic", "0,2 | 1,3"),
            (&[2, 2], 4, "block", "0-1 | 2-3"),
            (&[4, 4], 8, "plane=4", "0-3 | 4-7"),
            (&[8], 3, "cyclic", "0-2"),
            (&[1, 1, 1], 2, "block", "0 | 1 | "),
            (&[], 1, "block", "none"),
        ];
        for (most, tasks, how, expected) in cases {
            assert_eq!(shown(most, tasks, how, false), expected, "{most:?} {tasks} {how}");
        }
        assert_eq!(shown(&[2, 1], 7, "block", true), "0-3 | 4-6", "on over the room, round by round");
        assert_eq!(shown(&[2, 1], 7, "cyclic", true), "0,2-3,5 | 1,4,6");
    }

    #[test]
    fn a_nodes_own_tasks_come_first() {
        let rooms = [Room { own: 3, most: 4 }, Room { own: 1, most: 4 }];
        let laid_out = |tasks| {
            let ranks = ranks(&rooms, tasks, Distribution::Block, false).unwrap();
            ranks.iter().map(IdSet::len).collect::<Vec<_>>()
        };
        assert_eq!(laid_out(4), [3, 1]);
        assert_eq!(laid_out(6), [4, 2]);
        assert_eq!(laid_out(2), [1, 1]);
    }

    #[test]
    fn who_shares_a_node_is_written_for_mpich() {
        let mapping = |nodes: &[&str]| {
            let sets: Vec<IdSet> = nodes.iter().map(|ranks| ranks.parse().unwrap()).collect();
            process_mapping(&sets)
        };
        assert_eq!(mapping(&["0-1", "2-3"]), "(vector,(0,2,2))");
        assert_eq!(mapping(&["0,2", "1,3"]), "(vector,(0,2,1),(0,2,1))");
        assert_eq!(mapping(&["0-2", "3"]), "(vector,(0,1,3),(1,1,1))");
        assert_eq!(mapping(&["0-3"]), "(vector,(0,1,4))");
        assert_eq!(mapping(&["1", "0"]), "(vector,(1,1,1),(0,1,1))");
    }
}
