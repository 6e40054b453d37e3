//! Domains by name: look-up, hostlist functions, automatic features and addresses.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::shape::last_part;
use super::{Domain, DomainId, Fabric, Layer, Pos};
use crate::model::topology::Plugin;
use crate::text;
use crate::text::hostlist::{Function, FunctionKind, HostList};

/// The failed look-up of a domain by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No domain has this name.
    #[error("topology {topology} has no domain {name}{}", near.as_ref().map_or_else(String::new, |near| format!(": did you mean {near}?")))]
    Unknown {
        /// The topology that was searched.
        topology: String,
        /// The name that was looked up.
        name: String,
        /// The known name that is most similar, if any.
        near: Option<String>,
    },
    /// Several domains have this name; their paths are unambiguous.
    #[error("domain {name} is ambiguous: write {}", .paths.join(" or "))]
    Ambiguous {
        /// The name that was looked up.
        name: String,
        /// The full names of these domains.
        paths: Vec<String>,
    },
}

/// The invalid place of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No domain, or several, have this name.
    #[error(transparent)]
    Domain(#[from] LookupError),
    /// The domain consists of other domains.
    #[error("{name} holds domains, not nodes: name a leaf or a base block, such as {leaf}")]
    NotLeaf {
        /// The name of the domain.
        name: String,
        /// The name of a leaf in the domain.
        leaf: String,
    },
    /// The domain is not in the places that were written above it.
    #[error("{leaf} is not there: write {}", .paths.join(" or "))]
    Elsewhere {
        /// The name of the leaf or block.
        leaf: String,
        /// The paths of leaves with this name, the topology first.
        paths: Vec<String>,
    },
}

/// The failure of a hostlist function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The function is unknown, or belongs to the other kind of topology.
    #[error("{function}{{}} does not work on topology {topology}: use {instead}")]
    WrongKind {
        /// The function as written.
        function: String,
        /// The name of the topology.
        topology: String,
        /// The functions that work on this topology.
        instead: &'static str,
    },
    /// The argument names no domain.
    #[error(transparent)]
    Domain(#[from] LookupError),
    /// The argument names no node with a place in the topology.
    #[error("{function}{{{node}}}: {node} is no node with a place in topology {topology}")]
    Node {
        /// The function as written.
        function: String,
        /// The name of the node.
        node: String,
        /// The name of the topology.
        topology: String,
    },
}

impl Fabric {
    /// The domain of this name: its full name, or the last part of its path if that is unambiguous.
    ///
    /// # Errors
    /// [`LookupError`] with the nearest name, or with the paths to choose from.
    pub fn find(&self, name: &str) -> Result<DomainId, LookupError> {
        let unknown = || LookupError::Unknown {
            topology: self.name().to_owned(),
            name: name.to_owned(),
            near: nearest(name, self.labels.keys().map(String::as_str)),
        };
        let found = self.labels.get(name).ok_or_else(unknown)?;
        let named: Vec<DomainId> =
            found.iter().copied().filter(|&id| self.domain(id).full_name() == name).collect();
        match (named.as_slice(), found.as_slice()) {
            // A single block can form a whole aggregate, which then has its name; the block is meant.
            ([only, ..], _) | ([], [only]) => Ok(*only),
            ([], []) => Err(unknown()),
            ([], several) => Err(LookupError::Ambiguous {
                name: name.to_owned(),
                paths: several.iter().map(|&id| self.domain(id).full_name().to_owned()).collect(),
            }),
        }
    }

    /// The leaf or base block named `leaf` below the domains named `above`, from the top down; upper domains
    /// may be omitted.
    ///
    /// # Errors
    /// [`PlaceError`] with the alternatives.
    pub fn leaf_at(&self, above: &[String], leaf: &str) -> Result<DomainId, PlaceError> {
        let is = |id: DomainId, name: &str| {
            let domain = self.domain(id);
            [domain.full_name(), domain.name(), last_part(domain.full_name())].contains(&name)
        };
        let parents = |id| std::iter::successors(self.domain(id).parent(), |&id| self.domain(id).parent());
        let named: Vec<DomainId> = self.domains_of(Layer::LEAF).filter(|&id| is(id, leaf)).collect();
        let there = |id: &DomainId| {
            let parents: Vec<DomainId> = parents(*id).take(above.len()).collect();
            parents.len() == above.len()
                && parents.iter().zip(above.iter().rev()).all(|(&id, name)| is(id, name))
        };
        let fitting: Vec<DomainId> = named.iter().copied().filter(there).collect();
        let exact = fitting.iter().copied().find(|&id| self.domain(id).full_name() == leaf);
        match (exact, &fitting[..], &named[..]) {
            (Some(only), ..) => Ok(only),
            (None, [only], _) => Ok(*only),
            (None, [], []) => {
                let id = self.find(leaf)?;
                let below = self.domains_of(Layer::LEAF).find(|&leaf| self.within(leaf, id));
                let leaf_name = below.map_or("", |leaf| self.domain(leaf).name()).to_owned();
                Err(PlaceError::NotLeaf { name: leaf.to_owned(), leaf: leaf_name })
            }
            (None, [], elsewhere) => Err(PlaceError::Elsewhere {
                leaf: leaf.to_owned(),
                paths: elsewhere.iter().map(|&id| self.place(id)).collect(),
            }),
            (None, several, _) => Err(PlaceError::Domain(LookupError::Ambiguous {
                name: leaf.to_owned(),
                paths: several.iter().map(|&id| self.domain(id).full_name().to_owned()).collect(),
            })),
        }
    }

