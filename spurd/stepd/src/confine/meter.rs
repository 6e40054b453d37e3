//! The usage of a step's tasks: CPU time, memory, and bytes read and written.
//!
//! The usage of a process that has ended is exact, because the kernel reports it to the parent that waits.
//! spurstepd waits for every process that no other parent waits for. Live processes are sampled, soon after
//! the start and then less and less often, down to once in the site's interval. Only samples show the memory
//! of several processes at the same time, and the address space. A process belongs to the task that it
//! descends from. A process without parents belongs to the task whose session it is in, or to which it
//! belonged before.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use spur_core::model::usage::{TaskUsage, Usage};
use step_wire::process::{Process, Stat};

use crate::confine::wait::{Reaped, units};

/// Time from the start of a step to its first sample.
const FIRST: Duration = Duration::from_millis(250);

/// Time to the next sample after an event that may change the usage.
const SOON: Duration = Duration::from_millis(20);

/// Accounts the usage of a step's tasks.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The longest time between two samples; `None` for no samples.
    every: Option<Duration>,
    pause: Duration,
    due: Option<Instant>,
    /// Index of the task to which a process, by id and start time, was assigned.
    owners: BTreeMap<(i32, u64), usize>,
    tasks: Vec<Account>,
    page: u64,
    /// Microseconds in a clock tick.
    tick: u64,
}

/// The account of one task.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    rank: u32,
    pid: Option<Pid>,
    /// Usage of the processes that have ended, and the largest sampled memory.
    past: TaskUsage,
    /// Usage of the processes that lived at the last sample.
    now: TaskUsage,
}

impl Meter {
    /// Returns a meter for tasks of these ranks.
    pub(crate) fn new(ranks: impl Iterator<Item = u32>, every: Option<Duration>) -> Meter {
        let (ticks, page) = units();
        Meter {
            every,
            pause: FIRST,
            due: every.map(|every| Instant::now() + FIRST.min(every)),
            owners: BTreeMap::new(),
            tasks: ranks.map(|rank| Account { rank, ..Account::default() }).collect(),
            page,
            tick: 1_000_000 / ticks,
        }
    }

    /// Returns the instant of the next sample; `None` for no samples.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Advances the next sample to [`SOON`].
    pub(crate) fn hurry(&mut self) {
        let soon = Instant::now() + SOON;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Returns the largest memory that a task has had, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.tasks.iter().map(|account| account.past.memory).max().unwrap_or(0)
    }

    /// Records the process of a task.
    pub(crate) fn started(&mut self, index: usize, pid: Pid) {
        self.tasks[index].pid = Some(pid);
    }

    /// Samples the processes of the step, and returns their memory at this moment, in bytes.
    pub(crate) fn look(&mut self, members: &[Process]) -> u64 {
        let every = self.every.unwrap_or(FIRST);
        self.pause = self.pause.saturating_mul(2).min(every);
        self.due = self.every.map(|_| Instant::now() + self.pause);
        let stats: Vec<Stat> = members.iter().filter_map(|process| Stat::of(process.pid)).collect();
        let owners = self.owners(&stats);
        for account in &mut self.tasks {
            account.now = TaskUsage::default();
        }
        let mut memory = vec![(0, 0); self.tasks.len()];
        for (stat, &owner) in stats.iter().zip(&owners) {
            let now = &mut self.tasks[owner].now;
            now.user_us += stat.user_ticks * self.tick;
            now.system_us += stat.system_ticks * self.tick;
            now.pages += stat.major_faults;
            let (read, written) = bytes(stat.process.pid);
            now.read += read;
            now.written += written;
            memory[owner].0 += stat.resident_pages * self.page;
            memory[owner].1 += stat.virtual_bytes;
        }
        self.owners = stats.iter().map(|stat| (stat.process.pid, stat.process.started)).zip(owners).collect();
        for (account, (resident, virtual_memory)) in self.tasks.iter_mut().zip(&memory) {
            account.past.memory = account.past.memory.max(*resident);
            account.past.virtual_memory = account.past.virtual_memory.max(*virtual_memory);
        }
        memory.iter().map(|(resident, _)| resident).sum()
    }

    /// Returns the index of the task that each of these processes belongs to.
    fn owners(&self, stats: &[Stat]) -> Vec<usize> {
        let parents: BTreeMap<i32, &Stat> = stats.iter().map(|stat| (stat.process.pid, stat)).collect();
        let owner = |stat: &Stat| {
            let mut above = Some(stat);
            // A process is never its own ancestor, but the files are read one after the other and may be
            // inconsistent.
            for _ in 0..stats.len() {
                let Some(one) = above else { break };
                if let Some(task) = self.of_pid(one.process.pid) {
                    return task;
                }
                above = parents.get(&one.process.parent).copied();
            }
            self.stray(stat)
        };
        stats.iter().map(owner).collect()
    }

