//! The policy tree as records with settings in the words of `sacctmgr`, read from a controller or from TOML,
//! and written as TOML.
//!
//! The same tree always gives the same text: records are sorted by name, accounts behind the account that
//! they are in. A file is loaded into an empty tree before it is compared, so values have the form in which
//! the controller has them, and a file that a controller would refuse is refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde::Deserialize;
use spur_core::cluster::Cluster;
use spur_core::controller::{self, Command, Input, MOST_AT_ONCE, Reply};
use spur_core::model::accounts::ROOT;
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::Policy;
use spur_core::text::time::Time;
use spur_proto::convert::{accounts, policy_tree};
use spur_proto::v1::{ChangeAccountsRequest, DumpLine, ListAccountsRequest};
use toml::{Spanned, Table, Value as Toml};

use crate::commands::sacctmgr::dump::{self, Setting, Value};

/// The name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The association of the account `root`.
    Cluster,
    Qos(String),
    Account(String),
    User(String),
    Association {
        account: String,
        user: String,
        /// The partition; empty for all partitions.
        partition: String,
    },
}

/// The settings of a record by key, in the order of a dump.
pub(super) type Settings = Vec<Setting>;

/// A policy tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PolicyTree(pub(super) BTreeMap<Key, Settings>);

/// The key of the setting that names the account above an account.
pub(super) const PARENT: &str = "Parent";

impl PolicyTree {
    /// Returns the records of a tree. Users without an association are left out, because no line of a dump
    /// names them.
    pub(super) fn of(tree: &dump::Tree) -> PolicyTree {
        let mut records = BTreeMap::new();
        for qos in &tree.qos {
            records.insert(Key::Qos(qos.name.clone()), dump::of_qos(qos));
        }
        for own in &tree.associations {
            let settings = dump::of_association(own);
            if !own.user.is_empty() {
                let (account, user, partition) =
                    (own.account.clone(), own.user.clone(), own.partition.clone());
                let of_user = tree.users.get(&user).map(dump::of_user).unwrap_or_default();
                records.insert(Key::User(user.clone()), of_user);
                records.insert(Key::Association { account, user, partition }, settings);
            } else if own.account == ROOT {
                records.insert(Key::Cluster, settings);
            } else {
                let account = tree.accounts.get(&own.account).cloned().unwrap_or_default();
                let parent = Setting { key: PARENT.to_owned(), value: Value::Text(own.parent.clone()) };
                let all = std::iter::once(parent).chain(dump::of_account(&account)).chain(settings);
                records.insert(Key::Account(own.account.clone()), all.collect());
            }
        }
        PolicyTree(records)
    }

    /// Returns the names of all accounts but `root`, each behind the account that it is in.
    pub(super) fn accounts(&self) -> Vec<String> {
        let mut children: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, settings) in &self.0 {
            if let Key::Account(name) = key {
                children.entry(parent(settings)).or_default().push(name.clone());
            }
        }
        let (mut ordered, mut open) = (Vec::new(), vec![ROOT.to_owned()]);
        while let Some(account) = open.pop() {
            let below = children.remove(&account).unwrap_or_default();
            open.extend(below.iter().rev().cloned());
            if account != ROOT {
                ordered.push(account);
            }
        }
        ordered
    }

    /// Returns the tree as TOML.
    pub(super) fn to_toml(&self, cluster: &str) -> String {
        let mut text = format!(
            "# The policy tree of cluster {cluster}: QOS, accounts, users and associations, with sacctmgr's words.\n\
             # spur policy diff FILE shows what would change, spur policy import FILE makes the changes.\n"
        );
        let mut table = |head: &str, names: &[(&str, &str)], settings: Option<&Settings>| {
            let _ = writeln!(text, "\n{head}");
            for (key, name) in names.iter().filter(|(_, name)| !name.is_empty()) {
                let _ = writeln!(text, "{key} = {}", Toml::String((*name).to_owned()));
            }
            for Setting { key, value } in settings.into_iter().flatten() {
                let _ = writeln!(text, "{key} = {}", written(value));
            }
        };
        for (key, settings) in &self.0 {
            match key {
                Key::Cluster => table("[cluster]", &[], Some(settings)),
                Key::Qos(name) => table("[[qos]]", &[("Name", name)], Some(settings)),
                Key::Account(_) | Key::User(_) | Key::Association { .. } => {}
            }
        }
        for name in self.accounts() {
            table("[[account]]", &[("Name", &name)], self.0.get(&Key::Account(name.clone())));
        }
        for (key, settings) in &self.0 {
            match key {
                Key::User(name) => table("[[user]]", &[("Name", name)], Some(settings)),
                Key::Association { account, user, partition } => {
                    let names = [("Account", &**account), ("User", user), ("Partition", partition)];
                    table("[[association]]", &names, Some(settings));
                }
                Key::Cluster | Key::Qos(_) | Key::Account(_) => {}
            }
        }
        text
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// A text that is not TOML, an unknown table, a record without a name, a record that occurs twice, or the
    /// sentence with which a controller refuses the tree.
    pub(super) fn parse(text: &str) -> anyhow::Result<PolicyTree> {
        let file: File = toml::from_str(text).map_err(|error| anyhow!("{error}"))?;
        let line = |at: usize| text[..at].lines().count() + 1;
        let mut named: BTreeMap<Key, Record> = BTreeMap::new();
        let mut add = |key: Key, at: usize, settings: Table| {
            let number = line(at);
            let settings = settings.into_iter().map(|(key, value)| Ok((key, plain(&value)?)));
            let settings: anyhow::Result<Vec<(String, String)>> = settings.collect();
            let settings = settings.map_err(|error| anyhow!("line {number}: {error}"))?;
            match named.insert(key.clone(), Record { line: number, settings }) {
                Some(first) => bail!("line {number}: {key} is on line {} as well", first.line),
                None => Ok(()),
            }
        };
        if let Some(cluster) = file.cluster {
            add(Key::Cluster, cluster.span().start, cluster.into_inner())?;
        }
        let tables = [("qos", file.qos), ("account", file.account), ("user", file.user)];
        for (kind, tables) in tables {
            for table in tables {
                let at = table.span().start;
                let mut table = table.into_inner();
                let name = take(&mut table, "Name");
                let name = name.ok_or_else(|| anyhow!("line {}: this [[{kind}]] has no Name", line(at)))?;
                let key = match kind {
                    "qos" => Key::Qos(name.to_lowercase()),
                    "account" => Key::Account(name.to_lowercase()),
                    _ => Key::User(name),
                };
                add(key, at, table)?;
            }
        }
        for table in file.association {
            let at = table.span().start;
            let mut table = table.into_inner();
            let (account, user) = (take(&mut table, "Account"), take(&mut table, "User"));
            let (Some(account), Some(user)) = (account, user) else {
                bail!("line {}: an [[association]] needs Account and User", line(at));
            };
            let (account, partition) =
                (account.to_lowercase(), take(&mut table, "Partition").unwrap_or_default());
            add(Key::Association { account, user, partition }, at, table)?;
        }
        loaded(&named)
    }
}

