//! Conditions on the end of a run, and on every state on the way.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::cluster::{Cluster, Event, invariant, snapshot};
use spur_core::id::{Attempt, JobId, NodeId};
use spur_core::model::config::PreemptBy;
use spur_core::model::phase::{EndState, Phase};
use spur_core::text::time::Time;

use crate::ledger::Ledger;
use crate::node::Node;
use crate::world::World;

/// Asserts that no core has two owners, and that nodes and jobs agree on the held resources.
pub(crate) fn sound(cluster: &Cluster) {
    let violations = invariant::violations(cluster);
    assert!(violations.is_empty(), "after entry {}: {violations:#?}", cluster.seq());
}

/// Asserts that no two jobs compute on the same CPUs of a node at once: suspended jobs have stopped before
/// others begin.
pub(crate) fn apart(cluster: &Cluster, node: &Node) {
    let mut taken: BTreeMap<u32, Attempt> = BTreeMap::new();
    for attempt in node.computing() {
        // An attempt that was given up with its node may go on until the node responds again.
        let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt);
        let alloc = job.and_then(|job| match &job.phase {
            Phase::Ended(_) | Phase::Pending(_) => None,
            phase => phase.alloc(),
        });
        for cpu in alloc.and_then(|alloc| alloc.on(node.id)).iter().flat_map(|part| part.cpus.iter()) {
            let other = taken.insert(cpu, attempt);
            assert_eq!(other, None, "{attempt} has CPU {cpu} of {} as well", node.name);
        }
    }
}

/// Asserts that two clusters are equal, record by record.
pub(crate) fn same(one: &Cluster, other: &Cluster, what: &str) {
    let (one, other): (Vec<_>, Vec<_>) =
        (snapshot::records(one).collect(), snapshot::records(other).collect());
    assert_eq!(one.len(), other.len(), "{what}: another number of records");
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other, "{what}");
    }
}

/// Checks everything that must hold after a run has come to rest.
pub(crate) fn at_rest(world: &World) {
    numbers_are_used_once(world);
    every_acknowledged_job_ended_once(world);
    every_task_ended_once(world);
    no_attempt_ran_twice(&world.ledger);
    attempts_follow_each_other(world);
    records_tell_the_truth(world);
    ends_without_a_controller_are_believed(world);
    preemption_keeps_its_word(world);
    components_share_their_fate(world);
    suspended_jobs_come_first(world);
    if world.reports {
        nodes_go_where_they_report(world);
    }
    suspended_time_does_not_count(world);
    what_must_be_in_one_leaf_starts_there(world);
    assert!(world.nodes.iter().all(crate::node::Node::is_quiet), "a node still has something to say");
    let cluster = world.committed();
    for node in cluster.nodes() {
        assert!(node.idle() && node.stale.is_empty(), "{} is not free again", node.name());
    }
    same(cluster, &world.disk.recover(false), "read again from the journal");
    same(cluster, &world.disk.recover(true), "read again from the snapshot and the journal");
}

fn numbers_are_used_once(world: &World) {
    let mut seen = BTreeMap::new();
    for (at, entry) in (1u64..).zip(&world.disk.journal) {
        assert_eq!(entry.seq, at, "the journal has no gaps");
        let submitted: Vec<JobId> = match &entry.event {
            Event::JobSubmitted { .. } | Event::HetJobSubmitted { .. } => entry.event.jobs().collect(),
            event => event.split().into_iter().map(|(_, job)| job).collect(),
        };
        for job in submitted {
            assert_eq!(seen.insert(job, ()), None, "job number {job} was used twice");
        }
    }
}

fn every_acknowledged_job_ended_once(world: &World) {
    let mut ends: BTreeMap<JobId, u32> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for entry in &world.disk.journal {
        match &entry.event {
            Event::JobEnded { job, .. } => {
                assert!(ended.insert(*job), "job {job} ended and ended again");
                *ends.entry(*job).or_default() += 1;
            }
            // For a requeued job the last end counts.
            Event::JobRequeued { job, .. } if ended.remove(job) => *ends.entry(*job).or_default() -= 1,
            _ => {}
        }
    }
    for (request, job) in &world.ledger.acknowledged {
        assert_eq!(ends.get(job), Some(&1), "request {request} was acknowledged as job {job}");
    }
    for job in world.committed().jobs().iter() {
        assert!(matches!(job.phase, Phase::Ended(_)), "job {} is still {:?}", job.id, job.phase);
        assert_eq!(ends.get(&job.id), Some(&1), "job {} ended {:?} times", job.id, ends.get(&job.id));
    }
}

