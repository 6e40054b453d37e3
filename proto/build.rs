//! Compiles the `.proto` files without a system `protoc`.

use std::path::Path;

use prost::Message;

/// Messages that clients print as JSON; the names of the fields are the names of the keys.
const SHOWN: [&str; 31] = [
    "AssociationRecord",
    "LimitValue",
    "TresShare",
    "UsageRecord",
    "AllocatedNodes",
    "CoreAsk",
    "Job",
    "Span",
    "Step",
    "Node",
    "FabricReport",
    "Neighbour",
    "IbPort",
    "Partition",
    "Reservation",
    "License",
    "Topology",
    "Domain",
    "AccountingRow",
    "Usage",
    "Spread",
    "PingResponse",
    "PriorityFactors",
    "AccountRecord",
    "UserRecord",
    "QosRecord",
    "LimitRecord",
    "GetStatisticsResponse",
    "Cycles",
    "RequestCount",
    "Stretch",
];

/// Keys under which users of Slurm expect these fields.
const SLURM_NAMES: [(&str, &str); 15] = [
    ("Job.id", "job_id"),
    ("Job.state", "job_state"),
    ("Job.uid", "user_id"),
    ("Job.user", "user_name"),
    ("Job.gid", "group_id"),
    ("Job.group", "group_name"),
    ("Job.reason", "state_reason"),
    ("Job.reason_detail", "state_description"),
    ("Job.num_nodes", "node_count"),
    ("Job.num_cpus", "cpus"),
    ("Job.num_tasks", "tasks"),
    ("Job.work_dir", "current_working_directory"),
    ("Job.stdin", "standard_input"),
    ("Job.stdout", "standard_output"),
    ("Job.stderr", "standard_error"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=spur");
    let files = ["controller", "agent", "step", "identity"].map(|name| format!("spur/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["."])?;
    let written = Path::new(&std::env::var("OUT_DIR")?).join("spur.bin");
    std::fs::write(written, descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::configure().bytes(".").codec_path("crate::codec::BoundedCodec");
    for message in SHOWN {
        config = config
            .type_attribute(message, "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(default)]");
    }
    for (field, name) in SLURM_NAMES {
        config = config.field_attribute(field, format!("#[serde(rename = \"{name}\")]"));
    }
    config =
        config.field_attribute("Job.reason", "#[serde(serialize_with = \"crate::convert::job::one_word\")]");
    config.compile_fds(descriptors)?;
    Ok(())
}
