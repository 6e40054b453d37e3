//! `sreport`: what of the cluster was used, by accounts and users, worked out from the jobs in accounting.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nix::unistd::User;
use spur_core::text::time::When;
use spur_proto::client::Controller;
use spur_proto::v1::{AccountingRow, ListAccountingRequest};

use super::moment::past_moment;
use super::query;
use crate::commands::called;
use crate::error::{Bare, Failure};
use crate::format::fields::node::effective_cpus;
use crate::format::report::{Column, Layout, Report, ReportError};
use crate::format::value::time;
use crate::options::{CommandLine, Opt};
use crate::session::Session;
use crate::zone;

/// Usage is counted in whole hours, as Slurm's database sums it up.
const HOUR: i64 = 3600;
const RULE: &str = "--------------------------------------------------------------------------------";

/// In what CPU time is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unit {
    Seconds,
    #[default]
    Minutes,
    Hours,
    Percent,
}

/// What the options say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    unit: Unit,
    no_header: bool,
    parsable: Option<bool>,
}

type SettingsOpt = Opt<Settings>;

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::flag("all_clusters", Some('a'), "all clusters", |_, _| Ok(()))
        .without_effect("there is one cluster, and no federation"),
    SettingsOpt::flag("noheader", Some('n'), "no header", |settings, _| {
        settings.no_header = true;
        Ok(())
    }),
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
    SettingsOpt::value("tres", Some('T'), "NAMES", "of which resources: cpu", |_, text| {
        match query::list(text).iter().all(|name| name == "cpu") {
            true => Ok(()),
            false => Err("only the use of cpu is worked out".to_owned()),
        }
    }),
    SettingsOpt::value("t", Some('t'), "UNIT", "Seconds, Minutes, Hours or Percent", |settings, text| {
        settings.unit = match text.to_ascii_lowercase() {
            word if word.len() >= 2 && "seconds".starts_with(&word) => Unit::Seconds,
            word if word.len() >= 2 && "minutes".starts_with(&word) => Unit::Minutes,
            word if word.len() >= 2 && "hours".starts_with(&word) => Unit::Hours,
            word if word.len() >= 2 && "percent".starts_with(&word) => Unit::Percent,
            _ => return Err("write Seconds, Minutes, Hours or Percent".to_owned()),
        };
        Ok(())
    }),
    SettingsOpt::flag("verbose", Some('v'), "say more", |_, _| Ok(()))
        .without_effect("there is nothing more to say"),
];

/// How it is called.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sreport",
    synopsis: "[OPTIONS] cluster|user REPORT [Start=TIME] [End=TIME] [Format=FIELDS]",
    about: "Shows what was used: cluster Utilization, AccountUtilizationByUser, UserUtilizationByAccount; user TopUsage. \
            From yesterday's midnight to today's, if nothing else is said.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// CPU time of a user in an account, seconds; without a user that of the account.
#[derive(Clone, Debug, Default, PartialEq)]
struct Used {
    cluster: String,
    account: String,
    login: String,
    proper: String,
    seconds: u64,
    /// The same as it is told.
    told: String,
}

/// CPU time of the cluster, as it is told.
#[derive(Clone, Debug, Default)]
struct Utilization {
    cluster: String,
    allocated: String,
    none: String,
    idle: String,
    reported: String,
}

const UTILIZATION: [Column<Utilization>; 8] = [
    Column { name: "Cluster", header: "Cluster", width: 9, text: |row, _| row.cluster.clone() },
    Column { name: "Allocated", header: "Allocated", width: 8, text: |row, _| row.allocated.clone() },
    Column { name: "Down", header: "Down", width: 8, text: |row, _| row.none.clone() },
    Column { name: "PlannedDown", header: "PLND Down", width: 8, text: |row, _| row.none.clone() },
    Column { name: "Idle", header: "Idle", width: 8, text: |row, _| row.idle.clone() },
    Column { name: "Planned", header: "Planned", width: 8, text: |row, _| row.none.clone() },
    Column { name: "Reserved", header: "Planned", width: 8, text: |row, _| row.none.clone() },
    Column { name: "Reported", header: "Reported", width: 8, text: |row, _| row.reported.clone() },
];
const UTILIZATION_SHOWN: &str = "cluster,allocated,down,planneddown,idle,reserved,reported";

