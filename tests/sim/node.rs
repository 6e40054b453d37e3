//! A node that follows the protocol: a spool that survives, processes that do not survive a boot, and reports
//! that are repeated until they are acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::controller::command::{Held, Report, Unacknowledged};
use spur_core::id::{Attempt, NodeId};
use spur_core::model::fabric_report::{FabricReport, Neighbour};
use spur_core::model::node::{NodeShape, Registration};
use spur_core::text::exit::ExitCode;
use spur_core::text::time::Time;

/// The spool's record of an attempt.
#[derive(Debug, Default)]
struct Record {
    /// True if a process of the attempt is alive.
    live: bool,
    /// True if the process is stopped.
    stopped: bool,
    /// The exit codes with which the stopped process ends after it goes on.
    due: Vec<ExitCode>,
    /// Reports that were not acknowledged, oldest first.
    unacknowledged: Vec<(u64, Report)>,
}

/// The first message on a connection.
pub(crate) struct Hello {
    pub(crate) registration: Arc<Registration>,
    pub(crate) held: Vec<Held>,
    pub(crate) reports: Vec<Unacknowledged>,
}

/// An order on its way to a node.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Launch(Attempt),
    Terminate { attempt: Attempt, kill: bool },
    Suspend { attempt: Attempt, stop: bool },
    Signal(Attempt),
    Acknowledge(u64),
    Forget(Attempt),
}

/// An action of a node after an order.
#[derive(Debug)]
pub(crate) enum Deed {
    /// A process was started.
    Launched(Attempt),
    /// The process is asked to end; it may ignore TERM.
    Told { attempt: Attempt, kill: bool },
    /// The process goes on, and ends with this code.
    Continued(Attempt, ExitCode),
    /// The node sends a report.
    Report(u64, Attempt, Report),
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(crate) shape: NodeShape,
    /// Number of boots.
    pub(crate) boot: u32,
    /// The switch at the node's link, which the node reports; `None` if nodes report nothing.
    pub(crate) switch: Option<Arc<str>>,
    /// True if the daemon runs.
    pub(crate) running: bool,
    /// The node's connection; `None` without one.
    pub(crate) session: Option<u64>,
    records: BTreeMap<Attempt, Record>,
    /// The attempts that the daemon must stop, whether or not they are here.
    suspended: BTreeSet<Attempt>,
    next_report: u64,
}

impl Node {
    pub(crate) fn new(id: NodeId, name: Arc<str>, shape: NodeShape) -> Self {
        Self {
            id,
            name,
            shape,
            boot: 1,
            switch: None,
            running: true,
            session: None,
            records: BTreeMap::new(),
            suspended: BTreeSet::new(),
            next_report: 1,
        }
    }

    fn registration(&self) -> Registration {
        let linked = |switch: &Arc<str>| Neighbour { switch: Arc::clone(switch), ..Neighbour::default() };
        let neighbours = self.switch.iter().map(linked).collect();
        Registration {
            shape: self.shape.clone(),
            boot_id: self.boot.to_string().into(),
            spool_id: "1".into(),
            address: "".into(),
            hostname: Arc::clone(&self.name),
            version: "".into(),
            arch: "".into(),
            os: "".into(),
            booted: Time(0),
            started: Time(0),
            peer: Arc::default(),
            containment: Arc::default(),
            fault: Arc::default(),
            fabric: FabricReport { neighbours, ..FabricReport::default() },
        }
    }

