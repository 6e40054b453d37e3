//! The command `sacctmgr`: accounts, users, associations and QOS, which the controller stores, and other
//! contents of Slurm's accounting database.

mod as_json;
pub(crate) mod change;
pub(crate) mod dump;
mod events;
mod fields;
mod health;
pub(crate) mod offline;
mod rows;
mod runaway;
mod wckeys;

use std::collections::BTreeSet;
use std::io::Write;

use spur_core::model::accounts::ask;
use spur_core::model::config::Config;
use spur_core::text::tres::Tres as CountedTres;
use spur_proto::client::{CallError, Controller};
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{AssociationRecord, ListAccountsRequest};

use fields::{
    ASSOCIATION_SHOWN, CLUSTER_SHOWN, FEDERATION, FEDERATION_SHOWN, QOS_SHOWN, RESOURCE, RESOURCE_SHOWN,
    TRES, Tres, USER_ASSOCIATION_SHOWN, USER_SHOWN, columns,
};
use rows::{Row, Server, Without};

use super::listing::{self, Common, Listing};
use super::query;
use crate::commands::called;
use crate::commands::interactive::{self, Console};
use crate::error::Bare;
use crate::format::json::{RPC_VERSION, Wish};
use crate::format::report::{Column, Layout, Report, ReportError};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;
use crate::version::SLURM;

/// Values of the options.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    no_header: bool,
    /// Delimiter at the end of each line: true with `-p`, false with `-P`.
    parsable: Option<bool>,
    /// True to list users and accounts with their associations.
    associations: bool,
    /// True to change without confirmation.
    immediate: bool,
    /// True to refuse changes.
    readonly: bool,
    common: Common,
}

impl Listing for Settings {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

type SettingsOpt = Opt<Settings>;

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::flag(
        "associations",
        Some('s'),
        "users and accounts with their associations",
        |settings, _| {
            settings.associations = true;
            Ok(())
        },
    ),
    SettingsOpt::flag("immediate", Some('i'), "commit changes immediately", |settings, _| {
        settings.immediate = true;
        Ok(())
    }),
    listing::json(),
    SettingsOpt::flag("noheader", Some('n'), "no header", |settings, _| {
        settings.no_header = true;
        Ok(())
    }),
    SettingsOpt::flag("oneliner", Some('o'), "each record on one line", |_, _| Ok(()))
        .without_effect("each record has one line anyway"),
    SettingsOpt::flag("parsable", Some('p'), "values with | behind each", |settings, _| {
        settings.parsable = Some(true);
        Ok(())
    }),
    SettingsOpt::flag("parsable2", Some('P'), "values with | between them", |settings, _| {
        settings.parsable = Some(false);
        Ok(())
    }),
    SettingsOpt::flag("quiet", Some('Q'), "say no more than errors", |_, _| Ok(()))
        .without_effect("no more is said anyway"),
    SettingsOpt::flag("readonly", Some('r'), "change nothing", |settings, _| {
        settings.readonly = true;
        Ok(())
    }),
    SettingsOpt::flag("verbose", Some('v'), "say more", |_, _| Ok(()))
        .without_effect("there is nothing more to say"),
    listing::yaml(),
];

/// Text of the help after the options.
const COMMANDS: &str = "    Valid <COMMAND> values are:
     add <ENTITY> <SPECS>              add cluster, account, coordinator, qos or user
     delete <ENTITY> [where] <SPECS>   delete the same
     dump <CLUSTER> [File=<FILENAME>]  write accounts and users to a file
     help                              display this help message
     list, show <ENTITY> [<SPECS>]     display account, association, cluster, configuration, event, problem, qos,
                                       runawayjobs, stats, tres, user or wckey
     load <FILE> [<SPECS>]             read such a file
     modify <ENTITY> [where] <SPECS> set <SPECS>
                                       change cluster, account, job, qos or user
     version                           display tool version number

  Without a command, sacctmgr reads commands line by line until exit or quit. !! repeats the last one, and
  associations, parsable, parsable2 and readonly act like the options for the commands after them.

  <SPECS> are words such as Name=physics, Account=physics or Format=Account,User.
