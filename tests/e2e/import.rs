//! A site comes over from Slurm: what Slurm's commands printed of a cluster with two hundred ended jobs
//! (`tests/data/migrate`, written by `tests/beside-slurm/migrate`) is loaded into a controller, whose
//! commands then print the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::accounts::me;
use crate::cluster::{Cluster, Setup};

/// The delimiter of `history.txt`.
const DELIMITER: &str = "\u{1f}";
/// Usage of the site neither decays nor is reset.
const STILL: &str =
    "[scheduler]\npriority_decay_half_life = \"0s\"\npriority_usage_reset_period = \"none\"\n";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/migrate").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Imports files of the site; returns what is printed.
fn import(cluster: &Cluster, kinds: &[(&str, &Path)]) -> String {
    let files: Vec<String> =
        kinds.iter().map(|(kind, path)| format!("--{kind}={}", path.display())).collect();
    let words = ["spur", "import", "slurm"].into_iter().chain(files.iter().map(String::as_str));
    cluster.ok(&words.collect::<Vec<_>>())
}

fn import_all(cluster: &Cluster) -> String {
    let kinds = [
        ("qos", "qos.txt"),
        ("accounts", "tree.cfg"),
        ("past-usage", "usage.txt"),
        ("history", "history.txt"),
    ];
    let files: Vec<(&str, PathBuf)> = kinds.iter().map(|(kind, name)| (*kind, file(name))).collect();
    import(cluster, &files.iter().map(|(kind, path)| (*kind, path.as_path())).collect::<Vec<_>>())
}

/// The columns in which a line of `history.txt` differs from the line that sacct prints of the same run or
/// step, with the number of lines and one pair of values.
fn differences(theirs: &str, ours: &str) -> BTreeMap<String, (usize, String)> {
    let header: Vec<&str> = theirs.lines().next().unwrap().split(DELIMITER).collect();
    let rows = |text: &str| -> BTreeMap<(String, usize), Vec<String>> {
        let mut rows: BTreeMap<(String, usize), Vec<String>> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let values: Vec<String> = line.split(DELIMITER).map(str::to_owned).collect();
            let count = rows.keys().filter(|(job, _)| *job == values[1]).count();
            rows.insert((values[1].clone(), count), values);
        }
        rows
    };
    let (theirs, ours) = (rows(theirs), rows(ours));
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>(), "the same runs and steps");
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (key, theirs) in &theirs {
        for (column, (theirs, ours)) in header.iter().zip(theirs.iter().zip(&ours[key])) {
            if theirs != ours {
                let entry = found.entry((*column).to_owned()).or_insert_with(|| {
                    (0, format!("{} run {}: Slurm {theirs:?}, Spur {ours:?}", key.0, key.1))
                });
                entry.0 += 1;
            }
        }
    }
    found
}

fn history(cluster: &Cluster) -> String {
    let theirs = text("history.txt");
    let columns = theirs.lines().next().unwrap().replace(DELIMITER, ",");
    let delimiter = format!("--delimiter={DELIMITER}");
    let mut command = cluster.command(&[
        "sacct",
        "-a",
        "-D",
        "-P",
        "--noconvert",
        &delimiter,
        "-S",
        "2000-01-01",
        "-o",
        &columns,
    ]);
    let said = command.env("SLURM_TIME_FORMAT", "%s").output().expect("sacct is there");
    String::from_utf8(said.stdout).expect("text")
}

/// The rows of a table, sorted. Slurm 22.05 has other headers for two columns.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().skip(1).collect();
    lines.sort_unstable();
    lines
}

/// The columns of some rows of `sshare`: account, user, partition and raw usage.
fn usage(text: &str) -> BTreeSet<(String, String, String, String)> {
    let mut lines = text.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let [account, user, partition, raw] = ["Account", "User", "Partition", "RawUsage"].map(at);
    lines.map(|row| [account, user, partition, raw].map(|at| row[at].to_owned()).into()).collect()
}

