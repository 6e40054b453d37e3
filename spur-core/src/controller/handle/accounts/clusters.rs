//! Requests about the trees of other clusters, and requests that name clusters.
//!
//! A controller judges jobs by the tree of its own cluster. The trees of other clusters are kept beside it:
//! they are changed, listed and dumped with the same requests. The QOS are common to all trees.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::Reject;
use super::add::named;
use super::{DENIED, Decision, Draft, settings};
use crate::cluster::{AccountChange, Accounts, Cluster};
use crate::model::accounts::ask::{Ask, AssociationSet};
use crate::model::accounts::{Account, AdminLevel, Association, NORMAL, QosAccess, ROOT, User};
use crate::model::caller::Caller;

/// Makes a request in the trees of several clusters. `names` are the clusters that the request names; `None`
/// stands for all clusters. If the request names none, clusters that would refuse it are left out, unless
/// all refuse.
pub(super) fn in_clusters(
    cluster: &Cluster,
    caller: &Caller,
    names: Option<&BTreeSet<Arc<str>>>,
    ask: &Ask,
) -> Result<Decision, Reject> {
    let own: Arc<str> = cluster.policy().cluster_name.to_lowercase().into();
    let mut tree = Accounts::clone(cluster.accounts());
    let all: BTreeSet<Arc<str>> =
        std::iter::once(Arc::clone(&own)).chain(tree.other_clusters().cloned()).collect();
    let is_added = matches!(ask, Ask::AddAccounts(..) | Ask::AddUsers(..) | Ask::Load { .. });
    let unknown = names.into_iter().flatten().find(|name| is_added && !all.contains(*name));
    if let Some(name) = unknown {
        return Err(Reject::Accounts(format!(
            " This cluster '{name}' doesn't exist.\n        Contact your admin to add it to accounting."
        )));
    }
    let wanted = |name: &&Arc<str>| names.is_none_or(|names| names.contains(*name));
    // The own cluster comes first.
    let others = all.iter().filter(|name| **name != own && is_of_trees(ask));
    let (mut made, mut refused) = (None::<Decision>, None);
    for name in std::iter::once(&own).chain(others).filter(wanted) {
        let is_other = *name != own;
        let copy = if is_other { tree.of_cluster(name) } else { Some(tree.clone()) };
        let Some(copy) = copy else { continue };
        let name = if is_other { Arc::clone(name) } else { Arc::clone(&cluster.policy().cluster_name) };
        let draft =
            Draft { names_clusters: names.is_some(), ..Draft::new(cluster, caller, copy, &name, is_other) };
        match draft.decide(ask) {
            Ok(mut decision) => {
                if is_other {
                    decision.changes =
                        decision.changes.into_iter().filter_map(|change| of_other(&name, change)).collect();
                }
                decision.changes.iter().for_each(|change| tree.apply(change));
                made = Some(match made {
                    None => decision,
                    Some(before) => before.and(decision),
                });
            }
            Err(Reject::NothingToDo(text)) => drop(refused.get_or_insert(Reject::NothingToDo(text))),
            Err(reject @ Reject::Accounts(_)) if names.is_none() => {
                if !matches!(refused, Some(Reject::Accounts(_))) {
                    refused = Some(reject);
                }
            }
            Err(reject) => return Err(reject),
        }
    }
    made.ok_or_else(|| refused.unwrap_or_else(|| nothing(ask)))
}

/// True if a request is about the accounts and users of trees, not about QOS, which all trees share.
pub(super) fn is_of_trees(ask: &Ask) -> bool {
    !matches!(
        ask,
        Ask::AddQos(..)
            | Ask::ModifyQos(..)
            | Ask::DeleteQos(_)
            | Ask::AddClusters(..)
            | Ask::DeleteClusters(_)
            | Ask::In(..)
    )
}

/// The change of another cluster's tree; `None` for a change of usage, which other clusters do not have here.
pub(super) fn of_other(cluster: &Arc<str>, change: AccountChange) -> Option<AccountChange> {
    match change {
        AccountChange::UsageCleared(_) | AccountChange::UsageImported { .. } => None,
        change => Some(AccountChange::OfCluster { cluster: Arc::clone(cluster), change: Box::new(change) }),
    }
}

fn nothing(ask: &Ask) -> Reject {
    let deletes = matches!(
        ask,
        Ask::DeleteAccounts(_) | Ask::DeleteUsers(_) | Ask::DeleteQos(_) | Ask::DeleteCoordinators(_)
    );
    Reject::NothingToDo(if deletes { " Nothing deleted" } else { " Nothing modified" }.to_owned())
}

