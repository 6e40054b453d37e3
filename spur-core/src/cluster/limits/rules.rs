//! The limits that apply to the jobs of a user in an account and a QOS, in Slurm's order of precedence.

use std::fmt;
use std::sync::Arc;

use super::super::Cluster;
use super::super::accounts::Accounts;
use super::super::holder::Holder;
use crate::model::accounts::limits::Unit;
use crate::model::accounts::qos::QosFlag;
use crate::model::accounts::usage::Rate;
use crate::model::accounts::{Association, Charged, LimitKind, Limits, Qos};
use crate::text::tres::TresKind;

use LimitKind::{
    GrpJobs, GrpJobsAccrue, GrpSubmitJobs, GrpTres, GrpTresMins, GrpTresRunMins, GrpWall, MaxJobs,
    MaxJobsAccrue, MaxJobsAccruePerAccount, MaxJobsAccruePerUser, MaxJobsPerAccount, MaxJobsPerUser,
    MaxSubmitJobs, MaxSubmitJobsPerAccount, MaxSubmitJobsPerUser, MaxTres, MaxTresMins, MaxTresPerAccount,
    MaxTresPerNode, MaxTresPerUser, MaxTresRunMins, MaxTresRunMinsPerAccount, MaxWall, MinPrioThreshold,
    MinTres,
};

/// The kinds of QOS limits that a start is judged by, before and after nodes are chosen, each in Slurm's
/// order.
pub(super) const IN_QOS: [&[LimitKind]; 2] = [
    &[GrpJobs, GrpWall, MaxJobsPerAccount, MaxJobsPerUser, MaxWall],
    &[
        GrpTresMins,
        GrpTres,
        GrpTresRunMins,
        MaxTresMins,
        MaxTres,
        MaxTresPerNode,
        MinTres,
        MaxTresPerAccount,
        MaxTresPerUser,
        MaxTresRunMinsPerAccount,
        MaxTresRunMins,
    ],
];

/// The kinds of association limits that a start is judged by, before and after nodes are chosen, in Slurm's
/// order.
pub(super) const IN_ASSOCIATIONS: [&[LimitKind]; 2] = [
    &[GrpJobs, GrpWall, MaxJobs, MaxWall],
    &[GrpTresMins, GrpTres, GrpTresRunMins, MaxTresMins, MaxTres, MaxTresPerNode],
];

/// The kinds of QOS limits that a submission is judged by, in Slurm's order.
const AT_SUBMIT: [&[LimitKind]; 1] = [&[
    MaxTresPerAccount,
    MaxTresPerUser,
    GrpTres,
    GrpSubmitJobs,
    MaxTresMins,
    GrpTresMins,
    GrpTresRunMins,
    MaxTresRunMinsPerAccount,
    MaxTresRunMins,
    MaxWall,
    GrpWall,
    MaxTres,
    MaxTresPerNode,
    MaxSubmitJobsPerAccount,
    MaxSubmitJobsPerUser,
    MinTres,
]];

/// The kinds of association limits that a submission is judged by, in Slurm's order.
const OF_ASSOCIATIONS_AT_SUBMIT: [&[LimitKind]; 1] = [&[
    GrpTres,
    GrpSubmitJobs,
    GrpTresMins,
    GrpTresRunMins,
    MaxTresMins,
    MaxWall,
    GrpWall,
    MaxTres,
    MaxTresPerNode,
    MaxSubmitJobs,
]];

/// The kinds of limits on the number of jobs that gain age.
const ON_ACCRUAL: [&[LimitKind]; 1] = [&[GrpJobsAccrue, MaxJobsAccruePerAccount, MaxJobsAccruePerUser]];

/// The kinds of association limits on the number of jobs that gain age.
const OF_ASSOCIATIONS_ON_ACCRUAL: [&[LimitKind]; 1] = [&[GrpJobsAccrue, MaxJobsAccrue]];

/// The entity that sets a limit, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setter {
    /// The QOS of this name.
    Qos(Arc<str>),
    /// An account, or a user in it.
    Association {
        /// Account of the association.
        account: Arc<str>,
        /// The user; `None` for the account itself.
        user: Option<Arc<str>>,
    },
}

impl fmt::Display for Setter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setter::Qos(name) => write!(f, "QOS {name}"),
            Setter::Association { account, user: None } => write!(f, "account {account}"),
            Setter::Association { account, user: Some(user) } => {
                write!(f, "user {user} in account {account}")
            }
        }
    }
}

/// One limit: of jobs, of minutes, or of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind of limit.
    pub kind: LimitKind,
    /// The resource that is limited; `None` for limits of jobs or minutes.
    pub tres: Option<TresKind>,
    /// The largest allowed amount; for `MinTRES` the smallest.
    pub most: u64,
    /// The entity that sets the limit.
    pub setter: Setter,
    /// The entity whose jobs the limit counts; for a limit of one job, the entity that sets the limit.
    pub holder: Holder,
}

