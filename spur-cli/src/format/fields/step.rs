//! Fields of `squeue -s` for steps.

use spur_core::text::hostlist::compare_names;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_proto::v1::Step;

use crate::format::value::{limit, or_null, time};
use crate::format::{Field, Show, Table};

/// A step of a job.
pub type Row = Step;

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    text: fn(&Step, &Show) -> String,
) -> Field<Step> {
    Field::new(Some(letter), name, header, text)
}

const fn named(name: &'static str, header: &'static str, text: fn(&Step, &Show) -> String) -> Field<Step> {
    Field::new(None, name, header, text)
}

fn null(_: &Step, _: &Show) -> String {
    "(null)".to_owned()
}

/// Table of the fields of steps.
pub static TABLE: Table<Step> = Table { records: "job step", fields: FIELDS, bars: ["|", "|", "|"] };

/// All fields of steps.
pub const FIELDS: &[Field<Step>] = &[
    // The header is Slurm's.
    field('b', "tres-per-node", "TRES_PER_JOB", null),
    field('i', "StepID", "STEPID", |s, _| id(s)).by(|a, b| key(a).cmp(&key(b))),
    field('j', "StepName", "NAME", |s, _| s.name.clone()),
    field('l', "TimeLimit", "TIME_LIMIT", |s, _| limit(s.time_limit, "UNLIMITED")),
    field('u', "UserName", "USER", |s, _| s.user.clone()),
    field('A', "NumTasks", "TASKS", |s, _| s.tasks.to_string()).by(|a, b| a.tasks.cmp(&b.tasks)),
    field('M', "TimeUsed", "TIME", |s, show| limit(Some(used(s, show)), ""))
        .by(|a, b| b.start_time.cmp(&a.start_time))
        .span(),
    field('N', "Nodes", "NODELIST", |s, _| s.nodes.clone()).by(|a, b| compare_names(&a.nodes, &b.nodes)),
    field('P', "Partition", "PARTITION", |s, _| s.partition.clone()),
    field('S', "StartTime", "START_TIME", |s, show| time(Some(s.start_time), "N/A", show))
        .by(|a, b| a.start_time.cmp(&b.start_time)),
    field('U', "UserID", "UID", |s, _| s.uid.to_string()).by(|a, b| a.uid.cmp(&b.uid)),
    named("ArrayJobID", "ARRAY_JOB_ID", |s, _| s.array_job_id.unwrap_or(0).to_string()),
    named("ArrayTaskID", "ARRAY_TASK_ID", |s, _| {
        s.array_task_id.map_or_else(|| "N/A".to_owned(), |task| task.to_string())
    }),
    named("Cluster", "CLUSTER", |_, show| show.cluster.clone()),
    named("Container", "CONTAINER", null),
    named("ContainerID", "CONTAINER_ID", null),
    named("CPUFreq", "CPU_FREQ", |_, _| "0-0:0".to_owned()),
    named("cpus-per-tres", "CPUS_PER_TRES", null),
    named("JobID", "JOB_ID", |s, _| s.job_id.to_string()).by(|a, b| a.job_id.cmp(&b.job_id)),
    named("mem-per-tres", "MEM_PER_TRES", null),
    named("Network", "NETWORK", null),
    named("NumCPUs", "NUM_CPUS", |s, _| s.cpus.to_string()).by(|a, b| a.cpus.cmp(&b.cpus)),
    named("ResvPorts", "RESV_PORTS", null),
    named("StepState", "STATE", |s, _| or_null(&s.state)),
    named("SubmitLine", "SUBMIT_LINE", |s, _| or_null(&s.submit_line)),
    named("tres-bind", "TRES_BIND", null),
    named("tres-freq", "TRES_FREQ", null),
    named("tres-per-socket", "TRES_PER_SOCKET", null),
    named("tres-per-step", "TRES_PER_STEP", null),
    named("tres-per-task", "TRES_PER_TASK", null),
];

/// Formats the step's id: `12.0`, `12.batch`, or `12_3.0` for a task of an array. Components of het jobs have
/// their own numbers here, as with Slurm.
pub fn id(step: &Step) -> String {
    match (step.array_job_id, step.array_task_id) {
        (Some(array), Some(task)) => format!("{array}_{task}.{}", step.step_id),
        _ => format!("{}.{}", step.job_id, step.step_id),
    }
}

/// True if `wanted` refers to the step, by its job's number or by the array or het job that contains the job.
pub fn is_meant(step: &Step, wanted: &JobRef) -> bool {
    let is = |number: Option<u32>| number == Some(wanted.job);
    let job = match &wanted.part {
        JobPart::Whole => wanted.job == step.job_id || is(step.array_job_id) || is(step.het_job_id),
        JobPart::Tasks(tasks) => {
            is(step.array_job_id) && step.array_task_id.is_some_and(|task| tasks.contains(task))
        }
        JobPart::Component(offset) => is(step.het_job_id) && step.het_job_offset == Some(*offset),
    };
    job && wanted.step.is_none_or(|wanted| wanted.to_string() == step.step_id)
}

/// Returns the sort key: numbered steps in order, then `batch`.
fn key(step: &Step) -> (u32, u32, &str) {
    (step.job_id, step.step_id.parse().unwrap_or(u32::MAX), &step.step_id)
}

/// Returns the seconds that the step has run.
pub fn used(step: &Step, show: &Show) -> u64 {
    let until = step.suspended_since.unwrap_or(show.now);
    u64::try_from(until - step.start_time).unwrap_or(0).saturating_sub(step.suspended_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shown_and_meant() {
        let task = Step {
            job_id: 13,
            step_id: "0".into(),
            array_job_id: Some(12),
            array_task_id: Some(3),
            ..Step::default()
        };
        let part = Step {
            job_id: 21,
            step_id: "batch".into(),
            het_job_id: Some(20),
            het_job_offset: Some(1),
            ..Step::default()
        };
        let alone = Step { job_id: 5, step_id: "0".into(), ..Step::default() };
        for (step, shown, meant, others) in [
            (&task, "12_3.0", "12 12.0 12_3 12_[1-3].0 13 13.0", "12_4 12_3.1 12+3 3"),
            (&part, "21.batch", "20 20+1 20+1.batch 21 21.batch", "20+0 20_1 20+1.0"),
            (&alone, "5.0", "5 5.0", "5_0 5+0 5.1"),
        ] {
            assert_eq!(id(step), shown);
            let is = |text: &str| is_meant(step, &text.parse().expect("a step"));
            assert!(meant.split(' ').all(is), "{shown}: {meant}");
            assert!(!others.split(' ').any(is), "{shown}: {others}");
        }
    }
}
