//! Requests of `scontrol create reservation`, `update ReservationName=` and `delete`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spur_proto::v1::{
    CreateReservationRequest, DeleteReservationRequest, KeyValue, UpdateReservationRequest,
};

use super::{meant, update};
use crate::error::Failure;

/// Keys with points in time. Only this command knows the user's zone, so it converts them.
const TIMES: [&str; 2] = ["StartTime", "EndTime"];

/// Parses the words after `create`.
///
/// # Errors
/// An unknown entity, a word that is not `KEY=VALUE`, or an invalid time.
pub fn create(
    words: &[String],
    zone: &TimeZone,
    now: Timestamp,
) -> Result<CreateReservationRequest, Failure> {
    let named = without_entity(words);
    let settings = match words.split_first() {
        Some(_) if named.len() < words.len() => named,
        Some((word, _)) if is_name(word.split('=').next().unwrap_or_default()) => words,
        Some((word, _)) => {
            let text = format!(
                "Invalid creation specification: \"{word}\"; scontrol create reservation KEY=VALUE …"
            );
            return Err(Failure::new(text));
        }
        None => return Err(Failure::new("too few arguments for keyword:create")),
    };
    let settings = read(settings, zone, now)?;
    let utc_offset = zone.to_offset(now).seconds();
    Ok(CreateReservationRequest { settings, utc_offset, ..CreateReservationRequest::default() })
}

/// Parses the words after `update`; `None` unless they concern a reservation.
///
/// # Errors
/// A word that is not `KEY=VALUE`, an invalid time, or no change.
pub fn change(
    words: &[String],
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Option<UpdateReservationRequest>, Failure> {
    let words = without_entity(words);
    // `ReservationName=` is also a key of jobs, and `PartitionName=` one of reservations.
    let key = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    let is_other = |word: &String| {
        let key = key(word).to_ascii_lowercase();
        key.len() >= 3 && ["jobid", "nodename"].iter().any(|other| other.starts_with(&key))
    };
    let of_node_or_job = words.iter().any(is_other);
    let Some(at) = words.iter().position(|word| is_name(&key(word))).filter(|_| !of_node_or_job) else {
        return Ok(None);
    };
    let mut settings = read(words, zone, now)?;
    let name = settings.remove(at).value;
    if settings.is_empty() {
        return Err(Failure::new("No changes specified"));
    }
    Ok(Some(UpdateReservationRequest { name, settings, ..UpdateReservationRequest::default() }))
}

/// Parses the words after `delete`.
///
/// # Errors
/// An unknown entity.
pub fn delete(words: &[String]) -> Result<DeleteReservationRequest, Failure> {
    let named = |name: &str| DeleteReservationRequest {
        name: name.to_owned(),
        ..DeleteReservationRequest::default()
    };
    match words {
        [pair] => match pair.split_once('=') {
            Some((key, name)) if is_name(key) => Ok(named(name)),
            _ => Err(Failure::new(format!("Invalid deletion entity: {pair}; write ReservationName=NAME"))),
        },
        [word, name] if !word.contains('=') && meant(word, &["reservation", "reservationname"]).is_some() => {
            Ok(named(name.split_once('=').map_or(name.as_str(), |(_, name)| name)))
        }
        _ => Err(Failure::new("scontrol delete ReservationName=NAME")),
    }
}

/// Returns the words without the optional first word `reservation`.
fn without_entity(words: &[String]) -> &[String] {
    match words.split_first() {
        Some((word, rest)) if !word.contains('=') && meant(word, &["reservation"]).is_some() => rest,
        _ => words,
    }
}

/// True if a key of at least two letters is a prefix of a name.
fn begins(name: &str, key: &str) -> bool {
    key.len() >= 2 && name.to_ascii_lowercase().starts_with(&key.to_ascii_lowercase())
}

/// True if a key is `ReservationName` or a prefix of it with at least three letters.
fn is_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.len() >= 3 && "reservationname".starts_with(&key)
}

fn read(words: &[String], zone: &TimeZone, now: Timestamp) -> Result<Vec<KeyValue>, Failure> {
    let pair = |word: &String| {
        if word.eq_ignore_ascii_case("Skip") {
            return Ok(KeyValue { key: "Skip".to_owned(), value: String::new() });
        }
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("Unknown parameter {word}; write KEY=VALUE")))?;
        let key = if is_name(key) { "ReservationName" } else { key };
        let value = match TIMES.iter().find(|name| begins(name, key)) {
            Some(name) => update::point(value, zone, now)
                .map_err(|error| Failure::new(format!("Invalid {name}: {error}")))?,
            None => value.to_owned(),
        };
        Ok(KeyValue { key: key.to_owned(), value })
    };
    words.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn shown(settings: &[KeyValue]) -> String {
        settings.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_created_changed_and_deleted() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = Timestamp::from_second(1_795_176_697).unwrap();
        let request =
            create(&words("res reserv=r StartTime=2026-11-21T11:00:00 Nodes=n1 flags+=x"), &zone, now)
                .unwrap();
        assert_eq!(shown(&request.settings), "ReservationName=r StartTime=1795255200 Nodes=n1 flags+=x");
        assert_eq!(request.utc_offset, 3600);
        let request =
            change(&words("ReservationName=r EndTime=now+60 Users+=bob"), &zone, now).unwrap().unwrap();
        assert_eq!(
            (request.name.as_str(), shown(&request.settings)),
            ("r", "EndTime=1795176757 Users+=bob".into())
        );
        assert_eq!(change(&words("JobId=4 ReservationName=r"), &zone, now).unwrap(), None);
        assert!(change(&words("ReservationName=r"), &zone, now).is_err());
        let request = change(&words("res=r start=now end=now+60"), &zone, now).unwrap().unwrap();
        assert_eq!(shown(&request.settings), "start=1795176697 end=1795176757");
        let request = change(&words("reservation ReservationName=r Flags=Maint"), &zone, now).unwrap();
        assert_eq!(request.map(|request| request.name).as_deref(), Some("r"));
        let request = change(&words("Reservation=r skip"), &zone, now).unwrap().unwrap();
        assert_eq!(shown(&request.settings), "Skip=");
        for text in ["ReservationName=r", "reservation=r", "reservation r"] {
            let name = delete(&words(text)).map(|request| request.name);
            assert_eq!(name.ok().as_deref(), Some("r"), "{text}");
        }
        let request = change(&words("ReservationName=r partition=p"), &zone, now).unwrap().unwrap();
        assert_eq!(shown(&request.settings), "partition=p");
        assert!(delete(&words("NodeName=r")).is_err());
        assert!(create(&words("partition p"), &zone, now).is_err());
    }
}
