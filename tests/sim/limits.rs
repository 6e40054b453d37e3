//! The limits of accounts and QOS, judged anew at every start and submission in a journal, by code that shares nothing with
//! the controller's: it adds up all jobs each time.

use std::collections::BTreeMap;

use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::id::JobId;
use spur_core::model::accounts::{Association, LimitKind, Qos};
use spur_core::model::alloc::Alloc;
use spur_core::model::config::AccountingEnforce;
use spur_core::model::job::Job;
use spur_core::model::phase::{Phase, Then};
use spur_core::text::time::Time;
use spur_core::text::tres::TresKind;

/// How often limits were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Starts in clusters that enforce limits.
    pub(crate) starts: u64,
    /// Starts after which some limit was used up.
    pub(crate) tight: u64,
}

/// Asserts that no limit is exceeded after any entry of a journal.
pub(crate) fn hold<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Judged {
    let mut judged = Judged::default();
    let mut cluster = Cluster::default();
    for entry in journal {
        // Such a job counted, and was judged, when others were told to leave for it.
        let is_kept = |job: &JobId| cluster.job(*job).is_some_and(|job| job.nomination().is_some());
        let was_kept = entry.event.jobs().any(|job| is_kept(&job));
        cluster.apply(entry);
        if !cluster.policy().jobs.enforces(AccountingEnforce::Limits) || !cluster.accounts().has_begun() {
            continue;
        }
        match &entry.event {
            Event::JobStarted { job, .. } if !was_kept => {
                judged.starts += 1;
                judged.tight += u64::from(started(&cluster, cluster.job(*job).expect("it started")));
            }
            Event::JobSubmitted { .. } | Event::HetJobSubmitted { .. } => submitted(&cluster),
            _ => {}
        }
    }
    judged
}

/// What a job has in use.
fn amount(job: &Job, tres: Option<&TresKind>) -> u64 {
    let alloc = alloc(job).expect("it runs");
    match tres {
        None => 1,
        Some(TresKind::Cpu) => {
            let lost: u64 = alloc.lost.iter().map(|lost| u64::from(lost.part.cpus.len())).sum();
            alloc.cpus() + lost
        }
        Some(TresKind::Node) => (alloc.nodes.len() + alloc.lost.len()) as u64,
        Some(other) => panic!("no limit of the simulation is of {other}"),
    }
}

fn alloc(job: &Job) -> Option<&Alloc> {
    match &job.phase {
        Phase::Running { alloc, .. } => Some(alloc),
        Phase::Suspended(suspended) => Some(&suspended.alloc),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
    }
}

/// Minutes that a job may still run, in seconds times CPUs.
fn rest(job: &Job, now: Time) -> u64 {
    let left = match &job.phase {
        Phase::Running { started, .. } => job.ends_at(*started).since(now),
        _ => job.remaining(now).seconds().expect("all jobs have limits"),
    };
    left * amount(job, Some(&TresKind::Cpu))
}

/// The value of a limit by resource; without one of a count.
fn values(limits: &spur_core::model::accounts::Limits, kind: LimitKind) -> BTreeMap<Option<TresKind>, u64> {
    let count = limits.number(kind).map(|most| (None, most));
    let tres = limits.tres(kind).into_iter().flat_map(|tres| &tres.0);
    count.into_iter().chain(tres.map(|(tres, most)| (Some(tres.clone()), *most))).collect()
}

