//! Checks the limits of accounts and QOS at every start and submission in a journal. The code is
//! independent of the controller: it adds up all jobs each time, in real numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::{Cluster, Entry, Event, Holder};
use spur_core::id::{JobId, NodeId};
use spur_core::model::accounts::qos::QosFlag;
use spur_core::model::accounts::{Association, Charged, LimitKind, Limits, Qos};
use spur_core::model::alloc::Alloc;
use spur_core::model::config::AccountingEnforce;
use spur_core::model::job::Job;
use spur_core::model::phase::{Phase, Then};
use spur_core::text::tres::TresKind;

/// Counts of the checks of limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// Number of starts in clusters that enforce limits.
    pub(crate) starts: u64,
    /// Number of starts after which some limit was used up.
    pub(crate) tight: u64,
    /// The kinds of limits that starts and submissions were compared with.
    pub(crate) kinds: BTreeSet<LimitKind>,
}

/// Tolerance for rounding in sums of real numbers.
const ROUNDING: f64 = 1e-6;

/// Asserts that no limit is exceeded after any entry of a journal.
pub(crate) fn hold<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Judged {
    let mut judged = Judged::default();
    let mut cluster = Cluster::default();
    for entry in journal {
        // A job with a nomination already counted, and was checked, when its victims were preempted.
        let is_kept = |job: &JobId| cluster.job(*job).is_some_and(|job| job.nomination().is_some());
        let was_kept = entry.event.jobs().any(|job| is_kept(&job));
        cluster.apply(entry);
        if !cluster.policy().jobs.enforces(AccountingEnforce::Limits) || !cluster.accounts().has_begun() {
            continue;
        }
        match &entry.event {
            Event::JobStarted { job, .. } | Event::JobNominated { job, .. } if !was_kept => {
                judged.starts += 1;
                let job = cluster.job(*job).expect("it is there");
                // A job that starts at once counts the time until its end; a job with reserved nodes
                // counts its whole time limit.
                let tight = Check::new(&cluster, job, &mut judged.kinds).start();
                judged.tight += u64::from(tight);
            }
            Event::AccrualBegun { jobs } => {
                // Jobs of one entry begin one after another: none counts those behind it.
                for (number, job) in (1..).zip(jobs) {
                    Check::of(&cluster, *job, &mut judged.kinds).accrual(&jobs[number..]);
                }
            }
            Event::JobSubmitted { job, .. } => Check::of(&cluster, *job, &mut judged.kinds).submission(),
            Event::HetJobSubmitted { jobs, .. } => {
                jobs.iter().for_each(|job| Check::of(&cluster, *job, &mut judged.kinds).submission());
            }
            _ => {}
        }
    }
    judged
}

/// The share of one node that a job holds, or that is reserved for the job: CPUs, memory in MiB, and
/// devices by entry of the node.
struct Held {
    node: NodeId,
    cpus: f64,
    memory: f64,
    gres: Vec<(usize, f64)>,
}

fn held(job: &Job) -> Option<Vec<Held>> {
    if let Phase::Pending(pending) = &job.phase {
        let parts = pending.nominated.as_ref()?.parts.iter();
        let gres = |gres: &(u16, u32)| (usize::from(gres.0), f64::from(gres.1));
        let held = parts.map(|part| Held {
            node: part.node,
            cpus: part.cpus.into(),
            memory: real(part.memory_mb),
            gres: part.gres.iter().map(gres).collect(),
        });
        return Some(held.collect());
    }
    let alloc = alloc(job)?;
    let parts = alloc.nodes.iter().chain(alloc.lost.iter().map(|lost| &lost.part));
    let held = parts.map(|part| Held {
        node: part.node,
        cpus: part.cpus.len().into(),
        memory: real(part.memory_mb),
        gres: part.gres.iter().map(|gres| (usize::from(gres.entry), gres.ids.len().into())).collect(),
    });
    Some(held.collect())
}