    /// Returns the index of the task whose own process this is; `None` for any other process.
    fn of_pid(&self, pid: i32) -> Option<usize> {
        self.tasks.iter().position(|task| task.pid.is_some_and(|own| own.as_raw_pid() == pid))
    }

    /// Returns the index of the task of a process whose parents are gone.
    fn stray(&self, stat: &Stat) -> usize {
        let known = self.owners.get(&(stat.process.pid, stat.process.started)).copied();
        known.or_else(|| self.of_pid(stat.session)).unwrap_or(0)
    }

    /// Reads the facts about an ended process that are lost once it is waited for.
    pub(crate) fn last_look(&self, pid: Pid) -> LastLook {
        let pid = pid.as_raw_pid();
        let own = self.of_pid(pid);
        let owner = own.or_else(|| Stat::of(pid).map(|stat| self.stray(&stat)));
        let (read, written) = bytes(pid);
        LastLook { owner: owner.unwrap_or(0), own: own.is_some(), read, written }
    }

    /// Adds the usage of a process that has been waited for.
    pub(crate) fn ended(&mut self, look: LastLook, reaped: &Reaped) {
        let Some(account) = self.tasks.get_mut(look.owner) else { return };
        let past = &mut account.past;
        past.user_us += reaped.user_us;
        past.system_us += reaped.system_us;
        past.pages += reaped.major_faults;
        past.read += look.read;
        past.written += look.written;
        past.memory = past.memory.max(reaped.peak_bytes);
        if look.own {
            account.now = TaskUsage::default();
        }
    }

    /// Returns the usage so far; for a live step, as of the last sample.
    pub(crate) fn usage(&self, ended: bool) -> Usage {
        let mut all = Usage::default();
        for Account { rank, past, now, .. } in &self.tasks {
            let now = if ended { TaskUsage::default() } else { *now };
            let used = TaskUsage {
                user_us: past.user_us + now.user_us,
                system_us: past.system_us + now.system_us,
                pages: past.pages + now.pages,
                read: past.read + now.read,
                written: past.written + now.written,
                ..*past
            };
            all.add(Usage::of_task(*rank, used));
        }
        all
    }
}

/// Facts about a process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLook {
    owner: usize,
    /// True if the process was the task's own.
    own: bool,
    read: u64,
    written: u64,
}

/// Returns the bytes that a process and its waited-for children have read and written; 0 if the kernel does
/// not say.
fn bytes(pid: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let field = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    (field("rchar"), field("wchar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32, session: i32) -> Stat {
        let process = Process { pid, parent, started: 1, zombie: false };
        Stat { process, session, ..Stat::default() }
    }

    fn meter() -> Meter {
        let mut meter = Meter::new([4, 7].into_iter(), None);
        meter.started(0, Pid::from_raw(100).unwrap());
        meter.started(1, Pid::from_raw(200).unwrap());
        meter
    }

    #[test]
    fn a_step_that_runs_for_long_is_looked_at_for_long() {
        let every = Duration::from_secs(30);
        let mut meter = Meter::new([0].into_iter(), Some(every));
        for _ in 0..200 {
            meter.look(&[]);
        }
        assert_eq!(meter.pause, every);
    }

    #[test]
    fn processes_belong_to_the_task_that_they_descend_from() {
        let mut meter = meter();
        // 201 left the session of its task, 301 lost its parents, 302 both, and is known from before.
        let stats = [
            stat(100, 1, 100),
            stat(200, 1, 200),
            stat(201, 200, 201),
            stat(202, 201, 201),
            stat(301, 1, 200),
            stat(302, 1, 302),
            stat(303, 1, 303),
        ];
        meter.owners.insert((302, 1), 1);
        assert_eq!(meter.owners(&stats), [0, 1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn the_dead_are_counted_once() {
        let mut meter = meter();
        meter.tasks[1].now = TaskUsage { user_us: 500, ..TaskUsage::default() };
        assert_eq!((meter.usage(false).user_us, meter.usage(true).user_us), (500, 0));
        let reaped = Reaped { user_us: 700, peak_bytes: 9, ..Reaped::default() };
        meter.ended(LastLook { owner: 1, own: true, read: 3, written: 4 }, &reaped);
        meter.ended(LastLook { owner: 1, own: false, read: 1, written: 0 }, &reaped);
        let used = meter.usage(false);
        assert_eq!((used.tasks, used.user_us, used.memory.total), (2, 1400, 9));
        assert_eq!((used.read.max.value, used.read.max.task, used.read.min.task), (4, 7, 4));
    }
}
