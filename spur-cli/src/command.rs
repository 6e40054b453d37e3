//! The commands: selection by name, and conversion of a command's result to an exit code.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::commands;
use crate::commands::moving::Move;
use crate::error;
use crate::session::Session;
use crate::version;

/// A client command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The command `sbatch`.
    Sbatch,
    /// The command `salloc`.
    Salloc,
    /// The command `srun`.
    Srun,
    /// The command `sattach`.
    Sattach,
    /// The command `sbcast`.
    Sbcast,
    /// The command `spur exec`.
    Exec,
    /// The command `spur logs`.
    Logs,
    /// The command `sprio`.
    Sprio,
    /// The command `squeue`.
    Squeue,
    /// The command `sinfo`.
    Sinfo,
    /// The command `scontrol`.
    Scontrol,
    /// The command `scancel`.
    Scancel,
    /// The command `sacct`.
    Sacct,
    /// The command `sstat`.
    Sstat,
    /// The command `sacctmgr`.
    Sacctmgr,
    /// The command `sshare`.
    Sshare,
    /// The command `sreport`.
    Sreport,
    /// The command `sdiag`.
    Sdiag,
    /// The command `seff`.
    Seff,
    /// `spur defrag`
    Defrag,
    /// `spur demo`
    Demo,
    /// The command `spur links`.
    Links,
    /// The command `spur import`.
    Import,
    /// The command `spur discover`.
    Discover,
    /// The command `spur config`.
    Config,
    /// The command `spur keygen`.
    Keygen,
    /// `spur migrate`
    Migrate,
    /// `spur backup`
    Backup,
    /// `spur restore`
    Restore,
    /// `spur man`
    Man,
    /// The command `spur completion`.
    Completion,
    /// The command `spur plan`.
    Plan,
    /// The command `spur sim`.
    Sim,
    /// The command `spur why`.
    Why,
    /// `spur limits`
    Limits,
    /// The command `spur policy`.
    Policy,
}

/// Description of a command.
struct Entry {
    command: Command,
    name: &'static str,
    /// True if the command also has a link of its own name.
    linked: bool,
    about: &'static str,
}

const COMMANDS: &[Entry] = &[
    Entry { command: Command::Sbatch, name: "sbatch", linked: true, about: "submit a batch script" },
    Entry { command: Command::Salloc, name: "salloc", linked: true, about: "run a shell in an allocation" },
    Entry { command: Command::Srun, name: "srun", linked: true, about: "run a step of a job" },
    Entry { command: Command::Sattach, name: "sattach", linked: true, about: "show the output of a step" },
    Entry { command: Command::Sbcast, name: "sbcast", linked: true, about: "copy a file to a job's nodes" },
    Entry { command: Command::Exec, name: "exec", linked: false, about: "run a command in a running job" },
    Entry { command: Command::Logs, name: "logs", linked: false, about: "show the output of a batch job" },
    Entry { command: Command::Sprio, name: "sprio", linked: true, about: "show the factors of priorities" },
    Entry { command: Command::Squeue, name: "squeue", linked: true, about: "show jobs and steps" },
    Entry { command: Command::Sinfo, name: "sinfo", linked: true, about: "show partitions and nodes" },
    Entry {
        command: Command::Scontrol,
        name: "scontrol",
        linked: true,
        about: "show and change all entities",
    },
    Entry { command: Command::Scancel, name: "scancel", linked: true, about: "end or signal jobs and steps" },
    Entry { command: Command::Sacct, name: "sacct", linked: true, about: "show jobs from accounting" },
    Entry {
        command: Command::Seff,
        name: "seff",
        linked: true,
        about: "show how much of its share a job used",
    },
    Entry { command: Command::Sstat, name: "sstat", linked: true, about: "show the usage of running steps" },
    Entry {
        command: Command::Sacctmgr,
        name: "sacctmgr",
        linked: true,
        about: "show and change accounts, users, associations and QOS",
    },
    Entry {
        command: Command::Sshare,
        name: "sshare",
        linked: true,
        about: "show the shares of associations",
    },
    Entry {
        command: Command::Sreport,
        name: "sreport",
        linked: true,
        about: "report usage by cluster, account and user",
    },
    Entry { command: Command::Sdiag, name: "sdiag", linked: true, about: "show the controller's statistics" },
    Entry { command: Command::Demo, name: "demo", linked: false, about: "show a whole cluster on this host" },
    Entry {
        command: Command::Defrag,
        name: "defrag",
        linked: false,
        about: "move jobs so that a request starts in one domain",
    },
    Entry {
        command: Command::Plan,
        name: "plan",
        linked: false,
        about: "print when and where a job would start",
    },
    Entry {
        command: Command::Why,
        name: "why",
        linked: false,
        about: "print why a job waits, or runs on its nodes",
    },
    Entry {
        command: Command::Limits,
        name: "limits",
        linked: false,
        about: "list the limits that apply to a user or an account",
    },
    Entry {
        command: Command::Policy,
        name: "policy",
        linked: false,
        about: "print the policy tree as a file, compare a file with the tree, or import a file",
    },
    Entry {
        command: Command::Sim,
        name: "sim",
        linked: false,
        about: "run a workload on a simulated cluster",
    },
    Entry {
        command: Command::Links,
        name: "links",
        linked: false,
        about: "make the commands' links in a directory",
    },
    Entry {
        command: Command::Import,
        name: "import",
        linked: false,
        about: "write a spur.toml from Slurm's files, or load accounts and history",
    },
    Entry {
        command: Command::Discover,
        name: "discover",
        linked: false,
        about: "write [topology] from the output of discovery tools",
    },
    Entry {
        command: Command::Config,
        name: "config",
        linked: false,
        about: "check a spur.toml, or show its settings",
    },
    Entry { command: Command::Man, name: "man", linked: false, about: "write the commands' manual pages" },
    Entry {
        command: Command::Completion,
        name: "completion",
        linked: false,
        about: "print completions for a shell",
    },
    Entry { command: Command::Keygen, name: "keygen", linked: false, about: "make a new cluster key" },
    Entry {
        command: Command::Migrate,
        name: "migrate",
        linked: false,
        about: "copy a journal from SQLite into PostgreSQL",
    },
    Entry {
        command: Command::Backup,
        name: "backup",
        linked: false,
        about: "copy a journal in SQLite while it is in use",
    },
    Entry {
        command: Command::Restore,
        name: "restore",
        linked: false,
        about: "put the copy of a journal in its place",
    },
];

