//! Looks at what a step uses, and ends it where that is more memory than it may have.
//!
//! Where a control group limits memory the kernel kills, and what it has killed is counted in the group. Elsewhere the
//! step is looked at often, and the most that a process has ever had is known at its end: nothing that used more than it
//! was given passes for a success.

use std::time::{Duration, Instant};

use step_wire::message::{Event, Frame};
use step_wire::order::StepOrder;

use crate::confine::group::Group;
use crate::step::Shim;
use crate::task::Task;

/// How often a step is looked at whose memory nothing else limits.
const WATCHED: Duration = Duration::from_secs(1);

/// The longest time between two looks at a step; `None`: nobody looks.
pub(crate) fn interval(order: &StepOrder) -> Option<Duration> {
    let usage = Some(order.usage_interval_ms).filter(|&every| every > 0).map(Duration::from_millis);
    let memory = (order.sampled_memory_bytes > 0).then_some(WATCHED);
    [usage, memory].into_iter().flatten().min()
}

impl Shim {
    /// When the step is to be looked at next, while there is something of it.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.meter.due().filter(|_| self.record.is_none())
    }

    /// Answers who asks what has been used.
    pub(crate) fn tell_usage(&mut self, index: usize) {
        let ended = self.record.is_some();
        let members = if ended { Vec::new() } else { self.members() };
        if !ended {
            self.meter.look(&members);
        }
        let pids = members.iter().map(|process| process.pid.unsigned_abs()).collect();
        let usage = Box::new(self.meter.usage(ended));
        let task = |task: &Task| Some((task.order.global, task.pid?.as_raw_pid().unsigned_abs()));
        let tasks = self.tasks.iter().filter_map(task).collect();
        self.connections[index].send(&Frame::Event(Event::Used { usage, pids, tasks }));
    }

    /// Looks at what the step uses; memory that ran out ends it.
    pub(crate) fn look(&mut self) {
        let members = self.members();
        let memory = self.meter.look(&members);
        let limit = self.order.sampled_memory_bytes;
        self.over_memory |= limit > 0 && memory > limit;
        // Where the kernel limits it, one process has ended for all, if that is enough.
        if (limit > 0 || self.order.oom_kill_step) && self.out_of_memory() {
            self.terminate(Some(Duration::ZERO));
        }
    }

    /// A limit of memory has been reached, or a process was killed: what came of it is looked at soon.
    pub(crate) fn memory_is_short(&mut self) {
        if let Some(group) = &self.group {
            group.take_memory_event();
            self.meter.hurry();
        }
    }

    /// Whether memory ran out.
    pub(crate) fn out_of_memory(&self) -> bool {
        let limit = self.order.sampled_memory_bytes;
        self.over_memory
            || (limit > 0 && self.meter.peak() > limit)
            || self.group.as_ref().is_some_and(Group::out_of_memory)
    }

    /// Tells the user, once, that memory ran out; true while that is under way.
    pub(crate) fn tell_of_memory(&mut self) -> bool {
        if self.memory_told || !self.out_of_memory() {
            return false;
        }
        self.memory_told = true;
        let step = format!("{}.{}", self.order.attempt.attempt.job, self.order.attempt.step.label());
        self.notice(&format!(
            "slurmstepd: error: Detected 1 oom_kill event in StepId={step}. Some of the step tasks have been OOM Killed."
        ));
        !self.all_ended()
    }
}
