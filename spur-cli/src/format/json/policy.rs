//! Accounts, users, associations and QOS in the shape of `sacctmgr --json`.

use serde_json::{Value, json};
use spur_proto::v1::{AccountRecord, AssociationRecord, LimitValue, QosRecord, UserRecord};

use super::value::{merged, number, tres, unlimited};

/// Slurm's number for the raw shares of an association that shares as its parent.
const PARENT_SHARES: u32 = 2_147_483_647;

/// Returns the value of a limit; empty if the limit is not set.
fn text<'a>(limits: &'a [LimitValue], name: &str) -> &'a str {
    limits.iter().find(|limit| limit.name == name).map_or("", |limit| &limit.value)
}

/// Returns a limit that is a count or a number of minutes.
fn count(limits: &[LimitValue], name: &str) -> Value {
    unlimited(text(limits, name).parse::<u64>().ok())
}

fn limit_tres(limits: &[LimitValue], name: &str) -> Value {
    tres(text(limits, name))
}

fn deleted(deleted: bool) -> Value {
    if deleted { json!(["DELETED"]) } else { json!([]) }
}

/// Returns the names by which other records refer to an association.
pub fn association_name(cluster: &str, own: &AssociationRecord) -> Value {
    json!({
        "account": own.account, "cluster": cluster, "partition": own.partition, "user": own.user, "id": own.id,
    })
}

/// Returns an association with its own and its inherited limits.
pub fn association(cluster: &str, own: &AssociationRecord) -> Value {
    let shares = if own.shares == "parent" { PARENT_SHARES } else { own.shares.parse().unwrap_or(1) };
    let names = json!({
        "accounting": [],
        "account": own.account,
        "cluster": cluster,
        "comment": "",
        "default": { "qos": own.default_qos },
        "flags": [],
        "id": own.id,
        "is_default": own.is_default,
        "lineage": own.lineage,
        "parent_account": own.parent,
        "partition": own.partition,
        "priority": number(text(&own.limits, "Priority").parse::<u64>().ok()),
        "qos": own.qos,
        "shares_raw": shares,
        "user": own.user,
    });
    merged([names, association_limits(&own.limits)])
}

fn association_limits(limits: &[LimitValue]) -> Value {
    let count = |name| count(limits, name);
    let tres = |name| limit_tres(limits, name);
    json!({
        "max": {
            "jobs": {
                "per": {
                    "count": count("GrpJobs"),
                    "accruing": count("GrpJobsAccrue"),
                    "submitted": count("GrpSubmitJobs"),
                    "wall_clock": count("MaxWallDurationPerJob"),
                },
                "active": count("MaxJobs"),
                "accruing": count("MaxJobsAccrue"),
                "total": count("MaxSubmitJobs"),
            },
            "tres": {
                "total": tres("GrpTRES"),
                "group": { "minutes": tres("GrpTRESMins"), "active": tres("GrpTRESRunMins") },
                "minutes": { "total": [], "per": { "job": tres("MaxTRESMinsPerJob") } },
                "per": { "job": tres("MaxTRESPerJob"), "node": tres("MaxTRESPerNode") },
            },
            "per": { "account": { "wall_clock": count("GrpWall") } },
        },
        "min": { "priority_threshold": count("MinPrioThreshold") },
    })
}

/// Returns the word of Slurm's data parser for a flag of a QOS.
fn flag(name: &str) -> &str {
    match name {
        "DenyOnLimit" => "DENY_LIMIT",
        "EnforceUsageThreshold" => "ENFORCE_USAGE_THRESHOLD",
        "NoReserve" => "NO_RESERVE",
        "PartitionMaxNodes" => "PARTITION_MAXIMUM_NODE",
        "PartitionMinNodes" => "PARTITION_MINIMUM_NODE",
        "OverPartQOS" => "OVERRIDE_PARTITION_QOS",
        "PartitionTimeLimit" => "PARTITION_TIME_LIMIT",
        "RequiresReservation" => "REQUIRED_RESERVATION",
        "NoDecay" => "NO_DECAY",
        "UsageFactorSafe" => "USAGE_FACTOR_SAFE",
        other => other,
    }
}

/// A QOS.
pub fn qos(qos: &QosRecord) -> Value {
    let flags = qos.flags.iter().map(|name| flag(name));
    let flags: Vec<&str> = flags.chain(qos.deleted.then_some("DELETED")).collect();
    let mode = match qos.preempt_mode.as_str() {
        "cluster" | "off" => "DISABLED".to_owned(),
        mode => mode.to_uppercase(),
    };
    json!({
        "description": qos.description,
        "flags": flags,
        "id": qos.id,
        "limits": qos_limits(qos),
        "name": qos.name,
        "preempt": { "list": qos.preempt, "mode": [mode], "exempt_time": number(qos.preempt_exempt_time) },
        "priority": number(Some(qos.priority)),
        "usage_factor": number(Some(qos.usage_factor)),
        "usage_threshold": number(qos.usage_threshold),
    })
}

