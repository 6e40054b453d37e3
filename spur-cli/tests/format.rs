//! Tests of the commands' output for given records: `tests/data/format/*.txt`, with the records in
//! `cluster.json`. A case is a line `$ COMMAND …` and its output; `UPDATE_EXPECT=1` rewrites the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use serde::Deserialize;
use spur_cli::commands::query::Asked;
use spur_cli::commands::scontrol::hostnames::Form;
use spur_cli::commands::{sacct, scontrol, seff, sinfo, sprio, squeue};
use spur_cli::format::Show;
use spur_cli::format::fields::job::is_meant;
use spur_cli::format::fields::priority::Weights;
use spur_cli::options::Settled;
use spur_core::text::jobid::JobRef;
use spur_proto::v1::{
    AccountingRow, Job, KeyValue, License, Node, Partition, PriorityFactors, Reservation, Step, Topology,
};

#[derive(Deserialize)]
struct Cluster {
    now: i64,
    jobs: Vec<Job>,
    steps: Vec<Step>,
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    topology: Topology,
    reservations: Vec<Reservation>,
    licenses: Vec<License>,
    accounting: Vec<AccountingRow>,
    priorities: Vec<PriorityFactors>,
    settings: BTreeMap<String, String>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/format")
}

/// Splits a line as a shell does, at blanks outside single and double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn run(line: &str, cluster: &Cluster) -> anyhow::Result<String> {
    let mut words = words(line);
    let mut environment = BTreeMap::new();
    while let Some((name, value)) = words[0].split_once('=') {
        environment.insert(name.to_owned(), value.to_owned());
        words.remove(0);
    }
    let command = words.remove(0);
    let env = |name: &str| environment.get(name).cloned();
    let mut show = Show::new(TimeZone::UTC, cluster.now);
    if let Some(width) = env("SLURM_BITSTR_LEN") {
        show.array_width = width.parse()?;
    }
    match command.as_str() {
        "squeue" => match squeue::Query::read(&words, &env)? {
            Asked::Show(text) => Ok(text),
            Asked::Run(query) if query.shows_steps() => query.steps_text(cluster.steps.clone(), &show),
            Asked::Run(query) => query.jobs_text(cluster.jobs.clone(), &show),
        },
        "sinfo" => match sinfo::Query::read(&words, &env)? {
            Asked::Show(text) => Ok(text),
            Asked::Run(query) if query.shows_reservations() => {
                Ok(query.reservations_text(&cluster.reservations, &show))
            }
            Asked::Run(query) if query.topology().is_some() => Ok(query.topology_text(&cluster.topology)),
            Asked::Run(query) => {
                let wanted = query.nodes().map(str::parse).transpose()?;
                let (partitions, nodes) = (cluster.partitions.clone(), cluster.nodes.clone());
                query.text(partitions, nodes, wanted.as_ref(), &show)
            }
        },
        "sprio" => match sprio::Query::read(&words, &env)? {
            Asked::Show(text) => Ok(text),
            Asked::Run(query) => {
                let setting =
                    |(key, value): (&String, &String)| KeyValue { key: key.clone(), value: value.clone() };
                let settings: Vec<KeyValue> = cluster.settings.iter().map(setting).collect();
                query.text(cluster.priorities.clone(), Weights::of(&settings), &show)
            }
        },
        "sacct" => match sacct::Query::read(&words, &env)? {
            Asked::Show(text) => Ok(text),
            Asked::Run(query) => query.text(cluster.accounting.clone(), &show),
        },
        "seff" => {
            let of = |row: &&AccountingRow| row.job_id.to_string() == words[0];
            let rows: Vec<AccountingRow> = cluster.accounting.iter().filter(of).cloned().collect();
            Ok(seff::text(&rows, false, &show.cluster, &show).unwrap_or_default())
        }
        "scontrol" => scontrol(&words, cluster, &show),
        other => panic!("no such command in these tests: {other}"),
    }
}

