//! Lists records of the policy tree that a request selects and that the caller may see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::Holder;
use spur_core::cluster::sight::Sight;
use spur_core::cluster::{Accounts, Cluster, Placed};
use spur_core::model::accounts::Association;
use spur_core::model::accounts::ask::{Entity, Which};
use spur_core::model::caller::Caller;
use spur_core::text::time::Time;

use super::accounts;
use crate::v1;
use crate::v1::accounts_row::Row;

/// Returns the records that a request selects.
///
/// # Errors
/// Fails with the message of `sacctmgr` for a condition that cannot be parsed, or for limits that the
/// caller may not see.
pub fn rows(
    cluster: &Cluster,
    caller: &Caller,
    now: Time,
    request: &v1::ListAccountsRequest,
) -> Result<Vec<Row>, String> {
    if request.entity == "limit" {
        return limits(cluster, caller, now, request);
    }
    let own = &cluster.policy().cluster_name;
    let (entity, which) = accounts::conditions(own, request)?;
    let tree = cluster.accounts();
    let is_wanted = |name: &&Arc<str>| match which.clusters.is_empty() {
        true => request.all_clusters,
        false => which.clusters.contains(*name),
    };
    let others = tree.other_clusters().filter(is_wanted).filter(|_| entity != Entity::Qos);
    let others: Vec<(Arc<str>, Accounts)> =
        others.filter_map(|name| Some((Arc::clone(name), tree.of_cluster(name)?))).collect();
    let view = View { tree, caller, sight: Sight::of(cluster, caller), which };
    let own = view.rows(entity, cluster, now, request);
    if others.is_empty() {
        return Ok(own);
    }
    let mut lists = vec![own];
    for (name, tree) in &others {
        let which = Which { elsewhere: false, ..view.which.clone() };
        let other = View { tree, caller, sight: Sight::of(cluster, caller), which };
        let found = match entity {
            Entity::Account => other.accounts(request),
            Entity::User => other.users(request),
            _ => other.associations(),
        };
        lists.push(found.into_iter().map(|row| of_cluster(name, row)).collect());
    }
    Ok(joined(lists))
}

/// Names the other cluster whose tree has a record.
fn of_cluster(cluster: &str, row: Row) -> Row {
    let cluster = cluster.to_owned();
    match row {
        Row::Association(record) => Row::Association(v1::AssociationRecord { cluster, ..record }),
        Row::User(record) => Row::User(v1::UserRecord { cluster, ..record }),
        row => row,
    }
}

/// Joins lists of several clusters. The associations of an account or a user follow the first row of that
/// account or user, so that each has one row.
fn joined(lists: Vec<Vec<Row>>) -> Vec<Row> {
    let mut groups: Vec<Vec<Row>> = vec![Vec::new()];
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut at = 0;
    for row in lists.into_iter().flatten() {
        let owner = match &row {
            Row::Account(account) => Some(&account.name),
            Row::User(user) => Some(&user.name),
            _ => None,
        };
        let Some(owner) = owner else {
            groups[at].push(row);
            continue;
        };
        if let Some(group) = known.get(owner) {
            at = *group;
            continue;
        }
        at = groups.len();
        known.insert(owner.clone(), at);
        groups.push(vec![row]);
    }
    groups.into_iter().flatten().collect()
}

