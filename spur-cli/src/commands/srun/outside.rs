//! The command `srun` outside of jobs: requests an allocation, runs its step in it, and ends it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use spur_core::model::distribution::Distribution;
use spur_core::text::exit::ExitCode;
use spur_proto::v1::{Client, JobSpec, SubmitRequest};

use super::{run_in, wish};
use crate::commands::allocation::{Allocation, Grant, Wait, busy, patience};
use crate::commands::sbatch;
use crate::commands::signals::Signals;
use crate::error::{FAILURE, Failure};
use crate::options::submission::Submission;
use crate::place::{self, Here};
use crate::session::Session;

/// Runs the program in a new allocation.
///
/// # Errors
/// A failure to run the step.
pub(super) async fn run(
    session: &mut Session,
    mut wishes: Submission,
    argv: &[String],
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    place::become_user(wishes.uid.as_deref(), wishes.gid.as_deref())?;
    sbatch::check_cluster(session, wishes.clusters.as_deref()).await?;
    place::read_hosts(&mut wishes)?;
    place::count_named(session, &mut wishes)?;
    wish::honour_tasks(session, &mut wishes, None);
    let spec = request(&for_allocation(session, &wishes)?, argv)?;
    if wishes.test_only {
        let request = SubmitRequest { job: Some(spec), ..SubmitRequest::default() };
        return sbatch::test(session, request, &wishes).await;
    }
    let asked = Allocation::ask(session, spec, wishes.quiet).await;
    let mut allocation = asked.context("Unable to allocate resources")?;
    granted(session, &mut allocation, &wishes, signals).await?;
    let job = allocation.job;
    let ended = run_in(session, vec![(job, of_step(session, wishes))], argv, signals).await;
    if !allocation.is_revoked(session) {
        let exit = ended.as_ref().map_or(ExitCode::exited(FAILURE), |exit| *exit);
        allocation.end(session, exit).await;
    }
    ended.map(ExitCode::shell)
}

/// Returns the request for the allocation.
fn request(wishes: &Submission, argv: &[String]) -> anyhow::Result<JobSpec> {
    let mut spec = wishes.clone().into_spec(&Here)?;
    if spec.name.is_empty() {
        let base = argv.first().and_then(|program| Path::new(program).file_name());
        spec.name = base.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    }
    spec.submit_host = place::hostname();
    spec.client = Some(Client {
        command: argv.first().cloned().unwrap_or_default(),
        work_dir: place::directory(wishes.chdir.as_deref())?,
        no_shell: false,
    });
    Ok(spec)
}

/// Returns the options for the allocation that the step needs.
///
/// # Errors
/// Hosts that cannot be read, or `--relative`, which is valid only inside a job.
fn for_allocation(session: &Session, wishes: &Submission) -> anyhow::Result<Submission> {
    ensure!(wishes.step.relative.is_none(), "--relative option invalid for job allocation request");
    let mut wishes = wishes.clone();
    if wish::is_arbitrary(session, &wishes)? {
        on_hosts(session, &mut wishes)?;
    }
    if wishes.step.overcommit {
        wishes.apply_overcommit();
    }
    Ok(wishes)
}

/// Sets the nodes of a batch job or an allocation from the file in `SLURM_HOSTFILE`.
///
/// # Errors
/// A file that cannot be read, or that names fewer nodes than there are tasks.
pub(in crate::commands) fn read_hostfile(session: &Session, wishes: &mut Submission) -> anyhow::Result<()> {
    if session.env("SLURM_HOSTFILE").is_none() || !wish::is_arbitrary(session, wishes)? {
        return Ok(());
    }
    let tasks = on_hosts(session, wishes).context("Failure getting NodeNames from hostfile")?;
    // By default, steps have one task per name in the file instead of one per place on the nodes.
    wishes.advice.extend(["SLURM_NTASKS", "SLURM_NPROCS"].map(|name| (name, tasks.to_string())));
    Ok(())
}

