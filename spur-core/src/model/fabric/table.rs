//! Parts of domains as configured (names, lists of nodes, links), with their mistakes.

use std::collections::BTreeMap;

use super::fault::{FabricError, Fault};
use super::{Link, names};
use crate::model::topology::Line;
use crate::text::gather::{Latency, LinkSpeed};
use crate::text::hostlist::HostList;

/// A collection of mistakes in one topology.
pub(super) struct Faults<'a> {
    pub(super) topology: &'a str,
    pub(super) found: Vec<FabricError>,
}

impl Faults<'_> {
    pub(super) fn add(&mut self, line: Line, fault: Fault) {
        self.found.push(FabricError { line, topology: self.topology.to_owned(), fault });
    }
}

/// The node table by name, and the domain that has taken each node.
pub(super) struct Table<'a> {
    pub(super) index: BTreeMap<&'a str, usize>,
    pub(super) taken: BTreeMap<usize, String>,
    pub(super) moved: BTreeMap<usize, Option<&'a str>>,
}

impl Table<'_> {
    /// True if a node is in the domain to which it is configured: it was not moved, or was moved back.
    pub(super) fn stays(&self, node: usize, domain: &str) -> bool {
        self.moved.get(&node).is_none_or(|place| *place == Some(domain))
    }

    /// Takes the nodes of a hostlist for a domain.
    pub(super) fn take(
        &mut self,
        domain: &str,
        list: &str,
        line: Line,
        faults: &mut Faults<'_>,
    ) -> Vec<usize> {
        let (mut nodes, mut unknown) = (Vec::new(), Vec::new());
        for node in expand(domain, list, line, faults) {
            let Some(&index) = self.index.get(node.as_str()) else {
                unknown.push(node);
                continue;
            };
            if let Some(first) = self.taken.insert(index, domain.to_owned()) {
                faults.add(line, Fault::TwoPlaces { node, first, second: domain.to_owned() });
            } else if self.stays(index, domain) {
                nodes.push(index);
            }
        }
        if let Some(first) = unknown.first() {
            let near = names::nearest(first, self.index.keys().copied());
            let nodes = if unknown.len() == 1 { "node" } else { "nodes" };
            let node = format!("{nodes} {}", HostList::from_names(&unknown));
            faults.add(line, Fault::UnknownNode { domain: domain.to_owned(), node, near });
        }
        nodes
    }
}

/// Expands a hostlist of children or nodes of a domain; an empty list has none.
pub(super) fn expand(domain: &str, list: &str, line: Line, faults: &mut Faults<'_>) -> Vec<String> {
    if list.trim().is_empty() {
        return Vec::new();
    }
    names::expand(list).unwrap_or_else(|why| {
        faults.add(line, Fault::BadHostlist { domain: domain.to_owned(), list: list.to_owned(), why });
        Vec::new()
    })
}

/// Refuses a name that cannot be written where domains are named.
pub(super) fn check_name(name: &str, line: Line, faults: &mut Faults<'_>) {
    let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.split('/').all(|part| !part.is_empty() && part.chars().all(good)) {
        faults.add(line, Fault::BadName(name.to_owned()));
    }
}

/// Reads the properties of a domain's links.
pub(super) fn read_link(
    domain: &str,
    speed: Option<&str>,
    latency: Option<&str>,
    line: Line,
    faults: &mut Faults<'_>,
) -> Link {
    let mut link = Link::default();
    if let Some(text) = speed {
        link.speed = text.parse::<LinkSpeed>().ok().map(|speed| speed.0);
        if link.speed.is_none() {
            faults.add(line, Fault::BadSpeed { domain: domain.to_owned(), text: text.to_owned() });
        }
    }
    if let Some(text) = latency {
        link.latency = text.parse::<Latency>().ok().map(|latency| latency.0);
        if link.latency.is_none() {
            faults.add(line, Fault::BadLatency { domain: domain.to_owned(), text: text.to_owned() });
        }
    }
    link
}