const USED: [Column<Used>; 6] = [
    Column { name: "Cluster", header: "Cluster", width: 9, text: |row, _| row.cluster.clone() },
    Column { name: "Account", header: "Account", width: 15, text: |row, _| row.account.clone() },
    Column { name: "Login", header: "Login", width: 9, text: |row, _| row.login.clone() },
    Column { name: "Proper", header: "Proper Name", width: 15, text: |row, _| row.proper.clone() },
    Column { name: "Used", header: "Used", width: 8, text: |row, _| row.told.clone() },
    Column { name: "Energy", header: "Energy", width: 8, text: |_, _| "0".to_owned() },
];

/// The reports there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Utilization,
    AccountByUser,
    UserByAccount,
    TopUsage,
}

impl Kind {
    fn named(of: &str, name: &str) -> Result<Kind, Bare> {
        let begins = |whole: &str| {
            name.len() >= 2 && whole.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase())
        };
        let known = match of.to_ascii_lowercase().as_str() {
            "cluster" => [
                ("AccountUtilizationByUser", Kind::AccountByUser),
                ("UserUtilizationByAccount", Kind::UserByAccount),
                ("Utilization", Kind::Utilization),
            ]
            .as_slice(),
            "user" => [("TopUsage", Kind::TopUsage)].as_slice(),
            "job" | "reservation" => {
                return Err(Bare(format!("{of}: not supported by Spur; there are cluster and user reports")));
            }
            _ => return Err(Bare(format!("invalid keyword: {of}"))),
        };
        let found = known.iter().find(|(whole, _)| begins(whole)).map(|(_, kind)| *kind);
        found.ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|(whole, _)| format!("\"{whole}\"")).collect();
            Bare(format!("Not valid report {name}\nValid {of} reports are, {}", names.join(", ")))
        })
    }

    fn title(self) -> &'static str {
        match self {
            Kind::Utilization => "Cluster Utilization",
            Kind::AccountByUser => "Cluster/Account/User Utilization",
            Kind::UserByAccount => "Cluster/User/Account Utilization",
            Kind::TopUsage => "Top 10 Users",
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Kind::Utilization => UTILIZATION_SHOWN,
            Kind::AccountByUser => "cluster,account,login,proper,used,energy",
            Kind::UserByAccount | Kind::TopUsage => "cluster,login,proper,account,used,energy",
        }
    }
}

/// What stands behind the report: its window, and what it is about.
#[derive(Debug, Default)]
struct Conditions {
    start: Option<When>,
    end: Option<When>,
    format: Option<String>,
    users: Vec<String>,
    accounts: Vec<String>,
    top: Option<usize>,
}

fn conditions(words: &[String]) -> Result<Conditions, Failure> {
    let mut found = Conditions::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let when =
            || value.parse().map_err(|error: spur_core::text::ParseError| Failure::new(error.to_string()));
        match key.to_ascii_lowercase().as_str() {
            "start" => found.start = Some(when()?),
            "end" => found.end = Some(when()?),
            "format" => found.format = Some(value.to_owned()),
            "users" | "user" => found.users.extend(query::list(value)),
            "accounts" | "account" => found.accounts.extend(query::list(value)),
            "topcount" => {
                let count = value.parse().map_err(|_| Failure::new(format!("{word}: not a number")))?;
                found.top = Some(count);
            }
            "cluster" | "clusters" | "all_clusters" | "where" | "tree" | "group" => {}
            _ => return Err(Failure::new(format!("Unknown condition: {word}"))),
        }
    }
    Ok(found)
}

