//! Copies of a file to the nodes of a job: `sbcast`, and `srun --bcast`.
//!
//! A separate step writes the copies, with one task per node, as the user and under the job's limits. The
//! file is the step's input. A copy gets its name only when it is complete. The shared objects of a program
//! are copied in the same way, to a directory beside it.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use spur_core::text::exit::ExitCode;
use spur_proto::convert::step::ranks;
use spur_proto::v1::{CreateStepResponse, StepProgram};

use super::{TAKEN, group, libraries, run_in};
use crate::commands::called;
use crate::commands::signals::Signals;
use crate::error::Failure;
use crate::options::submission::Submission;
use crate::options::values::compresses;
use crate::options::{CommandLine, Opt};
use crate::session::Session;
use crate::{place, zone};

/// Script of each node, with the arguments DEST MODE SIZE FORCE TIME FILTER. It fails with the error number
/// of the operation, as in Slurm, or with 255.
const COPY: &str = r#"
fail() { echo "sbcast: error: REQUEST_FILE_BCAST($SLURMD_NODENAME): $1: $3" >&2; exit "$2"; }
[ "$4" = 1 ] || [ ! -e "$1" ] || fail "$1" 17 'File exists; --force replaces it'
[ ! -d "$1" ] || fail "$1" 21 'Is a directory'
[ ! -e "$1" ] || [ -f "$1" ] || fail "$1" 255 'it is no file'
directory=$(dirname "$1")
[ -d "$directory" ] || fail "$directory" 2 'No such file or directory'
[ -w "$directory" ] || fail "$directory" 13 'Permission denied'
umask 077
part=$1.part.$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURMD_NODENAME
trap 'rm -f "$part"' EXIT
$6 >"$part" || exit 255
[ "$(wc -c <"$part")" -eq "$3" ] || fail "$1" 255 'the file has not come whole'
chmod "$2" "$part" || exit 255
[ -z "$5" ] || touch -d "@$5" "$part" || exit 255
mv -f "$part" "$1" || exit 255
"#;
/// Exit codes of [`COPY`]. Any other code means that a node could not run the script.
const OF_COPY: [u8; 6] = [0, 2, 13, 17, 21, 255];
/// Exit code of `sbcast` for a node that does not answer, as in Slurm.
const NO_ANSWER: u8 = 233;
/// Exit code of `sbcast` for a file that cannot be read and for an unknown job, as in Slurm.
const NO_FILE: u8 = 255;
/// Command that creates a directory of shared objects on each node.
const LIBRARIES: &str = "mkdir -p -m 700";

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// True to replace an existing file.
    force: bool,
    /// True to preserve the time of the last change.
    preserve: bool,
    /// True to compress the file for the transfer.
    compress: bool,
    /// True to create a missing directory.
    directory: bool,
}

/// Options of `sbcast`.
#[derive(Debug, Default)]
pub struct Args {
    manner: Manner,
    job: Option<String>,
    verbose: u32,
}

/// Command line of `sbcast`.
pub const LINE: CommandLine<Args> = CommandLine {
    name: "sbcast",
    synopsis: "[OPTIONS] SOURCE DEST",
    about: "Copies a file to all nodes of the job it is called in.",
    options: &[
        Opt::value(
            "jobid",
            Some('j'),
            "id",
            "the job; without it the one that sbcast is called in",
            |args: &mut Args, v| {
                args.job = Some(v.to_owned());
                Ok(())
            },
        ),
        Opt::flag("force", Some('f'), "replace a file that is there", |args: &mut Args, _| {
            args.manner.force = true;
            Ok(())
        })
        .env(&["SBCAST_FORCE"]),
        Opt::flag("preserve", Some('p'), "keep the time of the last change", |args: &mut Args, _| {
            args.manner.preserve = true;
            Ok(())
        })
        .env(&["SBCAST_PRESERVE"]),
        Opt::flag("verbose", Some('v'), "say more", |args: &mut Args, _| {
            args.verbose += 1;
            Ok(())
        }),
        Opt::value("compress", Some('C'), "library", "compress what is sent", |args: &mut Args, v| {
            args.manner.compress = compresses(v)?;
            Ok(())
        })
        .optional()
        .env(&["SBCAST_COMPRESS"]),
        Opt::value("fanout", Some('F'), "number", "how many nodes are sent to at once", nothing)
            .env(&["SBCAST_FANOUT"])
            .without_effect("all nodes are sent to at once"),
        Opt::value("size", Some('s'), "bytes", "how much is sent at once", nothing)
            .env(&["SBCAST_SIZE"])
            .without_effect("as much is sent as nodes take"),
        Opt::value("timeout", Some('t'), "seconds", "time to wait for a message", nothing)
            .env(&["SBCAST_TIMEOUT"])
            .without_effect("a node that is silent is found out by its connection"),
        Opt::value("send-libs", None, "yes|no", "send shared objects along", nothing)
            .optional()
            .env(&["SBCAST_SEND_LIBS"])
            .refused("a program that is started later would not find them; say srun --bcast --send-libs"),
        Opt::value("exclude", None, "paths", "shared objects that --send-libs leaves out", nothing)
            .env(&["SBCAST_EXCLUDE"])
            .without_effect("it is about --send-libs"),
    ],
    mask: 1,
    env_prefixes: &["SBCAST_"],
    permute: true,
};

