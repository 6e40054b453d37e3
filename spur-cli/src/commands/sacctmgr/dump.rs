//! The commands `sacctmgr dump` and `load`: the policy tree in the format of Slurm's file. The word `withqos`
//! adds lines for QOS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

use spur_core::controller::MOST_AT_ONCE;
use spur_core::model::accounts::ask::Ask;
use spur_proto::convert::accounts;
use spur_proto::v1::accounts_row::Row;
use spur_proto::v1::{
    AccountRecord, AssociationRecord, ChangeAccountsRequest, DumpLine, LimitValue, ListAccountsRequest,
    QosRecord, UserRecord,
};

use super::{Settings, change, fetch};
use crate::commands::query;
use crate::error::Bare;
use crate::session::Session;

const HEAD: &str = "\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:MaxTRESMinsPerJob=cpu=20:FairShare=399:MaxWallDurationPerJob=40:Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY
# BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:MaxTRESMinsPerJob=cpu=1:FairShare=1:MaxWallDurationPerJob=1:Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# User - 'lipari':MaxTRESPerJob=node=2:MaxJobs=3:MaxTRESMinsPerJob=cpu=4:FairShare=1:MaxWallDurationPerJob=1
";

/// The kinds of records that make up the policy tree.
pub(crate) const ENTITIES: [&str; 4] = ["account", "user", "association", "qos"];

/// The complete policy tree.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) accounts: BTreeMap<String, AccountRecord>,
    pub(crate) users: BTreeMap<String, UserRecord>,
    /// Associations, each account before those below it.
    pub(crate) associations: Vec<AssociationRecord>,
    pub(crate) qos: Vec<QosRecord>,
}

impl Tree {
    /// Adds a record.
    pub(crate) fn add(&mut self, row: Row) {
        match row {
            Row::Account(account) => drop(self.accounts.insert(account.name.clone(), account)),
            Row::User(user) => drop(self.users.insert(user.name.clone(), user)),
            Row::Association(association) => self.associations.push(association),
            Row::Qos(qos) => self.qos.push(qos),
            Row::Limit(_) => {}
        }
    }
}

/// Returns the policy tree of the controller, as far as the caller may see it.
///
/// # Errors
/// No answer, or a refusal.
pub(crate) async fn tree(session: &mut Session) -> anyhow::Result<Tree> {
    tree_of(session, None).await
}

/// Returns the policy tree of another cluster; with `None`, that of the controller.
async fn tree_of(session: &mut Session, cluster: Option<&str>) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for entity in ENTITIES {
        let of_tree = cluster.filter(|_| entity != "qos");
        let conditions = of_tree.map(|name| format!("Cluster={name}")).into_iter().collect();
        let request =
            ListAccountsRequest { entity: entity.to_owned(), conditions, ..ListAccountsRequest::default() };
        fetch(session, request).await?.into_iter().for_each(|row| tree.add(row));
    }
    Ok(tree)
}

/// Writes the tree to a file, and each of its lines to the standard error, as Slurm does.
///
/// # Errors
/// Another cluster, or a file that cannot be written.
pub(super) async fn dump(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let (mut cluster, mut file, mut with_qos) = (None, None, false);
    for word in words {
        match word.split_once('=').map(|(key, value)| (key.to_ascii_lowercase(), value)) {
            Some((key, value)) if "file".starts_with(&key) => file = Some(value.to_owned()),
            Some((key, value)) if "clusters".starts_with(&key) => cluster = Some(value.to_owned()),
            None if word.eq_ignore_ascii_case("withqos") => with_qos = true,
            None if cluster.is_none() => cluster = Some(word.clone()),
            _ => return Err(Bare(format!(" Unknown option: {word}")).into()),
        }
    }
    let Some(cluster) = cluster else {
        return Err(Bare(" We need a cluster to dump.".to_owned()).into());
    };
    let here = query::cluster_name(session).await?;
    let other = Some(cluster.to_lowercase()).filter(|name| *name != here.to_lowercase());
    let tree = tree_of(session, other.as_deref()).await?;
    if tree.associations.is_empty() {
        return Err(Bare(format!(" Cluster {cluster} doesn't exist.")).into());
    }
    let name = other.unwrap_or(here);
    let file = match file {
        Some(file) => file,
        None => {
            writeln!(session.out, " No filename given, using ./{name}.cfg.")?;
            format!("./{name}.cfg")
        }
    };
    let lines = text(&name, &tree, with_qos);
    std::fs::write(&file, format!("{HEAD}{}", lines.concat()))
        .map_err(|error| Bare(format!("Can't open {file}, {error}")))?;
    lines.iter().for_each(|line| session.inform(line.trim_end()));
    Ok(0)
}

