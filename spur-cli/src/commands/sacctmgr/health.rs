//! The commands `sacctmgr show problem` and `show stats`: possible problems in the policy tree, and the
//! controller's requests.

use std::collections::BTreeSet;
use std::fmt::Write;

use jiff::Timestamp;
use spur_proto::client::Controller;
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{
    AssociationRecord, GetStatisticsRequest, GetStatisticsResponse, ListAccountsRequest, RequestCount,
    UserRecord,
};

use super::fields::field;
use super::{Conditions, Settings, fetch};
use crate::commands::query;
use crate::format::report::Column;
use crate::session::Session;
use crate::zone;

/// An account or a user with a problem.
#[derive(Default, Debug, PartialEq)]
struct Problem {
    cluster: String,
    account: String,
    user: String,
    what: &'static str,
}

const PROBLEM: [Column<Problem>; 4] = [
    field("Cluster", 10, |row, _| row.cluster.clone()),
    field("Account", 10, |row, _| row.account.clone()),
    field("User", 10, |row, _| row.user.clone()),
    field("Problem", 40, |row, _| row.what.to_owned()),
];

/// Lists the accounts with nobody below them, the users without an association, and the users whom this host
/// does not know; their jobs cannot run.
///
/// # Errors
/// An unknown field, or a refusal by the controller.
pub(super) async fn problems(
    session: &mut Session,
    settings: &Settings,
    conditions: &Conditions,
) -> anyhow::Result<String> {
    let here = query::cluster_name(session).await?;
    let list = |entity: &str| ListAccountsRequest {
        entity: entity.to_owned(),
        all_clusters: true,
        ..ListAccountsRequest::default()
    };
    let associations = fetch(session, list("association")).await?;
    let associations: Vec<AssociationRecord> = associations
        .into_iter()
        .filter_map(|record| match record {
            Record::Association(record) => Some(record),
            _ => None,
        })
        .collect();
    let users = fetch(session, list("user")).await?.into_iter().filter_map(|record| match record {
        Record::User(UserRecord { name, .. }) => Some(name),
        _ => None,
    });
    let users: BTreeSet<String> = users.collect();
    let rows = problems_of(&here, &associations, &users, &|name| session.knows_user(name));
    settings.table(&PROBLEM, "cluster,account,user,problem", conditions, &rows)
}

/// The problems of associations and users, in Slurm's order.
fn problems_of(
    here: &str,
    associations: &[AssociationRecord],
    users: &BTreeSet<String>,
    is_known: &dyn Fn(&str) -> bool,
) -> Vec<Problem> {
    let place = |own: &AssociationRecord, name: &str| (own.cluster.clone(), name.to_owned());
    let inner: BTreeSet<(String, String)> = associations
        .iter()
        .map(|own| place(own, if own.user.is_empty() { &own.parent } else { &own.account }))
        .collect();
    let empty = associations.iter().filter(|own| own.user.is_empty());
    let empty = empty.filter(|own| !inner.contains(&place(own, &own.account))).map(|own| Problem {
        cluster: if own.cluster.is_empty() { here } else { &own.cluster }.to_owned(),
        account: own.account.clone(),
        what: "Account has no users",
        ..Problem::default()
    });
    let placed: BTreeSet<&str> = associations.iter().map(|own| &*own.user).collect();
    let of_user = |user: &String, what| Problem { user: user.clone(), what, ..Problem::default() };
    let homeless = users.iter().filter(|name| !placed.contains(name.as_str()));
    let homeless = homeless.map(|name| of_user(name, "User has no Associations"));
    let unknown = users.iter().filter(|name| !is_known(name));
    let unknown = unknown.map(|name| of_user(name, "User does not have a uid"));
    empty.chain(homeless).chain(unknown).collect()
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
    fn accounts_and_users_that_lead_nowhere_are_problems() {
        let own = |cluster: &str, account: &str, user: &str, parent: &str| AssociationRecord {
            cluster: cluster.into(),
            account: account.into(),
            user: user.into(),
            parent: parent.into(),
            ..AssociationRecord::default()
        };
        let associations = [
            own("", "root", "", ""),
            own("", "root", "root", ""),
            own("", "sci", "", "root"),
            own("", "chem", "", "sci"),
            own("", "chem", "ada", ""),
            own("", "phys", "", "sci"),
            own("north", "chem", "", "root"),
        ];
        let users: BTreeSet<String> = ["root", "ada", "bob"].map(str::to_owned).into();
        let found = problems_of("c", &associations, &users, &|name| name != "ada");
        let lines: Vec<String> = found
            .iter()
            .map(|row| format!("{}|{}|{}|{}", row.cluster, row.account, row.user, row.what))
            .collect();
        let wanted = [
            "c|phys||Account has no users",
            "north|chem||Account has no users",
            "||bob|User has no Associations",
            "||ada|User does not have a uid",
        ];
        assert_eq!(lines, wanted);
    }

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
