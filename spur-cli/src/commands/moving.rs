//! `spur migrate`, `spur backup` and `spur restore`: move or copy the journal of a cluster. This process
//! executes `spurctld`, which does the work.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::commands::called;
use crate::options::{CommandLine, Opt};
use crate::session::Session;

/// The configuration that `-f` names.
type Configuration = Option<String>;

const OPTIONS: [Opt<Configuration>; 1] = [Opt::value(
    "config",
    Some('f'),
    "FILE",
    "configuration (default: $SPUR_CONF, then /etc/spur/spur.toml)",
    |configuration: &mut Configuration, text| {
        *configuration = Some(text.to_owned());
        Ok(())
    },
)];

const fn line(name: &'static str, synopsis: &'static str, about: &'static str) -> CommandLine<Configuration> {
    CommandLine { name, synopsis, about, options: &OPTIONS, mask: 1, env_prefixes: &[], permute: true }
}

pub(super) const MIGRATE: CommandLine<Configuration> = line(
    "spur migrate",
    "[-f FILE] SPUR.DB",
    "Copies the SQLite journal SPUR.DB, with its accounting, into the empty PostgreSQL database that the configuration names, \
     and compares what both lead to. The controller must be stopped. SPUR.DB stays as it is.",
);

pub(super) const BACKUP: CommandLine<Configuration> = line(
    "spur backup",
    "[-f FILE] DIR",
    "Copies the SQLite journal of this host's controller, and its accounting, into the new directory DIR. The controller may \
     run meanwhile.",
);

pub(super) const RESTORE: CommandLine<Configuration> = line(
    "spur restore",
    "[-f FILE] DIR",
    "Puts a copy that `spur backup` has made where the configuration says that the SQLite journal is. No journal may be \
     there. The copy is an old one: the command says how to go on.",
);

/// One of the three commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// `spur migrate`
    Migrate,
    /// `spur backup`
    Backup,
    /// `spur restore`
    Restore,
}

/// Runs one of the commands.
///
/// # Errors
/// Fails unless there is one operand, or if `spurctld` cannot be executed. `spurctld` prints its own
/// errors.
pub fn run(session: &mut Session, which: Move, words: &[String]) -> anyhow::Result<u8> {
    let (line, option) = match which {
        Move::Migrate => (&MIGRATE, "--migrate"),
        Move::Backup => (&BACKUP, "--backup"),
        Move::Restore => (&RESTORE, "--restore"),
    };
    let mut configuration = None;
    let Some(operands) = called::operands(session, line, words, &mut configuration)? else {
        return Ok(0);
    };
    let [place] = &operands[..] else {
        bail!("one operand is expected: {} {}", line.name, line.synopsis);
    };
    let mut controller = Command::new(controller()?);
    controller.arg(option).arg(place);
    if let Some(configuration) = configuration {
        controller.args(["-f", &configuration]);
    }
    match become_it(controller)? {}
}

/// Returns the path of `spurctld`: in the directory of this program, `/usr/sbin` or `/usr/local/sbin`,
/// whichever has the program first.
fn controller() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find out where this program lies")?;
    let beside = own.parent().unwrap_or(Path::new("."));
    let places = [beside, Path::new("/usr/sbin"), Path::new("/usr/local/sbin")];
    let found = places.iter().map(|place| place.join("spurctld")).find(|path| path.is_file());
    found.with_context(|| {
        format!("there is no spurctld in {}, /usr/sbin or /usr/local/sbin", beside.display())
    })
}

fn become_it(mut program: Command) -> anyhow::Result<Infallible> {
    let error = program.exec();
    Err(error).with_context(|| format!("cannot run {}", program.get_program().display()))
}