/// Returns the lines of a dump: the cluster, then each account with its direct children, from the root.
fn text(cluster: &str, tree: &Tree, with_qos: bool) -> Vec<String> {
    let mut lines: Vec<String> =
        tree.qos.iter().filter(|_| with_qos).map(|qos| format!("{}\n", qos_line(qos))).collect();
    for own in tree.associations.iter().filter(|own| own.user.is_empty()) {
        if own.account == "root" {
            lines.push(format!("Cluster - '{cluster}'{}\n", written(&of_association(own))));
        }
        let below = |other: &&AssociationRecord| {
            (other.user.is_empty() && other.parent == own.account)
                || (!other.user.is_empty() && other.account == own.account)
        };
        let children: Vec<&AssociationRecord> = tree.associations.iter().filter(below).collect();
        if children.is_empty() && own.account != "root" {
            continue;
        }
        lines.push(format!("Parent - '{}'\n", own.account));
        for child in children {
            lines.push(format!("{}\n", child_line(tree, child)));
        }
    }
    lines
}

fn child_line(tree: &Tree, child: &AssociationRecord) -> String {
    let (mut line, mut settings) = (String::new(), Vec::new());
    if child.user.is_empty() {
        let account = tree.accounts.get(&child.account).cloned().unwrap_or_default();
        let _ = write!(line, "Account - '{}'", child.account);
        settings.extend(of_account(&account));
    } else {
        let user = tree.users.get(&child.user).cloned().unwrap_or_default();
        let _ = write!(line, "User - '{}'", child.user);
        let partition = Some(&child.partition).filter(|name| !name.is_empty());
        settings.extend(partition.map(|name| Setting::text("Partition", name)));
        settings.extend(of_user(&user));
    }
    settings.extend(of_association(child));
    line + &written(&settings)
}

/// A setting of a record, in the words of `sacctmgr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The key.
    pub(crate) key: String,
    /// The value, and the form in which files write it.
    pub(crate) value: Value,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A text or a name, in quotes in a dump.
    Text(String),
    /// Names, in quotes in a dump.
    List(Vec<String>),
    /// A number, a limit or a time.
    Plain(String),
}

impl Setting {
    fn text(key: &str, value: &str) -> Setting {
        Setting { key: key.to_owned(), value: Value::Text(value.to_owned()) }
    }

    fn list(key: &str, value: &[String]) -> Option<Setting> {
        (!value.is_empty()).then(|| Setting { key: key.to_owned(), value: Value::List(value.to_vec()) })
    }

    fn plain(key: &str, value: impl ToString) -> Setting {
        Setting { key: key.to_owned(), value: Value::Plain(value.to_string()) }
    }
}

impl Value {
    /// Returns the value as `sacctmgr` reads it, without quotes.
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Text(text) | Value::Plain(text) => text.clone(),
            Value::List(names) => names.join(","),
        }
    }
}

/// Returns settings as a line of a dump has them.
fn written(settings: &[Setting]) -> String {
    let value = |value: &Value| match value {
        Value::Text(text) => quoted(text),
        Value::List(names) => format!("'{}'", names.join(",")),
        Value::Plain(text) => text.clone(),
    };
    settings.iter().map(|setting| format!(":{}={}", setting.key, value(&setting.value))).collect()
}

/// Returns the settings of an account, without those of its association.
pub(crate) fn of_account(account: &AccountRecord) -> Vec<Setting> {
    vec![
        Setting::text("Description", &account.description),
        Setting::text("Organization", &account.organization),
    ]
}

