//! The command `sattach`: prints the output of a step's tasks from now on, in addition to its `srun`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use spur_proto::convert::step::ranks;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::{
    CreateStepResponse, Error, StepAttach, StepData, StepInput, StepNodeLayout, StepOutput, TaskEnded,
};
use tokio::sync::mpsc;
use tonic::Status;

use super::launch::names;
use super::output::{Outputs, Own};
use super::{ask_again, group, node};
use crate::commands::called;
use crate::error::Failure;
use crate::options::submission::{Files, StepWishes};
use crate::options::{CommandLine, Opt, sets};
use crate::session::{Session, whoami};

/// Capacity of the queue of events.
const EVENTS: usize = 64;

/// Options of `sattach`.
#[derive(Debug, Default)]
pub struct Args {
    layout: bool,
    label: bool,
    quiet: bool,
    verbose: u32,
    output: Option<String>,
    error: Option<String>,
}

/// Command line of `sattach`.
pub const LINE: CommandLine<Args> = CommandLine {
    name: "sattach",
    synopsis: "[options] <jobid.stepid>",
    about: "Shows what the tasks of a step that runs write from now on; its srun goes on to get it, too. Ctrl-C ends only this \
            command.",
    options: &[
        Opt::flag("label", Some('l'), "prepend task number to lines of stdout/err", sets!(Args.label)),
        Opt::flag("layout", None, "print where the tasks run, and nothing else", sets!(Args.layout)),
        Opt::value(
            "output-filter",
            None,
            "task",
            "only the standard output of this task",
            |args: &mut Args, v| {
                args.output = Some(filter(v)?);
                Ok(())
            },
        ),
        Opt::value(
            "error-filter",
            None,
            "task",
            "only the standard error of this task",
            |args: &mut Args, v| {
                args.error = Some(filter(v)?);
                Ok(())
            },
        ),
        Opt::value("input-filter", None, "task", "only this task reads", |_: &mut Args, v| {
            filter(v).map(|_| ())
        })
        .without_effect("standard input stays with srun"),
        Opt::flag("pty", None, "take over the terminal of task zero", |_: &mut Args, _| Ok(()))
            .refused("a terminal belongs to its srun; srun --overlap --pty has one of its own"),
        Opt::flag("quiet", Some('Q'), "quiet mode (suppress informational messages)", sets!(Args.quiet)),
        Opt::flag(
            "verbose",
            Some('v'),
            "verbose mode (multiple -v's increase verbosity)",
            |args: &mut Args, _| {
                args.verbose += 1;
                Ok(())
            },
        ),
    ],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

fn filter(value: &str) -> Result<String, String> {
    match value {
        "all" | "none" => Ok(value.to_owned()),
        number => number
            .parse::<u32>()
            .map(|task| task.to_string())
            .map_err(|_| "say the number of a task".to_owned()),
    }
}

/// Runs `sattach`.
///
/// # Errors
/// A step that does not run, or a node that cannot be reached.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut args)? else {
        return Ok(0);
    };
    let [name] = &operands[..] else {
        bail!(Failure::new("one step is expected: sattach 42.0"));
    };
    let (job, number) =
        name.rsplit_once('.').with_context(|| format!("`{name}` names no step; say JOB.STEP"))?;
    if ["batch", "extern", "interactive"].contains(&number) {
        bail!("the {number} step has no streams to attach to; spur logs shows what a script writes");
    }
    let number: u32 = number.parse().with_context(|| format!("`{name}` names no step; say JOB.STEP"))?;
    let job = group::named(session, job).await?;
    if args.verbose > 1 {
        tell(session, job, number, args.verbose);
    }
    let step = ask_again(session.connection()?, job, number, &[]).await;
    let step = step.context("Could not get job step info")?;
    if step.credential.is_empty() {
        bail!("Invalid job step specified: step {job}.{number} has ended");
    }
    if args.layout {
        return layout(session, &step).map(|()| 0);
    }
    follow(session, job, step, &args).await
}

/// Prints the options in Slurm's form, for `-vv`.
fn tell(session: &mut Session, job: u32, step: u32, verbose: u32) {
    let user = whoami();
    session.inform("defined options for program `sattach'");
    session.inform("--------------- ---------------------");
    for (name, value) in [
        ("job ID", job.to_string()),
        ("step ID", step.to_string()),
        ("user", format!("`{}'", user.user)),
        ("uid", user.uid.to_string()),
        ("gid", user.gid.to_string()),
        ("verbose", verbose.to_string()),
    ] {
        session.inform(&format!("{name:<15}: {value}"));
    }
}