/// The tables of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: Option<Spanned<Table>>,
    #[serde(default)]
    qos: Vec<Spanned<Table>>,
    #[serde(default)]
    account: Vec<Spanned<Table>>,
    #[serde(default)]
    user: Vec<Spanned<Table>>,
    #[serde(default)]
    association: Vec<Spanned<Table>>,
}

/// A record of a file.
struct Record {
    line: usize,
    settings: Vec<(String, String)>,
}

/// Removes a text from a table, whatever the case of its key.
fn take(table: &mut Table, key: &str) -> Option<String> {
    let own = table.keys().find(|own| own.eq_ignore_ascii_case(key))?.clone();
    table.remove(&own)?.as_str().map(str::to_owned)
}

/// Returns a value as `sacctmgr` reads it.
fn plain(value: &Toml) -> anyhow::Result<String> {
    match value {
        Toml::String(text) => Ok(text.clone()),
        Toml::Integer(number) => Ok(number.to_string()),
        Toml::Float(number) => Ok(number.to_string()),
        Toml::Array(values) => {
            Ok(values.iter().map(plain).collect::<anyhow::Result<Vec<String>>>()?.join(","))
        }
        other => bail!("{other} is neither a text, nor a number, nor a list"),
    }
}

/// Returns a value as TOML.
fn written(value: &Value) -> String {
    let text = |text: &str| Toml::String(text.to_owned()).to_string();
    match value {
        Value::Text(own) => text(own),
        Value::List(names) => {
            format!("[{}]", names.iter().map(|name| text(name)).collect::<Vec<_>>().join(", "))
        }
        Value::Plain(own) if own.parse::<i64>().is_ok_and(|number| number.to_string() == *own) => own.clone(),
        Value::Plain(own) => text(own),
    }
}

/// Returns the account that an account is in.
pub(super) fn parent(settings: &[Setting]) -> String {
    let found = settings.iter().find(|setting| setting.key == PARENT);
    found.map_or_else(|| ROOT.to_owned(), |setting| setting.value.text())
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Cluster => f.write_str("cluster"),
            Key::Qos(name) => write!(f, "qos {name}"),
            Key::Account(name) => write!(f, "account {name}"),
            Key::User(name) => write!(f, "user {name}"),
            Key::Association { account, user, partition } if partition.is_empty() => {
                write!(f, "user {user} in account {account}")
            }
            Key::Association { account, user, partition } => {
                write!(f, "user {user} in account {account}, partition {partition}")
            }
        }
    }
}