/// Returns the settings of a user, without those of the user's associations.
pub(crate) fn of_user(user: &UserRecord) -> Vec<Setting> {
    let default = Some(&user.default_account).filter(|name| !name.is_empty());
    let level = Some(&user.admin_level).filter(|level| *level != "None");
    let mut settings = Vec::new();
    settings.extend(default.map(|name| Setting::text("DefaultAccount", name)));
    let wckey = Some(&user.default_wckey).filter(|name| !name.is_empty());
    settings.extend(wckey.map(|name| Setting::text("DefaultWCKey", name)));
    settings.extend(level.map(|level| Setting::text("AdminLevel", level)));
    settings.extend(Setting::list("Coordinator", &user.coordinates));
    settings.extend(Setting::list("WCKeys", &user.wckeys));
    settings
}

/// Returns the settings of an association.
pub(crate) fn of_association(own: &AssociationRecord) -> Vec<Setting> {
    let mut settings = Vec::new();
    settings.extend(own.own_default_qos.then(|| Setting::text("DefaultQOS", &own.default_qos)));
    settings.push(Setting::plain("Fairshare", &own.shares));
    settings.extend(limits(&own.own_limits));
    settings.extend(Setting::list("QOS", &own.set_qos));
    settings
}

fn limits(limits: &[LimitValue]) -> impl Iterator<Item = Setting> {
    limits.iter().map(|limit| Setting::plain(&limit.name, &limit.value))
}

/// Returns the settings of a QOS.
pub(crate) fn of_qos(qos: &QosRecord) -> Vec<Setting> {
    let mut settings =
        vec![Setting::text("Description", &qos.description), Setting::plain("Priority", qos.priority)];
    let mode = Some(&qos.preempt_mode).filter(|mode| *mode != "cluster");
    settings.extend(Setting::list("Preempt", &qos.preempt));
    settings.extend(mode.map(|mode| Setting::plain("PreemptMode", mode)));
    settings.extend(qos.grace_time.map(|seconds| Setting::plain("GraceTime", seconds)));
    let exempt = qos.preempt_exempt_time.map(|seconds| format!("00:00:{seconds}"));
    settings.extend(exempt.map(|time| Setting::plain("PreemptExemptTime", time)));
    settings.extend(Setting::list("Flags", &qos.flags));
    settings.push(Setting::plain("UsageFactor", qos.usage_factor));
    settings.extend(qos.usage_threshold.map(|value| Setting::plain("UsageThreshold", value)));
    settings.extend(qos.limit_factor.map(|value| Setting::plain("LimitFactor", value)));
    settings.extend(Setting::list("AllowGroups", &qos.allow_groups));
    settings.extend(Setting::list("AllowAccounts", &qos.allow_accounts));
    settings.extend(limits(&qos.limits));
    settings
}

fn qos_line(qos: &QosRecord) -> String {
    format!("QOS - '{}'{}", qos.name, written(&of_qos(qos)))
}

/// Quotes a text with a quotation mark that it does not contain.
fn quoted(text: &str) -> String {
    if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") }
}

/// Parses the lines of a dump. The first line must name the cluster.
///
/// # Errors
/// Slurm's message for a line that cannot be parsed.
fn parse(cluster: &str, text: &str) -> Result<Vec<DumpLine>, String> {
    let (mut lines, mut parent, mut named) = (Vec::new(), "root".to_owned(), false);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts = parts(line);
        let Some((kind, name)) = parts.first().and_then(|head| head.split_once('-')).map(owned) else {
            return Err(format!(" Misformatted line({number}): {line}"));
        };
        let settings: Vec<String> = parts[1..].to_vec();
        if !named && !matches!(kind.as_str(), "Cluster" | "QOS") {
            return Err(
                " You need to specify a cluster name first with 'Cluster - $NAME' in your file".to_owned()
            );
        }
        match kind.as_str() {
            "Cluster" if named => {
                return Err(format!(" You can only add one cluster at a time: line({number})"));
            }
            "Cluster" if !name.eq_ignore_ascii_case(cluster) => {
                return Err(format!(" line({number}) is for cluster {name}; this is cluster {cluster}"));
            }
            "Parent" => {
                parent = name;
                continue;
            }
            "Cluster" => named = true,
            "Account" | "Project" | "User" | "QOS" => {}
            _ => return Err(format!(" Misformatted line({number}): {line}")),
        }
        let kind = if kind == "Project" { "Account".to_owned() } else { kind };
        // What Slurm writes for a user without a default account.
        let settings = settings.into_iter().filter(|word| word != "DefaultAccount='(null)'").collect();
        lines.push(DumpLine { number, kind, name, parent: parent.clone(), settings });
    }
    Ok(lines)
}

