//! Output of `--json` and `--yaml`: records in the shape of Slurm's data parser, or as in Spur's messages.
//!
//! The default has the keys, types and units of `data_parser/v0.0.41`, as readers of Slurm's output expect.
//! `--json=spur` prints the fields of Spur's messages, including those that Slurm does not have.

pub mod accounting;
pub mod job;
pub mod node;
pub mod other;
pub mod policy;
pub mod step;
pub mod value;

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Show;
use crate::version::SLURM;

/// Version of the data parser whose shape is printed.
const PARSER: &str = "v0.0.41";

/// Number of the protocol of Slurm 24.05.
pub const RPC_VERSION: u32 = 10_496;

/// The requested output format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// True for YAML, false for JSON.
    pub yaml: bool,
    /// True for the shape of Spur's messages.
    pub spur: bool,
    /// True to print only the list of shapes.
    pub list: bool,
    /// True for plain numbers and nulls instead of objects with the flag `set`.
    pub complex: bool,
}

impl Wish {
    /// Parses the value of `--json[=SHAPE]`. The value is empty, `list`, `spur`, or `v0.0.41`, with an
    /// optional prefix `data_parser/` and parameters such as `+complex`.
    ///
    /// # Errors
    /// An unknown shape.
    pub fn read(text: &str, yaml: bool) -> Result<Wish, String> {
        let wish = Wish { yaml, ..Wish::default() };
        let (name, parameters) = text.split_once('+').map_or((text, ""), |(name, rest)| (name, rest));
        let complex = parameters.split('+').any(|word| word.eq_ignore_ascii_case("complex"));
        match name.strip_prefix("data_parser/").unwrap_or(name) {
            "" | PARSER => Ok(Wish { complex, ..wish }),
            "list" => Ok(Wish { list: true, ..wish }),
            "spur" => Ok(Wish { spur: true, ..wish }),
            other => {
                let kind = if yaml { "application/x-yaml" } else { "application/json" };
                Err(format!("{kind} output not supported by data_parser/{other}; write {PARSER} or spur"))
            }
        }
    }

    /// Returns the list of shapes, one per line.
    pub fn list() -> String {
        format!("data_parser/{PARSER}\nspur\n")
    }

    /// Returns a document of records of one `kind` (`jobs`, `nodes` …) in the requested shape; `slurm` has
    /// the records in Slurm's shape.
    pub fn listing<'a>(
        self,
        show: &Show,
        kind: &'a str,
        records: impl Serialize,
        slurm: impl Iterator<Item = Value> + 'a,
    ) -> String {
        if self.spur {
            return self.own_as_of(show.stale, [(kind, to_value(records))]);
        }
        let now = || value::time(Some(show.now)).into();
        let mut parts = vec![(kind, Part::records(slurm))];
        match kind {
            "jobs" => parts.extend([("last_backfill", value::time(None).into()), ("last_update", now())]),
            "steps" | "nodes" | "partitions" | "reservations" | "licenses" => {
                parts.push(("last_update", now()));
            }
            _ => {}
        }
        self.slurm(show, parts)
    }

    /// Returns a document in Spur's shape.
    pub fn own<'a>(self, kinds: impl IntoIterator<Item = (&'a str, Value)>) -> String {
        self.own_as_of(None, kinds)
    }

    /// Returns a document in Spur's shape. `stale` is the time since which the records may be out of date,
    /// in seconds since the Unix epoch.
    pub fn own_as_of<'a>(
        self,
        stale: Option<i64>,
        kinds: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> String {
        let mut document = json!({ "meta": { "spur": { "version": env!("CARGO_PKG_VERSION") } } });
        if let Some(since) = stale {
            document["meta"]["stale"] = since.into();
        }
        for (kind, records) in kinds {
            document[kind] = records;
        }
        document["errors"] = json!([]);
        self.print(&document, false)
    }

    /// Returns a document in Slurm's shape.
    pub fn slurm<'a>(self, show: &Show, kinds: impl IntoIterator<Item = (&'a str, Part<'a>)>) -> String {
        let mut document: BTreeMap<&str, Part<'a>> = kinds.into_iter().collect();
        document.insert("meta", meta(show).into());
        document.insert("errors", json!([]).into());
        document.insert("warnings", json!([]).into());
        if self.complex {
            document.values_mut().for_each(Part::make_plain);
        }
        self.print(&document, show.compact)
    }

    fn print(self, document: &impl Serialize, compact: bool) -> String {
        let written = match (self.yaml, compact) {
            (true, _) => {
                let text = serde_saphyr::to_string(document).expect("values have texts as keys");
                return format!("---\n{}\n", text.trim_end());
            }
            (false, true) => serde_json::to_string(document),
            (false, false) => serde_json::to_string_pretty(document),
        };
        let mut text = written.expect("values have texts as keys");
        text.push('\n');
        text
    }
}

