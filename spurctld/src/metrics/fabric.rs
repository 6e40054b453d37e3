//! Metrics of the topologies' layers and domains: nodes by state, utilisation, allocation of GPUs,
//! fragmentation.
//!
//! The nodes of a domain are consecutive positions, so every domain costs the difference of two prefix sums.

use std::fmt::Result;
use std::ops::{AddAssign, Sub};
use std::sync::Arc;

use spur_core::model::fabric::{Domain, DomainId, Fabric, Layer, Pos};
use spur_core::model::topology::Plugin;

use super::Sources;
use super::nodes::{Amount, Share, Shares, Standing};
use super::page::Page;

/// Largest number of domains of a layer that `/metrics` shows.
pub(super) const FEW: usize = 64;

/// The domains that a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Domains of layers with at most [`FEW`] domains.
    Few,
    /// All domains.
    All,
    /// Layers only, because the state of nodes is private.
    Layers,
}

/// Sums over consecutive nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    nodes: u64,
    free: u64,
    allocated: u64,
    down: u64,
    gpus: Amount,
}

impl AddAssign<&Share> for Sums {
    fn add_assign(&mut self, share: &Share) {
        self.nodes += 1;
        match share.standing {
            Standing::Free => self.free += 1,
            Standing::Allocated => self.allocated += 1,
            Standing::Down => self.down += 1,
        }
        self.gpus += share.gpus;
    }
}

impl Sub for Sums {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            nodes: self.nodes - other.nodes,
            free: self.free - other.free,
            allocated: self.allocated - other.allocated,
            down: self.down - other.down,
            gpus: Amount {
                total: self.gpus.total - other.gpus.total,
                used: self.gpus.used - other.gpus.used,
            },
        }
    }
}

impl Sums {
    fn is_wholly_free(&self) -> bool {
        self.nodes > 0 && self.free == self.nodes
    }
}

/// One topology with the sums of each of its domains.
struct Wired {
    name: Arc<str>,
    fabric: Arc<Fabric>,
    /// The sums, by the domain's number.
    sums: Vec<Sums>,
}

/// One domain of a page.
struct Shown<'a> {
    topology: &'a str,
    layer: &'a str,
    domain: &'a Domain,
    sums: Sums,
    fragmentation: f64,
}

impl Wired {
    fn new(name: Arc<str>, fabric: Arc<Fabric>, nodes: &Shares) -> Self {
        let mut prefix = Vec::with_capacity(fabric.len() + 1);
        let mut sum = Sums::default();
        prefix.push(sum);
        for index in 0..fabric.len() {
            // A node that is no longer configured has no share.
            if let Some(share) = nodes.get(fabric.node(Pos::at(index))) {
                sum += share;
            }
            prefix.push(sum);
        }
        let sums = fabric.domains().map(|(_, domain)| {
            let range = domain.range();
            prefix[range.end] - prefix[range.start]
        });
        Self { name, sums: sums.collect(), fabric }
    }

    fn layers(&self) -> impl Iterator<Item = (Layer, &str)> {
        let names = self.fabric.layer_names().iter().enumerate().skip(1);
        names.filter_map(|(index, name)| Some((Layer(u8::try_from(index).ok()?), name.as_str())))
    }

    /// Returns the domains of a layer that `scontrol show topology` lists; an aggregate of one block is left
    /// out.
    fn listed(&self, layer: Layer) -> impl Iterator<Item = DomainId> + Clone {
        let is_listed = move |id: &DomainId| {
            layer == Layer::LEAF
                || self.fabric.plugin() == Plugin::Tree
                || self.fabric.domain(*id).children().len() > 1
        };
        self.fabric.domains_of(layer).filter(is_listed)
    }

    fn of(&self, id: DomainId) -> Sums {
        self.sums[id.index()]
    }

    /// Returns the number of free nodes in some domains, and the number of these in wholly free domains.
    fn free(&self, domains: impl Iterator<Item = DomainId>) -> (u64, u64) {
        domains.map(|id| self.of(id)).fold((0, 0), |(free, usable), sums| {
            (free + sums.free, usable + if sums.is_wholly_free() { sums.free } else { 0 })
        })
    }

    /// Returns the share of a domain's free nodes that no request for whole domains of the layer below can
    /// use. In a domain of the lowest layer: that no request for the whole domain can use.
    fn fragmentation(&self, id: DomainId) -> f64 {
        let children = self.fabric.domain(id).children();
        if children.is_empty() {
            unusable(self.free([id].into_iter()))
        } else {
            unusable(self.free(children.iter().copied()))
        }
    }

