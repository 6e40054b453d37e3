//! The commands `sacctmgr show problem` and `show stats`: possible problems in the policy tree, and the
//! controller's requests.

use std::fmt::Write;

use jiff::Timestamp;
use spur_proto::client::Controller;
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{GetStatisticsRequest, GetStatisticsResponse, RequestCount, UserRecord};

use super::fields::field;
use super::{Conditions, Settings, records};
use crate::format::report::Column;
use crate::session::Session;
use crate::zone;

/// A user with a problem.
struct Problem {
    user: String,
    what: &'static str,
}

const PROBLEM: [Column<Problem>; 4] = [
    field("Cluster", 10, |_, _| String::new()),
    field("Account", 10, |_, _| String::new()),
    field("User", 10, |row, _| row.user.clone()),
    field("Problem", 40, |row, _| row.what.to_owned()),
];

/// Lists the users whom this host does not know; their jobs cannot run.
///
/// # Errors
/// An unknown field, or a refusal by the controller.
pub(super) async fn problems(
    session: &mut Session,
    settings: &Settings,
    conditions: &Conditions,
) -> anyhow::Result<String> {
    let all = records(session, "user", &[]).await?;
    let users = all.into_iter().filter_map(|record| match record {
        Record::User(UserRecord { name, .. }) => Some(name),
        _ => None,
    });
    let unknown = users.filter(|name| !session.knows_user(name));
    let rows: Vec<Problem> = unknown.map(|user| Problem { user, what: "User does not have a uid" }).collect();
    settings.table(&PROBLEM, "cluster,account,user,problem", conditions, &rows)
}

/// Returns statistics of the controller's requests, in Slurm's form.
///
/// # Errors
/// A refusal by the controller, or no answer.
pub(super) async fn statistics(session: &mut Session) -> anyhow::Result<String> {
    let request = GetStatisticsRequest { reset: false };
    let call = async |mut controller: Controller, request| controller.get_statistics(request).await;
    let figures = session.connection()?.read(request, call).await?;
    Ok(page(&figures, &zone::local())?)
}

fn page(figures: &GetStatisticsResponse, zone: &jiff::tz::TimeZone) -> Result<String, jiff::Error> {
    const RULE: &str = "*******************************************************************\n";
    let date = |seconds: i64| -> Result<String, jiff::Error> {
        let date = Timestamp::from_second(seconds)?.to_zoned(zone.clone());
        Ok(format!("{} ({seconds})", date.strftime("%a %b %d %H:%M:%S %Y")))
    };
    let mut text = format!(
        "{RULE}sacctmgr show stats output at {}\nData since                    {}\nAll statistics are in microseconds\n{RULE}\n",
        date(figures.time)?,
        date(figures.since)?
    );
    let mean = |count: &RequestCount| count.sum.checked_div(count.count).unwrap_or(0);
    text.push_str("Remote Procedure Call statistics by message type\n");
    for count in &figures.by_type {
        let (name, id, times, sum) = (&count.name, count.id, count.count, count.sum);
        let _ = writeln!(
            text,
            "\t{name:<25}({id:>5}) count:{times:<6} ave_time:{:<6} total_time:{sum}",
            mean(count)
        );
    }
    text.push_str("\nRemote Procedure Call statistics by user\n");
    for count in &figures.by_user {
        let (name, id, times, sum) = (&count.name, count.id, count.count, count.sum);
        let _ = writeln!(
            text,
            "\t{name:<20}({id:>10}) count:{times:<6} ave_time:{:<6} total_time:{sum}",
            mean(count)
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stand_in_the_lines_of_slurm() {
        let count = |name: &str, id| RequestCount { name: name.into(), id, count: 5, sum: 20_489 };
        let figures = GetStatisticsResponse {
            time: 1_795_582_255,
            since: 1_795_581_814,
            by_type: vec![count("DBD_GET_EVENTS", 1470)],
            by_user: vec![count("root", 0)],
            ..GetStatisticsResponse::default()
        };
        let page = page(&figures, &jiff::tz::TimeZone::UTC).unwrap();
        for line in [
            "sacctmgr show stats output at Wed Nov 25 04:50:55 2026 (1795582255)",
            "\tDBD_GET_EVENTS           ( 1470) count:5      ave_time:4097   total_time:20489",
            "\troot                (         0) count:5      ave_time:4097   total_time:20489",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
