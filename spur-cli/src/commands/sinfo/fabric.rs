//! The option `sinfo --topology`: free nodes in each domain, and fragmentation of each layer.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use spur_core::text::hostlist::HostList;
use spur_proto::v1::{Domain, Topology};

use crate::format::json::{self, Wish};
use crate::format::table::fit;

/// Free resources of one layer.
#[derive(Debug, PartialEq, Serialize)]
struct Layer<'a> {
    name: &'a str,
    domains: usize,
    /// Number of domains that are entirely free.
    whole: usize,
    free_nodes: u32,
    /// Share of the free nodes, from 0 to 1, that no request for whole domains can use; 0 without free nodes.
    fragmentation: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    topology: &'a Topology,
    /// Largest entirely free domain within each domain, by path.
    largest_free: BTreeMap<&'a str, Option<&'a str>>,
    fragmentation: Vec<Layer<'a>>,
}

/// Returns the domains from the top layer down, and the layers.
pub(super) fn text(topology: &Topology, wish: Option<Wish>, with_header: bool) -> String {
    let largest = largest_free(topology);
    let layers = layers(topology);
    if let Some(wish) = wish {
        let paths = topology.domains.iter().map(|domain| domain.path.as_str());
        let names = largest.iter().map(|free| free.map(|free| topology.domains[free].name.as_str()));
        let largest_free = paths.zip(names).collect();
        let document = Document { topology, largest_free, fragmentation: layers };
        return wish.own([("topology", json::to_value(document))]);
    }
    let mut domains: Vec<(&Domain, String)> = Vec::new();
    for (domain, free) in topology.domains.iter().zip(&largest) {
        let free = match free {
            Some(free) => {
                let free = &topology.domains[*free];
                format!("{} {} ({})", free.layer, free.name, free.total_nodes)
            }
            None if domain.free_nodes > 0 => "node (1)".to_owned(),
            None => "none".to_owned(),
        };
        domains.push((domain, free));
    }
    domains.sort_by_key(|(domain, _)| std::cmp::Reverse(domain.level));
    let width = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0).max("DOMAIN".len())
    };
    let layer = width(&mut topology.domains.iter().map(|domain| domain.layer.as_str()));
    let name = width(&mut topology.domains.iter().map(|domain| domain.name.as_str()));
    let mut out = String::new();
    let mut line = |cells: [&str; 7]| {
        let left = format!("{} {}", fit(cells[0], Some(layer), false), fit(cells[1], Some(name), false));
        let counts: String = cells[2..6].iter().map(|cell| format!(" {cell:>6}")).collect();
        let _ = writeln!(out, "{left}{counts} {}", cells[6]);
    };
    if with_header {
        line(["LAYER", "DOMAIN", "NODES", "FREE", "ALLOC", "DOWN", "LARGEST_FREE"]);
    }
    for (domain, free) in &domains {
        let [nodes, idle, allocated, down] =
            [domain.total_nodes, domain.free_nodes, domain.allocated_nodes, domain.down_nodes]
                .map(|count| count.to_string());
        line([&domain.layer, &domain.name, &nodes, &idle, &allocated, &down, free]);
    }
    out.push('\n');
    let mut line = |cells: [&str; 4]| {
        let cells =
            [fit(cells[0], Some(layer), false), format!("{:>7}", cells[1]), format!("{:>10}", cells[2])]
                .join(" ")
                + &format!(" {:>13}", cells[3]);
        let _ = writeln!(out, "{cells}");
    };
    if with_header {
        line(["LAYER", "DOMAINS", "WHOLE_FREE", "FRAGMENTATION"]);
    }
    for layer in layers.iter().rev() {
        let [domains, whole] = [layer.domains, layer.whole].map(|count| count.to_string());
        line([layer.name, &domains, &whole, &format!("{:.3}", layer.fragmentation)]);
    }
    out
}

