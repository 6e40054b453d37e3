//! Usage of associations and QOS: resources and billing that their jobs have used, after decay.
//!
//! Only `apply` changes usage: at the end of a run and at each
//! [`Event::UsageRolled`](super::Event::UsageRolled). A run counts for its association, all associations
//! above that, its QOS and the QOS of its partition. Time during which a run was suspended does not count.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::fair_share::FairShares;
use super::holder::Holder;
use super::{AccountChange, Accounts, Cluster, Partition};
use crate::id::JobId;
use crate::model::accounts::qos::QosFlag;
use crate::model::accounts::usage::{Amount, Rate, Ratio};
use crate::model::accounts::{Association, AssociationId, Charged, Limits};
use crate::model::alloc::Alloc;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::Phase;
use crate::text::time::Time;
use crate::text::tres::{Tres, TresKind};

/// The number of the association of the account `root`.
pub(super) const ROOT_ASSOCIATION: AssociationId = AssociationId(1);

/// The usage of one entity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// Billing of the usage times its seconds, after decay.
    pub billing: Amount,
    /// Billing times seconds at the last roll; fair-share ranks use this value.
    pub ranked: Amount,
    /// Seconds that runs have lasted.
    pub wall: Amount,
    /// Resources times seconds, by the order in which resources were first used; shorter if the last were
    /// never used.
    tres: Vec<Amount>,
    /// The part of all these amounts that another batch system counted; `None` if nothing was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    imported: Option<Box<Used>>,
}

impl Used {
    fn each(&mut self, change: fn(Amount, Ratio) -> Amount, ratio: Ratio) {
        for amount in [&mut self.billing, &mut self.wall].into_iter().chain(&mut self.tres) {
            *amount = change(*amount, ratio);
        }
        if let Some(imported) = &mut self.imported {
            imported.each(change, ratio);
        }
    }

    /// Makes the billing so far the usage by which fair-share ranks are computed.
    fn rank(&mut self) {
        self.ranked = self.billing;
        if let Some(imported) = &mut self.imported {
            imported.rank();
        }
    }

    /// Replaces the part that another batch system counted.
    fn import(&mut self, used: Used) {
        if let Some(before) = self.imported.take() {
            self.join(&before, Amount::minus);
        }
        self.join(&used, Amount::plus);
        self.imported = Some(Box::new(used));
    }

    fn add(&mut self, run: &Run, seconds: u64, sum: fn(Amount, Amount) -> Amount) {
        let more = |amount: &mut Amount, rate: Rate| *amount = sum(*amount, Amount::of(rate, seconds));
        more(&mut self.billing, run.billing);
        more(&mut self.wall, run.wall);
        for (kind, rate) in &run.tres {
            let kind = usize::from(*kind);
            if self.tres.len() <= kind {
                self.tres.resize(kind + 1, Amount::ZERO);
            }
            more(&mut self.tres[kind], *rate);
        }
    }

    /// Adds another entity's usage, or subtracts it, by `sum`.
    fn join(&mut self, other: &Used, sum: fn(Amount, Amount) -> Amount) {
        self.billing = sum(self.billing, other.billing);
        self.ranked = sum(self.ranked, other.ranked);
        self.wall = sum(self.wall, other.wall);
        if self.tres.len() < other.tres.len() {
            self.tres.resize(other.tres.len(), Amount::ZERO);
        }
        for (own, other) in self.tres.iter_mut().zip(&other.tres) {
            *own = sum(*own, *other);
        }
        if let Some(other) = &other.imported {
            self.imported.get_or_insert_default().join(other, sum);
        }
    }
}

/// A run whose usage is being counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The entities that the run is counted for, apart from the associations above the first: the association
    /// or the outsider, then QOS.
    #[serde(rename = "payers")]
    holders: Vec<Holder>,
    /// The associations above the first holder when the run started, from the bottom up.
    above: Vec<AssociationId>,
    /// Billing per second, with the usage factor of the QOS.
    billing: Rate,
    wall: Rate,
    /// Amount per second of each resource, by the resource's number.
    tres: Vec<(u16, Rate)>,
    /// Number of seconds of the run counted so far.
    counted: u64,
}