fn nothing(_: &mut Args, _: &str) -> Result<(), String> {
    Ok(())
}

/// Prints the options, for `--verbose`.
fn tell(session: &mut Session, args: &Args, source: &str, destination: &str) {
    let Args { manner: Manner { force, preserve, compress, .. }, verbose, .. } = args;
    let rule = "-----------------------------";
    session.inform(rule);
    session.inform(&format!("compress   = {}", u8::from(*compress)));
    session.inform(&format!("force      = {force}"));
    session.inform(&format!("preserve   = {preserve}"));
    session.inform("send_libs  = false");
    session.inform(&format!("verbose    = {verbose}"));
    session.inform(&format!("source     = {source}"));
    session.inform(&format!("dest       = {destination}"));
    session.inform(rule);
}

/// Prints the mode, owner, times and size of the file, for `--verbose`.
fn tell_file(session: &mut Session, source: &str, job: u32) -> anyhow::Result<()> {
    let about = File::open(source).and_then(|file| file.metadata()).with_context(|| unreadable(source));
    let about = about.context(Failure::coded(NO_FILE))?;
    let zone = zone::local();
    let shown = |at: i64| match Timestamp::from_second(at) {
        Ok(at) => at.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Y").to_string(),
        Err(_) => at.to_string(),
    };
    for (name, value) in [
        ("modes", format!("{:o}", about.mode())),
        ("uid", about.uid().to_string()),
        ("gid", about.gid().to_string()),
        ("atime", shown(about.atime())),
        ("mtime", shown(about.mtime())),
        ("ctime", shown(about.ctime())),
        ("size", about.len().to_string()),
    ] {
        session.inform(&format!("{name:<8} = {value}"));
    }
    session.inform(&format!("jobid      = {job}"));
    Ok(())
}

fn unreadable(source: &str) -> String {
    format!("Can't open `{source}`")
}

/// Runs `sbcast`.
///
/// # Errors
/// A file that cannot be read, an unknown job, or a node that cannot write.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut args)? else {
        return Ok(0);
    };
    let [source, destination] = &operands[..] else {
        bail!(Failure::new(format!("Need two file names, have {} names", operands.len())));
    };
    let job = match args.job.clone().or_else(|| session.env("SLURM_JOB_ID")) {
        Some(job) => group::named(session, &job).await.context(Failure::coded(NO_FILE))?,
        None => bail!(
            "Need a job id to run this command.  Run from within a Slurm job or use the --jobid option."
        ),
    };
    if args.verbose > 0 {
        tell(session, &args, source, destination);
        tell_file(session, source, job)?;
    }
    let ended = copy(session, job, source, destination, args.manner, &[]).await?;
    if args.verbose > 0 && ended.is_success() {
        session.inform(&format!("{source} is at {destination} on all nodes of job {job}"));
    }
    let code = ended.shell();
    Ok(if OF_COPY.contains(&code) { code } else { NO_ANSWER })
}

/// Copies a file to the named nodes of a job, or to all its nodes.
async fn copy(
    session: &mut Session,
    job: u32,
    source: &str,
    destination: &str,
    manner: Manner,
    nodes: &[String],
) -> anyhow::Result<ExitCode> {
    let about = File::open(source).and_then(|file| file.metadata()).with_context(|| unreadable(source));
    let about = about.context(Failure::coded(NO_FILE))?;
    if !about.is_file() {
        bail!(Failure { text: format!("Can't copy `{source}`: it is no file"), code: NO_FILE });
    }
    let mut destination = destination.to_owned();
    if destination.ends_with('/') {
        let name = Path::new(source).file_name().map(|name| name.to_string_lossy().into_owned());
        destination.push_str(&name.unwrap_or_default());
    }
    let mut wishes = Submission { quiet: true, ..Submission::default() };
    let compressed = if manner.compress { Some(compressed(source)?) } else { None };
    let input = compressed.as_ref().map_or(Path::new(source), |file| file.path());
    wishes.files.input = Some(std::path::absolute(input)?.display().to_string());
    wishes.files.output = Some("none".to_owned());
    wishes.files.error = Some("all".to_owned());
    wishes.step.external = true;
    wishes.step.mpi = "none".to_owned();
    wishes.spec.tasks_per_node = Some(1);
    wishes.spec.nodelist = nodes.join(",");
    wishes.spec.name = "sbcast".to_owned();
    let time = if manner.preserve { about.mtime().to_string() } else { String::new() };
    let mode = format!("{:o}", about.mode() & 0o7777);
    let (size, force) = (about.len().to_string(), u8::from(manner.force).to_string());
    let filter = if manner.compress { "gzip -dc" } else { "cat" };
    let script = match manner.directory {
        true => format!("{LIBRARIES} \"$(dirname \"$1\")\" || exit\n{COPY}"),
        false => COPY.to_owned(),
    };
    let argv = ["/bin/sh", "-c", &script, "sbcast", &destination, &mode, &size, &force, &time, filter];
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    let mut signals = Signals::listen(TAKEN)?;
    // The step of the copy itself has no program to copy, so the recursion ends there.
    Box::pin(run_in(session, vec![(job, wishes)], &argv, &mut signals)).await
}

