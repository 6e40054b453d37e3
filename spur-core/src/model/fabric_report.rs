//! The place of a node in the network, as its daemon reports it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Largest number of neighbours in a report.
pub const MAX_NEIGHBOURS: usize = 64;
/// Largest number of InfiniBand ports in a report.
pub const MAX_PORTS: usize = 64;
/// Largest length of each text in a report, in bytes.
pub const MAX_TEXT: usize = 255;

/// A report of a node about its place in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricReport {
    /// The places that the command line of the daemon gives, as [`Places`](crate::text::place::Places) are
    /// written; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub places: Arc<str>,
    /// The NVLink clique of the node's GPUs as `CLUSTER.CLIQUE`; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub clique: Arc<str>,
    /// The switches at the other ends of the node's Ethernet links, from LLDP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// The node's InfiniBand ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<IbPort>,
}

/// The other end of an Ethernet link of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    /// The name of the switch.
    pub switch: Arc<str>,
    /// The port of the switch, as the switch names it.
    pub port: Arc<str>,
    /// The interface of the node.
    pub interface: Arc<str>,
}

/// An InfiniBand port of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct IbPort {
    /// The name of the adapter, such as `mlx5_0`.
    pub device: Arc<str>,
    /// The number of the port on the adapter, from 1.
    pub number: u32,
    /// The GUID of the adapter.
    pub node_guid: u64,
    /// The GUID of the port.
    pub guid: u64,
}

impl FabricReport {
    /// True if the report names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The switches of the node's links, each once, in alphabetical order.
    pub fn switches(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.neighbours.iter().map(|neighbour| &*neighbour.switch).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// Checks the size of a report and the characters of its texts.
    ///
    /// # Errors
    /// A sentence about the first limit that the report exceeds.
    pub fn check(&self) -> Result<(), String> {
        for (what, count, most) in [
            ("neighbours", self.neighbours.len(), MAX_NEIGHBOURS),
            ("InfiniBand ports", self.ports.len(), MAX_PORTS),
        ] {
            if count > most {
                return Err(format!("{count} {what}; a report has at most {most}"));
            }
        }
        let neighbours = self.neighbours.iter().flat_map(|n| [&n.switch, &n.port, &n.interface]);
        let texts = [&self.places, &self.clique].into_iter().chain(neighbours);
        for text in texts.chain(self.ports.iter().map(|port| &port.device)) {
            if text.len() > MAX_TEXT {
                return Err(format!("a text of {} bytes; a report has at most {MAX_TEXT}", text.len()));
            }
            if text.chars().any(char::is_control) {
                return Err(format!("control characters in {text:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_largest_size() {
        let neighbour = |switch: &str| Neighbour { switch: switch.into(), ..Neighbour::default() };
        let reports = |switch: &str, count| FabricReport {
            neighbours: vec![neighbour(switch); count],
            ..FabricReport::default()
        };
        let longest = "s".repeat(MAX_TEXT);
        assert_eq!(reports(&longest, MAX_NEIGHBOURS).check(), Ok(()));
        let ports = FabricReport { ports: vec![IbPort::default(); MAX_PORTS + 1], ..FabricReport::default() };
        for (report, part) in [
            (reports("s", MAX_NEIGHBOURS + 1), "65 neighbours"),
            (reports(&format!("{longest}s"), 1), "256 bytes"),
            (reports("s\n", 1), "control characters"),
            (ports, "65 InfiniBand ports"),
        ] {
            assert!(report.check().unwrap_err().contains(part), "{:?}", report.check());
        }
    }

    #[test]
    fn switches_are_named_once() {
        let neighbour = |switch: &str| Neighbour { switch: switch.into(), ..Neighbour::default() };
        let report = FabricReport {
            neighbours: ["s2", "s1", "s2"].map(neighbour).to_vec(),
            ..FabricReport::default()
        };
        assert_eq!(report.switches().collect::<Vec<_>>(), ["s1", "s2"]);
        assert!(!report.is_empty() && FabricReport::default().is_empty());
    }
}
