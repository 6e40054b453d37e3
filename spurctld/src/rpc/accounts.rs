//! The policy tree: what is asked to be changed of it, and what is shown of it to whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use spur_core::cluster::Holder;
use spur_core::cluster::{Accounts, Cluster, Placed};
use spur_core::controller::{self, Command, Reject};
use spur_core::model::accounts::Association;
use spur_core::model::accounts::ask::{Entity, Which};
use spur_core::model::caller::Caller;
use spur_core::model::config::Private;
use spur_core::text::time::Time;
use spur_proto::convert::{accounts, reject};
use spur_proto::v1;
use spur_proto::v1::accounts_row::Row;
use tonic::Status;

use super::lists::parts;
use super::{Desk, Listing, Name, odd};
use crate::answer::Answer;
use crate::clock;

impl Desk {
    /// Changes the tree, or tells what a change would do.
    pub(super) async fn change_policy_tree(
        &self,
        caller: Caller,
        request: v1::ChangeAccountsRequest,
    ) -> Result<v1::ChangeAccountsResponse, Status> {
        let cluster_name = Arc::clone(&self.replica.read().policy().cluster_name);
        let ask = accounts::read(&cluster_name, &request);
        let ask = ask.map_err(|text| reject::status(&Reject::Accounts(text)))?;
        if request.preview {
            let lines = controller::preview(&self.replica.read(), &caller, &ask);
            let lines = lines.map_err(|refused| reject::status(&refused))?;
            return Ok(v1::ChangeAccountsResponse { lines });
        }
        let name = Name::read(&request.request_id, request.retry)?;
        let shown = request.shown.map(|shown| shown.lines);
        match self.command(caller, name, Command::ChangeAccounts { ask: Box::new(ask), shown }).await? {
            Answer::AccountsChanged { lines } => Ok(v1::ChangeAccountsResponse { lines }),
            other => Err(odd(&other)),
        }
    }

    /// The part of the tree that is asked for and that the caller may see.
    pub(super) fn policy_tree(
        &self,
        caller: &Caller,
        request: &v1::ListAccountsRequest,
    ) -> Result<Listing<v1::ListAccountsResponse>, Status> {
        let cluster = self.replica.read();
        let read = accounts::conditions(&cluster.policy().cluster_name, request);
        let (entity, which) = read.map_err(|text| reject::status(&Reject::Accounts(text)))?;
        let view = View { tree: cluster.accounts(), sight: Sight::of(&cluster, caller), which };
        let rows = match entity {
            Entity::Account => view.accounts(request),
            Entity::User => view.users(request),
            Entity::Qos => view.qos(request.with_deleted),
            Entity::Association | Entity::Coordinator | Entity::Cluster if request.with_usage => {
                view.shares(&cluster, clock::now(&cluster))
            }
            Entity::Association | Entity::Coordinator | Entity::Cluster => view.associations(),
        };
        drop(cluster);
        let rows: Vec<v1::AccountsRow> =
            rows.into_iter().map(|row| v1::AccountsRow { row: Some(row) }).collect();
        let pages: Vec<_> = parts(rows).map(|rows| Ok(v1::ListAccountsResponse { rows })).collect();
        Ok(Box::pin(tokio_stream::iter(pages)))
    }
}

/// What of the tree is hidden from a caller, by the cluster's `private_data`.
struct Sight {
    user: Arc<str>,
    hides_accounts: bool,
    hides_users: bool,
}

impl Sight {
    fn of(cluster: &Cluster, caller: &Caller) -> Self {
        let hides = |what| cluster.policy().jobs.hides(what, caller);
        Self {
            user: Arc::clone(&caller.owner.user),
            hides_accounts: hides(Private::Accounts),
            hides_users: hides(Private::Users) || hides(Private::Usage),
        }
    }

    /// Whether an account is shown: with `accounts` hidden, those that the caller is in or coordinates.
    fn account(&self, tree: &Accounts, account: &str) -> bool {
        !self.hides_accounts
            || tree.coordinates(&self.user, account)
            || tree.of_user(&self.user).any(|own| tree.is_within(&own.account, account))
    }

    /// Whether a user is shown: with `users` or `usage` hidden, the caller himself and those of accounts that he
    /// coordinates.
    fn user(&self, tree: &Accounts, user: &str) -> bool {
        let coordinates = |own: &Arc<Association>| tree.coordinates(&self.user, &own.account);
        !self.hides_users || *self.user == *user || tree.of_user(user).any(coordinates)
    }
}

/// The tree as a caller asks for it.
struct View<'a> {
    tree: &'a Accounts,
    sight: Sight,
    which: Which,
}

impl View<'_> {
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
            rows.push(Row::Account(accounts::account(account)));
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
                && which.admin_level.is_none_or(|level| level == user.admin_level)
                && self.sight.user(self.tree, &user.name)
        });
        let mut rows = Vec::new();
        for user in all {
            rows.push(Row::User(accounts::user(self.tree, user)));
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

    /// Associations with their usage, and users who share without one behind the account that they count for.
    fn shares(&self, cluster: &Cluster, now: Time) -> Vec<Row> {
        let to_come = cluster.usage_to_come(now);
        let mut rows = Vec::new();
        for placed in self.tree.walk() {
            let (own, depth) = (placed.association, placed.depth);
            if self.fits(own) {
                let usage = Some(accounts::usage(cluster, &Holder::Association(own.id), &to_come));
                let record = accounts::association(self.tree, placed);
                rows.push(Row::Association(v1::AssociationRecord { usage, ..record }));
            }
            let is_asked = !self.which.elsewhere && any(&self.which.accounts, Some(&own.account));
            if own.user.is_some() || !is_asked || !self.sight.account(self.tree, &own.account) {
                continue;
            }
            for (user, _) in cluster.usage().outsiders(own.id) {
                if any(&self.which.users, Some(user)) && self.sight.user(self.tree, user) {
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
        all.map(|qos| Row::Qos(accounts::qos(qos))).chain(deleted.map(|name| Row::Qos(gone(name)))).collect()
    }

    fn row(&self, association: &Arc<Association>, depth: usize) -> Row {
        Row::Association(accounts::association(self.tree, Placed { association, depth }))
    }

    /// Whether an association is asked for and may be seen.
    fn fits(&self, association: &Arc<Association>) -> bool {
        let which = &self.which;
        let qos = || self.tree.qos_of(association);
        !which.elsewhere
            && any(&which.accounts, Some(&association.account))
            && any(&which.users, association.user.as_ref())
            && any(&which.partitions, association.partition.as_ref())
            && any(&which.parents, association.parent.as_ref())
            && (which.qos.is_empty() || !which.qos.is_disjoint(&qos()))
            && self.sight.account(self.tree, &association.account)
            && association.user.as_ref().is_none_or(|user| self.sight.user(self.tree, user))
    }
}

/// Whether a name is in a set; an empty set has all.
fn any(set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>) -> bool {
    set.is_empty() || name.is_some_and(|name| set.contains(name))
}