impl Command {
    /// Returns the name of the command in its messages.
    pub fn title(self) -> &'static str {
        match self {
            Command::Defrag => "spur defrag",
            Command::Demo => "spur demo",
            Command::Exec => "spur exec",
            Command::Logs => "spur logs",
            Command::Links => "spur links",
            Command::Import => "spur import",
            Command::Discover => "spur discover",
            Command::Config => "spur config",
            Command::Keygen => "spur keygen",
            Command::Migrate => "spur migrate",
            Command::Backup => "spur backup",
            Command::Restore => "spur restore",
            Command::Man => "spur man",
            Command::Completion => "spur completion",
            Command::Plan => "spur plan",
            Command::Sim => "spur sim",
            Command::Why => "spur why",
            Command::Limits => "spur limits",
            Command::Policy => "spur policy",
            other => COMMANDS.iter().find(|entry| entry.command == other).map_or("spur", |entry| entry.name),
        }
    }

    /// Returns the names of the programs that are links to `spur`.
    pub fn linked() -> impl Iterator<Item = &'static str> {
        COMMANDS.iter().filter(|entry| entry.linked).map(|entry| entry.name)
    }

    /// Returns the names of all commands in their messages.
    #[cfg(test)]
    pub(crate) fn titles() -> impl Iterator<Item = &'static str> {
        COMMANDS.iter().map(|entry| entry.command.title())
    }

    fn by_name(name: &str) -> Option<Command> {
        COMMANDS.iter().find(|entry| entry.name == name).map(|entry| entry.command)
    }

    async fn run(self, session: &mut Session, args: Vec<String>) -> anyhow::Result<u8> {
        match self {
            Command::Sbatch => commands::sbatch::run(session, args).await,
            Command::Salloc => commands::salloc::run(session, args).await,
            Command::Srun => commands::srun::run(session, args).await,
            Command::Sattach => commands::srun::attach::run(session, args).await,
            Command::Sbcast => commands::srun::bcast::run(session, args).await,
            Command::Exec => commands::srun::exec::run(session, args).await,
            Command::Logs => commands::srun::logs::run(session, args).await,
            Command::Sprio => commands::sprio::run(session, args).await,
            Command::Squeue => commands::squeue::run(session, args).await,
            Command::Sinfo => commands::sinfo::run(session, args).await,
            Command::Scontrol => commands::scontrol::run(session, args).await,
            Command::Scancel => commands::scancel::run(session, args).await,
            Command::Sacct => commands::sacct::run(session, args).await,
            Command::Sstat => commands::sstat::run(session, args).await,
            Command::Sacctmgr => commands::sacctmgr::run(session, args).await,
            Command::Sshare => commands::sshare::run(session, args).await,
            Command::Sreport => commands::sreport::run(session, args).await,
            Command::Sdiag => commands::sdiag::run(session, args).await,
            Command::Seff => commands::seff::run(session, args).await,
            Command::Defrag => commands::defrag::run(session, args).await,
            Command::Demo => commands::demo::run(session, &args).await,
            Command::Links => commands::links::run(session, &args),
            Command::Import => commands::import::run(session, &args).await,
            Command::Discover => commands::discover::run(session, args).await,
            Command::Config => commands::config::run(session, &args),
            Command::Keygen => commands::keygen::run(session, &args),
            Command::Migrate => commands::moving::run(session, Move::Migrate, &args),
            Command::Backup => commands::moving::run(session, Move::Backup, &args),
            Command::Restore => commands::moving::run(session, Move::Restore, &args),
            Command::Man => commands::pages::man(session, &args),
            Command::Completion => commands::pages::completion(session, &args),
            Command::Plan => commands::sim::plan::run(session, &args).await,
            Command::Sim => commands::sim::run(session, &args),
            Command::Why => commands::why::run(session, args).await,
            Command::Limits => commands::limits::run(session, args).await,
            Command::Policy => commands::policy::run(session, args).await,
        }
    }
}