#[test]
fn a_site_comes_over_from_slurm() {
    let mut cluster = Cluster::start(&Setup { more: STILL, ..Setup::default() });
    let said = import_all(&cluster);
    assert!(said.contains("219 runs and 335 steps of jobs up to"), "{said}");
    let imported = history(&cluster);
    let found = differences(&text("history.txt"), &imported);
    let named = text("differs.txt");
    let named: BTreeSet<&str> = named.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), named, "{found:#?}");

    let shares = cluster.ok(&["sshare", "-a", "-l", "-m", "-P"]);
    assert_eq!(usage(&shares), usage(&text("usage.txt")));
    let assoc = cluster.ok(&["sacctmgr", "show", "assoc", "-P"]).replace("e2e|", "spur|");
    assert_eq!(sorted(&assoc), sorted(&text("assoc.txt")));
    let qos = cluster.ok(&["sacctmgr", "show", "qos", "-P"]);
    assert_eq!(sorted(&qos), sorted(&text("qos.txt")));

    // The same import again changes nothing, and the history outlives the controller.
    assert!(import_all(&cluster).contains("219 runs and 335 steps"));
    assert_eq!(history(&cluster), imported);
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(history(&cluster), imported);
    assert_eq!(usage(&cluster.ok(&["sshare", "-a", "-l", "-m", "-P"])), usage(&text("usage.txt")));
    assert_eq!(cluster.ok(&["sacctmgr", "show", "assoc", "-P"]).replace("e2e|", "spur|"), assoc);

    // The next job has a number above the largest imported one, and reports count imported jobs.
    let theirs = text("history.txt");
    let number = |line: &str| line.split(DELIMITER).nth(1)?.split('.').next()?.parse::<u32>().ok();
    let largest = theirs.lines().skip(1).filter_map(number).max().unwrap();
    assert_eq!(cluster.sbatch(&["-A", "root", "--wrap", "true"]), largest + 1);
    let report = cluster.ok(&[
        "sreport",
        "-nP",
        "-t",
        "seconds",
        "cluster",
        "AccountUtilizationByUser",
        "start=2026-11-01",
        "end=2026-12-31",
        "accounts=phys",
    ]);
    assert!(report.lines().any(|line| line.contains("|ben|")), "{report}");
}

/// Job numbers that this cluster has used are not taken by imported jobs, and usage of its jobs stays.
#[test]
fn own_jobs_stay_what_they_are() {
    let cluster = Cluster::start(&Setup { more: STILL, ..Setup::default() });
    let mut client = cluster.client();
    cluster.ok(&["sacctmgr", "-i", "add", "account", "lab"]);
    cluster.ok(&["sacctmgr", "-i", "add", "user", &me(), "account=lab"]);
    let own = cluster.sbatch(&["-A", "lab", "-J", "mine", "-n", "1", "--wrap", "sleep 1"]);
    client.wait_for(own, "COMPLETED");
    let raw = |cluster: &Cluster| -> u64 {
        let shown = cluster.ok(&["sshare", "-a", "-nP", "-A", "lab", "-o", "rawusage"]);
        shown.lines().next().unwrap().trim().parse().unwrap()
    };
    let before = raw(&cluster);
    assert!(before > 0);
    let (history, usage) = (cluster.path("history"), cluster.path("usage"));
    let columns = "JobID|JobIDRaw|JobName|User|UID|Account|Partition|State|ExitCode|Submit|Start|End|AllocCPUS|AllocTRES";
    let row = |job: u32, end: &str| {
        format!("{job}|{job}|theirs|ada|7|lab|main|COMPLETED|0:0|100|200|{end}|1|cpu=1")
    };
    fs::write(
        &history,
        format!(
            "{columns}\n{}\n{}\n{}\nbroken\n",
            row(own, "300"),
            row(own + 5, "300"),
            row(own + 7, "Unknown")
        ),
    )
    .unwrap();
    fs::write(
        &usage,
        format!("Account|User|RawUsage\nroot||1000\n lab||1000\n  lab|{}|600\n  lab|gone|400\n", me()),
    )
    .unwrap();
    let said = import(&cluster, &[("past-usage", &usage), ("history", &history)]);
    for wanted in [
        format!("history:2: job {own} is left out: this cluster has a job {own} of its own"),
        format!("history:4: job {} is left out: it is COMPLETED; import it once it has ended", own + 7),
        "history:5: left out: the line has 1 values where the header has 14".to_owned(),
        "usage:5: left out: there is no association of user `gone` in account lab".to_owned(),
    ] {
        assert!(said.contains(&wanted), "{wanted}\n{said}");
    }
    assert_eq!(raw(&cluster), before + 1000);
    import(&cluster, &[("past-usage", &usage)]);
    assert_eq!(raw(&cluster), before + 1000, "usage is not added twice");
    assert_eq!(cluster.ok(&["sacct", "-nXP", "-j", &own.to_string(), "-o", "jobname"]), "mine\n");
    assert_eq!(cluster.ok(&["sacct", "-nXP", "-j", &(own + 5).to_string(), "-o", "jobname"]), "theirs\n");
    assert_eq!(cluster.sbatch(&["-A", "lab", "--wrap", "true"]), own + 8);
}

#[test]
fn only_administrators_import() {
    let cluster = Cluster::start(&Setup { auth: "key", ..Setup::default() });
    let request = spur_proto::v1::ImportHistoryRequest { last_job: 9, ..Default::default() };
    let mut user = cluster.client_of(65_534);
    let refused = user.import(request).unwrap_err().to_string();
    assert!(refused.contains("Access/permission denied"), "{refused}");
}
