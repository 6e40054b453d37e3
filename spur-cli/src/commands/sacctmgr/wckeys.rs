//! The list of wckeys: `sacctmgr list wckeys`.

use std::collections::BTreeSet;

use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{KeyValue, ListAccountsRequest, UserRecord};

use super::Conditions;
use super::fields::{field, headed};
use crate::commands::query;
use crate::error::Bare;
use crate::format::report::Column;
use crate::session::Session;

/// A wckey of a user.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WcKey {
    pub(super) name: String,
    pub(super) user: String,
    pub(super) cluster: String,
}

pub(super) const COLUMNS: [Column<WcKey>; 4] = [
    field("Cluster", 10, |row, _| row.cluster.clone()),
    field("User", 10, |row, _| row.user.clone()),
    field("WCKey", 10, |row, _| row.name.clone()),
    headed("Name", "WCKey", 10, |row, _| row.name.clone()),
];
pub(super) const SHOWN: &str = "wckey,cluster,user";

/// Conditions of the list; an empty one always holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    wckeys: BTreeSet<String>,
    users: BTreeSet<String>,
    clusters: BTreeSet<String>,
}

impl Wanted {
    /// Reads conditions.
    ///
    /// # Errors
    /// Slurm's sentence about an unknown key.
    fn read(conditions: &Conditions) -> Result<Wanted, Bare> {
        let mut wanted = Wanted::default();
        wanted.wckeys.extend(conditions.names.iter().map(|name| name.to_lowercase()));
        for word in &conditions.others {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let key = key.to_ascii_lowercase();
            let is = |name: &str| !key.is_empty() && name.starts_with(&key);
            let names = query::list(value.trim_matches(['\'', '"'])).into_iter();
            match () {
                () if is("wckeys") => wanted.wckeys.extend(names.map(|name| name.to_lowercase())),
                () if is("users") => wanted.users.extend(names),
                () if is("clusters") => wanted.clusters.extend(names.map(|name| name.to_lowercase())),
                () => return Err(Bare(format!(" Unknown condition: {word}"))),
            }
        }
        Ok(wanted)
    }

    /// Returns the selected wckeys of users, by name.
    fn select(&self, own_cluster: &str, users: Vec<UserRecord>) -> Vec<WcKey> {
        let is = |set: &BTreeSet<String>, name: &str| set.is_empty() || set.contains(name);
        let mut found = Vec::new();
        for user in users.into_iter().filter(|user| is(&self.users, &user.name)) {
            let cluster = if user.cluster.is_empty() { own_cluster } else { &*user.cluster };
            if !is(&self.clusters, &cluster.to_lowercase()) {
                continue;
            }
            let own = user.wckeys.into_iter().filter(|name| is(&self.wckeys, name));
            found.extend(own.map(|name| WcKey {
                name,
                user: user.name.clone(),
                cluster: cluster.to_owned(),
            }));
        }
        found.sort();
        found
    }
}

/// Returns the wckeys that the conditions select, as far as the caller may see them.
///
/// # Errors
/// An unknown condition, a refusal, or no answer.
pub(super) async fn fetch(session: &mut Session, conditions: &Conditions) -> anyhow::Result<Vec<WcKey>> {
    let wanted = Wanted::read(conditions)?;
    let cluster = query::cluster_name(session).await?;
    let conditions = match wanted.clusters.is_empty() {
        true => Vec::new(),
        false => vec![format!("Cluster={}", wanted.clusters.iter().cloned().collect::<Vec<_>>().join(","))],
    };
    let entity = "user".to_owned();
    let request =
        ListAccountsRequest { entity, conditions, all_clusters: true, ..ListAccountsRequest::default() };
    let users = super::fetch(session, request).await?.into_iter().filter_map(|record| match record {
        Record::User(user) => Some(user),
        _ => None,
    });
    Ok(wanted.select(&cluster, users.collect()))
}

/// True if each job of a cluster with these settings has a wckey.
pub(super) fn are_tracked(settings: &[KeyValue]) -> bool {
    settings.iter().any(|setting| match setting.key.as_str() {
        "controller.track_wckey" => setting.value == "true",
        "controller.accounting_enforce" => setting.value.split(',').any(|word| word == "wckeys"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(words: &str) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let wanted = Wanted::read(&super::super::conditions(&words).unwrap()).map_err(|error| error.0)?;
        let user = |name: &str, wckeys: &[&str]| UserRecord {
            name: name.to_owned(),
            wckeys: wckeys.iter().map(|key| (*key).to_owned()).collect(),
            ..UserRecord::default()
        };
        let users = vec![user("ann", &["k1", "k2"]), user("bob", &["k1"]), user("cy", &[])];
        let found = wanted.select("c", users);
        Ok(found.iter().map(|key| format!("{} {} {}", key.name, key.cluster, key.user)).collect())
    }

    #[test]
    fn wckeys_are_selected_by_name_user_and_cluster() {
        for (words, wanted) in [
            ("", "k1 c ann,k1 c bob,k2 c ann"),
            ("where user=ann", "k1 c ann,k2 c ann"),
            ("K1", "k1 c ann,k1 c bob"),
            ("names=k2,k9", "k2 c ann"),
            ("wckeys=k1 users=bob cluster=C", "k1 c bob"),
            ("cluster=other", ""),
        ] {
            assert_eq!(listed(words).unwrap().join(","), wanted, "{words}");
        }
        assert_eq!(listed("foo=bar"), Err(" Unknown condition: foo=bar".to_owned()));
    }

    #[test]
    fn wckeys_are_tracked_by_either_key() {
        for (key, value, wanted) in [
            ("controller.track_wckey", "true", true),
            ("controller.accounting_enforce", "associations,wckeys", true),
            ("controller.accounting_enforce", "limits", false),
            ("controller.other", "wckeys", false),
        ] {
            let setting = KeyValue { key: key.to_owned(), value: value.to_owned() };
            assert_eq!(are_tracked(&[setting]), wanted, "{key} = {value}");
        }
    }
}
