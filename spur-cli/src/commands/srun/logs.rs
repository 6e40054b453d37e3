//! The command `spur logs`: prints the output of a batch job, from its node while the job runs and later from
//! the file.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use spur_core::id::StepId;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::{Job, JobFilter, StepLogs};
use tonic::Status;

use super::{ask_again, group, node};
use crate::commands::called;
use crate::commands::{query, watch};
use crate::error::Failure;
use crate::options::{CommandLine, Opt, sets};
use crate::session::Session;

#[derive(Debug, Default)]
pub(in crate::commands) struct Args {
    follow: bool,
    stderr: bool,
}

/// Command line of `spur logs`.
pub(in crate::commands) const LINE: CommandLine<Args> = CommandLine {
    name: "spur logs",
    synopsis: "[-f] [-e] JOB",
    about: "Shows what a batch job has written. While it runs its node reads the file, as the job's user; afterwards it is \
            read here.",
    options: &[
        Opt::flag("follow", Some('f'), "go on until the job has ended", sets!(Args.follow)),
        Opt::flag(
            "stderr",
            Some('e'),
            "its standard error, where that has a file of its own",
            sets!(Args.stderr),
        ),
    ],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur logs`.
///
/// # Errors
/// An unknown job, a job without a script, or a file that cannot be read.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut args)? else {
        return Ok(0);
    };
    let [name] = &operands[..] else {
        bail!(Failure::new("one job is expected: spur logs -f 42"));
    };
    let id = group::named(session, name).await?;
    let mut job = find(session, id).await?;
    if !job.batch {
        bail!(
            "job {name} has no script; sattach shows what a step writes, to whoever runs it or beside that"
        );
    }
    if args.follow && waits(&job) {
        session.inform(&format!("job {name} waits; its output follows when it has started"));
        let mut known = watch::until(session, vec![id], |_, job| !waits(job)).await?;
        job = known.remove(&id).unwrap_or(job);
    }
    if waits(&job) {
        bail!("job {name} has not started yet; -f waits for it");
    }
    if watch::is_final(&job.state) && job.batch_host.is_empty() {
        bail!("job {name} ended before it had started: {} {}", job.state, job.reason);
    }
    if !watch::is_final(&job.state) {
        let script = ask_again(session.connection()?, id, StepId::BATCH.0, &[]).await;
        if let Ok(script) = script
            && let Some(layout) = script.nodes.first()
        {
            let asked =
                StepLogs { credential: script.credential.clone(), stderr: args.stderr, follow: args.follow };
            let first = Input::Logs(asked);
            let (_kept, mut answers) = node::look_on(layout, &script.credential, first).await?;
            let broken = |status: Status| {
                anyhow!("{}: {}; the rest of the output is missing", layout.name, status.message())
            };
            while let Some(answer) = answers.message().await.map_err(broken)? {
                match answer.output {
                    Some(Output::Data(data)) => {
                        session.out.write_all(&data.data)?;
                        session.out.flush()?;
                    }
                    Some(Output::Failed(error)) => bail!("{}: {}", layout.name, error.message),
                    Some(Output::Done(_)) => break,
                    _ => {}
                }
            }
            return Ok(0);
        }
    }
    show_file(session, &job, args.stderr).map(|()| 0)
}

/// Prints the file of a job that has ended.
fn show_file(session: &mut Session, job: &Job, stderr: bool) -> anyhow::Result<()> {
    let path = if stderr { &job.stderr } else { &job.stdout };
    let file = std::fs::File::open(Path::new(path));
    let mut file =
        file.with_context(|| format!("job {} has ended and wrote {path} on {}", job.id, job.batch_host))?;
    std::io::copy(&mut file, &mut session.out)?;
    Ok(())
}

fn waits(job: &Job) -> bool {
    matches!(job.state.as_str(), "PENDING" | "CONFIGURING")
}

async fn find(session: &mut Session, id: u32) -> anyhow::Result<Job> {
    let filter =
        JobFilter { job_ids: vec![id.to_string()], states: vec!["all".to_owned()], ..JobFilter::default() };
    let found = query::jobs(session.connection()?, filter).await?;
    found.into_iter().find(|job| job.id == id).with_context(|| format!("Invalid job id specified: {id}"))
}
