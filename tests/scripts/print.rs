//! The results of a command, in a line for each thing.

use std::collections::BTreeMap;
use std::sync::Arc;

use spur_core::cluster::{Cluster, Event, Node, Topology};
use spur_core::controller::{Effect, Reply};
use spur_core::id::{JobId, NodeId};
use spur_core::model::alloc::{Alloc, Replacement};
use spur_core::model::config::NodeConfig;
use spur_core::model::job::JobSpec;
use spur_core::model::node::{Health, Power, Reboot};
use spur_core::model::phase::{Outcome, Then};
use spur_core::model::reservation::Reservation;
use spur_core::model::step::StepNode;

pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Done => String::new(),
        Reply::Submitted { job, warnings } => {
            let warned = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>();
            format!("job {job}\n{warned}")
        }
        Reply::Jobs { problems, warnings } => {
            let refused = problems
                .iter()
                .map(|(job, reject)| format!("job {job} refused: {reject} [{}]\n", reject.code()));
            let warned = warnings.iter().map(|warning| format!("warning: {warning}\n"));
            refused.chain(warned).collect()
        }
        Reply::Step { step, .. } => {
            let parts = step.nodes.iter().map(|part| {
                format!(" node {}: {} tasks on CPUs {}{}", part.node, part.tasks, part.cpus, devices(part))
            });
            format!("step {}{}\n", step.id, parts.collect::<String>())
        }
        Reply::Doubted { why } => format!("doubted: {why}"),
        Reply::Reserved { name } => format!("reservation {name}\n"),
        Reply::AccountsChanged { lines } => lines.join("\n"),
        Reply::HistoryImported { own } => format!("imported, but for {own:?}"),
        Reply::Reconfigured { changes } => {
            changes.iter().map(|change| format!("changed {change}\n")).collect()
        }
    }
}

fn devices(part: &StepNode) -> String {
    part.gres.iter().map(|gres| format!(" with devices {}", gres.ids)).collect()
}

pub(crate) fn health(health: &Health) -> String {
    match health {
        Health::Unknown => "unknown".to_owned(),
        Health::Up => "up".to_owned(),
        Health::Down { reason, silent, .. } => {
            format!("down ({reason}{})", if *silent { ", silent" } else { "" })
        }
    }
}

fn outcome(outcome: &Outcome) -> String {
    let by = outcome.by.map(|uid| format!(" by {uid}")).unwrap_or_default();
    format!("{} {} {}{by}", outcome.state.name(), outcome.exit, outcome.reason)
}

fn alloc(alloc: &Alloc) -> String {
    let parts = alloc.nodes.iter().map(|part| format!("{}:{}", part.node, part.cpus));
    format!("{}{}", parts.collect::<Vec<_>>().join(" "), if alloc.exclusive { " exclusive" } else { "" })
}

fn submitted((job, spec): (&JobId, &Arc<JobSpec>)) -> String {
    format!("{job} limit={} in {}", spec.time_limit, spec.partitions.join(","))
}