fn alloc(job: &Job) -> Option<&Alloc> {
    match &job.phase {
        Phase::Running { alloc, .. } => Some(alloc),
        Phase::Suspended(suspended) => Some(&suspended.alloc),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "amounts of simulations are small")]
fn real(count: u64) -> f64 {
    count as f64
}

/// Returns the amount of one resource in a job.
fn amount(cluster: &Cluster, job: &Job, held: &[Held], tres: &TresKind) -> f64 {
    match tres {
        TresKind::Cpu => held.iter().map(|held| held.cpus).sum(),
        TresKind::Mem => held.iter().map(|held| held.memory).sum(),
        TresKind::Node => real(held.len() as u64),
        TresKind::Gres { name, kind } => held.iter().map(|held| devices(cluster, held, name, kind)).sum(),
        TresKind::License(name) => {
            let licenses = job.spec.extra.iter().flat_map(|extra| &extra.licenses);
            licenses.filter(|(of, _)| **of == **name).map(|(_, count)| f64::from(*count)).sum()
        }
        TresKind::Billing => billing(cluster, job, held),
    }
}

fn devices(cluster: &Cluster, held: &Held, name: &str, kind: &Option<String>) -> f64 {
    let gres = &cluster.node(held.node).expect("the node is there").shape.gres;
    let is = |entry: usize| {
        *gres[entry].name == *name && kind.as_ref().is_none_or(|kind| *gres[entry].kind == **kind)
    };
    held.gres.iter().filter(|(entry, _)| is(*entry)).map(|(_, count)| count).sum()
}

/// Billing units of a job per second: by the weights of its partition, or by the largest share of each
/// node.
fn billing(cluster: &Cluster, job: &Job, held: &[Held]) -> f64 {
    let partition = match &job.phase {
        Phase::Pending(pending) => &pending.nominated.as_ref().expect("nodes are kept").partition,
        _ => &alloc(job).expect("it runs").partition,
    };
    let config = &cluster.partition(partition).expect("the partition is there").config;
    if !config.tres_billing_weights.is_empty() {
        let weighted = config.tres_billing_weights.iter().map(|weight| {
            let per = if weight.kind == TresKind::Mem { 1024.0 } else { 1.0 };
            weight.number * amount(cluster, job, held, &weight.kind) / per
        });
        return weighted.sum();
    }
    let share = |held: &Held| {
        let shape = &cluster.node(held.node).expect("the node is there").shape;
        let gpus: f64 =
            shape.gres.iter().filter(|gres| *gres.name == *"gpu").map(|gres| f64::from(gres.count)).sum();
        let of = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let shares = [
            of(held.cpus, shape.cpus.into()),
            of(held.memory, real(shape.memory_mb)),
            of(devices(cluster, held, "gpu", &None), gpus),
        ];
        shares.into_iter().fold(0.0, f64::max) * f64::from(shape.cpus)
    };
    (held.iter().map(share).sum::<f64>() - ROUNDING).ceil()
}

/// The value of a limit by resource; without one of a count.
fn values(limits: &Limits, kind: LimitKind) -> BTreeMap<Option<TresKind>, u64> {
    let count = limits.number(kind).map(|most| (None, most));
    let tres = limits.tres(kind).into_iter().flat_map(|tres| &tres.0);
    count.into_iter().chain(tres.map(|(tres, most)| (Some(tres.clone()), *most))).collect()
}

/// A limit that applies to a job, with the jobs that it counts.
struct Limit<'a> {
    kind: LimitKind,
    tres: Option<TresKind>,
    most: f64,
    counts: Box<dyn Fn(&Job) -> bool + 'a>,
    holder: Holder,
    what: String,
}

/// A check of one job in a cluster.
struct Check<'a> {
    cluster: &'a Cluster,
    job: &'a Job,
    kinds: &'a mut BTreeSet<LimitKind>,
}

impl<'a> Check<'a> {
    fn of(cluster: &'a Cluster, job: JobId, kinds: &'a mut BTreeSet<LimitKind>) -> Self {
        Self::new(cluster, cluster.job(job).expect("it is there"), kinds)
    }