    /// The path of a domain as places are written, the topology first.
    #[must_use]
    pub fn place(&self, id: DomainId) -> String {
        let up = std::iter::successors(Some(id), |&id| self.domain(id).parent());
        let mut names: Vec<&str> =
            up.filter(|&id| self.is_named(id)).map(|id| self.domain(id).name()).collect();
        names.push(self.name());
        names.reverse();
        names.join(":")
    }

    /// True if users see the domain. The unnamed whole of a block topology is hidden.
    fn is_named(&self, id: DomainId) -> bool {
        !(self.has_hidden_top() && self.domain(id).layer() == self.top())
    }

    /// The domains above a position that users see, from its leaf upwards.
    pub fn named_path_up(&self, pos: Pos) -> impl Iterator<Item = &Domain> {
        self.path_up(pos).filter(|&id| self.is_named(id)).map(|id| self.domain(id))
    }

    /// The automatic features of a node: the full and short names of its domains.
    #[must_use]
    pub fn features(&self, pos: Pos) -> BTreeSet<&str> {
        self.named_path_up(pos).flat_map(|domain| [domain.full_name(), domain.name()]).collect()
    }

    /// The path of a position from the root to its leaf, as names joined by `sep`.
    #[must_use]
    pub fn path(&self, pos: Pos, sep: &str) -> String {
        let mut names: Vec<&str> = self.named_path_up(pos).map(Domain::name).collect();
        names.reverse();
        names.join(sep)
    }

    /// `SLURM_TOPOLOGY_ADDR` and `SLURM_TOPOLOGY_ADDR_PATTERN` of a position. For a tree: the switches from
    /// the top down, with an empty part for a missing layer. For blocks: the base block. The node comes last.
    #[must_use]
    pub fn address(&self, pos: Pos) -> (String, String) {
        let node = self.node_name(pos);
        let Some(leaf) = self.leaf_of(pos) else { return (node.to_owned(), "node".to_owned()) };
        if self.plugin() == Plugin::Block {
            return (format!("{}.{node}", self.domain(leaf).name()), "block.node".to_owned());
        }
        let (mut address, mut pattern) = (String::new(), String::new());
        for layer in (1..=self.top().0).rev().map(Layer) {
            let at = self.path_up(pos).find(|&id| self.domain(id).layer() == layer);
            address.push_str(at.map_or("", |id| self.domain(id).name()));
            address.push('.');
            pattern.push_str("switch.");
        }
        (address + node, pattern + "node")
    }

    /// The domain that a hostlist function denotes by one name: `switch{s1}`, `switchwith{n1}`, `block{b1}`,
    /// `blockwith{n1}`.
    ///
    /// # Errors
    /// [`FunctionError`] for a function of another kind of topology, and for a name that denotes no domain
    /// or node.
    fn domain_meant(&self, function: FunctionKind, name: &str) -> Result<DomainId, FunctionError> {
        let instead = match (self.plugin(), function) {
            (Plugin::Tree, FunctionKind::Switch) | (Plugin::Block, FunctionKind::Block) => {
                return Ok(self.find(name)?);
            }
            (Plugin::Tree, FunctionKind::SwitchWith) | (Plugin::Block, FunctionKind::BlockWith) => {
                return self.leaf_with(function.name(), name);
            }
            (Plugin::Tree, _) => "switch{} or switchwith{}",
            (Plugin::Block, _) => "block{} or blockwith{}",
            (Plugin::None, _) => "node names: there are no domains",
        };
        let (function, topology) = (function.name().to_owned(), self.name().to_owned());
        Err(FunctionError::WrongKind { function, topology, instead })
    }

    fn leaf_with(&self, function: &str, node: &str) -> Result<DomainId, FunctionError> {
        self.pos_named(node).and_then(|pos| self.leaf_of(pos)).ok_or_else(|| FunctionError::Node {
            function: function.to_owned(),
            node: node.to_owned(),
            topology: self.name().to_owned(),
        })
    }
}

/// The nodes that the functions of one hostlist denote. Each occurs once, so that a short list cannot denote
/// millions of names.
#[derive(Debug)]
pub struct FunctionNodes<'a> {
    fabric: &'a Fabric,
    domains: BTreeSet<DomainId>,
    found: FixedBitSet,
}

impl<'a> FunctionNodes<'a> {
    /// An empty set of nodes on a fabric.
    #[must_use]
    pub fn new(fabric: &'a Fabric) -> FunctionNodes<'a> {
        FunctionNodes { fabric, domains: BTreeSet::new(), found: FixedBitSet::with_capacity(fabric.len()) }
    }

    /// The names of nodes that a function adds to earlier ones, in fabric order.
    ///
    /// # Errors
    /// [`FunctionError`] for a function of another kind of topology, and for a name that denotes no domain
    /// or node.
    pub fn add(&mut self, function: &Function) -> Result<Vec<String>, FunctionError> {
        let mut names = Vec::new();
        for name in function.names.iter() {
            let domain = self.fabric.domain_meant(function.kind, &name)?;
            if !self.domains.insert(domain) {
                continue;
            }
            let new = self.fabric.domain(domain).range().filter(|&index| !self.found.put(index));
            let pos = |index| Pos(u32::try_from(index).expect("positions are u32"));
            names.extend(new.map(|index| self.fabric.node_name(pos(index)).to_owned()));
        }
        Ok(names)
    }
}

/// The names of a hostlist, in its order.
pub(super) fn expand(list: &str) -> Result<Vec<String>, String> {
    list.parse::<HostList>().map(|list| list.iter().collect()).map_err(|error| error.problem)
}

/// Names as a compressed hostlist.
pub(super) fn compress(names: &[&str]) -> String {
    HostList::from_names(names).to_string()
}

/// The known name that is most similar to a wrong one, if any.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    text::nearest::nearest(name, known).map(str::to_owned)
}