/// Value of one key of a document.
pub enum Part<'a> {
    /// A value that is already built.
    Value(Value),
    /// Records that are converted one by one while they are written, because 100,000 converted jobs would
    /// take gigabytes. They can be written once.
    Records(Cell<Option<Box<dyn Iterator<Item = Value> + 'a>>>),
}

impl<'a> Part<'a> {
    /// Wraps records that are converted while they are written.
    pub fn records(values: impl Iterator<Item = Value> + 'a) -> Self {
        Part::Records(Cell::new(Some(Box::new(values))))
    }

    /// Replaces number objects by plain numbers, `"Infinity"` and nulls.
    fn make_plain(&mut self) {
        match self {
            Part::Value(value) => *value = plain(value.take()),
            Part::Records(records) => {
                let values = records.take().into_iter().flatten();
                *self = Part::records(values.map(plain));
            }
        }
    }
}

impl From<Value> for Part<'_> {
    fn from(value: Value) -> Self {
        Part::Value(value)
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Value(value) => value.serialize(serializer),
            Part::Records(records) => serializer.collect_seq(records.take().into_iter().flatten()),
        }
    }
}

/// Returns the metadata: the caller, the server and the shape.
fn meta(show: &Show) -> Value {
    let mut version = SLURM.split('.');
    let [major, minor, micro] = [version.next(), version.next(), version.next()];
    let asker = &show.asker;
    let mut meta = json!({
        "plugin": {
            "type": "", "name": "",
            "data_parser": format!("data_parser/{PARSER}"),
            "accounting_storage": "accounting_storage/slurmdbd",
        },
        "client": { "source": asker.terminal, "user": asker.user, "group": asker.group },
        "command": asker.command,
        "slurm": {
            "version": { "major": major, "micro": micro, "minor": minor },
            "release": SLURM,
            "cluster": show.cluster,
        },
        "spur": { "version": env!("CARGO_PKG_VERSION") },
    });
    if let Some(since) = show.stale {
        meta["stale"] = since.into();
    }
    meta
}

/// Replaces number objects by plain numbers, `"Infinity"` and nulls, and empty texts by null.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(fields) if fields.len() == 3 && fields.contains_key("infinite") => {
            match (fields["infinite"].as_bool(), fields["set"].as_bool()) {
                (Some(true), _) => json!("Infinity"),
                (_, Some(true)) => fields["number"].clone(),
                _ => Value::Null,
            }
        }
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::String(text) if text.is_empty() => Value::Null,
        other => other,
    }
}

/// Converts records to a value.
pub fn to_value(records: impl Serialize) -> Value {
    serde_json::to_value(records).expect("messages have string keys and finite numbers only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_named_as_with_slurm() {
        for text in ["", "v0.0.41", "data_parser/v0.0.41", "v0.0.41+fast"] {
            assert_eq!(Wish::read(text, false), Ok(Wish::default()), "{text}");
        }
        assert_eq!(
            Wish::read("v0.0.41+complex", true),
            Ok(Wish { yaml: true, complex: true, ..Wish::default() })
        );
        assert_eq!(Wish::read("spur", false), Ok(Wish { spur: true, ..Wish::default() }));
        let error = Wish::read("v0.0.39", false).unwrap_err();
        assert!(error.starts_with("application/json output not supported by data_parser/v0.0.39"), "{error}");
    }

    #[test]
    fn numbers_may_be_plain() {
        use super::value::{number, unlimited};
        let given =
            json!({ "a": number(Some(3)), "b": unlimited(None::<u32>), "c": number(None::<u32>), "d": [""] });
        assert_eq!(plain(given), json!({ "a": 3, "b": "Infinity", "c": null, "d": [null] }));
    }
}
