//! Reservations, for `scontrol show reservation`, and requests for them.

use spur_core::cluster::Cluster;
use spur_core::model::reservation::{Flag, Reservation, ReservationAsk};
use spur_core::text::hostlist::HostList;
use spur_core::text::length;
use spur_core::text::time::Time;
use spur_core::text::tres::{Tres, TresKind};

use super::{BadField, count, fits, narrow};
use crate::v1;

/// Encodes a reservation at `now`.
pub fn render(cluster: &Cluster, reservation: &Reservation, now: Time) -> v1::Reservation {
    let reservation = &reservation.anchored(now);
    let nodes = || reservation.nodes.iter().filter_map(|id| cluster.node(*id));
    let cpus: u64 = nodes().map(|node| u64::from(node.all_cpus())).sum();
    let cores = nodes().map(|node| u64::from(node.all_cpus() / node.shape.threads_per_core.max(1))).sum();
    let mut tres = Tres::default();
    if cpus > 0 {
        tres.set(TresKind::Cpu, cpus);
    }
    let licenses = reservation.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
    v1::Reservation {
        name: reservation.name.to_string(),
        start_time: cluster.clock().wall(reservation.start).0,
        end_time: cluster.clock().wall(reservation.end).0,
        nodes: HostList::from_names(nodes().map(|node| node.name())).to_string(),
        node_count: count(reservation.nodes.len()),
        core_count: narrow(cores),
        features: reservation.features.as_deref().unwrap_or_default().to_owned(),
        partition: reservation.partition.as_deref().unwrap_or_default().to_owned(),
        flags: reservation.flags_text(),
        tres: tres.to_string(),
        users: reservation.users.to_string(),
        accounts: reservation.accounts.to_string(),
        active: reservation.is_active(now) && !reservation.has(Flag::TimeFloat),
        licenses: licenses.collect::<Vec<_>>().join(","),
        comment: reservation.comment.as_deref().unwrap_or_default().to_owned(),
    }
}

/// Largest number of settings in one request: more than there are keys.
const MAX_SETTINGS: usize = 64;

/// Parses a request for a reservation.
///
/// # Errors
/// Names the first key or value that is not valid.
pub fn ask(settings: &[v1::KeyValue], utc_offset: i32) -> Result<ReservationAsk, BadField> {
    let mut ask = ReservationAsk { utc_offset, ..ReservationAsk::default() };
    if settings.len() > MAX_SETTINGS {
        let problem =
            format!("{} settings are too many; at most {MAX_SETTINGS} can be given", settings.len());
        return Err(BadField::new("reservation", problem));
    }
    for setting in settings {
        fits("reservation", &setting.key, length::TEXT)?;
        fits("reservation", &setting.value, length::NODES)?;
        let taken = ask.take(&setting.key, &setting.value);
        taken.map_err(|error| BadField::new("reservation", error.to_string()))?;
    }
    Ok(ask)
}