    fn new(cluster: &'a Cluster, job: &'a Job, kinds: &'a mut BTreeSet<LimitKind>) -> Self {
        Self { cluster, job, kinds }
    }

    /// Returns all limits that apply to the job. For each kind and resource, the limit of the first QOS
    /// that sets one counts, else those of associations.
    fn limits(&self) -> Vec<Limit<'a>> {
        let (cluster, tree, job) = (self.cluster, self.cluster.accounts(), self.job);
        let charged = charged(cluster, job);
        let own_qos = charged.qos.and_then(|qos| tree.qos_numbered(qos));
        let mut qos: Vec<&Arc<Qos>> =
            charged.partition_qos.and_then(|qos| tree.qos_numbered(qos)).into_iter().chain(own_qos).collect();
        if own_qos.is_some_and(|own| own.flags.contains(&QosFlag::OverPartQOS)) {
            qos.reverse();
        }
        let mut set: BTreeSet<(LimitKind, Option<TresKind>)> = BTreeSet::new();
        let mut limits = Vec::new();
        for qos in qos {
            for kind in LimitKind::ALL {
                for (tres, most) in values(&qos.limits, *kind) {
                    if set.insert((*kind, tres.clone())) {
                        limits.push(self.of_qos(qos, *kind, tres, most));
                    }
                }
            }
        }
        let replaced = |kind: LimitKind, tres: &Option<TresKind>| {
            let alike: &[LimitKind] = match kind {
                LimitKind::MaxJobs => &[LimitKind::MaxJobsPerUser, LimitKind::MaxJobsPerAccount],
                LimitKind::MaxJobsAccrue => {
                    &[LimitKind::MaxJobsAccruePerUser, LimitKind::MaxJobsAccruePerAccount]
                }
                LimitKind::MaxSubmitJobs => {
                    &[LimitKind::MaxSubmitJobsPerUser, LimitKind::MaxSubmitJobsPerAccount]
                }
                _ => &[],
            };
            let alike = alike.iter().chain([&kind]);
            alike.into_iter().any(|kind| set.contains(&(*kind, tres.clone())))
        };
        let own =
            tree.association(charged.association.expect("all users have accounts")).expect("it is there");
        let chain: Vec<&'a Arc<Association>> = tree.chain(own).collect();
        for kind in LimitKind::ALL.iter().filter(|kind| kind.is_of_associations()) {
            // For a limit of a kind that is inherited, the nearest association with a value counts.
            let mut seen: BTreeSet<Option<TresKind>> = BTreeSet::new();
            for above in &chain {
                for (tres, most) in values(&above.limits, *kind) {
                    if replaced(*kind, &tres) || (kind.inherits() && !seen.insert(tres.clone())) {
                        continue;
                    }
                    let counted = if kind.inherits() { own } else { *above };
                    limits.push(self.of_association(counted, *kind, tres, most));
                }
            }
        }
        limits
    }

    fn of_qos(&self, qos: &'a Qos, kind: LimitKind, tres: Option<TresKind>, most: u64) -> Limit<'a> {
        let cluster = self.cluster;
        let within = move |job: &Job| {
            let charged = charged(cluster, job);
            [charged.qos, charged.partition_qos].contains(&Some(qos.id))
        };
        let user = Arc::clone(&self.job.spec.owner.user);
        let own = account(cluster, self.job);
        let counts: Box<dyn Fn(&Job) -> bool + 'a> = match kind {
            LimitKind::MaxJobsPerUser
            | LimitKind::MaxJobsAccruePerUser
            | LimitKind::MaxSubmitJobsPerUser
            | LimitKind::MaxTresPerUser
            | LimitKind::MaxTresRunMins => Box::new(move |job| within(job) && job.spec.owner.user == user),
            LimitKind::MaxJobsPerAccount
            | LimitKind::MaxJobsAccruePerAccount
            | LimitKind::MaxSubmitJobsPerAccount
            | LimitKind::MaxTresPerAccount
            | LimitKind::MaxTresRunMinsPerAccount => {
                Box::new(move |job| within(job) && account(cluster, job) == own)
            }
            _ => Box::new(within),
        };
        let what = format!("{kind:?} {tres:?} of QOS {}", qos.name);
        Limit { kind, tres, most: real(most), counts, holder: Holder::Qos(qos.id), what }
    }

    fn of_association(
        &self,
        above: &'a Association,
        kind: LimitKind,
        tres: Option<TresKind>,
        most: u64,
    ) -> Limit<'a> {
        let (cluster, tree) = (self.cluster, self.cluster.accounts());
        let counts = move |job: &Job| {
            let own = charged(cluster, job).association.and_then(|own| tree.association(own));
            own.is_some_and(|own| tree.chain(own).any(|association| association.id == above.id))
        };
        let what = format!("{kind:?} {tres:?} of {} {:?}", above.account, above.user);
        let holder = Holder::Association(above.id);
        Limit { kind, tres, most: real(most), counts: Box::new(counts), holder, what }
    }

    /// True if a start used some limit up. Asserts that the start exceeded no limit.
    fn start(&mut self) -> bool {
        let (cluster, job) = (self.cluster, self.job);
        let safe = cluster.policy().jobs.enforces(AccountingEnforce::Safe);
        let own = held(job).expect("it runs, or nodes are kept for it");
        let all: Vec<(&Job, Vec<Held>)> =
            cluster.jobs().iter().filter_map(|job| Some((job, held(job)?))).collect();
        let seconds = |job: &Job| seconds_left(cluster, job);
        let mut tight = false;
        for limit in self.limits() {
            let exempts = job.spec.exempt().any(|exempt| exempt.lifts(limit.kind, limit.tres.as_ref()));
            if exempts || limit.kind.counts_submitted() {
                continue;
            }
            let counted = || all.iter().filter(|(job, _)| (limit.counts)(job));
            let of = |job: &Job, held: &[Held]| {
                limit.tres.as_ref().map_or(1.0, |tres| amount(cluster, job, held, tres))
            };
            let wants = of(job, &own);
            let sum = || counted().map(|(job, held)| of(job, held)).sum::<f64>();
            let sum_of_time =
                || counted().map(|(job, held)| of(job, held) * seconds(job) / 60.0).sum::<f64>();
            let used = match limit.kind {
                LimitKind::GrpTres
                | LimitKind::GrpJobs
                | LimitKind::MaxJobs
                | LimitKind::MaxJobsPerUser
                | LimitKind::MaxJobsPerAccount
                | LimitKind::MaxTresPerUser
                | LimitKind::MaxTresPerAccount => sum(),
                LimitKind::GrpTresRunMins | LimitKind::MaxTresRunMinsPerAccount => sum_of_time(),
                LimitKind::MaxTresRunMins if matches!(limit.holder, Holder::Qos(_)) => sum_of_time(),
                LimitKind::MaxTres => wants,
                LimitKind::MaxTresPerNode => {
                    let tres = limit.tres.as_ref().expect("it is of a resource");
                    let each = own.iter().map(|held| amount(cluster, job, std::slice::from_ref(held), tres));
                    each.fold(0.0, f64::max)
                }
                LimitKind::MaxTresMins => wants * seconds(job) / 60.0,
                LimitKind::MaxWall => (seconds(job) / 60.0).ceil(),
                LimitKind::GrpTresMins => {
                    let tres = limit.tres.as_ref().expect("it is of a resource");
                    let past = cluster.usage().past(&limit.holder, tres).real() / 60.0;
                    assert!(past < limit.most + ROUNDING, "{} is used up: {past}", limit.what);
                    if safe { past + sum_of_time() } else { past }
                }
                LimitKind::GrpWall => cluster.usage().past_wall(&limit.holder).real() / 60.0,
                LimitKind::MinTres => {
                    assert!(wants >= limit.most - ROUNDING, "job {}: {} is {wants}", job.id, limit.what);
                    self.kinds.insert(limit.kind);
                    continue;
                }
                _ => continue,
            };
            self.kinds.insert(limit.kind);
            let asks_none = wants == 0.0;
            assert!(
                asks_none || used <= limit.most + ROUNDING,
                "entry {}: job {} exceeds {}: {used} of {}",
                cluster.seq(),
                job.id,
                limit.what,
                limit.most
            );
            tight |= (used - limit.most).abs() < ROUNDING;
        }
        tight
    }

    /// Asserts that no limit on the number of jobs that gain age is exceeded. Jobs in `behind` do not count.
    fn accrual(&mut self, behind: &[JobId]) {
        let begins_later = |job: &&Job| behind.contains(&job.id);
        let gains_age = |job: &&Job| {
            matches!(&job.phase, Phase::Pending(one) if one.accrued.is_some()) && !begins_later(job)
        };
        for limit in self.limits().into_iter().filter(|limit| limit.kind.counts_accruing()) {
            let counted = self.cluster.jobs().iter().filter(gains_age).filter(|job| (limit.counts)(job));
            let counted: Vec<&Job> = counted.collect();
            let all: f64 = counted.iter().map(|job| real(tasks(job))).sum();
            let jobs: Vec<JobId> = counted.iter().map(|job| job.id).collect();
            assert!(
                all <= limit.most,
                "entry {}: job {}: {all} jobs of {} of {}: {jobs:?}",
                self.cluster.seq(),
                self.job.id,
                limit.most,
                limit.what
            );
            self.kinds.insert(limit.kind);
        }
    }

    /// Asserts that no limit of submissions is exceeded.
    fn submission(&mut self) {
        for limit in self.limits().into_iter().filter(|limit| limit.kind.counts_submitted()) {
            let counted = self.cluster.jobs().iter().filter(|job| (limit.counts)(job));
            let all: f64 = counted.map(|job| real(tasks(job))).sum();
            assert!(all <= limit.most, "job {}: {all} jobs of {} of {}", self.job.id, limit.most, limit.what);
            self.kinds.insert(limit.kind);
        }
    }
}

