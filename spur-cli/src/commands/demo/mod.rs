//! The command `spur demo`: runs a whole cluster on this host for a minute, with jobs that show its
//! properties, and removes it.

mod cluster;
mod fabric;
mod janitor;
mod jobs;
mod progress;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use spur_core::text::hostlist::HostList;
use spur_proto::v1::{CancelJobsRequest, Job, JobFilter, ListJobsRequest};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::commands::watch::{self, Jobs};
use crate::commands::{sbatch, scontrol, sinfo, squeue};
use crate::error::{FAILURE, Failure};
use crate::options::{CommandLine, Opt, Settled, sets};
use crate::session::Session;
use cluster::{CONTROLLER, Cluster, Site};
use jobs::{GREETING, Gate, PLANS, Plan};
use progress::Progress;

/// Maximum time for the jobs to reach an expected state.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum time for cancelled jobs to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of lines in the report on one job.
const REPORT_LINES: usize = 10;
/// Suggestions after the demonstration.
const NEXT: &str = "\
Next: `spur demo --shell` leaves such a cluster up and gives you a shell in which sbatch, squeue and the others work.
      docs/guide/install.md sets up a cluster on your hosts; `spur import slurm /etc/slurm` begins with Slurm's files.";
/// Number of steps: cluster, nodes, jobs submitted, jobs shown, controller killed, node killed, jobs ended.
const STEPS: usize = 7;

#[derive(Debug, Default)]
pub(super) struct Wishes {
    shell: bool,
}