/// Returns the lines that create the records of a file, in an order in which a controller takes them.
fn lines(named: &BTreeMap<Key, Record>) -> anyhow::Result<Vec<DumpLine>> {
    let line = |kind: &str, name: &str, parent: &str, record: &Record, more: Vec<String>| DumpLine {
        number: u32::try_from(record.line).unwrap_or(u32::MAX),
        kind: kind.to_owned(),
        name: name.to_owned(),
        parent: parent.to_owned(),
        settings: record.settings.iter().map(|(key, value)| format!("{key}={value}")).chain(more).collect(),
    };
    let (mut first, mut accounts, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (key, record) in named {
        match key {
            Key::Cluster => last.push(line("Cluster", "", "", record, Vec::new())),
            Key::Qos(name) => first.push(line("QOS", name, "", record, Vec::new())),
            Key::Account(name) => {
                let is_parent = |(key, _): &&(String, String)| key.eq_ignore_ascii_case(PARENT);
                let parent = record.settings.iter().find(is_parent).map_or(ROOT, |(_, value)| value);
                let own = record.settings.iter().filter(|pair| !is_parent(pair)).cloned().collect();
                let own = Record { line: record.line, settings: own };
                accounts.push(line("Account", name, &parent.to_lowercase(), &own, Vec::new()));
            }
            Key::User(name) => {
                let has_place = |key: &Key| matches!(key, Key::Association { user, .. } if user == name);
                if !named.keys().any(has_place) {
                    bail!("line {}: user {name} needs an [[association]] with an account", record.line);
                }
            }
            Key::Association { account, user, partition } => {
                let partition = Some(partition).filter(|name| !name.is_empty());
                let of_user = named.get(&Key::User(user.clone()));
                let of_user = of_user.into_iter().flat_map(|record| &record.settings);
                let more = partition.map(|name| format!("Partition={name}"));
                let more = more.into_iter().chain(of_user.map(|(key, value)| format!("{key}={value}")));
                last.push(line("User", user, account, record, more.collect()));
            }
        }
    }
    // QOS are created first, and each account behind the account that it is in.
    let mut known: BTreeSet<String> = BTreeSet::from([ROOT.to_owned()]);
    while !accounts.is_empty() {
        let (ready, others): (Vec<DumpLine>, Vec<DumpLine>) =
            accounts.into_iter().partition(|line| known.contains(&line.parent));
        if let (true, Some(lost)) = (ready.is_empty(), others.first()) {
            bail!(
                "line {}: account {}: there is no account {} above it",
                lost.number,
                lost.name,
                lost.parent
            );
        }
        known.extend(ready.iter().map(|line| line.name.clone()));
        first.extend(ready);
        accounts = others;
    }
    Ok(first.into_iter().chain(last).collect())
}

/// Loads records into an empty tree, and returns those that the file names as the tree then has them.
fn loaded(named: &BTreeMap<Key, Record>) -> anyhow::Result<PolicyTree> {
    let owner = Owner { uid: 0, gid: 0, user: ROOT.into(), group: ROOT.into() };
    let caller = Caller::new(Arc::new(owner), Arc::default(), true);
    let mut cluster = Cluster::default();
    let mut handle = |input: Input| controller::handle(&mut cluster, 1, Time(0), input).answer;
    let command = |command| Input::Command { caller: caller.clone(), request: None, command };
    let policy = Policy { cluster_name: "here".into(), ..Policy::default() };
    handle(command(Command::Reconfigure(Arc::new(policy)))).map_err(|refused| anyhow!("{refused}"))?;
    handle(Input::FileQos(Vec::new())).map_err(|refused| anyhow!("{refused}"))?;
    for lines in lines(named)?.chunks(MOST_AT_ONCE) {
        let request = ChangeAccountsRequest {
            verb: "load".to_owned(),
            lines: lines.to_vec(),
            ..ChangeAccountsRequest::default()
        };
        let ask = Box::new(accounts::read("here", &request).map_err(|text| anyhow!("{}", text.trim()))?);
        match handle(command(Command::ChangeAccounts { ask, shown: None })) {
            Ok(Reply::AccountsChanged { .. }) => {}
            Ok(_) => bail!("the tree cannot be loaded"),
            Err(refused) => bail!("{}", refused.to_string().trim()),
        }
    }
    let mut tree = dump::Tree::default();
    for entity in dump::ENTITIES {
        let request = ListAccountsRequest { entity: entity.to_owned(), ..ListAccountsRequest::default() };
        let rows = policy_tree::rows(&cluster, &cluster.recognize(caller.clone()), Time(0), &request);
        rows.map_err(|text| anyhow!("{text}"))?.into_iter().for_each(|row| tree.add(row));
    }
    let mut made = PolicyTree::of(&tree);
    let users: BTreeSet<String> = named
        .keys()
        .filter_map(|key| match key {
            Key::Association { user, .. } => Some(user.clone()),
            _ => None,
        })
        .collect();
    // A user needs no table of its own.
    made.0.retain(|key, _| named.contains_key(key) || matches!(key, Key::User(name) if users.contains(name)));
    Ok(made)
}