/// The limits that apply to jobs, in the order in which they are judged.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The limits that a start is judged by.
    pub start: Vec<Arc<Rule>>,
    /// The limits that a submission is judged by.
    pub submit: Vec<Arc<Rule>>,
    /// The limits on the number of pending jobs that gain priority by age.
    pub accrual: Vec<Arc<Rule>>,
    /// True if a submission that exceeds any limit by itself is refused: one of the job's QOS has
    /// `DenyOnLimit`, or the job has no QOS.
    pub strict: bool,
    /// True if a limit of a start counts the resources on each node (`MaxTRESPerNode`).
    pub limit_nodes: bool,
    /// True if all limits of a start count running jobs, so that nothing but the amounts of a job matters.
    pub only_running: bool,
    /// The priority below which no nodes are kept for a waiting job (`MinPrioThreshold`): that of the first
    /// QOS that sets one, else that of the association; `None` if there is none.
    pub least_priority: Option<u64>,
    /// The factor of the jobs' time in limits of resources times minutes; `None` for 1.
    pub time_factor: Option<Rate>,
    /// The entities that the jobs count for.
    pub holders: Arc<[Holder]>,
}

/// The QOS and the associations that set limits for a job.
struct Sources<'a> {
    cluster: &'a Cluster,
    tree: &'a Accounts,
    /// The QOS in their order of precedence.
    qos: Vec<&'a Arc<Qos>>,
    /// The association of the job and all above it.
    chain: Vec<&'a Arc<Association>>,
    /// The limits of the association of the job, inherited ones included.
    resolved: Limits,
    user: &'a Arc<str>,
    /// The factor by which TRES limits of associations are multiplied (`LimitFactor`).
    factor: Option<f64>,
}

impl Rules {
    /// The limits for the jobs of a user.
    #[must_use]
    pub fn new(cluster: &Cluster, charged: Charged, user: &Arc<str>) -> Self {
        let sources = Sources::new(cluster, charged, user);
        let own = charged.qos.and_then(|number| sources.tree.qos_numbered(number));
        let strict = own.is_none() || sources.qos.iter().any(|qos| qos.flags.contains(&QosFlag::DenyOnLimit));
        let start = sources.rules(&IN_QOS, &IN_ASSOCIATIONS);
        Self {
            limit_nodes: start.iter().any(|rule| rule.kind == MaxTresPerNode),
            only_running: start.iter().all(|rule| rule.kind.counts_running()),
            start,
            submit: sources.rules(&AT_SUBMIT, &OF_ASSOCIATIONS_AT_SUBMIT),
            accrual: sources.rules(&ON_ACCRUAL, &OF_ASSOCIATIONS_ON_ACCRUAL),
            strict,
            least_priority: sources.least_priority(),
            time_factor: cluster.time_factor(charged),
            holders: Holder::of(sources.tree, charged, user).into(),
        }
    }

    /// The longest time limit in minutes that the limits allow the jobs; `None` without such a limit.
    #[must_use]
    pub fn most_minutes(&self) -> Option<u64> {
        self.start.iter().find(|rule| rule.kind == MaxWall).map(|rule| rule.most)
    }
}

/// The kind under which limits compete: a limit of a QOS replaces the association's limit of the same kind.
fn alike(kind: LimitKind) -> LimitKind {
    match kind {
        MaxJobsPerUser | MaxJobsPerAccount => MaxJobs,
        MaxSubmitJobsPerUser | MaxSubmitJobsPerAccount => MaxSubmitJobs,
        MaxJobsAccruePerUser | MaxJobsAccruePerAccount => MaxJobsAccrue,
        other => other,
    }
}

/// The values that limits set for a kind: one, or one for each resource.
fn values(limits: &Limits, kind: LimitKind) -> Vec<(Option<TresKind>, u64)> {
    match kind.unit() {
        Unit::Tres => {
            let amounts = limits.tres(kind).into_iter().flat_map(|tres| &tres.0);
            amounts.map(|(tres, most)| (Some(tres.clone()), *most)).collect()
        }
        Unit::Count | Unit::Minutes => limits.number(kind).map(|most| (None, most)).into_iter().collect(),
    }
}

impl<'a> Sources<'a> {
    fn new(cluster: &'a Cluster, charged: Charged, user: &'a Arc<str>) -> Self {
        let tree = &**cluster.accounts();
        let own = charged.qos.and_then(|number| tree.qos_numbered(number));
        let of_partition = charged.partition_qos.and_then(|number| tree.qos_numbered(number));
        let goes_first = own.is_some_and(|own| own.flags.contains(&QosFlag::OverPartQOS));
        let mut qos: Vec<&Arc<Qos>> = of_partition.into_iter().chain(own).collect();
        if goes_first {
            qos.reverse();
        }
        qos.dedup_by_key(|qos| qos.id);
        let association = charged.association.and_then(|id| tree.association(id));
        let chain = association.map_or_else(Vec::new, |own| tree.chain(own).collect());
        let resolved = association.map(|own| tree.limits_of(own)).unwrap_or_default();
        let factor = own.and_then(|own| own.limit_factor);
        Self { cluster, tree, qos, chain, resolved, user, factor }
    }