/// Whether a start used some limit up; asserts that it exceeded none.
fn started(cluster: &Cluster, job: &Job) -> bool {
    let tree = cluster.accounts();
    let charged = alloc(job).expect("it runs").charged;
    let qos = [charged.partition_qos, charged.qos].into_iter().flatten();
    let qos: Vec<&Qos> = qos.filter_map(|number| tree.qos_numbered(number)).map(|qos| &**qos).collect();
    let own = tree.association(charged.association.expect("all users have accounts")).expect("it is there");
    let chain: Vec<&Association> = tree.chain(own).map(|association| &**association).collect();
    let running: Vec<&Job> = cluster.jobs().active().filter(|job| alloc(job).is_some()).collect();
    let of = |job: &Job| alloc(job).expect("it runs").charged;
    let in_qos = |job: &Job, qos: &Qos| [of(job).qos, of(job).partition_qos].contains(&Some(qos.id));
    let account = |job: &Job| {
        tree.association(of(job).association.expect("it has one")).expect("it is there").account.clone()
    };
    let below = |job: &Job, above: &Association| {
        let own = tree.association(of(job).association.expect("it has one")).expect("it is there");
        tree.chain(own).any(|association| association.id == above.id)
    };
    let sum = |tres: &Option<TresKind>, counts: &dyn Fn(&Job) -> bool| -> u64 {
        running.iter().filter(|job| counts(job)).map(|job| amount(job, tres.as_ref())).sum()
    };
    let mut tight = false;
    let mut check = |what: &str, used: u64, most: u64| {
        assert!(used <= most, "entry {}: job {} exceeds {what}: {used} of {most}", cluster.seq(), job.id);
        tight |= used == most;
    };
    let user = &job.spec.owner.user;
    let mut set: Vec<(LimitKind, Option<TresKind>)> = Vec::new();
    for qos in &qos {
        for kind in LimitKind::ALL {
            for (tres, most) in values(&qos.limits, *kind) {
                let counts: Box<dyn Fn(&Job) -> bool> = match kind {
                    LimitKind::GrpTres | LimitKind::GrpJobs => Box::new(|job| in_qos(job, qos)),
                    LimitKind::MaxJobsPerUser | LimitKind::MaxTresPerUser => {
                        Box::new(|job| in_qos(job, qos) && job.spec.owner.user == *user)
                    }
                    LimitKind::MaxJobsPerAccount | LimitKind::MaxTresPerAccount => {
                        let own = account(job);
                        Box::new(move |job| in_qos(job, qos) && account(job) == own)
                    }
                    _ => continue,
                };
                if !set.contains(&(*kind, tres.clone())) {
                    check(&format!("{kind:?} of QOS {}", qos.name), sum(&tres, &*counts), most);
                    set.push((*kind, tres));
                }
            }
        }
    }
    for (level, association) in chain.iter().enumerate() {
        for kind in [LimitKind::GrpTres, LimitKind::GrpJobs] {
            for (tres, most) in values(&association.limits, kind) {
                if !set.contains(&(kind, tres.clone())) {
                    let used = sum(&tres, &|job| below(job, association));
                    check(&format!("{kind:?} of account {}", association.account), used, most);
                }
            }
        }
        if let Some(most) = association.limits.tres(LimitKind::GrpTresRunMins) {
            let used: u64 =
                running.iter().filter(|job| below(job, association)).map(|job| rest(job, cluster.at())).sum();
            check("GrpTRESRunMins", used, most.get(&TresKind::Cpu) * 60);
        }
        let is_set = set
            .iter()
            .any(|(kind, _)| matches!(kind, LimitKind::MaxJobsPerUser | LimitKind::MaxJobsPerAccount));
        if level == 0 && !is_set {
            // The user's own limit, or that of the nearest account with one.
            let most = chain.iter().find_map(|above| above.limits.number(LimitKind::MaxJobs));
            most.into_iter().for_each(|most| check("MaxJobs", sum(&None, &|job| below(job, own)), most));
        }
    }
    tight
}

/// Asserts that no limit of submissions is exceeded.
fn submitted(cluster: &Cluster) {
    let tree = cluster.accounts();
    let tasks = |job: &Job| -> u64 {
        match &job.phase {
            Phase::Ended(_) => 0,
            Phase::Completing(completing) if completing.then == Then::End => 0,
            _ => job.task_count() as u64,
        }
    };
    for association in tree.walk() {
        let association = association.association;
        let Some(most) = association.limits.number(LimitKind::GrpSubmitJobs) else { continue };
        let counts = |job: &&Job| {
            let found = job.spec.partitions.first().and_then(|name| tree.counts_for(&job.spec, name));
            found.is_some_and(|own| tree.chain(own).any(|above| above.id == association.id))
        };
        let all: u64 = cluster.jobs().iter().filter(counts).map(tasks).sum();
        assert!(all <= most, "{all} jobs of {most} in account {}", association.account);
    }
}