/// Returns a compressed copy of a file, which is deleted with the value.
fn compressed(source: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file for what is compressed")?;
    let mut encoder = GzEncoder::new(file, Compression::fast());
    io::copy(&mut File::open(source)?, &mut encoder).context("cannot compress the file")?;
    let mut file = encoder.finish()?;
    file.rewind()?;
    Ok(file)
}

/// Copies the program of a step to its nodes if `--bcast` requests it.
///
/// # Errors
/// Fails as [`run`] does.
pub(super) async fn executable(
    session: &mut Session,
    job: u32,
    wishes: &Submission,
    step: &CreateStepResponse,
    argv: &[String],
) -> anyhow::Result<()> {
    if wishes.step.bcast.is_none() {
        return Ok(());
    }
    let source = super::programs::path(argv.first().map(String::as_str), session, &place::directory(None)?);
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    for node in &step.nodes {
        let place = place_on(job, wishes, step, &node.name)?;
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, nodes)) => nodes.push(node.name.clone()),
            None => places.push((place, vec![node.name.clone()])),
        }
    }
    let manner = Manner { force: true, preserve: true, compress: wishes.step.compress, directory: false };
    let mut send = async |source: &str, place: &str, manner, nodes: &[String]| {
        let ended = copy(session, job, source, place, manner, nodes).await?;
        if !ended.is_success() {
            bail!("--bcast: {source} cannot be copied to {place} on {}", nodes.join(","));
        }
        Ok(())
    };
    for (place, nodes) in places {
        send(&source, &place, manner, &nodes).await?;
    }
    if let Some(directory) = library_directory(job, wishes, step.step_id)? {
        let nodes: Vec<String> = step.nodes.iter().map(node_name).collect();
        for library in libraries::shared_objects(&source, wishes.step.bcast_exclude.as_deref())? {
            let place = format!("{directory}/{}", library.rsplit('/').next().unwrap_or_default());
            send(&library, &place, Manner { directory: true, ..manner }, &nodes).await?;
        }
    }
    Ok(())
}

/// Returns the directory of the shared objects of a step's program on its nodes; `None` if they are not sent.
fn library_directory(job: u32, wishes: &Submission, step: u32) -> anyhow::Result<Option<String>> {
    if wishes.step.bcast.is_none() || !wishes.step.send_libs {
        return Ok(None);
    }
    Ok(Some(format!("{}_libs", base(job, wishes, step)?)))
}

/// Returns the value of `LD_LIBRARY_PATH` with the directory of sent shared objects; `None` if they are not
/// sent.
///
/// # Errors
/// A working directory that was deleted.
pub(super) fn library_path(
    job: u32,
    wishes: &Submission,
    step: &CreateStepResponse,
    own: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let directory = library_directory(job, wishes, step.step_id)?;
    let more = own.filter(|own| !own.is_empty());
    Ok(directory.map(|directory| {
        [Some(directory.as_str()), more].into_iter().flatten().collect::<Vec<_>>().join(":")
    }))
}

/// Returns the path of the program on a node: the path of `--bcast`, or the base with the node's name
/// appended.
fn place_on(job: u32, wishes: &Submission, step: &CreateStepResponse, node: &str) -> anyhow::Result<String> {
    let base = base(job, wishes, step.step_id)?;
    Ok(if wishes.step.bcast.as_ref() == Some(&base) { base } else { format!("{base}_{node}") })
}

/// Returns the path of `--bcast`, or a name of the step below the directory of `--bcast`.
fn base(job: u32, wishes: &Submission, step: u32) -> anyhow::Result<String> {
    let said = wishes.step.bcast.as_deref().unwrap_or_default();
    if !said.is_empty() && !said.ends_with('/') {
        return Ok(said.to_owned());
    }
    let directory =
        if said.is_empty() { place::directory(wishes.chdir.as_deref())? } else { said.to_owned() };
    Ok(format!("{}/slurm_bcast_{job}.{step}", directory.trim_end_matches('/')))
}

/// Returns the programs of the tasks at the paths of their copies; `None` without `--bcast`.
///
/// # Errors
/// A working directory that was deleted.
pub(super) fn copies(
    job: u32,
    wishes: &Submission,
    step: &CreateStepResponse,
    argv: &[String],
) -> anyhow::Result<Option<Vec<StepProgram>>> {
    if wishes.step.bcast.is_none() {
        return Ok(None);
    }
    let one = |node| {
        let mut own = argv.to_vec();
        own[0] = place_on(job, wishes, step, &node_name(node))?;
        Ok(StepProgram { ranks: ranks(node).to_string(), argv: own })
    };
    step.nodes.iter().map(one).collect::<anyhow::Result<_>>().map(Some)
}

fn node_name(node: &spur_proto::v1::StepNodeLayout) -> String {
    node.name.clone()
}