    /// The first message of the node on a new connection.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            registration: Arc::new(self.registration()),
            held: self.held(),
            reports: self.unacknowledged(),
        }
    }

    fn held(&self) -> Vec<Held> {
        self.records.iter().map(|(attempt, record)| Held { attempt: *attempt, live: record.live }).collect()
    }

    /// All unacknowledged reports, for a new connection.
    pub(crate) fn unacknowledged(&self) -> Vec<Unacknowledged> {
        let all = self.records.iter().flat_map(|(attempt, record)| {
            let told = |(id, report): &(u64, Report)| Unacknowledged {
                id: *id,
                attempt: *attempt,
                report: report.clone(),
            };
            record.unacknowledged.iter().map(told)
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|told| told.id);
        all
    }

    /// The attempts with a live process or an unacknowledged report.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let open = self.records.iter().filter(|(_, record)| record.live || !record.unacknowledged.is_empty());
        let said = |record: &Record| if record.live { "lives" } else { "waits for an answer" };
        open.map(|(attempt, record)| format!("{attempt} {}", said(record))).collect()
    }

    /// The attempts whose processes use CPUs now.
    pub(crate) fn computing(&self) -> impl Iterator<Item = Attempt> {
        let computing = self.records.iter().filter(|(_, record)| record.live && !record.stopped);
        computing.map(|(attempt, _)| *attempt)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.records.values().all(|record| !record.live && record.unacknowledged.is_empty())
    }

    pub(crate) fn obey(&mut self, order: Order) -> Vec<Deed> {
        match order {
            Order::Launch(attempt) if self.records.contains_key(&attempt) => Vec::new(),
            Order::Launch(attempt) => {
                let stopped = self.suspended.contains(&attempt);
                self.records.insert(attempt, Record { live: true, stopped, ..Record::default() });
                vec![Deed::Launched(attempt)]
            }
            Order::Suspend { attempt, stop } => self.suspend(attempt, stop),
            Order::Terminate { attempt, kill } => match self.records.get(&attempt) {
                Some(record) if record.live => vec![Deed::Told { attempt, kill }],
                Some(record) if !record.unacknowledged.is_empty() => Vec::new(),
                // The attempt was never here, or its end was reported and acknowledged: report it again, and
                // refuse a late launch.
                _ => {
                    self.records.insert(attempt, Record::default());
                    vec![self.report(attempt, Report::NodeDone { epilog_error: None })]
                }
            },
            Order::Signal(attempt) => match self.records.get(&attempt) {
                Some(record) if record.live => vec![Deed::Told { attempt, kill: false }],
                Some(_) | None => Vec::new(),
            },
            Order::Acknowledge(report) => {
                for record in self.records.values_mut() {
                    record.unacknowledged.retain(|(id, _)| *id != report);
                }
                Vec::new()
            }
            Order::Forget(attempt) => {
                self.suspended.remove(&attempt);
                if self.records.get(&attempt).is_some_and(|record| !record.live) {
                    self.records.remove(&attempt);
                }
                Vec::new()
            }
        }
    }

    fn suspend(&mut self, attempt: Attempt, stop: bool) -> Vec<Deed> {
        match stop {
            true => self.suspended.insert(attempt),
            false => self.suspended.remove(&attempt),
        };
        let Some(record) = self.records.get_mut(&attempt) else { return Vec::new() };
        record.stopped = stop;
        let due = if stop { Vec::new() } else { std::mem::take(&mut record.due) };
        due.into_iter().map(|exit| Deed::Continued(attempt, exit)).collect()
    }

    /// Forgets the suspensions, as a restart of the daemon does: stopped processes stay stopped, but the
    /// new daemon has no record of them.
    pub(crate) fn forget_marks(&mut self) {
        self.suspended.clear();
    }

    /// True if a process is stopped and so ends later; false if it is killed.
    pub(crate) fn holds_back(&mut self, attempt: Attempt, exit: ExitCode) -> bool {
        let stopped = self.records.get_mut(&attempt).filter(|record| record.live && record.stopped);
        let Some(record) = stopped.filter(|_| exit.signal != 9) else { return false };
        record.due.push(exit);
        true
    }

    /// Records that the process of an attempt is gone; `exit` is `None` if its exit code is unknown.
    pub(crate) fn ended(&mut self, attempt: Attempt, exit: Option<ExitCode>) -> Vec<Deed> {
        let Some(record) = self.records.get_mut(&attempt).filter(|record| record.live) else {
            return Vec::new();
        };
        record.live = false;
        // Nodes report both ends in one report or in two.
        let done = self.next_report.is_multiple_of(2);
        let (exit, lost) = (exit.unwrap_or_default(), exit.is_none());
        let mut said = vec![self.report(attempt, Report::BatchEnded { end: exit.into(), lost, done })];
        if !done {
            said.push(self.report(attempt, Report::NodeDone { epilog_error: None }));
        }
        said
    }

    /// All processes die with unknown exit codes. The daemon is not back yet.
    pub(crate) fn boot(&mut self) -> Vec<Attempt> {
        self.boot += 1;
        self.suspended.clear();
        self.running = false;
        self.session = None;
        let died: Vec<Attempt> =
            self.records.iter().filter(|(_, record)| record.live).map(|(attempt, _)| *attempt).collect();
        for attempt in &died {
            self.ended(*attempt, None);
        }
        died
    }

    fn report(&mut self, attempt: Attempt, report: Report) -> Deed {
        let id = self.next_report;
        self.next_report += 1;
        if let Some(record) = self.records.get_mut(&attempt) {
            record.unacknowledged.push((id, report.clone()));
        }
        Deed::Report(id, attempt, report)
    }
}
