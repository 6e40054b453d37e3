//! Changes that `scontrol` makes to partitions and nodes, key by key, in Slurm's spelling.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use super::{NodeConfig, Oversubscribe, PartitionConfig, PartitionState, PreemptMode};
use crate::model::node::{NodeGres, NodeShape, check_shards};
use crate::text::gather::is_layer_name;
use crate::text::gres::GresList;
use crate::text::hostlist::HostList;
use crate::text::memory::MemoryMb;
use crate::text::nearest::nearest;
use crate::text::time::{Seconds, TimeLimit};
use crate::text::weights::TresWeights;

/// The names that a partition may refer to.
pub struct Known<'a> {
    /// The nodes, in their order in the table of nodes.
    pub nodes: &'a [Arc<str>],
    /// Names of the partitions.
    pub partitions: &'a [Arc<str>],
    /// Names of the topologies.
    pub topologies: &'a [Arc<str>],
    /// The QOS; empty if QOS have no meaning.
    pub qos: &'a [Arc<str>],
}

/// Keys of partitions that can be changed, in Slurm's spelling; compared without regard to case.
pub const PARTITION_KEYS: [&str; 41] = [
    "AllocNodes",
    "AllowAccounts",
    "AllowGroups",
    "AllowQos",
    "Alternate",
    "CpuBind",
    "Default",
    "DefaultQos",
    "DefaultTime",
    "DefMemPerCPU",
    "DefMemPerNode",
    "DenyAccounts",
    "DenyQos",
    "DisableRootJobs",
    "ExclusiveUser",
    "GraceTime",
    "Hidden",
    "JobDefaults",
    "LLN",
    "MaxCPUsPerNode",
    "MaxCPUsPerSocket",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MaxNodes",
    "MaxTime",
    "MinNodes",
    "Nodes",
    "OverSubscribe",
    "OverTimeLimit",
    "Placement",
    "PreemptMode",
    "Priority",
    "PriorityJobFactor",
    "PriorityTier",
    "QOS",
    "ReqResv",
    "RootOnly",
    "Shared",
    "State",
    "Topology",
    "TRESBillingWeights",
];

/// Keys of partitions that are known and have one value here, which is the one that leaves everything as it
/// is.
pub const PARTITION_KEYS_OF_ONE_VALUE: [(&str, &[&str]); 4] = [
    ("CpuBind", &["", "off", "none"]),
    ("ExclusiveUser", &["no"]),
    ("LLN", &["no"]),
    ("OverTimeLimit", &["none", "0"]),
];

/// Keys of nodes that can be given at creation, in Slurm's spelling.
pub const NODE_KEYS: [&str; 17] = [
    "AvailableFeatures",
    "Boards",
    "CoreSpecCount",
    "CoresPerSocket",
    "CPUs",
    "CPUSpecList",
    "Features",
    "Gres",
    "MemSpecLimit",
    "Procs",
    "RealMemory",
    "Sockets",
    "SocketsPerBoard",
    "State",
    "ThreadsPerCore",
    "TmpDisk",
    "Weight",
];

