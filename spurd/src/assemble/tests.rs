//! Orders of the controller and of clients, and the prepared steps that they become.

use spur_core::model::idset::IdSet;
use spur_core::text::gpubind::GpuBind;
use step_wire::order::{Input, Output};

use super::gpus::{gpu_bind, gpus_of_task};
use super::*;
use crate::node::inventory::device::Vendor;

fn facts() -> NodeFacts {
    let gpu = |vendor, kind: &str, index, files: &[&str]| Device {
        name: "gpu".to_owned(),
        kind: kind.to_owned(),
        vendor: Some(vendor),
        index,
        called: if files.len() > 1 { "MIG-GPU-x/1/0".to_owned() } else { String::new() },
        files: files.iter().map(|file| format!("/dev/{file}").into()).collect(),
        cores: if index == 0 { IdSet::first(2) } else { "2-3".parse().unwrap() },
        links: Vec::new(),
    };
    NodeFacts {
        name: "n2".to_owned(),
        variables: vec![("SPUR_CONF".to_owned(), "/etc/spur.toml".to_owned())],
        cpus: Some(vec![0, 4, 1, 5, 2, 6, 3, 7]),
        threads_per_core: 2,
        devices: vec![
            gpu(Vendor::Amd, "mi300x", 0, &["null"]),
            gpu(Vendor::Nvidia, "h100", 0, &["zero"]),
            gpu(Vendor::Nvidia, "a100", 1, &["full"]),
            gpu(Vendor::Nvidia, "h100", 2, &["random"]),
            gpu(Vendor::Nvidia, "mig", 3, &["urandom", "tty"]),
            gpu(Vendor::Nvidia, "mig", 3, &["urandom", "ptmx"]),
        ],
        ..NodeFacts::default()
    }
}

fn variables(blob: &[u8]) -> Vec<String> {
    let texts = blob.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
    texts.map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect()
}

fn device(kind: &str, ids: &str) -> v1::DevicePart {
    v1::DevicePart { name: "gpu".to_owned(), kind: kind.to_owned(), ids: ids.to_owned(), shards: 0 }
}

fn batch_order() -> v1::Launch {
    v1::Launch {
        attempt: Some(v1::Attempt { job_id: 42, restart: 1 }),
        user: Some(v1::User { uid: 7, gid: 8, name: "alice".to_owned(), group: "staff".to_owned() }),
        batch: Some(v1::Batch {
            script: b"#!/bin/sh\n".to_vec().into(),
            environment: b"A=1\0SLURM_JOB_ID=0\0".to_vec().into(),
            work_dir: "/home/alice".to_owned(),
            stderr: "%x-%r.err".to_owned(),
            append: Some(true),
            umask: 0o027,
            ..v1::Batch::default()
        }),
        job_name: "train".to_owned(),
        environment: vec![v1::KeyValue { key: "SLURM_JOB_ID".to_owned(), value: "42".to_owned() }],
        part: Some(v1::NodePart {
            cpus: "0-1".to_owned(),
            memory_mb: 64,
            devices: vec![device("h100", "1")],
        }),
        ..v1::Launch::default()
    }
}

#[test]
fn a_batch_order_is_resolved() {
    let prepared = facts().batch(batch_order()).unwrap();
    let order = &prepared.launch.order;
    assert_eq!((order.attempt.to_string().as_str(), order.umask), ("42.1.batch", 0o027));
    let task = &order.tasks[0];
    assert_eq!(task.stdout, Output::File { path: "slurm-42.out".into(), append: true });
    assert_eq!(task.stderr, Output::File { path: "train-1.err".into(), append: true });
    assert_eq!((task.stdin.clone(), task.cpus.clone()), (Input::Null, vec![0, 4]));
    let expected = [
        "A=1",
        "SLURM_JOB_ID=0",
        "SPUR_CONF=/etc/spur.toml",
        "SLURMD_NODENAME=n2",
        "SLURM_CPUS_ON_NODE=2",
        "SLURM_GPUS_ON_NODE=1",
        "SLURM_JOB_GPUS=2",
        "CUDA_VISIBLE_DEVICES=2",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "SLURM_JOB_ID=42",
        "SLURM_TOPOLOGY_ADDR=n2",
        "SLURM_TOPOLOGY_ADDR_PATTERN=node",
        "ENVIRONMENT=BATCH",
        "HOSTNAME=n2",
        "TMPDIR=/tmp",
    ];
    assert_eq!(variables(&prepared.launch.environment), expected);
}