/// Returns the name of the cluster that a dump is of; empty if the dump names none.
fn cluster_of(text: &str) -> String {
    let mut heads = text.lines().filter_map(|line| parts(line.trim()).first()?.split_once('-').map(owned));
    heads.find(|(kind, _)| kind == "Cluster").map_or(String::new(), |(_, name)| name)
}

/// Returns the lines of a dump of any cluster.
///
/// # Errors
/// Fails with Slurm's sentence for a line that cannot be parsed.
pub(crate) fn lines(text: &str) -> Result<Vec<DumpLine>, String> {
    parse(&cluster_of(text), text)
}

/// Returns the requests that load a dump into the policy tree, for any cluster that the dump names.
///
/// # Errors
/// Fails with Slurm's sentence for a line that cannot be parsed.
pub(crate) fn asks(text: &str) -> Result<Vec<Ask>, String> {
    let cluster = cluster_of(text);
    let lines = parse(&cluster, text)?;
    let read = |lines: &[DumpLine]| {
        accounts::read(
            &cluster,
            &ChangeAccountsRequest {
                verb: "load".to_owned(),
                lines: lines.to_vec(),
                clean: true,
                ..ChangeAccountsRequest::default()
            },
        )
    };
    lines.chunks(MOST_AT_ONCE).map(read).collect()
}

/// Returns the kind and the name at the beginning of a line, without spaces and quotes.
fn owned((kind, name): (&str, &str)) -> (String, String) {
    (kind.trim().to_owned(), name.trim().trim_matches(['\'', '"']).to_owned())
}

/// Splits a line at colons outside quotes.
fn parts(line: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.chars() {
        match (letter, quote) {
            (':', None) if !ends_in_gres(&part) => parts.push(std::mem::take(&mut part)),
            (letter, open) => {
                quote = match open {
                    None if matches!(letter, '\'' | '"') => Some(letter),
                    Some(open) if open == letter => None,
                    open => open,
                };
                part.push(letter);
            }
        }
    }
    parts.push(part);
    parts
}

/// True if a following colon belongs to the type of a device: `GrpTRES=gres/gpu:a100=4`.
fn ends_in_gres(part: &str) -> bool {
    let last = part.rsplit([',', '=']).next().unwrap_or_default();
    part.contains('=') && last.starts_with("gres/")
}

/// Changes the tree to the contents of a file.
///
/// # Errors
/// A file that cannot be read, or a refusal by the controller.
pub(super) async fn load(session: &mut Session, settings: &Settings, words: &[String]) -> anyhow::Result<u8> {
    let (mut file, mut clean, mut cluster) = (None, false, None);
    for word in words {
        match word.split_once('=').map(|(key, value)| (key.to_ascii_lowercase(), value)) {
            Some((key, value)) if "file".starts_with(&key) => file = Some(value.to_owned()),
            Some((key, value)) if "clusters".starts_with(&key) => cluster = Some(value.to_owned()),
            None if word.eq_ignore_ascii_case("clean") => clean = true,
            None if file.is_none() => file = Some(word.clone()),
            _ => return Err(Bare(format!(" Unknown option: {word}")).into()),
        }
    }
    if settings.readonly {
        return Err(Bare("Can't run this command in readonly mode.".to_owned()).into());
    }
    let Some(file) = file else {
        return Err(Bare(" No filename given, specify one with file=''".to_owned()).into());
    };
    let text = std::fs::read_to_string(&file)
        .map_err(|error| Bare(format!(" Unable to read \"{file}\": {}", reason(&error))))?;
    let here = query::cluster_name(session).await?;
    let named = cluster.unwrap_or_else(|| cluster_of(&text));
    let other = Some(named.to_lowercase()).filter(|name| !name.is_empty() && *name != here.to_lowercase());
    let tree = tree_of(session, other.as_deref()).await?;
    if tree.associations.is_empty() {
        return Err(Bare(format!(
            " Cluster {named} doesn't exist.\n This cluster is {here}; `sacctmgr add cluster {named}` adds another"
        ))
        .into());
    }
    let name = other.as_ref().unwrap_or(&here);
    let lines = parse(name, &text).map_err(Bare)?;
    writeln!(session.out, "For cluster {name}")?;
    let conditions = vec![format!("Cluster={name}")];
    let slice = |lines: &[DumpLine]| ChangeAccountsRequest {
        verb: "load".to_owned(),
        lines: lines.to_vec(),
        clean,
        conditions: conditions.clone(),
        ..ChangeAccountsRequest::default()
    };
    let requests: Vec<ChangeAccountsRequest> = lines.chunks(MOST_AT_ONCE).map(slice).collect();
    let mut leftovers = if clean { leftovers(&tree, &lines) } else { Vec::new() };
    leftovers.iter_mut().for_each(|request| request.conditions.extend(conditions.clone()));
    change::load(session, settings, requests, leftovers).await
}

