//! Tests of the reference configuration, the examples, and a directory of files that must be refused.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::text::time::{Seconds, TimeLimit};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn toml_files(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no file in {name}");
    files
}

fn parse_file(path: &Path) -> Result<Config, ConfigErrors> {
    Config::parse(&read(path), &path.file_name().unwrap().to_string_lossy())
}

fn reference() -> Config {
    parse_file(&folder("etc/spur.toml")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Each file in `tests/data/config` is refused with the text of its `.err` file. `UPDATE_EXPECT=1` rewrites
/// the `.err` files.
#[test]
fn bad_files_are_refused_with_the_expected_text() {
    let mut wrong = Vec::new();
    for path in toml_files("tests/data/config") {
        let found = match parse_file(&path) {
            Ok(_) => "accepted\n".to_owned(),
            Err(errors) => format!("{errors}\n"),
        };
        let expected_at = path.with_extension("err");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&expected_at, &found).unwrap();
        }
        let expected = read(&expected_at);
        if found != expected || found == "accepted\n" {
            wrong.push(format!("{}:\nexpected\n{expected}found\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_examples_are_accepted() {
    for path in toml_files("etc/examples") {
        let config = parse_file(&path).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(config.policy.partitions.iter().any(|partition| partition.default), "{}", path.display());
    }
}

/// Reads the age that one key of a purge sets.
type Age = fn(&JobPolicy) -> Option<Seconds>;

/// The keys of purges, each with the field that it sets.
const PURGE_KEYS: [(&str, Age); 2] =
    [("purge_job_after", |jobs| jobs.purge_job_after), ("purge_event_after", |jobs| jobs.purge_event_after)];

#[test]
fn an_age_for_a_purge_has_slurms_units_or_ours() {
    for (text, seconds) in [
        ("12months", 12 * 31 * 86_400),
        ("1month", 31 * 86_400),
        ("365days", 365 * 86_400),
        ("8760HOURS", 8_760 * 3_600),
        ("90d", 90 * 86_400),
        ("2w", 14 * 86_400),
        ("30s", 30),
    ] {
        for (key, of) in PURGE_KEYS {
            let file = format!(
                "[controller]\n{key} = \"{text}\"\n[[nodes]]\nnames = \"n1\"\n\
                                [[partitions]]\nname = \"p\"\nnodes = \"ALL\"\n"
            );
            let config = Config::parse(&file, "t").unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!(of(&config.policy.jobs), Some(Seconds(seconds)), "{key} = {text}");
        }
    }
    for text in ["12", "0days", "months", "-1d", "12 years", "99999999999999999999days"] {
        for (key, _) in PURGE_KEYS {
            let file = format!("[controller]\n{key} = \"{text}\"\n[[nodes]]\nnames = \"n1\"\n");
            let errors = Config::parse(&file, "t").unwrap_err().to_string();
            assert!(errors.contains(key), "{key} = {text}: {errors}");
        }
    }
}

#[test]
fn the_reference_is_read_as_it_says() {
    let Config { policy, local } = reference();
    assert_eq!(&*policy.cluster_name, "demo");
    assert_eq!(policy.nodes.len(), 36);
    let node = &policy.nodes[35];
    assert_eq!((&*node.name, node.shape.cpus, node.shape.memory_mb), ("gpu036", 64, 524_288));
    assert_eq!((&*node.shape.gres[0].kind, node.shape.gres[0].count), ("mi300x", 8));
    let partition = &policy.partitions[0];
    assert_eq!(partition.nodes.len(), 36);
    assert_eq!(partition.max_time, TimeLimit::Seconds(7 * 86_400));
    assert_eq!(partition.preempt_mode, Some(PreemptMode::Off));
    assert_eq!((partition.def_mem_per_cpu, partition.grace_time), (Some(4096), Some(Seconds(120))));
    let names: Vec<&str> = policy.topologies.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["default", "racks", "slices", "flat"]);
    assert_eq!(policy.topologies[0].rule[0].switches, "1@30:00".parse().ok());
    assert_eq!(policy.licenses, [("matlab".into(), 20)]);
    let [high, normal, low] = policy.qos.as_slice() else { panic!("{:?}", policy.qos) };
    assert_eq!((high.priority, high.preempt.as_slice()), (100, &["low".into()][..]));
    assert_eq!(*normal, QosConfig { name: "normal".into(), priority: 10, ..QosConfig::default() });
    assert_eq!((low.preempt_mode, low.exempt_time), (Some(PreemptMode::Cancel), Some(Seconds(300))));
    assert_eq!((partition.allow_qos.len(), partition.default_qos.as_deref()), (2, Some("normal")));
    let address = &local.node_addresses["gpu036"];
    assert_eq!((address.host.as_deref(), address.port), (Some("10.1.0.36"), Some(6818)));
    assert_eq!(local.agent.spool_of("gpu001"), Path::new("/var/spool/spurd/gpu001"));
}

/// A default that the reference documents is the one in force.
#[test]
fn the_reference_shows_the_defaults() {
    let found = reference();
    let Config { policy, local } = Config::default();
    // By default the controller has no programs.
    let JobPolicy { prolog_slurmctld, epilog_slurmctld, .. } = found.policy.jobs.clone();
    assert_eq!(found.policy.jobs, JobPolicy { prolog_slurmctld, epilog_slurmctld, ..policy.jobs });
    assert_eq!(found.policy.scheduler, policy.scheduler);
    assert_eq!(found.policy.recovery, policy.recovery);
    let times = |power: &PowerPolicy| (power.resume_timeout, power.suspend_timeout);
    assert_eq!(times(&found.policy.power), times(&policy.power));
    let rates = |power: &PowerPolicy| (power.suspend_rate, power.resume_rate);
    assert_eq!(rates(&found.policy.power), rates(&policy.power));
    assert_eq!(found.policy.preempt, PreemptPolicy { by: PreemptBy::Partition, ..policy.preempt });
    let metrics_addr = found.local.controller.metrics_addr.clone();
    assert_eq!(found.local.controller, ControllerLocal { metrics_addr, ..local.controller });
    assert_eq!((found.local.auth, found.local.log), (local.auth, local.log));
    assert_eq!(found.local.agent.spool_dir, local.agent.spool_dir);
    assert_eq!(found.local.agent.heartbeat_interval, local.agent.heartbeat_interval);
    assert_eq!(found.local.agent.prolog_timeout, local.agent.prolog_timeout);
    assert_eq!(found.local.agent.listen_addr, local.agent.listen_addr);
}

/// Every key that is read is in the reference, at the start of a line or of a comment.
#[test]
fn the_reference_names_every_key() {
    let reference = read(&folder("etc/spur.toml"));
    let stands = |key: &str| {
        let mut lines = reference.lines().map(|line| line.trim_start_matches("# "));
        lines.any(|line| {
            line.starts_with(&format!("{key} = ")) || line.starts_with(&format!("[[topology.{key}]]"))
        }) || reference.contains(&format!("[{key}]"))
            || reference.contains(&format!("[topology.{key}]"))
    };
    let keys = super::parse::known_keys(&reference);
    let missing: Vec<&&str> = keys.iter().filter(|key| !stands(key)).collect();
    assert!(keys.len() > 60, "only {} keys are known", keys.len());
    assert!(missing.is_empty(), "not in etc/spur.toml: {missing:?}");
}

#[test]
fn a_policy_survives_the_journal() {
    let policy = reference().policy;
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
    assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::default());
}

#[test]
fn a_qos_may_go_by_the_cluster_whatever_the_partition_says() {
    let text = "[preempt]\nmode = \"cancel\"\n[[qos]]\nname = \"low\"\npreempt_mode = \"cluster\"\n";
    let config = Config::parse(text, "spur.toml").unwrap();
    assert_eq!(config.policy.qos[0].preempt_mode, Some(PreemptMode::Cancel));
}

#[test]
fn an_empty_file_has_defaults() {
    let config = Config::parse("", "spur.toml").unwrap();
    assert_eq!(&*config.policy.cluster_name, "cluster");
    assert_eq!(config.local, Local::default());
    assert!(config.policy.nodes.is_empty() && config.policy.topologies.is_empty());
}

#[test]
fn the_state_is_a_file_or_a_database() {
    let read = |text: &str| Config::parse(&format!("[controller]\n{text}\n"), "spur.toml");
    let file = |text: &str| read(text).unwrap().local.controller.state.file().map(Path::to_owned);
    assert_eq!(file("state = \"sqlite:///a/b.db\"").as_deref(), Some(Path::new("/a/b.db")));
    assert_eq!(file("state = \"/a/b\"").as_deref(), Some(Path::new("/a/b/spur.db")));
    let database = |text: &str| match read(text).unwrap().local.controller.state {
        State::Postgres(database) => {
            (database.urls.len(), database.lease.0, database.password_file.is_some())
        }
        State::Sqlite(path) => panic!("{}", path.display()),
    };
    assert_eq!(database("state = \"postgres://spur@db1/spur\""), (1, 3, false));
    let two = "state = [\"postgres://spur@db1/spur\", \"postgres://spur@db2/spur\"]\nlease = \"5s\"\npassword_file = \"/p\"";
    assert_eq!(database(two), (2, 5, true));
    for (text, said) in [
        ("state = \"postgres://spur:secret@db1/spur\"", "password_file"),
        ("state = [\"postgres://spur@db1/spur\", \"/var/lib/spur\"]", "postgres://USER@HOST/DATABASE"),
        ("state = \"/var/lib/spur\"\nlease = \"3s\"", "state only"),
        ("state = \"mysql://db1/spur\"", "no place"),
    ] {
        let refused = read(text).unwrap_err().to_string();
        assert!(refused.contains(said) && !refused.contains("secret"), "{text}: {refused}");
    }
}

#[test]
fn ports_are_dealt_out_in_order() {
    let text = "[[nodes]]\nnames = \"n[1-3]\"\naddr = \"127.0.0.1\"\nport = \"7001-7003\"\n";
    let config = Config::parse(text, "spur.toml").unwrap();
    let address = &config.local.node_addresses["n3"];
    assert_eq!((address.host.as_deref(), address.port), (Some("127.0.0.1"), Some(7003)));
    assert_eq!(config.local.agent_listens_on("n3").to_string(), "0.0.0.0:7003");
    assert_eq!(config.local.agent_address("n3").to_string(), "127.0.0.1:7003");
    assert_eq!(config.local.agent_address("other").to_string(), "other:6818");
}

#[test]
fn without_authentication_everything_stays_on_loopback() {
    let config = Config::parse("[auth]\nmethod = \"none\"\n", "spur.toml").unwrap();
    assert!(config.local.agent.listen_addr.is_loopback());
    assert!(config.local.controller.listen_addr.is_loopback());
}

#[test]
fn numbers_have_tomls_spellings() {
    for (text, depth) in [("1_000", 1000), ("0x10", 16), ("+5", 5), ("0o17", 15)] {
        let config = Config::parse(&format!("[scheduler]\ndepth = {text}\n"), "spur.toml").unwrap();
        assert_eq!(config.policy.scheduler.depth, depth, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A damaged reference is either read, or refused with existing lines.
    #[test]
    fn a_damaged_file_is_read_or_refused(
        from in any::<prop::sample::Index>(), length in 0_usize..40, with in "[a-z0-9\"=\\[\\], \n-]{0,6}")
    {
        let text = read(&folder("etc/spur.toml"));
        let chars: Vec<char> = text.chars().collect();
        let from = from.index(chars.len());
        let rest = &chars[(from + length).min(chars.len())..];
        let damaged: String = chars[..from].iter().copied().chain(with.chars()).chain(rest.iter().copied()).collect();
        if let Err(errors) = Config::parse(&damaged, "spur.toml") {
            let lines = damaged.lines().count() as u32 + 1;
            prop_assert!(errors.iter().len() > 0);
            prop_assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)), "{}", errors);
            prop_assert!(errors.iter().is_sorted_by_key(|error| error.line));
        }
    }
}

#[test]
fn what_is_missing_of_a_node_follows_from_its_cpus() {
    for (written, shape) in [
        ("cpus = 4\nthreads_per_core = 1", (4, 1, 1, 4)),
        ("cpus = 8\nsockets = 2", (2, 4, 1, 8)),
        ("cpus = 16\nsockets = 2\ncores_per_socket = 4", (2, 4, 2, 16)),
        ("cpus = 16\ncores_per_socket = 4\nthreads_per_core = 2", (2, 4, 2, 16)),
        ("sockets = 2\ncores_per_socket = 4", (2, 4, 1, 8)),
    ] {
        let text = format!("[[nodes]]\nnames = \"n1\"\n{written}\n");
        let config = Config::parse(&text, "spur.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let found = &config.policy.nodes[0].shape;
        let parts = (found.sockets, found.cores_per_socket, found.threads_per_core, found.cpus);
        assert_eq!(parts, shape, "{written}");
    }
    let odd = Config::parse("[[nodes]]\nnames = \"n1\"\ncpus = 9\nsockets = 2\n", "spur.toml");
    let errors = odd.map(|_| ()).unwrap_err().to_string();
    assert!(errors.contains("9 is not 2 sockets × 4 cores × 1 threads = 8"), "{errors}");
}

#[test]
fn words_of_enforcement_imply_others() {
    use crate::model::config::AccountingEnforce::{Associations, Limits, NoJobs, NoSteps, Qos, Safe, Wckeys};
    for (word, implied) in [
        (Associations, &[Associations][..]),
        (Qos, &[Associations, Qos]),
        (Limits, &[Associations, Limits]),
        (Safe, &[Associations, Limits, Safe]),
        (NoSteps, &[NoSteps]),
        (NoJobs, &[NoSteps, NoJobs]),
        (Wckeys, &[Associations, Wckeys]),
    ] {
        let jobs = JobPolicy { accounting_enforce: vec![word], ..JobPolicy::default() };
        for part in [Associations, Qos, Limits, Safe, NoSteps, NoJobs, Wckeys] {
            assert_eq!(jobs.enforces(part), implied.contains(&part), "{part:?} by {word:?}");
        }
        assert_eq!(jobs.tracks_wckeys(), word == Wckeys);
    }
}
