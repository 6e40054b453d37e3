//! Targets for the configuration, with its topologies.

use spur_core::cluster::Cluster;
use spur_core::controller::Command;
use spur_core::model::config::Config;

use crate::text_of;
use crate::world::World;

/// Nodes and a partition, to which the text after them may refer.
const NODES: &str = "cluster_name = \"fuzz\"\n[[nodes]]\nnames = \"n[1-16]\"\ncpus = 4\n[[partitions]]\nname = \"main\"\n\
                     nodes = \"ALL\"\ndefault = true\n";

fn load(text: &str) {
    match Config::parse(text, "spur.toml") {
        Err(errors) => assert!(!errors.to_string().is_empty()),
        Ok(config) => {
            let mut world = World(Cluster::default());
            let policy = std::sync::Arc::new(config.policy);
            world.command(0, Command::Reconfigure(policy.clone()));
            world.command(0, Command::Reconfigure(policy));
            let mut world = World::new();
            if let Ok(config) = Config::parse(text, "spur.toml") {
                world.command(0, Command::Reconfigure(config.policy.into()));
            }
        }
    }
}

/// Loads a whole `spur.toml`, as at a first start and as a reload.
pub fn config(bytes: &[u8]) {
    text_of(bytes).into_iter().for_each(load);
}

/// Loads a configuration whose end is the text, after a table of sixteen nodes.
pub fn topology(bytes: &[u8]) {
    if let Some(text) = text_of(bytes) {
        load(&format!("{NODES}{text}"));
    }
}