/// Returns the range of positions in the fabric that each domain covers, as first position and count; `None`
/// for domains without nodes.
fn ranges(topology: &Topology) -> Vec<Option<(usize, usize)>> {
    let expand = |domain: &Domain| domain.nodes.parse::<HostList>().unwrap_or_default();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for domain in topology.domains.iter().filter(|domain| domain.level == 0 && !domain.aggregate) {
        for name in expand(domain).iter() {
            let next = positions.len();
            positions.entry(name).or_insert(next);
        }
    }
    let range = |domain: &Domain| {
        let nodes = expand(domain);
        let first = nodes.iter().filter_map(|name| positions.get(&name).copied()).min()?;
        Some((first, nodes.len()))
    };
    topology.domains.iter().map(range).collect()
}

/// Returns for each domain the index of the largest entirely free domain within it, possibly itself. The
/// first in fabric order wins a tie.
fn largest_free(topology: &Topology) -> Vec<Option<usize>> {
    let ranges = ranges(topology);
    let whole = |domain: &Domain| domain.total_nodes > 0 && domain.free_nodes == domain.total_nodes;
    let free: Vec<usize> = (0..ranges.len()).filter(|&at| whole(&topology.domains[at])).collect();
    let largest_in = |outer: &Option<(usize, usize)>| {
        let (first, count) = (*outer)?;
        let within = free
            .iter()
            .copied()
            .filter(|&at| ranges[at].is_some_and(|(f, c)| first <= f && f + c <= first + count));
        within.max_by_key(|&at| (topology.domains[at].total_nodes, std::cmp::Reverse(at)))
    };
    ranges.iter().map(largest_in).collect()
}

fn layers(topology: &Topology) -> Vec<Layer<'_>> {
    let layer = |name: &'_ String| -> (usize, usize, u32, u32) {
        let domains = topology.domains.iter().filter(|domain| domain.layer == *name);
        domains.fold((0, 0, 0, 0), |(count, whole, free, usable), domain| {
            let is_whole = domain.total_nodes > 0 && domain.free_nodes == domain.total_nodes;
            let in_whole = if is_whole { domain.free_nodes } else { 0 };
            (count + 1, whole + usize::from(is_whole), free + domain.free_nodes, usable + in_whole)
        })
    };
    let mut layers = Vec::new();
    for name in &topology.layers {
        let (domains, whole, free_nodes, usable) = layer(name);
        let fragmentation = match free_nodes {
            0 => 0.0,
            free => f64::from(free - usable) / f64::from(free),
        };
        if domains > 0 {
            layers.push(Layer { name, domains, whole, free_nodes, fragmentation });
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(name: &str, level: u32, nodes: &str, [total, free]: [u32; 2]) -> Domain {
        let layer = if level == 0 { "leaf" } else { "spine" };
        Domain {
            name: name.into(),
            path: name.into(),
            layer: layer.into(),
            level,
            nodes: nodes.into(),
            total_nodes: total,
            free_nodes: free,
            allocated_nodes: total - free,
            ..Domain::default()
        }
    }

    /// Leaves of four nodes under one spine: one entirely free, one half busy, and one without nodes.
    fn fabric() -> Topology {
        Topology {
            name: "default".into(),
            plugin: "tree".into(),
            layers: vec!["leaf".into(), "spine".into()],
            domains: vec![
                domain("s0", 0, "n[1-4]", [4, 2]),
                domain("s1", 0, "n[5-8]", [4, 4]),
                domain("s2", 0, "", [0, 0]),
                domain("top", 1, "n[1-8]", [8, 6]),
            ],
        }
    }

    #[test]
    fn the_largest_free_unit_is_a_whole_domain() {
        assert_eq!(largest_free(&fabric()), [None, Some(1), None, Some(1)]);
        let mut all_free = fabric();
        all_free.domains[0].free_nodes = 4;
        all_free.domains[3].free_nodes = 8;
        assert_eq!(largest_free(&all_free), [Some(0), Some(1), None, Some(3)]);
    }

    #[test]
    fn fragmentation_is_what_whole_domains_cannot_use() {
        let shares: Vec<_> =
            layers(&fabric()).iter().map(|layer| (layer.whole, layer.fragmentation)).collect();
        assert_eq!(shares, [(1, 2.0 / 6.0), (0, 1.0)]);
        let mut full = fabric();
        full.domains.iter_mut().for_each(|domain| domain.free_nodes = 0);
        assert!(layers(&full).iter().all(|layer| layer.fragmentation == 0.0));
    }
}
