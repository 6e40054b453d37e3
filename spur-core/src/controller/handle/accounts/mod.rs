//! Requests of `sacctmgr`: adding, changing and deleting accounts, users, associations, QOS and coordinators,
//! and loading a dump.
//!
//! A request is worked out on a copy of the policy tree, which shares memory with it, step by step, and what
//! comes of it is one list of changes. What is said of it is Slurm's `sacctmgr`'s. A client that has shown
//! that to a user sends it with the request: if the same request would now do something else, it does
//! nothing.

mod add;
mod clusters;
mod delete;
mod file;
mod load;
mod modify;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(in super::super) use file::{begin, compare};

use super::super::{Ctx, Reject, Reply, kept_priority, usage};
use crate::cluster::{AccountChange, Accounts, Cluster, Event};
use crate::model::accounts::ask::{Ask, AssociationSet, Which};
use crate::model::accounts::limits::{LimitChange, Unit};
use crate::model::accounts::{Association, LimitKind, Qos, QosAccess};
use crate::model::caller::Caller;
use crate::model::job::Job;
use crate::text::memory::MemoryMb;
use crate::text::time::TimeLimit;
use crate::text::tres::TresKind;

/// Number of entities that one request may name; a client splits larger requests.
pub const MOST_AT_ONCE: usize = 1000;

const DENIED: &str = "Access/permission denied";

pub(super) struct Decision {
    changes: Vec<AccountChange>,
    lines: Vec<String>,
}

/// Determines the changes of a request. `shown` is the output that the user agreed to, if the user was asked.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    ask: &Ask,
    shown: Option<&[String]>,
) -> Result<Decision, Reject> {
    let decision = decide(cluster, caller, ask)?;
    cluster.allows(&decision.changes)?;
    match shown {
        Some(shown) if *shown != decision.lines => Err(Reject::Accounts(
            " Nothing was changed: accounts have changed meanwhile, and the request would do something else than was shown"
                .to_owned(),
        )),
        _ => Ok(decision),
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, by: Arc<str>, decision: Decision) -> Reply {
    if decision.changes.iter().any(|change| matches!(change, AccountChange::UsageImported { .. })) {
        // Periods that are made up for later would let the imported usage decay for time before the import.
        usage::catch_up(ctx);
    }
    if !decision.changes.is_empty() {
        let event = Event::AccountsChanged { by, changes: decision.changes };
        kept_priority::keep(ctx, |ctx| ctx.emit(event));
    }
    Reply::AccountsChanged { lines: decision.lines }
}

/// The output of a request if it were made now.
///
/// # Errors
/// The refusal that the request would get.
pub fn preview(cluster: &Cluster, caller: &Caller, ask: &Ask) -> Result<Vec<String>, Reject> {
    decide(cluster, caller, ask).map(|decision| decision.lines)
}

fn decide(cluster: &Cluster, caller: &Caller, ask: &Ask) -> Result<Decision, Reject> {
    if !cluster.accounts().has_begun() {
        return Err(Reject::Accounts(
            " The policy tree has not begun: no controller has started on it".to_owned(),
        ));
    }
    match ask {
        Ask::In(names, ask) => clusters::in_clusters(cluster, caller, Some(names), ask),
        // A file without a cluster is of the controller's own.
        ask if !matches!(ask, Ask::Load { .. })
            && clusters::is_of_trees(ask)
            && cluster.accounts().other_clusters().next().is_some() =>
        {
            clusters::in_clusters(cluster, caller, None, ask)
        }
        ask => {
            let tree = Accounts::clone(cluster.accounts());
            Draft::new(cluster, caller, tree, &cluster.policy().cluster_name, false).decide(ask)
        }
    }
}

/// A copy of the tree to which a request is applied. The copy shares the parts that the request does not
/// change.
struct Draft<'a> {
    cluster: &'a Cluster,
    caller: &'a Caller,
    tree: Accounts,
    /// Name of the cluster whose tree it is.
    name: &'a str,
    /// True for the tree of another cluster, which has no jobs here.
    is_other: bool,
    /// True if the request names clusters.
    names_clusters: bool,
    changes: Vec<AccountChange>,
    lines: Vec<String>,
}

impl<'a> Draft<'a> {
    fn new(cluster: &'a Cluster, caller: &'a Caller, tree: Accounts, name: &'a str, is_other: bool) -> Self {
        Draft {
            cluster,
            caller,
            tree,
            name,
            is_other,
            names_clusters: false,
            changes: Vec::new(),
            lines: Vec::new(),
        }
    }