    fn least_priority(&self) -> Option<u64> {
        let of_qos = self.qos.iter().find_map(|qos| qos.limits.number(MinPrioThreshold));
        let of_association = || self.chain.iter().find_map(|own| own.limits.number(MinPrioThreshold));
        of_qos.or_else(of_association)
    }

    /// The limits of these kinds, stage by stage; in each stage those of QOS come first.
    fn rules(&self, of_qos: &[&[LimitKind]], of_associations: &[&[LimitKind]]) -> Vec<Arc<Rule>> {
        let mut rules: Vec<Arc<Rule>> = Vec::new();
        for (of_qos, of_associations) in of_qos.iter().zip(of_associations) {
            let stage = rules.len();
            for qos in &self.qos {
                let others = rules.len();
                for rule in self.of_qos(qos, of_qos) {
                    let is_it = |set: &Arc<Rule>| (set.kind, &set.tres) == (rule.kind, &rule.tres);
                    // The first QOS that sets a limit wins.
                    if !rules[stage..others].iter().any(is_it) {
                        rules.push(Arc::new(rule));
                    }
                }
            }
            let by_qos = stage..rules.len();
            for (level, association) in self.chain.iter().enumerate() {
                let limits = if level == 0 { &self.resolved } else { &association.limits };
                let applies = |kind: &&LimitKind| level == 0 || !kind.inherits();
                for kind in of_associations.iter().filter(applies) {
                    for (tres, most) in values(limits, *kind) {
                        let is_it = |set: &Arc<Rule>| alike(set.kind) == *kind && set.tres == tres;
                        if !rules[by_qos.clone()].iter().any(is_it) {
                            rules.push(Arc::new(self.of_association(association, *kind, (tres, most))));
                        }
                    }
                }
            }
        }
        rules
    }

    fn of_qos<'s>(&'s self, qos: &'s Arc<Qos>, kinds: &'s [LimitKind]) -> impl Iterator<Item = Rule> + 's {
        let account = self.chain.first().map(|own| &own.account);
        let values =
            kinds.iter().flat_map(|kind| values(&qos.limits, *kind).into_iter().map(|of| (*kind, of)));
        values.filter_map(move |(kind, (tres, most))| {
            let qos_of = |user: &Arc<str>| Holder::QosUser { qos: qos.id, user: Arc::clone(user) };
            let holder = match kind {
                MaxJobsPerUser | MaxJobsAccruePerUser | MaxSubmitJobsPerUser | MaxTresPerUser
                | MaxTresRunMins => qos_of(self.user),
                MaxJobsPerAccount
                | MaxJobsAccruePerAccount
                | MaxSubmitJobsPerAccount
                | MaxTresPerAccount
                | MaxTresRunMinsPerAccount => {
                    Holder::QosAccount { qos: qos.id, account: Arc::clone(account?) }
                }
                _ => Holder::Qos(qos.id),
            };
            let most = self.relative(qos, kind, tres.as_ref(), most);
            Some(Rule { kind, tres, most, setter: Setter::Qos(Arc::clone(&qos.name)), holder })
        })
    }

    fn of_association(
        &self,
        association: &Association,
        kind: LimitKind,
        (tres, most): (Option<TresKind>, u64),
    ) -> Rule {
        let is_outsider = kind.inherits() && association.user.is_none();
        let user = if is_outsider { Some(self.user) } else { association.user.as_ref() };
        let setter = Setter::Association { account: Arc::clone(&association.account), user: user.cloned() };
        let holder = match is_outsider {
            true => Holder::Outsider { account: association.id, user: Arc::clone(self.user) },
            false => Holder::Association(association.id),
        };
        Rule { most: self.scaled(most, tres.is_some()), kind, tres, setter, holder }
    }

    /// The amount of a limit of a QOS: with the flag `Relative`, the percentage of what the cluster has, or
    /// the partition whose QOS it is, rounded down.
    fn relative(&self, qos: &Qos, kind: LimitKind, tres: Option<&TresKind>, most: u64) -> u64 {
        let is_relative = kind.may_be_relative() && qos.flags.contains(&QosFlag::Relative);
        let Some(tres) = tres.filter(|_| is_relative) else { return most };
        let mut partitions = self.cluster.partitions().iter();
        let partition = partitions.find(|one| one.config.qos.as_ref() == Some(&qos.name));
        let all = u128::from(self.cluster.has_in_all(tres, partition));
        u64::try_from(all * u128::from(most) / 100).unwrap_or(u64::MAX)
    }

    /// A limit of an association, multiplied by `LimitFactor` if it is one of resources.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a limit beyond 2^53 is none, and conversions stop at the bounds"
    )]
    fn scaled(&self, most: u64, is_tres: bool) -> u64 {
        match self.factor.filter(|factor| is_tres && *factor > 0.0) {
            Some(factor) => (most as f64 * factor) as u64,
            None => most,
        }
    }
}
