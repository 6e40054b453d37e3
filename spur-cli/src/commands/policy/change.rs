//! The differences between two policy trees, and the requests that remove them.
//!
//! Each request names values, so a request that is repeated changes nothing more. What no longer belongs to
//! the tree is deleted last, when nothing refers to it.

use std::collections::BTreeMap;

use anyhow::bail;
use spur_core::controller::MOST_AT_ONCE;
use spur_core::model::accounts::ROOT;
use spur_proto::v1::{ChangeAccountsRequest, DumpLine};

use super::tree::{Key, PARENT, PolicyTree, Settings, parent};
use crate::commands::sacctmgr::dump::Setting;

/// The difference of one record.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) kind: Kind,
}

/// The kind of a difference.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    /// The record is added with these settings.
    Added(Settings),
    /// Settings of the record change.
    Changed(Vec<Difference>),
    /// The record is deleted.
    Deleted,
}

/// The difference of one setting; `None` where the setting is not given.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    key: String,
    from: Option<String>,
    to: Option<String>,
}

/// Returns the differences by which `from` becomes `to`. The account and the user `root` are never deleted.
pub(super) fn changes(from: &PolicyTree, to: &PolicyTree) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, settings) in &to.0 {
        match from.0.get(key) {
            None => changes.push(Change { key: key.clone(), kind: Kind::Added(settings.clone()) }),
            Some(before) => {
                let differences = differences(before, settings);
                if !differences.is_empty() {
                    changes.push(Change { key: key.clone(), kind: Kind::Changed(differences) });
                }
            }
        }
    }
    let gone = from.0.keys().filter(|key| !to.0.contains_key(key) && !stays(key));
    changes.extend(gone.map(|key| Change { key: key.clone(), kind: Kind::Deleted }));
    changes
}

/// True if a record is never deleted.
fn stays(key: &Key) -> bool {
    match key {
        Key::Cluster => true,
        Key::Qos(_) => false,
        Key::Account(name) | Key::User(name) => name == ROOT,
        Key::Association { account, user, partition } => {
            account == ROOT && user == ROOT && partition.is_empty()
        }
    }
}

fn differences(before: &[Setting], after: &[Setting]) -> Vec<Difference> {
    let texts = |settings: &[Setting]| -> BTreeMap<String, String> {
        settings.iter().map(|setting| (setting.key.clone(), setting.value.text())).collect()
    };
    let (mut before, after) = (texts(before), texts(after));
    let mut differences = Vec::new();
    for (key, to) in after {
        let from = before.remove(&key);
        if from.as_ref() != Some(&to) {
            differences.push(Difference { key, from, to: Some(to) });
        }
    }
    differences.extend(before.into_iter().map(|(key, from)| Difference { key, from: Some(from), to: None }));
    differences
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Added(settings) => {
                write!(f, "+ {}", self.key)?;
                settings.iter().try_for_each(|setting| write!(f, " {}={}", setting.key, setting.value.text()))
            }
            Kind::Changed(differences) => {
                write!(f, "~ {}", self.key)?;
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "(not set)".to_owned());
                differences.iter().try_for_each(|difference| {
                    let Difference { key, from, to } = difference;
                    write!(f, " {key}: {} -> {}", text(from), text(to))
                })
            }
            Kind::Deleted => write!(f, "- {}", self.key),
        }
    }
}