/// Finds a key by its name, or by an unambiguous beginning of the name of at least three letters.
fn meant(key: &str, known: &[&'static str]) -> Result<&'static str, String> {
    let exact = known.iter().find(|name| name.eq_ignore_ascii_case(key));
    let begins = |name: &&&'static str| {
        key.len() >= 3 && name.get(..key.len()).is_some_and(|start| start.eq_ignore_ascii_case(key))
    };
    let mut begun = known.iter().filter(begins);
    match (exact, begun.next(), begun.next()) {
        (Some(exact), ..) | (None, Some(exact), None) => Ok(exact),
        _ => {
            let hint = nearest(key, known.iter().copied());
            let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            Err(format!("Update of this parameter is not supported: {key}{hint}"))
        }
    }
}

/// Changes one key of a partition.
///
/// # Errors
/// An unknown key or a value that it cannot have; nothing is changed then.
pub fn partition(
    config: &mut PartitionConfig,
    key: &str,
    value: &str,
    known: &Known<'_>,
) -> Result<(), String> {
    let key = meant(key, &PARTITION_KEYS)?;
    if let Some((_, values)) = PARTITION_KEYS_OF_ONE_VALUE.iter().find(|(name, _)| *name == key) {
        let fits = values.iter().any(|known| known.eq_ignore_ascii_case(value));
        return if fits { Ok(()) } else { Err(format!("{key}={value}: not supported by Spur")) };
    }
    let wrong = |problem: String| format!("Invalid input: {key}={value}: {problem}");
    set(config, key, value, known).map_err(wrong)
}

/// `DefCpuPerGPU=COUNT,DefMemPerGPU=MB`, of which either may be missing: both values.
///
/// # Errors
/// Another key, or a value that is no number.
pub fn job_defaults(value: &str) -> Result<(Option<u32>, Option<u64>), String> {
    let (mut cpus, mut mb) = (None, None);
    let items = if is_nothing(value) { "" } else { value };
    for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item.split_once('=').map(|(key, value)| (key.to_ascii_lowercase(), value)) {
            Some((key, value)) if key == "defcpupergpu" => cpus = Some(at_least_one(value)?),
            Some((key, value)) if key == "defmempergpu" => mb = memory(value)?,
            _ => return Err(format!("`{item}` is none of DefCpuPerGPU=COUNT and DefMemPerGPU=MB")),
        }
    }
    Ok((cpus, mb))
}

fn set(config: &mut PartitionConfig, key: &str, value: &str, known: &Known<'_>) -> Result<(), String> {
    match key {
        "AllocNodes" => config.alloc_nodes = hosts(value)?,
        "AllowAccounts" => config.allow_accounts = list(value),
        "AllowGroups" => config.allow_groups = list(value),
        "AllowQos" => config.allow_qos = of(list(value), known.qos, "QOS")?,
        "Alternate" => {
            let name = (!is_nothing(value)).then(|| Arc::from(value));
            config.alternate = of(name.into_iter().collect(), known.partitions, "partition")?.pop();
        }
        "Default" => config.default = flag(value)?,
        "DefaultQos" => {
            let name = (!is_nothing(value)).then(|| Arc::from(value));
            config.default_qos = of(name.into_iter().collect(), known.qos, "QOS")?.pop();
        }
        "QOS" => {
            let name = (!is_nothing(value)).then(|| Arc::from(value));
            config.qos = of(name.into_iter().collect(), known.qos, "QOS")?.pop();
        }
        "DefaultTime" => {
            config.default_time = if is_nothing(value) { None } else { Some(read::<TimeLimit>(value)?) }
        }
        "DefMemPerCPU" => (config.def_mem_per_cpu, config.def_mem_per_node) = (memory(value)?, None),
        "DefMemPerNode" => (config.def_mem_per_node, config.def_mem_per_cpu) = (memory(value)?, None),
        "DenyAccounts" => config.deny_accounts = list(value),
        "DenyQos" => config.deny_qos = of(list(value), known.qos, "QOS")?,
        "DisableRootJobs" => config.disable_root_jobs = flag(value)?,
        "GraceTime" => config.grace_time = Some(Seconds(read::<u64>(value)?)),
        "Hidden" => config.hidden = flag(value)?,
        "JobDefaults" => (config.def_cpu_per_gpu, config.def_mem_per_gpu) = job_defaults(value)?,
        "MaxMemPerCPU" => (config.max_mem_per_cpu, config.max_mem_per_node) = (memory(value)?, None),
        "MaxMemPerNode" => (config.max_mem_per_node, config.max_mem_per_cpu) = (memory(value)?, None),
        "MaxCPUsPerNode" => config.max_cpus_per_node = most(value)?,
        "MaxCPUsPerSocket" => config.max_cpus_per_socket = most(value)?,
        "MaxNodes" => config.max_nodes = most(value)?,
        "MaxTime" => config.max_time = read(value)?,
        "MinNodes" => config.min_nodes = read(value)?,
        "Nodes" => members(config, value, known.nodes)?,
        "OverSubscribe" | "Shared" => config.oversubscribe = oversubscribe(value)?,
        "Placement" => config.placement = read(value)?,
        "PreemptMode" => config.preempt_mode = preempt_mode(value)?,
        "Priority" => {
            (config.priority_tier, config.priority_job_factor) = (priority(value)?, priority(value)?)
        }
        "PriorityJobFactor" => config.priority_job_factor = priority(value)?,
        "PriorityTier" => config.priority_tier = priority(value)?,
        "ReqResv" => config.req_resv = flag(value)?,
        "RootOnly" => config.root_only = flag(value)?,
        "State" => config.state = state(value)?,
        "TRESBillingWeights" => {
            config.tres_billing_weights =
                if is_nothing(value) { TresWeights::default() } else { read(value)? };
        }
        _ => {
            let name = (!is_nothing(value)).then(|| Arc::from(value));
            config.topology = of(name.into_iter().collect(), known.topologies, "topology")?.pop();
        }
    }
    Ok(())
}

