//! The command `sshare`: lists shares and usage of associations and their fair-share factors.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};
use spur_core::text::tres::{Tres, TresKind};
use spur_proto::client::{CallError, Controller};
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{AssociationRecord, ListAccountsRequest, UsageRecord};

use super::clusters;
use super::listing::{self, Common, Listing};
use super::query;
use crate::commands::called;
use crate::error::Failure;
use crate::format::json::value::{number, unlimited};
use crate::format::report::{Column, Layout, Report};
use crate::format::{Show, json as shape};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;

/// Values of the options.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    common: Common,
    format: Option<String>,
    accounts: Vec<String>,
    users: Vec<String>,
    all: bool,
    only_users: bool,
    long: bool,
    partition: bool,
    no_header: bool,
    parsable: Option<bool>,
    help_format: bool,
    verbose: bool,
}

impl Listing for Settings {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

type SettingsOpt = Opt<Settings>;

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::value("accounts", Some('A'), "NAMES", "only these accounts", |settings, text| {
        settings.accounts = query::list(text);
        Ok(())
    }),
    SettingsOpt::flag("all", Some('a'), "all users", |settings, _| {
        settings.all = true;
        Ok(())
    }),
    listing::clusters(),
    SettingsOpt::value("format", Some('o'), "FIELDS", "columns as name[%[-]width],…", |settings, text| {
        settings.format = Some(text.to_owned());
        Ok(())
    }),
    SettingsOpt::flag("helpformat", Some('e'), "list the fields there are", |settings, _| {
        settings.help_format = true;
        Ok(())
    }),
    listing::json(),
    SettingsOpt::flag("long", Some('l'), "more columns", |settings, _| {
        settings.long = true;
        Ok(())
    }),
    SettingsOpt::flag("noheader", Some('h'), "no header", |settings, _| {
        settings.no_header = true;
        Ok(())
    }),
    SettingsOpt::flag("no-header", Some('n'), "no header", |settings, _| {
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
    SettingsOpt::flag("partition", Some('m'), "with partitions", |settings, _| {
        settings.partition = true;
        Ok(())
    }),
    SettingsOpt::value("users", Some('u'), "NAMES", "only these users", |settings, text| {
        settings.users = query::list(text);
        Ok(())
    })
    .or(&["uid"]),
    SettingsOpt::flag("Users", Some('U'), "only users, no accounts", |settings, _| {
        settings.only_users = true;
        Ok(())
    }),
    SettingsOpt::flag("verbose", Some('v'), "display more information", |settings, _| {
        settings.verbose = true;
        Ok(())
    }),
    listing::yaml(),
];

/// Command line of `sshare`.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sshare",
    synopsis: "[OPTION]",
    about: "Shows the shares of accounts and users, what they have used, and their places in fair share.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SLURM_CLUSTERS"],
    permute: true,
};

/// An association with its usage.
struct Share {
    cluster: String,
    own: AssociationRecord,
    usage: UsageRecord,
}

impl Share {
    fn is_root(&self) -> bool {
        self.own.user.is_empty() && self.own.parent.is_empty()
    }

    /// Returns a limit of the association itself; empty if it is not set.
    fn limit(&self, name: &str) -> &str {
        self.own.own_limits.iter().find(|limit| limit.name == name).map_or("", |limit| &limit.value)
    }
}

/// Resources that Slurm always lists, in its order.
const ALWAYS: [&str; 8] = ["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"];

/// Returns the amounts of resources in minutes, those of Slurm's list first.
fn minutes(seconds: &str) -> Vec<(String, u64)> {
    let tres: Tres = seconds.parse().unwrap_or_default();
    let counts: BTreeMap<String, u64> =
        tres.0.iter().map(|(kind, count)| (kind.to_string(), count / 60)).collect();
    let always = ALWAYS.iter().map(|name| ((*name).to_owned(), counts.get(*name).copied().unwrap_or(0)));
    let others = counts.iter().filter(|(name, _)| !ALWAYS.contains(&name.as_str()));
    always.chain(others.map(|(name, count)| (name.clone(), *count))).collect()
}

fn in_minutes(seconds: &str) -> String {
    let all = minutes(seconds).into_iter().map(|(name, count)| format!("{name}={count}"));
    all.collect::<Vec<_>>().join(",")
}

