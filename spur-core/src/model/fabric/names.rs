//! Domains by name: look-up, hostlist functions, automatic features and addresses.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::shape::last_part;
use super::{Domain, DomainId, Fabric, Layer, Pos};
use crate::model::topology::Plugin;
use crate::text;
use crate::text::hostlist::{Function, FunctionKind, HostList};

/// A domain name that finds nothing, or too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No domain is called that.
    #[error("topology {topology} has no domain {name}{}", near.as_ref().map_or_else(String::new, |near| format!(": did you mean {near}?")))]
    Unknown {
        /// The topology that was searched.
        topology: String,
        /// The name.
        name: String,
        /// The name it may have meant.
        near: Option<String>,
    },
    /// Several domains are; their paths tell them apart.
    #[error("domain {name} is ambiguous: write {}", .paths.join(" or "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The full names of those it could be.
        paths: Vec<String>,
    },
}

/// A place for a node that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No domain, or several, are called that.
    #[error(transparent)]
    Domain(#[from] LookupError),
    /// It consists of other domains.
    #[error("{name} holds domains, not nodes: name a leaf or a base block, such as {leaf}")]
    NotLeaf {
        /// The name.
        name: String,
        /// One in it.
        leaf: String,
    },
    /// It is somewhere else than was written.
    #[error("{leaf} is not there: write {}", .paths.join(" or "))]
    Elsewhere {
        /// The name.
        leaf: String,
        /// Where it is, the topology first.
        paths: Vec<String>,
    },
}

/// A hostlist function that cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The function is for the other kind of topology, or is none.
    #[error("{function}{{}} does not work on topology {topology}: use {instead}")]
    WrongKind {
        /// The function as written.
        function: String,
        /// The topology.
        topology: String,
        /// The functions that work there.
        instead: &'static str,
    },
    /// Its argument names no domain.
    #[error(transparent)]
    Domain(#[from] LookupError),
    /// Its argument names no node with a place in the topology.
    #[error("{function}{{{node}}}: {node} is no node with a place in topology {topology}")]
    Node {
        /// The function as written.
        function: String,
        /// The node.
        node: String,
        /// The topology.
        topology: String,
    },
}

impl Fabric {
    /// The domain of that name: its full name, or the last part of its path where that is unambiguous.
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
            // One block can be a whole aggregate, which then has the block's name: the lowest is meant.
            ([only, ..], _) | ([], [only]) => Ok(*only),
            ([], []) => Err(unknown()),
            ([], several) => Err(LookupError::Ambiguous {
                name: name.to_owned(),
                paths: several.iter().map(|&id| self.domain(id).full_name().to_owned()).collect(),
            }),
        }
    }

    /// The leaf or base block of that name in the domains of those names, from the top down; some or all of these may be
    /// left out from the top.
    ///
    /// # Errors
    /// [`PlaceError`]; see there.
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

    /// A domain with those above it, the topology first, as a place is written.
    fn place(&self, id: DomainId) -> String {
        let up = std::iter::successors(Some(id), |&id| self.domain(id).parent());
        let mut names: Vec<&str> =
            up.filter(|&id| self.is_named(id)).map(|id| self.domain(id).name()).collect();
        names.push(self.name());
        names.reverse();
        names.join(":")
    }

    /// Whether users see the domain at all: the unnamed whole of a block topology is not for them.
    fn is_named(&self, id: DomainId) -> bool {
        !(self.has_hidden_top() && self.domain(id).layer() == self.top())
    }

    /// The domains that users see above a position, from its leaf upwards.
    pub fn named_path_up(&self, pos: Pos) -> impl Iterator<Item = &Domain> {
        self.path_up(pos).filter(|&id| self.is_named(id)).map(|id| self.domain(id))
    }

    /// The names that a node answers to as features without anybody having given them: those of its domains, full
    /// and short.
    #[must_use]
    pub fn features(&self, pos: Pos) -> BTreeSet<&str> {
        self.named_path_up(pos).flat_map(|domain| [domain.full_name(), domain.name()]).collect()
    }

    /// The whole path of a position, from the root to its leaf, as names joined by `sep`.
    #[must_use]
    pub fn path(&self, pos: Pos, sep: &str) -> String {
        let mut names: Vec<&str> = self.named_path_up(pos).map(Domain::name).collect();
        names.reverse();
        names.join(sep)
    }

    /// `SLURM_TOPOLOGY_ADDR` and `SLURM_TOPOLOGY_ADDR_PATTERN` of a position: for a tree the switches from the top
    /// down, a layer that the branch lacks as an empty part; for blocks the base block; then the node.
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

    /// The domain that a hostlist function means by one name: `switch{s1}`, `switchwith{n1}`, `block{b1}`, `blockwith{n1}`.
    ///
    /// # Errors
    /// [`FunctionError`]; see there.
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

/// The nodes that the functions of one hostlist stand for. Each comes once, however many of the functions mean it, so that a
/// short list cannot stand for millions of names.
#[derive(Debug)]
pub struct FunctionNodes<'a> {
    fabric: &'a Fabric,
    domains: BTreeSet<DomainId>,
    found: FixedBitSet,
}

impl<'a> FunctionNodes<'a> {
    /// Those on a fabric; none yet.
    #[must_use]
    pub fn new(fabric: &'a Fabric) -> FunctionNodes<'a> {
        FunctionNodes { fabric, domains: BTreeSet::new(), found: FixedBitSet::with_capacity(fabric.len()) }
    }

    /// The names of the nodes that a function adds to those before it, in the order of the fabric.
    ///
    /// # Errors
    /// [`FunctionError`]; see there.
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

/// Names as a hostlist.
pub(super) fn compress(names: &[&str]) -> String {
    HostList::from_names(names).to_string()
}

/// The known name that a wrong one may have meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    text::nearest::nearest(name, known).map(str::to_owned)
}
