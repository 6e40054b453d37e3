//! `scontrol show hostnames`, `hostlist` and `hostlistsorted`.

use std::fs;

use anyhow::Context;
use spur_core::text::hostlist::{HostExpr, HostList};

/// How names are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each on a line.
    Names,
    /// As one expression, in their order.
    List,
    /// As one expression, sorted, each name once.
    Sorted,
}

/// The text for these names.
pub fn text(names: &HostList, form: Form) -> String {
    match form {
        Form::Names => names.iter().map(|name| name + "\n").collect(),
        Form::List => format!("{names}\n"),
        Form::Sorted => format!("{}\n", names.sorted().unique()),
    }
}

/// What a user wrote: an expression, or the path of a file (with `/` at its beginning) with names in it.
///
/// # Errors
/// A file that cannot be read, an expression that is none.
pub fn read(word: &str) -> anyhow::Result<HostExpr> {
    if !word.starts_with('/') {
        return Ok(word.parse()?);
    }
    let text = fs::read_to_string(word).with_context(|| format!("cannot read {word}"))?;
    let names: Vec<&str> = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect();
    Ok(names.join(",").parse()?)
}