#[test]
fn tasks_are_looked_at_as_often_as_their_job_asks() {
    let facts = NodeFacts { usage_interval_ms: 30_000, ..facts() };
    for (asked, every) in
        [("", 30_000), ("SLURM_ACCTG_FREQ=task=5,energy=9\0", 5000), ("SLURM_ACCTG_FREQ=0\0", 0)]
    {
        let mut order = batch_order();
        order.batch.as_mut().unwrap().environment = asked.as_bytes().to_vec().into();
        assert_eq!(facts.batch(order).unwrap().launch.order.usage_interval_ms, every, "{asked}");
    }
}

/// Clients of earlier releases send the variables only; the variables may also be left over from an outer
/// job.
#[test]
fn wishes_of_an_order_count_more_than_its_variables() {
    let facts = NodeFacts { usage_interval_ms: 30_000, ..facts() };
    let variables = b"SLURM_ACCTG_FREQ=9\0SLURM_OOM_KILL_STEP=1\0";
    for (sampling_seconds, oom_kill_step, expected) in [
        (None, None, (9000, true)),
        (Some(5), None, (5000, true)),
        (Some(0), Some(false), (0, false)),
        (None, Some(false), (9000, false)),
    ] {
        let mut batch = batch_order();
        let script = batch.batch.as_mut().unwrap();
        (script.sampling_seconds, script.oom_kill_step) = (sampling_seconds, oom_kill_step);
        script.environment = variables.to_vec().into();
        let launch = v1::StepLaunch {
            argv: vec!["hostname".to_owned()],
            environment: variables.to_vec().into(),
            sampling_seconds,
            oom_kill_step,
            ..v1::StepLaunch::default()
        };
        let part = v1::CredentialNode { name: "n2".to_owned(), tasks: 1, ..v1::CredentialNode::default() };
        let credential =
            v1::StepCredential { job_id: 42, nodes: vec![part], ..v1::StepCredential::default() };
        for prepared in [facts.batch(batch).unwrap(), facts.step(&credential, launch).unwrap()] {
            let order = prepared.launch.order;
            assert_eq!((order.usage_interval_ms, order.oom_kill_step), expected, "{}", order.attempt);
        }
    }
}

#[test]
fn the_closest_gpus_are_those_near_a_tasks_cores() {
    let facts = facts();
    let gpus = facts.held_gpus(&[device("h100", "0-1"), device("a100", "0")]).unwrap();
    let seen = |cpus: &[u32]| {
        let found = gpus_of_task(&gpus, 0, &GpuBind::Closest, &facts.cores(cpus));
        found.into_iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").map(|(_, value)| value)
    };
    // The kernel's CPUs 0, 4, 1 and 5 are cores 0 and 1.
    assert_eq!(seen(&[5]).as_deref(), Some("0"));
    assert_eq!(seen(&[6, 3]).as_deref(), Some("1,2"));
    assert_eq!(seen(&[4, 2]).as_deref(), Some("0,1,2"));
    assert_eq!(seen(&[]), None, "a task that is not bound sees what its step sees");
}

#[test]
fn a_task_has_gpus_of_its_own_unless_it_is_alone() {
    let facts = facts();
    let gpus = facts.held_gpus(&[device("h100", "0-1"), device("a100", "0")]).unwrap();
    let told = |said: &str, per_task, tasks, local| {
        let bind = gpu_bind(said, per_task, tasks).unwrap();
        let own = gpus_of_task(&gpus, local, &bind, &IdSet::first(1));
        own.into_iter().find(|(name, _)| name == "SLURM_STEP_GPUS").map(|(_, gpus)| gpus)
    };
    for (said, per_task, tasks, local, gpus) in [
        ("single:1", 0, 2, 1, Some("1")),
        ("single:1", 0, 1, 0, None),
        ("mask_gpu:0x6", 0, 2, 0, Some("1,2")),
        ("mask_gpu:0x6", 0, 1, 0, None),
        ("closest", 0, 2, 1, Some("0")),
        ("closest", 0, 1, 0, None),
        ("", 2, 2, 0, Some("0,1")),
        ("", 2, 1, 0, Some("0,1")),
        ("per_task:2", 0, 3, 1, Some("2")),
        // No GPUs are left for this task.
        ("per_task:2", 0, 3, 2, Some("0")),
        ("map_gpu:7", 0, 2, 0, Some("0")),
    ] {
        assert_eq!(told(said, per_task, tasks, local).as_deref(), gpus, "{said}: {local} of {tasks}");
    }
}

