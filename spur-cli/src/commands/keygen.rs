//! The command `spur keygen FILE`: creates a cluster key for every host, or rotates the key without an
//! interruption.

use std::path::Path;

use anyhow::{Context, bail};
use spur_proto::keys::ClusterKey;

use crate::commands::called;
use crate::options::{CommandLine, Opt};
use crate::session::Session;

/// Change of the key file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wish {
    #[default]
    New,
    Rotate,
    Retire,
}

const OPTIONS: [Opt<Wish>; 2] = [
    Opt::flag(
        "rotate",
        None,
        "put a new key before the one in FILE: it will be used, the old one believed",
        |wish, _| {
            *wish = Wish::Rotate;
            Ok(())
        },
    ),
    Opt::flag("retire", None, "take the old key out of FILE again", |wish, _| {
        *wish = Wish::Retire;
        Ok(())
    }),
];

pub(super) const LINE: CommandLine<Wish> = CommandLine {
    name: "spur keygen",
    synopsis: "[--rotate | --retire] FILE",
    about: "Writes a new cluster key to FILE, readable by its owner alone. Every host of the cluster needs the same \
            file, at [auth] key_file. A file that is there already is left alone, unless its key is to be rotated.",
    options: &OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur keygen`.
///
/// # Errors
/// A file that cannot be written, or that exists (for a new key), is missing (otherwise), has two keys (for a
/// rotation), or has no old key to retire.
pub fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut wish = Wish::default();
    let Some(operands) = called::operands(session, &LINE, words, &mut wish)? else {
        return Ok(0);
    };
    let [file] = &operands[..] else {
        bail!("one file is expected: spur keygen FILE");
    };
    let file = Path::new(file);
    match wish {
        Wish::New => {
            let key = ClusterKey::generate().context("the system has no randomness to offer")?;
            key.write_new(file)?;
        }
        Wish::Rotate => ClusterKey::rotate(file)?,
        Wish::Retire => {
            if !ClusterKey::retire(file)? {
                bail!("{} holds no old key", file.display());
            }
        }
    }
    Ok(0)
}
