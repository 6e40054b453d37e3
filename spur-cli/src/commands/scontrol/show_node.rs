//! The command `scontrol show node`.

use spur_proto::v1::Node;

use super::Settings;
use super::record::Record;
use crate::format::Show;
use crate::format::fields::node::{effective_cpus, host_and_port, state_flags};
use crate::format::value::{load, or, or_null, time};
use crate::version;

/// Returns the records of all nodes.
pub fn text(nodes: &[Node], settings: Settings, show: &Show) -> String {
    nodes.iter().map(|node| record(node, settings, show).text(settings.oneline)).collect()
}

fn record(node: &Node, settings: Settings, show: &Show) -> Record {
    let details = settings.details;
    let mut r = Record::default();
    r.line([("NodeName", node.name.clone())]);
    if !node.arch.is_empty() {
        r.more("Arch", &node.arch);
    }
    r.more("CoresPerSocket", &format!("{} ", node.cores_per_socket));
    r.line([
        ("CPUAlloc", node.cpus_allocated.to_string()),
        ("CPUEfctv", effective_cpus(node).to_string()),
        ("CPUTot", node.cpus.to_string()),
        ("CPULoad", load(node.load_hundredths)),
    ]);
    r.line([("AvailableFeatures", or_null(&node.features))]);
    r.line([("ActiveFeatures", or_null(&node.features))]);
    r.line([("Gres", or_null(&node.gres))]);
    if details {
        r.line([("GresUsed", or_null(&node.gres_used))]);
    }
    let (host, port) = host_and_port(&node.address);
    r.line([("NodeAddr", or(host, &node.name)), ("NodeHostName", or(&node.hostname, &node.name))]);
    if let Some(port) = port {
        r.more("Port", port);
    }
    if !node.version.is_empty() {
        r.more("Version", version::of_node(&node.version));
    }
    if !node.os.is_empty() {
        r.line_with_blank([("OS", node.os.clone())]);
    }
    r.line([
        ("RealMemory", node.memory_mb.to_string()),
        ("AllocMem", node.memory_allocated_mb.to_string()),
        ("FreeMem", node.memory_free_mb.map_or_else(|| "N/A".into(), |free| free.to_string())),
        ("Sockets", node.sockets.to_string()),
        ("Boards", "1".into()),
    ]);
    specialized(&mut r, node);
    r.line([
        ("State", state_flags(node)),
        ("ThreadsPerCore", node.threads_per_core.to_string()),
        ("TmpDisk", node.tmp_disk_mb.to_string()),
        ("Weight", node.weight.to_string()),
        ("Owner", "N/A".into()),
        ("MCS_label", "N/A".into()),
    ]);
    r.line_if("NextState", &node.next_state);
    r.line_with_blank([("Partitions", node.partitions.join(","))]);
    r.line([
        ("BootTime", time(node.boot_time, "None", show)),
        ("SlurmdStartTime", time(node.started_time, "None", show)),
    ]);
    r.line([
        ("LastBusyTime", time(node.last_busy_time, "Unknown", show)),
        ("ResumeAfterTime", "None".into()),
    ]);
    r.line([("CfgTRES", node.configured_tres.clone())]);
    r.line([("AllocTRES", node.allocated_tres.clone())]);
    if details && !node.jobs.is_empty() {
        let jobs: Vec<_> = node.jobs.iter().map(u32::to_string).collect();
        r.line([("Jobs", jobs.join(","))]);
    }
    circumstances(&mut r, node, settings, show);
    r
}

/// Adds the resources reserved for the system, if there are any.
fn specialized(r: &mut Record, node: &Node) {
    let cores =
        [("CoreSpecCount", node.core_spec_count.to_string()), ("CPUSpecList", node.cpu_spec_list.clone())];
    let memory = node.mem_spec_limit_mb.to_string();
    match (node.core_spec_count > 0, node.mem_spec_limit_mb > 0) {
        (true, true) => {
            r.line(cores);
            r.more("MemSpecLimit", &memory);
        }
        (true, false) => r.line_with_blank(cores),
        (false, true) => r.line([("MemSpecLimit", memory)]),
        (false, false) => {}
    }
}

/// Adds the keys that only some nodes have.
fn circumstances(r: &mut Record, node: &Node, settings: Settings, show: &Show) {
    if !node.reason.is_empty() {
        let since = time(node.reason_time, "Unknown", show);
        r.line([("Reason", format!("{} [{}@{since}]", node.reason, or(&node.reason_user, "Unknown")))]);
    }
    r.line_if("Comment", &node.owner_comment);
    r.line_if("Extra", &node.extra);
    r.line_if("Foreign", &node.foreign.join(","));
    if !node.predecessor.is_empty() {
        let until = time(node.predecessor_until, "Unknown", show);
        r.line([("TakenOverFrom", format!("{}@{until}", node.predecessor))]);
    }
    r.line_if("ReservationName", &node.reservation);
    r.line_if("Topology", &node.topology);
    r.line_if("ReportedTopology", &node.reported_topology);
    r.line_if("SpurVersion", &node.version);
    if settings.own {
        r.line_if("SwitchPath", &node.switch_path);
        r.line_if("Containment", &node.containment);
    }
}
