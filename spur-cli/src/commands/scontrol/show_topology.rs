//! The command `scontrol show topology`.

use spur_proto::v1::{Domain, ListTopologyRequest, Topology};

use crate::error::Failure;
use crate::format::value::or;

/// Parses `[NAME] [unit=NAME] [node=NODES]`; `switch` and `block` are synonyms of `unit`, and `nodes` of
/// `node`.
///
/// # Errors
/// Another word, or a repeated one.
pub fn request(words: &[String]) -> Result<ListTopologyRequest, Failure> {
    let mut request = ListTopologyRequest::default();
    for word in words {
        let (place, value) = match word.split_once('=') {
            None => (&mut request.name, word.as_str()),
            Some((key, value)) => match key.to_ascii_lowercase().as_str() {
                "unit" | "switch" | "block" => (&mut request.unit, value),
                "node" | "nodes" => (&mut request.nodes, value),
                _ => {
                    let text = format!("Unknown selection {word}; write [NAME] [unit=NAME] [node=NODES]");
                    return Err(Failure::new(text));
                }
            },
        };
        if value.is_empty() || !place.is_empty() {
            return Err(Failure::new(format!("{word}: each of NAME, unit= and node= takes one value")));
        }
        value.clone_into(place);
    }
    Ok(request)
}

/// Returns the requests that a name alone can also stand for: those for a domain or a node of this name.
pub fn meant(request: &ListTopologyRequest) -> Vec<ListTopologyRequest> {
    let ListTopologyRequest { name, unit, nodes } = request;
    if name.is_empty() || !unit.is_empty() || !nodes.is_empty() {
        return Vec::new();
    }
    let unit = ListTopologyRequest { unit: name.clone(), ..ListTopologyRequest::default() };
    let nodes = ListTopologyRequest { nodes: name.clone(), ..ListTopologyRequest::default() };
    vec![unit, nodes]
}

/// Returns a line for each domain, truncated to `width` characters if it is set and above 0.
pub fn text(topology: &Topology, width: Option<usize>) -> String {
    let mut out = String::new();
    for domain in &topology.domains {
        let line = line(&topology.plugin, domain);
        match width.filter(|&width| width > 0).and_then(|width| line.char_indices().nth(width)) {
            Some((end, _)) => out.push_str(&line[..end]),
            None => out.push_str(&line),
        }
        out.push('\n');
    }
    out
}

/// Returns the message for an empty result.
pub fn nothing(request: &ListTopologyRequest) -> String {
    let mut text = "Topology information contains no switch".to_owned();
    if !request.unit.is_empty() {
        text.push_str(&format!(" named {}", request.unit));
    }
    if !request.nodes.is_empty() {
        text.push_str(&format!(" with nodes {}", request.nodes));
    }
    text
}

fn line(plugin: &str, domain: &Domain) -> String {
    let mut line = if plugin == "block" {
        let size = domain.block_size.unwrap_or(domain.total_nodes);
        let index = domain.block_index.unwrap_or(0);
        let name = match domain.aggregate {
            true => format!("AggregatedBlock={}", or(&domain.children, &domain.name)),
            false => format!("BlockName={}", domain.name),
        };
        format!("{name} BlockIndex={index} Nodes={} BlockSize={size}", domain.nodes)
    } else {
        let (name, level) = (&domain.name, domain.level);
        let speed = or(&domain.link_speed, "1");
        let mut line = format!("SwitchName={name} Level={level} LinkSpeed={speed} Nodes={}", domain.nodes);
        if domain.level > 0 {
            line.push_str(&format!(" Switches={}", domain.children));
        }
        line
    };
    if !domain.latency.is_empty() {
        line.push_str(&format!(" Latency={}", domain.latency));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_request_names_topology_unit_and_nodes() {
        let read = |text| request(&words(text)).map(|r| [r.name, r.unit, r.nodes].join("|"));
        assert_eq!(read("").unwrap(), "||");
        assert_eq!(read("fast Unit=s1 node=n[1-2]").unwrap(), "fast|s1|n[1-2]");
        assert_eq!(read("switch=s1").unwrap(), "|s1|");
        assert_eq!(read("block=b1 nodes=n1").unwrap(), "|b1|n1");
        for wrong in ["a b", "unit=", "unit=a switch=b", "ring=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_and_their_aggregates_have_their_own_lines() {
        let base = Domain {
            name: "b1".into(),
            nodes: "node[1-4]".into(),
            block_index: Some(0),
            block_size: Some(4),
            ..Domain::default()
        };
        let aggregate = Domain {
            name: "b[1-2]".into(),
            aggregate: true,
            level: 1,
            children: "b[1-2]".into(),
            nodes: "node[1-8]".into(),
            block_index: Some(8),
            block_size: Some(8),
            ..Domain::default()
        };
        let topology =
            Topology { plugin: "block".into(), domains: vec![base, aggregate], ..Topology::default() };
        assert_eq!(
            text(&topology, None),
            "BlockName=b1 BlockIndex=0 Nodes=node[1-4] BlockSize=4\n\
             AggregatedBlock=b[1-2] BlockIndex=8 Nodes=node[1-8] BlockSize=8\n"
        );
        assert_eq!(text(&topology, Some(12)), "BlockName=b1\nAggregatedBl\n");
    }
}