/// Usage of all entities of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    kinds: Vec<TresKind>,
    used: BTreeMap<Holder, Used>,
    runs: BTreeMap<JobId, Run>,
    /// Time up to which usage has decayed.
    rolled: Time,
    /// Time of the next reset of usage to zero; `None` for never.
    next_reset: Option<Time>,
    /// Wall-clock time of the last reset of usage to zero.
    last_reset: Option<Time>,
    /// The time zone in whose midnights resets fall; empty until one is planned.
    zone: Arc<str>,
    /// The fair-share ranks that follow, computed on demand.
    pub(super) shares: OnceLock<Arc<FairShares>>,
}

/// A record of usage in a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UsageRecord {
    /// The header: resources by number, the decay and the resets.
    Head {
        /// The resources ever used; their index is their number.
        kinds: Vec<TresKind>,
        /// Time up to which usage has decayed.
        rolled: Time,
        /// Time of the next reset of usage to zero; `None` for never.
        #[serde(default)]
        next_reset: Option<Time>,
        /// Wall-clock time of the last reset of usage to zero.
        #[serde(default)]
        last_reset: Option<Time>,
        /// The time zone of resets.
        #[serde(default)]
        zone: Arc<str>,
    },
    /// The usage of an entity.
    Used(Holder, Used),
    /// A run that is counted.
    Run(JobId, Run),
}

impl Usage {
    /// The usage of an entity; `None` if none was ever counted for it.
    #[must_use]
    pub fn of(&self, holder: &Holder) -> Option<&Used> {
        self.used.get(holder)
    }

    /// Past usage of a resource by an entity, in counts times seconds; memory in MiB times seconds.
    #[must_use]
    pub fn past(&self, holder: &Holder, kind: &TresKind) -> Amount {
        let Some(used) = self.of(holder) else { return Amount::ZERO };
        match kind {
            TresKind::Billing => used.billing,
            _ => self.number(kind).and_then(|number| used.tres.get(number).copied()).unwrap_or_default(),
        }
    }

    /// Seconds that an entity's jobs have run, after decay.
    #[must_use]
    pub fn past_wall(&self, holder: &Holder) -> Amount {
        self.of(holder).map_or(Amount::ZERO, |used| used.wall)
    }

