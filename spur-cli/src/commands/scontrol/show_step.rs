//! The command `scontrol show step`.

use spur_core::text::hostlist::HostList;
use spur_proto::v1::Step;

use super::record::Record;
use crate::format::Show;
use crate::format::fields::step::id;
use crate::format::value::{long_limit, time};

/// Returns the records of all steps.
pub fn text(steps: &[Step], oneline: bool, show: &Show) -> String {
    steps.iter().map(|step| record(step, show).text(oneline)).collect()
}

fn record(step: &Step, show: &Show) -> Record {
    let nodes = step.nodes.parse::<HostList>().map_or(0, |nodes| nodes.len());
    let mut r = Record::default();
    r.line([
        ("StepId", id(step)),
        ("UserId", step.uid.to_string()),
        ("StartTime", time(Some(step.start_time), "Unknown", show)),
        ("TimeLimit", long_limit(step.time_limit)),
    ]);
    r.line([
        ("State", step.state.clone()),
        ("Partition", step.partition.clone()),
        ("NodeList", step.nodes.clone()),
    ]);
    r.line([
        ("Nodes", nodes.to_string()),
        ("CPUs", step.cpus.to_string()),
        ("Tasks", step.tasks.to_string()),
        ("Name", step.name.clone()),
        ("Network", "(null)".into()),
    ]);
    // Slurm prints no resources for the batch step.
    let tres = match step.step_id.as_str() {
        "batch" => "(null)".to_owned(),
        _ => step.tres.clone(),
    };
    r.line([("TRES", tres)]);
    r.line([("ResvPorts", "(null)".into())]);
    r.line([("CPUFreqReq", "Default".into())]);
    if !step.layout.is_empty() {
        r.more("Dist", &step.layout);
    }
    r.line([("SrunHost:Pid", "(null):0".into())]);
    r
}
