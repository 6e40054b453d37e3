//! Changes of accounts, users, QOS, and the association of the account `root`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::Reject;
use super::{DENIED, Draft, fits, is_inherited, same_qos, settings};
use crate::cluster::AccountChange;
use crate::model::accounts::ask::{AccountSet, AssociationSet, QosSet, UserSet, Which};
use crate::model::accounts::{Account, AdminLevel, Association, AssociationId, Qos, ROOT, User};

const NOTHING: &str = " Nothing modified";
const NO_RIGHT: &str =
    "sacctmgr: error: Your user doesn't have privilege to perform this action\n Error with request: ";

fn denied() -> Reject {
    Reject::AccountsDenied(format!("{NO_RIGHT}{DENIED}"))
}

fn nothing_set() -> Reject {
    Reject::Accounts(" You didn't give me anything to set".to_owned())
}

impl Draft<'_> {
    pub(super) fn modify_accounts(&mut self, which: &Which, set: &AccountSet) -> Result<(), Reject> {
        if *set == AccountSet::default() {
            return Err(nothing_set());
        }
        self.known_in(&set.association)?;
        if let Some(parent) = set.parent.as_ref().filter(|parent| self.tree.account(parent).is_none()) {
            return Err(Reject::Accounts(format!(" Parent Account {parent} doesn't exist.")));
        }
        let accounts = self.matching_accounts(which);
        if accounts.is_empty() {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        let whole = set.description.is_some() || set.organization.is_some();
        let into = set.parent.iter();
        let may = accounts.iter().map(|account| &account.name).chain(into).all(|name| self.may_change(name));
        if !may || (whole && !self.caller.is_operator()) {
            return Err(denied());
        }
        if *set == (AccountSet { association: AssociationSet::only_clears_usage(), ..AccountSet::default() })
        {
            self.say_reset();
            for account in &accounts {
                let own = self.tree.of_account(&account.name).map(|own| own.id);
                own.into_iter().for_each(|id| self.put(AccountChange::UsageCleared(id)));
            }
            return Ok(());
        }
        if whole {
            self.say(" Modified accounts...");
            for account in &accounts {
                self.say(format!("  {}", account.name));
                let mut made = Account::clone(account);
                made.description = set.description.clone().unwrap_or(made.description);
                made.organization = set.organization.clone().unwrap_or(made.organization);
                if made != **account {
                    self.put(AccountChange::Account(Arc::new(made)));
                }
            }
        }
        if set.parent.is_some() || !set.association.is_empty() {
            self.say(" Modified account associations...");
            for account in &accounts {
                self.modify_account(account, set)?;
            }
        }
        Ok(())
    }

    /// Adds Slurm's sentence about usage that is set to zero.
    fn say_reset(&mut self) {
        let line = format!("No cluster specified, resetting on local cluster {}", self.name());
        self.say(line);
    }

    fn modify_account(&mut self, account: &Account, set: &AccountSet) -> Result<(), Reject> {
        let Some(before) = self.tree.of_account(&account.name).map(Arc::clone) else { return Ok(()) };
        let mut made = self.changed(&before, &set.association);
        if let Some(parent) = &set.parent {
            if self.tree.is_within(parent, &account.name) || *account.name == *ROOT {
                return Err(Reject::Accounts(format!(
                    " Account {} cannot be below {parent}: {parent} is below it, or is the same",
                    account.name
                )));
            }
            made.parent = Some(Arc::clone(parent));
        }
        let line = self.modified(&before);
        self.say(line);
        if made != *before {
            self.put(AccountChange::Association(Arc::new(made)));
        }
        if set.association.clears_usage {
            self.put(AccountChange::UsageCleared(before.id));
        }
        if is_inherited(&set.association) {
            self.say_below(&account.name, before.id);
        }
        Ok(())
    }

    /// Adds the associations below an account, which inherit from it, to the output.
    fn say_below(&mut self, account: &str, own: AssociationId) {
        let below = self.tree.walk_from(account);
        let below: Vec<String> = below
            .iter()
            .filter(|placed| placed.association.id != own)
            .map(|placed| self.modified(placed.association))
            .collect();
        self.lines.extend(below);
    }

    /// The accounts that meet the conditions, by name.
    pub(super) fn matching_accounts(&self, which: &Which) -> Vec<Arc<Account>> {
        let any = |set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>| {
            set.is_empty() || name.is_some_and(|name| set.contains(name))
        };
        let parent = |name: &str| self.tree.of_account(name).and_then(|own| own.parent.clone());
        let fits = |account: &&Arc<Account>| {
            !which.elsewhere
                && any(&which.descriptions, Some(&account.description))
                && any(&which.organizations, Some(&account.organization))
                && any(&which.parents, parent(&account.name).as_ref())
        };
        match which.names.is_empty() {
            true => self.tree.accounts().filter(fits).cloned().collect(),
            false => {
                which.names.iter().filter_map(|name| self.tree.account(name)).filter(fits).cloned().collect()
            }
        }
    }

    pub(super) fn modify_users(&mut self, which: &Which, set: &UserSet) -> Result<(), Reject> {
        if *set == UserSet::default() {
            return Err(nothing_set());
        }
        self.known_in(&set.association)?;
        if set.association.clears_usage && which.accounts.is_empty() {
            return Err(Reject::Accounts("sacctmgr: error: An account must be specified".to_owned()));
        }
        let users = self.matching_users(which);
        let members: Vec<Arc<Association>> = users
            .iter()
            .flat_map(|user| self.tree.of_user(&user.name))
            .filter(|member| fits(which, member))
            .cloned()
            .collect();
        let own = set.default_account.is_some() || set.default_wckey.is_some() || set.admin_level.is_some();
        if users.is_empty() || (!own && members.is_empty()) {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        self.may_modify_users(&users, &members, set)?;
        if own {
            self.modify_own(&users, set)?;
        }
        if set.association == AssociationSet::only_clears_usage() {
            self.say_reset();
            members.iter().for_each(|member| self.put(AccountChange::UsageCleared(member.id)));
            return Ok(());
        }
        if !set.association.is_empty() {
            self.say(" Modified user associations...");
            for member in members {
                let line = self.modified(&member);
                self.say(line);
                let made = self.changed(&member, &set.association);
                if made != *member {
                    self.put(AccountChange::Association(Arc::new(made)));
                }
                if set.association.clears_usage {
                    self.put(AccountChange::UsageCleared(member.id));
                }
            }
        }
        Ok(())
    }

    /// Refuses changes that the caller may not make. Only administrators change administrator levels, so that
    /// operators cannot raise their own.
    fn may_modify_users(
        &self,
        users: &[Arc<User>],
        members: &[Arc<Association>],
        set: &UserSet,
    ) -> Result<(), Reject> {
        let levels = set.admin_level.is_none() || self.caller.is_administrator();
        let mine = |user: &Arc<User>| self.caller.is_operator() || user.name == self.caller.owner.user;
        let defaults = set.default_account.is_some() || set.default_wckey.is_some();
        let default = !defaults || users.iter().all(mine);
        let places =
            set.association.is_empty() || members.iter().all(|member| self.may_change(&member.account));
        if levels && default && places { Ok(()) } else { Err(denied()) }
    }

    fn modify_own(&mut self, users: &[Arc<User>], set: &UserSet) -> Result<(), Reject> {
        if let Some(account) = &set.default_account {
            let is_in = |user: &User| self.tree.of_user(&user.name).any(|own| own.account == *account);
            self.all_have(users, is_in, &format!("account '{account}'"))?;
        }
        if let Some(wckey) = &set.default_wckey {
            self.all_have(users, |user| user.wckeys.contains(wckey), &format!("wckey '{wckey}'"))?;
        }
        self.say(" Modified users...");
        for user in users {
            self.say(format!("  {}", user.name));
            let mut made = User::clone(user);
            made.default_account = set.default_account.clone().or(made.default_account);
            made.default_wckey = set.default_wckey.clone().or(made.default_wckey);
            made.admin_level = set.admin_level.unwrap_or(made.admin_level);
            if made != **user {
                self.put(AccountChange::User(Arc::new(made)));
            }
        }
        Ok(())
    }

    /// Refuses a new default that some of the users do not have.
    fn all_have(
        &self,
        users: &[Arc<User>],
        has: impl Fn(&User) -> bool,
        default: &str,
    ) -> Result<(), Reject> {
        let without = users.iter().filter(|user| !has(user));
        let without: Vec<String> =
            without.map(|user| format!("\n  U = {} C = {}", user.name, self.name())).collect();
        if without.is_empty() {
            return Ok(());
        }
        Err(Reject::Accounts(format!(
            " Can't modify because these users aren't associated with new default {default}...{}",
            without.concat()
        )))
    }

    /// The users who meet the conditions, by name.
    pub(super) fn matching_users(&self, which: &Which) -> Vec<Arc<User>> {
        let any = |set: &BTreeSet<Arc<str>>, name: Option<&Arc<str>>| {
            set.is_empty() || name.is_some_and(|name| set.contains(name))
        };
        let level = |own: AdminLevel| which.admin_level.is_none_or(|level| level == own);
        let fits = |user: &&Arc<User>| {
            !which.elsewhere
                && any(&which.users, Some(&user.name))
                && any(&which.default_accounts, user.default_account.as_ref())
                && any(&which.default_wckeys, user.default_wckey.as_ref())
                && (which.wckeys.is_empty() || !which.wckeys.is_disjoint(&user.wckeys))
                && level(user.admin_level)
        };
        match which.names.is_empty() {
            true => self.tree.users().filter(fits).cloned().collect(),
            false => {
                which.names.iter().filter_map(|name| self.tree.user(name)).filter(fits).cloned().collect()
            }
        }
    }

    pub(super) fn modify_cluster(&mut self, set: &AssociationSet) -> Result<(), Reject> {
        if set.is_empty() {
            return Err(nothing_set());
        }
        self.known_in(set)?;
        if !self.caller.is_administrator() {
            return Err(denied());
        }
        let Some(root) = self.tree.of_account(ROOT).map(Arc::clone) else { return Ok(()) };
        self.say(" Setting");
        self.say("  Default Limits:");
        self.lines.extend(settings(set, None).iter().map(|(name, value)| format!("  {name:<14}= {value}")));
        self.say(" Modified cluster defaults for associations...");
        let line = self.modified(&root);
        self.say(line);
        let made = self.changed(&root, set);
        if made != *root {
            self.put(AccountChange::Association(Arc::new(made)));
        }
        if set.clears_usage {
            self.put(AccountChange::UsageCleared(root.id));
        }
        if is_inherited(set) {
            self.say_below(ROOT, root.id);
        }
        Ok(())
    }

    pub(super) fn modify_qos(&mut self, which: &Which, set: &QosSet) -> Result<(), Reject> {
        if *set == QosSet::default() {
            return Err(nothing_set());
        }
        let all = self.matching_qos(which);
        if all.is_empty() {
            return Err(Reject::NothingToDo(NOTHING.to_owned()));
        }
        if !self.caller.is_administrator() {
            return Err(denied());
        }
        if *set == (QosSet { clears_usage: true, ..QosSet::default() }) {
            self.say_reset();
            all.iter().for_each(|qos| self.put(AccountChange::QosUsageCleared(qos.id)));
            return Ok(());
        }
        self.say(" Modified qos...");
        for qos in all {
            self.say(format!("  {}", qos.name));
            let made = self.changed_qos(&qos, set)?;
            if !same_qos(&made, &qos) {
                self.put(AccountChange::Qos(Arc::new(made)));
            }
            if set.clears_usage {
                self.put(AccountChange::QosUsageCleared(qos.id));
            }
        }
        Ok(())
    }

    /// The QOS that meet the conditions, in the order in which they were added.
    pub(super) fn matching_qos(&self, which: &Which) -> Vec<Arc<Qos>> {
        let named = |qos: &Qos| {
            which.names.is_empty() || which.names.iter().any(|name| name.eq_ignore_ascii_case(&qos.name))
        };
        let described =
            |qos: &Qos| which.descriptions.is_empty() || which.descriptions.contains(&qos.description);
        self.tree.qos().filter(|qos| !which.elsewhere && named(qos) && described(qos)).cloned().collect()
    }

    /// A QOS with the given settings applied; refuses a circle of QOS that preempt each other.
    pub(super) fn changed_qos(&self, before: &Qos, set: &QosSet) -> Result<Qos, Reject> {
        let mut made = set.apply(before);
        if let Some(change) = &set.preempt {
            self.known_qos(&change.names, "preempt")?;
            let own = |name: Arc<str>| self.tree.qos_named(&name).map_or(name, |qos| Arc::clone(&qos.name));
            made.preempt = made.preempt.into_iter().map(own).collect();
            if let Some(other) = made.preempt.iter().find(|other| self.preempts(other, &made.name)) {
                return Err(Reject::Accounts(format!(
                    " QOS {} cannot preempt {other}: {other} preempts {} already, or is the same",
                    made.name, made.name
                )));
            }
        }
        Ok(made)
    }

    /// True if a QOS is `other`, or preempts it directly or through others.
    fn preempts(&self, one: &str, other: &str) -> bool {
        let (mut open, mut seen) = (vec![Arc::<str>::from(one)], BTreeSet::new());
        while let Some(next) = open.pop() {
            if *next == *other {
                return true;
            }
            if seen.insert(Arc::clone(&next)) {
                open.extend(
                    self.tree.qos_named(&next).into_iter().flat_map(|qos| qos.preempt.iter().cloned()),
                );
            }
        }
        false
    }
}