    /// The usage of some associations and QOS, without runs, as a pass needs it to check limits.
    #[must_use]
    pub fn of_holders<'a>(&self, holders: impl IntoIterator<Item = &'a Holder>) -> Usage {
        let used = holders.into_iter().filter_map(|holder| Some((holder.clone(), self.of(holder)?.clone())));
        Usage { used: used.collect(), kinds: self.kinds.clone(), ..Usage::default() }
    }

    /// Usage of an entity in resources times seconds, rounded down, by resource; billing included.
    #[must_use]
    pub fn seconds(&self, holder: &Holder) -> Tres {
        let Some(used) = self.of(holder) else { return Tres::default() };
        let kinds = self.kinds.iter().zip(&used.tres).map(|(kind, amount)| (kind.clone(), amount.units()));
        kinds.chain([(TresKind::Billing, used.billing.units())]).collect()
    }

    /// The users who count as children of an account without having an association, by name.
    pub fn outsiders(&self, of: AssociationId) -> impl Iterator<Item = (&Arc<str>, &Used)> {
        let first = Holder::Outsider { account: of, user: "".into() };
        self.used.range(first..).map_while(move |(holder, used)| match holder {
            Holder::Outsider { account, user } if *account == of => Some((user, used)),
            _ => None,
        })
    }

    /// True if usage of any run is being counted.
    #[must_use]
    pub fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Time up to which usage has decayed.
    #[must_use]
    pub fn rolled(&self) -> Time {
        self.rolled
    }

    /// Time of the next reset of usage to zero; `None` for never.
    #[must_use]
    pub fn next_reset(&self) -> Option<Time> {
        self.next_reset
    }

    /// Wall-clock time of the last reset of usage to zero; `None` if there was none.
    #[must_use]
    pub fn last_reset(&self) -> Option<Time> {
        self.last_reset
    }

    /// The time zone in whose midnights resets fall; empty until one is planned.
    #[must_use]
    pub fn zone(&self) -> &Arc<str> {
        &self.zone
    }

    /// The records of usage for a snapshot.
    pub(super) fn records(&self) -> impl Iterator<Item = UsageRecord> + '_ {
        let is_new = self.used.is_empty() && self.rolled == Time::ZERO && self.zone.is_empty();
        let head = (!is_new).then(|| UsageRecord::Head {
            kinds: self.kinds.clone(),
            rolled: self.rolled,
            next_reset: self.next_reset,
            last_reset: self.last_reset,
            zone: Arc::clone(&self.zone),
        });
        let used = self.used.iter().map(|(holder, used)| UsageRecord::Used(holder.clone(), used.clone()));
        let runs = self.runs.iter().map(|(job, run)| UsageRecord::Run(*job, run.clone()));
        head.into_iter().chain(used).chain(runs)
    }

    /// Restores one record of a snapshot.
    pub(super) fn restore(&mut self, record: UsageRecord) {
        match record {
            UsageRecord::Head { kinds, rolled, next_reset, last_reset, zone } => {
                (self.kinds, self.rolled, self.zone) = (kinds, rolled, zone);
                (self.next_reset, self.last_reset) = (next_reset, last_reset);
            }
            UsageRecord::Used(holder, used) => drop(self.used.insert(holder, used)),
            UsageRecord::Run(job, run) => drop(self.runs.insert(job, run)),
        }
    }

    fn number(&self, kind: &TresKind) -> Option<usize> {
        self.kinds.iter().position(|known| known == kind)
    }

    fn number_or_new(&mut self, kind: TresKind) -> u16 {
        let number = self.number(&kind).unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        });
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    /// Counts a run up to `seconds` in all. A run that proves shorter than counted is reduced.
    fn count(&mut self, accounts: &Accounts, job: JobId, seconds: u64) {
        let Some(run) = self.runs.get_mut(&job) else { return };
        let counted = std::mem::replace(&mut run.counted, seconds);
        let (difference, sum): (u64, fn(Amount, Amount) -> Amount) = match seconds.checked_sub(counted) {
            Some(0) => return,
            Some(more) => (more, Amount::plus),
            None => (counted - seconds, Amount::minus),
        };
        let run = run.clone();
        for holder in run.all_holders(accounts) {
            self.used.entry(holder).or_default().add(&run, difference, sum);
        }
    }

    /// Moves the usage of an association from the accounts that were above it to those that will be.
    fn move_usage(&mut self, id: AssociationId, before: &[AssociationId], after: &[AssociationId]) {
        let Some(moved) = self.used.get(&Holder::Association(id)).cloned() else { return };
        for above in before {
            if let Some(used) = self.used.get_mut(&Holder::Association(*above)) {
                used.join(&moved, Amount::minus);
            }
        }
        for above in after {
            self.used.entry(Holder::Association(*above)).or_default().join(&moved, Amount::plus);
        }
    }

    /// Sets the usage of an entity to zero.
    fn clear(&mut self, holder: &Holder) {
        if let Some(used) = self.used.get_mut(holder) {
            *used = Used::default();
        }
    }
}

impl Run {
    /// The entities that the run is counted for now: the associations above the first holder as they are, or
    /// as they were if the first holder is no more.
    fn all_holders(&self, accounts: &Accounts) -> SmallVec<[Holder; 8]> {
        let mut holders = SmallVec::new();
        let first = self.holders.first();
        let below = match first {
            Some(Holder::Association(id) | Holder::Outsider { account: id, .. }) => accounts.association(*id),
            _ => None,
        };
        let is_outsider = matches!(first, Some(Holder::Outsider { .. }));
        holders.extend(self.holders.iter().cloned());
        match below {
            Some(below) => {
                let above = accounts.chain(below).skip(usize::from(!is_outsider));
                holders.extend(above.map(|above| Holder::Association(above.id)));
            }
            None => {
                let there =
                    |id: &&AssociationId| **id == ROOT_ASSOCIATION || accounts.association(**id).is_some();
                holders.extend(self.above.iter().filter(there).map(|id| Holder::Association(*id)));
            }
        }
        holders
    }
}

