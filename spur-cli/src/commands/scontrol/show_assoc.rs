//! The command `scontrol show assoc_mgr`: users, associations and QOS as the controller stores them.

use std::fmt::Write;

use spur_proto::v1::accounts_row::Row;
use spur_proto::v1::{AssociationRecord, LimitValue, QosRecord, UserRecord};

use crate::commands::sacctmgr::records;
use crate::error::Failure;
use crate::session::Session;

/// Selection of records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    users: bool,
    associations: bool,
    qos: bool,
    /// Names of users; empty for all.
    users_named: Vec<String>,
    /// Names of accounts; empty for all.
    accounts: Vec<String>,
    /// Names of QOS; empty for all.
    names: Vec<String>,
}

/// Parses the words after `assoc_mgr`: `users=`, `accounts=`, `qos=`, `flags=`.
///
/// # Errors
/// An unknown word or flag.
pub(super) fn wanted(words: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { users: true, associations: true, qos: true, ..Wanted::default() };
    for word in words {
        let wrong = || {
            Failure::new(format!(
                "invalid option for assoc_mgr: {word}; write users=, accounts=, qos= or flags="
            ))
        };
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let items = value.split(',').filter(|item| !item.is_empty());
        match key.to_ascii_lowercase().as_str() {
            "users" | "user" => wanted.users_named.extend(items.map(str::to_owned)),
            "accounts" | "account" => wanted.accounts.extend(items.map(str::to_lowercase)),
            "qos" => wanted.names.extend(items.map(str::to_owned)),
            "flags" | "flag" => {
                (wanted.users, wanted.associations, wanted.qos) = (false, false, false);
                for item in items {
                    match item.to_ascii_lowercase().as_str() {
                        "users" | "user" => wanted.users = true,
                        "assoc" | "associations" => wanted.associations = true,
                        "qos" => wanted.qos = true,
                        _ => {
                            return Err(Failure::new(format!(
                                "invalid flag '{item}'; there are users, assoc and qos"
                            )));
                        }
                    }
                }
            }
            _ => return Err(wrong()),
        }
    }
    Ok(wanted)
}

/// Returns the printed text.
///
/// # Errors
/// A refusal by the controller, or no answer.
pub(super) async fn page(session: &mut Session, wanted: &Wanted) -> anyhow::Result<String> {
    let mut all = Vec::new();
    let kinds = [("user", wanted.users), ("association", wanted.associations), ("qos", wanted.qos)];
    for (entity, _) in kinds.into_iter().filter(|(_, wanted)| *wanted) {
        all.extend(records(session, entity, &[]).await?);
    }
    Ok(text(wanted, &all))
}

fn text(wanted: &Wanted, all: &[Row]) -> String {
    let is = |names: &[String], name: &str| names.is_empty() || names.iter().any(|named| named == name);
    let mut text = "Current Association Manager state\n".to_owned();
    let users = all.iter().filter_map(|row| match row {
        Row::User(user) if is(&wanted.users_named, &user.name) => Some(of_user(user)),
        _ => None,
    });
    let associations = all.iter().filter_map(|row| match row {
        Row::Association(own) if is(&wanted.users_named, &own.user) && is(&wanted.accounts, &own.account) => {
            Some(of_association(own))
        }
        _ => None,
    });
    let qos = all.iter().filter_map(|row| match row {
        Row::Qos(qos) if is(&wanted.names, &qos.name) => Some(of_qos(qos)),
        _ => None,
    });
    let (users, associations, qos): (String, String, String) =
        (users.collect(), associations.collect(), qos.collect());
    for (wanted, name, none, records) in [
        (wanted.users, "User", "users", users),
        (wanted.associations, "Association", "associations", associations),
        (wanted.qos, "QOS", "QOS", qos),
    ] {
        let _ = match (wanted, records.is_empty()) {
            (false, _) => Ok(()),
            (true, true) => write!(text, "\nNo {none} currently cached in Slurm.\n"),
            (true, false) => write!(text, "\n{name} Records\n\n{records}"),
        };
    }
    text
}

fn of_user(user: &UserRecord) -> String {
    let UserRecord { name, default_account, default_wckey, admin_level, .. } = user;
    format!(
        "UserName={name} DefAccount={default_account} DefWckey={default_wckey} AdminLevel={admin_level}\n"
    )
}

fn of_association(own: &AssociationRecord) -> String {
    let AssociationRecord { account, user, partition, id, shares, .. } = own;
    let (qos, default, parent) = (own.qos.join(","), &own.default_qos, &own.parent);
    let limits = limits(&own.limits);
    format!(
        "Account={account} UserName={user} Partition={partition} ID={id}\n    SharesRaw={shares}\n    ParentAccount={parent}\n    \
         QOS={qos} DefQOS={default}\n{limits}"
    )
}

fn of_qos(qos: &QosRecord) -> String {
    let QosRecord { name, id, preempt_mode, priority, .. } = qos;
    let (preempt, limits) = (qos.preempt.join(","), limits(&qos.limits));
    format!(
        "QOS={name}({id})\n    Preempt={preempt}\n    PreemptMode={preempt_mode}\n    Priority={priority}\n{limits}"
    )
}

/// Returns a line with the limits that are set.
fn limits(limits: &[LimitValue]) -> String {
    let limits = limits.iter().map(|limit| format!(" {}={}", limit.name, limit.value)).collect::<String>();
    if limits.is_empty() { limits } else { format!("   {limits}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_what_is_wanted_is_shown() {
        let qos = |name: &str, id, priority| {
            Row::Qos(QosRecord { name: name.into(), id, priority, ..QosRecord::default() })
        };
        let all = [qos("high", 1, 7), qos("low", 2, 0)];
        let shown = |line: &str| text(&wanted(&words(line)).unwrap(), &all);
        assert!(shown("").contains("No users") && shown("").contains("QOS=low(2)"));
        let high = shown("flags=qos qos=high");
        assert!(
            high.contains("QOS=high(1)") && high.contains("Priority=7") && !high.contains("low"),
            "{high}"
        );
        assert!(shown("qos=other flags=QOS").contains("No QOS"));
        assert!(wanted(&words("flags=x")).is_err() && wanted(&words("x")).is_err());
    }
}
