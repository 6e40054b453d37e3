//! The pure half of `spurctld`: its inputs, their effect on the cluster, and the effects that the shell
//! carries out.
//!
//! A verb is a file in `handle/` with two functions. `check` reads the state and refuses, or returns a
//! decision that it owns; `enact` emits events and cannot fail, so nothing is ever half-applied. Emitting
//! applies the event at once and lets `react` add the effects that follow when the entry is durable. Nothing
//! here waits, and there is no state outside the cluster.

mod accrual;
mod budgets;
pub mod command;
mod devices;
pub mod effect;
mod ending;
pub mod environment;
pub mod fix;
mod handle;
mod kept_priority;
pub mod lease;
mod mail;
mod power;
mod react;
mod reboot;
mod recall;
pub mod reject;
mod replace;
mod replenish;
mod reported;
pub mod resume;
mod tasks;
pub mod timers;
mod usage;

use std::sync::Arc;

pub use command::{Command, Input, Reply};
pub use effect::{Effect, PowerProgram, Program};
pub use handle::{MOST_AT_ONCE, MOST_ROWS, kept_by_host, may_annotate, preview};
pub use power::Haste;
pub use reject::Reject;

use crate::cluster::{Cluster, Entry, Event, Record};
use crate::id::RequestId;
use crate::sched::feasible::{Feasibility, Question};
use crate::text::time::Time;

/// The result of one input.
#[derive(Debug)]
pub struct Outcome {
    /// Entries that must be durable before anything else leaves the controller.
    pub entries: Vec<Arc<Entry>>,
    /// Effects to carry out once the entries are durable.
    pub effects: Vec<Effect>,
    /// The answer to send once the entries are durable.
    pub answer: Result<Reply, Reject>,
}

/// Handles one input. `now` is the wall clock; entries never go back in time even if it does.
///
/// A refused input changes nothing: no entries, no effects.
pub fn handle(cluster: &mut Cluster, epoch: u64, now: Time, input: Input) -> Outcome {
    handle_within(cluster, epoch, now, input, Feasibility::in_full()).0
}

/// Handles one input without long searches. A request that takes long to decide is refused with
/// [`Reject::Undecided`], together with the open questions. The input is handled again once these are
/// answered.
pub fn handle_briefly(
    cluster: &mut Cluster,
    epoch: u64,
    now: Time,
    input: Input,
    feasibility: Feasibility,
) -> (Outcome, Vec<Question>) {
    let (outcome, feasibility) = handle_within(cluster, epoch, now, input, feasibility);
    let is_undecided = matches!(outcome.answer, Err(Reject::Undecided));
    (outcome, if is_undecided { feasibility.into_open() } else { Vec::new() })
}

fn handle_within(
    cluster: &mut Cluster,
    epoch: u64,
    now: Time,
    input: Input,
    feasibility: Feasibility,
) -> (Outcome, Feasibility) {
    let now = now.max(cluster.at());
    let request = match &input {
        Input::Command { request, .. } => *request,
        _ => None,
    };
    let mut ctx = Ctx { cluster, now, epoch, request, feasibility, entries: Vec::new(), effects: Vec::new() };
    let answer = handle::dispatch(&mut ctx, input);
    if !ctx.entries.is_empty() && ctx.cluster.doubt().is_none() {
        recall::settle(&mut ctx);
        replace::settle(&mut ctx);
        replenish::settle(&mut ctx);
        reboot::settle(&mut ctx);
        power::settle(&mut ctx);
    }
    (Outcome { entries: ctx.entries, effects: ctx.effects, answer }, ctx.feasibility)
}

/// The context of `enact` functions: everything that they can reach.
pub(crate) struct Ctx<'a> {
    cluster: &'a mut Cluster,
    now: Time,
    epoch: u64,
    request: Option<RequestId>,
    feasibility: Feasibility,
    entries: Vec<Arc<Entry>>,
    effects: Vec<Effect>,
}

impl Ctx<'_> {
    /// The cluster after all events emitted so far.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Time of the next entry.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The judge of requests that can never be honoured.
    pub(crate) fn feasibility(&self) -> &Feasibility {
        &self.feasibility
    }

    /// Applies an event and adds its entry and effects.
    pub(crate) fn emit(&mut self, event: Event) {
        // Programs of the release before could not read the entry. `check` refuses requests that lead here.
        #[cfg(debug_assertions)]
        if !matches!(event, Event::FeatureLevelRaised { .. })
            && let Err(too_new) = self.cluster.allows(&event)
        {
            panic!("an entry above the feature level: {too_new:?} in {event:?}");
        }
        let entry = Arc::new(Entry {
            seq: self.cluster.seq() + 1,
            epoch: self.epoch,
            at: self.now,
            request: self.request.take(),
            event,
            record: Record::default(),
        });
        self.cluster.apply(&entry);
        react::react(self.cluster, &entry.event, &mut self.effects);
        self.entries.push(entry);
    }

    /// Adds an effect, to be carried out once everything emitted so far is durable.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