impl Conditions {
    /// From when until when, in whole hours: by default yesterday; nothing is told of the future.
    fn window(&self, zone: &TimeZone, now: i64) -> anyhow::Result<(i64, i64)> {
        let at = Timestamp::from_second(now)?;
        let point = |when: Option<&When>, otherwise: &str| -> anyhow::Result<i64> {
            let when = match when {
                Some(when) => *when,
                None => otherwise.parse()?,
            };
            past_moment(when, zone, at).map_err(|problem| Failure::new(problem).into())
        };
        let today = point(None, "midnight")?;
        let start = match &self.start {
            None => today - 24 * HOUR,
            some => point(some.as_ref(), "midnight")?,
        };
        let end = point(self.end.as_ref(), "midnight")?.min(now);
        let whole = |at: i64| at - at.rem_euclid(HOUR);
        let (start, end) = (whole(start), whole(end));
        if start >= end {
            return Err(
                Failure::new("the start of the report is not before its end, or less than an hour").into()
            );
        }
        Ok((start, end))
    }
}

/// Runs `sreport`.
///
/// # Errors
/// A report that there is not, a time that cannot be read, a controller that does not answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut settings)? else {
        return Ok(0);
    };
    let [of, rest @ ..] = &operands[..] else {
        return Err(Failure::new("no report given; write e.g. sreport cluster utilization").into());
    };
    if of == "version" {
        write!(session.out, "{}", crate::version::line())?;
        return Ok(0);
    }
    let Some((name, rest)) = rest.split_first() else {
        Kind::named(of, "utilization").or_else(|_| Kind::named(of, "topusage"))?;
        return Err(Bare(format!("too few arguments for keyword:{of}")).into());
    };
    let kind = Kind::named(of, name)?;
    let asked = conditions(rest)?;
    let zone = zone::local();
    let now = Timestamp::now().as_second();
    let window = asked.window(&zone, now)?;
    let cluster = query::cluster_name(session).await?;
    let nodes = query::nodes(session.connection()?, "").await?;
    let cpus = nodes.iter().map(|node| u64::from(effective_cpus(node))).sum();
    let rows = rows(session, &asked, window).await?;
    let facts = Facts { cluster, cpus, window, now };
    let text = facts.report(kind, &settings, &asked, &rows)?;
    write!(session.out, "{text}")?;
    Ok(0)
}

/// The jobs that ran in the window.
async fn rows(
    session: &mut Session,
    asked: &Conditions,
    (start, end): (i64, i64),
) -> anyhow::Result<Vec<AccountingRow>> {
    let request = ListAccountingRequest {
        start: Some(start),
        end: Some(end),
        all_users: asked.users.is_empty(),
        users: asked.users.clone(),
        accounts: asked.accounts.clone(),
        allocations_only: true,
        usage: true,
        ..ListAccountingRequest::default()
    };
    let call = async |mut controller: Controller, request| controller.list_accounting(request).await;
    let pages = session.connection()?.list(request, call).await?;
    if pages.iter().any(|page| page.only_own) {
        session.warn("only your own jobs are counted: private_data of this cluster hides those of others");
    }
    let mut rows: Vec<AccountingRow> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.retain(|row| row.step_id.is_empty());
    Ok(rows)
}

/// What a report is made from.
struct Facts {
    cluster: String,
    cpus: u64,
    window: (i64, i64),
    now: i64,
}

