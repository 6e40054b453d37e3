//! Values without a grammar of their own: numbers, words and lists of names.

use std::fmt::Display;
use std::str::FromStr;

use spur_core::model::config::{RESOURCE_LIMITS, resource_limit};
use spur_core::model::distribution::{Distributions, UnknownDistribution};

use super::submission::{Export, Propagate};

/// A text of a language that has a parser.
pub(super) fn parsed<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

/// Returns a text that must not be empty.
pub(super) fn text(value: &str) -> Result<String, String> {
    if value.is_empty() { Err("the value is empty".to_owned()) } else { Ok(value.to_owned()) }
}

/// Parses a value; an empty one means that the option is not given, as in `--dependency=$AFTER` with an unset
/// variable.
pub(super) fn parsed_or_none<T: FromStr<Err: Display>>(value: &str) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { parsed(value).map(Some) }
}

/// Parses a number.
pub(super) fn number<T: FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("Invalid numeric value \"{value}\" for {{option}}."))
}

/// Parses a number; returns `none` for an empty value.
pub(super) fn number_or<T: FromStr>(value: &str, none: T) -> Result<T, String> {
    if value.is_empty() { Ok(none) } else { number(value) }
}

/// Parses a verbosity from 0 to 9; 0 if empty.
pub(super) fn level(value: &str) -> Result<u8, String> {
    number_or(value, 0)
}

/// Parses a file mode creation mask.
pub(super) fn octal(value: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(value, 8).ok().filter(|&mask| mask <= 0o777);
    mask.ok_or_else(|| format!("`{value}` is no mask; write an octal number up to 0777"))
}

/// Parses the minimum numbers of sockets per node, cores per socket and threads per core; `None` for any
/// number.
pub(super) fn extra_node_info(value: &str) -> Result<[Option<u32>; 3], String> {
    let wrong = || format!("`{value}` is no S[:C[:T]]; write numbers, ranges or * with colons between");
    let mut least = [None; 3];
    let mut parts = value.split(':');
    for (least, part) in least.iter_mut().zip(parts.by_ref()) {
        let first = part.split('-').next().unwrap_or_default();
        *least = if part == "*" { None } else { Some(count(first).map_err(|_| wrong())?) };
    }
    if parts.next().is_some() { Err(wrong()) } else { Ok(least) }
}

/// Returns the minimum of a number or a range; `None` for `*`.
pub(super) fn least(value: &str) -> Result<Option<u32>, String> {
    if value == "*" { Ok(None) } else { count(value.split('-').next().unwrap_or_default()).map(Some) }
}

/// Checks `--distribution`; the size of a plane may be given elsewhere.
pub(super) fn distribution(value: &str) -> Result<String, String> {
    let sized = value.to_ascii_lowercase();
    let sized = if sized == "plane" { "plane=1" } else { &sized };
    match sized.parse::<Distributions>() {
        Ok(_) => Ok(value.to_owned()),
        Err(_) => Err(UnknownDistribution(value.to_owned()).to_string()),
    }
}

/// Parses the CPUs and GPUs, with their type, of `--tres-per-task`.
pub(super) fn tres_per_task(value: &str) -> Result<(Option<u32>, Option<String>), String> {
    let (mut cpus, mut gpus) = (None, None);
    for item in value.split(',') {
        let (name, amount) = item.split_once(['=', ':']).unwrap_or((item, "1"));
        match name {
            "cpu" => cpus = Some(count(amount)?),
            "gres/gpu" => gpus = Some(amount.to_owned()),
            other => return Err(format!("`{other}` of each task cannot be honoured; say cpu or gres/gpu")),
        }
    }
    Ok((cpus, gpus))
}

/// Parses a number of at least one.
pub(super) fn count(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("Invalid numeric value \"{value}\" for {{option}}.")),
    }
}

pub(super) fn yes_no(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(format!("`{other}` is not known; say yes or no")),
    }
}

/// Parses a list of absolute directories; `NONE` is an empty list.
pub(super) fn directories(value: &str) -> Result<Vec<String>, String> {
    if value.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let absolute = |path: &str| match path.starts_with('/') {
        true => Ok(path.trim_end_matches('/').to_owned()),
        false => Err(format!("`{path}` is no absolute path; write directories with commas between, or NONE")),
    };
    value.split(',').map(absolute).collect()
}

/// True if `--compress` requests compression. The named library is ignored: nodes use gzip.
pub(crate) fn compresses(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "" | "lz4" | "zlib" => Ok(true),
        "none" => Ok(false),
        other => Err(format!("compression type `{other}` is not known; known are lz4, zlib and none")),
    }
}

/// Parses a switch that is on unless the value turns it off.
pub(super) fn on_off(value: &str) -> Result<bool, String> {
    match value {
        "" | "on" | "set" => Ok(true),
        "off" | "no" => Ok(false),
        other => Err(format!("`{other}` is not known; leave the value out, or say off")),
    }
}

/// The limits of `--propagate`.
pub(crate) fn resource_limits(value: &str) -> Result<Propagate, String> {
    match value.to_ascii_uppercase().as_str() {
        "ALL" => return Ok(Propagate::All),
        "NONE" => return Ok(Propagate::None),
        _ => {}
    }
    let known = |word: &str| {
        let name = resource_limit(word).map(str::to_owned);
        name.ok_or_else(|| format!("`{word}` is none of ALL, NONE, {}", RESOURCE_LIMITS.join(", ")))
    };
    value.split(',').map(known).collect::<Result<_, _>>().map(Propagate::Some)
}

impl FromStr for Export {
    type Err = String;

    fn from_str(value: &str) -> Result<Export, String> {
        match value.to_ascii_uppercase().as_str() {
            "ALL" => return Ok(Export::All),
            "NONE" | "NIL" => return Ok(Export::None),
            _ => {}
        }
        let mut all = false;
        let mut variables = Vec::new();
        for item in separated(value)?.into_iter().filter(|item| !item.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (item, None),
            };
            match name.as_str() {
                "ALL" if value.is_none() => all = true,
                "" => {
                    return Err("a name is missing; write NAME or NAME=VALUE, separated by commas".to_owned());
                }
                _ => variables.push((name, value)),
            }
        }
        Ok(Export::Some { all, variables })
    }
}

/// Splits at commas outside quotes and removes the quotes.
fn separated(value: &str) -> Result<Vec<String>, String> {
    let mut items = vec![String::new()];
    let mut quote = None;
    for c in value.chars() {
        let last = items.last_mut().expect("there is one from the beginning");
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ',' => items.push(String::new()),
            _ => last.push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("the quote {open} is not closed")),
        None => Ok(items),
    }
}
