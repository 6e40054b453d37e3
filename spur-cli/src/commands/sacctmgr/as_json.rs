//! `sacctmgr --json` and `--yaml`: lists in the shape of Slurm's data parser.

use serde_json::{Value, json};
use spur_core::text::tres::Tres as CountedTres;
use spur_proto::client::Controller;
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{AssociationRecord, GetStatisticsRequest, GetStatisticsResponse, RequestCount};

use super::rows::Row;
use super::{Conditions, fetch, request, resources, wckeys};
use crate::commands::query;
use crate::format::json::{self, Part, Wish, policy};
use crate::session::Session;

/// Returns the document for a list; `None` for an entity that has no shape in Slurm.
///
/// # Errors
/// Fails if the controller refuses or does not answer.
pub(super) async fn document(
    session: &mut Session,
    wish: Wish,
    entity: &str,
    conditions: &Conditions,
) -> anyhow::Result<Option<String>> {
    let mut show = query::show(&|name| session.env(name))?;
    query::identify(session, &mut show).await?;
    let (key, values) = match entity {
        "accounts" | "associations" | "qos" | "users" => {
            let all = fetch(session, request(entity, conditions)).await?;
            (entity, kept(wish, conditions.coordinators, &show.cluster, all))
        }
        "clusters" => ("clusters", clusters(session, conditions).await?),
        "tres" => {
            let all = resources(session).await?;
            ("TRES", all.iter().map(|tres| policy::resource(&tres.0, &tres.1, tres.2)).collect())
        }
        "wckeys" => {
            let all = wckeys::fetch(session, conditions).await?;
            ("wckeys", all.iter().map(|own| policy::wckey(&own.cluster, &own.name, &own.user)).collect())
        }
        "instances" => ("instances", Vec::new()),
        "stats" => {
            let statistics = statistics(session).await?;
            return Ok(Some(match wish.spur {
                true => wish.own([("statistics", json::to_value(&statistics))]),
                false => wish.slurm(&show, [("statistics", in_slurms_shape(&statistics).into())]),
            }));
        }
        _ => return Ok(None),
    };
    Ok(Some(match wish.spur {
        true => wish.own([(key, values.into())]),
        false => wish.slurm(&show, [(key, Part::records(values.into_iter()))]),
    }))
}

/// Returns records of the policy tree: users and accounts with the associations that follow them.
fn kept(wish: Wish, with_coordinators: bool, cluster: &str, all: Vec<Record>) -> Vec<Value> {
    if wish.spur {
        return all.iter().map(own_shape).collect();
    }
    let mut values = Vec::new();
    let mut all = all.into_iter().peekable();
    while let Some(record) = all.next() {
        let mut own = Vec::new();
        if matches!(record, Record::Account(_) | Record::User(_)) {
            while let Some(Record::Association(next)) =
                all.next_if(|next| matches!(next, Record::Association(_)))
            {
                own.push(policy::association_name(cluster_of(cluster, &next), &next));
            }
        }
        values.push(match record {
            Record::Account(account) => policy::account(&account, own, with_coordinators),
            Record::User(user) => policy::user(&user, own, with_coordinators),
            Record::Association(association) => {
                policy::association(cluster_of(cluster, &association), &association)
            }
            Record::Qos(qos) => policy::qos(&qos),
            Record::Limit(_) => continue,
        });
    }
    values
}

/// Returns the cluster whose tree has an association; `own` is the controller's.
fn cluster_of<'a>(own: &'a str, association: &'a AssociationRecord) -> &'a str {
    if association.cluster.is_empty() { own } else { &association.cluster }
}

/// Returns a record with the fields of Spur's own messages.
fn own_shape(record: &Record) -> Value {
    match record {
        Record::Account(account) => json::to_value(account),
        Record::User(user) => json::to_value(user),
        Record::Association(association) => json::to_value(association),
        Record::Qos(qos) => json::to_value(qos),
        Record::Limit(limit) => json::to_value(limit),
    }
}

/// Returns a list of clusters, the controller's own with the resources of its nodes.
async fn clusters(session: &mut Session, conditions: &Conditions) -> anyhow::Result<Vec<Value>> {
    let all = super::clusters(session, conditions).await?;
    // Nodes may be hidden from the user.
    let nodes = query::nodes(session.connection()?, "").await.unwrap_or_default();
    let mut sum = CountedTres::default();
    for tres in nodes.iter().filter_map(|node| node.configured_tres.parse::<CountedTres>().ok()) {
        sum.add(&tres);
    }
    let names = spur_core::text::hostlist::HostList::from_names(nodes.iter().map(|node| &*node.name));
    let (names, sum) = (names.to_string(), sum.to_string());
    let shown = |cluster: &Row| {
        // The controllers and the nodes of other clusters are not known here.
        let (names, sum) = if cluster.server.rpc > 0 { (&*names, &*sum) } else { ("", "") };
        policy::cluster(&cluster.cluster, &cluster.server.host, &cluster.server.port, names, sum)
    };
    Ok(all.iter().map(shown).collect())
}

async fn statistics(session: &mut Session) -> anyhow::Result<GetStatisticsResponse> {
    let request = GetStatisticsRequest { reset: false };
    let call = async |mut controller: Controller, request| controller.get_statistics(request).await;
    Ok(session.connection()?.read(request, call).await?)
}

/// Returns the statistics of the controller's answered requests. The lists of rollups are empty.
fn in_slurms_shape(figures: &GetStatisticsResponse) -> Value {
    let mean = |count: &RequestCount| count.sum.checked_div(count.count).unwrap_or(0);
    let counted = |key: &str, count: &RequestCount| {
        json!({
            key: count.name, "count": count.count, "time": { "average": mean(count), "total": count.sum },
        })
    };
    let rollup = || {
        json!({
            "count": 0, "last_run": 0, "duration": { "last": 0, "max": 0, "time": 0 },
        })
    };
    json!({
        "time_start": figures.since,
        "rollups": { "hourly": rollup(), "daily": rollup(), "monthly": rollup() },
        "RPCs": figures.by_type.iter().map(|count| counted("rpc", count)).collect::<Vec<_>>(),
        "users": figures.by_user.iter().map(|count| counted("user", count)).collect::<Vec<_>>(),
    })
}