impl Facts {
    fn report(
        &self,
        kind: Kind,
        settings: &Settings,
        asked: &Conditions,
        rows: &[AccountingRow],
    ) -> anyhow::Result<String> {
        let format = asked.format.as_deref().unwrap_or_else(|| kind.shown());
        let layout = match settings.parsable {
            None => Layout::Columns,
            Some(closed) => Layout::Delimited { delimiter: "|".to_owned(), closed },
        };
        let show = query::show(&|_| None)?;
        let wrong = |error| match error {
            ReportError::Field { name, .. } => anyhow::Error::from(Bare(format!(" Unknown field '{name}'"))),
            error @ ReportError::Width(_) => error.into(),
        };
        let body = match kind {
            Kind::Utilization => {
                let report = Report::of(&UTILIZATION, format).map_err(wrong)?;
                report.render(&[self.utilization(settings.unit, rows)], &layout, !settings.no_header, &show)
            }
            _ => {
                let report = Report::of(&USED, format).map_err(wrong)?;
                report.render(
                    &self.used(kind, settings.unit, asked, rows),
                    &layout,
                    !settings.no_header,
                    &show,
                )
            }
        };
        let mut text = String::new();
        if !settings.no_header {
            let (start, end) = self.window;
            let at = |at| time(Some(at), "", &show);
            let span =
                if kind == Kind::Utilization { String::new() } else { format!(" ({} secs)", end - start) };
            let unit = match settings.unit {
                Unit::Seconds => "CPU Seconds",
                Unit::Minutes => "CPU Minutes",
                Unit::Hours => "CPU Hours",
                Unit::Percent => "Percentage of Total",
            };
            let _ = write!(
                text,
                "{RULE}\n{} {} - {}{span}\nUsage reported in {unit}\n{RULE}\n",
                kind.title(),
                at(start),
                at(end - 1)
            );
        }
        Ok(text + &body)
    }

    /// CPU seconds of a job in the window.
    fn seconds(&self, row: &AccountingRow) -> u64 {
        let (start, end) = self.window;
        let Some(from) = row.start_time else { return 0 };
        let until = row.end_time.unwrap_or(self.now);
        let span = until.min(end) - from.max(start);
        u64::try_from(span).unwrap_or(0) * u64::from(row.alloc_cpus)
    }

    fn total(&self) -> u64 {
        let (start, end) = self.window;
        self.cpus * u64::try_from(end - start).unwrap_or(0)
    }

    fn told(&self, seconds: u64, unit: Unit) -> String {
        match unit {
            Unit::Seconds => seconds.to_string(),
            Unit::Minutes => (seconds / 60).to_string(),
            Unit::Hours => (seconds / 3600).to_string(),
            // In hundredths; a cluster without CPUs has used nothing.
            Unit::Percent => {
                let share = (u128::from(seconds) * 10_000).checked_div(u128::from(self.total())).unwrap_or(0);
                format!("{}.{:02}%", share / 100, share % 100)
            }
        }
    }

    fn utilization(&self, unit: Unit, rows: &[AccountingRow]) -> Utilization {
        let allocated = rows.iter().map(|row| self.seconds(row)).sum::<u64>();
        Utilization {
            cluster: self.cluster.clone(),
            allocated: self.told(allocated, unit),
            none: self.told(0, unit),
            idle: self.told(self.total().saturating_sub(allocated), unit),
            reported: self.told(self.total(), unit),
        }
    }

    fn used(&self, kind: Kind, unit: Unit, asked: &Conditions, rows: &[AccountingRow]) -> Vec<Used> {
        let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for row in rows {
            *sums.entry((&row.account, &row.user)).or_default() += self.seconds(row);
        }
        sums.retain(|_, seconds| *seconds > 0);
        let one = |account: &str, login: &str, seconds: u64| Used {
            cluster: self.cluster.clone(),
            account: account.to_owned(),
            login: login.to_owned(),
            proper: proper(login),
            seconds,
            told: self.told(seconds, unit),
        };
        let mut all: Vec<Used> =
            sums.iter().map(|((account, user), seconds)| one(account, user, *seconds)).collect();
        match kind {
            Kind::AccountByUser | Kind::Utilization => {
                let mut accounts: BTreeMap<&str, u64> = BTreeMap::new();
                sums.iter()
                    .for_each(|((account, _), seconds)| *accounts.entry(account).or_default() += seconds);
                all.extend(accounts.into_iter().map(|(account, seconds)| one(account, "", seconds)));
                all.sort_by(|a, b| (&a.account, &a.login).cmp(&(&b.account, &b.login)));
            }
            Kind::UserByAccount => all.sort_by(|a, b| (&a.login, &a.account).cmp(&(&b.login, &b.account))),
            Kind::TopUsage => {
                all.sort_by(|a, b| b.seconds.cmp(&a.seconds).then_with(|| a.login.cmp(&b.login)));
                all.truncate(asked.top.unwrap_or(10));
            }
        }
        all
    }
}