/// Returns the limits that apply to a user or an account, if the caller may see the usage of both.
fn limits(
    cluster: &Cluster,
    caller: &Caller,
    now: Time,
    request: &v1::ListAccountsRequest,
) -> Result<Vec<Row>, String> {
    let (tree, sight) = (cluster.accounts(), Sight::of(cluster, caller));
    let name: Arc<str> = match request.names.as_slice() {
        [] => Arc::clone(&caller.owner.user),
        [one] => one.as_str().into(),
        many => return Err(format!("{} names, where one user or account is the most", many.len())),
    };
    let is_user = name == caller.owner.user || tree.user(&name).is_some();
    let account = tree.account(&name.to_lowercase()).filter(|_| !is_user).map(|known| &known.name);
    // The refusal of a hidden name is that of an unknown name, so that callers cannot discover hidden
    // names.
    let is_seen = match account {
        Some(account) => sight.account(tree, account) && sight.use_of_account(tree, account),
        None => is_user && sight.usage(tree, &name),
    };
    if !is_seen {
        return Err(format!("there is no user or account {name}, or you may not see the usage of it"));
    }
    let found = match account {
        Some(account) => cluster.limits_of_account(account, now),
        None => cluster.limits_of_user(&name, now),
    };
    let row = |limit| {
        let record = accounts::limit(tree, limit);
        let (user, account) = match account {
            Some(account) => (String::new(), account.to_string()),
            None => (name.to_string(), String::new()),
        };
        Row::Limit(v1::LimitRecord { user, account, ..record })
    };
    Ok(found.iter().map(row).collect())
}

/// The policy tree with the caller's view and the conditions of a request.
struct View<'a> {
    tree: &'a Accounts,
    caller: &'a Caller,
    sight: Sight,
    which: Which,
}

