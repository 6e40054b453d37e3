//! `spur limits`: the limits that apply to a user or an account, each with the used and the remaining
//! amount.

use std::io::Write;

use serde_json::{Value, json};
use spur_core::text::memory::MemoryMb;
use spur_core::text::time::TimeLimit;
use spur_proto::v1::LimitRecord;
use spur_proto::v1::accounts_row::Row as Record;

use super::query;
use super::sacctmgr::records;
use crate::commands::called;
use crate::error::Failure;
use crate::format::json as shape;
use crate::options::{CommandLine, Opt, sets};
use crate::session::Session;

#[derive(Debug, Default)]
pub(super) struct Args {
    json: bool,
}

pub(super) const LINE: CommandLine<Args> = CommandLine {
    name: "spur limits",
    synopsis: "[--json] [USER|ACCOUNT]",
    about: "Lists every limit that applies to the jobs of a user or an account, with what is used of it now and what is \
            left; without a name, those that apply to the caller. Where a user and an account have the same name, the user \
            is meant.",
    options: &[Opt::flag("json", None, "print the limits as JSON", sets!(Args.json))],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// A column of the table, as wide as its longest text.
struct Column {
    name: &'static str,
    /// True to align texts to the left, false to the right.
    is_left: bool,
    text: fn(&LimitRecord) -> String,
}

const fn left_column(name: &'static str, text: fn(&LimitRecord) -> String) -> Column {
    Column { name, is_left: true, text }
}

const fn right_column(name: &'static str, text: fn(&LimitRecord) -> String) -> Column {
    Column { name, is_left: false, text }
}

const COLUMNS: [Column; 7] = [
    left_column("LIMIT", name),
    right_column("MOST", |limit| amount(limit, limit.most)),
    right_column("USED", |limit| limit.used.map_or_else(|| "-".to_owned(), |used| amount(limit, used))),
    right_column("LEFT", |limit| left(limit).map_or_else(|| "-".to_owned(), |left| amount(limit, left))),
    left_column("SET BY", |limit| limit.setter.clone()),
    left_column("COUNTS", |limit| match limit.counts.as_str() {
        "job" => "each job by itself".to_owned(),
        counts => format!("jobs of {counts}"),
    }),
    left_column("FOR", |limit| match limit.applies.as_slice() {
        [] => "all".to_owned(),
        some => some.join(","),
    }),
];

fn name(limit: &LimitRecord) -> String {
    match limit.resource.as_str() {
        "" => limit.name.clone(),
        resource => format!("{}={resource}", limit.name),
    }
}

/// Returns the unused amount of a limit; `None` for a limit whose usage is not known, such as a limit of
/// each job by itself.
fn left(limit: &LimitRecord) -> Option<u64> {
    limit.used.map(|used| limit.most.saturating_sub(used))
}

/// Formats an amount in the unit of its limit: minutes of a time limit as a time, other minutes with
/// `min`, and memory with its unit.
fn amount(limit: &LimitRecord, amount: u64) -> String {
    match (limit.resource.as_str(), limit.is_minutes) {
        ("", true) => TimeLimit::Seconds(amount.saturating_mul(60)).long(),
        ("mem", false) => MemoryMb(amount).to_string(),
        (_, true) => format!("{amount} min"),
        (_, false) => amount.to_string(),
    }
}

/// Runs `spur limits`.
///
/// # Errors
/// Fails for more than one name, for a name that is unknown or hidden, or if the controller does not
/// answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut args)? else { return Ok(0) };
    if operands.len() > 1 {
        return Err(Failure::new("one user or account is expected: spur limits anna").into());
    }
    let found = records(session, "limit", &operands).await?;
    let limits: Vec<LimitRecord> = found
        .into_iter()
        .filter_map(|record| match record {
            Record::Limit(limit) => Some(limit),
            _ => None,
        })
        .collect();
    let settings = query::settings(session.connection()?).await?;
    let enforced = settings.iter().find(|setting| setting.key == "controller.accounting_enforce");
    let is_enforced = enforced
        .is_some_and(|setting| setting.value.split(',').any(|word| matches!(word, "limits" | "safe")));
    let text = match args.json {
        true => {
            let values: Vec<Value> = limits.iter().map(as_json).collect();
            let parts = [("limits", values.into()), ("enforced", json!(is_enforced))];
            shape::Wish::default().own(parts)
        }
        false => table(&limits),
    };
    write!(session.out, "{text}")?;
    if !is_enforced && !limits.is_empty() {
        session.inform("limits are not enforced: accounting_storage_enforce does not name limits");
    }
    Ok(0)
}

fn as_json(limit: &LimitRecord) -> Value {
    json!({
        "limit": limit.name,
        "resource": limit.resource,
        "unit": if limit.is_minutes { "minutes" } else if limit.resource == "mem" { "MiB" } else { "" },
        "most": limit.most,
        "used": limit.used,
        "left": left(limit),
        "set_by": limit.setter,
        "counts": limit.counts,
        "applies": limit.applies,
        "user": limit.user,
        "account": limit.account,
    })
}

/// Formats the limits as a table with a line of column names.
fn table(limits: &[LimitRecord]) -> String {
    if limits.is_empty() {
        return "No limit applies.\n".to_owned();
    }
    let mut lines = vec![String::new(); limits.len() + 1];
    for (number, column) in COLUMNS.iter().enumerate() {
        let texts: Vec<String> =
            std::iter::once(column.name.to_owned()).chain(limits.iter().map(column.text)).collect();
        let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        for (line, text) in lines.iter_mut().zip(&texts) {
            if number > 0 {
                line.push_str("  ");
            }
            *line += &match column.is_left {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            };
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, resource: &str, most: u64, used: Option<u64>) -> LimitRecord {
        LimitRecord {
            name: name.to_owned(),
            resource: resource.to_owned(),
            most,
            used,
            setter: "QOS debug".to_owned(),
            counts: if used.is_some() { "QOS debug".to_owned() } else { "job".to_owned() },
            ..LimitRecord::default()
        }
    }

    #[test]
    fn limits_stand_in_a_table() {
        let wall = LimitRecord {
            is_minutes: true,
            applies: vec!["chem/debug".to_owned()],
            ..limit("MaxWall", "", 90, None)
        };
        let all = [limit("GrpTRES", "cpu", 400, Some(128)), limit("GrpTRES", "mem", 2048, Some(4096)), wall];
        let expected = "\
            LIMIT            MOST  USED  LEFT  SET BY     COUNTS              FOR\n\
            GrpTRES=cpu       400   128   272  QOS debug  jobs of QOS debug   all\n\
            GrpTRES=mem        2G    4G     0  QOS debug  jobs of QOS debug   all\n\
            MaxWall      01:30:00     -     -  QOS debug  each job by itself  chem/debug\n";
        assert_eq!(table(&all), expected);
        assert_eq!(table(&[]), "No limit applies.\n");
    }

    #[test]
    fn json_has_what_is_left() {
        let value = as_json(&limit("GrpTRES", "mem", 2048, Some(1024)));
        assert_eq!((&value["left"], &value["unit"]), (&json!(1024), &json!("MiB")));
        assert_eq!(as_json(&limit("MaxTRES", "cpu", 4, None))["left"], Value::Null);
    }
}