fn real(number: f64) -> String {
    if number.is_infinite() { "inf".to_owned() } else { format!("{number:.6}") }
}

const fn field(name: &'static str, width: isize, text: fn(&Share, &Show) -> String) -> Column<Share> {
    Column { name, header: name, width, text }
}

const FIELDS: [Column<Share>; 15] = [
    field("Account", -20, |row, _| format!("{}{}", " ".repeat(row.own.depth as usize), row.own.account)),
    field("Cluster", 10, |row, _| row.cluster.clone()),
    field("EffectvUsage", 13, |row, _| real(row.usage.effective_usage)),
    field("FairShare", 10, |row, _| row.usage.factor.map(real).unwrap_or_default()),
    field("GrpTRESMins", 30, |row, _| row.limit("GrpTRESMins").to_owned()),
    field("GrpTRESRaw", 30, |row, _| in_minutes(&row.usage.tres_seconds)),
    field("ID", 6, |row, _| row.own.id.to_string()),
    field("LevelFS", 10, |row, _| match row.own.shares.as_str() {
        // In classic fair share, `root` has a factor, and Slurm prints a level for it.
        _ if row.is_root() && row.usage.factor.is_none() => String::new(),
        "parent" => String::new(),
        _ => real(row.usage.level.unwrap_or(0.0)),
    }),
    field("NormShares", 11, |row, _| real(row.usage.norm_shares)),
    field("NormUsage", 11, |row, _| if row.is_root() { String::new() } else { real(row.usage.norm_usage) }),
    field("Partition", 12, |row, _| row.own.partition.clone()),
    field("RawShares", 10, |row, _| if row.is_root() { String::new() } else { row.own.shares.clone() }),
    field("RawUsage", 11, |row, _| format!("{}", row.usage.raw.trunc())),
    field("TRESRunMins", 30, |row, _| in_minutes(&row.usage.tres_run_seconds)),
    field("User", 10, |row, _| row.own.user.clone()),
];

/// Runs `sshare`.
///
/// # Errors
/// An unknown field, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut settings)? else {
        return Ok(0);
    };
    query::no_operands(operands.into_iter())?;
    if settings.common.wish.is_some_and(|wish| wish.list) {
        write!(session.out, "{}", shape::Wish::list())?;
        return Ok(0);
    }
    if settings.help_format {
        for fields in FIELDS.chunks(4) {
            let line: String = fields.iter().map(|field| format!("{:<17} ", field.name)).collect();
            writeln!(session.out, "{}", line.trim_end())?;
        }
        return Ok(0);
    }
    clusters::only(session, &settings.common.clusters).await?;
    let mut show = query::show(&|name| session.env(name))?;
    query::identify(session, &mut show).await?;
    if settings.verbose {
        settings.requested(&caller()).iter().for_each(|line| session.say(line));
    }
    let rows = rows(session, &settings, &show.cluster).await?;
    write!(session.out, "{}", settings.text(&rows, &show)?)?;
    Ok(0)
}

/// Returns the output of `sshare` for a user. `list` returns the records, without a controller.
///
/// # Errors
/// Fails for invalid options, for an unknown field, or if `list` refuses.
pub(crate) fn offline(
    words: &[String],
    cluster: &str,
    user: &str,
    show: &Show,
    list: impl Fn(&ListAccountsRequest) -> Result<Vec<Record>, String>,
) -> anyhow::Result<String> {
    let mut settings = Settings::default();
    let operands = match LINE.settle(words, &|_| None, &mut settings)? {
        Settled::Show(text) => return Ok(text),
        Settled::Run(operands) => operands,
    };
    query::no_operands(operands.into_iter())?;
    let records = list(&settings.request()).map_err(Failure::new)?;
    settings.text(&settings.shares(records, cluster, user), show)
}

/// Returns the rows of the selected associations.
async fn rows(session: &mut Session, settings: &Settings, cluster: &str) -> anyhow::Result<Vec<Share>> {
    let call = async |mut controller: Controller, request| controller.list_accounts(request).await;
    let pages = session.connection()?.list(settings.request(), call).await.map_err(|error| match error {
        CallError::Refused { message, .. } => anyhow::Error::from(Failure::new(message)),
        error => error.into(),
    })?;
    let records = pages.into_iter().flat_map(|page| page.rows).filter_map(|row| row.row).collect();
    Ok(settings.shares(records, cluster, &caller()))
}

