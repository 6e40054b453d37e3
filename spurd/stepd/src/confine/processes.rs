//! The processes of a step as one thing: found, stopped, killed, measured and waited for.
//!
//! A control group freezes and kills as one. Without one, every process gets SIGSTOP, in rounds. A process
//! that was forked before its parent was stopped is found in the next round, and the last round finds no new
//! process. Stopped processes stay stopped whatever their user does within the step.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use nix::sys::signalfd::SignalFd;
use rustix::process::{Pid, Signal};
use spur_core::model::usage::Usage;
use step_wire::order::StepOrder;
use step_wire::process::Process;

use crate::confine::group::Group;
use crate::confine::meter::Meter;
use crate::confine::tree;
use crate::confine::wait;

/// Interval between samples of a step whose memory no control group limits.
const WATCHED: Duration = Duration::from_secs(1);

/// The processes of a step, and spurstepd's own children beside them.
pub(crate) struct Processes {
    /// Readable when a child has ended.
    pub(crate) signals: SignalFd,
    pub(crate) group: Option<Group>,
    pub(crate) meter: Meter,
    /// The process that serves MPI programs, unless it was asked to end.
    pub(crate) server: Option<Pid>,
    /// Helper processes of spurstepd that are about to end: writers of notices, and the MPI server after
    /// the request to end.
    pub(crate) helpers: Vec<Pid>,
    /// Largest sampled memory of the step, in bytes; 0 for no limit.
    sampled_limit: u64,
    was_over_limit: bool,
    has_children: bool,
}

/// A child that has ended and was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) pid: Pid,
    /// The status as wait(2) returns it.
    pub(crate) status: i32,
}

impl Processes {
    pub(crate) fn new(order: &StepOrder, signals: SignalFd, group: Option<Group>) -> Processes {
        Processes {
            signals,
            group,
            meter: Meter::new(order.tasks.iter().map(|task| task.global), interval(order)),
            server: None,
            helpers: Vec::new(),
            sampled_limit: order.sampled_memory_bytes,
            was_over_limit: false,
            has_children: false,
        }
    }

    /// Records that spurstepd has a child to wait for.
    pub(crate) fn has_child(&mut self) {
        self.has_children = true;
    }

    pub(crate) fn add_helper(&mut self, pid: Pid) {
        self.has_children = true;
        self.helpers.push(pid);
    }

    pub(crate) fn kill_helpers(&self) {
        for pid in &self.helpers {
            // The kernel does not reuse the id of a process that was not waited for.
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
    }

    /// Returns the tasks' processes and their descendants.
    pub(crate) fn members(&self) -> Vec<Process> {
        if let Some(group) = &self.group {
            return group.members();
        }
        let mut all = tree::descendants(rustix::process::getpid().as_raw_pid());
        let own: Vec<i32> = self.helpers.iter().chain(&self.server).map(|pid| pid.as_raw_pid()).collect();
        all.retain(|process| !own.contains(&process.pid));
        all
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.members().into_iter().for_each(|process| process.signal(signal));
    }

    /// Asks every process to end; SIGCONT lets a stopped process react.
    pub(crate) fn terminate(&self) {
        for process in self.members() {
            process.signal(Signal::TERM);
            process.signal(Signal::CONT);
        }
    }

    /// Stops every process, including those forked meanwhile, or lets all of them go on.
    pub(crate) fn freeze(&self, stop: bool) {
        if self.group.as_ref().is_some_and(|group| group.freeze(stop).is_ok()) {
            return;
        }
        match stop {
            true => self.stop_all(),
            false => self.signal(Signal::CONT),
        }
    }

    fn stop_all(&self) {
        let mut stopped = BTreeSet::new();
        loop {
            let mut fresh = self.members();
            fresh.retain(|process| stopped.insert((process.pid, process.started)));
            if fresh.is_empty() {
                return;
            }
            fresh.into_iter().for_each(|process| process.signal(Signal::STOP));
        }
    }

    pub(crate) fn kill(&self) {
        match &self.group {
            Some(group) => group.kill(),
            None => {
                // A stopped process cannot fork while the others are killed.
                self.stop_all();
                self.signal(Signal::KILL);
            }
        }
    }

    /// True if no process of the step is left, according to the control group or, without one, the children.
    pub(crate) fn are_gone(&self) -> bool {
        let populated = self.group.as_ref().and_then(Group::populated);
        populated.map_or(!self.has_children, |populated| !populated)
    }

    /// Waits for one child that has ended; `None` if none has. `is_own` identifies children that are not
    /// accounted to the step.
    pub(crate) fn reap(&mut self, is_own: impl Fn(Pid) -> bool) -> Option<Ended> {
        loop {
            match wait::ended_child() {
                Ok(Some(pid)) => {
                    let is_own = self.helpers.contains(&pid) || self.server == Some(pid) || is_own(pid);
                    // The bytes that the process read and wrote can be read only before it is waited for.
                    let look = (!is_own).then(|| self.meter.last_look(pid));
                    let Ok(reaped) = wait::reap(pid) else { continue };
                    if let Some(look) = look {
                        self.meter.ended(look, &reaped);
                    }
                    if reaped.status == libc::SIGKILL {
                        self.memory_is_short();
                    }
                    return Some(Ended { pid, status: reaped.status });
                }
                Ok(None) => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.has_children = false;
                    return None;
                }
            }
        }
    }

    /// Samples the usage of the step, and returns its processes.
    pub(crate) fn look(&mut self) -> Vec<Process> {
        let members = self.members();
        let memory = self.meter.look(&members);
        self.was_over_limit |= self.sampled_limit > 0 && memory > self.sampled_limit;
        members
    }

    /// Advances the next sample after a limit of memory was reached, or a process was killed.
    pub(crate) fn memory_is_short(&mut self) {
        if let Some(group) = &self.group {
            group.take_memory_event();
            self.meter.hurry();
        }
    }

    /// True if the step has used more memory than it may.
    ///
    /// Where a control group limits memory, the kernel kills and counts that; otherwise the largest sample
    /// counts.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.was_over_limit
            || (self.sampled_limit > 0 && self.meter.peak() > self.sampled_limit)
            || self.group.as_ref().is_some_and(Group::out_of_memory)
    }

    /// Returns the usage of the step, as of the last sample, or final once the step has ended.
    pub(crate) fn usage(&self, has_ended: bool) -> Usage {
        self.meter.usage(has_ended)
    }

    /// Returns the instant of the next sample; `None` for no samples.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.meter.due()
    }
}

/// Returns the longest time between two samples of a step; `None` for no samples.
fn interval(order: &StepOrder) -> Option<Duration> {
    let usage = Some(order.usage_interval_ms).filter(|&every| every > 0).map(Duration::from_millis);
    let memory = (order.sampled_memory_bytes > 0).then_some(WATCHED);
    [usage, memory].into_iter().flatten().min()
}
