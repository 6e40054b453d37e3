//! Invariants of a cluster that hold after every entry. Tests and the simulation check them; daemons do not.

use std::collections::BTreeSet;

use super::{Array, Cluster, Node};
use crate::id::{JobId, NodeId};
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::text::array::TaskSet;

/// All violations, one sentence each; empty for a sound cluster.
#[must_use]
pub fn violations(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for node in cluster.nodes() {
        holdings(cluster, node.id, &mut found);
        nominations(cluster, node, &mut found);
    }
    for job in cluster.jobs().iter() {
        phase(cluster, job, &mut found);
    }
    for (id, array) in cluster.jobs().arrays() {
        tasks(cluster, id, array, &mut found);
    }
    if **cluster.counters() != cluster.counted_anew() {
        found.push("limits count something else than the jobs there are".to_owned());
    }
    found
}

/// Checks that every task of an array is in exactly one place: in one record, or among the ended tasks whose
/// records have left memory.
fn tasks(cluster: &Cluster, id: JobId, array: &Array, found: &mut Vec<String>) {
    let records: Vec<&Job> = cluster.jobs().iter().filter(|job| job.array_id() == id).collect();
    let known: BTreeSet<JobId> = array.records().collect();
    if known != records.iter().map(|job| job.id).collect() {
        found.push(format!("array {id} knows of other records than there are"));
    }
    let ended = array.ended();
    let (mut all, mut count) = (TaskSet::default(), 0);
    let (mut pending, mut active) = (0, 0);
    let mut gone = ended.completed.with(&ended.failed);
    for job in &records {
        let Some(part) = &job.array else { continue };
        all = all.with(&part.tasks);
        count += part.tasks.len();
        match &job.phase {
            Phase::Pending(_) => pending += part.tasks.len(),
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) => active += part.tasks.len(),
            Phase::Ended(_) => gone = gone.without(&part.tasks),
        }
        if part.tasks.only().is_none() && job.phase.started().is_some() {
            found.push(format!("job {} started as tasks {} of array {id} at once", job.id, part.tasks));
        }
    }
    (all, count) = (all.with(&gone), count + gone.len());
    let asked = records.first().and_then(|job| job.spec.array.as_ref());
    if asked.is_none_or(|asked| asked.tasks != all || asked.tasks.len() != count) {
        found.push(format!("array {id} has the tasks {all}, {count} in all, and was to have {asked:?}"));
    }
    if (pending, active) != (array.pending(), array.active()) {
        found.push(format!("array {id} has miscounted its tasks"));
    }
}

/// Checks that the used resources of a node are those that its jobs hold, and that no CPU or device is held
/// twice.
fn holdings(cluster: &Cluster, id: NodeId, found: &mut Vec<String>) {
    let Some(node) = cluster.node(id) else { return };
    let name = node.name();
    let (mut cpus, mut memory_mb) = (IdSet::EMPTY, 0);
    let mut gres = vec![IdSet::EMPTY; node.used.gres.len()];
    for job in &node.jobs {
        let part = cluster.job(*job).and_then(|job| job.phase.holds_on(id));
        let Some(part) = part else {
            found.push(format!("{name} is held by job {job}, which has nothing on it"));
            continue;
        };
        if !cpus.is_disjoint(&part.cpus) {
            found.push(format!("{name}: a CPU of job {job} is held twice"));
        }
        cpus = cpus.union(&part.cpus);
        memory_mb += part.memory_mb;
        for held in &part.gres {
            match gres.get_mut(usize::from(held.entry)) {
                Some(taken) if taken.is_disjoint(&held.ids) => *taken = taken.union(&held.ids),
                _ => found.push(format!("{name}: a device of job {job} is held twice")),
            }
        }
    }
    if cpus != node.used.cpus || memory_mb != node.used.memory_mb || gres != node.used.gres {
        found.push(format!("{name}: what is taken is not what its jobs hold"));
    }
    let has_cpus = |job: &&JobId| {
        let part = cluster.job(**job).and_then(|job| job.phase.holds_on(id));
        part.is_some_and(|part| !part.cpus.is_empty())
    };
    let with_cpus = node.jobs.iter().filter(has_cpus).count();
    if node.exclusive.is_some() && with_cpus > 1 {
        found.push(format!("{name} is held for one job alone and {with_cpus} have CPUs of it"));
    }
}

