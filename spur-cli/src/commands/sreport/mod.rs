//! The command `sreport`: reports usage by cluster, account and user, computed from the jobs in accounting.

mod amount;
mod columns;
mod sizes;
mod used;

use std::collections::BTreeMap;
use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spur_core::text::time::When;
use spur_core::text::tres::{Tres, TresKind};
use spur_proto::client::Controller;
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{AccountingRow, ListAccountingRequest, ListAccountsRequest, Reservation};

use amount::{Unit, held};
use columns::{RESERVED, Reserved, USED, UTILIZATION, Utilization, widened};
use sizes::{By, Sizes};

use super::moment::past_moment;
use super::query;
use crate::commands::called;
use crate::error::{Bare, Failure};
use crate::format::Show;
use crate::format::report::{Layout, Report, ReportError};
use crate::format::value::time;
use crate::options::{CommandLine, Opt};
use crate::session::Session;
use crate::zone;

/// Seconds in an hour, the resolution of periods in Slurm's database.
const HOUR: i64 = 3600;
const RULE: &str = "--------------------------------------------------------------------------------";

/// Values of the options.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    unit: Unit,
    /// `-T`: names of resources; empty for CPUs alone.
    tres: Vec<String>,
    no_header: bool,
    parsable: Option<bool>,
}

type SettingsOpt = Opt<Settings>;

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::flag("all_clusters", Some('a'), "all clusters", |_, _| Ok(()))
        .without_effect("a report is of one cluster"),
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
    SettingsOpt::value(
        "tres",
        Some('T'),
        "NAMES",
        "of which resources, or ALL: cpu,mem,gres/gpu",
        |settings, text| {
            settings.tres = query::list(text);
            Ok(())
        },
    ),
    SettingsOpt::value(
        "t",
        Some('t'),
        "UNIT",
        "Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer",
        |settings, text| {
            settings.unit = Unit::named(text).ok_or_else(|| format!("unknown time format {text}"))?;
            Ok(())
        },
    ),
    SettingsOpt::flag("verbose", Some('v'), "say more", |_, _| Ok(()))
        .without_effect("there is nothing more to say"),
];

/// Text of the help after the options.
const COMMANDS: &str = "    Valid <COMMAND> values are:
     cluster <REPORT> [<CONDITIONS>]      Utilization, AccountUtilizationByUser, UserUtilizationByAccount,
                                          UserUtilizationByWckey or WCKeyUtilizationByUser
     job <REPORT> [<CONDITIONS>]          SizesByAccount, SizesByAccountAndWcKey or SizesByWckey
     reservation <REPORT> [<CONDITIONS>]  Utilization
     user <REPORT> [<CONDITIONS>]         TopUsage

  <CONDITIONS> are words such as Start=TIME, End=TIME, Accounts=NAMES, Users=NAMES or Format=FIELDS.
  A report is of the time from midnight of yesterday to midnight of today, unless Start or End is given.
";

/// Command line of `sreport`.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sreport",
    synopsis: "[<OPTION>] [<COMMAND>]",
    about: COMMANDS,
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Kinds of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Utilization,
    AccountByUser,
    UserByAccount,
    UserByWcKey,
    WcKeyByUser,
    TopUsage,
    Sizes(By),
    Reservations,
}

/// Reports by name.
type Reports = &'static [(&'static str, Kind)];

/// Reports by subject, with the names that errors list.
const KINDS: [(&str, Reports); 4] = [
    (
        "cluster",
        &[
            ("AccountUtilizationByUser", Kind::AccountByUser),
            ("UserUtilizationByAccount", Kind::UserByAccount),
            ("UserUtilizationByWckey", Kind::UserByWcKey),
            ("Utilization", Kind::Utilization),
            ("WCKeyUtilizationByUser", Kind::WcKeyByUser),
        ],
    ),
    ("user", &[("TopUsage", Kind::TopUsage)]),
    (
        "job",
        &[
            ("SizesByAccount", Kind::Sizes(By::Account)),
            ("SizesByAccountAndWcKey", Kind::Sizes(By::AccountAndWcKey)),
            ("SizesByWckey", Kind::Sizes(By::WcKey)),
        ],
    ),
    ("reservation", &[("Utilization", Kind::Reservations)]),
];

