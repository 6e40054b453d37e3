//! `sacctmgr` on a policy tree in this process, such as that of a simulation.

use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{ChangeAccountsRequest, ListAccountsRequest};

use super::{LINE, Settings, change, conditions, entity, request};
use crate::error::Bare;
use crate::options::Settled;

/// A policy tree in this process.
pub(crate) trait Tree {
    /// The name of the cluster.
    fn cluster(&self) -> String;

    /// Returns the records that a request selects.
    ///
    /// # Errors
    /// The refusal.
    fn list(&self, request: &ListAccountsRequest) -> Result<Vec<Record>, String>;

    /// Makes a change. Returns the lines that `sacctmgr` prints.
    ///
    /// # Errors
    /// The refusal.
    fn change(&mut self, request: &ChangeAccountsRequest) -> Result<Vec<String>, String>;
}

/// Runs `sacctmgr` with these words, without asking before a change.
///
/// # Errors
/// Fails for invalid options or words, or if the tree refuses.
pub(crate) fn run(tree: &mut impl Tree, words: &[String]) -> anyhow::Result<String> {
    let mut settings = Settings::default();
    let operands = match LINE.settle(words, &|_| None, &mut settings)? {
        Settled::Show(text) => return Ok(text),
        Settled::Run(operands) => operands,
    };
    let (verb, rest) = operands.split_first().map_or(("", &operands[..]), |(verb, rest)| (verb, rest));
    let lower = verb.to_ascii_lowercase();
    let is = |names: &[&str]| names.iter().any(|name| name.starts_with(&lower) && lower.len() > 1);
    let requests = match lower.as_str() {
        _ if is(&["show", "list"]) => return list(tree, &settings, rest),
        _ if is(&["add", "create"]) => change::read("add", rest)?,
        _ if is(&["modify", "update"]) => change::read("modify", rest)?,
        _ if is(&["delete", "remove"]) => change::read("delete", rest)?,
        _ => return Err(Bare(format!("a workload shows, adds, modifies and deletes; not {verb}")).into()),
    };
    let mut text = String::new();
    for request in requests {
        for line in tree.change(&request).map_err(Bare)? {
            text = text + &line + "\n";
        }
    }
    Ok(text)
}

fn list(tree: &impl Tree, settings: &Settings, words: &[String]) -> anyhow::Result<String> {
    let (word, rest) = words.split_first().map_or(("", words), |(word, rest)| (word.as_str(), rest));
    let mut conditions = conditions(rest)?;
    conditions.associations |= settings.associations;
    match entity(word) {
        Some(kept @ ("qos" | "users" | "accounts" | "associations")) => {
            let all = tree.list(&request(kept, &conditions)).map_err(Bare)?;
            settings.kept(kept, &tree.cluster(), &conditions, all)
        }
        _ => Err(Bare(format!("a workload shows accounts, associations, qos and users; not {word}")).into()),
    }
}