/// Sets one key of a node that is created.
///
/// # Errors
/// An unknown key or a value that it cannot have.
pub fn node(config: &mut NodeConfig, key: &str, value: &str) -> Result<(), String> {
    let key = meant(key, &NODE_KEYS)?;
    let shape = &mut config.shape;
    let done = match key {
        "AvailableFeatures" | "Features" => {
            shape.features = list(value);
            Ok(())
        }
        "Boards" => match value {
            "1" => Ok(()),
            _ => Err("a node has one board here; give its Sockets".to_owned()),
        },
        "CoreSpecCount" => read(value).map(|count| config.core_spec_count = count),
        "CoresPerSocket" => at_least_one(value).map(|count| shape.cores_per_socket = count),
        "CPUs" | "Procs" => at_least_one(value).map(|count| shape.cpus = count),
        "CPUSpecList" => read(value).map(|cpus| config.cpu_spec_list = cpus),
        "Gres" => devices(value).map(|gres| shape.gres = gres),
        "MemSpecLimit" => read::<MemoryMb>(value).map(|memory| config.mem_spec_limit = memory.0),
        "RealMemory" => read::<MemoryMb>(value).map(|memory| shape.memory_mb = memory.0),
        "Sockets" | "SocketsPerBoard" => at_least_one(value).map(|count| shape.sockets = count),
        // A created node is in service once its daemon has registered, whatever its state is called until
        // then.
        "State" if ["CLOUD", "FUTURE", "UNKNOWN"].iter().any(|state| state.eq_ignore_ascii_case(value)) => {
            Ok(())
        }
        "State" => Err("write CLOUD or FUTURE".to_owned()),
        "ThreadsPerCore" => at_least_one(value).map(|count| shape.threads_per_core = count),
        "TmpDisk" => read::<MemoryMb>(value).map(|disk| shape.tmp_disk_mb = disk.0),
        _ => read::<u32>(value).map(|weight| config.weight = weight),
    };
    done.map_err(|problem| format!("Invalid input: {key}={value}: {problem}"))
}

/// Checks the name of a node that is created, and completes and checks its numbers. CPUs must match sockets,
/// cores and threads, and the specialized ones must leave some for jobs.
///
/// # Errors
/// A message about an invalid name or a contradiction.
pub fn complete(config: &mut NodeConfig) -> Result<(), String> {
    if !is_layer_name(&config.name) {
        return Err(format!(
            "`{}` cannot be the name of a node; use letters, digits, `_`, `-` and `.`",
            config.name
        ));
    }
    layout(&mut config.shape)?;
    config.specialized_wrongly().map_or(Ok(()), |(_, problem)| Err(problem))
}

