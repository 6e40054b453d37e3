//! The commands `scontrol show hostnames`, `hostlist` and `hostlistsorted`.

use std::fs;

use anyhow::Context;
use spur_core::text::hostlist::{HostExpr, HostList};

/// Format of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One name per line.
    Names,
    /// One expression, in the given order.
    List,
    /// One expression, sorted, each name once.
    Sorted,
}

/// Returns the printed text of the names.
pub fn text(names: &HostList, form: Form) -> String {
    match form {
        Form::Names => names.iter().map(|name| name + "\n").collect(),
        Form::List => format!("{names}\n"),
        Form::Sorted => format!("{}\n", names.sorted().unique()),
    }
}

/// Parses an expression, or the file of names with this path if the word begins with `/`.
///
/// # Errors
/// A file that cannot be read, or an invalid expression.
pub fn read(word: &str) -> anyhow::Result<HostExpr> {
    if !word.starts_with('/') {
        return Ok(word.parse()?);
    }
    let text = fs::read_to_string(word).with_context(|| format!("cannot read {word}"))?;
    let names: Vec<&str> = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect();
    Ok(names.join(",").parse()?)
}