/// Asserts that every task of every array ends once, in the record that represents it then, and that no more
/// run at a time than allowed.
fn every_task_ended_once(world: &World) {
    let mut cluster = Cluster::default();
    let mut ends: BTreeMap<(JobId, u32), u32> = BTreeMap::new();
    for entry in &world.disk.journal {
        match &entry.event {
            Event::JobSubmitted { job, spec } => {
                let tasks = spec.array.iter().flat_map(|array| array.tasks.iter());
                ends.extend(tasks.map(|task| ((*job, task), 0)));
            }
            Event::JobEnded { job, .. } => {
                let part = cluster.job(*job).and_then(|job| job.array.as_ref());
                for task in part.iter().flat_map(|part| part.tasks.iter()) {
                    let id = part.expect("it has tasks").id;
                    *ends.get_mut(&(id, task)).expect("it was submitted") += 1;
                }
            }
            // For a requeued task the last end counts.
            Event::JobRequeued { job, .. } => {
                let job = cluster.job(*job).filter(|job| matches!(job.phase, Phase::Ended(_)));
                let part = job.and_then(|job| job.array.as_ref());
                for task in part.iter().flat_map(|part| part.tasks.iter()) {
                    let id = part.expect("it has tasks").id;
                    *ends.get_mut(&(id, task)).expect("it was submitted") -= 1;
                }
            }
            _ => {}
        }
        cluster.apply(entry);
        if let Event::JobStarted { job, .. } = &entry.event {
            let job = cluster.job(*job).expect("it was submitted");
            let limit = job.spec.array.as_ref().and_then(|array| array.limit).unwrap_or(u32::MAX);
            let active = cluster.jobs().array(job.array_id()).map_or(0, |array| array.active());
            assert!(active <= limit as usize, "{active} tasks of array {} run", job.array_id());
        }
    }
    for ((array, task), times) in ends {
        assert_eq!(times, 1, "task {task} of array {array} ended {times} times");
    }
}

fn no_attempt_ran_twice(ledger: &Ledger) {
    let mut launched: BTreeMap<Attempt, u32> = BTreeMap::new();
    for launch in &ledger.launches {
        *launched.entry(launch.attempt).or_default() += 1;
    }
    for (attempt, times) in launched {
        assert_eq!(times, 1, "attempt {attempt} was launched {times} times");
    }
}

/// Asserts that the next attempt starts after the last one's process is gone, unless its node was silent and
/// the record states that.
fn attempts_follow_each_other(world: &World) {
    let assumed = |attempt: Attempt| {
        let mut restart = 0;
        world.disk.journal.iter().any(|entry| match &entry.event {
            Event::JobRequeued { job, .. } if *job == attempt.job => {
                restart += 1;
                false
            }
            Event::NodeReleased { job, lost, .. } => {
                *job == attempt.job && restart == attempt.restart && *lost
            }
            _ => false,
        })
    };
    for launch in &world.ledger.launches {
        let later = world.ledger.launches.iter().filter(|other| {
            other.attempt.job == launch.attempt.job && other.attempt.restart > launch.attempt.restart
        });
        for next in later {
            let overlap = launch.gone.is_none_or(|gone| gone > next.from);
            assert!(
                !overlap || assumed(launch.attempt),
                "attempt {} on node {} ran until {:?}, attempt {} began at {}",
                launch.attempt,
                launch.node,
                launch.gone,
                next.attempt,
                next.from
            );
        }
    }
}

