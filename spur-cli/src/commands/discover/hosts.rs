//! Hosts of a fabric: derives the ports of hosts from the descriptions of adapters.
//!
//! A description is mostly `HOST mlx5_0` or `HOST HCA-1`. Some vendors put the host last, and some adapters
//! have only the name of their model. With a node table, a host is a word that names a node. Without one,
//! names that cannot belong to a single host are left out.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::text::hostlist::{HostList, compare_names};

use super::ibnet::{Device, Fabric, Kind};
use crate::commands::import::rails::{Cabling, Port};

/// Prefixes of device names.
const DEVICES: [&str; 14] = [
    "mlx", "hca-", "hfi", "qib", "mthca", "ipath", "bnxt", "irdma", "ocrdma", "cxgb", "roce", "rdmap", "ibp",
    "ibs",
];
/// Text in the description of a switch's internal engine, which has a port like an adapter.
const ENGINE: &str = "Aggregation Node";

/// Selection of the nodes among which hosts are found.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    /// Names in `[[nodes]]`; `None` without a node table.
    pub(super) nodes: Option<&'a BTreeSet<String>>,
    /// Hosts that are left out.
    pub(super) exclude: BTreeSet<String>,
}

impl Wanted<'_> {
    /// Returns the node that a word names, with or without a domain after the first dot. `None` for any other
    /// word, or without a node table.
    fn node(&self, word: &str) -> Option<String> {
        let nodes = self.nodes?;
        let short = word.split('.').next().unwrap_or(word);
        [word, short].into_iter().find(|name| nodes.contains(*name)).map(str::to_owned)
    }

    /// Returns the reason for which a host is left out; `None` if it is not.
    pub(super) fn refusal(&self, host: &str) -> Option<&'static str> {
        if self.exclude.contains(host) {
            return Some("is left out by --exclude");
        }
        match self.nodes {
            Some(nodes) => (!nodes.contains(host)).then_some("is not in [[nodes]]"),
            None => (host.split('.').next() == Some("localhost"))
                .then_some("is the name of any host, and of no certain one"),
        }
    }
}

/// An adapter whose description names its host.
struct Named {
    host: String,
    device: String,
}

/// Returns the ports of hosts and the links between switches, and a sentence for everything that is left out.
/// `guids` names the hosts of adapters that have no host name, as far as nodes report them.
pub(super) fn cabling(
    fabric: &Fabric,
    wanted: &Wanted<'_>,
    guids: &BTreeMap<u64, String>,
) -> (Cabling, Vec<String>) {
    let names = fabric.switch_names();
    let mut numbers = vec![None; names.len()];
    let mut cabling = Cabling::default();
    for (index, name) in names.into_iter().enumerate() {
        if let Some(name) = name {
            numbers[index] = Some(cabling.switches.len());
            cabling.switches.push(name);
        }
    }
    let owners = owners(fabric, wanted, guids);
    let mut left = LeftOut::default();
    for [from, to] in &fabric.links {
        let (from, to) = if numbers[from.device].is_some() { (from, to) } else { (to, from) };
        let device = &fabric.devices[to.device];
        match (numbers[from.device], numbers[to.device]) {
            (Some(a), Some(b)) => cabling.links.push((a, b)),
            (Some(switch), None) => {
                let place = format!("{} port {}", cabling.switches[switch], from.port);
                match &owners[to.device] {
                    Owner::Host(Named { host, device }) => {
                        let device = if device.is_empty() { String::new() } else { format!(" ({device})") };
                        match wanted.refusal(host) {
                            Some(why) => left.host(host, why, format!("{place}{device}")),
                            None => {
                                let label = format!("port {}{device}", from.port);
                                cabling.ports.push(Port { host: host.clone(), switch, label });
                            }
                        }
                    }
                    Owner::Several(Named { host, device }) => {
                        let why = "is the name of several hosts: their adapters have the same names";
                        left.host(host, why, format!("{place} ({device})"));
                    }
                    Owner::Nobody => left.nameless.push(format!(
                        "adapter 0x{:016x} has no host name ({}): {place}",
                        device.guid, device.description
                    )),
                    Owner::Engine => left.engines.push(cabling.switches[switch].clone()),
                    Owner::Router => left.routers.push(place),
                }
            }
            (None, _) => {
                let shown = |device: &Device| format!("0x{:016x} ({})", device.guid, device.description);
                let ends = [from.device, to.device].map(|end| shown(&fabric.devices[end]));
                left.nameless.push(format!("the link between {} passes no switch", ends.join(" and ")));
            }
        }
    }
    let mut said = fabric.problems.clone();
    said.extend(left.sentences());
    (cabling, said)
}

/// Owner of a device.
enum Owner {
    Host(Named),
    /// A name that several hosts have.
    Several(Named),
    Nobody,
    Engine,
    Router,
}

/// Returns the owner of each device; switches have none.
fn owners(fabric: &Fabric, wanted: &Wanted<'_>, guids: &BTreeMap<u64, String>) -> Vec<Owner> {
    let boxes: BTreeSet<u64> = fabric
        .devices
        .iter()
        .filter(|device| device.kind == Kind::Switch)
        .filter_map(|device| device.system)
        .collect();
    let is_engine = |device: &Device| {
        device.description.contains(ENGINE) || device.system.is_some_and(|system| boxes.contains(&system))
    };
    let mut owners: Vec<Owner> = fabric
        .devices
        .iter()
        .map(|device| match device.kind {
            Kind::Switch => Owner::Nobody,
            Kind::Router => Owner::Router,
            Kind::Adapter if is_engine(device) => Owner::Engine,
            Kind::Adapter => named(&device.description, wanted)
                .or_else(|| Some(Named { host: guids.get(&device.guid)?.clone(), device: String::new() }))
                .map_or(Owner::Nobody, Owner::Host),
        })
        .collect();
    adopt(fabric, &mut owners);
    if wanted.nodes.is_none() {
        tell_apart(&mut owners);
    }
    owners
}

