//! Add accounts, users, QOS and coordinators.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::Reject;
use super::{DENIED, Draft, limit_settings, settings};
use crate::cluster::AccountChange;
use crate::model::accounts::ask::{AccountSet, AssociationSet, QosSet, UserAdd, Which};
use crate::model::accounts::{Account, AdminLevel, Association, Qos, ROOT, Shares, User};
use crate::text::gather::is_layer_name;
use crate::text::time::{Seconds, TimeLimit};

impl Draft<'_> {
    pub(super) fn add_accounts(&mut self, names: &[Arc<str>], set: &AccountSet) -> Result<(), Reject> {
        if names.is_empty() {
            return Err(Reject::Accounts(" Need name of account to add.".to_owned()));
        }
        let parent = set.parent.clone().unwrap_or_else(|| ROOT.into());
        if self.tree.account(&parent).is_none() {
            return Err(Reject::Accounts(format!(
                " Parent account '{parent}' doesn't exist on cluster {}\n        Contact your admin to add this account.\n \
                 No associations created.",
                self.name()
            )));
        }
        self.known_in(&set.association)?;
        if !self.may_change(&parent) {
            return Err(Reject::AccountsDenied(format!(" Problem adding accounts: {DENIED}")));
        }
        let mut seen = BTreeSet::new();
        let new = |name: &&Arc<str>| self.tree.account(name).is_none() && seen.insert(Arc::clone(name));
        let names: Vec<Arc<str>> = names.iter().filter(new).cloned().collect();
        if names.is_empty() {
            return Err(Reject::NothingToDo(" Nothing new added.".to_owned()));
        }
        names.iter().try_for_each(|name| named(name, "account"))?;
        self.say(" Adding Account(s)");
        names.iter().for_each(|name| self.lines.push(format!("  {name}")));
        let (description, organization) = (set.description.as_deref(), set.organization.as_deref());
        self.say(" Settings");
        self.say(format!("  Description     = {}", description.unwrap_or("Account Name")));
        self.say(format!("  Organization    = {}", organization.unwrap_or("Parent/Account Name")));
        self.say(" Associations");
        for name in &names {
            let line = format!("  A = {name:<10} C = {:<10}", self.name());
            self.say(line);
        }
        if *set != AccountSet::default() {
            self.say(" Settings");
            let more = settings(&set.association, Some(&parent));
            more.iter().for_each(|(name, value)| self.lines.push(format!("  {name:<14}= {value}")));
        }
        for name in names {
            self.put_account(&name, &parent, set);
        }
        Ok(())
    }

    /// Adds an account below another one.
    pub(super) fn put_account(&mut self, name: &Arc<str>, parent: &Arc<str>, set: &AccountSet) {
        let above = if **parent == *ROOT { name } else { parent };
        self.put(AccountChange::Account(Arc::new(Account {
            name: Arc::clone(name),
            description: set.description.clone().unwrap_or_else(|| Arc::clone(name)),
            organization: set.organization.clone().unwrap_or_else(|| Arc::clone(above)),
            ..Account::default()
        })));
        let bare = Association {
            id: self.tree.next_association(),
            account: Arc::clone(name),
            parent: Some(Arc::clone(parent)),
            ..Association::default()
        };
        let association = self.changed(&bare, &set.association);
        self.put(AccountChange::Association(Arc::new(association)));
    }

    pub(super) fn add_users(&mut self, names: &[Arc<str>], add: &UserAdd) -> Result<(), Reject> {
        if names.is_empty() {
            return Err(Reject::Accounts(" Need name of user to add.".to_owned()));
        }
        let mut accounts = add.accounts.clone();
        let default = add.set.default_account.iter().filter(|default| !accounts.contains(default)).cloned();
        accounts.extend(default.collect::<Vec<_>>());
        let wckeys = add.all_wckeys();
        if accounts.is_empty() && wckeys.is_empty() {
            return Err(Reject::Accounts(" Need name of account to add user to.".to_owned()));
        }
        wckeys.iter().try_for_each(|key| named(key, "wckey"))?;
        self.accounts_exist(&accounts)?;
        self.known_in(&add.set.association)?;
        self.may_add_users(&accounts, add)?;
        let partitions: Vec<Option<Arc<str>>> = match add.partitions.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        let before = self.changes.len();
        let mut added = AddedUsers::default();
        for name in names {
            named(name, "user")?;
            added.users.extend(self.tree.user(name).is_none().then(|| format!("  {name}")));
            for account in &accounts {
                for partition in &partitions {
                    if self.put_member(name, account, partition.as_ref(), &add.set.association) {
                        added.associations.push(self.new_member(name, account, partition.as_deref()));
                    }
                }
            }
            let new = self.new_wckeys(name, &wckeys);
            added.wckeys.extend(new.iter().map(|key| self.new_wckey(name, key)));
            self.put_user(name, &accounts, add);
        }
        if self.changes.len() == before {
            return Err(Reject::NothingToDo(" Nothing new added.".to_owned()));
        }
        self.say_users(added, add);
        Ok(())
    }

    fn accounts_exist(&self, accounts: &[Arc<str>]) -> Result<(), Reject> {
        let unknown = accounts.iter().filter(|name| self.tree.account(name).is_none());
        let unknown: Vec<String> = unknown
            .map(|name| {
                format!(
                    " This account '{name}' doesn't exist.\n        Contact your admin to add this account.\n"
                )
            })
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Reject::Accounts(format!("{} No associations or wckeys created.", unknown.concat())))
    }

    fn may_add_users(&self, accounts: &[Arc<str>], add: &UserAdd) -> Result<(), Reject> {
        let raises = add.set.admin_level.is_some_and(|level| level > AdminLevel::None);
        let gives_wckeys = !add.wckeys.is_empty() || add.set.default_wckey.is_some();
        let all = accounts.iter().chain(&add.coordinates);
        let mut missing = add.coordinates.iter().filter(|name| self.tree.account(name).is_none());
        if let Some(name) = missing.next() {
            return Err(Reject::Accounts(format!(" You specified a non-existent account '{name}'.")));
        }
        let may_give =
            (!raises || self.caller.is_administrator()) && (!gives_wckeys || self.caller.is_operator());
        if may_give && all.into_iter().all(|name| self.may_change(name)) {
            return Ok(());
        }
        Err(Reject::AccountsDenied(format!(" Problem adding users: {DENIED}")))
    }

    /// Adds an association of a user unless it exists; returns true if it was added.
    pub(super) fn put_member(
        &mut self,
        user: &Arc<str>,
        account: &Arc<str>,
        partition: Option<&Arc<str>>,
        set: &AssociationSet,
    ) -> bool {
        if self.tree.exactly(user, account, partition.map(|name| &**name)).is_some() {
            return false;
        }
        let bare = Association {
            id: self.tree.next_association(),
            account: Arc::clone(account),
            user: Some(Arc::clone(user)),
            partition: partition.cloned(),
            shares: Shares::default(),
            ..Association::default()
        };
        let association = self.changed(&bare, set);
        self.put(AccountChange::Association(Arc::new(association)));
        true
    }

    /// Adds a user or updates an existing one. The first account becomes the default of a user without one,
    /// and so does the first wckey.
    pub(super) fn put_user(&mut self, name: &Arc<str>, accounts: &[Arc<str>], add: &UserAdd) {
        let known = self.tree.user(name).map(|user| User::clone(user));
        let mut user = known.clone().unwrap_or_else(|| User { name: Arc::clone(name), ..User::default() });
        if let Some(default) = &add.set.default_account {
            user.default_account = Some(Arc::clone(default));
        }
        user.default_account = user.default_account.or_else(|| accounts.first().cloned());
        let wckeys = add.all_wckeys();
        let default = add.set.default_wckey.clone().or(user.default_wckey);
        user.default_wckey = default.or_else(|| wckeys.first().cloned());
        user.wckeys.extend(wckeys);
        user.admin_level = add.set.admin_level.unwrap_or(user.admin_level);
        if known.as_ref() != Some(&user) {
            self.put(AccountChange::User(Arc::new(user)));
        }
        for account in &add.coordinates {
            self.put_coordinator(name, account);
        }
    }

    /// Makes a user a coordinator of an account.
    fn put_coordinator(&mut self, user: &Arc<str>, account: &str) {
        let Some(known) = self.tree.account(account).filter(|known| !known.coordinators.contains(user))
        else {
            return;
        };
        let mut account = Account::clone(known);
        account.coordinators.insert(Arc::clone(user));
        self.put(AccountChange::Account(Arc::new(account)));
    }

    fn new_member(&self, user: &str, account: &str, partition: Option<&str>) -> String {
        let partition = partition.map(|name| format!(" P = {name:<10}")).unwrap_or_default();
        format!("  U = {user:<9} A = {account:<10} C = {:<10}{partition}", self.name())
    }

    /// The wckeys that a user does not have yet.
    pub(super) fn new_wckeys(&self, user: &str, wckeys: &[Arc<str>]) -> Vec<Arc<str>> {
        let has = |key: &&Arc<str>| self.tree.user(user).is_some_and(|user| user.wckeys.contains(*key));
        wckeys.iter().filter(|key| !has(key)).cloned().collect()
    }

    fn new_wckey(&self, user: &str, key: &str) -> String {
        format!("  U = {user:<9} W = {key:<10} C = {:<10}", self.name())
    }

    fn say_users(&mut self, added: AddedUsers, add: &UserAdd) {
        let AddedUsers { users, associations, wckeys } = added;
        if !users.is_empty() {
            self.say(" Adding User(s)");
            self.lines.extend(users);
        }
        let default = add.set.default_account.iter().map(|name| format!("  Default Account = {name}"));
        let wckey = add.set.default_wckey.iter().map(|key| format!("  Default WCKey   = {key}"));
        let level = add.set.admin_level.iter().map(|level| format!("  Admin Level     = {level}"));
        let own: Vec<String> = default.chain(wckey).chain(level).collect();
        if !own.is_empty() {
            self.say(" Settings =");
            self.lines.extend(own);
        }
        let with_settings = !associations.is_empty() || (!wckeys.is_empty() && !add.accounts.is_empty());
        if !associations.is_empty() {
            self.say(" Associations =");
            self.lines.extend(associations);
        }
        if !wckeys.is_empty() {
            self.say(" WCKeys =");
            self.lines.extend(wckeys);
        }
        if with_settings {
            self.say(" Non Default Settings");
            let more = settings(&add.set.association, None);
            self.lines.extend(more.iter().map(|(name, value)| format!("  {name:<14}= {value}")));
        }
    }

    pub(super) fn add_qos(&mut self, names: &[Arc<str>], set: &QosSet) -> Result<(), Reject> {
        if names.is_empty() {
            return Err(Reject::Accounts(" Need name of qos to add.".to_owned()));
        }
        let names: BTreeSet<&Arc<str>> =
            names.iter().filter(|name| self.tree.qos_named(name).is_none()).collect();
        if names.is_empty() {
            return Err(Reject::NothingToDo(" Nothing new added.".to_owned()));
        }
        if !self.caller.is_administrator() {
            return Err(Reject::AccountsDenied(format!(" Problem adding QOS: {DENIED}")));
        }
        self.say(" Adding QOS(s)");
        let mut last = Arc::default();
        for name in names {
            named(name, "QOS")?;
            let bare = Qos {
                id: self.tree.next_qos(),
                name: Arc::clone(name),
                description: Arc::clone(name),
                ..Qos::default()
            };
            let qos = self.changed_qos(&bare, set)?;
            self.say(format!("  {name}"));
            last = Arc::clone(&qos.description);
            self.put(AccountChange::Qos(Arc::new(qos)));
        }
        self.say(" Settings");
        self.say(format!("  Description    = {last}"));
        let more = qos_settings(set);
        self.lines.extend(more.iter().map(|(name, value)| format!("  {name:<24} = {value}")));
        Ok(())
    }

    pub(super) fn add_coordinators(&mut self, which: &Which) -> Result<(), Reject> {
        self.coordinators_exist(which)?;
        let (users, accounts) = (&which.users, &which.accounts);
        self.say(" Adding Coordinator User(s)");
        users.iter().for_each(|name| self.lines.push(format!("  {name}")));
        self.say(" To Account(s) and all sub-accounts");
        accounts.iter().for_each(|name| self.lines.push(format!("  {name}")));
        for account in accounts {
            for user in users {
                self.put_coordinator(user, account);
            }
        }
        Ok(())
    }

    /// Refuses a request without users or accounts, users and accounts that do not exist, and accounts that
    /// the caller may not change.
    pub(super) fn coordinators_exist(&self, which: &Which) -> Result<(), Reject> {
        let (users, accounts) = (&which.users, &which.accounts);
        if users.is_empty() {
            return Err(Reject::Accounts(" You need to specify a user list here.".to_owned()));
        }
        if accounts.is_empty() {
            return Err(Reject::Accounts(" You need to specify an account list here.".to_owned()));
        }
        let unknown = accounts.iter().filter(|name| self.tree.account(name).is_none());
        let mut lines: Vec<String> =
            unknown.map(|name| format!(" You specified a non-existent account '{name}'.")).collect();
        let unknown = users.iter().filter(|name| self.tree.user(name).is_none());
        lines.extend(unknown.map(|name| format!(" You specified a non-existent user '{name}'.")));
        if !lines.is_empty() {
            return Err(Reject::Accounts(lines.join("\n")));
        }
        if accounts.iter().all(|name| self.may_change(name)) {
            return Ok(());
        }
        Err(Reject::AccountsDenied(format!(" Problem with coordinators: {DENIED}")))
    }
}