impl View<'_> {
    /// Returns the records of the controller's own cluster.
    fn rows(
        &self,
        entity: Entity,
        cluster: &Cluster,
        now: Time,
        request: &v1::ListAccountsRequest,
    ) -> Vec<Row> {
        match entity {
            Entity::Account => self.accounts(request),
            Entity::User => self.users(request),
            Entity::Qos => self.qos(request.with_deleted),
            Entity::Association | Entity::Coordinator | Entity::Cluster if request.with_usage => {
                self.shares(cluster, now)
            }
            Entity::Association | Entity::Coordinator | Entity::Cluster => self.associations(),
        }
    }

    fn accounts(&self, request: &v1::ListAccountsRequest) -> Vec<Row> {
        let which = &self.which;
        let parent = |name: &str| self.tree.of_account(name).and_then(|own| own.parent.clone());
        let all = self.tree.all_accounts().filter(|account| {
            (request.with_deleted || !account.deleted)
                && !which.elsewhere
                && any(&which.names, Some(&account.name))
                && any(&which.descriptions, Some(&account.description))
                && any(&which.organizations, Some(&account.organization))
                && any(&which.parents, parent(&account.name).as_ref())
                && self.sight.account(self.tree, &account.name)
        });
        let mut rows = Vec::new();
        for account in all {
            let mut record = accounts::account(self.tree, account);
            record.coordinators.retain(|name| self.sight.user(self.tree, name));
            record.all_coordinators.retain(|name| self.sight.user(self.tree, name));
            rows.push(Row::Account(record));
            if request.with_associations {
                let own = self.tree.of_account(&account.name).into_iter();
                let associations = own.chain(self.tree.members(&account.name));
                rows.extend(associations.filter(|one| self.fits(one)).map(|one| self.row(one, 0)));
            }
        }
        rows
    }

    fn users(&self, request: &v1::ListAccountsRequest) -> Vec<Row> {
        let which = &self.which;
        let all = self.tree.all_users().filter(|user| {
            (request.with_deleted || !user.deleted)
                && !which.elsewhere
                && any(&which.names, Some(&user.name))
                && any(&which.users, Some(&user.name))
                && any(&which.default_accounts, user.default_account.as_ref())
                && any(&which.default_wckeys, user.default_wckey.as_ref())
                && (which.wckeys.is_empty() || !which.wckeys.is_disjoint(&user.wckeys))
                && which.admin_level.is_none_or(|level| level == user.admin_level)
                && self.sight.user(self.tree, &user.name)
        });
        let mut rows = Vec::new();
        for user in all {
            let mut record = accounts::user(self.tree, user);
            record.coordinates.retain(|name| self.sight.account(self.tree, name));
            record.all_coordinated.retain(|name| self.sight.account(self.tree, name));
            if !self.caller.is_operator() && user.name != self.caller.owner.user {
                // As in Slurm, others' wckeys are for operators.
                record.wckeys.clear();
            }
            rows.push(Row::User(record));
            if request.with_associations {
                let own = self.tree.of_user(&user.name).filter(|one| self.fits(one));
                rows.extend(own.map(|one| self.row(one, 0)));
            }
        }
        rows
    }

    fn associations(&self) -> Vec<Row> {
        let all = self.tree.walk().into_iter().filter(|placed| self.fits(placed.association));
        all.map(|placed| Row::Association(accounts::association(self.tree, placed))).collect()
    }

    /// Returns associations with their usage. Users who share without an association follow the account
    /// for which they count.
    fn shares(&self, cluster: &Cluster, now: Time) -> Vec<Row> {
        let to_come = cluster.usage_to_come(now);
        let mut rows = Vec::new();
        for placed in self.tree.walk() {
            let (own, depth) = (placed.association, placed.depth);
            if self.fits(own) && own.user.as_ref().is_none_or(|user| self.sight.usage(self.tree, user)) {
                let usage = Some(accounts::usage(cluster, &Holder::Association(own.id), &to_come));
                let record = accounts::association(self.tree, placed);
                rows.push(Row::Association(v1::AssociationRecord { usage, ..record }));
            }
            let is_asked = !self.which.elsewhere && any(&self.which.accounts, Some(&own.account));
            if own.user.is_some() || !is_asked || !self.sight.account(self.tree, &own.account) {
                continue;
            }
            for (user, _) in cluster.usage().outsiders(own.id) {
                if any(&self.which.users, Some(user)) && self.sight.usage(self.tree, user) {
                    let holder = Holder::Outsider { account: own.id, user: Arc::clone(user) };
                    let usage = Some(accounts::usage(cluster, &holder, &to_come));
                    let record = accounts::outsider(own, user, depth + 1);
                    rows.push(Row::Association(v1::AssociationRecord { usage, ..record }));
                }
            }
        }
        rows
    }

    fn qos(&self, with_deleted: bool) -> Vec<Row> {
        let named = |name: &str| {
            !self.which.elsewhere
                && (self.which.names.is_empty()
                    || self.which.names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name)))
        };
        let all = self
            .tree
            .qos()
            .filter(|qos| named(&qos.name) && any(&self.which.descriptions, Some(&qos.description)));
        let deleted = self.tree.deleted_qos().filter(|name| with_deleted && named(name));
        let gone = |name: &Arc<str>| v1::QosRecord {
            name: name.to_string(),
            deleted: true,
            ..v1::QosRecord::default()
        };
        let shown = |qos: v1::QosRecord| v1::QosRecord {
            allow_accounts: names(&self.sight.accounts(self.tree, &qos.allow_accounts.join(","))),
            ..qos
        };
        all.map(|qos| Row::Qos(shown(accounts::qos(qos))))
            .chain(deleted.map(|name| Row::Qos(gone(name))))
            .collect()
    }

    fn row(&self, association: &Arc<Association>, depth: usize) -> Row {
        Row::Association(accounts::association(self.tree, Placed { association, depth }))
    }

    /// True if the request selects the association and the caller may see it.
    fn fits(&self, association: &Arc<Association>) -> bool {
        let which = &self.which;
        let qos = || self.tree.qos_of(association);
        !which.elsewhere
            && any(&which.accounts, Some(&association.account))
            && any_or_none(&which.users, association.user.as_ref())
            && any(&which.partitions, association.partition.as_ref())
            && any_or_none(&which.parents, association.parent.as_ref())
            && (which.qos.is_empty() || !which.qos.is_disjoint(&qos()))
            && self.sight.account(self.tree, &association.account)
            && association.user.as_ref().is_none_or(|user| self.sight.user(self.tree, user))
    }
}

/// Splits a comma-separated list; empty names are left out.
fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// True if a name is in a set, or if the set is empty. The empty name stands for no name: `user=''` selects
/// the associations of accounts.
fn any_or_none(set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>) -> bool {
    any(set, name) || (name.is_none() && set.contains(""))
}

/// True if a name is in a set, or if the set is empty.
fn any(set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>) -> bool {
    set.is_empty() || name.is_some_and(|name| set.contains(name))
}