fn layout(session: &mut Session, step: &CreateStepResponse) -> anyhow::Result<()> {
    let tasks: u32 = step.nodes.iter().map(|node| node.tasks).sum();
    let names: Vec<&str> = step.nodes.iter().map(|node| node.name.as_str()).collect();
    let list = spur_core::text::hostlist::HostList::from_names(&names);
    writeln!(session.out, "Job step layout:\n\t{tasks} tasks, {} nodes ({list})\n", names.len())?;
    for (number, node) in step.nodes.iter().enumerate() {
        let ranks: Vec<String> = ranks(node).iter().map(|rank| format!("{rank} ")).collect();
        writeln!(session.out, "\tNode {number} ({}), {} task(s): {}", node.name, node.tasks, ranks.concat())?;
    }
    Ok(())
}

/// Prints the output of the tasks until all have ended. Returns the highest exit code of a task, as in Slurm,
/// or 1 if some output is missing.
async fn follow(
    session: &mut Session,
    job: u32,
    step: CreateStepResponse,
    args: &Args,
) -> anyhow::Result<u8> {
    let tasks = step.nodes.iter().map(|node| node.tasks).sum();
    let files = Files { output: args.output.clone(), error: args.error.clone(), ..Files::default() };
    let wishes = StepWishes { label: args.label, ..StepWishes::default() };
    let mut outputs = Outputs::new(&files, &wishes, names(session, job, &step, PathBuf::new()), tasks)?;
    let (tell, mut told) = mpsc::channel(EVENTS);
    let mut kept = Vec::new();
    for layout in &step.nodes {
        kept.push(watch(layout, &step, tell.clone()).await?);
    }
    drop(tell);
    let mut taken: BTreeMap<(u32, bool), u64> = BTreeMap::new();
    let mut ended: BTreeMap<u32, u8> = BTreeMap::new();
    let mut failed = false;
    while let Some((node, next)) = told.recv().await {
        let output = match next {
            Ok(StepOutput { output }) => output,
            Err(status) => {
                // The tasks of other nodes go on.
                session.error(&format!("{node}: {}; the rest of its output is missing", status.message()));
                failed = true;
                continue;
            }
        };
        match output {
            Some(Output::Data(StepData { task, stderr, offset, data })) => {
                let known = taken.insert((task, stderr), offset + data.len() as u64);
                let (out, mut err) = session.streams();
                let mut own = Own { out, err: &mut err };
                outputs.write((task, stderr), &data, &mut own)?;
                own.out.flush()?;
                drop(err);
                if known.is_some_and(|known| known < offset) && !args.quiet {
                    session.warn(&format!(
                        "task {task}: some of its output was missed: it writes faster than this shows"
                    ));
                }
            }
            // As in Slurm, signals do not count.
            Some(Output::TaskEnded(TaskEnded { task, exit_code, exit_signal: 0, .. })) => {
                let code = u8::try_from(exit_code).unwrap_or(u8::MAX);
                if ended.insert(task, code).is_none() && code > 0 {
                    session.error(&format!("task {task} exited with exit code {code}"));
                }
            }
            Some(Output::Failed(Error { message, .. }) | Output::Aborted(message)) => {
                session.error(&format!("{node}: {message}"));
                failed = true;
            }
            _ => {}
        }
    }
    let (out, mut err) = session.streams();
    outputs.finish_all(&mut Own { out, err: &mut err })?;
    Ok(ended.into_values().max().unwrap_or(0).max(u8::from(failed)))
}

/// The name of a node, and a message of its part of the step or the failure that ends the messages.
type Told = (String, Result<StepOutput, Status>);

/// Watches a step on one of its nodes. The node's messages end when the returned sender is dropped.
async fn watch(
    layout: &StepNodeLayout,
    step: &CreateStepResponse,
    tell: mpsc::Sender<Told>,
) -> anyhow::Result<mpsc::Sender<StepInput>> {
    let first = StepAttach { credential: step.credential.clone(), from: Vec::new() };
    let (inputs, mut answers) = node::look_on(layout, &step.credential, Input::Watch(first)).await?;
    let name = layout.name.clone();
    tokio::spawn(async move {
        while let Some(next) = answers.message().await.transpose() {
            let is_over = next.is_err();
            // The receiver is gone when the command ends.
            if tell.send((name.clone(), next)).await.is_err() || is_over {
                return;
            }
        }
    });
    Ok(inputs)
}
