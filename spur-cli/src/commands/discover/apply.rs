//! Writes a discovered topology into the controller's `spur.toml` and makes the controller read the file.
//!
//! The file remains the only description of the topology, because a controller that restarts, or a standby
//! that takes over, reads it. `--apply` therefore changes the file and then requests `scontrol reconfigure`,
//! which replaces the topology in one transaction or refuses it. After a refusal the previous file is
//! restored.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use spur_core::model::config::Config;
use spur_proto::client::Controller;
use spur_proto::v1::ReconfigureRequest;
use tempfile::NamedTempFile;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::diff;
use super::{running, written};
use crate::commands::scontrol::controller;
use crate::place;
use crate::session::Session;

/// Keys that describe a topology. All others, such as `rule` and `limits`, belong to the site and are kept.
const KEYS: [&str; 6] = ["plugin", "layers", "switches", "blocks", "block_size", "block_sizes"];

/// Puts `found`, a text with topologies, into effect and prints the changes on the standard error.
///
/// # Errors
/// A controller on another host, a file that cannot be changed, topologies that do not fit the file's nodes,
/// or a refusal by the controller. The topology in force then stays.
pub(super) async fn apply(session: &mut Session, path: &str, found: &str) -> anyhow::Result<()> {
    let answer = controller::ping(session).await?;
    let here = place::hostname();
    if answer.hostname != here {
        let there = answer.hostname;
        bail!(
            "the controller runs on {there}, not on this host, {here}: run this there, where its {path} is"
        );
    }
    let before = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let after = with_topologies(&before, found).with_context(|| path.to_owned())?;
    Config::parse(&after, path).context("the file with this topology would not load")?;
    let is_new = written(&before)? != written(&after)?;
    if is_new {
        replace(path, &after)?;
    }
    let changes = match reconfigure(session).await {
        Ok(changes) => changes,
        Err(error) => {
            replace(path, &before).context("the file of before could not be put back")?;
            return Err(error.context(format!("not applied, {path} is as it was")));
        }
    };
    for topology in written(found)? {
        let differences =
            diff::differences(&running(session, &topology.name).await?, &diff::Shape::written(&topology));
        match differences.first() {
            None => {}
            Some(first) if !is_new => bail!(
                "{path} says this already: {first}; nodes that `scontrol update NodeName=… Topology=…` has moved stay: \
                 move them in the same way, or say with -f which file the controller reads"
            ),
            Some(_) => {
                replace(path, &before).context("the file of before could not be put back")?;
                reconfigure(session).await?;
                bail!(
                    "the controller does not read {path}, which is as it was; say with -f which file it reads"
                );
            }
        }
    }
    session.inform(&format!("{path} has the topology, and the controller uses it"));
    changes.iter().for_each(|change| session.inform(change));
    Ok(())
}

/// Makes the controller read its file again; returns the changes.
async fn reconfigure(session: &mut Session) -> anyhow::Result<Vec<String>> {
    let call = async |mut controller: Controller, request| controller.reconfigure(request).await;
    Ok(session.connection()?.read(ReconfigureRequest {}, call).await?.changes)
}

/// Replaces a file atomically and durably, with its owner and permissions.
fn replace(path: &str, text: &str) -> anyhow::Result<()> {
    let path = fs::canonicalize(path).with_context(|| format!("cannot find {path}"))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let shown = path.display();
    let meta = fs::metadata(&path).with_context(|| format!("cannot read {shown}"))?;
    let change = || -> std::io::Result<()> {
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(meta.permissions())?;
        rustix::fs::fchown(file.as_file(), owner(&meta).0, owner(&meta).1)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        fs::File::open(directory)?.sync_all()
    };
    change().with_context(|| format!("cannot write {shown}"))
}

fn owner(meta: &fs::Metadata) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    use std::os::unix::fs::MetadataExt;
    (Some(rustix::fs::Uid::from_raw(meta.uid())), Some(rustix::fs::Gid::from_raw(meta.gid())))
}

