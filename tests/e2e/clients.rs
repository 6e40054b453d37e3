//! Unmodified programs from PyPI that were written for Slurm. `tests/data/clients` contains their scripts
//! here, and the versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::cluster::{Cluster, Said, Setup, said};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/clients").join(name)
}

/// The programs' directory, made once for each list of versions. `None` without Python or its packages: the
/// test is skipped.
pub(crate) fn programs() -> Option<&'static Path> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PROGRAMS.get_or_init(|| match install() {
        Ok(programs) => Some(programs),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    });
    made.as_deref()
}

fn install() -> Result<PathBuf, String> {
    let wanted = fs::read_to_string(data("requirements.txt")).map_err(|error| error.to_string())?;
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let (programs, installed) = (environment.join("bin"), environment.join("installed.txt"));
    if fs::read_to_string(&installed).is_ok_and(|there| there == wanted) {
        return Ok(programs);
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{command:?}: {error}")),
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    run(Command::new(programs.join("pip")).args(["install", "--quiet", "-r"]).arg(data("requirements.txt")))?;
    fs::write(&installed, wanted).map_err(|error| error.to_string())?;
    Ok(programs)
}

/// Runs a program in a directory, with the cluster's commands and the program's own in the path.
fn run(cluster: &Cluster, programs: &Path, directory: &Path, words: &[&str]) -> Said {
    let program = programs.join(words[0]);
    let mut command = cluster.command(&[program.to_str().expect("paths here are text")]);
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}", cluster.path("bin").display(), programs.display());
    command.args(&words[1..]).current_dir(directory).env("PATH", path);
    said(command.output().expect("it was installed"))
}

/// Runs a script that must succeed to its end, and returns its output.
fn script(cluster: &Cluster, name: &str) -> Option<String> {
    let programs = programs()?;
    let work = cluster.path("work");
    let (script, folder) = (data(name), work.join("jobs"));
    let words = ["python", script.to_str().unwrap(), folder.to_str().unwrap()];
    let told = run(cluster, programs, &work, &words);
    assert_eq!(told.code, Some(0), "{}\n{}\n{}", told.out, told.err, cluster.logs());
    Some(told.out)
}

#[test]
fn submitit_gets_results_and_goes_on_after_its_time() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let Some(out) = script(&cluster, "with_submitit.py") else { return };
    assert!(out.ends_with("requeued on timeout\n"), "{out}");
}

#[test]
fn dask_has_workers_as_jobs() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let Some(out) = script(&cluster, "with_dask_jobqueue.py") else { return };
    assert!(out.ends_with("gone\n"), "{out}");
}

#[test]
fn snakemake_runs_ten_rules_with_and_without_an_account() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let Some(programs) = programs() else { return };
    // The plugin looks up an account among those of a user, if the user has any.
    cluster.ok(&["sacctmgr", "-i", "add", "account", "physics"]);
    cluster.ok(&["sacctmgr", "-i", "add", "user", &crate::accounts::me(), "account=physics"]);
    for account in [None, Some("slurm_account=physics")] {
        let directory = cluster.work(account.map_or("without", |_| "with"));
        fs::create_dir(&directory).unwrap();
        fs::copy(data("Snakefile"), directory.join("Snakefile")).unwrap();
        let given = ["snakemake", "--executor", "slurm", "--jobs", "8", "--latency-wait", "30"];
        let mut words = given.to_vec();
        words.extend([
            "--slurm-init-seconds-before-status-checks",
            "1",
            "--seconds-between-status-checks",
            "1",
        ]);
        words.extend(["--default-resources", "slurm_partition=main"]);
        words.extend(account);
        let told = run(&cluster, programs, &directory, &words);
        assert_eq!(told.code, Some(0), "{}\n{}\n{}", told.out, told.err, cluster.logs());
        let report = fs::read_to_string(directory.join("report.txt")).unwrap();
        assert_eq!(report, "4\nagain\n0\n1\n", "{}", told.err);
    }
    let charged = cluster.rows(&["sacct", "-aXnP", "-S", "now-1hour", "-o", "account"]);
    assert!(charged.iter().any(|account| account == "physics"), "{charged:?}");
}
