//! Commands `spur config check` and `spur config show`, which read a `spur.toml` without a controller.

mod slurm;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use spur_core::model::config::Config;
use spur_proto::convert::config::settings;
use spur_proto::program::matching;

use crate::commands::called;
use crate::options::{CommandLine, Opt, sets};
use crate::session::Session;

use slurm::File;

/// Format of the output.
#[derive(Debug, Default)]
pub(super) struct Wish {
    slurm: bool,
    output: Option<PathBuf>,
}

const OPTIONS: [Opt<Wish>; 2] = [
    Opt::flag(
        "slurm",
        None,
        "show it as Slurm's slurm.conf and topology.conf (or topology.yaml)",
        sets!(Wish.slurm),
    ),
    Opt::value(
        "output",
        Some('o'),
        "DIR",
        "write Slurm's files into DIR, where they must not be yet, instead of the standard output",
        |wish, value| {
            wish.output = Some(value.into());
            Ok(())
        },
    ),
];

pub(super) const LINE: CommandLine<Wish> = CommandLine {
    name: "spur config",
    synopsis: "check [FILE] | show [--slurm [-o DIR]] [FILE]",
    about: "check reads FILE as the daemons do and names every mistake in it. show prints every setting that holds with \
            it; with --slurm what Slurm's own files would say, with comments on what they cannot. FILE is \
            $SPUR_CONF or /etc/spur/spur.toml unless it is named.",
    options: &OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur config`.
///
/// # Errors
/// A file that cannot be read, all mistakes in the file, or an existing file for `-o`.
pub fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut wish = Wish::default();
    let Some(operands) = called::operands(session, &LINE, words, &mut wish)? else {
        return Ok(0);
    };
    let (what, file) = match &operands[..] {
        [what] => (what, None),
        [what, file] => (what, Some(file.clone())),
        _ => bail!("say what to do: spur config {}", LINE.synopsis),
    };
    if wish.output.is_some() && !wish.slurm {
        bail!("-o is for the files of --slurm");
    }
    let file = file.or_else(|| session.env("SPUR_CONF").filter(|path| !path.is_empty()));
    let file = file.unwrap_or_else(|| Config::DEFAULT_FILE.to_owned());
    match what.as_str() {
        "check" if !wish.slurm => check(session, &file),
        "show" => show(session, &file, &wish),
        "check" => bail!("--slurm is for `spur config show`"),
        _ => bail!("`{what}` is neither check nor show: spur config {}", LINE.synopsis),
    }
}

fn read(file: &str) -> anyhow::Result<Config> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    Ok(Config::parse(&text, file)?)
}

fn check(session: &mut Session, file: &str) -> anyhow::Result<u8> {
    let Config { policy, local, .. } = read(file)?;
    if let Some(zone) = &policy.jobs.time_zone {
        jiff::tz::TimeZone::get(zone)
            .with_context(|| format!("{file}: time_zone: this host knows no time zone `{zone}`"))?;
    }
    let count =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    writeln!(
        session.out,
        "{file}: no mistakes; {}, {}, {}",
        count(policy.nodes.len(), "node", "nodes"),
        count(policy.partitions.len(), "partition", "partitions"),
        count(policy.topologies.len(), "topology", "topologies"),
    )?;
    policy.warnings().iter().for_each(|warning| session.warn(warning));
    let agent = &local.agent;
    for (key, paths) in [("prolog", &agent.prolog), ("epilog", &agent.epilog)] {
        for path in paths {
            let found = matching(std::slice::from_ref(path))
                .map_err(|error| anyhow::anyhow!("[agent] {key}: {error}"))?;
            // The file may belong to other hosts, so a missing program is only a warning.
            if !found.iter().any(|program| program.is_file()) {
                let path = path.display();
                session.warn(&format!("[agent] {key}: on this host there is no program {path}"));
            }
        }
    }
    Ok(0)
}

fn show(session: &mut Session, file: &str, wish: &Wish) -> anyhow::Result<u8> {
    let config = read(file)?;
    if !wish.slurm {
        for setting in settings(&config.policy) {
            writeln!(session.out, "{:<23} = {}", setting.key, setting.value)?;
        }
        return Ok(0);
    }
    let files = slurm::files(&config);
    let Some(directory) = &wish.output else {
        for (index, File { name, text }) in files.iter().enumerate() {
            let between = if index == 0 { "" } else { "\n" };
            write!(session.out, "{between}# {name}\n{text}")?;
        }
        return Ok(0);
    };
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for file in &files {
        let path = directory.join(file.name);
        write_new(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(session.out, "{}", path.display())?;
    }
    Ok(0)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    fs::File::create_new(path)?.write_all(text.as_bytes())
}