#[expect(clippy::too_many_lines, reason = "a table: one line for each event")]
pub(crate) fn event(event: &Event) -> String {
    match event {
        Event::PolicyChanged { .. } => "PolicyChanged".to_owned(),
        Event::JobSubmitted { job, spec } => format!("JobSubmitted {}", submitted((job, spec))),
        Event::HetJobSubmitted { jobs, specs } => {
            let all: Vec<_> = jobs.iter().zip(specs).map(submitted).collect();
            format!("HetJobSubmitted {}", all.join(" : "))
        }
        Event::JobUpdated { job, spec } => updated(*job, spec),
        Event::AccrualBegun { jobs } => format!("AccrualBegun {jobs:?}"),
        Event::PrioritiesKept { jobs, priorities } => format!("PrioritiesKept {jobs:?} {priorities:?}"),
        Event::JobAnnotated { job, restarts, note } => format!("JobAnnotated {job} run {restarts}: {note:?}"),
        Event::JobHeld { job, by } => format!("JobHeld {job} by {by:?}"),
        Event::JobReleased { job } => format!("JobReleased {job}"),
        Event::StartPromised { job, start } => format!("StartPromised {job} {}", start.0),
        Event::JobNominated { job, nomination } => {
            let nodes: Vec<String> = nomination.nodes().map(|node| node.to_string()).collect();
            let victims: Vec<String> = nomination.victims.iter().map(ToString::to_string).collect();
            format!("JobNominated {job} on {} after {}", nodes.join(" "), victims.join(" "))
        }
        Event::NominationDropped { job } => format!("NominationDropped {job}"),
        Event::JobPreempted { job, by, then, end_at } => {
            format!("JobPreempted {job} by {by}, {} at {}", way(*then), end_at.0)
        }
        Event::JobSuspended { .. }
        | Event::JobRecalled { .. }
        | Event::CpusReturned { .. }
        | Event::JobResumed { .. } => suspension(event),
        Event::TasksSplit { job, from, tasks } => format!("TasksSplit {job} from {from} tasks {tasks}"),
        Event::JobStarted { job, alloc: held, split, configuring } => {
            let from = split.map(|split| format!(" as task {} of {}", split.task, split.from));
            let waits = if configuring.is_done() { String::new() } else { format!(", {configuring:?}") };
            format!("JobStarted {job}{} on {}{waits}", from.unwrap_or_default(), alloc(held))
        }
        Event::JobNodeLost { .. } | Event::JobNodesReplaced { .. } => failure(event),
        Event::NodeReleased { .. } | Event::NodeDowned { .. } => failure(event),
        Event::JobWarned { job } => format!("JobWarned {job}"),
        Event::PrologEnded { job } => format!("PrologEnded {job}"),
        Event::EpilogEnded { job } => format!("EpilogEnded {job}"),
        Event::TimeUsed { job, percent } => format!("TimeUsed {job} {percent}%"),
        Event::JobCheckpointed { job } => format!("JobCheckpointed {job}"),
        Event::JobEnding { job, outcome: how, then, kill_at, epilog, seen } => {
            let then = match then {
                Then::End => String::new(),
                Then::Requeue { hold } => format!(", requeue hold={hold:?}"),
            };
            let epilog = if *epilog { ", with epilog" } else { "" };
            let kill_at = kill_at.map(|at| at.0);
            let seen = seen.map(|at| format!(", seen at {}", at.0)).unwrap_or_default();
            format!("JobEnding {job} {}{then}, kill at {kill_at:?}{epilog}{seen}", outcome(how))
        }
        Event::JobKilled { job } => format!("JobKilled {job}"),
        Event::JobEnded { job, outcome: how } => format!("JobEnded {job} {}", outcome(how)),
        Event::JobRequeued { job, not_before, hold } => {
            format!("JobRequeued {job} not before {:?} hold={hold:?}", not_before.map(|at| at.0))
        }
        Event::JobsForgotten { jobs, .. } => format!("JobsForgotten {jobs:?}"),
        Event::StepStarted { job, step } => format!("StepStarted {job}.{}", step.id),
        Event::StepLimitChanged { job, step, limit } => match limit {
            Some(seconds) => format!("StepLimitChanged {job}.{step} {seconds}"),
            None => format!("StepLimitChanged {job}.{step} UNLIMITED"),
        },
        Event::StepTimedOut { job, step } => format!("StepTimedOut {job}.{step}"),
        Event::StepCancelled { job, step, by } => format!("StepCancelled {job}.{step} by {by}"),
        Event::StepNodeEnded { job, step, node, end } => {
            format!("StepNodeEnded {job}.{step} on {node} {}", end.exit)
        }
        Event::BatchEnded { job, end } => format!("BatchEnded {job} {}", end.exit),
        Event::FeatureLevelRaised { level } => format!("FeatureLevelRaised {level}"),
        Event::HistoryBegun { .. }
        | Event::ReignBegun { .. }
        | Event::JournalDoubted { .. }
        | Event::ClockSet { .. }
        | Event::ForeignDropped { .. } => format!("{event:?}"),
        Event::NodeRegistered { node, stale, .. } => format!("NodeRegistered {node} stale={stale:?}"),
        Event::NodeCleaned { node, attempt } => format!("NodeCleaned {node} of {attempt}"),
        Event::NodeDrained { node, drain } => format!("NodeDrained {node} {} by {}", drain.reason, drain.by),
        Event::NodeResumed { node } => format!("NodeResumed {node}"),
        Event::PowerChanged { node, power, jobs } => {
            let begin: String = jobs.iter().map(|job| format!(", {job} begins")).collect();
            format!("PowerChanged {node} {}{begin}", powered(power.as_ref()))
        }
        Event::NodeMended { node } => format!("NodeMended {node}"),
        Event::NodeUpdated { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::PartitionSet { .. }
        | Event::PartitionEdited { .. }
        | Event::PartitionDeleted { .. } => edit(event),
        Event::NodesMoved { nodes, places } => moved(nodes, places),
        Event::ReservationCreated { reservation } => format!("ReservationCreated {}", reserved(reservation)),
        Event::ReservationUpdated { reservation } => format!("ReservationUpdated {}", reserved(reservation)),
        Event::ReservationDeleted { name } => format!("ReservationDeleted {name}"),
        Event::UsageRolled { until, periods, ratio, reset } => {
            let reset = if *reset { ", reset" } else { "" };
            format!("UsageRolled to {} by {periods} periods, ratio {:?}{reset}", until.0, ratio.0)
        }
        Event::ResetPlanned { at, zone } => format!("ResetPlanned {:?} in {zone}", at.map(|at| at.0)),
        Event::HistoryImported { last_job, jobs, steps } => {
            let (jobs, steps) = (jobs.len(), steps.len());
            format!("HistoryImported up to job {last_job}: {jobs} runs, {steps} steps")
        }
        Event::AccountsChanged { by, changes } => format!("AccountsChanged by {by}: {changes:?}"),
    }
}

/// The action on the host of a node.
pub(crate) fn powered(power: Option<&Power>) -> String {
    match power {
        None => "nothing".to_owned(),
        Some(Power::Reboot(Reboot { reason, by, issued, next, drained, .. })) => {
            let issued = issued.map(|at| format!(" at {}", at.0)).unwrap_or_default();
            let next = next.map(|next| format!(", then {next:?}")).unwrap_or_default();
            let drained = if *drained { ", drained for it" } else { "" };
            format!("reboot{issued}{next}{drained}: {reason} by {by}")
        }
        Some(other) => format!("{other:?}"),
    }
}

fn updated(job: JobId, spec: &JobSpec) -> String {
    let nice = if spec.nice == 0 { String::new() } else { format!(" nice={}", spec.nice) };
    format!("JobUpdated {job} limit={}{nice}", spec.time_limit)
}

/// The changes of an operator to a node or a partition.
fn edit(event: &Event) -> String {
    match event {
        Event::NodeUpdated { node, weight, features, gres, comment, extra } => {
            let more = match (gres, comment, extra) {
                (None, None, None) => String::new(),
                _ => format!(" gres={gres:?} comment={comment:?} extra={extra:?}"),
            };
            format!("NodeUpdated {node} weight={weight:?} features={features:?}{more}")
        }
        Event::NodesCreated { nodes } => {
            let made = |node: &NodeConfig| format!("{} cpus={}", node.name, node.shape.cpus);
            format!("NodesCreated {}", nodes.iter().map(made).collect::<Vec<_>>().join(", "))
        }
        Event::NodesDeleted { nodes } => {
            let ids: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
            format!("NodesDeleted {}", ids.join(" "))
        }
        Event::PartitionSet { partition, state } => format!("PartitionSet {partition} {state:?}"),
        Event::PartitionEdited { partition } => {
            let state = partition.state;
            format!("PartitionEdited {} {state:?} nodes={}", partition.name, partition.nodes.join(","))
        }
        Event::PartitionDeleted { name } => format!("PartitionDeleted {name}"),
        other => panic!("{other:?} is no edit"),
    }
}

fn way(then: Option<Then>) -> &'static str {
    match then {
        Some(Then::End) => "end",
        Some(Then::Requeue { .. }) => "requeue",
        None => "suspend",
    }
}

