//! `--json`: the records as the wire has them, under the names of their fields.

use serde::Serialize;
use serde_json::{Value, json};

/// One document: what wrote it, and the records of `kind` (`jobs`, `nodes` …).
pub fn document(kind: &str, records: impl Serialize) -> String {
    documents([(kind, to_value(records))])
}

/// One document with several kinds of records.
pub fn documents<const N: usize>(kinds: [(&str, Value); N]) -> String {
    let mut document = json!({ "meta": { "spur": { "version": env!("CARGO_PKG_VERSION") } } });
    for (kind, records) in kinds {
        document[kind] = records;
    }
    document["errors"] = json!([]);
    format!("{document:#}\n")
}

/// The records as a value.
pub fn to_value(records: impl Serialize) -> Value {
    serde_json::to_value(records).expect("messages have string keys and finite numbers only")
}