/// Assigns an adapter without a name to the host that another adapter of the same system names.
fn adopt(fabric: &Fabric, owners: &mut [Owner]) {
    let mut boxes: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (device, owner) in fabric.devices.iter().zip(owners.iter()) {
        if let (Some(system), Owner::Host(named)) = (device.system, owner) {
            boxes.entry(system).or_default().insert(named.host.clone());
        }
    }
    for (device, owner) in fabric.devices.iter().zip(owners) {
        let hosts = device.system.and_then(|system| boxes.get(&system));
        if let (Owner::Nobody, Kind::Adapter, Some(hosts)) = (&owner, device.kind, hosts)
            && let (1, Some(host)) = (hosts.len(), hosts.first())
        {
            *owner = Owner::Host(Named { host: host.clone(), device: String::new() });
        }
    }
}

/// Marks names under which the same device exists twice: several hosts have them.
fn tell_apart(owners: &mut [Owner]) {
    let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
    for owner in owners.iter() {
        if let Owner::Host(Named { host, device }) = owner
            && !device.is_empty()
            && !seen.insert((host.clone(), device.clone()))
        {
            several.insert(host.clone());
        }
    }
    for owner in owners {
        if let Owner::Host(named) = owner
            && several.contains(&named.host)
        {
            let named =
                Named { host: std::mem::take(&mut named.host), device: std::mem::take(&mut named.device) };
            *owner = Owner::Several(named);
        }
    }
}

/// Returns the host and the device that a description names; `None` if the host cannot be recognised.
fn named(description: &str, wanted: &Wanted<'_>) -> Option<Named> {
    let words: Vec<&str> = description.split(' ').filter(|word| !word.is_empty()).collect();
    if let Some((at, host)) = words.iter().enumerate().find_map(|(at, word)| Some((at, wanted.node(word)?))) {
        let others = words.iter().enumerate().filter(|(other, _)| *other != at);
        return Some(Named { host, device: others.map(|(_, word)| *word).collect::<Vec<_>>().join(" ") });
    }
    let named = |host: &str, device: &str| Some(Named { host: host.to_owned(), device: device.to_owned() });
    match words[..] {
        [host] if !is_device(host) => named(host, ""),
        [host, device] if is_device(device) => named(host, device),
        [device, host] if is_device(device) => named(host, device),
        _ => None,
    }
}

fn is_device(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    DEVICES.iter().any(|start| word.starts_with(start)) && word.contains(|c: char| c.is_ascii_digit())
}

/// Everything that is left out, by cause.
#[derive(Default)]
struct LeftOut {
    hosts: BTreeMap<(&'static str, String), Vec<String>>,
    nameless: Vec<String>,
    engines: Vec<String>,
    routers: Vec<String>,
}

impl LeftOut {
    fn host(&mut self, host: &str, why: &'static str, place: String) {
        self.hosts.entry((why, host.to_owned())).or_default().push(place);
    }

    fn sentences(self) -> Vec<String> {
        let mut hosts: Vec<_> = self.hosts.into_iter().collect();
        hosts.sort_by(|((_, a), _), ((_, b), _)| compare_names(a, b));
        let hosts =
            hosts.into_iter().map(|((why, host), places)| format!("{host} {why}: {}", places.join(", ")));
        let mut said: Vec<String> = hosts.chain(self.nameless).collect();
        if !self.engines.is_empty() {
            let (count, list) = (self.engines.len(), HostList::from_names(&self.engines).sorted());
            said.push(format!("engines inside switches are no hosts, {count} in all: {list}"));
        }
        if !self.routers.is_empty() {
            said.push(format!("routers are no hosts: {}", self.routers.join(", ")));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_hosts_in_several_ways() {
        let nodes: BTreeSet<String> = ["n1", "gpu-7"].map(str::to_owned).into();
        let (with, without) = (Wanted { nodes: Some(&nodes), ..Wanted::default() }, Wanted::default());
        for (description, wanted, expected) in [
            ("n1 mlx5_0", &with, "n1|mlx5_0"),
            ("n1.example.org HCA-1", &with, "n1|HCA-1"),
            ("QLogic Infiniband HCA n1", &with, "n1|QLogic Infiniband HCA"),
            ("n2 mlx5_0", &with, "n2|mlx5_0"),
            ("n2 mlx5_0", &without, "n2|mlx5_0"),
            ("hfi1_0 n2", &without, "n2|hfi1_0"),
            ("n2", &without, "n2|"),
            ("mlx5_0", &without, ""),
            ("MT4129 ConnectX7 Mellanox Technologies", &with, ""),
            ("MT4129 ConnectX7 Mellanox Technologies", &without, ""),
            ("", &without, ""),
        ] {
            let found = named(description, wanted).map(|Named { host, device }| format!("{host}|{device}"));
            assert_eq!(found.unwrap_or_default(), expected, "{description}");
        }
    }
}
