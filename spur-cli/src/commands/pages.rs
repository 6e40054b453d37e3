//! The commands `spur man DIR` and `spur completion SHELL`: manual pages and completions, generated from the
//! options.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use clap_complete::Shell;
use clap_mangen::Man;

use super::sim::{self, plan};
use super::srun::{attach, bcast, exec, logs};
use super::{config, defrag, demo, discover, import, keygen, limits, links, moving, policy, why};
use super::{sacct, sacctmgr, scancel, scontrol, sdiag, seff, sinfo, sprio, squeue, sreport, sshare, sstat};
use crate::commands::called;
use crate::options::defs::{SALLOC_LINE, SBATCH_LINE, SRUN_LINE};
use crate::options::{CommandLine, build};
use crate::session::Session;

const MAN: CommandLine<()> = CommandLine {
    name: "spur man",
    synopsis: "DIR",
    about: "Writes a manual page for each of the commands into DIR, which is made if need be.",
    options: &[],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

const COMPLETION: CommandLine<()> = CommandLine {
    name: "spur completion",
    synopsis: "bash|zsh|fish|elvish|powershell [COMMAND]",
    about: "Prints what a shell has to read to complete the options of all commands, or of one.",
    options: &[],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// A command as clap describes it, and its environment variables with their descriptions.
struct Page {
    name: &'static str,
    command: clap::Command,
    variables: Vec<(&'static str, String)>,
}

fn page<S>(line: &CommandLine<S>) -> Page {
    let own = |name: &&str| line.env_prefixes.iter().any(|prefix| name.starts_with(prefix));
    let says = |long: &str, help: &str| {
        if long.is_empty() { help.to_owned() } else { format!("the same as --{long}") }
    };
    let named = line
        .options()
        .flat_map(|option| option.env.iter().map(move |&name| (name, says(option.long, option.help))));
    let mut variables: Vec<_> = named.filter(|(name, _)| own(name)).collect();
    variables.sort();
    Page { name: line.name, command: build::command(line), variables }
}

/// Returns the pages of the commands that have links of their own names.
fn linked() -> Vec<Page> {
    vec![
        page(&SBATCH_LINE),
        page(&SALLOC_LINE),
        page(&SRUN_LINE),
        page(&attach::LINE),
        page(&bcast::LINE),
        page(&squeue::LINE),
        page(&sinfo::LINE),
        page(&scontrol::LINE),
        page(&scancel::LINE),
        page(&sacct::LINE),
        page(&sprio::LINE),
        page(&sstat::LINE),
        page(&sdiag::LINE),
        page(&seff::LINE),
        page(&sacctmgr::LINE),
        page(&sshare::LINE),
        page(&sreport::LINE),
    ]
}

/// Returns the pages of the commands that only `spur NAME` calls.
fn own() -> Vec<Page> {
    vec![
        page(&defrag::LINE),
        page(&demo::LINE),
        page(&exec::LINE),
        page(&logs::LINE),
        page(&why::LINE),
        page(&limits::LINE),
        page(&policy::LINE),
        page(&plan::LINE),
        page(&sim::args::LINE),
        page(&config::LINE),
        page(&import::LINE),
        page(&discover::LINE),
        page(&keygen::LINE),
        page(&moving::MIGRATE),
        page(&moving::BACKUP),
        page(&moving::RESTORE),
        page(&links::LINE),
        page(&MAN),
        page(&COMPLETION),
    ]
}

/// Returns the clap command of `spur` itself, with its subcommands.
fn program() -> clap::Command {
    let named = |page: Page| page.command.name(page.name.trim_start_matches("spur "));
    clap::Command::new("spur")
        .about("The commands of Spur, a batch system with the commands of Slurm.")
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(own().into_iter().map(named))
}

/// Runs `spur man`.
///
/// # Errors
/// A directory that cannot be written.
pub fn man(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(operands) = called::operands(session, &MAN, words, &mut ())? else {
        return Ok(0);
    };
    let [directory] = &operands[..] else {
        bail!("one directory is expected: spur man DIR");
    };
    let directory = Path::new(directory);
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let whole = Page { name: "spur", command: program(), variables: Vec::new() };
    for page in linked().into_iter().chain(own()).chain([whole]) {
        let path = directory.join(format!("{}.1", page.name.replace(' ', "-")));
        let mut text = Vec::new();
        Man::new(page.command).render(&mut text)?;
        if !page.variables.is_empty() {
            text.extend_from_slice(b".SH ENVIRONMENT\n");
        }
        for (name, says) in page.variables {
            text.extend_from_slice(format!(".TP\n\\fB{name}\\fR\n{}\n", says.replace('-', "\\-")).as_bytes());
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(session.out, "{}", path.display())?;
    }
    Ok(0)
}

/// Runs `spur completion`.
///
/// # Errors
/// A missing or unknown shell, an unknown command, or an output that cannot be written.
pub fn completion(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(operands) = called::operands(session, &COMPLETION, words, &mut ())? else {
        return Ok(0);
    };
    let (shell, wanted) = match &operands[..] {
        [shell] => (shell, None),
        [shell, command] => (shell, Some(command)),
        _ => bail!("a shell is expected, and perhaps a command: spur completion {}", COMPLETION.synopsis),
    };
    let Ok(shell) = shell.parse::<Shell>() else {
        bail!("`{shell}` is no shell known here; say one of {}", COMPLETION.synopsis);
    };
    let commands = linked().into_iter().map(|page| page.command).chain([program()]);
    let mut chosen: Vec<_> =
        commands.filter(|command| wanted.is_none_or(|name| name == command.get_name())).collect();
    if let ([], Some(name)) = (&chosen[..], wanted) {
        bail!("`{name}` is no program of Spur; `spur --help` lists them");
    }
    for command in &mut chosen {
        let name = command.get_name().to_owned();
        // clap would panic on a failed write, so the text is generated in memory first.
        let mut text = Vec::new();
        clap_complete::generate(shell, command, name, &mut text);
        session.out.write_all(&text)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use crate::command::Command;

    #[test]
    fn every_command_has_a_page() {
        let pages = super::linked().into_iter().chain(super::own());
        let mut pages: Vec<&str> = pages.map(|page| page.name).collect();
        pages.sort_unstable();
        let mut commands: Vec<&str> = Command::titles().collect();
        commands.sort_unstable();
        assert_eq!(pages, commands);
    }
}