/// True if one of these limits is a budget.
fn is_budget(limits: &Limits) -> bool {
    limits.budgets().next().is_some()
}

impl Cluster {
    /// The usage of associations and QOS.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The association or the outsider for whom a job counts in a partition.
    #[must_use]
    pub fn own_holder(&self, spec: &JobSpec, partition: &Partition) -> Holder {
        self.own_holder_of(self.charged(spec, partition), spec)
    }

    /// The association or the outsider for whom a job with these charges counts.
    #[must_use]
    pub fn own_holder_of(&self, charged: Charged, spec: &JobSpec) -> Holder {
        let id = charged.association.unwrap_or(ROOT_ASSOCIATION);
        match self.accounts.association(id) {
            Some(association) if association.user.is_some() => Holder::Association(id),
            _ => Holder::Outsider { account: id, user: Arc::clone(&spec.owner.user) },
        }
    }

    /// True if anything depends on usage: a weight of fair share, accounts, a threshold of a QOS, or a budget
    /// of a QOS or of an association. Also true if the number of jobs that gain age is limited, because rolls
    /// let more jobs gain age. Otherwise usage is counted at the ends of runs and never rolled.
    #[must_use]
    pub fn depends_on_usage(&self) -> bool {
        self.policy.scheduler.priority_weight_fairshare > 0
            || self.accounts.accounts().nth(1).is_some()
            || self.accounts.limits_accrual()
            || self.accounts.qos().any(|qos| is_budget(&qos.limits) || qos.enforced_threshold().is_some())
            || self.accounts.associations().any(|own| is_budget(&own.limits))
    }

    /// Records a user without an association at the first submission, so that the user counts among those who
    /// share.
    pub(super) fn meet(&mut self, spec: &JobSpec) {
        if let Some(holder) = self.newcomer(spec) {
            self.usage.used.insert(holder, Used::default());
            self.usage.shares = OnceLock::new();
        }
    }

    /// The user of a request as a holder, if the user has no association and has submitted nothing yet. The
    /// submission then changes the shares of others.
    #[must_use]
    pub fn newcomer(&self, spec: &JobSpec) -> Option<Holder> {
        let partition = spec.partitions.first().and_then(|name| self.partition(name))?;
        let holder = self.own_holder(spec, partition);
        let is_outsider = matches!(holder, Holder::Outsider { .. });
        Some(holder).filter(|holder| is_outsider && !self.usage.used.contains_key(holder))
    }

    /// Begins to count the usage of a run.
    pub(super) fn begin_usage(&mut self, id: JobId, alloc: &Alloc, at: Time) {
        let Some(spec) = self.jobs.get(id).map(|job| Arc::clone(&job.spec)) else { return };
        self.hold_decay(at);
        let charged = alloc.charged;
        let mut holders = vec![self.own_holder_of(charged, &spec)];
        let partition_qos = charged.partition_qos.filter(|qos| charged.qos != Some(*qos));
        holders.extend(charged.qos.into_iter().chain(partition_qos).map(Holder::Qos));
        let below = charged.association.and_then(|id| self.accounts.association(id));
        let is_outsider = matches!(holders.first(), Some(Holder::Outsider { .. }));
        let above = below.map(|below| {
            self.accounts.chain(below).skip(usize::from(!is_outsider)).map(|above| above.id).collect()
        });
        let factor = charged.qos.and_then(|qos| self.accounts.qos_numbered(qos));
        let factor = factor.map_or(1.0, |qos| qos.usage_factor);
        let tres = self.amounts_held(&spec, alloc).all.tres;
        let tres = tres
            .0
            .into_iter()
            .map(|(kind, count)| (self.usage.number_or_new(kind), Rate::whole(count).times(factor)));
        let run = Run {
            holders,
            above: above.unwrap_or_else(|| vec![ROOT_ASSOCIATION]),
            billing: alloc.billed().times(factor),
            wall: Rate::ONE.times(factor),
            tres: tres.collect(),
            counted: 0,
        };
        self.usage.runs.insert(id, run);
    }

