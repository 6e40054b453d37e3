//! The processes of a step without a control group: spurstepd's descendants.
//!
//! spurstepd adopts every orphan below it, so a process that a task left behind is still a descendant.

use std::collections::{BTreeMap, BTreeSet};

use step_wire::process::{Process, processes};

/// Returns the living processes below `root`, without `root` itself.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    below(root, &processes())
}

fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for &process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut seen, mut next) = (Vec::new(), BTreeSet::from([root]), vec![root]);
    while let Some(parent) = next.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if seen.insert(process.pid) {
                next.push(process.pid);
                found.push(process);
            }
        }
    }
    found.retain(|process| !process.zombie);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |pid, parent| Process { pid, parent, started: 0, zombie: pid == 6 };
        let all = [process(1, 0), process(2, 1), process(3, 2), process(4, 3), process(5, 1), process(6, 2)];
        let mut found: Vec<i32> = below(2, &all).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }
}