/// The name behind a login, as this host knows it.
fn proper(login: &str) -> String {
    let found = User::from_name(login).ok().flatten().filter(|_| !login.is_empty());
    let gecos = found.map(|user| user.gecos.to_string_lossy().into_owned()).unwrap_or_default();
    gecos.split(',').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(account: &str, user: &str, start: i64, end: Option<i64>, cpus: u32) -> AccountingRow {
        AccountingRow {
            account: account.into(),
            user: user.into(),
            start_time: Some(start),
            end_time: end,
            alloc_cpus: cpus,
            ..AccountingRow::default()
        }
    }

    /// Four CPUs for two hours, from 0.
    fn facts() -> Facts {
        Facts { cluster: "c".into(), cpus: 4, window: (0, 2 * HOUR), now: 3 * HOUR }
    }

    fn shown(kind: Kind, unit: Unit, words: &str) -> String {
        let rows = [
            row("phys", "nobody1", -60, Some(60), 2),
            row("phys", "nobody2", HOUR, None, 1),
            row("", "nobody1", 5 * HOUR, None, 1),
            row("chem", "nobody1", 600, Some(1200), 4),
        ];
        let settings = Settings { unit, no_header: true, parsable: Some(false) };
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        facts().report(kind, &settings, &conditions(&words).unwrap(), &rows).unwrap()
    }

    #[test]
    fn time_in_the_window_counts() {
        // 2 minutes, 60 minutes and 40 minutes of 480.
        assert_eq!(shown(Kind::Utilization, Unit::Minutes, ""), "c|102|0|0|378|0|480\n");
        assert_eq!(shown(Kind::Utilization, Unit::Percent, "format=allocated"), "21.25%\n");
        assert_eq!(
            shown(Kind::AccountByUser, Unit::Minutes, "format=account,login,used"),
            "chem||40\nchem|nobody1|40\nphys||62\nphys|nobody1|2\nphys|nobody2|60\n"
        );
        assert_eq!(
            shown(Kind::TopUsage, Unit::Seconds, "topcount=2 format=login,account,used"),
            "nobody2|phys|3600\nnobody1|chem|2400\n"
        );
        assert_eq!(
            shown(Kind::UserByAccount, Unit::Hours, "format=login,account,used"),
            "nobody1|chem|0\nnobody1|phys|0\nnobody2|phys|1\n"
        );
    }

    #[test]
    fn reports_may_be_cut() {
        assert_eq!(Kind::named("cluster", "util"), Ok(Kind::Utilization));
        assert_eq!(Kind::named("Cluster", "accountutil"), Ok(Kind::AccountByUser));
        assert_eq!(Kind::named("user", "top"), Ok(Kind::TopUsage));
        assert!(Kind::named("cluster", "foo").unwrap_err().0.contains("Valid cluster reports are"));
        assert!(Kind::named("foo", "bar").is_err());
    }

    #[test]
    fn the_window_is_yesterday_in_whole_hours() {
        // 2026-11-20T12:11:37 UTC.
        let now = 1_795_176_697;
        let midnight = now - (12 * HOUR + 11 * 60 + 37);
        let window = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            conditions(&words).unwrap().window(&TimeZone::UTC, now)
        };
        assert_eq!(window("").unwrap(), (midnight - 24 * HOUR, midnight));
        assert_eq!(window("start=2026-11-20 end=now").unwrap(), (midnight, midnight + 12 * HOUR));
        assert!(window("start=now end=now").is_err());
    }
}