/// Requests the named nodes for `--distribution=arbitrary`. Each gets as many tasks as the most frequent
/// name. Returns the number of names.
fn on_hosts(session: &Session, wishes: &mut Submission) -> anyhow::Result<usize> {
    let hosts = wish::hosts(session, &wishes.spec)?;
    let mut each = BTreeMap::<&str, u32>::new();
    hosts.iter().for_each(|host| *each.entry(host).or_default() += 1);
    if wishes.spec.nodes.is_empty() {
        wishes.spec.nodes = each.len().to_string();
    }
    wishes.spec.tasks = None;
    wishes.spec.tasks_per_node = each.values().max().copied();
    wishes.spec.nodelist = Vec::from_iter(each.into_keys()).join(",");
    Ok(hosts.len())
}

/// Returns the options of the step in the allocation. The step uses all nodes of the allocation; nodes that
/// are named per task are kept.
fn of_step(session: &Session, mut wishes: Submission) -> Submission {
    let says = |option: &str| wishes.said.contains_key(option);
    // As with Slurm, a step without a number of tasks gets the whole nodes of an exclusive allocation.
    let is_named = says("exact") || says("ntasks") || says("cpus-per-task") || !says("exclusive");
    wishes.step.exact &= is_named;
    if wishes.spec.tasks.is_none() && wishes.spec.tasks_per_node.is_none() {
        wishes.spec.tasks = wishes.tasks_of_cores();
    }
    // A packed step uses as few nodes as possible, so it repeats a fixed number of nodes.
    let packs = wish::distributions(session, &wishes)
        .is_ok_and(|distributions| distributions.over_nodes() == Some(Distribution::Pack));
    if !packs || wishes.spec.nodes.parse::<u32>().is_err() {
        wishes.spec.nodes.clear();
    }
    if !wish::is_arbitrary(session, &wishes).is_ok_and(|is| is) {
        wishes.spec.nodelist.clear();
    }
    wishes.spec.exclude.clear();
    wishes.spec.features.clear();
    wishes
}

/// Waits until the allocation starts, and sets the environment as inside the allocation.
async fn granted(
    session: &mut Session,
    allocation: &mut Allocation,
    wishes: &Submission,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let id = allocation.job;
    let (quiet, mut waited) = (wishes.quiet, false);
    let queued = |session: &mut Session| {
        waited = true;
        if !quiet {
            session.inform(&format!("job {id} queued and waiting for resources"));
        }
    };
    let wait = allocation.wait(session, patience(wishes), async || signals.next().await, queued).await?;
    match wait {
        Wait::Granted(grant) => {
            let Grant { job, environment, .. } = *grant;
            if waited && !quiet {
                session.inform(&format!("job {id} has been allocated resources"));
            }
            if wishes.verbose > 0 {
                let (count, nodes, cpus) = (job.num_nodes, &job.nodes, &job.cpus_per_node);
                session.inform(&format!("jobid {id}: nodes({count}):`{nodes}', cpu counts: {cpus}"));
            }
            // As in Slurm, tasks get no variables of memory from the allocation.
            let told = environment.into_iter().filter(|variable| !variable.key.starts_with("SLURM_MEM_PER_"));
            session.set_env(told.map(|variable| (variable.key, variable.value)));
            // The directory of the call, also if tasks run elsewhere (`--chdir`).
            session.set_env([("SLURM_SUBMIT_DIR".to_owned(), place::directory(None)?)]);
            Ok(())
        }
        Wait::Busy => Err(busy(session).into()),
        Wait::Interrupted(signal) => {
            session.inform(&format!("Job allocation {id} has been revoked"));
            let text = format!("job {id} was cancelled while it waited, by signal {signal}");
            Err(Failure { text, code: 128 + signal.number() }.into())
        }
        Wait::Revoked => {
            session.inform(&format!("Job allocation {id} has been revoked"));
            Err(Failure::new(format!("Unable to allocate resources: job {id} has been cancelled")).into())
        }
    }
}
