//! Usage of the tasks of a step: on one node as it reports, and of all nodes together.
//!
//! Every quantity is stored as the sum over the tasks, and as the largest and the smallest value with the
//! task and its node. A task's memory is its peak. Units are those of Slurm's accounting: milliseconds of CPU
//! time, bytes, numbers of page faults.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The value of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extreme {
    /// Value of the task.
    pub value: u64,
    /// The task's rank in the step.
    #[serde(skip_serializing_if = "is_default")]
    pub task: u32,
    /// The node of the task; empty in reports of a node about itself.
    #[serde(skip_serializing_if = "is_default")]
    pub node: Arc<str>,
}

/// The distribution of a quantity over tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// The sum over all tasks.
    pub total: u64,
    /// The task with the largest value.
    pub max: Extreme,
    /// The task with the smallest value.
    pub min: Extreme,
}

/// The usage of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Number of tasks that were measured.
    pub tasks: u32,
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// CPU time in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu: Spread,
    /// Peak resident memory in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub memory: Spread,
    /// Peak address space in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub virtual_memory: Spread,
    /// Number of page faults that needed a disk.
    #[serde(skip_serializing_if = "is_default")]
    pub pages: Spread,
    /// Bytes read, from any source.
    #[serde(skip_serializing_if = "is_default")]
    pub read: Spread,
    /// Bytes written, to any destination.
    #[serde(skip_serializing_if = "is_default")]
    pub written: Spread,
}

/// The usage of one task; units are those of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Usage`")]
pub struct TaskUsage {
    pub user_us: u64,
    pub system_us: u64,
    pub memory: u64,
    pub virtual_memory: u64,
    pub pages: u64,
    pub read: u64,
    pub written: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Spread {
    fn of(value: u64, task: u32) -> Spread {
        let extreme = Extreme { value, task, node: Arc::default() };
        Spread { total: value, max: extreme.clone(), min: extreme }
    }

    /// Adds the values of other tasks. Of equal extremes the earlier one stays.
    fn add(&mut self, other: Spread) {
        self.total = self.total.saturating_add(other.total);
        if other.max.value > self.max.value {
            self.max = other.max;
        }
        if other.min.value < self.min.value {
            self.min = other.min;
        }
    }

    /// The mean over `tasks`, rounded down.
    #[must_use]
    pub fn average(&self, tasks: u32) -> u64 {
        self.total / u64::from(tasks.max(1))
    }
}

impl Usage {
    /// The usage of the task with this rank.
    #[must_use]
    pub fn of_task(rank: u32, used: TaskUsage) -> Usage {
        let spread = |value| Spread::of(value, rank);
        Usage {
            tasks: 1,
            user_us: used.user_us,
            system_us: used.system_us,
            cpu: spread((used.user_us + used.system_us) / 1000),
            memory: spread(used.memory),
            virtual_memory: spread(used.virtual_memory),
            pages: spread(used.pages),
            read: spread(used.read),
            written: spread(used.written),
        }
    }

    /// Adds the usage of other tasks.
    pub fn add(&mut self, other: Usage) {
        if self.tasks == 0 {
            *self = other;
            return;
        }
        if other.tasks == 0 {
            return;
        }
        self.tasks = self.tasks.saturating_add(other.tasks);
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.cpu.add(other.cpu);
        self.memory.add(other.memory);
        self.virtual_memory.add(other.virtual_memory);
        self.pages.add(other.pages);
        self.read.add(other.read);
        self.written.add(other.written);
    }

    /// The usage with `node` as the node of all extremes.
    #[must_use]
    pub fn on(mut self, node: &Arc<str>) -> Usage {
        let spreads = [
            &mut self.cpu,
            &mut self.memory,
            &mut self.virtual_memory,
            &mut self.pages,
            &mut self.read,
            &mut self.written,
        ];
        for spread in spreads {
            for extreme in [&mut spread.max, &mut spread.min] {
                extreme.node = Arc::clone(node);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(rank: u32, memory: u64, user_us: u64) -> Usage {
        Usage::of_task(rank, TaskUsage { memory, user_us, ..TaskUsage::default() })
    }

    #[test]
    fn the_largest_and_the_smallest_task_are_known_with_their_nodes() {
        let (first, second) = (Arc::from("n1"), Arc::from("n2"));
        let mut all = Usage::default();
        let mut here = task(0, 69_524 << 10, 4_010_000);
        here.add(task(1, 38_648 << 10, 10_000));
        all.add(here.on(&first));
        all.add(task(2, 90_000 << 10, 5_000).on(&second));
        assert_eq!((all.tasks, all.user_us), (3, 4_025_000));
        let extreme = |value, task, node: &Arc<str>| Extreme { value, task, node: Arc::clone(node) };
        assert_eq!(all.memory.max, extreme(90_000 << 10, 2, &second));
        assert_eq!(all.memory.min, extreme(38_648 << 10, 1, &first));
        assert_eq!(all.memory.average(all.tasks), (69_524 + 38_648 + 90_000) * 1024 / 3);
        assert_eq!((all.cpu.max, all.cpu.min), (extreme(4010, 0, &first), extreme(5, 2, &second)));
    }

    #[test]
    fn nothing_is_added_by_those_that_used_nothing() {
        let mut used = task(3, 7, 8);
        let before = used.clone();
        used.add(Usage::default());
        assert_eq!(used, before);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let used = task(3, 7, 8).on(&Arc::from("n1"));
        let text = serde_json::to_string(&used).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), used);
        assert_eq!(serde_json::from_str::<Usage>("{}").unwrap(), Usage::default());
    }
}
