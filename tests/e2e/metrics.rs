//! Metrics as a scrape reads them, compared with the output of commands for the same cluster, and with the
//! boards and alerts of `etc/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::cluster::{Cluster, Setup, free_port};

/// Every page.
const PAGES: [&str; 7] = [
    "/metrics",
    "/metrics/domains",
    "/metrics/jobs",
    "/metrics/nodes",
    "/metrics/partitions",
    "/metrics/scheduler",
    "/metrics/jobs-users-accts",
];

/// Two leaves of two nodes under one spine.
const TREE: &str = r#"
[topology]
plugin = "tree"
layers = ["leaf", "spine"]
[[topology.switches]]
name = "l1"
nodes = "n[1-2]"
[[topology.switches]]
name = "l2"
nodes = "n[3-4]"
[[topology.switches]]
name = "s1"
switches = "l[1-2]"
"#;

/// Samples by their name with labels, as on the page.
type Samples = BTreeMap<String, f64>;

/// A cluster whose controller serves metrics.
struct Served {
    cluster: Cluster,
    port: u16,
}

impl Served {
    fn start(setup: &Setup, lines: &str) -> Self {
        let mut cluster = Cluster::prepare(setup);
        let port = free_port();
        cluster.configure("controller", &format!("metrics_addr = \"127.0.0.1:{port}\"\n{lines}"));
        cluster.start_controller();
        for number in 1..=setup.nodes {
            let node = format!("n{number}");
            cluster.start_node(&node);
            cluster.wait_for_log(&node, &format!("registered as {node}"));
        }
        Self { cluster, port }
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn samples(&self, path: &str) -> Samples {
        let (status, body) = self.ask("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Waits until a sample has a value.
    fn wait_for(&self, path: &str, sample: &str, value: f64) {
        self.cluster.wait_until(|_| self.samples(path).get(sample) == Some(&value));
    }
}

/// The sum of the samples of a family that have all these label pairs.
fn sum(samples: &Samples, family: &str, pairs: &[(&str, &str)]) -> f64 {
    let labels: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    let meant = samples.iter().filter(|(name, _)| {
        name.split('{').next() == Some(family) && labels.iter().all(|label| name.contains(label))
    });
    meant.map(|(_, value)| value).sum()
}

#[test]
fn pages_say_what_commands_say() {
    let setup = Setup { nodes: 4, gres: "gpu:2", more: TREE, ..Setup::default() };
    let served = Served::start(&setup, "");
    let cluster = &served.cluster;
    let mut gate = cluster.gate("gate");
    cluster.script("job.sh", "#!/bin/sh\nread x <gate\n");
    let running = cluster.sbatch(&["-N2", "--exclusive", "--gres=gpu:2", "-o", "/dev/null", "job.sh"]);
    cluster.client().wait_for(running, "RUNNING");
    cluster.sbatch(&["-N3", "--exclusive", "-o", "/dev/null", "job.sh"]);
    cluster.sbatch(&["-N1", "-H", "--array=1-3", "-o", "/dev/null", "job.sh"]);
    cluster.sbatch(&["-N1", "--begin=now+1hour", "-o", "/dev/null", "job.sh"]);
    cluster.sbatch(&["-N1", &format!("--dependency=afterok:{running}"), "-o", "/dev/null", "job.sh"]);
    cluster.ok(&["scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test"]);
    let reasons = [("Resources", 1.0), ("JobHeldUser", 3.0), ("BeginTime", 1.0), ("Dependency", 1.0)];
    cluster.wait_until(|_| {
        let queue = served.samples("/metrics");
        reasons.iter().all(|(reason, count)| sum(&queue, "spur_queue_jobs", &[("reason", reason)]) == *count)
    });
    let own = served.samples("/metrics");
    let squeue = |reason: &str| {
        let rows = cluster.rows(&["squeue", "-h", "-r", "-t", "PD", "-o", "%P %r"]);
        rows.iter().filter(|row| **row == format!("main {reason}")).count() as f64
    };
    for (reason, count) in reasons {
        assert_eq!(
            sum(&own, "spur_queue_jobs", &[("partition", "main"), ("reason", reason)]),
            count,
            "{reason}"
        );
        assert_eq!(squeue(reason), count, "{reason}");
    }
    assert_eq!((own["spur_jobs{state=\"running\"}"], own["spur_jobs{state=\"pending\"}"]), (1.0, 6.0));
    nodes_are_those_of_sinfo(&served, &own);
    domains_are_those_of_the_fabric(&served, &own);
    slurms_pages_agree(&served);
    gate.open();
    cluster.client().wait_for(running, "COMPLETED");
    served.wait_for("/metrics", "spur_jobs_ended_total{state=\"COMPLETED\"}", 1.0);
}

fn nodes_are_those_of_sinfo(served: &Served, own: &Samples) {
    let mut states: BTreeMap<String, f64> = BTreeMap::new();
    for state in served.cluster.rows(&["sinfo", "-h", "-N", "-o", "%T"]) {
        *states.entry(state).or_default() += 1.0;
    }
    for (state, count) in &states {
        assert_eq!(own[&format!("spur_nodes{{state=\"{state}\"}}")], *count, "{state}");
    }
    assert_eq!(sum(own, "spur_nodes", &[]), 4.0);
    assert_eq!((own["spur_gpus{use=\"allocated\"}"], own["spur_gpus{use=\"free\"}"]), (4.0, 4.0));
    assert_eq!((own["spur_cpus{use=\"allocated\"}"], own["spur_cpus{use=\"free\"}"]), (8.0, 8.0));
    assert_eq!(own["spur_streams{kind=\"agent\"}"], 4.0);
}

/// The job has one leaf; one node of the other leaf is drained.
fn domains_are_those_of_the_fabric(served: &Served, own: &Samples) {
    let of = |family: &str, layer: &str, domain: &str| {
        let pairs = [("topology", "default"), ("layer", layer), ("domain", domain)];
        sum(own, family, &pairs)
    };
    let table = [
        ("topology_domain_utilization_ratio", "leaf", "l1", 1.0),
        ("topology_domain_utilization_ratio", "leaf", "l2", 0.0),
        ("topology_domain_utilization_ratio", "spine", "s1", 0.5),
        ("topology_gpu_allocation_ratio", "leaf", "l1", 1.0),
        ("topology_gpu_allocation_ratio", "spine", "s1", 0.5),
        ("topology_scheduler_domain_fragmentation_ratio", "leaf", "l1", 0.0),
        ("topology_scheduler_domain_fragmentation_ratio", "leaf", "l2", 1.0),
        ("topology_scheduler_domain_fragmentation_ratio", "spine", "s1", 1.0),
    ];
    for (family, layer, domain, value) in table {
        assert_eq!(of(family, layer, domain), value, "{family} of {domain}");
    }
    let layer = |family: &str| sum(own, family, &[("topology", "default"), ("layer", "leaf")]);
    assert_eq!((layer("spur_layer_domains"), layer("spur_layer_free_domains")), (2.0, 0.0));
    assert_eq!(layer("spur_layer_fragmentation_ratio"), 1.0);
    let free = [("domain", "l2"), ("state", "free")];
    assert_eq!(sum(&served.samples("/metrics/domains"), "spur_domain_nodes", &free), 1.0);
    for family in [
        "topology_scheduler_latency_seconds_count",
        "topology_scheduler_attempts_total",
        "topology_scheduler_success_total",
        "topology_placement_decisions_total",
    ] {
        assert!(sum(own, family, &[("strategy", "tree")]) >= 1.0, "{family}");
    }
    for kind in ["resource_availability", "topology_alignment", "domain_utilisation", "past_performance"] {
        assert_eq!(sum(own, "topology_placement_scores_count", &[("type", kind)]), 1.0, "{kind}");
    }
    assert_eq!(sum(own, "topology_placement_scores_sum", &[("type", "topology_alignment")]), 1.0);
    assert!(sum(own, "topology_scheduler_placement_duration_seconds_count", &[("type", "quick")]) >= 1.0);
}

fn slurms_pages_agree(served: &Served) {
    let jobs = served.samples("/metrics/jobs");
    let table = [
        ("slurm_jobs", 7.0),
        ("slurm_jobs_running", 1.0),
        ("slurm_jobs_pending", 6.0),
        ("slurm_jobs_hold", 3.0),
        ("slurm_jobs_started", 1.0),
        ("slurm_jobs_cpus_alloc", 8.0),
        ("slurm_jobs_gpus_alloc", 4.0),
        ("slurm_jobs_nodes_alloc", 2.0),
        ("slurm_jobs_revoked", 0.0),
    ];
    for (name, value) in table {
        assert_eq!(jobs[name], value, "{name}");
    }
    let partitions = served.samples("/metrics/partitions");
    let table = [
        ("slurm_partition_jobs_pending", 6.0),
        ("slurm_partition_jobs_max_job_nodes_nohold", 3.0),
        ("slurm_partition_nodes", 4.0),
        ("slurm_partition_nodes_alloc", 2.0),
        ("slurm_partition_nodes_drain", 1.0),
        ("slurm_partition_nodes_cpus_idle", 8.0),
        ("slurm_partition_gpus", 8.0),
    ];
    for (name, value) in table {
        assert_eq!(partitions[&format!("{name}{{partition=\"main\"}}")], value, "{name}");
    }
    let nodes = served.samples("/metrics/nodes");
    assert_eq!(
        (nodes["slurm_nodes"], nodes["slurm_nodes_alloc"], nodes["slurm_nodes_drain"]),
        (4.0, 2.0, 1.0)
    );
    assert_eq!(nodes["slurm_node_memory_bytes{node=\"n1\"}"], 64_000.0 * 1_048_576.0);
    let user = served.cluster.rows(&["squeue", "-h", "-o", "%u"]).remove(0);
    let users = served.samples("/metrics/jobs-users-accts");
    assert_eq!(users[&format!("slurm_user_jobs_pending{{username=\"{user}\"}}")], 6.0);
    let scheduler = served.samples("/metrics/scheduler");
    let sdiag = served.cluster.ok(&["sdiag"]);
    for (name, line) in [
        ("slurm_sdiag_jobs_submitted", "Jobs submitted:"),
        ("slurm_sdiag_jobs_started", "Jobs started:"),
        ("slurm_sdiag_jobs_pending", "Jobs pending:"),
        ("slurm_sdiag_jobs_running", "Jobs running:"),
    ] {
        let shown = sdiag.lines().find_map(|found| found.strip_prefix(line)).unwrap().trim();
        assert_eq!(scheduler[name].to_string(), shown, "{name}");
    }
}

#[test]
fn recovery_is_timed_from_the_loss_of_a_node() {
    let more = "[recovery]\nrequeue_delay = \"0s\"\nnode_timeout = \"3s\"\n";
    let mut served = Served::start(&Setup { nodes: 2, more, ..Setup::default() }, "");
    served.cluster.script("job.sh", "#!/bin/sh\nsleep 1000\n");
    let job = served.cluster.sbatch(&["--requeue", "-o", "/dev/null", "job.sh"]);
    served.cluster.client().wait_for(job, "RUNNING");
    served.cluster.kill("n1");
    served.cluster.ok(&["scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test"]);
    let counted = "topology_scheduler_recovery_duration_seconds_count{type=\"requeue\"}";
    served.wait_for("/metrics", counted, 1.0);
}

#[test]
fn private_pages_are_refused_and_no_other_method_is_taken() {
    let served = Served::start(
        &Setup { more: TREE_OF_ONE, ..Setup::default() },
        "private_data = [\"users\", \"nodes\"]\n",
    );
    for (path, status) in [
        ("/metrics", 200),
        ("/metrics/", 200),
        ("/metrics/jobs", 200),
        ("/metrics/partitions", 200),
        ("/metrics/scheduler", 200),
        ("/metrics/nodes", 403),
        ("/metrics/domains", 403),
        ("/metrics/jobs-users-accts", 403),
        ("/", 404),
        ("/metrics/other", 404),
    ] {
        let (found, body) = served.ask("GET", path);
        assert_eq!(found, status, "{path}: {body}");
    }
    assert_eq!(served.ask("POST", "/metrics").0, 405);
    assert_eq!(served.ask("HEAD", "/metrics"), (200, String::new()));
    let own = served.samples("/metrics");
    assert_eq!(sum(&own, "spur_domain_nodes", &[]), 0.0, "domains would tell of nodes");
    assert_eq!(sum(&own, "spur_layer_domains", &[]), 1.0);
}

const TREE_OF_ONE: &str =
    "[topology]\nplugin = \"tree\"\n[[topology.switches]]\nname = \"l1\"\nnodes = \"n1\"\n";

/// The names that a PromQL expression reads: words that no bracket follows, outside of braces, quotes and
/// lists of labels.
fn series(expression: &str) -> BTreeSet<String> {
    const WORDS: [&str; 12] = [
        "and",
        "bool",
        "by",
        "group_left",
        "group_right",
        "ignoring",
        "inf",
        "offset",
        "on",
        "or",
        "unless",
        "without",
    ];
    let mut names = BTreeSet::new();
    let mut rest = expression;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut labels_follow = false;
    while let Some(c) = rest.chars().next() {
        let skip = match c {
            '"' => 2 + rest[1..].find('"').unwrap(),
            '{' => 1 + rest.find('}').unwrap(),
            '[' => 1 + rest.find(']').unwrap(),
            '(' if labels_follow => 1 + rest.find(')').unwrap(),
            c if c.is_ascii_digit() || c == '$' => {
                rest.find(|c| !is_word(c) && c != '.' && c != '$').unwrap_or(rest.len())
            }
            c if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let word = &rest[..end];
                labels_follow =
                    ["by", "on", "ignoring", "without", "group_left", "group_right"].contains(&word);
                let is_function = rest[end..].trim_start().starts_with('(');
                let aggregates = ["by", "without"].iter().any(|by| rest[end..].trim_start().starts_with(by));
                if !is_function && !aggregates && !WORDS.contains(&word) {
                    names.insert(word.to_owned());
                }
                rest = rest[end..].trim_start();
                continue;
            }
            c => c.len_utf8(),
        };
        labels_follow = false;
        rest = &rest[skip..];
    }
    names
}

#[test]
fn series_are_found_in_expressions() {
    for (expression, names) in [
        ("sum by (state) (spur_jobs{state=\"running\"})", vec!["spur_jobs"]),
        ("rate(a_total[5m]) / on (x) group_left (y) b > 0.5", vec!["a_total", "b"]),
        ("histogram_quantile(0.9, sum(rate(c_bucket[$__rate_interval])) by (le, kind))", vec!["c_bucket"]),
        ("a unless b offset 5m", vec!["a", "b"]),
    ] {
        assert_eq!(series(expression), names.into_iter().map(str::to_owned).collect(), "{expression}");
    }
}

/// Expressions of a board, or of rules: the texts behind `"expr":` or `expr:`.
fn expressions(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(str::trim);
    let found = lines.filter_map(|line| {
        let json =
            line.strip_prefix("\"expr\": \"").map(|rest| rest.trim_end_matches(',').trim_end_matches('"'));
        let json = json.map(|rest| rest.replace("\\\"", "\""));
        json.or_else(|| line.strip_prefix("expr: ").map(str::to_owned))
    });
    found.collect()
}

#[test]
fn boards_and_rules_read_what_is_exported() {
    let served = Served::start(&Setup { nodes: 4, gres: "gpu:1", more: TREE, ..Setup::default() }, "");
    served.cluster.script("job.sh", "#!/bin/sh\n");
    let job = served.cluster.sbatch(&["-o", "/dev/null", "job.sh"]);
    served.cluster.client().wait_for(job, "COMPLETED");
    let mut known: BTreeSet<String> = BTreeSet::new();
    for page in PAGES {
        let (_, body) = served.ask("GET", page);
        for line in body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let parts: &[&str] = if kind == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
            known.extend(parts.iter().map(|part| format!("{name}{part}")));
        }
    }
    let etc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc");
    let files = |folder: &str| {
        let entries = fs::read_dir(etc.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.collect::<BTreeSet<_>>()
    };
    for path in files("prometheus") {
        let text = fs::read_to_string(&path).unwrap();
        let recorded = text.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
        known.extend(recorded.map(str::to_owned));
    }
    // Prometheus itself writes these for each scrape.
    known.extend(["up", "scrape_duration_seconds"].map(str::to_owned));
    for path in files("grafana").into_iter().chain(files("prometheus")) {
        let found = expressions(&path);
        assert!(!found.is_empty() || path.ends_with("prometheus.yml"), "{} reads nothing", path.display());
        for expression in found {
            let unknown: Vec<String> = series(&expression).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{}: {unknown:?} in {expression}", path.display());
        }
    }
}
