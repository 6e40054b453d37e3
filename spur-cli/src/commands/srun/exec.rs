//! The command `spur exec`, which runs a command in a running job beside its steps. It is a short form of
//! `srun --jobid=JOB --overlap --pty`.

use std::io::{IsTerminal, stdin, stdout};

use crate::commands::called;
use crate::error::Failure;
use crate::options::{CommandLine, Opt};
use crate::session::Session;

#[derive(Debug, Default)]
pub(in crate::commands) struct Args {
    node: Option<String>,
}

/// Command line of `spur exec`.
pub(in crate::commands) const LINE: CommandLine<Args> = CommandLine {
    name: "spur exec",
    synopsis: "[--node=NODE] JOB [COMMAND [ARGUMENTS]]",
    about: "Runs a command, or a shell where none is named, in a job that runs: as the job's user, on its first node, with all \
            that the job has there, whatever its steps use. A terminal here is one there, too.",
    options: &[Opt::value("node", Some('w'), "node", "on this node of the job", |args: &mut Args, v| {
        args.node = Some(v.to_owned());
        Ok(())
    })],
    mask: 1,
    env_prefixes: &[],
    permute: false,
};

/// Runs `spur exec`.
///
/// # Errors
/// A failure to run the command.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(mut operands) = called::operands(session, &LINE, &words, &mut args)? else {
        return Ok(0);
    };
    if operands.is_empty() {
        return Err(Failure::new("a job is expected: spur exec 42 nvidia-smi").into());
    }
    let command = operands.split_off(1);
    let job = operands.remove(0);
    let mut asked = vec![format!("--jobid={job}")];
    asked.extend(["--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--quiet"].map(str::to_owned));
    asked.extend(args.node.map(|node| format!("--nodelist={node}")));
    if stdin().is_terminal() && stdout().is_terminal() {
        asked.push("--pty".to_owned());
    }
    if command.is_empty() {
        asked.push(session.env("SHELL").unwrap_or_else(|| "/bin/sh".to_owned()));
    }
    asked.extend(command);
    super::run(session, asked).await
}