/// Returns the full name of a subject that `of` abbreviates, and its reports.
fn reports_of(of: &str) -> Result<(&'static str, Reports), Bare> {
    let begins = |kind: &str| of.len() >= 2 && kind.starts_with(&of.to_ascii_lowercase());
    let found = KINDS.iter().find(|(kind, _)| begins(kind));
    found.copied().ok_or_else(|| Bare(format!("invalid keyword: {of}")))
}

impl Kind {
    fn named(of: &str, name: &str) -> Result<Kind, Bare> {
        let begins = |whole: &str| {
            name.len() >= 2 && whole.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase())
        };
        let (of, known) = reports_of(of)?;
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
            Kind::UserByWcKey => "Cluster/User/WCKey Utilization",
            Kind::WcKeyByUser => "Cluster/WCKey/User Utilization",
            Kind::TopUsage => "Top 10 Users",
            Kind::Sizes(_) => "Job Sizes",
            Kind::Reservations => "Reservation Utilization",
        }
    }

    /// Returns the columns; `named` selects those with the names of resources.
    fn shown(self, named: bool) -> &'static str {
        match (self, named) {
            (Kind::Utilization, false) => "cluster,allocated,down,planneddown,idle,reserved,reported",
            (Kind::Utilization, true) => "cluster,tresname,allocated,down,planneddown,idle,reserved,reported",
            (Kind::AccountByUser, false) => "cluster,account,login,proper,used,energy",
            (Kind::AccountByUser, true) => "cluster,account,login,proper,tresname,used",
            (Kind::UserByAccount | Kind::TopUsage, false) => "cluster,login,proper,account,used,energy",
            (Kind::UserByAccount | Kind::TopUsage, true) => "cluster,login,proper,account,tresname,used",
            (Kind::UserByWcKey, false) => "cluster,login,proper,wckey,used",
            (Kind::UserByWcKey, true) => "cluster,login,proper,wckey,tresname,used",
            (Kind::WcKeyByUser, false) => "cluster,wckey,login,proper,used",
            (Kind::WcKeyByUser, true) => "cluster,wckey,login,proper,tresname,used",
            (Kind::Sizes(_) | Kind::Reservations, _) => "cluster,name,start,end,tresname,allocated,idle",
        }
    }
}

/// Conditions after the report: its period and its selection.
#[derive(Debug, Default)]
struct Conditions {
    start: Option<When>,
    end: Option<When>,
    format: Option<String>,
    users: Vec<String>,
    accounts: Vec<String>,
    names: Vec<String>,
    wckeys: Vec<String>,
    top: Option<usize>,
    /// Lower bounds of the groups of sizes, ascending.
    grouping: Vec<u64>,
    tree: bool,
    flat: bool,
    counts: bool,
    as_parent: bool,
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
            "names" | "name" => found.names.extend(query::list(value)),
            "wckeys" | "wckey" => found.wckeys.extend(query::list(value)),
            "topcount" => {
                let count = value.parse().map_err(|_| Failure::new(format!("{word}: not a number")))?;
                found.top = Some(count);
            }
            "grouping" => found.grouping = grouping(value).map_err(Failure::new)?,
            "tree" => found.tree = true,
            "flatview" => found.flat = true,
            "printjobcount" => found.counts = true,
            "acctasparent" => found.as_parent = true,
            "cluster" | "clusters" | "all_clusters" | "where" | "group" => {}
            _ => return Err(Failure::new(format!("Unknown condition: {word}"))),
        }
    }
    Ok(found)
}

/// Parses `Grouping=`: ascending lower bounds of groups.
fn grouping(text: &str) -> Result<Vec<u64>, String> {
    let sizes: Option<Vec<u64>> = query::list(text).iter().map(|size| size.parse().ok()).collect();
    sizes
        .filter(|sizes| !sizes.is_empty() && sizes[0] > 0 && sizes.is_sorted_by(|a, b| a < b))
        .ok_or_else(|| format!("Grouping={text}: write numbers of CPUs that rise, e.g. Grouping=8,64"))
}

impl Conditions {
    /// Returns the period in whole hours, by default yesterday. As in Slurm, both ends are rounded to the
    /// nearest hour, and an empty period is extended to an hour.
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
        let end = point(self.end.as_ref(), "midnight")?;
        let whole = |at: i64| (at + HOUR / 2).div_euclid(HOUR) * HOUR;
        let (start, end) = (whole(start), whole(end));
        Ok((start, if end > start { end } else { start + HOUR }))
    }
}

