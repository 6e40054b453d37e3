//! What `squeue -s` can print of a step.

use spur_core::text::hostlist::compare_names;
use spur_proto::v1::Step;

use crate::format::value::{limit, or_null, time};
use crate::format::{Field, Show};

/// A step.
pub type Row = Step;

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    text: fn(&Step, &Show) -> String,
) -> Field<Step> {
    Field::new(Some(letter), name, header, text)
}

/// All fields.
pub const FIELDS: &[Field<Step>] = &[
    field('A', "NumTasks", "TASKS", |s, _| s.tasks.to_string()).by(|a, b| a.tasks.cmp(&b.tasks)),
    field('C', "NumCPUs", "CPUS", |s, _| s.cpus.to_string()).by(|a, b| a.cpus.cmp(&b.cpus)),
    field('i', "StepID", "STEPID", |s, _| id(s)).by(|a, b| key(a).cmp(&key(b))),
    field('j', "StepName", "NAME", |s, _| s.name.clone()),
    field('l', "TimeLimit", "TIME_LIMIT", |_, _| "UNLIMITED".to_owned()),
    field('M', "TimeUsed", "TIME", |s, show| limit(Some(used(s, show)), ""))
        .by(|a, b| b.start_time.cmp(&a.start_time))
        .span(),
    field('N', "Nodes", "NODELIST", |s, _| s.nodes.clone()).by(|a, b| compare_names(&a.nodes, &b.nodes)),
    field('P', "Partition", "PARTITION", |s, _| s.partition.clone()),
    field('S', "StartTime", "START_TIME", |s, show| time(Some(s.start_time), "N/A", show))
        .by(|a, b| a.start_time.cmp(&b.start_time)),
    field('T', "StepState", "STATE", |s, _| or_null(&s.state)),
    field('u', "UserName", "USER", |s, _| s.user.clone()),
];

/// `12.0`, `12.batch`.
pub fn id(step: &Step) -> String {
    format!("{}.{}", step.job_id, step.step_id)
}

/// Numbered steps in order, `batch` behind them.
fn key(step: &Step) -> (u32, u32, &str) {
    (step.job_id, step.step_id.parse().unwrap_or(u32::MAX), &step.step_id)
}

fn used(step: &Step, show: &Show) -> u64 {
    let until = step.suspended_since.unwrap_or(show.now);
    u64::try_from(until - step.start_time).unwrap_or(0).saturating_sub(step.suspended_secs)
}