";

/// Command line of `sacctmgr`.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sacctmgr",
    synopsis: "[<OPTION>] [<COMMAND>]",
    about: COMMANDS,
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Records that can be listed. Each name may be abbreviated to its first letters, as in Slurm.
const ENTITIES: [&str; 17] = [
    "accounts",
    "associations",
    "clusters",
    "configuration",
    "events",
    "federations",
    "instances",
    "problems",
    "qos",
    "reservations",
    "resources",
    "runawayjobs",
    "stats",
    "transactions",
    "tres",
    "users",
    "wckeys",
];

/// Commands of Slurm that Spur does not have.
const REFUSED: [&str; 4] = ["archive", "clear", "reconfigure", "shutdown"];

const NOT_KEPT: &str = "it is not kept; accounts, users, associations, QOS and events are";

/// Columns of a list of accounts with their associations.
const ACCOUNT_ASSOCIATION_SHOWN: &str = "account,description,organization,cluster,parentname,user,share,priority,grpjobs,\
                                         grpnodes,grpcpus,grpmem,grpsubmitjobs,grpwall,grpcpumins,maxjobs,maxnodes,\
                                         maxcpus,maxsubmitjobs,maxwall,maxcpumins,qos,defaultqos";

/// Conditions after the entity.
#[derive(Debug, Default, PartialEq, Eq)]
struct Conditions {
    /// Names of the requested records.
    names: Vec<String>,
    /// Other conditions, as written.
    others: Vec<String>,
    format: Option<String>,
    associations: bool,
    coordinators: bool,
    deleted: bool,
    tree: bool,
    /// True if a list of users shows their default wckeys.
    wckeys: bool,
    /// Parts of associations that the list leaves out.
    without: Without,
}

/// Parses `[where] KEY=VALUE …`, or names alone.
///
/// # Errors
/// Invalid brackets in names.
fn conditions(words: &[String]) -> Result<Conditions, Bare> {
    let mut conditions = Conditions::default();
    for word in words.iter().filter(|word| !word.eq_ignore_ascii_case("where")) {
        let lower = word.to_ascii_lowercase();
        match lower.split_once('=').map_or(("", &*lower), |(key, value)| (key, value)) {
            ("format" | "fields", _) => {
                conditions.format = word.split_once('=').map(|(_, value)| value.to_owned());
            }
            ("", option) if option.starts_with("witha") => conditions.associations = true,
            ("", option) if option.starts_with("withc") => conditions.coordinators = true,
            ("", option) if option.starts_with("withd") => conditions.deleted = true,
            ("", "tree") => conditions.tree = true,
            ("", option) if option.len() > 3 && "woplimits".starts_with(option) => {
                conditions.without.inherited = true;
            }
            // As in Slurm, this option includes the other.
            ("", option) if option.len() > 3 && "wopinfo".starts_with(option) => {
                conditions.without = Without { inherited: true, parent: true };
            }
            ("", option) if LEFT_OUT.iter().any(|known| known.starts_with(option)) && option.len() > 2 => {}
            ("", _) => conditions.names.extend(ask::names(word).map_err(Bare)?),
            ("name" | "names", _) => {
                let value = word.split_once('=').map_or("", |(_, value)| value);
                conditions.names.extend(ask::names(value.trim_matches(['\'', '"'])).map_err(Bare)?);
            }
            _ => conditions.others.push(word.clone()),
        }
    }
    Ok(conditions)
}

/// Options without effect: what they would omit is never in Spur's lists.
const LEFT_OUT: [&str; 3] = ["withrawqoslevel", "withsubaccounts", "wolimits"];

/// Returns the entity that a word selects; `None` for an unknown word or a single letter.
fn entity(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let fits = |name: &&&str| word.len() >= 2 && (name.starts_with(&word) || word == "runawayjobs");
    // Slurm selects the first match, e.g. for `acc`, `assoc`, `co` or `r…`.
    ENTITIES.iter().find(|name| **name == word).or_else(|| ENTITIES.iter().find(fits)).copied()
}