/// Completes the CPUs, sockets, cores and threads of a node.
fn layout(shape: &mut NodeShape) -> Result<(), String> {
    let parts = [shape.sockets, shape.cores_per_socket, shape.threads_per_core];
    if parts == [0; 3] {
        return Ok(());
    }
    let given = shape.cpus;
    let product: u32 = parts.iter().map(|part| (*part).max(1)).product();
    if shape.sockets == 0 && given > 0 {
        shape.sockets = (given / product).max(1);
    }
    for part in [&mut shape.sockets, &mut shape.cores_per_socket, &mut shape.threads_per_core] {
        *part = (*part).max(1);
    }
    let product = shape.sockets * shape.cores_per_socket * shape.threads_per_core;
    if given != 0 && given != product {
        return Err(format!("CPUs={given} is not what sockets, cores and threads come to: {product}"));
    }
    shape.cpus = product;
    Ok(())
}

/// Devices of a node in the format of `Gres=`.
///
/// # Errors
/// A message about the first invalid item, or about shards that do not fit the GPUs.
pub fn devices(value: &str) -> Result<Vec<NodeGres>, String> {
    if is_nothing(value) {
        return Ok(Vec::new());
    }
    let gres = read::<GresList>(value)?.0.into_iter().map(|spec| {
        let count = u32::try_from(spec.count).map_err(|_| format!("{} are too many", spec.count))?;
        Ok(NodeGres { name: spec.name.into(), kind: spec.kind.unwrap_or_default().into(), count })
    });
    let gres = gres.collect::<Result<Vec<NodeGres>, String>>()?;
    check_shards(&gres)?;
    Ok(gres)
}

fn read<T: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn at_least_one(value: &str) -> Result<u32, String> {
    read(value).and_then(|count| if count > 0 { Ok(count) } else { Err("must be at least 1".to_owned()) })
}

fn priority(value: &str) -> Result<u32, String> {
    read(value)
        .and_then(|count| if count <= 65_533 { Ok(count) } else { Err("must be at most 65533".to_owned()) })
}

/// A limit of at least 1; `None` for the words of no limit.
fn most(value: &str) -> Result<Option<u32>, String> {
    if is_unlimited(value) { Ok(None) } else { at_least_one(value).map(Some) }
}

fn is_unlimited(value: &str) -> bool {
    ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// True for the words that Slurm prints for an empty value.
fn is_nothing(value: &str) -> bool {
    ["", "NONE", "(null)", "N/A"].iter().any(|word| word.eq_ignore_ascii_case(value))
}

fn memory(value: &str) -> Result<Option<u64>, String> {
    if is_unlimited(value) {
        return Ok(None);
    }
    read::<MemoryMb>(value).map(|memory| Some(memory.0).filter(|memory| *memory > 0))
}

fn flag(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("acceptable values are YES and NO".to_owned()),
    }
}

/// The items of a list; none for `ALL` and for an empty value.
fn list(value: &str) -> Vec<Arc<str>> {
    if is_nothing(value) || value.eq_ignore_ascii_case("ALL") {
        return Vec::new();
    }
    value.split(',').filter(|item| !item.is_empty()).map(Arc::from).collect()
}

fn hosts(value: &str) -> Result<Vec<Arc<str>>, String> {
    if is_nothing(value) || value.eq_ignore_ascii_case("ALL") {
        return Ok(Vec::new());
    }
    read::<HostList>(value).map(|hosts| hosts.iter().map(Arc::from).collect())
}

/// The names, if all of them are known.
fn of(names: Vec<Arc<str>>, known: &[Arc<str>], what: &str) -> Result<Vec<Arc<str>>, String> {
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        let there = known.join(", ");
        return Err(match there.as_str() {
            "" => format!("there is no {what} {name}, nor any other"),
            _ => format!("there is no {what} {name}; there is {there}"),
        });
    }
    Ok(names)
}

