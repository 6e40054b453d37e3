//! What the tasks of a step use: CPU time, memory and bytes read and written, task by task.
//!
//! What a process that has ended used is exact: the kernel tells it to whoever waits for it, and spurstepd waits for
//! every process that nobody else waited for. The processes that live are looked at now and then, soon after the start
//! and less and less often until it is once in the site's interval: only so is it known how much memory several
//! processes had at the same time, and how much address space. A process belongs to the task that it descends from; one
//! whose parents are gone, to the task in whose session it is, or to which it belonged before.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use spur_core::model::usage::{TaskUsage, Usage};
use step_wire::process::{Process, Stat};

use crate::confine::wait::{Reaped, units};

/// How soon after its start a step is first looked at.
const FIRST: Duration = Duration::from_millis(250);

/// How soon a step is looked at that something has happened to.
const SOON: Duration = Duration::from_millis(20);

/// Counts what a step uses.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The longest time between two looks; `None`: nobody looks.
    every: Option<Duration>,
    pause: Duration,
    due: Option<Instant>,
    /// To which task a process belongs, by its index.
    owners: BTreeMap<(i32, u64), usize>,
    tasks: Vec<Account>,
    page: u64,
    /// Microseconds in a clock tick.
    tick: u64,
}

/// One task.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    rank: u32,
    pid: Option<Pid>,
    /// Of those that have ended; and the most memory that was seen at one time.
    past: TaskUsage,
    /// Of those that lived when they were last looked at.
    now: TaskUsage,
}

impl Meter {
    /// For tasks of these ranks.
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

    /// When the step is to be looked at next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Has the step looked at soon.
    pub(crate) fn hurry(&mut self) {
        let soon = Instant::now() + SOON;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// The most memory that a task has had, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.tasks.iter().map(|account| account.past.memory).max().unwrap_or(0)
    }

    /// A task has got its process.
    pub(crate) fn started(&mut self, index: usize, pid: Pid) {
        self.tasks[index].pid = Some(pid);
    }

    /// Looks at the processes of the step; how much memory they have at this moment, in bytes.
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

    /// The task that each of these belongs to.
    fn owners(&self, stats: &[Stat]) -> Vec<usize> {
        let parents: BTreeMap<i32, &Stat> = stats.iter().map(|stat| (stat.process.pid, stat)).collect();
        let owner = |stat: &Stat| {
            let mut above = Some(stat);
            // A process is never above itself, but what is read one after the other need not fit together.
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

    /// The task whose own process this is.
    fn of_pid(&self, pid: i32) -> Option<usize> {
        self.tasks.iter().position(|task| task.pid.is_some_and(|own| own.as_raw_pid() == pid))
    }

    /// The task of a process whose parents are gone.
    fn stray(&self, stat: &Stat) -> usize {
        let known = self.owners.get(&(stat.process.pid, stat.process.started)).copied();
        known.or_else(|| self.of_pid(stat.session)).unwrap_or(0)
    }

    /// What is to be known of a process that has ended before it is waited for.
    pub(crate) fn last_look(&self, pid: Pid) -> LastLook {
        let pid = pid.as_raw_pid();
        let own = self.of_pid(pid);
        let owner = own.or_else(|| Stat::of(pid).map(|stat| self.stray(&stat)));
        let (read, written) = bytes(pid);
        LastLook { owner: owner.unwrap_or(0), own: own.is_some(), read, written }
    }

    /// Counts a process that has been waited for.
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

    /// What has been used until now. While the step lives this is as of the last look.
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

/// What was seen of a process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLook {
    owner: usize,
    /// It was the task's own process.
    own: bool,
    read: u64,
    written: u64,
}

/// Bytes that a process, and those that it has waited for, have read and written; none where the kernel does not say.
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
