//! Reservations and licenses in JSON.

use serde_json::{Value, json};
use spur_proto::v1::{License, Reservation};

use super::value::{number, time};

/// Returns a reservation in Slurm's shape.
pub fn reservation(reservation: &Reservation) -> Value {
    // Slurm names one flag differently in JSON than in text.
    let flags = reservation.flags.split(',').filter(|flag| !flag.is_empty()).map(|flag| match flag {
        "NO_HOLD_JOBS_AFTER" => "NO_HOLD_JOBS_AFTER_END",
        other => other,
    });
    json!({
        "name": reservation.name,
        "accounts": reservation.accounts,
        "burst_buffer": "",
        "core_count": reservation.core_count,
        "core_specializations": [],
        "end_time": time(Some(reservation.end_time)),
        "features": reservation.features,
        "flags": flags.collect::<Vec<_>>(),
        "groups": "",
        "licenses": reservation.licenses,
        "max_start_delay": 0,
        "node_count": reservation.node_count,
        "node_list": reservation.nodes,
        "partition": reservation.partition,
        "purge_completed": { "time": number(None::<u64>) },
        "start_time": time(Some(reservation.start_time)),
        "watts": number(None::<u64>),
        "tres": reservation.tres,
        "users": reservation.users,
    })
}

/// Returns a license, the only record whose keys are in CamelCase.
pub fn license(license: &License) -> Value {
    json!({
        "LicenseName": license.name,
        "Total": license.total,
        "Used": license.used,
        "Free": license.total.saturating_sub(license.used),
        "Remote": false,
        "Reserved": license.reserved,
        "LastConsumed": 0,
        "LastDeficit": 0,
        "LastUpdate": 0,
        "Nodes": "",
    })
}
