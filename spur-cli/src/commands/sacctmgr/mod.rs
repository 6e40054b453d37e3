//! `sacctmgr`: what there is of Slurm's accounting database here: the cluster, QOS, and users as known. Accounts and
//! associations are names that jobs give; none is kept, so lists of them are empty, and nothing can be added.

mod fields;
mod runaway;

use std::collections::BTreeSet;
use std::io::Write;

use spur_proto::v1::JobFilter;

use fields::{
    ASSOCIATION, ASSOCIATION_SHOWN, CLUSTER, CLUSTER_SHOWN, Cluster, QOS, QOS_SHOWN, TRES, Tres, USER,
    USER_ASSOCIATION_SHOWN, USER_SHOWN, User, WCKEY, columns,
};

use super::{qos, query};
use crate::commands::called;
use crate::error::{Bare, Failure};
use crate::format::report::{Column, Layout, Report, ReportError};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::{Session, whoami};
use crate::version::SLURM;

/// What the options say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    no_header: bool,
    /// `-p` closes lines, `-P` does not.
    parsable: Option<bool>,
    /// Users and accounts with their associations.
    associations: bool,
    /// Whether nothing is asked before a change.
    immediate: bool,
    /// Whether nothing is changed.
    readonly: bool,
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
    SettingsOpt::flag("immediate", Some('i'), "change without asking", |settings, _| {
        settings.immediate = true;
        Ok(())
    }),
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
];

/// How it is called.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sacctmgr",
    synopsis: "[OPTIONS] show|list ENTITY [where KEY=VALUE …] [format=FIELDS]",
    about: "Shows the cluster, QOS, and the users that are known. Accounts and associations are not kept: any may be named.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// What can be listed; each by its beginning, as Slurm takes them.
const ENTITIES: [&str; 16] = [
    "accounts",
    "associations",
    "clusters",
    "configuration",
    "events",
    "federations",
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

/// What changes something in Slurm's database.
const CHANGES: [&str; 11] = [
    "add",
    "archive",
    "clear",
    "create",
    "delete",
    "dump",
    "load",
    "modify",
    "reconfigure",
    "remove",
    "shutdown",
];

const NOT_KEPT: &str = "accounts, users and associations are not kept, and QOS are in spur.toml";

/// What stands behind the entity.
#[derive(Debug, Default, PartialEq, Eq)]
struct Conditions {
    /// Names asked for, of the kind that the entity is.
    names: Vec<String>,
    format: Option<String>,
    associations: bool,
}

/// Reads `[where] KEY=VALUE …`, or a bare name.
fn conditions(words: &[String]) -> Conditions {
    let mut conditions = Conditions::default();
    for word in words.iter().filter(|word| !word.eq_ignore_ascii_case("where")) {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        match key.to_ascii_lowercase().as_str() {
            "format" => conditions.format = Some(value.to_owned()),
            "" if value.to_ascii_lowercase().starts_with("with") => {
                conditions.associations |= value.to_ascii_lowercase().starts_with("withassoc");
            }
            "" | "name" | "names" | "user" | "users" | "cluster" | "clusters" | "qos" => {
                conditions.names.extend(query::list(value));
            }
            // A condition on what nothing has.
            _ => {}
        }
    }
    conditions
}

/// The only entity that begins so.
fn entity(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let fits = |name: &&&str| word.len() >= 2 && (name.starts_with(&word) || word == "runawayjobs");
    // Slurm takes the first that fits: `acc`, `assoc`, `co`, `r…`.
    ENTITIES.iter().find(|name| **name == word).or_else(|| ENTITIES.iter().find(fits)).copied()
}

/// Runs `sacctmgr`.
///
/// # Errors
/// What is not kept here, a field that there is not, a controller that does not answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut settings)? else {
        return Ok(0);
    };
    let Some((verb, rest)) = operands.split_first() else {
        return Err(Failure::new("no command given; write e.g. sacctmgr show qos").into());
    };
    let verb = verb.to_ascii_lowercase();
    match verb.as_str() {
        "show" | "list" => {
            let text = list(session, &settings, rest).await?;
            write!(session.out, "{text}")?;
            Ok(0)
        }
        "version" => {
            write!(session.out, "{}", crate::version::version())?;
            Ok(0)
        }
        "help" => {
            if let Settled::Show(text) = LINE.settle(&["--help".to_owned()], &|_| None, &mut settings)? {
                write!(session.out, "{text}")?;
            }
            Ok(0)
        }
        "exit" | "quit" | "quiet" | "verbose" => Ok(0),
        _ if CHANGES.contains(&verb.as_str()) => {
            Err(Bare(format!(" {verb}: not supported by Spur: {NOT_KEPT}")).into())
        }
        _ => Err(Bare(format!("invalid keyword: {verb}")).into()),
    }
}