fn oversubscribe(value: &str) -> Result<Oversubscribe, String> {
    let word = value.split(':').next().unwrap_or_default();
    match word.to_ascii_uppercase().as_str() {
        "NO" => Ok(Oversubscribe::No),
        "EXCLUSIVE" => Ok(Oversubscribe::Exclusive),
        "YES" | "FORCE" => Err("jobs share nodes by CPUs, never CPUs; write NO or EXCLUSIVE".to_owned()),
        _ => Err("acceptable values are NO and EXCLUSIVE".to_owned()),
    }
}

fn preempt_mode(value: &str) -> Result<Option<PreemptMode>, String> {
    match value.to_ascii_uppercase().as_str() {
        "" => Ok(None),
        "OFF" => Ok(Some(PreemptMode::Off)),
        "CANCEL" => Ok(Some(PreemptMode::Cancel)),
        "REQUEUE" => Ok(Some(PreemptMode::Requeue)),
        "SUSPEND" => Ok(Some(PreemptMode::Suspend)),
        _ => Err("acceptable values are OFF, CANCEL, REQUEUE and SUSPEND".to_owned()),
    }
}

fn state(value: &str) -> Result<PartitionState, String> {
    match value.to_ascii_uppercase().as_str() {
        "UP" => Ok(PartitionState::Up),
        "DOWN" => Ok(PartitionState::Down),
        "DRAIN" => Ok(PartitionState::Drain),
        "INACTIVE" => Ok(PartitionState::Inactive),
        _ => {
            let hint = nearest(value, ["UP", "DOWN", "DRAIN", "INACTIVE"]);
            let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            Err(format!("acceptable State values are UP, DOWN, DRAIN, INACTIVE{hint}"))
        }
    }
}

