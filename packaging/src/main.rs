//! `spur-pages DIR` writes the manual pages of the daemons and of `spur.toml` for the packages. `spur man`
//! writes those of the commands.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

// Only the modules of the command lines are included, because a dependency on the daemons' crates would
// link both daemons into this program.
#[expect(unreachable_pub, reason = "the daemons' crates show them")]
#[path = "../../spurctld/src/args.rs"]
mod spurctld;
#[expect(unreachable_pub, reason = "the daemons' crates show them")]
#[path = "../../spurd/src/args.rs"]
mod spurd;

const CONFIGURATION: &str = include_str!("../../etc/spur.toml");

fn main() -> anyhow::Result<()> {
    let directory = env::args_os().nth(1).context("a directory is expected: spur-pages DIR")?;
    let directory = PathBuf::from(directory);
    for command in [spurctld::Args::command(), spurd::Args::command()] {
        let name = format!("{}.8", command.get_name());
        let mut text = Vec::new();
        Man::new(command).section("8").render(&mut text)?;
        write(&directory.join("man8").join(name), &text)?;
    }
    write(&directory.join("man5/spur.toml.5"), configuration().as_bytes())
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The manual page of `spur.toml`, made from the reference of all keys.
///
/// The text before the first ruler is the description. The line after each ruler (`# ---`) is the title of
/// a section.
fn configuration() -> String {
    let mut page = format!(
        ".TH spur.toml 5 \"\" \"spur {}\"\n.SH NAME\nspur.toml \\- the configuration of a Spur cluster\n\
         .SH DESCRIPTION\n.nf\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut lines = CONFIGURATION.lines();
    while let Some(line) = lines.next() {
        let title = if line.starts_with("# ---") { lines.next() } else { None };
        match title {
            Some(title) => {
                let title = title.trim_start_matches("# ").trim_end_matches('.');
                page.push_str(&format!(".fi\n.SH {}\n.nf\n", escaped(&title.to_uppercase())));
            }
            None => page.push_str(&format!("{}\n", escaped(line))),
        }
    }
    page.push_str(".fi\n.SH SEE ALSO\n.BR spurctld (8),\n.BR spurd (8),\n.BR spur\\-config (1)\n");
    page
}

/// The line with roff's special characters escaped, so that roff prints the line unchanged.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
