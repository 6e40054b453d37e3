//! Input of a simulation: files, also compressed ones, and the standard input.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use spur_core::model::config::{Config, NodeConfig, PartitionConfig, Policy};
use spur_core::model::node::NodeShape;
use spur_core::text::time::Seconds;

use super::args::Overrides;
use crate::error::Failure;

/// First bytes of a file compressed by gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Byte order mark that some editors write before a text in UTF-8.
const MARK: char = '\u{feff}';

/// Returns the text of a file, decompressed and without a byte order mark; `-` is the standard input.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
    } else {
        bytes = fs::read(path).map_err(failed)?;
    }
    if bytes.starts_with(&GZIP) {
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).map_err(failed)?;
        bytes = unpacked;
    }
    let mut text =
        String::from_utf8(bytes).map_err(|_| Failure::new(format!("{} is not UTF-8", path.display())))?;
    if text.starts_with(MARK) {
        text.remove(0);
    }
    Ok(text)
}

/// Returns the policy of the simulated controller: the file with overriding options.
pub(super) fn policy(path: &Path, overrides: &Overrides) -> Result<Policy, Failure> {
    let text = read(path)?;
    let config = Config::parse(&text, &path.display().to_string());
    let mut policy = config.map_err(|errors| Failure::new(errors.to_string()))?.policy;
    // A requeue takes no simulated time unless the file sets a delay.
    let written: Option<toml::Table> = text.parse().ok();
    let delay = written.as_ref().and_then(|file| file.get("recovery")?.get("requeue_delay"));
    if delay.is_none() {
        policy.recovery.requeue_delay = Seconds(0);
    }
    overrides.apply(&mut policy);
    Ok(policy)
}

/// Returns the policy of a flat machine: one node with all processors, which are only counted. By default the
/// whole queue is examined in the order of arrival.
pub(super) fn flat(procs: u32, overrides: &Overrides) -> Policy {
    let name: Arc<str> = "machine".into();
    let shape = NodeShape {
        sockets: 1,
        cores_per_socket: procs,
        threads_per_core: 1,
        cpus: procs,
        ..NodeShape::default()
    };
    let mut policy = Policy {
        cluster_name: Arc::clone(&name),
        nodes: vec![NodeConfig { name: Arc::clone(&name), shape, weight: 1, ..NodeConfig::default() }],
        partitions: vec![PartitionConfig {
            name: Arc::clone(&name),
            nodes: vec![name],
            default: true,
            ..PartitionConfig::default()
        }],
        ..Policy::default()
    };
    policy.scheduler.depth = 0;
    policy.scheduler.order = spur_core::model::config::Order::Fcfs;
    policy.recovery.requeue_delay = Seconds(0);
    overrides.apply(&mut policy);
    policy
}
