//! Output of topograph's engine `graph`, in JSON: the switches above each node and its NVLink domain.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::hosts::Wanted;
use super::nvlink::Cliques;
use crate::commands::import::rails::{Cabling, Port};

/// Label of a node's NVLink domain.
const DOMAIN: &str = "accelerator.topograph.run/domain";
/// Attribute of a node's NVLink domain.
const ATTRIBUTE: &str = "nvlink";

#[derive(Deserialize)]
struct Graph {
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    id: String,
    /// Switches above the node, from the leaf upwards.
    #[serde(default)]
    network_layers: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    attributes: BTreeMap<String, serde_json::Value>,
}

/// Returns the cabling and the cliques of a graph, and a sentence for each node that is left out.
///
/// # Errors
/// An error of the JSON text.
pub(super) fn read(text: &str, wanted: &Wanted<'_>) -> Result<(Cabling, Cliques, Vec<String>), String> {
    let graph: Graph = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let (mut cabling, mut cliques, mut said) = (Cabling::default(), Cliques::default(), Vec::new());
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut links = BTreeSet::new();
    for instance in graph.instances {
        if let Some(why) = wanted.refusal(&instance.id) {
            said.push(format!("{} {why}", instance.id));
            continue;
        }
        let mut switch = |name: String| {
            let switches = &mut cabling.switches;
            *numbers.entry(name).or_insert_with_key(|name| {
                switches.push(name.clone());
                switches.len() - 1
            })
        };
        let above: Vec<usize> =
            instance.network_layers.into_iter().filter(|name| !name.is_empty()).map(&mut switch).collect();
        links.extend(above.windows(2).map(|pair| (pair[0], pair[1])));
        match above.first() {
            Some(&switch) => {
                cabling.ports.push(Port { host: instance.id.clone(), switch, label: String::new() });
            }
            None => said.push(format!("{} has no switch above it", instance.id)),
        }
        let domain = instance.labels.get(DOMAIN).map(String::as_str);
        let domain = domain.or_else(|| instance.attributes.get(ATTRIBUTE).and_then(|value| value.as_str()));
        if let Some(domain) = domain.filter(|domain| !domain.is_empty()) {
            cliques.add(&instance.id, domain);
        }
    }
    cabling.links.extend(links);
    Ok((cabling, cliques, said))
}
