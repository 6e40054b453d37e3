//! Trackable resources (TRES): `cpu=4,mem=8G,node=1,billing=4,gres/gpu=2,license/matlab=1`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::gres::is_word;
use super::memory::MemoryMb;
use super::number::{self, Unit};
use super::{ParseError, serde_as_text};

const WHAT: &str = "TRES list";
const HELP: &str = "write cpu=N, mem=SIZE, node=N, billing=N, gres/NAME[:TYPE]=N or license/NAME=N, \
                    separated by commas";
const COUNT: &[Unit] = &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];

/// Kind of trackable resource. Kinds order as they are printed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TresKind {
    /// Number of CPUs.
    Cpu,
    /// Memory in mebibytes.
    Mem,
    /// Number of nodes.
    Node,
    /// Weighted sum that priority and limits count.
    Billing,
    /// A generic resource, of one type or of all types.
    Gres {
        /// Name of the resource, e.g. `gpu`.
        name: String,
        /// Type of the resource, e.g. `mi300x`; `None` for all types.
        kind: Option<String>,
    },
    /// A license, by name.
    License(String),
}

impl fmt::Display for TresKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TresKind::Cpu => f.write_str("cpu"),
            TresKind::Mem => f.write_str("mem"),
            TresKind::Node => f.write_str("node"),
            TresKind::Billing => f.write_str("billing"),
            TresKind::Gres { name, kind: None } => write!(f, "gres/{name}"),
            TresKind::Gres { name, kind: Some(kind) } => write!(f, "gres/{name}:{kind}"),
            TresKind::License(name) => write!(f, "license/{name}"),
        }
    }
}

impl FromStr for TresKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TresKind, ParseError> {
        let gres = |name: &str, kind: Option<&str>| TresKind::Gres {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
        };
        let kind = match text.split_once('/') {
            None => match text.to_ascii_lowercase().as_str() {
                "cpu" => Some(TresKind::Cpu),
                "mem" => Some(TresKind::Mem),
                "node" => Some(TresKind::Node),
                "billing" => Some(TresKind::Billing),
                _ => None,
            },
            Some(("license", name)) if is_word(name) => Some(TresKind::License(name.to_owned())),
            Some(("gres", name)) => match name.split_once(':') {
                None if is_word(name) => Some(gres(name, None)),
                Some((name, kind)) if is_word(name) && is_word(kind) => Some(gres(name, Some(kind))),
                _ => None,
            },
            Some(_) => None,
        };
        kind.ok_or_else(|| ParseError::new(WHAT, text, "there is no such resource", HELP))
    }
}

/// Counts by kind of resource. A kind that is absent counts as zero, and a zero may also be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tres(pub BTreeMap<TresKind, u64>);

impl Tres {
    /// Count of `kind`, 0 if it is absent.
    pub fn get(&self, kind: &TresKind) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Sets the count of `kind`.
    pub fn set(&mut self, kind: TresKind, count: u64) {
        self.0.insert(kind, count);
    }

    /// Adds the counts of `other`, kind by kind. Sums saturate at `u64::MAX`.
    pub fn add(&mut self, other: &Tres) {
        for (kind, count) in &other.0 {
            let sum = self.0.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// True if no count is stored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(TresKind, u64)> for Tres {
    fn from_iter<I: IntoIterator<Item = (TresKind, u64)>>(counts: I) -> Tres {
        Tres(counts.into_iter().collect())
    }
}

impl fmt::Display for Tres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (kind, &count)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match kind {
                TresKind::Mem => write!(f, "{comma}mem={}", MemoryMb(count))?,
                _ => write!(f, "{comma}{kind}={count}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Tres {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Tres, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let mut tres = Tres::default();
        if text.is_empty() {
            return Ok(tres);
        }
        for item in text.split(',') {
            let (kind, count) = item
                .split_once('=')
                .or_else(|| item.rsplit_once(':'))
                .ok_or_else(|| refuse(format!("`{item}` has no count")))?;
            let kind: TresKind =
                kind.parse().map_err(|_| refuse(format!("there is no resource `{kind}`")))?;
            let count = match kind {
                TresKind::Mem => count.parse::<MemoryMb>().map(|mb| mb.0).map_err(|e| e.problem),
                _ => number::with_unit(count, COUNT).map_err(|e| e.to_string()),
            };
            let count = count.map_err(|problem| refuse(format!("`{item}`: {problem}")))?;
            if tres.0.insert(kind, count).is_some() {
                return Err(refuse(format!("`{item}` comes twice")));
            }
        }
        Ok(tres)
    }
}

serde_as_text!(TresKind, Tres);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shown_in_slurms_order() {
        let text = "gres/gpu:mi300x=2,node=1,gres/gpu=2,mem=8192,cpu=4,license/matlab=1,billing=4";
        let tres: Tres = text.parse().unwrap();
        let shown = "cpu=4,mem=8G,node=1,billing=4,gres/gpu=2,gres/gpu:mi300x=2,license/matlab=1";
        assert_eq!(tres.to_string(), shown);
        assert_eq!(tres.get(&TresKind::Mem), 8192);
        assert_eq!("gres/gpu:2".parse::<Tres>().unwrap().to_string(), "gres/gpu=2");
    }

    #[test]
    fn sums() {
        let mut tres: Tres = "cpu=4,mem=1G".parse().unwrap();
        tres.add(&"cpu=2,node=1".parse().unwrap());
        assert_eq!(tres.to_string(), "cpu=6,mem=1G,node=1");
    }

    #[test]
    fn refused() {
        for text in ["cpu", "cpu=", "cpu=x", "cpu=1,cpu=2", "gpu=2", "gres/=1", "fs/x=1", "cpu=1,"] {
            assert!(text.parse::<Tres>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            counts in prop::collection::vec(0..(u64::MAX >> 10), 4),
            gres in prop::collection::btree_map(
                ("[a-z]{1,4}", prop::option::of("[a-z0-9]{1,4}")), any::<u64>(), 0..4),
        ) {
            let kinds = [TresKind::Cpu, TresKind::Mem, TresKind::Node, TresKind::License("l".into())];
            let gres = gres.into_iter().map(|((name, kind), n)| (TresKind::Gres { name, kind }, n));
            let tres: Tres = kinds.into_iter().zip(counts).chain(gres).collect();
            prop_assert_eq!(tres.to_string().parse(), Ok(tres));
        }
    }
}
