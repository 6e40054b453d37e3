//! Random histories that once exposed an error of the planner, stored in `tests/data/history`.
//!
//! The first line of a file describes the failure and the cluster, and every other line is a deed. A failing
//! property prints such a file.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spur_core::model::config::{PreemptPolicy, SchedulerPolicy};

use crate::daemon::{self, Turn};
use crate::stream::{self, Case, Deed};

/// Description of a case without its deeds.
#[derive(Serialize, Deserialize)]
struct Head {
    about: String,
    scheduler: Value,
    preempt: Value,
    exempt: Option<u64>,
    partitions: Vec<(u32, u32, u32)>,
    flat: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<(u32, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adjacent: Option<(u32, bool)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<String>,
    /// The turns of a deep pass, each with its time and whether the pass ends then, for a planner that is
    /// driven as a daemon drives it.
    deep: Option<Vec<Turn>>,
}

/// Settings that differ from their defaults.
fn unusual<T: Serialize + Default>(policy: &T) -> Value {
    let (mut said, usual) =
        (serde_json::to_value(policy).unwrap(), serde_json::to_value(T::default()).unwrap());
    if let (Value::Object(said), Value::Object(usual)) = (&mut said, usual) {
        said.retain(|key, value| usual.get(key) != Some(value));
    }
    said
}

/// Writes a history as a file.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, case: &Case, deep: Option<&[Turn]>) -> fmt::Result {
    let head = Head {
        about: "?".to_owned(),
        scheduler: unusual(&case.scheduler),
        preempt: unusual(&case.preempt),
        exempt: case.exempt,
        partitions: case.partitions.clone(),
        flat: case.flat,
        rule: case.rule,
        adjacent: case.adjacent,
        limits: case.limits.clone(),
        deep: deep.map(|deep| deep[..case.deeds.len().min(deep.len())].to_vec()),
    };
    let lines = case.deeds.iter().map(|deed| serde_json::to_string(deed).unwrap());
    let lines: Vec<String> = std::iter::once(serde_json::to_string(&head).unwrap()).chain(lines).collect();
    write!(f, "{}", lines.join(if f.alternate() { "\n" } else { " " }))
}

fn read(text: &str) -> (Case, Option<Vec<Turn>>) {
    let mut lines = text.lines();
    let head: Head = serde_json::from_str(lines.next().expect("a first line")).expect("a head");
    let deeds = lines.map(|line| serde_json::from_str::<Deed>(line).expect("a deed"));
    let case = Case {
        scheduler: serde_json::from_value::<SchedulerPolicy>(head.scheduler).expect("a policy"),
        preempt: serde_json::from_value::<PreemptPolicy>(head.preempt).expect("a policy"),
        exempt: head.exempt,
        partitions: head.partitions,
        flat: head.flat,
        rule: head.rule,
        adjacent: head.adjacent,
        limits: head.limits,
        deeds: deeds.collect(),
    };
    (case, head.deep)
}

#[test]
fn histories_do_not_lead_astray_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/history");
    let files = std::fs::read_dir(&folder).expect("the folder of histories");
    let mut files: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there are histories in {}", folder.display());
    let mut wrong = Vec::new();
    for file in files {
        let (case, deep) = read(&std::fs::read_to_string(&file).expect("a history"));
        let result = match deep {
            Some(deep) => daemon::agrees(&case, &deep),
            None => stream::agrees(&case),
        };
        wrong.extend(result.err().map(|error| format!("{}: {error}", file.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
