//! Single values as Slurm's data parser writes them.

use serde::Serialize;
use serde_json::{Value, json};
use spur_core::text::signal::Signal;
use spur_core::text::tres::{Tres, TresKind};

/// Returns a number object, unset for `None`.
pub fn number(value: Option<impl Serialize>) -> Value {
    match value {
        Some(value) => json!({ "set": true, "infinite": false, "number": value }),
        None => json!({ "set": false, "infinite": false, "number": 0 }),
    }
}

/// Returns a number object, infinite for `None`.
pub fn unlimited(value: Option<impl Serialize>) -> Value {
    match value {
        Some(value) => number(Some(value)),
        None => json!({ "set": false, "infinite": true, "number": 0 }),
    }
}

/// Returns a point in time as a number object; 0, and set, for `None`.
pub fn time(seconds: Option<i64>) -> Value {
    number(Some(seconds.unwrap_or(0)))
}

/// Converts seconds to minutes, rounded up.
pub fn minutes(seconds: u64) -> u64 {
    seconds.div_ceil(60)
}

/// Returns the result of a process, which is pending until `ended`.
pub fn exit(code: u32, signal: u32, ended: bool) -> Value {
    let status = match (code, signal) {
        _ if !ended => "PENDING",
        (_, 1..) => "SIGNALED",
        (1.., _) => "ERROR",
        _ => "SUCCESS",
    };
    let known = u8::try_from(signal).ok().and_then(Signal::new).and_then(Signal::name);
    json!({
        "status": [status],
        "return_code": number(Some(code).filter(|_| signal == 0)),
        "signal": { "id": number(Some(signal).filter(|signal| *signal > 0)), "name": known.unwrap_or_default() },
    })
}

/// Converts a comma-separated list to an array of texts.
pub fn list(text: &str) -> Value {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Converts trackable resources to an array; memory in MiB.
pub fn tres(text: &str) -> Value {
    let Ok(tres) = text.parse::<Tres>() else { return json!([]) };
    let one = |(kind, count): (&TresKind, &u64)| {
        let name = kind.to_string();
        let (kind, name) = name.split_once('/').unwrap_or((&name, ""));
        let id = match kind {
            "cpu" => 1,
            "mem" => 2,
            "energy" => 3,
            "node" => 4,
            "billing" => 5,
            _ => 1001,
        };
        json!({ "type": kind, "name": name, "id": id, "count": count })
    };
    tres.0.iter().map(one).collect()
}

/// Merges several objects into one.
pub fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(fields) = part {
            all.extend(fields);
        }
    }
    Value::Object(all)
}
