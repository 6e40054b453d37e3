//! Loading of a dump: brings the policy tree in line with the lines of a file. Records that no line names
//! stay unchanged.

use std::sync::Arc;

use super::super::super::Reject;
use super::add::named;
use super::{DENIED, Draft, same_qos};
use crate::cluster::AccountChange;
use crate::model::accounts::ask::{AccountSet, AssociationSet, LoadLine, QosSet, UsageLine, UserAdd};
use crate::model::accounts::usage::{Amount, Rate};
use crate::model::accounts::{Account, Association, LimitKind, Limits, Qos, QosAccess, ROOT, Shares};
use crate::text::tres::TresKind;

impl Draft<'_> {
    pub(super) fn load(&mut self, lines: &[(u32, LoadLine)], clean: bool) -> Result<(), Reject> {
        if !self.caller.is_administrator() {
            return Err(Reject::AccountsDenied(format!(" Problem with requests: {DENIED}")));
        }
        // A QOS may preempt QOS of later lines, so all names are created first.
        for (_, line) in lines {
            if let LoadLine::Qos { name, .. } = line {
                self.put_bare_qos(name);
            }
        }
        for (number, line) in lines {
            let loaded = match line {
                LoadLine::Cluster(set) => self.load_cluster(set, clean),
                LoadLine::Account { name, set } => self.load_account(name, set, clean),
                LoadLine::User { name, add } => self.load_user(name, add, clean),
                LoadLine::Qos { name, set } => self.load_qos(name, set),
                LoadLine::Usage(line) => self.load_usage(line),
            };
            loaded.map_err(|reject| match reject {
                Reject::Accounts(text) => Reject::Accounts(format!("{text}\n Problem with line({number})")),
                other => other,
            })?;
        }
        Ok(())
    }

    fn load_cluster(&mut self, set: &AssociationSet, clean: bool) -> Result<(), Reject> {
        self.known_in(set)?;
        let root = self.tree.of_account(ROOT).map(Arc::clone);
        root.into_iter().for_each(|root| self.reload(&root, set, clean, "cluster"));
        Ok(())
    }

    fn load_account(&mut self, name: &Arc<str>, set: &AccountSet, clean: bool) -> Result<(), Reject> {
        self.known_in(&set.association)?;
        let parent = set.parent.clone().unwrap_or_else(|| ROOT.into());
        if self.tree.account(&parent).is_none() {
            return Err(no_parent(&parent));
        }
        let (Some(account), Some(before)) =
            (self.tree.account(name).map(Arc::clone), self.tree.of_account(name).map(Arc::clone))
        else {
            self.say(format!(" Added account {name} of {parent}"));
            self.put_account(name, &parent, set);
            return Ok(());
        };
        let mut made = Account::clone(&account);
        made.description = set.description.clone().unwrap_or(made.description);
        made.organization = set.organization.clone().unwrap_or(made.organization);
        for (what, was, is) in [
            ("Description", &account.description, &made.description),
            ("Organization", &account.organization, &made.organization),
        ] {
            if was != is {
                self.say(differs(what, "Account", name, was, is));
            }
        }
        if made != *account {
            self.put(AccountChange::Account(Arc::new(made)));
        }
        let moved = before.parent.as_ref().filter(|was| **was != parent && **name != *ROOT);
        let mut before = before.clone();
        if let Some(was) = moved {
            if self.tree.is_within(&parent, name) {
                return Err(Reject::Accounts(format!(
                    " Account {name} cannot be below {parent}, which is below it"
                )));
            }
            self.say(differs("Parent", "Account", name, was, &parent));
            before = Arc::new(Association { parent: Some(parent), ..Association::clone(&before) });
            self.put(AccountChange::Association(Arc::clone(&before)));
        }
        self.reload(&before, &set.association, clean, "Account");
        Ok(())
    }

    fn load_user(&mut self, name: &Arc<str>, add: &UserAdd, clean: bool) -> Result<(), Reject> {
        self.known_in(&add.set.association)?;
        let Some(account) = add.accounts.first().filter(|account| self.tree.account(account).is_some())
        else {
            return Err(no_parent(add.accounts.first().map_or("", |name| name)));
        };
        if let Some(missing) = add.coordinates.iter().find(|name| self.tree.account(name).is_none()) {
            return Err(Reject::Accounts(format!(" You specified a non-existent account '{missing}'.")));
        }
        let partitions: Vec<Option<Arc<str>>> = match add.partitions.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        for partition in partitions {
            match self.tree.exactly(name, account, partition.as_deref()).map(Arc::clone) {
                Some(before) => self.reload(&before, &add.set.association, clean, "User"),
                None => {
                    self.put_member(name, account, partition.as_ref(), &add.set.association);
                    self.say(format!(" Added user {name} to account {account}"));
                }
            }
        }
        let wckeys = add.all_wckeys();
        wckeys.iter().try_for_each(|key| named(key, "wckey"))?;
        if let Some(user) = self.tree.user(name).map(Arc::clone) {
            let was = user.default_wckey.as_deref().unwrap_or("NONE");
            let default = add.set.default_wckey.as_deref().filter(|default| *default != was);
            let added = self.new_wckeys(name, &wckeys);
            self.lines.extend(default.map(|default| differs("Default WCKey", "User", name, was, default)));
            self.lines.extend(added.iter().map(|key| format!(" Adding WCKey '{key}' to User '{name}'")));
        }
        // The line of a user may precede those of some of the user's accounts. A default account that the
        // user is not in yet is set by its own line.
        let mut add = add.clone();
        let default = add.set.default_account.take();
        add.set.default_account =
            default.filter(|default| self.tree.of_user(name).any(|own| own.account == *default));
        self.put_user(name, std::slice::from_ref(account), &add);
        Ok(())
    }

    /// Adds a QOS without settings, unless one of that name exists.
    fn put_bare_qos(&mut self, name: &Arc<str>) {
        if self.tree.qos_named(name).is_some() {
            return;
        }
        let (id, description) = (self.tree.next_qos(), Arc::clone(name));
        self.say(format!(" Added QOS {name}"));
        self.put(AccountChange::Qos(Arc::new(Qos {
            id,
            name: Arc::clone(name),
            description,
            ..Qos::default()
        })));
    }

    fn load_qos(&mut self, name: &Arc<str>, set: &QosSet) -> Result<(), Reject> {
        let Some(before) = self.tree.qos_named(name).map(Arc::clone) else { return Ok(()) };
        let made = self.changed_qos(&before, set)?;
        if !same_qos(&made, &before) {
            self.say(format!(" Changed QOS {name}"));
            self.put(AccountChange::Qos(Arc::new(made)));
        }
        Ok(())
    }

    fn load_usage(&mut self, line: &UsageLine) -> Result<(), Reject> {
        let UsageLine { account, user, partition, billing, tres } = line;
        let found = match user {
            Some(user) => self.tree.exactly(user, account, partition.as_deref()),
            None => self.tree.of_account(account),
        };
        let whose = match user {
            Some(user) => format!("user {user} in account {account}"),
            None => format!("account {account}"),
        };
        let Some(association) = found.map(|found| found.id) else {
            return Err(Reject::Accounts(format!(" There is no association of {whose}")));
        };
        self.say(format!(" Set usage of {whose} to {billing}"));
        let minutes = |amount: u64| Amount::of(Rate::whole(amount), 60);
        let tres = tres.0.iter().filter(|(kind, _)| **kind != TresKind::Billing);
        self.put(AccountChange::UsageImported {
            association,
            billing: Amount::of(Rate::whole(*billing), 1),
            tres: tres.map(|(kind, amount)| (kind.clone(), minutes(*amount))).collect(),
        });
        Ok(())
    }

    /// Applies a line's settings to an association. With `clean`, all settings that the line does not name
    /// are cleared.
    fn reload(&mut self, before: &Association, set: &AssociationSet, clean: bool, kind: &str) {
        let bare = Association {
            shares: Shares::default(),
            qos: QosAccess::Inherited,
            default_qos: None,
            limits: Limits::default(),
            ..before.clone()
        };
        let made = self.changed(if clean { &bare } else { before }, set);
        if made == *before {
            return;
        }
        let name = before.user.as_ref().unwrap_or(&before.account);
        let mut lines = Vec::new();
        if made.shares != before.shares {
            lines.push(differs(
                "FairShare",
                kind,
                name,
                &before.shares.to_string(),
                &made.shares.to_string(),
            ));
        }
        for limit in LimitKind::ALL {
            let (was, is) = (before.limits.text(*limit), made.limits.text(*limit));
            if was != is {
                let text = |value: Option<String>| value.unwrap_or_else(|| "NONE".to_owned());
                lines.push(differs(limit.name(), kind, name, &text(was), &text(is)));
            }
        }
        if made.qos != before.qos || made.default_qos != before.default_qos {
            lines.push(format!(" Changed QOS for {kind} {name}"));
        }
        self.lines.extend(lines);
        self.put(AccountChange::Association(Arc::new(made)));
    }
}

fn no_parent(parent: &str) -> Reject {
    Reject::Accounts(format!(
        " You need to add this parent ({parent}) as a child before you can add children to it."
    ))
}

fn differs(what: &str, kind: &str, name: &str, was: &str, is: &str) -> String {
    format!(" Changed {what:<21} for {kind:<7} {name:<10} {was:>8} -> {is}")
}
