//! The command `scontrol show reservation`, and the list of `sinfo -T`.

use spur_proto::v1::Reservation;

use super::record::Record;
use crate::format::Show;
use crate::format::value::{long_limit, or, or_null, time};

/// Returns the records of all reservations.
pub fn text(reservations: &[Reservation], oneline: bool, show: &Show) -> String {
    if reservations.is_empty() {
        return "No reservations in the system\n".to_owned();
    }
    reservations.iter().map(|reservation| record(reservation, show).text(oneline)).collect()
}

/// Returns a table with one line per reservation.
pub fn table(reservations: &[Reservation], header: bool, show: &Show) -> String {
    if reservations.is_empty() {
        return "No reservations in the system\n".to_owned();
    }
    let longest = reservations.iter().map(|reservation| reservation.name.chars().count()).max();
    let width = longest.unwrap_or(0).max("RESV_NAME".len());
    let line = |[name, state, start, end, duration, nodes]: [&str; 6]| {
        format!("{name:<width$}  {state:>8}  {start:>19}  {end:>19}  {duration:>11}  {nodes}\n")
    };
    let head = ["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"];
    let mut text = if header { line(head) } else { String::new() };
    for found in reservations {
        let (start, end) = times(found, show);
        text += &line([&found.name, state(found), &start, &end, &duration(found), &found.nodes]);
    }
    text
}

fn state(reservation: &Reservation) -> &'static str {
    if reservation.active { "ACTIVE" } else { "INACTIVE" }
}

fn times(reservation: &Reservation, show: &Show) -> (String, String) {
    let moment = |at| time(Some(at), "Unknown", show);
    (moment(reservation.start_time), moment(reservation.end_time))
}

fn duration(reservation: &Reservation) -> String {
    let seconds = reservation.end_time - reservation.start_time;
    long_limit(Some(u64::try_from(seconds).unwrap_or(0)))
}

fn record(reservation: &Reservation, show: &Show) -> Record {
    let none = || "(null)".to_owned();
    let (start, end) = times(reservation, show);
    let mut r = Record::default();
    r.line([
        ("ReservationName", reservation.name.clone()),
        ("StartTime", start),
        ("EndTime", end),
        ("Duration", duration(reservation)),
    ]);
    r.line([
        ("Nodes", or_null(&reservation.nodes)),
        ("NodeCnt", reservation.node_count.to_string()),
        ("CoreCnt", reservation.core_count.to_string()),
        ("Features", or_null(&reservation.features)),
        ("PartitionName", or_null(&reservation.partition)),
        ("Flags", or(&reservation.flags, "")),
    ]);
    r.line([("TRES", or_null(&reservation.tres))]);
    r.line([
        ("Users", or_null(&reservation.users)),
        ("Groups", none()),
        ("Accounts", or_null(&reservation.accounts)),
        ("Licenses", or_null(&reservation.licenses)),
        ("State", state(reservation).to_owned()),
        ("BurstBuffer", none()),
    ]);
    r.line([("MaxStartDelay", none())]);
    r.line_if("Comment", &reservation.comment);
    r
}