/// Returns the text of a system error without its number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Returns requests that delete records without a line in the file.
fn leftovers(tree: &Tree, lines: &[DumpLine]) -> Vec<ChangeAccountsRequest> {
    let of_kind = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
    let accounts: BTreeSet<String> = of_kind("Account").map(|line| line.name.to_lowercase()).collect();
    let places: BTreeSet<(String, String)> =
        of_kind("User").map(|line| (line.parent.to_lowercase(), line.name.clone())).collect();
    let gone = tree.accounts.keys().filter(|name| *name != "root" && !accounts.contains(*name));
    let gone: Vec<String> = gone.cloned().collect();
    let mut members: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for own in tree.associations.iter().filter(|own| !own.user.is_empty()) {
        if !gone.contains(&own.account) && !places.contains(&(own.account.clone(), own.user.clone())) {
            members.entry(&own.account).or_default().push(own.user.clone());
        }
    }
    let delete = |entity: &str, names: &[String], conditions: Vec<String>| ChangeAccountsRequest {
        verb: "delete".to_owned(),
        entity: entity.to_owned(),
        names: names.to_vec(),
        conditions,
        ..ChangeAccountsRequest::default()
    };
    let mut requests: Vec<ChangeAccountsRequest> = Vec::new();
    for (account, mut users) in members {
        users.dedup();
        let condition = || vec![format!("account={account}")];
        requests.extend(users.chunks(MOST_AT_ONCE).map(|users| delete("user", users, condition())));
    }
    requests.extend(gone.chunks(MOST_AT_ONCE).map(|names| delete("account", names, Vec::new())));
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "# x\nCluster - 'c':Fairshare=1:QOS='normal'\nParent - 'root'\n\
                    Account - 'sci':Description='a: b':Fairshare=60:GrpTRES=gres/gpu:a100=4\nParent - 'sci'\n\
                    User - 'u':DefaultAccount='(null)':Coordinator='sci'\n";
        let lines = parse("c", text).unwrap();
        let shown: Vec<(u32, &str, &str, &str, String)> = lines
            .iter()
            .map(|line| (line.number, &*line.kind, &*line.name, &*line.parent, line.settings.join(" ")))
            .collect();
        let wanted = [
            (2, "Cluster", "c", "root", "Fairshare=1 QOS='normal'".to_owned()),
            (
                4,
                "Account",
                "sci",
                "root",
                "Description='a: b' Fairshare=60 GrpTRES=gres/gpu:a100=4".to_owned(),
            ),
            (6, "User", "u", "sci", "Coordinator='sci'".to_owned()),
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_dump_is_read_for_a_simulation() {
        let text = "QOS - 'high':Priority=7:Preempt='low'\nQOS - 'low'\nCluster - 'far':QOS='high'\n";
        let found = asks(text).unwrap();
        assert!(
            matches!(found.as_slice(), [Ask::Load { lines, clean: true }] if lines.len() == 3),
            "{found:?}"
        );
        for (text, wanted) in [
            ("QOS - 'x':Foo=1\n", "Foo=1\n Problem with line(1)"),
            ("Parent - 'root'\n", "specify a cluster name first"),
        ] {
            let error = asks(text).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        for (text, wanted) in [
            ("Parent - 'a'\n", " You need to specify a cluster name first"),
            ("Cluster - 'd'\n", " line(1) is for cluster d"),
            ("Cluster - 'c'\nGarbage here\n", " Misformatted line(2)"),
            ("Cluster - 'c'\nFoo - 'x'\n", " Misformatted line(2)"),
        ] {
            let error = parse("c", text).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
