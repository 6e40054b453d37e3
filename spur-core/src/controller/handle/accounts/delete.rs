//! Deletion of accounts, users, QOS and coordinators. An entity with pending or running jobs is not deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::Reject;
use super::clusters::of_other;
use super::{DENIED, Draft, fits};
use crate::cluster::{AccountChange, Accounts, Placed};
use crate::model::accounts::ask::Which;
use crate::model::accounts::{Account, Association, Qos, QosAccess, ROOT, User};

const NOTHING: &str = " Nothing deleted";
const NO_CONDITIONS: &str = " No conditions given to remove, not executing.";

fn denied() -> Reject {
    Reject::AccountsDenied(format!(
        "sacctmgr: error: Your user doesn't have privilege to perform this action\n Error with request: {DENIED}"
    ))
}

impl Draft<'_> {
    pub(super) fn delete_accounts(&mut self, which: &Which) -> Result<(), Reject> {
        if which.is_empty() {
            return Err(Reject::Accounts(NO_CONDITIONS.to_owned()));
        }
        let accounts = self.matching_accounts(which);
        if accounts.is_empty() {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        if accounts.iter().any(|account| *account.name == *ROOT) {
            return Err(Reject::Accounts(
                " You are not allowed to remove the root account.\n Use remove cluster instead.".to_owned(),
            ));
        }
        if !accounts.iter().all(|account| self.may_change(&account.name)) {
            return Err(denied());
        }
        if self.names_clusters {
            self.say(" Deleting account associations...");
            for account in &accounts {
                let below = self.tree.walk_from(&account.name);
                let lines: Vec<String> =
                    below.iter().map(|placed| self.modified(placed.association)).collect();
                self.lines.extend(lines);
            }
        } else {
            self.say(" Deleting accounts...");
            accounts.iter().for_each(|account| self.lines.push(format!("  {}", account.name)));
        }
        self.drop_accounts(accounts.iter().map(|account| Arc::clone(&account.name)).collect())
    }

    /// Deletes accounts and everything below them; refuses if their jobs are pending or running.
    pub(super) fn drop_accounts(&mut self, named: Vec<Arc<str>>) -> Result<(), Reject> {
        let placed = named.iter().flat_map(|name| self.tree.walk_from(name));
        let mut associations: Vec<Arc<Association>> =
            placed.map(|placed| Arc::clone(placed.association)).collect();
        associations.sort_by_key(|association| association.id);
        associations.dedup_by_key(|association| association.id);
        let is_account = |association: &&Arc<Association>| association.user.is_none();
        let gone: BTreeSet<Arc<str>> = associations
            .iter()
            .filter(is_account)
            .map(|association| Arc::clone(&association.account))
            .collect();
        self.refuse_active(|job| self.account_of(job).is_some_and(|account| gone.contains(&account)))?;
        for association in &associations {
            self.put(AccountChange::AssociationDeleted(association.id));
        }
        for name in &gone {
            self.put(AccountChange::AccountDeleted(Arc::clone(name)));
        }
        let users: BTreeSet<Arc<str>> = associations.iter().filter_map(|one| one.user.clone()).collect();
        for name in users {
            self.lose_default(&name);
        }
        Ok(())
    }

    /// Removes a user's default account if the user has no association with it left.
    fn lose_default(&mut self, name: &str) {
        let Some(user) = self.tree.user(name) else { return };
        let Some(default) = &user.default_account else { return };
        if !self.tree.of_user(name).any(|own| own.account == *default) {
            let user = User { default_account: None, ..User::clone(user) };
            self.put(AccountChange::User(Arc::new(user)));
        }
    }

    pub(super) fn delete_users(&mut self, which: &Which) -> Result<(), Reject> {
        if which.is_empty() {
            return Err(Reject::Accounts(NO_CONDITIONS.to_owned()));
        }
        if !which.wckeys.is_empty() {
            return self.delete_wckeys(which);
        }
        let users = self.matching_users(which);
        let members: Vec<Arc<Association>> = users
            .iter()
            .flat_map(|user| self.tree.of_user(&user.name))
            .filter(|member| fits(which, member))
            .cloned()
            .collect();
        let narrow = self.names_clusters || !which.accounts.is_empty() || !which.partitions.is_empty();
        if users.is_empty() || (narrow && members.is_empty()) {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        let whole = !narrow && !self.caller.is_operator();
        let alien = |user: &Arc<User>| self.tree.of_user(&user.name).next().is_none();
        let places = members.iter().all(|member| self.may_change(&member.account));
        let above = users.iter().any(|user| user.admin_level > self.caller.level);
        if !places || above || (whole && users.iter().any(alien)) {
            return Err(denied());
        }
        if narrow { self.drop_members(&users, &members) } else { self.drop_users(&users) }
    }

    /// Deletes wckeys of users. As in Slurm, jobs that have the keys keep them. A user who loses the default
    /// gets the first of the remaining wckeys as default.
    fn delete_wckeys(&mut self, which: &Which) -> Result<(), Reject> {
        if !which.accounts.is_empty() || !which.partitions.is_empty() {
            return Err(Reject::Accounts(" Mixing Account and WCKeys is not allowed".to_owned()));
        }
        if !self.caller.is_operator() {
            return Err(denied());
        }
        let users = self.matching_users(which);
        if users.is_empty() {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        self.say(" Deleting user WCKeys...");
        let mut defaults = Vec::new();
        for user in users {
            let mut made = User::clone(&user);
            for key in user.wckeys.intersection(&which.wckeys) {
                let line = format!("  C = {:<10} W = {key:<20} U = {:<9}", self.name(), user.name);
                self.say(line);
                made.wckeys.remove(key);
            }
            if made.default_wckey.as_ref().is_some_and(|key| which.wckeys.contains(key)) {
                made.default_wckey = made.wckeys.first().cloned();
                let default = made.default_wckey.as_deref().unwrap_or("NONE");
                defaults.push(format!("  U = {:<9} Default WCKey = {default}", user.name));
            }
            self.put(AccountChange::User(Arc::new(made)));
        }
        if !defaults.is_empty() {
            self.say(" Modified users...");
            self.lines.extend(defaults);
        }
        Ok(())
    }

    /// Deletes users with all their associations; refuses if their jobs are pending or running.
    fn drop_users(&mut self, users: &[Arc<User>]) -> Result<(), Reject> {
        self.say(" Deleting users...");
        let names: BTreeSet<Arc<str>> = users.iter().map(|user| Arc::clone(&user.name)).collect();
        names.iter().for_each(|name| self.lines.push(format!("  {name}")));
        self.refuse_active(|job| names.contains(&job.spec.owner.user))?;
        for name in &names {
            let own: Vec<_> = self.tree.of_user(name).map(|association| association.id).collect();
            own.into_iter().for_each(|id| self.put(AccountChange::AssociationDeleted(id)));
            self.forget_user(name);
        }
        Ok(())
    }

    /// Deletes a user who has no association left.
    pub(super) fn forget_user(&mut self, name: &Arc<str>) {
        let coordinated = self.tree.accounts().filter(|account| account.coordinators.contains(name));
        for account in coordinated.cloned().collect::<Vec<_>>() {
            let mut made = Account::clone(&account);
            made.coordinators.remove(name);
            self.put(AccountChange::Account(Arc::new(made)));
        }
        self.put(AccountChange::UserDeleted(Arc::clone(name)));
    }

    /// Deletes associations of users, and the users who then have none left.
    pub(super) fn drop_members(
        &mut self,
        users: &[Arc<User>],
        members: &[Arc<Association>],
    ) -> Result<(), Reject> {
        self.refuse_active(|job| {
            let account = self.account_of(job);
            let used = |member: &&Arc<Association>| {
                member.user.as_ref() == Some(&job.spec.owner.user)
                    && Some(&member.account) == account.as_ref()
                    && member.partition.as_ref().is_none_or(|name| job.spec.partitions.contains(name))
            };
            members.iter().any(|member| used(&member))
        })?;
        self.say(" Deleting user associations...");
        for member in members {
            let user = member.user.as_deref().unwrap_or_default();
            let partition =
                member.partition.as_ref().map(|name| format!(" P = {name:<10}")).unwrap_or_default();
            let line =
                format!("  C = {:<10} A = {:<10} U = {user:<9}{partition}", self.name(), member.account);
            self.say(line);
            self.put(AccountChange::AssociationDeleted(member.id));
        }
        let left: Vec<Arc<str>> = users
            .iter()
            .map(|user| Arc::clone(&user.name))
            .filter(|name| self.tree.of_user(name).next().is_none())
            .collect();
        if !left.is_empty() {
            self.say(" Deleting users (No Associations)...");
        }
        for user in users {
            if left.contains(&user.name) {
                self.say(format!("  {}", user.name));
                self.forget_user(&user.name);
            } else {
                self.lose_default(&user.name);
            }
        }
        Ok(())
    }

    pub(super) fn delete_qos(&mut self, which: &Which) -> Result<(), Reject> {
        if which.is_empty() {
            return Err(Reject::Accounts(NO_CONDITIONS.to_owned()));
        }
        let all = self.matching_qos(which);
        if all.is_empty() {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        if !self.caller.is_administrator() {
            return Err(denied());
        }
        let names: BTreeSet<Arc<str>> = all.iter().map(|qos| Arc::clone(&qos.name)).collect();
        let mut defaults = self.defaults_among(&names);
        for (cluster, tree) in self.other_trees() {
            let other = Draft::new(self.cluster, self.caller, tree, &cluster, true);
            defaults.extend(other.defaults_among(&names));
        }
        if !defaults.is_empty() {
            return Err(Reject::Accounts(format!(
                " Associations listed below have these as their Default QOS.\n{}\n Please either remove the qos' listed above \
                 from list and resubmit,\n or change the default qos to remove the qos.\n Changes Discarded",
                defaults.join("\n")
            )));
        }
        self.refuse_active(|job| job.spec.qos.as_ref().is_some_and(|name| names.contains(name)))?;
        self.say(" Deleting QOS(s)...");
        names.iter().for_each(|name| self.lines.push(format!("  {name}")));
        self.forget_qos(&names);
        Ok(())
    }

    /// The associations that have one of these QOS as default, in words.
    fn defaults_among(&self, names: &BTreeSet<Arc<str>>) -> Vec<String> {
        let everywhere = self.tree.walk();
        let lines = everywhere.iter().map(|placed| placed.association).filter_map(|association| {
            let default = association.default_qos.as_ref().filter(|name| names.contains(*name))?;
            Some(self.with_default_qos(default, association))
        });
        lines.collect()
    }

    /// Names and trees of the other clusters.
    fn other_trees(&self) -> Vec<(Arc<str>, Accounts)> {
        let names = self.tree.other_clusters();
        names.filter_map(|name| Some((Arc::clone(name), self.tree.of_cluster(name)?))).collect()
    }

    /// Deletes QOS and removes them from the lists that name them. A later QOS of the same name therefore
    /// gets no access from old lists.
    fn forget_qos(&mut self, names: &BTreeSet<Arc<str>>) {
        without_qos(&self.tree, names).into_iter().for_each(|change| self.put(change));
        for (cluster, tree) in self.other_trees() {
            let changes = without_qos(&tree, names).into_iter();
            changes.filter_map(|change| of_other(&cluster, change)).for_each(|change| self.put(change));
        }
        let preempting: Vec<Arc<Qos>> =
            self.tree.qos().filter(|qos| !qos.preempt.is_disjoint(names)).cloned().collect();
        for qos in preempting {
            let mut made = Qos::clone(&qos);
            made.preempt.retain(|name| !names.contains(name));
            self.put(AccountChange::Qos(Arc::new(made)));
        }
        names.iter().for_each(|name| self.put(AccountChange::QosDeleted(Arc::clone(name))));
    }

    pub(super) fn delete_coordinators(&mut self, which: &Which) -> Result<(), Reject> {
        let everywhere = which.accounts.is_empty();
        let mut which = which.clone();
        if everywhere {
            let coordinated =
                self.tree.accounts().filter(|account| !account.coordinators.is_disjoint(&which.users));
            which.accounts = coordinated.map(|account| Arc::clone(&account.name)).collect();
        }
        if !everywhere || !which.accounts.is_empty() {
            self.coordinators_exist(&which)?;
        }
        self.say(" Removing Coordinators with user name");
        which.users.iter().for_each(|name| self.lines.push(format!("  {name}")));
        self.say(if everywhere { " From all accounts" } else { " From Account(s)" });
        if !everywhere {
            which.accounts.iter().for_each(|name| self.lines.push(format!("  {name}")));
        }
        let mut gone = Vec::new();
        for name in &which.accounts {
            let Some(known) = self.tree.account(name).map(Arc::clone) else { continue };
            let mut made = Account::clone(&known);
            for user in which.users.iter().filter(|user| known.coordinators.contains(*user)) {
                made.coordinators.remove(user);
                gone.push(format!("  U = {user:<9} A = {name:<10}"));
            }
            if made != *known {
                self.put(AccountChange::Account(Arc::new(made)));
            }
        }
        if gone.is_empty() {
            return Err(Reject::NothingToDo(format!("{}\n Nothing removed", self.lines.join("\n"))));
        }
        self.say(" Removed Coordinators (sub accounts not listed)...");
        self.lines.extend(gone);
        Ok(())
    }
}

/// The changes that remove QOS from the lists of a tree's associations.
fn without_qos(tree: &Accounts, names: &BTreeSet<Arc<str>>) -> Vec<AccountChange> {
    let changed = |placed: &Placed<'_>| {
        let mut made = Association::clone(placed.association);
        match &mut made.qos {
            QosAccess::Inherited => {}
            QosAccess::These(these) => these.retain(|name| !names.contains(name)),
            QosAccess::Changed { more, less } => {
                more.retain(|name| !names.contains(name));
                less.retain(|name| !names.contains(name));
            }
        }
        (made != **placed.association).then(|| AccountChange::Association(Arc::new(made)))
    };
    tree.walk().iter().filter_map(changed).collect()
}