/// Runs `sacctmgr`.
///
/// # Errors
/// An entity that Spur does not store, an unknown field, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut settings)? else {
        return Ok(0);
    };
    if settings.common.wish.is_some_and(|wish| wish.list) {
        write!(session.out, "{}", Wish::list())?;
        return Ok(0);
    }
    if operands.is_empty() {
        let command =
            async |session: &mut Session, words: &[String]| command(session, &mut settings, words).await;
        return interactive::run(session, CONSOLE, command).await;
    }
    command(session, &mut settings, &operands).await
}

/// The interactive mode of `sacctmgr`.
const CONSOLE: Console = Console {
    prompt: "sacctmgr: ",
    ends: |word| {
        let word = word.to_ascii_lowercase();
        word == "quit" || (!word.is_empty() && "exit".starts_with(&word))
    },
};

/// Runs one command.
async fn command(session: &mut Session, settings: &mut Settings, words: &[String]) -> anyhow::Result<u8> {
    let Some((verb, rest)) = words.split_first() else { return Ok(0) };
    let lower = verb.to_ascii_lowercase();
    let is = |names: &[&str]| names.iter().any(|name| name.starts_with(&lower) && lower.len() > 1);
    match lower.as_str() {
        _ if is(&["show", "list"]) => {
            let text = list(session, settings, rest).await?;
            write!(session.out, "{text}")?;
            Ok(0)
        }
        "version" => {
            write!(session.out, "{}", crate::version::line())?;
            Ok(0)
        }
        "help" => {
            if let Settled::Show(text) = LINE.settle(&["--help".to_owned()], &|_| None, settings)? {
                write!(session.out, "{text}")?;
            }
            Ok(0)
        }
        "exit" | "quit" => Ok(0),
        _ if settings.take(&lower) => Ok(0),
        _ if is(&["add", "create"]) => change::run(session, settings, change::read("add", rest)?).await,
        _ if is(&["modify", "update"]) => change::run(session, settings, change::read("modify", rest)?).await,
        _ if is(&["delete", "remove"]) => change::run(session, settings, change::read("delete", rest)?).await,
        _ if is(&["dump"]) => dump::dump(session, rest).await,
        _ if is(&["load"]) => dump::load(session, settings, rest).await,
        _ if REFUSED.contains(&lower.as_str()) => {
            Err(Bare(format!(" {verb}: not supported by Spur: there is no accounting database to manage"))
                .into())
        }
        _ => Err(Bare(format!("invalid keyword: {verb}")).into()),
    }
}

async fn list(session: &mut Session, settings: &Settings, words: &[String]) -> anyhow::Result<String> {
    let (word, rest) = words.split_first().map_or(("", words), |(word, rest)| (word.as_str(), rest));
    let (word, joined) = word.split_once('=').map_or((word, None), |(word, name)| (word, Some(name)));
    let mut conditions = conditions(rest)?;
    conditions.names.extend(joined.map(str::to_owned));
    conditions.associations |= settings.associations;
    let known = entity(word);
    if let Some((wish, entity)) = settings.common.wish.zip(known)
        && let Some(document) = as_json::document(session, wish, entity, &conditions).await?
    {
        return Ok(document);
    }
    Ok(match known {
        Some("clusters") => {
            let all = clusters(session, &conditions).await?;
            settings.table(&rows::cluster_columns(), CLUSTER_SHOWN, &conditions, &all)?
        }
        Some(kept @ ("qos" | "users" | "accounts" | "associations")) => {
            let all = fetch(session, request(kept, &conditions)).await?;
            let cluster = query::cluster_name(session).await?;
            if kept == "users" && conditions.format.is_none() {
                let in_force = query::settings(session.connection()?).await?;
                conditions.wckeys = wckeys::are_tracked(&in_force);
            }
            settings.kept(kept, &cluster, &conditions, all)?
        }
        Some("tres") => {
            let all = resources(session).await?;
            settings.table(&TRES, "type,name,id", &conditions, &all)?
        }
        Some("wckeys") => {
            let all = wckeys::fetch(session, &conditions).await?;
            settings.table(&wckeys::COLUMNS, wckeys::SHOWN, &conditions, &all)?
        }
        Some("resources") => settings.table(&RESOURCE, RESOURCE_SHOWN, &conditions, &[])?,
        Some("federations") => settings.table(&FEDERATION, FEDERATION_SHOWN, &conditions, &[])?,
        Some("runawayjobs") => runaway::run(session, settings, &conditions).await?,
        Some("configuration") => configuration(session).await?,
        Some("events") => events::run(session, settings, &conditions).await?,
        Some("problems") => health::problems(session, settings, &conditions).await?,
        Some("stats") => health::statistics(session).await?,
        Some(other) => return Err(Bare(format!(" {other}: not supported by Spur: {NOT_KEPT}")).into()),
        None => {
            return Err(Bare(
                "No valid entity in list command\n\
                 Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",\n\
                 \"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",\n\
                 \"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\""
                    .to_owned(),
            )
            .into());
        }
    })
}