/// The words that make a changed setting: those of the new value, and those that clear the rest of the old
/// one.
fn words(difference: &Difference) -> Vec<String> {
    let Difference { key, from, to } = difference;
    let parts = |value: &Option<String>| -> Vec<(String, String)> {
        let pairs = value.as_deref().unwrap_or_default().split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, amount)| (name.to_owned(), amount.to_owned())).collect()
    };
    // Each resource of a limit is set by itself.
    let (before, after) = (parts(from), parts(to));
    let is_limit = ["Grp", "Max", "Min"].iter().any(|head| key.starts_with(head));
    if is_limit && !(before.is_empty() && after.is_empty()) {
        let gone = before.iter().filter(|(name, _)| after.iter().all(|(other, _)| other != name));
        let amounts = after.iter().map(|(name, amount)| format!("{name}={amount}"));
        let all: Vec<String> = amounts.chain(gone.map(|(name, _)| format!("{name}=-1"))).collect();
        return vec![format!("{key}={}", all.join(","))];
    }
    match to {
        // The signs are relative to the inherited list, which -1 restores.
        Some(to) if key == "QOS" && to.starts_with(['+', '-']) => {
            vec![format!("{key}=-1"), format!("{key}={to}")]
        }
        Some(to) => vec![format!("{key}={to}")],
        None if key == "AdminLevel" => vec![format!("{key}=None")],
        None if key == "PreemptMode" => vec![format!("{key}=cluster")],
        // Coordinators and wckeys are removed by requests of their own. A default account goes with its
        // association, and a default wckey with the last wckey.
        None if matches!(&**key, "Coordinator" | "DefaultAccount" | "WCKeys" | "DefaultWCKey") => Vec::new(),
        None => vec![format!("{key}=-1")],
    }
}

/// The requests that make changes.
#[derive(Default)]
pub(super) struct Requests {
    /// Requests that add and change records, and remove coordinators and wckeys.
    pub(super) settings: Vec<ChangeAccountsRequest>,
    /// Requests that delete records.
    pub(super) deletions: Vec<ChangeAccountsRequest>,
}

/// Returns the requests that make changes on the way to `to`.
///
/// # Errors
/// The association of a user for all partitions would be deleted while one for a partition stays: no request
/// deletes one without the other.
pub(super) fn requests(changes: &[Change], to: &PolicyTree) -> anyhow::Result<Requests> {
    for change in changes.iter().filter(|change| change.kind == Kind::Deleted) {
        let Key::Association { account, user, partition } = &change.key else { continue };
        let is_kept = |key: &&Key| matches!(key, Key::Association { account: other, user: own, .. } if other == account && own == user);
        if let Some(kept) = to.0.keys().find(is_kept).filter(|_| partition.is_empty()) {
            bail!("{} cannot be deleted while {kept} stays: keep both, or delete both", change.key);
        }
    }
    let by_key: BTreeMap<&Key, &Change> = changes.iter().map(|change| (&change.key, change)).collect();
    let accounts = to.accounts().into_iter().map(Key::Account);
    let accounts: Vec<&Change> = accounts.filter_map(|key| by_key.get(&key).copied()).collect();
    let of = |wanted: fn(&Key) -> bool| changes.iter().filter(move |change| wanted(&change.key));
    let first = of(|key| matches!(key, Key::Qos(_)));
    let last = of(|key| matches!(key, Key::Cluster | Key::Association { .. }));
    let users = of(|key| matches!(key, Key::User(_)));
    // Users are changed behind their associations, on which their default accounts depend.
    let ordered = first.chain(accounts).chain(last).chain(users);
    let lines: Vec<DumpLine> = ordered.filter_map(|change| line(change, to)).collect();
    let load = |lines: &[DumpLine]| ChangeAccountsRequest {
        verb: "load".to_owned(),
        lines: lines.to_vec(),
        ..ChangeAccountsRequest::default()
    };
    let mut settings: Vec<ChangeAccountsRequest> = lines.chunks(MOST_AT_ONCE).map(load).collect();
    settings.extend(changes.iter().flat_map(removals));
    Ok(Requests { settings, deletions: deletions(changes) })
}

/// Returns the line that adds or changes a record; `None` if the record is deleted.
fn line(change: &Change, to: &PolicyTree) -> Option<DumpLine> {
    let settings: Vec<String> = match &change.kind {
        Kind::Added(settings) => settings
            .iter()
            .filter(|setting| setting.key != PARENT)
            .map(|setting| format!("{}={}", setting.key, setting.value.text()))
            .collect(),
        Kind::Changed(differences) => {
            differences.iter().filter(|difference| difference.key != PARENT).flat_map(words).collect()
        }
        Kind::Deleted => return None,
    };
    let (kind, name, account, partition) = match &change.key {
        Key::Cluster => ("Cluster", "", String::new(), ""),
        Key::Qos(name) => ("QOS", &**name, String::new(), ""),
        Key::Account(name) => ("Account", &**name, to.0.get(&change.key).map(|own| parent(own))?, ""),
        Key::Association { account, user, partition } => ("User", &**user, account.clone(), &**partition),
        Key::User(name) => {
            let default = to.0.get(&change.key)?.iter().find(|setting| setting.key == "DefaultAccount");
            let default = default.map(|setting| setting.value.text());
            let (account, partition) = place_of(to, name, default.as_deref())?;
            ("User", &**name, account, partition)
        }
    };
    let partition = Some(partition).filter(|name| !name.is_empty()).map(|name| format!("Partition={name}"));
    Some(DumpLine {
        number: 0,
        kind: kind.to_owned(),
        name: name.to_owned(),
        parent: account,
        settings: settings.into_iter().chain(partition).collect(),
    })
}