    fn decide(mut self, ask: &Ask) -> Result<Decision, Reject> {
        match ask {
            Ask::AddAccounts(names, set) => self.add_accounts(names, set)?,
            Ask::AddUsers(names, add) => self.add_users(names, add)?,
            Ask::AddQos(names, set) => self.add_qos(names, set)?,
            Ask::AddCoordinators(which) => self.add_coordinators(which)?,
            Ask::ModifyAccounts(which, set) => self.modify_accounts(which, set)?,
            Ask::ModifyUsers(which, set) => self.modify_users(which, set)?,
            Ask::ModifyQos(which, set) => self.modify_qos(which, set)?,
            Ask::ModifyCluster(set) => self.modify_cluster(set)?,
            Ask::DeleteAccounts(which) => self.delete_accounts(which)?,
            Ask::DeleteUsers(which) => self.delete_users(which)?,
            Ask::DeleteQos(which) => self.delete_qos(which)?,
            Ask::DeleteCoordinators(which) => self.delete_coordinators(which)?,
            Ask::AddClusters(names, set) => self.add_clusters(names, set)?,
            Ask::DeleteClusters(names) => self.delete_clusters(names)?,
            Ask::Load { lines, clean } => self.load(lines, *clean)?,
            // A request names clusters once, at its beginning.
            Ask::In(_, ask) => return self.decide(ask),
        }
        self.check_default_qos()?;
        Ok(Decision { changes: self.changes, lines: self.lines })
    }
}

impl Draft<'_> {
    fn put(&mut self, change: AccountChange) {
        self.tree.apply(&change);
        self.changes.push(change);
    }

    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn name(&self) -> &str {
        self.name
    }

    /// True if the caller may change an account and everything below it.
    fn may_change(&self, account: &str) -> bool {
        self.caller.is_operator() || self.tree.coordinates(&self.caller.owner.user, account)
    }

    /// Refuses names that no QOS has.
    fn known_qos<'n>(&self, names: impl IntoIterator<Item = &'n Arc<str>>, key: &str) -> Result<(), Reject> {
        let mut unknown = names.into_iter().filter(|name| self.tree.qos_named(name).is_none());
        let Some(name) = unknown.next() else { return Ok(()) };
        let known: Vec<&str> = self.tree.qos().map(|qos| &*qos.name).collect();
        let hint = match key {
            // As with Slurm.
            "preempt" => String::new(),
            key => format!("\n Unknown option: {key}={name}\n Use keyword 'where' to modify condition"),
        };
        let known = known.join(",");
        Err(Reject::Accounts(format!(
            "sacctmgr: error: You gave a bad qos '{name}'. Valid QOS's are {known}{hint}"
        )))
    }

    fn known_in(&self, set: &AssociationSet) -> Result<(), Reject> {
        for change in &set.qos {
            self.known_qos(&change.names, "qos")?;
        }
        self.known_qos(set.default_qos.iter().flatten(), "defaultqos")
    }

    /// An association with the given settings applied.
    fn changed(&self, before: &Association, set: &AssociationSet) -> Association {
        let mut made = before.clone();
        made.shares = set.shares.unwrap_or(made.shares);
        for change in &set.qos {
            made.qos = self.access(&made.qos, change);
        }
        if let Some(default) = &set.default_qos {
            made.default_qos =
                default.as_ref().and_then(|name| self.tree.qos_named(name)).map(|qos| Arc::clone(&qos.name));
        }
        for (kind, change) in &set.limits {
            made.limits.change(*kind, change);
        }
        made
    }

    /// Access to QOS after a change. An empty list makes it inherited; names added to inherited access are
    /// kept as differences.
    fn access(&self, before: &QosAccess, change: &crate::model::accounts::ask::ListChange) -> QosAccess {
        use crate::model::accounts::ask::Sign;
        let own = |name: &Arc<str>| {
            self.tree.qos_named(name).map_or_else(|| Arc::clone(name), |qos| Arc::clone(&qos.name))
        };
        let names: BTreeSet<Arc<str>> = change.names.iter().map(own).collect();
        match (before, change.sign) {
            (_, Sign::Is) if names.is_empty() => QosAccess::Inherited,
            (_, Sign::Is) => QosAccess::These(names),
            (QosAccess::These(these), Sign::Plus) => QosAccess::These(these.union(&names).cloned().collect()),
            (QosAccess::These(these), Sign::Minus) => {
                QosAccess::These(these.difference(&names).cloned().collect())
            }
            (other, sign) => {
                let (mut more, mut less) = match other {
                    QosAccess::Changed { more, less } => (more.clone(), less.clone()),
                    _ => Default::default(),
                };
                let (into, from) =
                    if sign == Sign::Plus { (&mut more, &mut less) } else { (&mut less, &mut more) };
                from.retain(|name| !names.contains(name));
                into.extend(names);
                QosAccess::Changed { more, less }
            }
        }
    }

    /// Refuses a changed association whose default QOS is not one that its jobs may use.
    fn check_default_qos(&self) -> Result<(), Reject> {
        let mut without = Vec::new();
        for change in &self.changes {
            let AccountChange::Association(changed) = change else { continue };
            let Some(association) = self.tree.association(changed.id) else { continue };
            let default = self.tree.default_qos_of(association);
            if let Some(name) = default.filter(|name| !self.tree.qos_of(association).contains(name)) {
                without.push(self.with_default_qos(&name, association));
            }
        }
        if without.is_empty() {
            return Ok(());
        }
        Err(Reject::Accounts(format!(
            " These associations don't have access to their default qos.\n Please give them access before they the default \
             can be set to this.\n{}",
            without.join("\n")
        )))
    }

    fn with_default_qos(&self, name: &str, association: &Association) -> String {
        let (cluster, account) = (self.name(), &association.account);
        let mut line = format!("  DefQOS = {name:<10} C = {cluster:<10} A = {account:<20}");
        if let Some(user) = &association.user {
            line += &format!(" U = {user:<9}");
        }
        line
    }

    /// An association as `sacctmgr` lists modified ones.
    fn modified(&self, association: &Association) -> String {
        let (cluster, account) = (self.name(), &association.account);
        match (&association.user, &association.parent) {
            (Some(user), _) => {
                let partition =
                    association.partition.as_ref().map(|name| format!(" P = {name}")).unwrap_or_default();
                format!("  C = {cluster:<10} A = {account:<20} U = {user:<9}{partition}")
            }
            (None, Some(parent)) => format!("  C = {cluster:<10} A = {account} of {parent}"),
            (None, None) => format!("  C = {cluster:<10} A = {account}"),
        }
    }

    /// Refuses a deletion while pending or running jobs use the entity.
    fn refuse_active(&self, uses: impl Fn(&Job) -> bool) -> Result<(), Reject> {
        if self.is_other {
            return Ok(());
        }
        let jobs = self.cluster.jobs();
        let active = jobs.active().chain(jobs.pending()).filter(|job| uses(job));
        let active: Vec<&Job> = active.take(MOST_AT_ONCE).collect();
        if active.is_empty() {
            return Ok(());
        }
        let mut text = " Error with request: Job(s) active, cancel job(s) before remove".to_owned();
        for job in active {
            let account = job.spec.account.as_deref().unwrap_or_default();
            let (cluster, user) = (self.name(), &job.spec.owner.user);
            text += &format!("\n  JobID = {:<10} C = {cluster:<10} A = {account:<10} U = {user:<9}", job.id);
        }
        Err(Reject::Accounts(text))
    }

    /// The account that a job counts for: the one that it names, else its user's default. `None` without
    /// both.
    fn account_of(&self, job: &Job) -> Option<Arc<str>> {
        let default = || self.cluster.accounts().user(&job.spec.owner.user)?.default_account.clone();
        job.spec.account.clone().or_else(default)
    }
}