/// Finds the command, runs it and returns its exit code.
pub fn main() -> ExitCode {
    let mut arguments = Vec::new();
    for argument in std::env::args_os() {
        match argument.into_string() {
            Ok(argument) => arguments.push(argument),
            Err(argument) => {
                let text = format!("spur: error: argument {} is not UTF-8\n", argument.display());
                print_to(io::stderr(), &text);
                return ExitCode::from(error::FAILURE);
            }
        }
    }
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_default();
    let called = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match Command::by_name(called) {
        Some(command) => start(command, rest),
        None => subcommand(rest),
    }
}

/// Runs `spur COMMAND …`.
fn subcommand(mut arguments: Vec<String>) -> ExitCode {
    let Some(first) = arguments.first().cloned() else {
        print_to(io::stderr(), &usage());
        return ExitCode::from(error::FAILURE);
    };
    match first.as_str() {
        "--help" | "-h" | "help" | "--usage" => {
            print_to(io::stdout(), &usage());
            return ExitCode::SUCCESS;
        }
        "--version" | "-V" => {
            print_to(io::stdout(), &format!("{}\n", version::own()));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Some(command) = Command::by_name(&first) {
        arguments.remove(0);
        return start(command, arguments);
    }
    let known = COMMANDS.iter().map(|entry| entry.name);
    let hint = match spur_core::text::nearest::nearest(&first, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`spur --help` lists the commands".to_owned(),
    };
    print_to(io::stderr(), &format!("spur: error: there is no command `{first}`; {hint}\n"));
    ExitCode::from(error::FAILURE)
}

/// Prints a text; a closed stream is ignored.
fn print_to(mut stream: impl Write, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

fn start(command: Command, arguments: Vec<String>) -> ExitCode {
    let mut session = Session::from_process(command.title());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            session.error(&format!("cannot start: {error}"));
            return ExitCode::from(error::FAILURE);
        }
    };
    let ended = runtime.block_on(Box::pin(command.run(&mut session, arguments)));
    let ended = ended.and_then(|code| Ok(session.out.finish().map(|()| code)?));
    // The program ends without waiting for blocked reads, such as of standard input.
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(error::report(&mut session, &error)),
    }
}

fn usage() -> String {
    let mut text = String::from("Usage: spur COMMAND [ARGUMENTS]\n\nCommands:\n");
    for entry in COMMANDS {
        text.push_str(&format!("  {:<10} {}\n", entry.name, entry.about));
    }
    text.push_str(
        "\nEach command explains itself with --help. `spur links DIR` makes links by which the commands\n",
    );
    text.push_str("are found under their own names.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_spur_alone_is_in_the_docs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compat.md");
        let text = std::fs::read_to_string(path).expect("docs/compat.md");
        let (_, table) = text.split_once("\n## Spur's own commands\n").expect("the section");
        let own = COMMANDS.iter().filter(|entry| !entry.linked);
        let missing: Vec<&str> =
            own.map(|entry| entry.command.title()).filter(|title| !table.contains(*title)).collect();
        assert!(missing.is_empty(), "docs/compat.md does not list {missing:?}");
    }
}
