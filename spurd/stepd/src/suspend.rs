//! Stops a step and lets it go on.
//!
//! A control group freezes as one. Without one every process gets SIGSTOP, in rounds: a process that was forked before
//! its parent was stopped is met in the next round, and there are no more once a round finds nobody new. Those stay
//! stopped whatever their user does within the step; a SIGCONT that is sent to the step is not passed on meanwhile.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::step::Shim;

impl Shim {
    /// Stops every process of the step and starts no more, or lets them go on. Doing either twice is the same as once.
    pub(crate) fn suspend(&mut self, stop: bool) {
        if self.record.is_some() || (stop && self.terminated) {
            return;
        }
        let was_stopped = std::mem::replace(&mut self.stopped, stop);
        let frozen = self.group.as_ref().is_some_and(|group| group.freeze(stop).is_ok());
        match stop {
            true if !frozen => self.stop_all(),
            // Those who stopped by themselves stay so.
            false if was_stopped => {
                if !frozen {
                    self.members().into_iter().for_each(|process| process.signal(Signal::CONT));
                }
                if self.started_ms.is_none() {
                    self.launch_next();
                }
            }
            true | false => {}
        }
    }

    /// Stops every process of the step, also those that are made meanwhile.
    pub(crate) fn stop_all(&self) {
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
}