/// Names and values of the settings of an association, as `sacctmgr` lists them.
fn settings(set: &AssociationSet, parent: Option<&str>) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    lines.extend(set.shares.map(|shares| ("Fairshare", shares.to_string())));
    lines.extend(limit_settings(&set.limits));
    lines.extend(parent.map(|parent| ("Parent", parent.to_owned())));
    let list = |names: &BTreeSet<Arc<str>>| names.iter().map(|name| &**name).collect::<Vec<_>>().join(",");
    lines.extend(set.qos.iter().map(|qos| ("QOS", list(&qos.names))));
    let default = set.default_qos.as_ref();
    lines.extend(default.map(|default| ("DefQOS", default.as_deref().unwrap_or("NONE").to_owned())));
    lines
}

/// Names and values of limits, sorted by name.
fn limit_settings(limits: &[(LimitKind, LimitChange)]) -> Vec<(&'static str, String)> {
    let text = |kind: LimitKind, number: u64| match kind.unit() {
        Unit::Minutes => TimeLimit::Seconds(number.saturating_mul(60)).long(),
        Unit::Count | Unit::Tres => number.to_string(),
    };
    let value = |(kind, change): &(LimitKind, LimitChange)| {
        let value = match change {
            LimitChange::Number(number) => {
                number.map_or_else(|| "NONE".to_owned(), |number| text(*kind, number))
            }
            LimitChange::Tres(amounts) => {
                let amount = |(tres, amount): &(TresKind, Option<u64>)| {
                    let amount = match (amount, tres) {
                        (None, _) => "NONE".to_owned(),
                        (Some(amount), TresKind::Mem) => MemoryMb(*amount).to_string(),
                        (Some(amount), _) => amount.to_string(),
                    };
                    format!("{tres}={amount}")
                };
                amounts.iter().map(amount).collect::<Vec<_>>().join(",")
            }
        };
        (kind.short_name(), value)
    };
    let mut lines: Vec<(&'static str, String)> = limits.iter().map(value).collect();
    lines.sort();
    lines
}

/// True if any of these settings is inherited by associations below.
fn is_inherited(set: &AssociationSet) -> bool {
    let inherits = |(kind, _): &(LimitKind, _)| kind.inherits() && *kind != LimitKind::Priority;
    !set.qos.is_empty() || set.default_qos.is_some() || set.limits.iter().any(inherits)
}

/// True if an association meets the conditions; an empty condition is always met.
fn fits(which: &Which, association: &Association) -> bool {
    let any = |set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>| {
        set.is_empty() || name.is_some_and(|name| set.contains(name))
    };
    !which.elsewhere
        && any(&which.accounts, Some(&association.account))
        && any(&which.partitions, association.partition.as_ref())
        && any(&which.users, association.user.as_ref())
}

/// True if two QOS are equal apart from their numbers.
fn same_qos(one: &Qos, other: &Qos) -> bool {
    Qos { id: other.id, ..one.clone() } == *other
}

#[cfg(test)]
mod tests;