/// Asserts the rules for a job that makes way. It does so for a job of a higher tier, or one whose QOS lists
/// its own. At that moment nodes are kept for this job, and its start waits for the victim. The job starts on
/// these nodes and no others, or loses them by an event that explains it.
fn preemption_keeps_its_word(world: &World) {
    let mut cluster = Cluster::default();
    let tier = |cluster: &Cluster, job: JobId| {
        let job = cluster.job(job).expect("it was submitted");
        let name = job.phase.alloc().map_or(&job.spec.partitions[0], |alloc| &alloc.partition);
        cluster.partition(name).expect("it is configured").config.priority_tier
    };
    let may = |cluster: &Cluster, by: JobId, victim: JobId| {
        let policy = cluster.policy();
        let qos =
            |job: JobId| cluster.job(job).and_then(|job| job.spec.qos.clone()).expect("there is a default");
        match policy.preempt.by {
            PreemptBy::Qos => {
                policy.qos_of(Some(&qos(by))).expect("configured").preempt.contains(&qos(victim))
            }
            PreemptBy::None | PreemptBy::Partition => tier(cluster, victim) < tier(cluster, by),
        }
    };
    let mut told: Vec<(Attempt, JobId)> = Vec::new();
    for entry in &world.disk.journal {
        match &entry.event {
            Event::JobPreempted { job, by, .. } => {
                let victim = cluster.job(*job).expect("it was submitted");
                let forbids = victim.spec.extra.as_ref().is_some_and(|extra| extra.no_preempt);
                assert!(!forbids && may(&cluster, *by, *job), "job {job} for job {by}");
                told.push((victim.attempt(), *by));
            }
            Event::JobNominated { job, nomination } => {
                for (victim, by) in told.drain(..) {
                    assert_eq!(by, *job, "attempt {victim} makes way for nobody");
                    assert!(nomination.victims.contains(&victim), "nobody waits for attempt {victim}");
                }
            }
            Event::JobStarted { job, alloc, .. } => {
                let kept = cluster.job(*job).and_then(|job| job.nomination());
                let nodes = alloc.nodes.iter().map(|part| part.node);
                assert!(kept.is_none_or(|kept| kept.nodes().eq(nodes)), "job {job} starts elsewhere");
            }
            // The job is suspended already, and gives up what it has got back.
            Event::JobSuspended { .. } => {}
            Event::JobEnding { job, outcome, .. } if outcome.state == EndState::Preempted => {
                let asked = cluster.job(*job).is_some_and(|job| job.phase.preempted().is_some());
                assert!(asked, "job {job} ends as PREEMPTED and was never asked to make way");
            }
            _ => assert!(told.is_empty(), "{told:?} make way for nobody: {:?}", entry.event),
        }
        let before: Vec<JobId> = cluster.jobs().nominated().map(|(job, _)| job.id).collect();
        cluster.apply(entry);
        for job in before {
            let lost = cluster.job(job).is_none_or(|job| job.nomination().is_none());
            assert!(
                !lost || explains_loss(&entry.event, job),
                "job {job} lost its nodes by {:?}",
                entry.event
            );
        }
    }
}