    fn shown(&self, extent: Extent) -> impl Iterator<Item = Shown<'_>> {
        let layers = self.layers().filter(move |(layer, _)| match extent {
            Extent::All => true,
            Extent::Few => self.listed(*layer).count() <= FEW,
            Extent::Layers => false,
        });
        layers.flat_map(move |(layer, name)| {
            self.listed(layer).map(move |id| Shown {
                topology: &self.name,
                layer: name,
                domain: self.fabric.domain(id),
                sums: self.of(id),
                fragmentation: self.fragmentation(id),
            })
        })
    }
}

/// Returns the share of free nodes that is not usable; 0 if none is free.
fn unusable((free, usable): (u64, u64)) -> f64 {
    share(free - usable, free).unwrap_or(0.0)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl<'a> Shown<'a> {
    fn by_state(&self) -> [([(&'static str, &'a str); 4], u64); 3] {
        let [topology, layer, domain] = self.labels();
        let Sums { free, allocated, down, .. } = self.sums;
        [("allocated", allocated), ("down", down), ("free", free)]
            .map(|(state, nodes)| ([topology, layer, domain, ("state", state)], nodes))
    }

    fn labels(&self) -> [(&'static str, &'a str); 3] {
        [("topology", self.topology), ("layer", self.layer), ("domain", self.domain.name())]
    }
}

/// Writes layers, and the domains of `extent`.
pub(super) fn write(page: &mut Page<'_>, sources: &Sources, nodes: &Shares, extent: Extent) -> Result {
    let topologies = sources.replica.read().topologies().to_vec();
    let wired: Vec<Wired> =
        topologies.into_iter().map(|topology| Wired::new(topology.name, topology.fabric, nodes)).collect();
    if extent != Extent::All {
        layers(page, &wired)?;
    }
    let shown: Vec<Shown<'_>> = wired.iter().flat_map(|wired| wired.shown(extent)).collect();
    domains(page, &shown)
}

fn layers(page: &mut Page<'_>, wired: &[Wired]) -> Result {
    let mut all = Vec::new();
    for topology in wired {
        for (layer, name) in topology.layers() {
            let ids = topology.listed(layer);
            let whole = ids.clone().filter(|id| topology.of(*id).is_wholly_free());
            let largest = whole.clone().map(|id| topology.of(id).nodes).max().unwrap_or(0);
            let labels = [("topology", &*topology.name), ("layer", name)];
            all.push((
                labels,
                ids.clone().count() as u64,
                whole.count() as u64,
                largest,
                unusable(topology.free(ids)),
            ));
        }
    }
    page.gauges(
        "spur_layer_domains",
        "Domains of a layer",
        all.iter().map(|(labels, domains, ..)| (*labels, *domains)),
    )?;
    page.gauges(
        "spur_layer_free_domains",
        "Domains of a layer of which every node is free",
        all.iter().map(|(labels, _, whole, ..)| (*labels, *whole)),
    )?;
    page.gauges(
        "spur_layer_largest_free_nodes",
        "Nodes of the largest wholly free domain of a layer",
        all.iter().map(|(labels, _, _, largest, _)| (*labels, *largest)),
    )?;
    page.gauges(
        "spur_layer_fragmentation_ratio",
        "Share of the free nodes that no request for whole domains of the layer can use",
        all.iter().map(|(labels, .., fragmentation)| (*labels, *fragmentation)),
    )
}

fn domains(page: &mut Page<'_>, shown: &[Shown<'_>]) -> Result {
    page.gauges("spur_domain_nodes", "Nodes of a domain by state", shown.iter().flat_map(Shown::by_state))?;
    page.gauges(
        "topology_domain_utilization_ratio",
        "Share of a domain's nodes that run something",
        shown.iter().filter_map(|of| Some((of.labels(), share(of.sums.allocated, of.sums.nodes)?))),
    )?;
    page.gauges(
        "topology_gpu_allocation_ratio",
        "Share of a domain's GPUs that jobs have",
        shown.iter().filter_map(|of| Some((of.labels(), share(of.sums.gpus.used, of.sums.gpus.total)?))),
    )?;
    page.gauges(
        "topology_scheduler_domain_fragmentation_ratio",
        "Share of a domain's free nodes that no request for whole domains of the next lower layer can use",
        shown.iter().map(|of| (of.labels(), of.fragmentation)),
    )
}