/// Lines about the records that a request to add users creates.
#[derive(Default)]
struct AddedUsers {
    users: Vec<String>,
    associations: Vec<String>,
    wckeys: Vec<String>,
}

/// The names and values of the settings of QOS, in the order in which Slurm lists them.
fn qos_settings(set: &QosSet) -> Vec<(&'static str, String)> {
    let list = |names: Vec<String>| names.join(",");
    let flags = set.flags.as_ref().map(|(_, flags)| list(flags.iter().map(ToString::to_string).collect()));
    let preempt = set.preempt.as_ref();
    let preempt = preempt.map(|change| list(change.names.iter().map(ToString::to_string).collect()));
    let mode = set.preempt_mode.flatten().map(|mode| format!("{mode:?}").to_uppercase());
    let span = |span: Option<Option<Seconds>>| span.flatten();
    let real = |factor: f64| format!("{factor:.4}");
    let long = |name| match name {
        "MaxTRES" => "MaxTRESPerJob",
        "MaxTRESMins" => "MaxTRESMinsPerJob",
        other => other,
    };
    let mut all: Vec<(&'static str, String)> =
        limit_settings(&set.limits).into_iter().map(|(name, value)| (long(name), value)).collect();
    all.extend(flags.map(|flags| ("Flags", flags)));
    all.extend(span(set.grace_time).map(|span| ("GraceTime", span.0.to_string())));
    all.extend(preempt.map(|preempt| ("Preempt", preempt)));
    all.extend(mode.map(|mode| ("PreemptMode", mode)));
    all.extend(set.priority.map(|priority| ("Priority", priority.to_string())));
    all.sort();
    let exempt = span(set.exempt_time).map(|span| ("PreemptExemptTime", TimeLimit::Seconds(span.0).long()));
    let at = all.iter().position(|(name, _)| *name > "PreemptMode").unwrap_or(all.len());
    exempt.into_iter().for_each(|exempt| all.insert(at, exempt));
    all.extend(set.usage_factor.map(|factor| ("UsageFactor", real(factor))));
    all.extend(set.usage_threshold.flatten().map(|factor| ("UsageThreshold", real(factor))));
    all.extend(set.limit_factor.flatten().map(|factor| ("LimitFactor", real(factor))));
    all
}

/// Names that dumps and lists can hold.
pub(super) fn named(name: &str, what: &str) -> Result<(), Reject> {
    // A leading `*` marks the wckey of a job that names none.
    let is_of_user = what == "user" || (what == "wckey" && !name.is_empty() && !name.starts_with('*'));
    if is_layer_name(name) || (is_of_user && !name.contains([',', '\'', '"', ':', '=', ' '])) {
        return Ok(());
    }
    Err(Reject::Accounts(format!(
        " '{name}' cannot be the name of an entity ({what}); use letters, digits, `_`, `-` and `.`"
    )))
}