/// Returns the trackable resources: those that Slurm always counts, the devices of the nodes, and
/// licences.
async fn resources(session: &mut Session) -> anyhow::Result<Vec<Tres>> {
    let mut all: Vec<Tres> =
        ALWAYS.into_iter().map(|(kind, name, id)| Tres(kind.to_owned(), name.to_owned(), id)).collect();
    // Nodes may be hidden from the user.
    let nodes = query::nodes(session.connection()?, "").await.unwrap_or_default();
    let names: BTreeSet<String> = nodes
        .iter()
        .filter_map(|node| node.configured_tres.parse::<CountedTres>().ok())
        .flat_map(|tres| tres.0.into_keys())
        .filter_map(|kind| kind.to_string().strip_prefix("gres/").map(str::to_owned))
        .collect();
    let gres = names.into_iter().map(|name| ("gres", name));
    let licenses = query::licenses(session.connection()?).await?;
    let licenses = licenses.into_iter().map(|license| ("license", license.name));
    let own = (1001..).zip(gres.chain(licenses));
    all.extend(own.map(|(id, (kind, name))| Tres(kind.to_owned(), name, id)));
    Ok(all)
}

/// The resources that Slurm always counts: type, name and number.
const ALWAYS: [(&str, &str, u32); 8] = [
    ("cpu", "", 1),
    ("mem", "", 2),
    ("energy", "", 3),
    ("node", "", 4),
    ("billing", "", 5),
    ("fs", "disk", 6),
    ("vmem", "", 7),
    ("pages", "", 8),
];

impl Settings {
    /// Takes a command that acts like an option of the commands after it, which only the interactive mode
    /// has. Returns false for any other word.
    fn take(&mut self, word: &str) -> bool {
        match word {
            "associations" => self.associations = true,
            "parsable" => self.parsable = Some(true),
            "parsable2" => self.parsable = Some(false),
            "readonly" => self.readonly = true,
            // These options are without effect, too.
            "oneliner" | "quiet" | "verbose" => {}
            _ => return false,
        }
        true
    }

    fn table<R>(
        &self,
        own: &[Column<R>],
        shown: &str,
        conditions: &Conditions,
        rows: &[R],
    ) -> anyhow::Result<String> {
        let format = conditions.format.as_deref().unwrap_or(shown);
        let report = Report::of(&columns(own), format).map_err(|error| match error {
            ReportError::Field { name, .. } => anyhow::Error::from(Bare(format!("Unknown field '{name}'"))),
            error @ ReportError::Width(_) => error.into(),
        })?;
        let layout = match self.parsable {
            None => Layout::Columns,
            Some(closed) => Layout::Delimited { delimiter: "|".to_owned(), closed },
        };
        let show = query::show(&|_| None)?;
        Ok(report.render(rows, &layout, !self.no_header, &show))
    }
}

