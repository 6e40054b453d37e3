//! The command `spur links DIR`: creates links through which the client commands run under their own names.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, bail};

use crate::command::Command;
use crate::commands::called;
use crate::options::CommandLine;
use crate::session::Session;

pub(super) const LINE: CommandLine<()> = CommandLine {
    name: "spur links",
    synopsis: "DIR",
    about: "Makes a symbolic link to this program in DIR for each of the client commands. A link that is there \
            already is replaced; anything else is left alone and reported.",
    options: &[],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur links`.
///
/// # Errors
/// A directory that cannot be written, or a file with the name of a command.
pub fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(operands) = called::operands(session, &LINE, words, &mut ())? else {
        return Ok(0);
    };
    let [directory] = &operands[..] else {
        bail!("one directory is expected: spur links DIR");
    };
    let program = std::env::current_exe().context("cannot find out where this program lies")?;
    for name in make(Path::new(directory), &program)? {
        writeln!(session.out, "{name}")?;
    }
    Ok(0)
}

/// Creates the links to `program` in `directory`, and the directory if it is missing. Returns the paths of
/// the links.
///
/// # Errors
/// A directory that cannot be written, or a file with the name of a command.
pub fn make(directory: &Path, program: &Path) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut made = Vec::new();
    for name in Command::linked() {
        let link = directory.join(name);
        match fs::symlink_metadata(&link) {
            Ok(there) if there.file_type().is_symlink() => {
                fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
            }
            Ok(_) => bail!("{} is there and is no link; move it away first", link.display()),
            Err(_) => {}
        }
        symlink(program, &link).with_context(|| format!("cannot make {}", link.display()))?;
        made.push(link.display().to_string());
    }
    Ok(made)
}
