//! Cores and memory that nodes keep from jobs for the system.

use crate::cluster::{Cluster, Setup};

/// One of two CPUs, and of 64000 MiB of memory all but 4000.
const KEEPS: &str = "[[nodes]]
names = \"k1\"
cpus = 2
memory_mb = 64000
core_spec_count = 1
mem_spec_limit = 60000";

#[test]
fn jobs_never_get_what_a_node_keeps() {
    let mut cluster = Cluster::prepare(&Setup { cpus: 2, more: KEEPS, ..Setup::default() });
    cluster.start_controller();
    for node in ["n1", "k1"] {
        cluster.start_node(node);
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    let node = || cluster.ok(&["scontrol", "show", "node", "k1"]);
    for line in [
        "   CPUAlloc=0 CPUEfctv=1 CPUTot=2 ",
        "   CoreSpecCount=1 CPUSpecList=1 MemSpecLimit=60000\n   State=IDLE ",
        "   CfgTRES=cpu=1,mem=64000M,billing=1\n",
    ] {
        assert!(node().contains(line), "`{line}`: {}", node());
    }
    let partition = cluster.ok(&["scontrol", "show", "partition"]);
    assert!(partition.contains(" TotalCPUs=4 ") && partition.contains("TRES=cpu=3,mem=125G,"), "{partition}");
    for options in [["-N1", "-n2", "--mem=1"], ["-N1", "-n1", "--mem=4001"]] {
        let words = [&["sbatch", "-w", "k1", "--wrap", "true"], &options[..]].concat();
        let said = cluster.fails(&words);
        assert!(said.contains("Requested node configuration is not available"), "{options:?}: {said}");
    }
    // The CPUs that belong to a node.
    cluster.script("show", "sed -n 's/Cpus_allowed_list:.//p' /proc/self/status");
    let whole = cluster.ok(&["srun", "-w", "n1", "-n2", "-l", "--cpu-bind=threads", "sh", "./show"]);
    let first = whole.lines().find_map(|line| line.strip_prefix("0: ")).expect("a first task");
    let alone = ["srun", "-w", "k1", "--exclusive", "--mem=0", "-n1", "sh", "./show"];
    if std::thread::available_parallelism().unwrap().get() >= 2 {
        assert_eq!(cluster.ok(&alone).trim_end(), first, "{whole}");
    }
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let hold = ["sbatch", "-w", "k1", "-n1", "--mem=1", "-o", "cpus-%j", "--wrap"];
    let jobs =
        [(); 2].map(|()| cluster.sbatch(&[&hold[1..], &["sh ./show; echo >up; read x <gate"]].concat()));
    up.wait();
    let running = cluster.ok(&["squeue", "-h", "-S", "i", "-o", "%i %T %C %r"]);
    let [one, other] = jobs;
    assert_eq!(running, format!("{one} RUNNING 1 None\n{other} PENDING 1 Resources\n"));
    assert!(node().contains("   CPUAlloc=1 CPUEfctv=1 CPUTot=2 "), "{}", node());
    assert!(node().contains("   State=ALLOCATED "), "{}", node());
    let details = cluster.ok(&["scontrol", "show", "job", "-d", &one.to_string()]);
    assert!(details.contains(" CPU_IDs=0 "), "{details}");
    gate.open();
    up.wait();
    gate.open();
    for job in jobs {
        cluster.client().wait_for(job, "COMPLETED");
        assert_eq!(cluster.read(&format!("cpus-{job}")).trim_end(), first, "{whole}");
    }
}