/// Returns the name of the user who runs the command; empty if the host does not know the user.
fn caller() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    user.map(|user| user.name).unwrap_or_default()
}

impl Settings {
    /// Returns the lines of `-v`: the users and accounts that the list is of.
    fn requested(&self, user: &str) -> Vec<String> {
        let users = match (self.users.as_slice(), self.all) {
            ([], true) => vec!["all".to_owned()],
            ([], false) => vec![user.to_owned()],
            (names, _) => names.to_vec(),
        };
        let accounts = if self.accounts.is_empty() { vec!["all".to_owned()] } else { self.accounts.clone() };
        let list = |title: &str, names: Vec<String>| {
            let names = names.into_iter().map(|name| format!("\t: {name}"));
            std::iter::once(title.to_owned()).chain(names).collect::<Vec<_>>()
        };
        [list("Users requested:", users), list("Accounts requested:", accounts)].concat()
    }

    fn request(&self) -> ListAccountsRequest {
        let accounts = match self.accounts.as_slice() {
            [] => Vec::new(),
            names => vec![format!("Accounts={}", names.join(","))],
        };
        ListAccountsRequest {
            entity: "association".to_owned(),
            conditions: accounts,
            with_usage: true,
            ..ListAccountsRequest::default()
        }
    }

    /// Returns the rows for the accounts and the selected users in these records. The default selection is
    /// `user`.
    fn shares(&self, records: Vec<Record>, cluster: &str, user: &str) -> Vec<Share> {
        let mut users = self.users.clone();
        if users.is_empty() && !self.all {
            users.push(user.to_owned());
        }
        let is_shown = |own: &AssociationRecord| match own.user.as_str() {
            "" => !self.only_users,
            _ if self.all && self.users.is_empty() => true,
            user => users.iter().any(|name| name == user),
        };
        let records = records.into_iter().filter_map(|record| match record {
            Record::Association(own) if is_shown(&own) => Some(own),
            _ => None,
        });
        let mut records = records.peekable();
        // Slurm indents from the first association that is listed.
        let first = records.peek().map_or(0, |own: &AssociationRecord| own.depth);
        let share = |mut own: AssociationRecord| {
            own.depth = own.depth.saturating_sub(first);
            let usage = own.usage.take().unwrap_or_default();
            Share { cluster: cluster.to_owned(), own, usage }
        };
        records.map(share).collect()
    }
}

impl Settings {
    fn text(&self, rows: &[Share], show: &Show) -> anyhow::Result<String> {
        if let Some(wish) = self.common.wish {
            if wish.spur {
                let records: Vec<_> = rows.iter().map(|row| (&row.own, &row.usage)).collect();
                return Ok(wish.own([("shares", shape::to_value(records))]));
            }
            let shares: Vec<Value> = rows.iter().map(as_json).collect();
            let whole = json!({ "total_shares": shares.len(), "shares": shares });
            return Ok(wish.slurm(show, [("shares", whole.into())]));
        }
        let partition = if self.partition { "partition," } else { "" };
        let is_classic = !rows.is_empty() && rows.iter().all(|row| row.usage.level.is_none());
        let middle = match self.long {
            true if is_classic => "normusage,effectvusage,fairshare,grptresmins,tresrunmins",
            true => "normusage,effectvusage,fairshare,levelfs,grptresmins,tresrunmins",
            false => "effectvusage,fairshare",
        };
        let shown = format!("account,user,{partition}rawshares,normshares,rawusage,{middle}");
        let report = Report::of(&FIELDS, self.format.as_deref().unwrap_or(&shown))?;
        let layout = match self.parsable {
            None => Layout::Columns,
            Some(closed) => Layout::Delimited { delimiter: "|".to_owned(), closed },
        };
        Ok(report.render(rows, &layout, !self.no_header, show))
    }
}