/// Returns a configuration in which the topologies of `found` replace those of the same names. Comments and
/// all other keys are kept.
fn with_topologies(config: &str, found: &str) -> anyhow::Result<String> {
    let mut config: DocumentMut = config.parse()?;
    let mut found: DocumentMut = found.parse().context("what was found is not TOML")?;
    if let Some(Item::Table(table)) = found.get_mut("topology") {
        let own = config.entry("topology").or_insert_with(|| Item::Table(Table::new()));
        let own = own.as_table_mut().context("topology is not a table with a header: write [topology]")?;
        take_over(own, table);
    }
    if let Some(Item::ArrayOfTables(tables)) = found.get_mut("topologies") {
        let own = config.entry("topologies").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let own = own.as_array_of_tables_mut().context("topologies are not tables: write [[topologies]]")?;
        for table in tables.iter_mut() {
            let name = table.get("name").and_then(Item::as_str).unwrap_or_default().to_owned();
            let is_same = |own: &&mut Table| own.get("name").and_then(Item::as_str) == Some(&name);
            if let Some(own) = own.iter_mut().find(is_same) {
                take_over(own, table);
                continue;
            }
            let mut new = Table::new();
            new.insert("name", toml_edit::value(&name));
            take_over(&mut new, table);
            own.push(new);
        }
    }
    Ok(config.to_string())
}

/// Replaces the keys that describe a topology.
fn take_over(own: &mut Table, found: &mut Table) {
    own.set_implicit(false);
    KEYS.iter().for_each(|key| drop(own.remove(key)));
    for key in KEYS {
        if let Some(mut item) = found.remove(key) {
            // Positions of tables refer to the other text, so the tables are placed after their topology.
            if let Item::ArrayOfTables(tables) = &mut item {
                tables.iter_mut().for_each(|table| table.set_position(own.position()));
            }
            own.insert(key, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_topology_is_changes() {
        let config = "cluster_name = \"x\" # mine\n\n[topology] # ours\nplugin = \"block\"\nblock_size = 4\n\n\
                      [[topology.rule]]\nmax_nodes = 2\ngather = \"must:leaf\"\n\n[topology.limits]\nmax_nodes_per_leaf = 3\n\n\
                      [[topologies]]\nname = \"other\"\nplugin = \"none\"\n\n[scheduler]\ndepth = 7\n";
        let found = "# Found\n[topology]\nplugin = \"tree\"\n\n# The leaves a, b\n[[topology.switches]]\nname = \"a\"\nnodes = \"n1\"\n\n\
                     [[topologies]]\nname = \"nvl\"\nplugin = \"block\"\n[[topologies.blocks]]\nname = \"b\"\nnodes = \"n1\"\n";
        let after = with_topologies(config, found).unwrap();
        for kept in [
            "# mine",
            "# ours",
            "gather = \"must:leaf\"",
            "max_nodes_per_leaf = 3",
            "depth = 7",
            "# The leaves a, b",
        ] {
            assert!(after.contains(kept), "{kept}: {after}");
        }
        assert!(!after.contains("block_size"), "{after}");
        let read = |text: &str| written(text).unwrap();
        let all = read(&after);
        let names: Vec<&str> = all.iter().map(|topology| &*topology.name).collect();
        assert_eq!(names, ["default", "other", "nvl"], "{after}");
        assert_eq!(all[0].switches[0].nodes.as_deref(), Some("n1"), "{after}");
        assert_eq!(all[2].blocks[0].name, "b", "{after}");
        // Applying the same text again changes nothing.
        assert_eq!(read(&with_topologies(&after, found).unwrap()), all);
        let fresh = with_topologies("cluster_name = \"x\"\n", found).unwrap();
        assert_eq!(read(&fresh).len(), 2, "{fresh}");
    }
}