/// Runs `scontrol show ENTITY [NAME]` on the given records.
fn scontrol(words: &[String], cluster: &Cluster, show: &Show) -> anyhow::Result<String> {
    let mut call = scontrol::Call::default();
    let operands = match scontrol::LINE.settle(words, &|_| None, &mut call)? {
        Settled::Show(text) => return Ok(text),
        Settled::Run(operands) => operands,
    };
    let settings = call.settings();
    let name = operands.get(2).cloned().unwrap_or_default();
    let is = |other: &str| name.is_empty() || name == other;
    Ok(match operands[1].as_str() {
        "job" => {
            let named = Some(name.as_str()).filter(|name| !name.is_empty());
            let wanted: Option<JobRef> = named.map(str::parse).transpose()?;
            let meant = |job: &&Job| wanted.as_ref().is_none_or(|wanted| is_meant(job, wanted));
            let jobs: Vec<Job> = cluster.jobs.iter().filter(meant).cloned().collect();
            let jobs = match &wanted {
                Some(wanted) => scontrol::show_job::alone(jobs, wanted),
                None => jobs,
            };
            scontrol::show_job::text(&jobs, settings, show)
        }
        "node" => {
            let nodes: Vec<Node> = cluster.nodes.iter().filter(|node| is(&node.name)).cloned().collect();
            scontrol::show_node::text(&nodes, settings, show)
        }
        "partition" => scontrol::show_partition::text(&cluster.partitions, settings),
        "reservation" => {
            let all = cluster.reservations.iter().filter(|reservation| is(&reservation.name));
            let reservations: Vec<Reservation> = all.cloned().collect();
            scontrol::show_reservation::text(&reservations, settings.oneline, show)
        }
        "licenses" => scontrol::show_license::text(&cluster.licenses, settings.oneline),
        "step" => scontrol::show_step::text(&cluster.steps, settings.oneline, show),
        "topology" => scontrol::show_topology::text(&cluster.topology, None),
        "hostnames" => scontrol::hostnames::text(&name.parse()?, Form::Names),
        "hostlist" => scontrol::hostnames::text(&name.parse()?, Form::List),
        "hostlistsorted" => scontrol::hostnames::text(&name.parse()?, Form::Sorted),
        other => panic!("no such entity in these tests: {other}"),
    })
}

#[test]
fn commands_print_what_slurm_prints() {
    let directory = directory();
    let records = fs::read_to_string(directory.join("cluster.json")).unwrap();
    let cluster: Cluster = serde_json::from_str(&records).unwrap();
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.retain(|path| !path.ends_with("json-keys.txt"));
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut got = String::new();
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                got.push_str(&format!("$ {command}\n"));
                match run(command, &cluster) {
                    Ok(output) => got.push_str(&output),
                    Err(error) => got.push_str(&format!("error: {error}\n")),
                }
            } else if line.starts_with("# ") {
                got.push_str(&format!("{line}\n"));
            }
        }
        if update {
            fs::write(&file, &got).unwrap();
        } else if got != text {
            wrong.push(format!("{}\n{}", file.display(), first_difference(&text, &got)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// JSON has the keys that programs use, which are listed in `tests/data/format/json-keys.txt`.
#[test]
fn json_has_the_keys_of_slurm() {
    let directory = directory();
    let records = fs::read_to_string(directory.join("cluster.json")).unwrap();
    let cluster: Cluster = serde_json::from_str(&records).unwrap();
    let first = |line: &str, kind: &str| -> serde_json::Value {
        let text = run(line, &cluster).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["meta"]["plugin"]["data_parser"], "data_parser/v0.0.41", "{line}");
        document[kind][0].clone()
    };
    let rows = first("sinfo --json", "sinfo");
    let show = Show::new(TimeZone::UTC, cluster.now);
    let records = BTreeMap::from([
        ("job", first("squeue --json -S i -t R", "jobs")),
        ("node", spur_cli::format::json::node::node(&cluster.nodes[0], &show)),
        ("partition", rows["partition"].clone()),
        ("sinfo", rows),
        ("step", first("squeue --json -s", "steps")),
        ("account", first("sacct --json", "jobs")),
    ]);
    let text = fs::read_to_string(directory.join("json-keys.txt")).unwrap();
    let mut missing = Vec::new();
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    for (kind, keys) in lines.filter(|(kind, _)| !kind.starts_with('#')) {
        for key in keys.split(' ') {
            let found = key.split('/').try_fold(&records[kind], |value, key| value.get(key));
            if found.is_none() {
                missing.push(format!("{kind}: {key}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn first_difference(expected: &str, got: &str) -> String {
    let mut case = "";
    for (expected, got) in expected.lines().map(Some).chain([None]).zip(got.lines().map(Some).chain([None])) {
        case = expected.filter(|line| line.starts_with("$ ")).unwrap_or(case);
        if expected != got {
            return format!("  {case}\n  expected {expected:?}\n  got      {got:?}");
        }
    }
    String::new()
}