async fn list(session: &mut Session, settings: &Settings, words: &[String]) -> anyhow::Result<String> {
    let (word, rest) = words.split_first().map_or(("", words), |(word, rest)| (word.as_str(), rest));
    let (word, joined) = word.split_once('=').map_or((word, None), |(word, name)| (word, Some(name)));
    let mut conditions = conditions(rest);
    conditions.names.extend(joined.map(str::to_owned));
    conditions.associations |= settings.associations;
    let known = entity(word);
    Ok(match known {
        Some("clusters") => {
            settings.table(&CLUSTER, CLUSTER_SHOWN, &conditions, &cluster(session, &conditions).await?)?
        }
        Some("qos") => {
            let mut all = qos::all(session).await?;
            all.retain(|qos| conditions.names.is_empty() || conditions.names.contains(&qos.name));
            settings.table(&QOS, QOS_SHOWN, &conditions, &all)?
        }
        Some("users") if conditions.associations => {
            settings.table(&ASSOCIATION, USER_ASSOCIATION_SHOWN, &conditions, &[])?
        }
        Some("users") => {
            settings.table(&USER, USER_SHOWN, &conditions, &users(session, &conditions).await?)?
        }
        Some("tres") => {
            let all = [Tres("cpu", "", 1), Tres("mem", "", 2), Tres("node", "", 4), Tres("billing", "", 5)];
            settings.table(&TRES, "type,name,id", &conditions, &all)?
        }
        Some("associations") => settings.table(&ASSOCIATION, ASSOCIATION_SHOWN, &conditions, &[])?,
        Some("accounts") => {
            settings.table(&ASSOCIATION, "account,description,organization", &conditions, &[])?
        }
        Some("wckeys") => settings.table(&WCKEY, "wckey,cluster,user", &conditions, &[])?,
        Some("runawayjobs") => runaway::run(session, settings, &conditions).await?,
        Some("configuration") => configuration(session).await?,
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

impl Settings {
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

/// This cluster, if it is among those asked for.
async fn cluster(session: &mut Session, conditions: &Conditions) -> anyhow::Result<Vec<Cluster>> {
    let name = query::cluster_name(session).await?;
    if !conditions.names.is_empty() && !conditions.names.contains(&name) {
        return Ok(Vec::new());
    }
    let qos: Vec<String> = qos::all(session).await?.into_iter().map(|qos| qos.name).collect();
    let address = session.connection()?.address().to_owned();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let host = host.trim_matches(['[', ']']).to_owned();
    Ok(vec![Cluster { name, host, port: port.to_owned(), qos: qos.join(",") }])
}

/// Users with jobs that the controller remembers, whoever asks, and root.
async fn users(session: &mut Session, conditions: &Conditions) -> anyhow::Result<Vec<User>> {
    let filter = JobFilter { states: vec!["all".into()], ..JobFilter::default() };
    let jobs = query::jobs(session.connection()?, filter).await?;
    let mut names: BTreeSet<String> = jobs.into_iter().map(|job| job.user).collect();
    names.extend(["root".to_owned(), whoami().user]);
    names.retain(|name| conditions.names.is_empty() || conditions.names.contains(name));
    let admin = |name: &str| if name == "root" { "Administrator" } else { "None" };
    Ok(names.into_iter().map(|name| User { admin: admin(&name), name }).collect())
}

async fn configuration(session: &mut Session) -> anyhow::Result<String> {
    let show = query::show(&|name| session.env(name))?;
    let now = crate::format::value::time(Some(show.now), "", &show);
    let address = session.connection()?.address().to_owned();
    Ok(format!(
        "Configuration data as of {now}\nAccountingStorageHost  = {address}\nAccountingStorageType  = accounting_storage/spur\n\
         SLURM_VERSION          = {SLURM}\n"
    ))
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
            ["where", "user=a,b", "format=account%30", "withassoc", "partition=x"].map(str::to_owned).into();
        let wanted = Conditions {
            names: vec!["a".into(), "b".into()],
            format: Some("account%30".into()),
            associations: true,
        };
        assert_eq!(conditions(&words), wanted);
    }

    #[test]
    fn what_is_shown_by_default_is_there() {
        assert!(Report::of(&columns(&CLUSTER), CLUSTER_SHOWN).is_ok());
        assert!(Report::of(&columns(&QOS), QOS_SHOWN).is_ok());
        assert!(Report::of(&columns(&USER), USER_SHOWN).is_ok());
        for shown in [ASSOCIATION_SHOWN, USER_ASSOCIATION_SHOWN] {
            assert!(Report::of(&columns(&ASSOCIATION), shown).is_ok());
        }
    }
}