fn suspension(event: &Event) -> String {
    match event {
        Event::JobSuspended { job, wanted } => {
            format!("JobSuspended {job}{}", if *wanted { ", goes on when it can" } else { "" })
        }
        Event::JobRecalled { job } => format!("JobRecalled {job}"),
        Event::CpusReturned { job, node, cpus } => format!("CpusReturned {job} {node}:{cpus}"),
        Event::JobResumed { job } => format!("JobResumed {job}"),
        other => format!("{other:?}"),
    }
}

fn failure(event: &Event) -> String {
    match event {
        Event::NodeReleased { job, node, lost } => {
            format!("NodeReleased {job} by {node}{}", if *lost { " (lost)" } else { "" })
        }
        Event::JobNodeLost { job, node, lingers } => {
            format!("JobNodeLost {job} {node}{}", if *lingers { ", which has to clear up" } else { "" })
        }
        Event::JobNodesReplaced { job, replaced, why } => {
            let one = |one: &Replacement| format!("{} by {}:{}", one.lost, one.part.node, one.part.cpus);
            let all: Vec<String> = replaced.iter().map(one).collect();
            format!("JobNodesReplaced {job} {} ({})", all.join(", "), why.sentence)
        }
        Event::NodeDowned { node, reason, silent, by } => {
            format!("NodeDowned {node} {reason}{}", cause(*silent, by.as_deref()))
        }
        other => format!("{other:?}"),
    }
}

