//! Steps in the shape of `squeue -s --json` and `scontrol show step --json`.

use serde_json::{Value, json};
use spur_proto::v1::Step;

use super::value::{number, time, unlimited};
use crate::format::Show;
use crate::format::fields::step::{id, used};

/// Returns a step as an object with Slurm's keys.
pub fn step(step: &Step, show: &Show) -> Value {
    json!({
        "array": {
            "job_id": step.array_job_id.unwrap_or(0),
            "task_id": number(step.array_task_id),
        },
        "cluster": show.cluster,
        "container": "",
        "container_id": "",
        "cpu": {
            "frequency": {
                "min": number(None::<u32>), "max": number(None::<u32>), "governor": number(None::<u32>),
            },
        },
        "tres": {
            "allocation": step.tres,
            "binding": "",
            "frequency": "",
            "per": { "cpu": "", "memory": "", "step": "", "node": "", "socket": "", "task": "" },
        },
        "name": step.name,
        "network": "",
        "nodes": step.nodes,
        "number_cpus": step.cpus,
        "number_tasks": step.tasks,
        "partition": step.partition,
        "reserved_ports": "",
        "time": {
            "running": number(Some(used(step, show))),
            "start": time(Some(step.start_time)),
            "limit": unlimited(step.time_limit.map(|seconds| seconds.div_ceil(60))),
        },
        "srun": { "host": "", "pid": 0 },
        "state": [step.state],
        "id": id(step),
        "stdin": "", "stdout": "", "stderr": "",
        "stdin_expanded": "", "stdout_expanded": "", "stderr_expanded": "",
        "submit_line": step.submit_line,
        "task": { "distribution": step.layout },
        "user": step.user,
    })
}