pub(super) const LINE: CommandLine<Wishes> = CommandLine {
    name: "spur demo",
    synopsis: "[OPTIONS]",
    about: "Brings up a controller and sixteen nodes on this host, without any privilege, runs jobs on them that show \
            how the fabric is used, kills the controller and a node while they run, and takes everything down again.",
    options: &[Opt::flag(
        "shell",
        None,
        "leave the cluster up for a shell, and take it down after that",
        sets!(Wishes.shell),
    )],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur demo`.
///
/// # Errors
/// The first failure.
pub async fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    if let Some(directory) = session.env(janitor::DUTY) {
        janitor::clear_up(Path::new(&directory));
        return Ok(0);
    }
    let mut wishes = Wishes::default();
    match LINE.settle(words, &|name| session.env(name), &mut wishes)? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(operands) => {
            if let Some(word) = operands.first() {
                bail!("`{word}` is not expected; `spur demo --help` tells what is");
            }
        }
    }
    let mut interrupted = Interrupts::listen()?;
    let mut progress = Progress::new(STEPS);
    let mut cluster = Cluster::prepare()?;
    let shown = tokio::select! {
        shown = show(session, &mut cluster, &mut progress, &wishes) => shown,
        () = interrupted.wait(wishes.shell) => Err(Failure { text: "interrupted".to_owned(), code: 130 }.into()),
    };
    progress.clear();
    if shown.is_err() || wishes.shell {
        cancel_all(&cluster.site).await;
    }
    let down = cluster.take_down().await;
    let code = shown?;
    down?;
    Ok(code)
}

/// Signals that end the demonstration.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    others: [tokio::signal::unix::Signal; 2],
}

impl Interrupts {
    fn listen() -> anyhow::Result<Interrupts> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let others = [listen(SignalKind::terminate())?, listen(SignalKind::hangup())?];
        Ok(Interrupts { interrupt: listen(SignalKind::interrupt())?, others })
    }

    /// Waits for one of the signals; the interrupt is ignored while a shell has the terminal.
    async fn wait(&mut self, shell: bool) {
        let [terminate, hangup] = &mut self.others;
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    if !shell {
                        return;
                    }
                }
                _ = terminate.recv() => return,
                _ = hangup.recv() => return,
            }
        }
    }
}

async fn show(
    session: &mut Session,
    cluster: &mut Cluster,
    progress: &mut Progress,
    wishes: &Wishes,
) -> anyhow::Result<u8> {
    progress.now("starting a controller and sixteen nodes");
    cluster.start().await?;
    progress.done();
    let site = cluster.site.clone();
    let greeted = cluster.while_up(greet(&site, progress)).await??;
    if wishes.shell {
        // The user of the shell may kill daemons, so their end is no failure.
        return shell(&site, progress).await;
    }
    let mut show = cluster.while_up(Show::begin(&site, progress, greeted)).await??;
    cluster.while_up(queries(session, &site, &["sinfo", "squeue", "scontrol show topology"])).await??;
    show.lose_controller(session, cluster, progress).await?;
    show.lose_node(session, cluster, progress).await?;
    cluster.while_up(show.end(&site, progress)).await??;
    progress.clear();
    show.judge(session, &site.path("jobs"))
}

/// Runs a job on all nodes; its end shows that every node works.
async fn greet(site: &Site, progress: &mut Progress) -> anyhow::Result<Jobs> {
    let directory = site.path("jobs");
    jobs::write_task(&directory)?;
    progress.now("waiting for the nodes: `hello` runs on all of them");
    GREETING.write(&directory)?;
    let greeting = BTreeMap::from([(submit(site, &GREETING).await?, &GREETING)]);
    let ended = wait(site, &greeting, |_| false).await?;
    progress.done();
    Ok(ended)
}

/// Runs a shell in which the user can use the cluster.
async fn shell(site: &Site, progress: &mut Progress) -> anyhow::Result<u8> {
    progress.clear();
    let program = std::env::var("SHELL").ok().filter(|shell| !shell.is_empty());
    let program = program.unwrap_or_else(|| "/bin/sh".to_owned());
    eprintln!("A cluster of sixteen nodes is up and has run its first job on all of them.");
    eprintln!("sbatch, squeue, sinfo and the others work in this shell; the cluster goes when it ends.");
    eprintln!("Try: sinfo; sbatch -N4 --wrap 'srun -l hostname'; squeue");
    let mut shell = Command::new(&program);
    shell.env_clear().envs(site.environment()).kill_on_drop(true);
    let ended = shell.status().await.with_context(|| format!("cannot run {program}"))?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE))
}

/// State of the presentation.
struct Show {
    /// Jobs that have not ended, by number.
    jobs: BTreeMap<u32, &'static Plan>,
    /// Gates of the waiting jobs.
    gates: Vec<Gate>,
    /// Results of the ended jobs.
    ended: Jobs,
    /// Differences from the expected results.
    faults: Vec<String>,
}

impl Show {
    /// Submits the jobs and waits until all gated ones are at their gates. A job that loses its node before
    /// its script has begun would be launched again, without a restart to show.
    async fn begin(site: &Site, progress: &mut Progress, ended: Jobs) -> anyhow::Result<Show> {
        let directory = site.path("jobs");
        progress.now("submitting five jobs");
        let mut show = Show { jobs: BTreeMap::new(), gates: Vec::new(), ended, faults: Vec::new() };
        for plan in &PLANS {
            show.gates.extend(plan.write(&directory)?);
            show.jobs.insert(submit(site, plan).await?, plan);
        }
        progress.done();
        let text = "waiting until the cluster is busy";
        progress.now(text);
        let all = show.gated().count();
        let seen = wait(site, &show.jobs, |jobs| {
            let there = show.gated().filter(|(id, _)| is_running(jobs, *id)).count();
            progress.count(text, there, all);
            there == all
        });
        let seen = seen.await?;
        let idle = show.gated().filter(|(id, _)| !is_running(&seen, *id));
        let idle: Vec<String> = idle
            .map(|(id, plan)| format!("{} (job {id}) did not get to run beside the others", plan.name))
            .collect();
        if idle.is_empty() {
            for gate in &mut show.gates {
                timeout(PATIENCE, gate.reached()).await.context("a running job does not begin")??;
            }
        }
        show.faults.extend(idle);
        progress.done();
        progress.clear();
        Ok(show)
    }

    /// Returns the jobs that wait at a gate.
    fn gated(&self) -> impl Iterator<Item = (u32, &'static Plan)> {
        self.jobs.iter().filter(|(_, plan)| plan.gated).map(|(&id, &plan)| (id, plan))
    }

    /// Kills and restarts the controller, and checks that the jobs kept running.
    async fn lose_controller(
        &mut self,
        session: &mut Session,
        cluster: &mut Cluster,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        progress.now("killing the controller");
        let site = cluster.site.clone();
        let killed = cluster.kill(CONTROLLER, false).await?;
        cluster.start_controller().await?;
        let gated: Vec<(u32, &Plan)> = self.gated().collect();
        let all_run = |jobs: &Jobs| gated.iter().all(|(id, _)| is_running(jobs, *id));
        let seen = cluster.while_up(wait(&site, &self.jobs, all_run)).await??;
        for (id, plan) in gated {
            let restarts = seen.get(&id).map_or(0, |job| job.restarts);
            if !is_running(&seen, id) || restarts > 0 {
                self.faults.push(format!("{} (job {id}) did not outlive the controller", plan.name));
            }
        }
        progress.done();
        progress.clear();
        writeln!(
            session.out,
            "$ kill -9 {}; spurctld    # the controller; the jobs go on",
            killed.as_raw_pid()
        )?;
        queries(session, &site, &["squeue"]).await
    }

    /// Kills all processes of a node that runs a job, and restarts its daemon. The job must restart once.
    async fn lose_node(
        &mut self,
        session: &mut Session,
        cluster: &mut Cluster,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        progress.now("killing a node");
        let site = cluster.site.clone();
        let victim = self.gated().find(|(_, plan)| plan.restarts > 0);
        let (id, plan) = victim.context("no job is to lose its node")?;
        let only = BTreeMap::from([(id, plan)]);
        let seen = cluster.while_up(wait(&site, &only, |jobs| is_running(jobs, id))).await??;
        let nodes = seen.get(&id).and_then(|job| job.nodes.parse::<HostList>().ok());
        let node = nodes.and_then(|nodes| nodes.first()).context("a job runs nowhere")?;
        cluster.kill(&node, true).await?;
        cluster.spawn(&node)?;
        let again = |jobs: &Jobs| {
            jobs.get(&id).is_some_and(|job| is_running(jobs, id) && job.restarts >= plan.restarts)
        };
        cluster.while_up(wait(&site, &only, again)).await??;
        progress.done();
        progress.clear();
        writeln!(
            session.out,
            "$ kill -9 …; spurd -N {node}    # all of {node}; {} (job {id}) begins anew, once",
            plan.name
        )?;
        queries(session, &site, &["squeue"]).await
    }

    /// Opens all gates and waits until the jobs have ended.
    async fn end(&mut self, site: &Site, progress: &mut Progress) -> anyhow::Result<()> {
        let text = "waiting for the jobs to end";
        progress.now(text);
        self.gates.iter_mut().try_for_each(Gate::open)?;
        let all = self.jobs.len();
        let over = |jobs: &Jobs| {
            let ended = jobs.values().filter(|job| watch::is_final(&job.state)).count();
            progress.count(text, ended, all);
            false
        };
        let ended = wait(site, &self.jobs, over).await?;
        self.jobs.extend(self.ended.keys().map(|&id| (id, &GREETING)));
        self.ended.extend(ended);
        progress.done();
        Ok(())
    }

    /// Prints the results of the jobs and their differences from the definitions.
    fn judge(mut self, session: &mut Session, directory: &Path) -> anyhow::Result<u8> {
        for (id, plan) in &self.jobs {
            let job = self.ended.remove(id).unwrap_or_default();
            let output = fs::read_to_string(directory.join(format!("{}.out", plan.name))).unwrap_or_default();
            report(session, plan, &job, &output)?;
            self.faults.extend(plan.faults(&job, &output));
        }
        session.out.flush()?;
        for fault in &self.faults {
            session.error(fault);
        }
        if self.faults.is_empty() {
            writeln!(session.out, "All {} jobs ended as they should.\n{NEXT}", self.jobs.len())?;
            return Ok(0);
        }
        Ok(FAILURE)
    }
}

fn is_running(jobs: &Jobs, id: u32) -> bool {
    jobs.get(&id).is_some_and(|job| job.state == "RUNNING")
}

/// Submits a script by `sbatch`.
async fn submit(site: &Site, plan: &Plan) -> anyhow::Result<u32> {
    let mut inside = site.session("sbatch");
    let directory = site.path("jobs");
    let script = directory.join(format!("{}.sh", plan.name));
    let words =
        ["--parsable".to_owned(), format!("--chdir={}", directory.display()), script.display().to_string()];
    let code =
        sbatch::run(&mut inside, words.into()).await.with_context(|| format!("sbatch {}.sh", plan.name))?;
    let printed = inside.out.take_text();
    match printed.trim().parse() {
        Ok(id) if code == 0 => Ok(id),
        _ => bail!("sbatch {}.sh ended with {code} and printed `{}`", plan.name, printed.trim()),
    }
}

/// Waits for jobs until `wanted` is satisfied. After [`PATIENCE`], fails with the reasons for which they
/// wait.
async fn wait(
    site: &Site,
    plans: &BTreeMap<u32, &'static Plan>,
    mut wanted: impl FnMut(&Jobs) -> bool,
) -> anyhow::Result<Jobs> {
    let mut inside = site.session("spur demo");
    let mut last = Jobs::new();
    let watched = watch::until(&mut inside, plans.keys().copied().collect(), |jobs, _| {
        last.clone_from(jobs);
        wanted(jobs)
    });
    if let Ok(jobs) = timeout(PATIENCE, watched).await {
        return jobs;
    }
    let stuck = plans.iter().map(|(id, plan)| match last.get(id) {
        None => format!("\n{} (job {id}): nothing was heard of it", plan.name),
        Some(job) => {
            format!("\n{} (job {id}): {} {} {}", plan.name, job.state, job.reason, job.reason_detail)
        }
    });
    bail!("the jobs do not get on within {} s:{}", PATIENCE.as_secs(), stuck.collect::<String>())
}

/// Runs commands that show the jobs, and prints their output.
async fn queries(session: &mut Session, site: &Site, commands: &[&str]) -> anyhow::Result<()> {
    for &command in commands {
        let mut inside = site.session("spur demo");
        let code = match command {
            "sinfo" => sinfo::run(&mut inside, Vec::new()).await,
            "squeue" => squeue::run(&mut inside, Vec::new()).await,
            _ => scontrol::run(&mut inside, vec!["show".to_owned(), "topology".to_owned()]).await,
        };
        let code = code.with_context(|| command.to_owned())?;
        writeln!(session.out, "$ {command}\n{}", inside.out.take_text())?;
        if code != 0 {
            bail!("{command} ended with {code}: {}", inside.take_complaints());
        }
    }
    session.out.flush()?;
    Ok(())
}

/// Prints the result of a job in at most [`REPORT_LINES`] lines; the remaining lines are only counted.
fn report(session: &mut Session, plan: &Plan, job: &Job, output: &str) -> anyhow::Result<()> {
    let nodes: Vec<String> =
        job.nodes.parse::<HostList>().map(|list| list.iter().collect()).unwrap_or_default();
    let mut lines = vec![
        format!("{} (job {}): {}", plan.name, job.id, plan.about),
        format!("  nodes   {} in {}", job.nodes, jobs::leaves(&nodes).join(", ")),
    ];
    if !job.why.is_empty() {
        lines.push(format!("  why     {}", job.why));
    }
    if job.backfilled {
        lines.push("  when    before its turn (backfill)".to_owned());
    }
    if job.restarts > 0 {
        lines.push(format!("  begun   {} times: it lost a node", job.restarts + 1));
    }
    lines.push(format!("  ended   {} {}:{}", job.state, job.exit_code, job.exit_signal));
    let printed = jobs::by_rank(output);
    let room = REPORT_LINES - lines.len();
    let shown = if printed.len() > room { room - 1 } else { printed.len() };
    lines.extend(printed[..shown].iter().map(|line| format!("  | {line}")));
    if shown < printed.len() {
        lines.push(format!("  | … and {} lines more", printed.len() - shown));
    }
    Ok(writeln!(session.out, "{}\n", lines.join("\n"))?)
}

/// Cancels all jobs, so that nothing runs when the nodes end. Jobs that cannot be cancelled end with the
/// nodes.
async fn cancel_all(site: &Site) {
    let cancelled = async {
        let mut inside = site.session("spur demo");
        let connection = inside.connection()?;
        let request = ListJobsRequest::default();
        let listed =
            connection.list(request, async |mut controller, r| controller.list_jobs(r).await).await?;
        let ids: Vec<u32> = listed.iter().flat_map(|answer| &answer.jobs).map(|job| job.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let job_ids = ids.iter().map(u32::to_string).collect();
        let filter = Some(JobFilter { job_ids, ..JobFilter::default() });
        let request = CancelJobsRequest { filter, ..CancelJobsRequest::default() };
        connection.change(request, async |mut controller, r| controller.cancel_jobs(r).await).await?;
        watch::until_ended(&mut inside, ids).await?;
        anyhow::Ok(())
    };
    // The nodes end next, even if this failed.
    let _ = timeout(CANCEL_PATIENCE, cancelled).await;
}