/// Runs `sreport`.
///
/// # Errors
/// An unknown report, an invalid time, or no answer.
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
        reports_of(of)?;
        return Err(Bare(format!("too few arguments for keyword:{of}")).into());
    };
    let kind = Kind::named(of, name)?;
    let asked = conditions(rest)?;
    let zone = zone::local();
    let now = Timestamp::now().as_second();
    let window = asked.window(&zone, now)?;
    let cluster = query::cluster_name(session).await?;
    let all = amount::all(&query::nodes(session.connection()?, "").await?);
    let tres = settings.kinds(&all)?;
    let accounts = accounts(session).await?;
    let show = query::show(&|_| None)?;
    let rows = rows(session, &asked, matches!(kind, Kind::Sizes(_)), window, &show).await?;
    let facts = Facts { cluster, all, tres, accounts, window, now, show };
    let reservations = match kind {
        Kind::Reservations => query::reservations(session.connection()?).await?,
        _ => Vec::new(),
    };
    let text = facts.report(kind, &settings, &asked, &rows, &reservations)?;
    write!(session.out, "{text}")?;
    Ok(0)
}

impl Settings {
    /// Returns the resources in the report. Fails if `-T` names no resource of the cluster.
    fn kinds(&self, all: &Tres) -> Result<Vec<TresKind>, Bare> {
        if self.tres.is_empty() {
            return Ok(vec![TresKind::Cpu]);
        }
        if self.tres.iter().any(|name| name.eq_ignore_ascii_case("all")) {
            return Ok(all.0.keys().filter(|kind| **kind != TresKind::Node).cloned().collect());
        }
        let read = self.tres.iter().map(|name| name.to_lowercase().parse::<TresKind>());
        let kinds: Vec<TresKind> =
            read.filter_map(Result::ok).filter(|kind| all.0.contains_key(kind)).collect();
        if kinds.is_empty() { Err(Bare("sreport: fatal: No valid TRES given".to_owned())) } else { Ok(kinds) }
    }

    fn layout(&self) -> Layout {
        match self.parsable {
            None => Layout::Columns,
            Some(closed) => Layout::Delimited { delimiter: "|".to_owned(), closed },
        }
    }
}

/// An account of the policy tree.
#[derive(Clone, Debug)]
struct AccountNode {
    name: String,
    parent: String,
    depth: usize,
}