#[test]
fn a_step_that_sees_its_own_gpus_counts_them_from_0() {
    let constrained = NodeFacts { constrains_devices: true, ..facts() };
    let prepared = constrained.batch(batch_order()).unwrap();
    let seen = variables(&prepared.launch.environment);
    let gpus: Vec<&str> = seen
        .iter()
        .map(String::as_str)
        .filter(|variable| variable.contains("GPUS") || variable.contains("VISIBLE"))
        .collect();
    assert_eq!(gpus, ["SLURM_GPUS_ON_NODE=1", "SLURM_JOB_GPUS=2", "CUDA_VISIBLE_DEVICES=0"]);
    assert_eq!(prepared.denied.len(), 6);
}

#[test]
fn a_mig_instance_has_a_name_and_the_file_of_its_gpu() {
    let constrained = NodeFacts { constrains_devices: true, ..facts() };
    let mut order = batch_order();
    order.part.as_mut().unwrap().devices = vec![device("mig", "1")];
    let prepared = constrained.batch(order).unwrap();
    let seen = variables(&prepared.launch.environment);
    let named = |name: &str| seen.iter().find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
    assert_eq!((named("SLURM_JOB_GPUS"), named("CUDA_VISIBLE_DEVICES")), (Some("3"), Some("MIG-GPU-x/1/0")));
    let denied = |file: &str| {
        let number = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(file).unwrap());
        let is = |device: &&DeviceNumber| libc::makedev(device.major, device.minor) == number;
        prepared.denied.iter().filter(is).count()
    };
    let files = ["/dev/urandom", "/dev/ptmx", "/dev/tty", "/dev/zero"];
    assert_eq!(files.map(denied), [0, 0, 1, 1], "the GPU's own file opens both");
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let with = |change: fn(&mut v1::Batch)| {
        let mut order = batch_order();
        change(order.batch.as_mut().unwrap());
        facts().batch(order).unwrap_err()
    };
    let refused = with(|batch| batch.stdout = "\0".to_owned());
    assert!(refused.contains("zero byte"), "{refused}");
    let refused = with(|batch| batch.limits = vec![v1::Limit { name: "NICE".to_owned(), soft: 1 }]);
    assert!(refused.contains("NICE"), "{refused}");
    assert!(facts().batch(v1::Launch::default()).is_err());
}

#[test]
fn a_step_has_its_tasks_of_this_node() {
    let node = |name: &str, first_task, tasks, cpus: &str| v1::CredentialNode {
        name: name.to_owned(),
        first_task,
        tasks,
        cpus: cpus.to_owned(),
        topology_address: "s1.l1.n2".to_owned(),
        ..v1::CredentialNode::default()
    };
    let credential = v1::StepCredential {
        job_id: 42,
        step_id: 3,
        cpus_per_task: 2,
        nodes: vec![node("n1", 0, 3, "0-5"), node("n2", 3, 2, "2-5")],
        ..v1::StepCredential::default()
    };
    let launch = v1::StepLaunch {
        argv: vec!["hostname".to_owned()],
        stdin_task: Some(4),
        ..v1::StepLaunch::default()
    };
    let prepared = facts().step(&credential, launch.clone()).unwrap();
    let order = &prepared.launch.order;
    assert_eq!(order.attempt.to_string(), "42.0.3");
    let tasks: Vec<_> =
        order.tasks.iter().map(|task| (task.global, task.cpus.clone(), task.stdin.clone())).collect();
    assert_eq!(tasks, [(3, vec![1, 5], Input::Null), (4, vec![2, 6], Input::Stream)]);
    let env: Vec<&str> = order.tasks[1].env.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(env, ["4", "1", "1", "3,4"]);
    assert!(variables(&prepared.launch.environment).contains(&"SLURM_TOPOLOGY_ADDR=s1.l1.n2".to_owned()));
    let elsewhere = NodeFacts { name: "n9".to_owned(), ..facts() };
    assert!(elsewhere.step(&credential, launch).unwrap_err().contains("n9"));
}