/// Returns the account and the partition of one association of a user, in the default account if possible.
fn place_of<'t>(to: &'t PolicyTree, name: &str, default: Option<&str>) -> Option<(String, &'t str)> {
    let own = to.0.keys().filter_map(|key| match key {
        Key::Association { account, user, partition } if user == name => Some((account, partition)),
        _ => None,
    });
    let own: Vec<(&String, &String)> = own.collect();
    let (account, partition) =
        own.iter().find(|(account, _)| Some(account.as_str()) == default).or(own.first())?;
    Some(((*account).clone(), partition))
}

/// Returns a request for each account that a user no longer coordinates, and for each wckey that a user no
/// longer has.
fn removals(change: &Change) -> Vec<ChangeAccountsRequest> {
    let (Key::User(user), Kind::Changed(differences)) = (&change.key, &change.kind) else {
        return Vec::new();
    };
    let list = |value: &Option<String>| -> Vec<String> {
        value
            .iter()
            .flat_map(|text| text.split(','))
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut requests = Vec::new();
    for Difference { key, from, to } in differences {
        let (entity, condition) = match key.as_str() {
            "Coordinator" => ("coordinator", "account"),
            "WCKeys" => ("user", "wckeys"),
            _ => continue,
        };
        let stays = list(to);
        for gone in list(from).into_iter().filter(|name| !stays.contains(name)) {
            requests.push(delete(entity, vec![user.clone()], vec![format!("{condition}={gone}")]));
        }
    }
    requests
}

fn delete(entity: &str, names: Vec<String>, conditions: Vec<String>) -> ChangeAccountsRequest {
    ChangeAccountsRequest {
        verb: "delete".to_owned(),
        entity: entity.to_owned(),
        names,
        conditions,
        ..ChangeAccountsRequest::default()
    }
}

/// Returns the requests that delete records: associations of users, then accounts, then QOS. Associations in
/// a deleted account go with the account, and a user goes with the last association.
fn deletions(changes: &[Change]) -> Vec<ChangeAccountsRequest> {
    let gone = || changes.iter().filter(|change| change.kind == Kind::Deleted).map(|change| &change.key);
    let accounts: Vec<String> = gone()
        .filter_map(|key| match key {
            Key::Account(name) => Some(name.clone()),
            _ => None,
        })
        .collect();
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut qos = Vec::new();
    for key in gone() {
        match key {
            Key::Qos(name) => qos.push(name.clone()),
            Key::Association { account, user, partition } if !accounts.contains(account) => {
                places.entry((account, partition)).or_default().push(user.clone());
            }
            Key::Cluster | Key::Account(_) | Key::User(_) | Key::Association { .. } => {}
        }
    }
    let mut requests = Vec::new();
    for ((account, partition), users) in places {
        let conditions = [format!("account={account}"), format!("partition={partition}")];
        let conditions = conditions[..if partition.is_empty() { 1 } else { 2 }].to_vec();
        requests.extend(
            users.chunks(MOST_AT_ONCE).map(|users| delete("user", users.to_vec(), conditions.clone())),
        );
    }
    requests.extend(accounts.chunks(MOST_AT_ONCE).map(|names| delete("account", names.to_vec(), Vec::new())));
    requests.extend(qos.chunks(MOST_AT_ONCE).map(|names| delete("qos", names.to_vec(), Vec::new())));
    requests
}