/// Returns the requested clusters: the controller's own, and the others that have a tree.
async fn clusters(session: &mut Session, conditions: &Conditions) -> anyhow::Result<Vec<Row>> {
    let own = query::cluster_name(session).await?;
    let others = conditions.others.iter().filter_map(|word| word.split_once('='));
    let others = others.filter(|(key, _)| "clusters".starts_with(&key.to_ascii_lowercase()));
    let named =
        others.flat_map(|(_, names)| names.split(',')).chain(conditions.names.iter().map(|name| &**name));
    let named: Vec<String> = named.map(str::to_lowercase).collect();
    let address = session.connection()?.address().to_owned();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let host = host.trim_matches(['[', ']']);
    let entity = "association".to_owned();
    let request = ListAccountsRequest { entity, all_clusters: true, ..ListAccountsRequest::default() };
    let roots = fetch(session, request).await?.into_iter().filter_map(|record| match record {
        Record::Association(root) if root.parent_id == 0 => Some(root),
        _ => None,
    });
    let cluster = |root: AssociationRecord| {
        let (cluster, server) = match root.cluster.as_str() {
            "" => (own.clone(), Server { host: host.to_owned(), port: port.to_owned(), rpc: RPC_VERSION }),
            other => (other.to_owned(), Server { port: "0".to_owned(), ..Server::default() }),
        };
        Row { cluster, server, association: Some(root), ..Row::default() }
    };
    let mut all: Vec<Row> = roots.map(cluster).collect();
    all.retain(|cluster| named.is_empty() || named.contains(&cluster.cluster.to_lowercase()));
    Ok(all)
}

/// Returns the request for a list of records of the policy tree. `entity` is one of [`ENTITIES`].
fn request(entity: &str, conditions: &Conditions) -> ListAccountsRequest {
    let singular = if entity == "qos" { entity } else { entity.trim_end_matches('s') };
    ListAccountsRequest {
        entity: singular.to_owned(),
        names: conditions.names.clone(),
        conditions: conditions.others.clone(),
        with_deleted: conditions.deleted,
        with_associations: conditions.associations,
        all_clusters: true,
        ..ListAccountsRequest::default()
    }
}

/// Returns the records of the policy tree of one kind and with these names, all of them without names.
/// Deleted records are left out.
pub(crate) async fn records(
    session: &mut Session,
    entity: &str,
    names: &[String],
) -> anyhow::Result<Vec<Record>> {
    let (entity, names) = (entity.to_owned(), names.to_vec());
    fetch(session, ListAccountsRequest { entity, names, ..ListAccountsRequest::default() }).await
}

/// Returns the records that a request selects.
async fn fetch(session: &mut Session, request: ListAccountsRequest) -> anyhow::Result<Vec<Record>> {
    let call = async |mut controller: Controller, request| controller.list_accounts(request).await;
    let pages = session.connection()?.list(request, call).await;
    let pages = pages.map_err(|error| match error {
        CallError::Refused { message, .. } => anyhow::Error::from(Bare(message)),
        error => error.into(),
    })?;
    Ok(pages.into_iter().flat_map(|page| page.rows).filter_map(|row| row.row).collect())
}

/// Reduces the depths of associations so that the highest one has depth 0, as Slurm indents them.
fn indent_from_first(all: &mut [Record]) {
    let mut associations: Vec<_> = all
        .iter_mut()
        .filter_map(|record| match record {
            Record::Association(association) => Some(association),
            _ => None,
        })
        .collect();
    let highest = associations.iter().map(|association| association.depth).min().unwrap_or_default();
    associations.iter_mut().for_each(|association| association.depth -= highest);
}