/// Returns a share in the shape of Slurm's data parser.
fn as_json(row: &Share) -> Value {
    let (own, usage) = (&row.own, &row.usage);
    let is_user = !own.user.is_empty();
    let each = |text: &str, scale: u64| -> Value {
        let tres: Tres = text.parse().unwrap_or_default();
        let one = |(kind, count): (&TresKind, &u64)| json!({ "name": kind.to_string(), "value": number(Some(count / scale)) });
        tres.0.iter().map(one).collect()
    };
    let plain: Tres = usage.tres_seconds.parse().unwrap_or_default();
    let used: Value =
        plain.0.iter().map(|(kind, count)| json!({ "name": kind.to_string(), "value": count })).collect();
    json!({
        "id": own.id,
        "cluster": row.cluster,
        "name": if is_user { &own.user } else { &own.account },
        "parent": if is_user { &own.account } else { &own.parent },
        "partition": own.partition,
        "shares_normalized": number(Some(usage.norm_shares)),
        "shares": number(own.shares.parse::<u32>().ok().filter(|_| !row.is_root())),
        "tres": {
            "run_seconds": each(&usage.tres_run_seconds, 1),
            "group_minutes": each(row.limit("GrpTRESMins"), 1),
            "usage": used,
        },
        "effective_usage": number(Some(usage.effective_usage)),
        "usage_normalized": number(Some(usage.norm_usage)),
        "usage": usage.raw.trunc(),
        "fairshare": {
            "factor": number(usage.factor),
            "level": unlimited(usage.level.filter(|level| level.is_finite())),
        },
        "type": [if is_user { "USER" } else { "ASSOCIATION" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Share> {
        let share = |account: &str, user: &str, depth, usage| Share {
            cluster: "c".to_owned(),
            own: AssociationRecord {
                account: account.to_owned(),
                user: user.to_owned(),
                parent: if account == "root" || !user.is_empty() { "" } else { "root" }.to_owned(),
                depth,
                shares: "60".to_owned(),
                ..AssociationRecord::default()
            },
            usage,
        };
        let root = UsageRecord { raw: 75.4, effective_usage: 1.0, ..UsageRecord::default() };
        let user = UsageRecord {
            raw: 75.4,
            norm_shares: 0.25,
            norm_usage: 1.0,
            effective_usage: 1.0,
            level: Some(f64::INFINITY),
            factor: Some(0.5),
            tres_seconds: "cpu=120,billing=120".to_owned(),
            tres_run_seconds: "cpu=600,gres/gpu=60,billing=600".to_owned(),
        };
        vec![share("root", "", 0, root), share("sci", "anna", 2, user)]
    }

    #[test]
    fn columns_are_slurms() {
        let show = query::show(&|_| None).unwrap();
        let text = Settings::default().text(&rows(), &show).unwrap();
        let expected = [
            "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare ",
            "-------------------- ---------- ---------- ----------- ----------- ------------- ---------- ",
            "root                                          0.000000          75      1.000000            ",
            "  sci                      anna         60    0.250000          75      1.000000   0.500000 ",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        let long = Settings {
            parsable: Some(false),
            no_header: true,
            format: Some("user,levelfs,tresrunmins,grptresraw".into()),
            ..Settings::default()
        };
        let long = long.text(&rows()[1..], &show).unwrap();
        assert_eq!(
            long,
            "anna|inf|cpu=10,mem=0,energy=0,node=0,billing=10,fs/disk=0,vmem=0,pages=0,gres/gpu=1\
             |cpu=2,mem=0,energy=0,node=0,billing=2,fs/disk=0,vmem=0,pages=0\n"
        );
        // The level of `root` is blank in Fair Tree, in which accounts have no factor.
        let level = Settings {
            parsable: Some(false),
            no_header: true,
            format: Some("account,levelfs".into()),
            ..Settings::default()
        };
        assert_eq!(level.text(&rows()[..1], &show).unwrap(), "root|\n");
        let mut classic = rows();
        classic[0].usage.factor = Some(0.5);
        assert_eq!(level.text(&classic[..1], &show).unwrap(), "root|0.000000\n");
        let bare = Settings { no_header: true, parsable: Some(false), ..Settings::default() };
        assert_eq!(bare.text(&[], &show).unwrap(), "");
        let wrong = Settings { format: Some("foo".into()), ..Settings::default() };
        assert!(
            wrong.text(&[], &show).unwrap_err().to_string().starts_with("Invalid field requested: \"foo\"")
        );
    }
}