    /// Counts the rest of a run whose end is decided, before the job's phase changes. `seen` is the time at
    /// which the job's node saw the end, if known.
    pub(super) fn end_usage(&mut self, id: JobId, seen: Option<Time>, at: Time) {
        let Some(job) = self.jobs.get(id) else { return };
        let seconds = ran(job, seen.map_or(at, |seen| seen.min(at)));
        self.usage.count(&self.accounts, id, seconds);
        self.usage.runs.remove(&id);
        self.hold_decay(at);
    }

    /// Moves the time of the last decay to `at` while nothing depends on usage, so that usage does not decay
    /// meanwhile.
    fn hold_decay(&mut self, at: Time) {
        if self.usage.rolled == Time::ZERO || !self.depends_on_usage() {
            self.usage.rolled = self.usage.rolled.max(at);
        }
    }

    /// Counts running jobs up to a time, then lets all usage decay, or sets it to zero.
    pub(super) fn roll_usage(&mut self, until: Time, ratio: Ratio, reset: bool) {
        let running: Vec<(JobId, u64)> =
            self.usage.runs.keys().filter_map(|id| Some((*id, ran(self.jobs.get(*id)?, until)))).collect();
        for (id, seconds) in running {
            self.usage.count(&self.accounts, id, seconds);
        }
        let accounts = &self.accounts;
        let decays = |holder: &Holder| match holder {
            Holder::Qos(number) => {
                accounts.qos_numbered(*number).is_none_or(|qos| !qos.flags.contains(&QosFlag::NoDecay))
            }
            _ => true,
        };
        for (holder, used) in &mut self.usage.used {
            if decays(holder) {
                used.each(if reset { |_, _| Amount::ZERO } else { Amount::decayed }, ratio);
            }
            used.rank();
        }
        if reset {
            let at = self.usage.next_reset.take().unwrap_or(until);
            self.usage.last_reset = Some(self.clock().wall(at));
        }
        self.usage.rolled = until;
        self.usage.shares = OnceLock::new();
    }

    /// Amounts that running jobs may still use until their time limits, in counts times seconds, for each
    /// entity that they count for. Jobs without a time limit add nothing.
    #[must_use]
    pub fn usage_to_come(&self, now: Time) -> BTreeMap<Holder, Tres> {
        let mut all: BTreeMap<Holder, Tres> = BTreeMap::new();
        for (id, run) in &self.usage.runs {
            let left = self
                .jobs
                .get(*id)
                .and_then(|job| Some(job.spec.time_limit.seconds()?.saturating_sub(ran(job, now))));
            let seconds = left.unwrap_or(0);
            let kinds =
                run.tres.iter().map(|(kind, rate)| (self.usage.kinds[usize::from(*kind)].clone(), *rate));
            let amounts: Tres = kinds
                .chain([(TresKind::Billing, run.billing)])
                .map(|(kind, rate)| (kind, Amount::of(rate, seconds).units()))
                .collect();
            for holder in run.all_holders(&self.accounts) {
                all.entry(holder).or_default().add(&amounts);
            }
        }
        all
    }

    /// Records the time of the next reset of usage to zero.
    pub(super) fn plan_reset(&mut self, at: Option<Time>, zone: &Arc<str>) {
        self.usage.next_reset = at;
        self.usage.zone = Arc::clone(zone);
    }