/// Returns the association and the QOS for which a job counts: those with which the job started, or those
/// of its first partition.
fn charged(cluster: &Cluster, job: &Job) -> Charged {
    match &job.phase {
        Phase::Running { alloc, .. } => alloc.charged,
        Phase::Suspended(suspended) => suspended.alloc.charged,
        Phase::Completing(completing) => completing.alloc.charged,
        Phase::Pending(pending) => {
            let partition = pending.nominated.as_ref().map(|kept| &kept.partition);
            let partition = partition.or(job.spec.partitions.first()).expect("it names one");
            cluster.charged(&job.spec, cluster.partition(partition).expect("the partition is there"))
        }
        Phase::Ended(_) => Charged::default(),
    }
}

fn account(cluster: &Cluster, job: &Job) -> Option<Arc<str>> {
    let own = charged(cluster, job).association?;
    cluster.accounts().association(own).map(|own| Arc::clone(&own.account))
}

/// Returns the seconds until the job must release its resources.
fn seconds_left(cluster: &Cluster, job: &Job) -> f64 {
    let left = match &job.phase {
        Phase::Running { started, .. } => job.ends_at(*started).since(cluster.at()),
        Phase::Pending(_) => job.spec.time_limit.seconds().expect("all jobs have limits"),
        _ => job.remaining(cluster.at()).seconds().expect("all jobs have limits"),
    };
    real(left)
}

/// Returns the number of jobs for which a record counts while it waits or runs.
fn tasks(job: &Job) -> u64 {
    match &job.phase {
        Phase::Ended(_) => 0,
        Phase::Completing(completing) if completing.then == Then::End => 0,
        _ => job.task_count() as u64,
    }
}