impl Settings {
    /// Returns the table of a list of records of the policy tree.
    fn kept(
        &self,
        entity: &str,
        cluster: &str,
        conditions: &Conditions,
        mut all: Vec<Record>,
    ) -> anyhow::Result<String> {
        let tree = if conditions.tree { "cluster,account%-20" } else { "cluster,account" };
        let shown = match (entity, conditions.associations) {
            ("qos", _) => {
                let qos = all.into_iter().filter_map(|record| match record {
                    Record::Qos(qos) => Some(qos),
                    _ => None,
                });
                let own = rows::qos_columns();
                return self.table(&own, QOS_SHOWN, conditions, &qos.collect::<Vec<_>>());
            }
            ("users", true) => USER_ASSOCIATION_SHOWN.to_owned(),
            ("users", false) => USER_SHOWN.to_owned(),
            ("accounts", true) => ACCOUNT_ASSOCIATION_SHOWN.to_owned(),
            ("accounts", false) => "account,description,organization".to_owned(),
            _ => ASSOCIATION_SHOWN.replacen("cluster,account", tree, 1),
        };
        let shown = match conditions.wckeys {
            true => shown.replacen("defaultaccount", "defaultaccount,defaultwckey", 1),
            false => shown,
        };
        indent_from_first(&mut all);
        let shown = if conditions.coordinators { format!("{shown},coordinators") } else { shown };
        let own: Vec<_> = rows::ROW.iter().chain(&rows::LIMITS).copied().collect();
        let bare = Row {
            cluster: cluster.to_owned(),
            tree: conditions.tree,
            without: conditions.without,
            ..Row::default()
        };
        self.table(&own, &shown, conditions, &joined(all, bare))
    }
}

/// Returns one row for each association, account or user. A row of an association includes the account or
/// user before it in the list. `owner` is the row of a list without records.
fn joined(all: Vec<Record>, mut owner: Row) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    let mut alone = false;
    for record in all {
        match record {
            Record::Association(association) => {
                alone = false;
                found.push(Row { association: Some(association), ..owner.clone() });
            }
            Record::Account(account) => {
                found.extend(alone.then(|| owner.clone()));
                owner = Row { account: Some(account), ..owner };
                alone = true;
            }
            Record::User(user) => {
                found.extend(alone.then(|| owner.clone()));
                owner = Row { user: Some(user), ..owner };
                alone = true;
            }
            Record::Qos(_) | Record::Limit(_) => {}
        }
    }
    found.extend(alone.then_some(owner));
    found
}