/// Returns the accounts of the policy tree, each after its parent.
async fn accounts(session: &mut Session) -> anyhow::Result<Vec<AccountNode>> {
    let request = ListAccountsRequest { entity: "association".to_owned(), ..ListAccountsRequest::default() };
    let call = async |mut controller: Controller, request| controller.list_accounts(request).await;
    let pages = session.connection()?.list(request, call).await?;
    let rows = pages.into_iter().flat_map(|page| page.rows).filter_map(|row| match row.row {
        Some(Record::Association(own)) if own.user.is_empty() => {
            Some(AccountNode { name: own.account, parent: own.parent, depth: own.depth as usize })
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// Returns the jobs that ran in the period. With `sized`, an account also selects those below it.
async fn rows(
    session: &mut Session,
    asked: &Conditions,
    sized: bool,
    (start, end): (i64, i64),
    show: &Show,
) -> anyhow::Result<Vec<AccountingRow>> {
    let request = ListAccountingRequest {
        start: Some(start),
        end: Some(end),
        all_users: asked.users.is_empty(),
        users: asked.users.clone(),
        accounts: if sized { Vec::new() } else { asked.accounts.clone() },
        allocations_only: true,
        usage: true,
        ..ListAccountingRequest::default()
    };
    let call = async |mut controller: Controller, request| controller.list_accounting(request).await;
    let pages = session.connection()?.list(request, call).await?;
    if pages.iter().any(|page| page.only_own) {
        session.warn(
            "not all jobs are counted: private_data of this cluster hides the usage of others from you",
        );
    }
    query::warn_of_purge(session, pages.iter().find_map(|page| page.complete_from), show);
    let mut rows: Vec<AccountingRow> = pages.into_iter().flat_map(|page| page.rows).collect();
    let is_of = |row: &AccountingRow| asked.wckeys.is_empty() || asked.wckeys.contains(&row.wckey);
    rows.retain(|row| row.step_id.is_empty() && is_of(row));
    Ok(rows)
}

/// Data of a report.
struct Facts {
    cluster: String,
    /// Resources of the cluster.
    all: Tres,
    /// Resources in the report.
    tres: Vec<TresKind>,
    accounts: Vec<AccountNode>,
    window: (i64, i64),
    now: i64,
    show: Show,
}

/// Returns the heading of a report.
fn heading(title: &str, facts: &Facts, with_span: bool, counted: &str) -> String {
    let (start, end) = facts.window;
    let at = |at| time(Some(at), "", &facts.show);
    let span = if with_span { format!(" ({} secs)", end - start) } else { String::new() };
    format!("{RULE}\n{title} {} - {}{span}\n{counted}\n{RULE}\n", at(start), at(end - 1))
}

impl Facts {
    fn report(
        &self,
        kind: Kind,
        settings: &Settings,
        asked: &Conditions,
        rows: &[AccountingRow],
        reservations: &[Reservation],
    ) -> anyhow::Result<String> {
        if let Kind::Sizes(by) = kind {
            let groups = if asked.grouping.is_empty() { &sizes::GROUPS[..] } else { &asked.grouping };
            let tops = (!asked.flat).then(|| self.tops(asked));
            return Ok(Sizes { by, groups, counts: asked.counts, tops }.text(self, settings, rows));
        }
        let named = !settings.tres.is_empty();
        let format = asked.format.as_deref().unwrap_or_else(|| kind.shown(named));
        let (layout, unit) = (settings.layout(), settings.unit);
        let show = &self.show;
        let wrong = |error| match error {
            ReportError::Field { name, .. } => anyhow::Error::from(Bare(format!(" Unknown field '{name}'"))),
            error @ ReportError::Width(_) => error.into(),
        };
        let header = !settings.no_header;
        let body = match kind {
            Kind::Utilization => {
                let report = Report::of(&widened(&UTILIZATION, unit), format).map_err(wrong)?;
                report.render(&self.utilization(unit, rows), &layout, header, show)
            }
            Kind::Reservations => {
                let report = Report::of(&widened(&RESERVED, unit), format).map_err(wrong)?;
                report.render(&self.reserved(settings, asked, rows, reservations), &layout, header, show)
            }
            _ => {
                let mut columns = widened(&USED, unit);
                if asked.tree {
                    columns[1].width = -20;
                }
                let report = Report::of(&columns, format).map_err(wrong)?;
                report.render(&self.used(kind, unit, asked, rows), &layout, header, show)
            }
        };
        if !header {
            return Ok(body);
        }
        let counted = if named || kind == Kind::Reservations { "TRES " } else { "CPU " };
        let with_span = !matches!(kind, Kind::Utilization | Kind::Reservations);
        let counted = format!("Usage reported in {}", unit.heading(counted));
        Ok(heading(kind.title(), self, with_span, &counted) + &body)
    }

    /// Returns for each account the account whose line includes it in reports of sizes. This is the nearest
    /// named ancestor or `root`; with `AcctAsParent` it is the account directly below that.
    fn tops(&self, asked: &Conditions) -> BTreeMap<String, String> {
        let is_named = |name: &str| match asked.accounts.as_slice() {
            [] => name == "root",
            named => named.iter().any(|account| account == name),
        };
        let mut tops: BTreeMap<String, String> = BTreeMap::new();
        for account in &self.accounts {
            let own = if asked.as_parent { is_named(&account.parent) } else { is_named(&account.name) };
            let top = if own { Some(account.name.clone()) } else { tops.get(&account.parent).cloned() };
            tops.extend(top.map(|top| (account.name.clone(), top)));
        }
        tops
    }

    /// Returns the seconds of a job in the period, without suspensions.
    fn span(&self, row: &AccountingRow) -> u64 {
        let (start, end) = self.window;
        let Some(from) = row.start_time else { return 0 };
        let until = row.end_time.unwrap_or(self.now);
        let whole = u64::try_from(until - from).unwrap_or(0);
        let span = u64::try_from(until.min(end) - from.max(start)).unwrap_or(0);
        // The times of suspensions are unknown, so their sum is spread evenly over the run.
        let idle = u128::from(row.suspended_secs.min(whole)) * u128::from(span);
        span - u64::try_from(idle.checked_div(u128::from(whole)).unwrap_or(0)).unwrap_or(0)
    }

    fn seconds(&self, row: &AccountingRow, kind: &TresKind) -> u128 {
        u128::from(self.span(row)) * u128::from(held(row, kind))
    }

    /// Returns the capacity of a resource in the period, in seconds.
    fn total(&self, kind: &TresKind) -> u128 {
        let (start, end) = self.window;
        u128::from(self.all.get(kind)) * u128::try_from(end - start).unwrap_or(0)
    }

    fn utilization(&self, unit: Unit, rows: &[AccountingRow]) -> Vec<Utilization> {
        let one = |kind: &TresKind| {
            let allocated = rows.iter().map(|row| self.seconds(row, kind)).sum::<u128>();
            let total = self.total(kind);
            Utilization {
                cluster: self.cluster.clone(),
                tres: kind.to_string(),
                allocated: unit.text(allocated, total),
                none: unit.text(0, total),
                idle: unit.text(total.saturating_sub(allocated), total),
                reported: unit.text(total, total),
            }
        };
        self.tres.iter().map(one).collect()
    }

    /// Returns the resources of existing reservations within the period.
    fn reserved(
        &self,
        settings: &Settings,
        asked: &Conditions,
        rows: &[AccountingRow],
        reservations: &[Reservation],
    ) -> Vec<Reserved> {
        let (start, end) = self.window;
        let mut all = Vec::new();
        for kept in reservations {
            let (from, until) = (kept.start_time.max(start), kept.end_time.min(end));
            let is_asked = asked.names.is_empty() || asked.names.contains(&kept.name);
            if from >= until || !is_asked {
                continue;
            }
            let tres: Tres = kept.tres.parse().unwrap_or_default();
            let kinds: Vec<&TresKind> = match settings.tres.as_slice() {
                [] => tres.0.keys().collect(),
                _ => self.tres.iter().collect(),
            };
            for kind in kinds {
                let total = u128::from(tres.get(kind)) * u128::try_from(until - from).unwrap_or(0);
                let jobs = rows.iter().filter(|row| row.reservation == kept.name);
                let allocated = jobs.map(|row| self.seconds(row, kind)).sum::<u128>().min(total);
                all.push(Reserved {
                    cluster: self.cluster.clone(),
                    name: kept.name.clone(),
                    start: time(Some(kept.start_time), "", &self.show),
                    end: time(Some(kept.end_time), "", &self.show),
                    tres: kind.to_string(),
                    allocated: settings.unit.text(allocated, total),
                    idle: settings.unit.text(total - allocated, total),
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(account: &str, user: &str, start: i64, end: Option<i64>, cpus: u32) -> AccountingRow {
        AccountingRow {
            account: account.into(),
            user: user.into(),
            wckey: if account == "chem" { "k2".into() } else { "*k1".into() },
            start_time: Some(start),
            end_time: end,
            alloc_cpus: cpus,
            alloc_tres: format!("cpu={cpus},mem={cpus}G,billing={}", 2 * cpus),
            ..AccountingRow::default()
        }
    }

    /// Four CPUs for two hours, from time 0.
    fn facts() -> Facts {
        let node = |name: &str, parent: &str, depth| AccountNode {
            name: name.to_owned(),
            parent: parent.to_owned(),
            depth,
        };
        Facts {
            cluster: "c".into(),
            all: "cpu=4,mem=8G,billing=4".parse().unwrap(),
            tres: vec![TresKind::Cpu],
            accounts: vec![node("root", "", 0), node("sci", "root", 1), node("phys", "sci", 2)],
            window: (0, 2 * HOUR),
            now: 3 * HOUR,
            show: query::show(&|_| None).unwrap(),
        }
    }

    fn shown(kind: Kind, unit: Unit, words: &str) -> String {
        let rows = [
            row("phys", "nobody1", -60, Some(60), 2),
            row("phys", "nobody2", HOUR, None, 1),
            row("", "nobody1", 5 * HOUR, None, 1),
            row("chem", "nobody1", 600, Some(1200), 4),
        ];
        let (tres, words): (Vec<&str>, Vec<&str>) =
            words.split_whitespace().partition(|word| word.starts_with("-T"));
        let tres: Vec<String> = tres.iter().map(|word| word[2..].to_owned()).collect();
        let settings = Settings { unit, tres, no_header: true, parsable: Some(false) };
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut facts = facts();
        facts.tres = settings.kinds(&facts.all).unwrap();
        facts.report(kind, &settings, &conditions(&words).unwrap(), &rows, &[]).unwrap()
    }

    #[test]
    fn time_in_the_window_counts() {
        // 2 minutes, 60 minutes and 40 minutes of 480.
        assert_eq!(shown(Kind::Utilization, Unit::Minutes, ""), "c|102|0|0|378|0|480\n");
        assert_eq!(shown(Kind::Utilization, Unit::Percent, "format=allocated"), "21.25%\n");
        assert_eq!(
            shown(Kind::AccountByUser, Unit::Minutes, "format=account,login,used"),
            "root||62\nsci||62\nphys||62\nphys|nobody1|2\nphys|nobody2|60\nchem||40\nchem|nobody1|40\n"
        );
        assert_eq!(
            shown(
                Kind::AccountByUser,
                Unit::Minutes,
                "tree -Tbilling -Tmem format=account,login,tresname,used"
            ),
            "root||billing|124\nroot||mem|63488\n sci||billing|124\n sci||mem|63488\n  phys||billing|124\n  phys||mem|63488\n   \
             phys|nobody1|billing|4\n   phys|nobody1|mem|2048\n   phys|nobody2|billing|120\n   phys|nobody2|mem|61440\n\
             chem||billing|80\nchem||mem|40960\nchem|nobody1|billing|80\nchem|nobody1|mem|40960\n"
        );
        assert_eq!(
            shown(Kind::Utilization, Unit::HoursPercent, "-Tmem format=tresname,allocated"),
            "mem|1740(10.63%)\n"
        );
        assert_eq!(
            shown(Kind::TopUsage, Unit::Seconds, "topcount=2 format=login,account,used"),
            "nobody2|phys|3600\nnobody1|chem|2400\n"
        );
        assert_eq!(
            shown(Kind::UserByAccount, Unit::Hours, "format=login,account,used"),
            "nobody2|phys|1\nnobody1|chem|0\nnobody1|phys|0\n"
        );
        assert_eq!(
            shown(Kind::UserByWcKey, Unit::Seconds, ""),
            "c|nobody2||*k1|3600\nc|nobody1||k2|2400\nc|nobody1||*k1|120\n"
        );
        assert_eq!(
            shown(Kind::WcKeyByUser, Unit::Seconds, "-Tcpu -Tbilling"),
            "c|*k1|||cpu|3720\nc|*k1|||billing|7440\nc|*k1|nobody1||cpu|120\nc|*k1|nobody1||billing|240\n\
             c|*k1|nobody2||cpu|3600\nc|*k1|nobody2||billing|7200\nc|k2|||cpu|2400\nc|k2|||billing|4800\n\
             c|k2|nobody1||cpu|2400\nc|k2|nobody1||billing|4800\n"
        );
    }

    #[test]
    fn jobs_are_grouped_by_their_size() {
        let sizes = |words: &str| shown(Kind::Sizes(By::Account), Unit::Minutes, words);
        assert_eq!(sizes("grouping=2,4"), "c|root|60|2|40|100.00%\n");
        assert_eq!(sizes("grouping=2,4 accounts=sci"), "c|sci|60|2|0|100.00%\n");
        assert_eq!(
            sizes("grouping=2,4 printjobcount flatview"),
            "c|chem|0|0|1|39.22%\nc|phys|1|1|0|60.78%\n"
        );
        assert_eq!(sizes("grouping=4 accounts=sci acctasparent"), "c|phys|62|0|100.00%\n");
        assert!(conditions(&["grouping=4,2".to_owned()]).is_err());
    }

    #[test]
    fn reports_may_be_cut() {
        assert_eq!(Kind::named("cluster", "util"), Ok(Kind::Utilization));
        assert_eq!(Kind::named("Cluster", "accountutil"), Ok(Kind::AccountByUser));
        assert_eq!(Kind::named("user", "top"), Ok(Kind::TopUsage));
        assert!(Kind::named("cluster", "foo").unwrap_err().0.contains("Valid cluster reports are"));
        assert_eq!(Kind::named("reservation", "util"), Ok(Kind::Reservations));
        assert_eq!(Kind::named("job", "sizesbywckey"), Ok(Kind::Sizes(By::WcKey)));
        assert_eq!(Kind::named("cluster", "WCKeyUtil"), Ok(Kind::WcKeyByUser));
        assert_eq!(Kind::named("cluster", "UserUtilizationByWCKey"), Ok(Kind::UserByWcKey));
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
        // 12:11 is rounded to 12:00, and an empty period is extended to an hour.
        assert_eq!(window("start=now end=now").unwrap(), (midnight + 12 * HOUR, midnight + 13 * HOUR));
    }
}