fn cause(silent: bool, by: Option<&str>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    format!("{}{by}", if silent { " (silent)" } else { "" })
}

/// A reservation in one line.
pub(crate) fn reserved(reservation: &Reservation) -> String {
    let Reservation { name, start, end, nodes, users, accounts, .. } = reservation;
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let (nodes, flags) = (nodes.join(","), reservation.flags_text());
    let times = match reservation.lead {
        Some(lead) => format!("always {lead} ahead for {}", end.since(*start)),
        None => format!("{}..{}", start.0, end.0),
    };
    let licenses = reservation.licenses.iter().map(|(name, count)| format!(" {name}:{count}"));
    let licenses = licenses.collect::<String>();
    format!("{name} {times} on {nodes}{licenses} users={users} accounts={accounts} flags={flags}")
}

/// Parts of the names of variables that belong to one kind of mail.
const OF_MAIL: [&str; 6] =
    ["JOB_STATE", "QUEUED_TIME", "RUN_TIME", "EXIT_CODE_MIN", "EXIT_CODE_MAX", "SIGNAL_MAX"];

pub(crate) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Open { node, .. } => format!("open the connection of {node}"),
        Effect::Launch { node, attempt } => format!("launch {attempt} on {node}"),
        Effect::Terminate { node, attempt, kill } => {
            format!("{} {attempt} on {node}", if *kill { "kill" } else { "terminate" })
        }
        Effect::Suspend { node, attempt, stop } => {
            format!("{} {attempt} on {node}", if *stop { "stop" } else { "continue" })
        }
        Effect::EndStep { node, attempt, step, kill_wait } => {
            format!("end step {step} of {attempt} on {node}, KILL after {kill_wait}")
        }
        Effect::Signal { node, attempt, signal, .. } => format!("signal {signal} to {attempt} on {node}"),
        Effect::Tell { attempt, node: Some(node), message } => format!("tell {attempt} on {node}: {message}"),
        Effect::Tell { attempt, node: None, message } => format!("tell who holds {attempt}: {message}"),
        Effect::Acknowledge { node, report } => format!("acknowledge {report} to {node}"),
        Effect::Forget { node, attempt } => format!("forget {attempt} on {node}"),
        Effect::Mail { to, subject, variables } => {
            let told = |name: &str| OF_MAIL.iter().find(|of_mail| name.contains(**of_mail));
            let variables = variables.iter().filter_map(|(name, value)| Some((told(name)?, value)));
            let variables: String = variables.map(|(name, value)| format!(" {name}={value}")).collect();
            format!("mail to {to}: {subject}{variables}")
        }
        Effect::Power { program, nodes } => {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            format!("{program:?} {}", nodes.join(","))
        }
        Effect::Reboot { node } => format!("reboot {node}"),
        Effect::Program { attempt, program } => format!("{program:?} of {attempt}"),
        Effect::StepsChanged { job } => format!("steps of {job} changed"),
    }
}

fn moved(nodes: &[NodeId], places: &BTreeMap<Arc<str>, Option<Arc<str>>>) -> String {
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let one = |(topology, place): (&Arc<str>, &Option<Arc<str>>)| {
        format!("{topology}:{}", place.as_deref().unwrap_or("nowhere"))
    };
    format!("NodesMoved {} {}", nodes.join(" "), places.iter().map(one).collect::<Vec<_>>().join(","))
}

/// The place of a node, if there are topologies.
pub(crate) fn place(cluster: &Cluster, node: &Node) -> String {
    let path = |topology: &Topology| {
        let path = topology.fabric.path(topology.fabric.pos(node.id)?, ":");
        (!path.is_empty()).then(|| format!(" at {}:{path}", topology.name))
    };
    cluster.topologies().iter().filter_map(path).collect()
}