/// Sets the nodes of a partition: to a list or `ALL`, or adds (`+n3`) or removes (`-n3`) nodes.
fn members(config: &mut PartitionConfig, value: &str, known: &[Arc<str>]) -> Result<(), String> {
    if value.eq_ignore_ascii_case("ALL") {
        config.all_nodes = true;
        config.nodes = known.to_vec();
        return Ok(());
    }
    let (sign, written) = match value.strip_prefix(['+', '-']) {
        Some(rest) => (value.get(..1), rest),
        None => (None, value),
    };
    let named: BTreeSet<Arc<str>> = hosts(written)?.into_iter().collect();
    if let Some(name) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!("Invalid node name specified: {name}"));
    }
    let has: BTreeSet<Arc<str>> = config.nodes.iter().cloned().collect();
    let now: BTreeSet<Arc<str>> = match sign {
        Some("+") => has.union(&named).cloned().collect(),
        Some(_) => has.difference(&named).cloned().collect(),
        None => named,
    };
    config.all_nodes = config.all_nodes && sign == Some("+");
    config.nodes = known.iter().filter(|name| now.contains(*name)).cloned().collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<Arc<str>> {
        text.split_whitespace().map(Arc::from).collect()
    }

    fn changed(line: &str) -> Result<PartitionConfig, String> {
        let nodes = names("n1 n2 n3");
        let (partitions, qos) = (names("debug long"), names("high"));
        let known = Known { nodes: &nodes, partitions: &partitions, topologies: &[], qos: &qos };
        let mut config =
            PartitionConfig { name: "debug".into(), nodes: names("n1 n2"), ..PartitionConfig::default() };
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').expect("KEY=VALUE");
            partition(&mut config, key, value, &known)?;
        }
        Ok(config)
    }

    #[test]
    fn every_key_changes_what_it_says() {
        let base =
            PartitionConfig { name: "debug".into(), nodes: names("n1 n2"), ..PartitionConfig::default() };
        for (line, wanted) in [
            ("MaxTime=60", PartitionConfig { max_time: TimeLimit::Seconds(3600), ..base.clone() }),
            ("maxtime=INFINITE DefaultTime=NONE", base.clone()),
            ("default=YES", PartitionConfig { default: true, ..base.clone() }),
            ("Nodes=+n3", PartitionConfig { nodes: names("n1 n2 n3"), ..base.clone() }),
            ("Nodes=-n1", PartitionConfig { nodes: names("n2"), ..base.clone() }),
            ("Nodes=n[2-3]", PartitionConfig { nodes: names("n2 n3"), ..base.clone() }),
            ("nodes=ALL", PartitionConfig { nodes: names("n1 n2 n3"), all_nodes: true, ..base.clone() }),
            ("State=drain", PartitionConfig { state: PartitionState::Drain, ..base.clone() }),
            ("DefMemPerNode=2G", PartitionConfig { def_mem_per_node: Some(2048), ..base.clone() }),
            ("DefMemPerCPU=5 DefMemPerNode=UNLIMITED", base.clone()),
            ("QOS=high", PartitionConfig { qos: Some("high".into()), ..base.clone() }),
            ("DefaultQos=high", PartitionConfig { default_qos: Some("high".into()), ..base.clone() }),
            ("AllowQos=high", PartitionConfig { allow_qos: names("high"), ..base.clone() }),
            ("AllowAccounts=a,b AllowAccounts=ALL", base.clone()),
            ("Alternate=long", PartitionConfig { alternate: Some("long".into()), ..base.clone() }),
            ("Priority=7", PartitionConfig { priority_tier: 7, priority_job_factor: 7, ..base.clone() }),
            ("LLN=NO ExclusiveUser=no OverTimeLimit=NONE MaxCPUsPerNode=UNLIMITED", base.clone()),
            ("MaxCPUsPerNode=28", PartitionConfig { max_cpus_per_node: Some(28), ..base.clone() }),
            ("MaxCPUsPerSocket=14", PartitionConfig { max_cpus_per_socket: Some(14), ..base.clone() }),
            ("MaxCPUsPerSocket=14 MaxCPUsPerSocket=UNLIMITED", base.clone()),
            ("RootOnly=YES", PartitionConfig { root_only: true, ..base.clone() }),
        ] {
            assert_eq!(changed(line), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_work() {
        for (line, part) in [
            ("Colour=red", "not supported: Colour"),
            ("MaxTme=5", "did you mean MaxTime?"),
            ("MaxTime=soon", "Invalid input: MaxTime=soon"),
            ("Nodes=n9", "Invalid node name specified: n9"),
            ("Hidden=perhaps", "YES and NO"),
            ("LLN=YES", "not supported by Spur"),
            ("AllowQos=low", "there is high"),
            ("Topology=x", "nor any other"),
            ("MaxNodes=0", "at least 1"),
            ("MaxCPUsPerNode=0", "at least 1"),
            ("State=OPEN", "UP, DOWN, DRAIN, INACTIVE"),
        ] {
            let error = changed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn cpus_of_a_created_node_are_what_its_parts_come_to() {
        let made = |line: &str| {
            let mut config = NodeConfig { name: "d1".into(), weight: 1, ..NodeConfig::default() };
            for word in line.split_whitespace() {
                let (key, value) = word.split_once('=').expect("KEY=VALUE");
                node(&mut config, key, value)?;
            }
            complete(&mut config).map(|()| config.shape)
        };
        assert_eq!(made("CPUs=8 CoresPerSocket=4").map(|shape| (shape.sockets, shape.cpus)), Ok((2, 8)));
        assert_eq!(made("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2").map(|shape| shape.cpus), Ok(16));
        assert!(made("CPUs=9 Sockets=2 CoresPerSocket=4").is_err());
        let kept = made("CPUs=4 CoreSpecCount=4").unwrap_err();
        assert_eq!(kept, "4 of 4 cores leave none to jobs; keep 3 at the most");
        assert!(made("CPUs=4 CPUSpecList=0,1 RealMemory=2G MemSpecLimit=1024").is_ok());
        assert_eq!(made("Gres=gpu:a100:2,nic State=CLOUD").map(|shape| shape.gres.len()), Ok(2));
    }
}