impl Decision {
    /// Joins two decisions. A line that both have appears once; lines of the other decision come before the
    /// next common line.
    fn and(mut self, other: Decision) -> Decision {
        self.changes.extend(other.changes);
        let (mut at, mut waiting) = (0, Vec::new());
        for line in other.lines {
            match self.lines[at..].iter().position(|known| *known == line) {
                Some(ahead) => {
                    let place = at + ahead;
                    at = place + waiting.len() + 1;
                    self.lines.splice(place..place, waiting.drain(..));
                }
                None => waiting.push(line),
            }
        }
        self.lines.append(&mut waiting);
        self
    }
}

impl Draft<'_> {
    /// Begins the trees of clusters that have none here.
    pub(super) fn add_clusters(
        &mut self,
        names: &BTreeSet<Arc<str>>,
        set: &AssociationSet,
    ) -> Result<(), Reject> {
        if names.is_empty() {
            return Err(Reject::Accounts(" Need name of cluster to add.".to_owned()));
        }
        self.known_in(set)?;
        if !self.caller.is_administrator() {
            return Err(Reject::AccountsDenied(format!(" Problem adding clusters: {DENIED}")));
        }
        let own = self.name().to_lowercase();
        let is_known =
            |name: &&Arc<str>| ***name == *own || self.tree.other_clusters().any(|other| other == *name);
        let (known, new): (Vec<&Arc<str>>, Vec<&Arc<str>>) = names.iter().partition(is_known);
        let known: Vec<String> =
            known.iter().map(|name| format!(" This cluster {name} already exists.  Not adding.")).collect();
        if new.is_empty() {
            return Err(Reject::NothingToDo(known.join("\n")));
        }
        self.lines.extend(known);
        self.say(" Adding Cluster(s)");
        for name in &new {
            named(name, "cluster")?;
            self.say(format!("  Name           = {name}"));
        }
        let set_lines = settings(set, None);
        if !set_lines.is_empty() {
            self.say(" Setting");
            self.say("  Default Limits:");
            self.lines.extend(set_lines.iter().map(|(key, value)| format!("  {key:<14}= {value}")));
        }
        new.into_iter().for_each(|name| self.begin_cluster(name, set));
        Ok(())
    }

    /// Begins the tree of another cluster with the account and the user `root`.
    fn begin_cluster(&mut self, name: &Arc<str>, set: &AssociationSet) {
        let root: Arc<str> = ROOT.into();
        self.put(AccountChange::ClusterAdded(Arc::clone(name)));
        let first = self.tree.next_association();
        let of_account = Association {
            id: first,
            account: Arc::clone(&root),
            qos: QosAccess::These([NORMAL.into()].into()),
            ..Association::default()
        };
        let of_account = self.changed(&of_account, set);
        let account = Account {
            name: Arc::clone(&root),
            description: "default root account".into(),
            organization: Arc::clone(&root),
            ..Account::default()
        };
        let user = User {
            name: Arc::clone(&root),
            default_account: Some(Arc::clone(&root)),
            admin_level: AdminLevel::Administrator,
            ..User::default()
        };
        let changes = [
            AccountChange::Account(Arc::new(account)),
            AccountChange::User(Arc::new(user)),
            AccountChange::Association(Arc::new(of_account)),
        ];
        changes.into_iter().filter_map(|change| of_other(name, change)).for_each(|change| self.put(change));
        let of_user = Association {
            id: self.tree.next_association(),
            account: Arc::clone(&root),
            user: Some(root),
            ..Association::default()
        };
        of_other(name, AccountChange::Association(Arc::new(of_user)))
            .into_iter()
            .for_each(|change| self.put(change));
    }

    /// Deletes the trees of other clusters. The tree of the controller's own cluster stays.
    pub(super) fn delete_clusters(&mut self, names: &BTreeSet<Arc<str>>) -> Result<(), Reject> {
        if names.is_empty() {
            return Err(Reject::Accounts(" No conditions given to remove, not executing.".to_owned()));
        }
        let own = self.name().to_lowercase();
        if names.contains(&*own) {
            return Err(Reject::Accounts(format!(
                " Cluster {own} is this controller's own: its tree cannot be deleted"
            )));
        }
        let gone: Vec<Arc<str>> =
            self.tree.other_clusters().filter(|name| names.contains(*name)).cloned().collect();
        if gone.is_empty() {
            return Err(Reject::NothingToDo(" Nothing deleted".to_owned()));
        }
        if !self.caller.is_administrator() {
            return Err(Reject::AccountsDenied(format!(
                "sacctmgr: error: Your user doesn't have privilege to perform this action\n Error with request: {DENIED}"
            )));
        }
        self.say(" Deleting clusters...");
        for name in gone {
            self.say(format!("  {name}"));
            self.put(AccountChange::ClusterDeleted(name));
        }
        Ok(())
    }
}