fn qos_limits(qos: &QosRecord) -> Value {
    let count = |name| count(&qos.limits, name);
    let tres = |name| limit_tres(&qos.limits, name);
    json!({
        "grace_time": qos.grace_time.unwrap_or(0),
        "factor": number(qos.limit_factor),
        "max": {
            "active_jobs": { "accruing": count("GrpJobsAccrue"), "count": count("GrpJobs") },
            "jobs": {
                "count": count("GrpSubmitJobs"),
                "active_jobs": {
                    "per": { "account": count("MaxJobsPerAccount"), "user": count("MaxJobsPerUser") },
                },
                "per": {
                    "account": count("MaxSubmitJobsPerAccount"),
                    "user": count("MaxSubmitJobsPerUser"),
                },
            },
            "accruing": {
                "per": { "account": count("MaxJobsAccruePerAccount"), "user": count("MaxJobsAccruePerUser") },
            },
            "tres": {
                "total": tres("GrpTRES"),
                "minutes": {
                    "total": tres("GrpTRESMins"),
                    "per": {
                        "qos": tres("GrpTRESRunMins"),
                        "job": tres("MaxTRESMinsPerJob"),
                        "account": tres("MaxTRESRunMinsPerAccount"),
                        "user": tres("MaxTRESRunMins"),
                    },
                },
                "per": {
                    "account": tres("MaxTRESPerAccount"),
                    "job": tres("MaxTRESPerJob"),
                    "node": tres("MaxTRESPerNode"),
                    "user": tres("MaxTRESPerUser"),
                },
            },
            "wall_clock": { "per": { "qos": count("GrpWall"), "job": count("MaxWallDurationPerJob") } },
        },
        "min": {
            "priority_threshold": count("MinPrioThreshold"),
            "tres": { "per": { "job": tres("MinTRESPerJob") } },
        },
    })
}

/// Returns a user with these associations, and with coordinated accounts if `with_coordinators` is set.
pub fn user(user: &UserRecord, associations: Vec<Value>, with_coordinators: bool) -> Value {
    let coordinated = user.all_coordinated.iter().filter(|_| with_coordinators);
    let coordinated: Vec<Value> =
        coordinated.map(|name| json!({ "name": name, "direct": user.coordinates.contains(name) })).collect();
    json!({
        "administrator_level": [user.admin_level],
        "associations": associations,
        "coordinators": coordinated,
        "default": { "account": user.default_account, "wckey": user.default_wckey },
        "flags": deleted(user.deleted),
        "name": user.name,
        "old_name": "",
        "wckeys": user.wckeys,
    })
}

/// Returns a wckey. Spur's wckeys have no numbers, so `id` is 0.
pub fn wckey(cluster: &str, name: &str, user: &str) -> Value {
    json!({ "accounting": [], "cluster": cluster, "flags": [], "id": 0, "name": name, "user": user })
}

/// Returns an account with these associations, and with coordinators if `with_coordinators` is set.
pub fn account(account: &AccountRecord, associations: Vec<Value>, with_coordinators: bool) -> Value {
    let coordinators = account.all_coordinators.iter().filter(|_| with_coordinators);
    let coordinators: Vec<Value> = coordinators
        .map(|name| json!({ "name": name, "direct": account.coordinators.contains(name) }))
        .collect();
    json!({
        "associations": associations,
        "coordinators": coordinators,
        "description": account.description,
        "flags": deleted(account.deleted),
        "name": account.name,
        "organization": account.organization,
    })
}

/// Returns a cluster. `resources` is in Slurm's notation (`cpu=4,mem=8000M`).
pub fn cluster(name: &str, host: &str, port: &str, nodes: &str, resources: &str) -> Value {
    json!({
        "associations": {
            "root": { "account": "root", "cluster": name, "partition": "", "user": "", "id": 1 },
        },
        "controller": { "host": host, "port": port.parse::<u16>().unwrap_or(0) },
        "flags": [],
        "name": name,
        "nodes": nodes,
        "rpc_version": super::RPC_VERSION,
        "select_plugin": "",
        "tres": tres(resources),
    })
}

/// A trackable resource.
pub fn resource(kind: &str, name: &str, id: u32) -> Value {
    json!({ "type": kind, "name": name, "id": id, "count": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, value: &str) -> LimitValue {
        LimitValue { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn limits_stand_where_slurm_has_them() {
        let own = AssociationRecord {
            shares: "parent".to_owned(),
            limits: vec![limit("GrpTRES", "cpu=4,mem=1G"), limit("MaxWallDurationPerJob", "60")],
            ..AssociationRecord::default()
        };
        let value = association("c", &own);
        assert_eq!(value["shares_raw"], PARENT_SHARES);
        assert_eq!(value["max"]["jobs"]["per"]["wall_clock"], number(Some(60)));
        assert_eq!(value["max"]["jobs"]["active"], unlimited(None::<u64>));
        assert_eq!(value["max"]["tres"]["total"][1]["count"], 1024);
    }

    #[test]
    fn a_qos_has_the_words_of_the_data_parser() {
        let record = QosRecord {
            name: "debug".to_owned(),
            preempt_mode: "requeue".to_owned(),
            flags: vec!["DenyOnLimit".to_owned()],
            limits: vec![limit("MaxJobsPerUser", "2")],
            ..QosRecord::default()
        };
        let value = qos(&record);
        assert_eq!(
            (&value["flags"], &value["preempt"]["mode"]),
            (&json!(["DENY_LIMIT"]), &json!(["REQUEUE"]))
        );
        let per = &value["limits"]["max"]["jobs"]["active_jobs"]["per"];
        assert_eq!((&per["user"], &per["account"]), (&number(Some(2)), &unlimited(None::<u64>)));
    }
}
