//! `--distribution`: the distribution of a step's tasks over nodes, sockets and cores.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The distribution of ranks over nodes (`-m`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// Neighbouring ranks share a node.
    #[default]
    Block,
    /// Neighbouring ranks are on neighbouring nodes.
    Cyclic,
    /// This number of neighbouring ranks share a node, and the next ones are on the next node.
    Plane(u32),
    /// Like `Block`, but each node is filled before the next.
    Pack,
    /// The user names a node for each rank.
    Arbitrary,
}

/// The distribution of a node's tasks over its sockets, or of a socket's tasks over its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Within {
    /// One socket or core is filled before the next.
    #[default]
    Block,
    /// One task for each socket or core in turn.
    Cyclic,
    /// One CPU of each task for each socket or core in turn.
    FullyCyclic,
}

impl Within {
    fn name(self) -> &'static str {
        match self {
            Within::Block => "Block",
            Within::Cyclic => "Cyclic",
            Within::FullyCyclic => "FCyclic",
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_ascii_lowercase())
    }
}

impl FromStr for Within {
    type Err = UnknownDistribution;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "block" => Ok(Within::Block),
            "cyclic" => Ok(Within::Cyclic),
            "fcyclic" => Ok(Within::FullyCyclic),
            _ => Err(UnknownDistribution(text.to_owned())),
        }
    }
}

/// The parts of `--distribution`; `None` for the default of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distributions {
    /// The distribution over nodes.
    pub nodes: Option<Distribution>,
    /// The distribution over the sockets of each node.
    pub sockets: Option<Within>,
    /// The distribution over the cores of each socket.
    pub cores: Option<Within>,
    /// True for `Pack`, false for `NoPack`.
    pub packs: Option<bool>,
}

impl Distributions {
    /// The distribution over nodes, in which `Block` with `Pack` is a kind of its own; `None` for the
    /// default.
    #[must_use]
    pub fn over_nodes(&self) -> Option<Distribution> {
        match self.nodes {
            None | Some(Distribution::Block) if self.packs == Some(true) => Some(Distribution::Pack),
            said => said,
        }
    }

    /// The name in Slurm's accounting, for a step with this number of tasks and of possible nodes. By default
    /// tasks are distributed cyclically if there are at most as many as nodes.
    #[must_use]
    pub fn name(&self, tasks: u64, nodes: usize) -> String {
        let in_turn = tasks <= nodes as u64;
        let over_nodes = match self.nodes {
            Some(Distribution::Arbitrary) => return "arbitrary task distribution".to_owned(),
            Some(Distribution::Plane(_)) => return "Plane".to_owned(),
            None if in_turn => "Cyclic",
            Some(Distribution::Cyclic) => "Cyclic",
            None | Some(Distribution::Block | Distribution::Pack) => "Block",
        };
        let below: String = [self.sockets, self.cores].into_iter().flatten().map(Within::name).collect();
        let over_nodes = if below.is_empty() { over_nodes } else { &over_nodes[..1] };
        let packs = match self.packs {
            Some(true) => ",Pack",
            Some(false) => ",NoPack",
            None => "",
        };
        format!("{over_nodes}{below}{packs}")
    }
}

/// A text that is not a distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no distribution; write block, cyclic, plane=SIZE, arbitrary or *, then :block, :cyclic or :fcyclic"
)]
pub struct UnknownDistribution(pub String);

impl FromStr for Distributions {
    type Err = UnknownDistribution;

    /// Reads `NODES[:SOCKETS[:CORES]][,Pack|,NoPack]`; `*` is the default of a level.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownDistribution(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let (levels, flag) = lower.split_once(',').unwrap_or((&lower, ""));
        let mut levels = levels.split(':');
        let mut said = Distributions {
            packs: match flag {
                "" => None,
                "pack" => Some(true),
                "nopack" => Some(false),
                _ => return Err(unknown()),
            },
            ..Distributions::default()
        };
        match levels.next().unwrap_or_default() {
            "" | "*" => {}
            "block" => said.nodes = Some(Distribution::Block),
            "cyclic" => said.nodes = Some(Distribution::Cyclic),
            "arbitrary" => said.nodes = Some(Distribution::Arbitrary),
            "pack" => said.packs = Some(true),
            "nopack" => said.packs = Some(false),
            other => {
                let size = other.strip_prefix("plane=").and_then(|size| size.parse().ok());
                said.nodes = Some(Distribution::Plane(size.filter(|size| *size > 0).ok_or_else(unknown)?));
            }
        }
        let within = |level: Option<&str>| match level {
            None | Some("*") => Ok(None),
            Some(level) => level.parse::<Within>().map(Some).map_err(|_| unknown()),
        };
        said.sockets = within(levels.next())?;
        said.cores = within(levels.next())?;
        if levels.next().is_some() { Err(unknown()) } else { Ok(said) }
    }
}

impl fmt::Display for Distributions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes {
            None => f.write_str("*")?,
            Some(Distribution::Block) => f.write_str("block")?,
            Some(Distribution::Cyclic) => f.write_str("cyclic")?,
            Some(Distribution::Plane(size)) => write!(f, "plane={size}")?,
            Some(Distribution::Pack) => f.write_str("pack")?,
            Some(Distribution::Arbitrary) => f.write_str("arbitrary")?,
        }
        for within in [self.sockets, self.cores] {
            match within {
                None => f.write_str(":*")?,
                Some(within) => write!(f, ":{within}")?,
            }
        }
        f.write_str(match self.packs {
            None => "",
            Some(true) => ",pack",
            Some(false) => ",nopack",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_slurm() {
        // Columns: the request, the number of tasks on two nodes, and the name in Slurm 22.05.
        let cases = [
            ("", 4, "Block"),
            ("", 2, "Cyclic"),
            ("*", 1, "Cyclic"),
            ("block", 2, "Block"),
            ("cyclic", 4, "Cyclic"),
            ("plane=2", 4, "Plane"),
            ("arbitrary", 4, "arbitrary task distribution"),
            ("pack", 2, "Cyclic,Pack"),
            ("nopack", 4, "Block,NoPack"),
            ("Block,NoPack", 2, "Block,NoPack"),
            ("cyclic,pack", 2, "Cyclic,Pack"),
            ("*:cyclic", 4, "BCyclic"),
            ("block:fcyclic", 2, "BFCyclic"),
            ("Cyclic:Block", 2, "CBlock"),
            ("cyclic:*", 4, "Cyclic"),
            ("block:block:cyclic", 2, "BBlockCyclic"),
            ("cyclic:cyclic:fcyclic", 2, "CCyclicFCyclic"),
            ("block:cyclic:block,pack", 4, "BCyclicBlock,Pack"),
        ];
        for (text, tasks, name) in cases {
            let said: Distributions = text.parse().unwrap();
            assert_eq!(said.name(tasks, 2), name, "{text}");
            assert_eq!(said.to_string().parse(), Ok(said), "{text}");
        }
        for text in ["plane", "plane=0", "plane=x", "blocks", "block:plane", "block:*:*:*", "block,packs"] {
            assert!(text.parse::<Distributions>().is_err(), "{text}");
        }
    }

    #[test]
    fn packing_is_a_way_of_blocks() {
        for (text, how) in [
            ("", None),
            ("nopack", None),
            ("*:*:*,pack", Some(Distribution::Pack)),
            ("block,Pack", Some(Distribution::Pack)),
            ("cyclic,pack", Some(Distribution::Cyclic)),
        ] {
            assert_eq!(text.parse::<Distributions>().unwrap().over_nodes(), how, "{text}");
        }
    }
}