/// Checks that nominated jobs can start as soon as all preempted jobs have left. The resources reserved for
/// them must fit beside those that stay, on nodes that are available.
fn nominations(cluster: &Cluster, node: &Node, found: &mut Vec<String>) {
    let name = node.name();
    let nominees = cluster.jobs().nominated().filter(|(_, nomination)| nomination.on(node.id).is_some());
    let nominees: Vec<_> = nominees.map(|(job, _)| job.id).collect();
    if nominees != node.nominees {
        found.push(format!("{name} is kept for {nominees:?} and knows of {:?}", node.nominees));
    }
    let kept = cluster.kept(node.id, &[]);
    if !kept.any {
        return;
    }
    if !node.available() {
        found.push(format!("{name} is kept for a job and cannot be used"));
    }
    // A job that is or is to be suspended gives up only its CPUs.
    let leaves = |job: &Job| job.phase.preempted().is_some_and(|told| told.then.is_some());
    let stops = |job: &Job| matches!(&job.phase, Phase::Running { preempted: Some(_), .. });
    let jobs = || node.jobs.iter().filter_map(|id| cluster.job(*id));
    let stays = || {
        jobs().filter(|job| !leaves(job) && matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_)))
    };
    let at_work = stays().filter(|job| !stops(job)).filter_map(|job| job.phase.holds_on(node.id));
    let busy: Vec<_> = at_work.filter(|part| !part.cpus.is_empty()).collect();
    if kept.exclusive && (!busy.is_empty() || nominees.len() > 1) {
        found.push(format!("{name} is kept for one job alone, and {} others stay", busy.len()));
    }
    let cpus: u32 = busy.iter().map(|part| part.cpus.len()).sum();
    if cpus + kept.cpus > node.shape.cpus {
        found.push(format!("{name}: {cpus} CPUs stay in use and {} are kept", kept.cpus));
    }
    let parts = || stays().filter_map(|job| job.phase.alloc()).filter_map(|alloc| alloc.on(node.id));
    for (entry, count) in &kept.gres {
        let held = parts().flat_map(|part| part.gres.iter()).filter(|held| held.entry == *entry);
        let held: u32 = held.map(|held| held.ids.len()).sum();
        let have = node.shape.gres.get(usize::from(*entry)).map_or(0, |gres| gres.count);
        if held + count > have {
            found.push(format!("{name}: {held} devices stay in use and {count} are kept, of {have}"));
        }
    }
}

/// Checks that jobs and nodes agree on which nodes each job holds, and that CPUs returned to a suspended job
/// are its own.
fn phase(cluster: &Cluster, job: &Job, found: &mut Vec<String>) {
    let held: Vec<NodeId> = match &job.phase {
        Phase::Running { alloc, .. } => alloc.nodes.iter().map(|part| part.node).collect(),
        Phase::Suspended(suspended) => suspended.alloc.nodes.iter().map(|part| part.node).collect(),
        Phase::Completing(completing) => completing.waiting.iter().copied().collect(),
        Phase::Pending(_) | Phase::Ended(_) => Vec::new(),
    };
    for node in &held {
        if !cluster.node(*node).is_some_and(|node| node.jobs.contains(&job.id)) {
            found.push(format!("job {} holds node {node}, which does not know it", job.id));
        }
    }
    let known = cluster.nodes().iter().filter(|node| node.jobs.contains(&job.id)).count();
    if known != held.len() {
        found.push(format!("job {} holds {} nodes and is known to {known}", job.id, held.len()));
    }
    if matches!(job.phase, Phase::Pending(_) | Phase::Ended(_)) && !job.steps.is_empty() {
        found.push(format!("job {} is not running and has steps", job.id));
    }
    if let Phase::Suspended(suspended) = &job.phase {
        let own = |(node, cpus): &(NodeId, IdSet)| {
            suspended.alloc.on(*node).is_some_and(|part| cpus.is_subset(&part.cpus))
        };
        if !suspended.back.iter().all(own) || (suspended.wanted.is_none() && !suspended.back.is_empty()) {
            found.push(format!("job {} is suspended and got CPUs back that are not its own", job.id));
        }
        if suspended.pauses.last.is_none() {
            found.push(format!("nobody knows since when job {} is suspended", job.id));
        }
    }
}
