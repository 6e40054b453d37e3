//! `spur keygen FILE`: a new cluster key, to be copied to every host.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use spur_proto::auth::ClusterKey;

use crate::options::{CommandLine, Settled};
use crate::session::Session;

const LINE: CommandLine<()> = CommandLine {
    name: "spur keygen",
    synopsis: "FILE",
    about: "Writes a new cluster key to FILE, readable by its owner alone. Every host of the cluster needs the same \
            file, at [auth] key_file. A file that is there already is left alone.",
    options: &[],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur keygen`.
///
/// # Errors
/// A file that is there already or cannot be written.
pub fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let operands = match LINE.settle(words, &|name| session.env(name), &mut ())? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(operands) => operands,
    };
    let [file] = &operands[..] else {
        bail!("one file is expected: spur keygen FILE");
    };
    let key = ClusterKey::generate().context("the system has no randomness to offer")?;
    key.write_new(Path::new(file))?;
    Ok(0)
}