    /// Changes usage as a change of the policy tree requires. Called before the change is applied.
    pub(super) fn change_usage(&mut self, change: &AccountChange) {
        match change {
            AccountChange::Association(association) => self.place_usage(association),
            AccountChange::AssociationDeleted(id) => {
                self.usage.used.remove(&Holder::Association(*id));
                let gone: Vec<Holder> = self
                    .usage
                    .outsiders(*id)
                    .map(|(user, _)| Holder::Outsider { account: *id, user: Arc::clone(user) })
                    .collect();
                gone.iter().for_each(|holder| drop(self.usage.used.remove(holder)));
            }
            AccountChange::UsageCleared(id) => self.clear_usage(*id),
            AccountChange::QosUsageCleared(qos) => self.usage.clear(&Holder::Qos(*qos)),
            AccountChange::UsageImported { association, billing, tres } => {
                self.import_usage(*association, *billing, tres);
            }
            AccountChange::QosDeleted(name) => {
                if let Some(qos) = self.accounts.qos_named(name).map(|qos| qos.id) {
                    self.usage.used.remove(&Holder::Qos(qos));
                }
            }
            AccountChange::Account(_)
            | AccountChange::AccountDeleted(_)
            | AccountChange::User(_)
            | AccountChange::UserDeleted(_)
            | AccountChange::Qos(_)
            | AccountChange::FileQos(_)
            | AccountChange::ClusterAdded(_)
            | AccountChange::ClusterDeleted(_)
            | AccountChange::OfCluster { .. } => {}
        }
        self.usage.shares = OnceLock::new();
    }

    /// Sets the part of an association's usage that another batch system counted.
    fn import_usage(&mut self, id: AssociationId, billing: Amount, tres: &[(TresKind, Amount)]) {
        let mut used = Used { billing, ranked: billing, ..Used::default() };
        for (kind, amount) in tres {
            let number = usize::from(self.usage.number_or_new(kind.clone()));
            if used.tres.len() <= number {
                used.tres.resize(number + 1, Amount::ZERO);
            }
            used.tres[number] = *amount;
        }
        self.usage.used.entry(Holder::Association(id)).or_default().import(used);
        self.hold_decay(self.mark.at);
    }

    /// Moves the usage of an association with it. The new association of a user takes over the usage that the
    /// user had as an outsider.
    fn place_usage(&mut self, association: &Association) {
        let ids = |accounts: &Accounts, from: Option<&Arc<Association>>| -> Vec<AssociationId> {
            from.map_or_else(Vec::new, |from| accounts.chain(from).map(|above| above.id).collect())
        };
        match self.accounts.association(association.id) {
            Some(before) if before.parent != association.parent => {
                let before = ids(&self.accounts, self.accounts.above(before));
                let after = ids(&self.accounts, self.accounts.above(association));
                self.usage.move_usage(association.id, &before, &after);
            }
            Some(_) => {}
            None => {
                let account = self.accounts.of_account(&association.account).map(|account| account.id);
                let outsider = association.user.as_ref().zip(account);
                let outsider = outsider
                    .map(|(user, account)| Holder::Outsider { account, user: Arc::clone(user) })
                    .and_then(|holder| self.usage.used.remove(&holder));
                if let Some(used) = outsider {
                    self.usage.used.insert(Holder::Association(association.id), used);
                }
            }
        }
    }

    /// Sets the usage of an association and of all below it to zero, and subtracts it from all above it.
    fn clear_usage(&mut self, id: AssociationId) {
        let Some(association) = self.accounts.association(id) else { return };
        let above: Vec<AssociationId> =
            self.accounts.chain(association).skip(1).map(|above| above.id).collect();
        self.usage.move_usage(id, &above, &[]);
        let below: Vec<AssociationId> = match association.user {
            Some(_) => vec![id],
            None => {
                self.accounts.walk_from(&association.account).iter().map(|one| one.association.id).collect()
            }
        };
        for id in below {
            self.usage.clear(&Holder::Association(id));
            let outsiders: Vec<Arc<str>> =
                self.usage.outsiders(id).map(|(user, _)| Arc::clone(user)).collect();
            for user in outsiders {
                self.usage.clear(&Holder::Outsider { account: id, user });
            }
        }
    }
}

/// Seconds that a job has run until a time; 0 if it is neither running nor suspended.
fn ran(job: &Job, until: Time) -> u64 {
    match &job.phase {
        Phase::Running { started, pauses, .. } => pauses.ran(*started, until),
        Phase::Suspended(suspended) => {
            let since = suspended.pauses.last.unwrap_or(until);
            suspended.pauses.ran(suspended.started, until.min(since))
        }
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => 0,
    }
}