/// True if an event may be the reason that nodes are no longer kept for a job.
fn explains_loss(event: &Event, id: JobId) -> bool {
    match event {
        Event::JobStarted { job, .. }
        | Event::NominationDropped { job }
        | Event::JobUpdated { job, .. }
        | Event::JobHeld { job, .. }
        | Event::JobEnded { job, .. } => *job == id,
        Event::NodeDowned { .. }
        | Event::NodeDrained { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeUpdated { .. }
        | Event::NodesMoved { .. }
        | Event::PolicyChanged { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::PartitionSet { .. }
        | Event::PartitionEdited { .. }
        | Event::PartitionDeleted { .. }
        | Event::ReservationCreated { .. }
        | Event::ReservationUpdated { .. } => true,
        _ => false,
    }
}

/// Asserts that the components of a het job start one right after the other at one time, all of them or none,
/// and end alike.
fn components_share_their_fate(world: &World) {
    let mut cluster = Cluster::default();
    let mut open: Option<(Time, Vec<JobId>)> = None;
    for entry in &world.disk.journal {
        if let Event::JobStarted { job, .. } = &entry.event {
            let (at, left) = open.get_or_insert_with(|| (entry.at, cluster.jobs().components(*job)));
            assert_eq!(*at, entry.at, "job {job} starts at another time than its other components");
            assert!(left.contains(job), "job {job} starts while {left:?} have yet to");
            left.retain(|other| other != job);
            open = open.filter(|(_, left)| !left.is_empty());
        } else {
            assert!(open.is_none(), "{open:?} are not started with the others: {:?}", entry.event);
        }
        cluster.apply(entry);
    }
    for job in world.committed().jobs().iter() {
        let Some(leader) = job.spec.het.as_ref().and_then(|het| world.committed().job(het.leader)) else {
            continue;
        };
        assert_eq!(job.phase.names(), leader.phase.names(), "job {} ends unlike job {}", job.id, leader.id);
    }
}

/// Asserts that no job starts on a CPU for which a suspended job waits, unless nodes were kept for the job.
/// No job goes on before it has all its CPUs back.
fn suspended_jobs_come_first(world: &World) {
    let mut cluster = Cluster::default();
    for entry in &world.disk.journal {
        match &entry.event {
            Event::JobStarted { job, alloc, .. }
                if cluster.job(*job).is_none_or(|job| job.nomination().is_none()) =>
            {
                for waits in cluster.jobs().claims() {
                    let Phase::Suspended(suspended) = &waits.phase else { panic!("it is suspended") };
                    for part in &alloc.nodes {
                        let wanted = suspended.alloc.on(part.node);
                        let free = wanted.is_none_or(|wanted| wanted.cpus.is_disjoint(&part.cpus));
                        assert!(free, "job {job} has CPUs that job {} waits for", waits.id);
                    }
                }
            }
            Event::JobResumed { job } => {
                let phase = &cluster.job(*job).expect("it was submitted").phase;
                let whole = matches!(phase, Phase::Suspended(suspended) if suspended.is_whole());
                assert!(whole, "job {job} goes on without its CPUs: {phase:?}");
            }
            _ => {}
        }
        cluster.apply(entry);
    }
}

/// Asserts that a job that must be in one leaf starts on nodes of one leaf, even if an operator has moved
/// nodes meanwhile.
fn what_must_be_in_one_leaf_starts_there(world: &World) {
    let mut cluster = Cluster::default();
    for entry in &world.disk.journal {
        if let Event::JobStarted { job, alloc, split, .. } = &entry.event {
            let record = cluster.job(split.map_or(*job, |split| split.from)).expect("it was submitted");
            let nodes: Vec<NodeId> = alloc.nodes.iter().map(|part| part.node).collect();
            let spans = cluster.spans(record, &nodes);
            let leaves = spans.iter().find(|(layer, _)| &**layer == "leaf").map(|(_, count)| *count);
            assert!(record.spec.fabric.is_none() || leaves == Some(1), "job {job} starts in {spans:?}");
        }
        cluster.apply(entry);
    }
}

/// Asserts that a job that ends at its time limit has run that long, not counting its suspended time.
fn suspended_time_does_not_count(world: &World) {
    let mut cluster = Cluster::default();
    let mut since: BTreeMap<JobId, Option<Time>> = BTreeMap::new();
    let mut ran: BTreeMap<JobId, u64> = BTreeMap::new();
    for entry in &world.disk.journal {
        match &entry.event {
            Event::JobStarted { job, .. } => {
                ran.insert(*job, 0);
                since.insert(*job, Some(entry.at));
            }
            Event::JobResumed { job } => drop(since.insert(*job, Some(entry.at))),
            Event::JobSuspended { job, .. } | Event::JobEnding { job, .. } => {
                let from = since.insert(*job, None).flatten();
                *ran.entry(*job).or_default() += from.map_or(0, |from| entry.at.since(from));
            }
            _ => {}
        }
        cluster.apply(entry);
        if let Event::JobEnding { job, outcome, .. } = &entry.event {
            let known = cluster.job(*job).expect("it was submitted");
            let ran = ran.get(job).copied().unwrap_or_default();
            assert_eq!(known.phase.run_time(entry.at), ran, "what job {job} has run");
            let limit = known.spec.time_limit.seconds().unwrap_or_default();
            let over = outcome.state != EndState::Timeout || ran >= limit;
            assert!(over || known.spec.het.is_some(), "job {job} is ended after {ran} of {limit} seconds");
        }
    }
}

/// Asserts that the end of a script that ended by itself before the controller opened the journal is kept.
/// Neither a time limit nor a lost attempt takes its place, with two exceptions: before the report came, its
/// node counted as down, or registered after a boot.
fn ends_without_a_controller_are_believed(world: &World) {
    let mut cluster = Cluster::default();
    let (mut begun, mut lost) = (Time(0), BTreeSet::new());
    for entry in &world.disk.journal {
        match &entry.event {
            Event::ReignBegun { .. } => (begun, lost) = (entry.at, BTreeSet::new()),
            Event::NodeDowned { node, .. } => drop(lost.insert(*node)),
            Event::NodeRegistered { node, registration, .. } => {
                let before = cluster.node(*node).and_then(|node| node.registration.as_ref());
                if before.is_some_and(|before| before.boot_id != registration.boot_id) {
                    lost.insert(*node);
                }
            }
            Event::JobEnding { job, outcome, .. }
                if matches!(outcome.state, EndState::Timeout | EndState::NodeFail) =>
            {
                let attempt = cluster.job(*job).expect("it was submitted").attempt();
                let launch = world.ledger.launches.iter().find(|launch| launch.attempt == attempt);
                let nodes = cluster.job(*job).and_then(|job| job.phase.alloc());
                let reports =
                    nodes.is_some_and(|alloc| alloc.nodes.iter().all(|part| !lost.contains(&part.node)));
                let over = |gone: u64| i64::try_from(gone).expect("small") < begun.0 * 1000;
                let ended =
                    launch.is_some_and(|launch| launch.exit.is_some() && launch.gone.is_some_and(over));
                assert!(!(ended && reports), "attempt {attempt} had ended and is recorded as {outcome:?}");
            }
            _ => {}
        }
        cluster.apply(entry);
    }
}

/// Asserts that a job recorded as completed had a process that exited with 0, and that one that never ran has
/// no start.
fn records_tell_the_truth(world: &World) {
    for job in world.committed().jobs().iter() {
        let Phase::Ended(ended) = &job.phase else { continue };
        // The script of a het job belongs to its first component.
        let whose = job.spec.het.as_ref().map_or(job.id, |het| het.leader);
        let attempt = Attempt { job: whose, ..job.attempt() };
        let last = world.ledger.launches.iter().find(|launch| launch.attempt == attempt);
        if ended.outcome.state == EndState::Completed {
            let exit = last.and_then(|launch| launch.exit);
            assert!(
                exit.is_some_and(|exit| exit.is_success()),
                "job {} is COMPLETED, its process: {last:?}",
                job.id
            );
        }
        if ended.outcome.state == EndState::Cancelled {
            let id = job.spec.het.as_ref().map_or(job.array_id(), |het| het.leader);
            assert!(world.ledger.cancelled.contains(&id), "job {id} was never cancelled");
        }
    }
}

/// The switch that a node has reported.
fn switch_of(cluster: &Cluster, node: NodeId) -> Option<&str> {
    let registration = cluster.node(node)?.registration.as_ref()?;
    Some(&*registration.fabric.neighbours.first()?.switch)
}

/// The leaf of a node.
fn leaf_of(cluster: &Cluster, node: NodeId) -> Option<String> {
    let fabric = &cluster.topologies().first()?.fabric;
    let leaf = fabric.leaf_of(fabric.pos(node)?)?;
    Some(fabric.domain(leaf).full_name().to_owned())
}

/// The leaf in which other nodes that report a node's switch are: the one of that name, or else most of them.
fn leaf_by_switch(cluster: &Cluster, node: NodeId) -> Option<String> {
    let own = switch_of(cluster, node)?;
    let others = cluster.nodes().iter().filter(|other| other.id != node);
    let same = others.filter(|other| switch_of(cluster, other.id) == Some(own));
    let leaves: Vec<String> = same.filter_map(|other| leaf_of(cluster, other.id)).collect();
    let named = leaves.iter().find(|leaf| **leaf == *own);
    let most =
        leaves.iter().find(|leaf| leaves.iter().filter(|other| other == leaf).count() * 2 > leaves.len());
    named.or(most).cloned()
}

/// Asserts that only nodes in no leaf and without jobs were moved, to the leaf of the other nodes that report
/// their switch, and that no such node was forgotten.
fn nodes_go_where_they_report(world: &World) {
    let mut cluster = Cluster::default();
    for entry in &world.disk.journal {
        if let Event::NodesMoved { nodes, places } = &entry.event {
            for node in nodes {
                let known = cluster.node(*node).expect("it exists");
                assert!(known.jobs.is_empty(), "{} has jobs and was moved", known.name());
                assert_eq!(leaf_of(&cluster, *node), None, "{} had a place", known.name());
                let place = places["default"].as_deref().map(str::to_owned);
                assert_eq!(place, leaf_by_switch(&cluster, *node), "{} was moved elsewhere", known.name());
            }
        }
        cluster.apply(entry);
    }
    for node in cluster.nodes().iter().filter(|node| node.jobs.is_empty()) {
        let (leaf, reported) = (leaf_of(&cluster, node.id), leaf_by_switch(&cluster, node.id));
        assert!(leaf.is_some() || reported.is_none(), "{} waits and belongs to {reported:?}", node.name());
    }
}