async fn configuration(session: &mut Session) -> anyhow::Result<String> {
    let show = query::show(&|name| session.env(name))?;
    let now = crate::format::value::time(Some(show.now), "", &show);
    let address = session.connection()?.address().to_owned();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let all = query::settings(session.connection()?).await?;
    let known = |key: &str| all.iter().find(|setting| setting.key == key).map(|setting| &*setting.value);
    let set = |key: &str| known(key).filter(|value| !matches!(*value, "" | "(null)"));
    let (private, purge) = (set("controller.private_data"), set("controller.purge_job_after"));
    let purge_events = set("controller.purge_event_after");
    let file = session.env("SPUR_CONF").filter(|file| !file.is_empty());
    let file = file.as_deref().unwrap_or(Config::DEFAULT_FILE);
    let private = private.unwrap_or("none");
    let track = if wckeys::are_tracked(&all) { "Yes" } else { "No" };
    let own = [
        ("AccountingStorageBackupHost ", "(null)"),
        ("AccountingStorageHost ", host),
        ("AccountingStorageParameters", "(null)"),
        ("AccountingStoragePass ", "(null)"),
        ("AccountingStoragePort ", port),
        ("AccountingStorageType ", "accounting_storage/slurmdbd"),
        ("AccountingStorageUser ", "N/A"),
        ("AuthType", "auth/spur"),
        ("MessageTimeout", "(null)"),
        ("PluginDir", "(null)"),
        ("PrivateData", private),
        ("SlurmUserId", "root(0)"),
        ("SLURM_CONF", file),
        ("SLURM_VERSION", SLURM),
        ("TCPTimeout", "(null)"),
        ("TrackWCKey", track),
    ];
    // The controller serves what slurmdbd serves.
    let of_database = [
        ("AllowNoDefAcct", "No"),
        ("AuthType", "auth/spur"),
        ("DbdAddr", host),
        ("DbdBackupHost", "(null)"),
        ("DbdHost", host),
        ("DbdPort", port),
        ("PrivateData", private),
        ("PurgeEventAfter", purge_events.unwrap_or("NONE")),
        ("PurgeJobAfter", purge.unwrap_or("NONE")),
        ("SLURMDBD_CONF", file),
        ("SLURMDBD_VERSION", SLURM),
        ("TrackWCKey", track),
    ];
    let lines = |all: &[(&str, &str)]| -> String {
        all.iter().map(|(name, value)| format!("{name:<22} = {value}\n")).collect()
    };
    let (own, of_database) = (lines(&own), lines(&of_database));
    Ok(format!("Configuration data as of {now}\n{own}\nSlurmDBD configuration:\n{of_database}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_may_be_cut() {
        for (word, wanted) in [
            ("assoc", Some("associations")),
            ("association", Some("associations")),
            ("acc", Some("accounts")),
            ("QOS", Some("qos")),
            ("cluster", Some("clusters")),
            ("user", Some("users")),
            ("runaway", Some("runawayjobs")),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(entity(word), wanted, "{word}");
        }
    }

    #[test]
    fn conditions_are_read() {
        let words: Vec<String> =
            ["where", "name=a,b", "format=account%30", "withassoc", "partition=x"].map(str::to_owned).into();
        let wanted = Conditions {
            names: vec!["a".into(), "b".into()],
            others: vec!["partition=x".into()],
            format: Some("account%30".into()),
            associations: true,
            ..Conditions::default()
        };
        assert_eq!(conditions(&words), Ok(wanted));
    }

    #[test]
    fn what_is_shown_by_default_is_there() {
        assert!(Report::of(&columns(&rows::cluster_columns()), CLUSTER_SHOWN).is_ok());
        let qos = rows::qos_columns();
        assert!(Report::of(&columns(&qos), QOS_SHOWN).is_ok());
        let own: Vec<_> = rows::ROW.iter().chain(&rows::LIMITS).copied().collect();
        for shown in [ASSOCIATION_SHOWN, USER_ASSOCIATION_SHOWN, USER_SHOWN, ACCOUNT_ASSOCIATION_SHOWN] {
            assert!(Report::of(&columns(&own), shown).is_ok(), "{shown}");
        }
    }

    #[test]
    fn abbreviations_of_fields_mean_what_they_mean_in_slurm() {
        let own: Vec<_> = rows::ROW.iter().chain(&rows::LIMITS).copied().collect();
        let columns = columns(&own);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/sacctmgr/names.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let show = query::show(&|_| None).unwrap();
        let layout = Layout::Delimited { delimiter: "|".to_owned(), closed: false };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let [shortest, longest, header] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            for end in shortest.len()..=longest.len() {
                let name = &longest[..end];
                let report = Report::of(&columns, name).unwrap();
                assert_eq!(report.render(&[], &layout, true, &show), format!("{header}\n"), "{name}");
            }
        }
        // A column under a name that Slurm lacks is found under that name.
        for own in &own {
            let found = Report::of(&columns, own.name).unwrap().render(&[], &layout, true, &show);
            assert_eq!(found, format!("{}\n", own.header), "{}", own.name);
        }
    }

    #[tokio::test]
    async fn commands_follow_one_another() {
        let mut session = Session::in_memory("sacctmgr", std::collections::BTreeMap::new(), None);
        let mut settings = Settings::default();
        let mut lines = "version\n!!\nparsable2\nreadonly\nfoo\nexi\nversion\n".lines();
        let next = async || Ok(lines.next().map(str::to_owned));
        let run =
            async |session: &mut Session, words: &[String]| command(session, &mut settings, words).await;
        let code = interactive::follow(&mut session, CONSOLE, next, run, true).await.unwrap();
        let version = crate::version::line();
        assert_eq!(
            session.out.take_text(),
            format!(
                "sacctmgr: version\n{version}sacctmgr: !!\n{version}sacctmgr: parsable2\nsacctmgr: readonly\n\
                 sacctmgr: foo\nsacctmgr: exi\n"
            )
        );
        let complaints = session.take_complaints();
        assert!(complaints.contains("invalid keyword: foo"), "{complaints}");
        assert_eq!(code, 1);
        assert_eq!((settings.parsable, settings.readonly), (Some(false), true));
    }
}
