//! Placements, misfits and refusals as sentences.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use crate::model::fabric::{Fabric, Layer};
use crate::sched::place::answer::{Lost, LostWhy, Misfit, MisfitKind, Placement, Unit};
use crate::sched::place::ask::{Ask, Strategy};
use crate::sched::place::dispatch::place;
use crate::sched::place::problem::sum_of_largest;
use crate::sched::place::slots::{Slots, View};
use crate::text::gather::LinkSpeed;

use super::{holders, place_or_say};

/// The beginning of each sentence about a job that does not fit although enough may be free.
pub const BY_TOPOLOGY: &str = "Topology: ";

impl Unit {
    fn name(self, count: u32) -> &'static str {
        match (self, count) {
            (Unit::Nodes, 1) => "node",
            (Unit::Nodes, _) => "nodes",
            (Unit::Tasks, 1) => "task",
            (Unit::Tasks, _) => "tasks",
        }
    }
}

impl Misfit {
    /// Returns what is missing where, without a full stop: `Topology: needs 4 nodes in one spine; spine-0 has
    /// 3 free, spine-1 3, spine-2 3 (largest 3)`.
    #[must_use]
    pub fn sentence(&self, fabric: &Fabric) -> String {
        let unit = self.unit.name(self.wanted);
        let mut text = format!("{BY_TOPOLOGY}needs {} {unit}", self.wanted);
        match self.layer {
            Some(Layer::NODE) => text.push_str(" on one node"),
            Some(layer) => text += &format!(" in one {}", fabric.layer_name(layer)),
            None if matches!(self.kind, MisfitKind::Span { .. }) => {}
            None if fabric.roots().len() > 1 => text.push_str(" in one fabric"),
            None => {}
        }
        match self.kind {
            MisfitKind::Shape => text.push_str(" in the shape asked for"),
            MisfitKind::Span { layer, most: 1 } => text += &format!(" in one {}", fabric.layer_name(layer)),
            MisfitKind::Span { layer, most } => {
                text += &format!(" in at most {most} of layer {}", fabric.layer_name(layer));
            }
            MisfitKind::Apart { longest } => {
                text += &format!(" side by side; the longest stretch without a gap has {longest}");
            }
            MisfitKind::Required => text.push_str("; a required node is not free"),
            MisfitKind::Link => text.push_str(" where links are that fast"),
            MisfitKind::TooFew => {}
        }
        for (index, &(id, takes)) in self.nearest.iter().enumerate() {
            let name = fabric.domain(id).name();
            let _ = match index {
                0 => write!(text, "; {name} has {takes} free"),
                _ => write!(text, ", {name} {takes}"),
            };
        }
        if let Some((_, most)) = self.nearest.first() {
            let _ = write!(text, " (largest {most})");
        }
        if !self.exact {
            text.push_str("; the search was cut at its budget");
        }
        text
    }
}

impl Placement {
    /// Returns where the job is and what it leaves free: `4 nodes in spine-1: spine 1, block 2; 0 slots left
    /// in spine-1`, followed by a sentence for each domain that lost.
    #[must_use]
    pub fn sentence(&self, fabric: &Fabric, lost: &[Lost]) -> String {
        let count = u32::try_from(self.shares.len()).unwrap_or(u32::MAX);
        let mut text = format!("{count} {}", Unit::Nodes.name(count));
        if let Some(common) = self.common {
            let _ = write!(text, " in {}", fabric.domain(common).name());
        }
        let spans: Vec<String> = (fabric.layer_names().iter().zip(&self.spans).skip(1).rev())
            .map(|(layer, span)| format!("{layer} {span}"))
            .collect();
        if !spans.is_empty() {
            let _ = write!(text, ": {}", spans.join(", "));
        }
        if let Some(common) = self.common {
            let slots = if self.waste == 1 { "slot" } else { "slots" };
            let _ = write!(text, "; {} {slots} left in {}", self.waste, fabric.domain(common).name());
        }
        if let Some(score) = self.score {
            let _ = write!(text, "; score {}", millionths(score));
        }
        for lost in lost {
            let _ = write!(text, "; {}", lost.sentence(fabric));
        }
        if !self.exact {
            text.push_str("; the search was cut at its budget");
        }
        text
    }
}

/// A number of millionths as a decimal number: `-0.25`.
fn millionths(value: i64) -> String {
    let (sign, size) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let text = format!("{sign}{}.{:06}", size / 1_000_000, size % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Lost {
    /// Returns why the domain lost: `spine-0 would touch 3 of layer leaf, not 2`.
    #[must_use]
    pub fn sentence(&self, fabric: &Fabric) -> String {
        let name = fabric.domain(self.domain).name();
        match self.why {
            LostWhy::Weight => format!("{name} would use more of the heavier nodes"),
            LostWhy::Span { layer, had, best } => {
                let layer = fabric.layer_name(layer);
                format!("{name} would touch {had} of layer {layer}, not {best}")
            }
            LostWhy::NotPreferred => format!("{name} is not the domain asked for"),
            LostWhy::Higher => format!("{name} is of a higher layer"),
            LostWhy::Uneven => format!("{name} would be less even"),
            LostWhy::Waste { layer, had, best } => {
                let layer = fabric.layer_name(layer);
                format!("{name} has {had} free slots at layer {layer}, not {best}")
            }
            LostWhy::Node { had, best } => {
                format!("the best node of {name} has {had} free slots, not {best}")
            }
            LostWhy::Latency => format!("{name} has links of higher latency"),
            LostWhy::Score { had, best } => format!("{name} scores {had}, not {best} (millionths)"),
            LostWhy::Later => format!("{name} is equally good but listed later"),
        }
    }
}

/// The reason why a job can never be placed, and similar asks that can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Never {
    /// The limit that the job exceeds, in words.
    pub text: String,
    /// Asks that would work, the nearest first.
    pub nearest: Vec<Nearest>,
    /// True if the job could be placed without its multiples.
    pub multiples: bool,
}

/// A similar ask that works, in place of one that never can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// At most this number of nodes or tasks, whichever the job counts.
    AtMost(u32),
    /// A different number of nodes.
    Nodes(u32),
    /// A `must` at another layer, by the layer's name.
    Must(String),
    /// Links of at least this speed, slower than asked for.
    Speed(LinkSpeed),
    /// Links of any speed.
    AnySpeed,
    /// `--topology=none`: the job ignores the fabric.
    Flat,
}

impl Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nearest::AtMost(size) => write!(f, "ask ≤ {size}"),
            Nearest::Nodes(size) => write!(f, "ask -N {size}"),
            Nearest::Must(layer) => write!(f, "must:{layer}"),
            Nearest::Speed(speed) => write!(f, "--network=bw={speed}"),
            Nearest::AnySpeed => f.write_str("leave out --network=bw"),
            Nearest::Flat => f.write_str("--topology=none"),
        }
    }
}

impl Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (index, nearest) in self.nearest.iter().enumerate() {
            write!(f, "{} {nearest}", if index == 0 { ";" } else { ", or" })?;
        }
        Ok(())
    }
}

/// The reason why a job can never be placed on an idle cluster with every node up, with the nearest asks that
/// can: `must:block with 20 nodes: the largest block has 18 nodes; ask ≤ 18, or must:block2`. `None` if the
/// job can be placed, or if the search was cut.
///
/// `view` has the slots that the admitted nodes offer when nothing runs.
#[must_use]
pub fn refusal(view: &View<'_>, ask: &Ask) -> Option<Never> {
    let fabric = view.fabric;
    let misfit = place_or_say(view, ask).err().filter(|misfit| misfit.exact)?;
    if let Some(never) = too_few_for_counts(view, ask) {
        return Some(never);
    }
    let unit = misfit.unit.name(misfit.wanted);
    let asked = format!("{} {unit}", misfit.wanted);
    let multiple = forbidding(view, ask);
    let text = match (ask.must, misfit.nearest.first()) {
        _ if let Some((layer, by)) = multiple => {
            let name = fabric.layer_name(layer);
            match largest_multiple(view, misfit.unit, layer) {
                most if most < by => {
                    format!("{name}*{by} with {asked}: the largest {name} has {most} {unit}")
                }
                _ => format!("{name}*{by} with {asked}: no part of the fabric holds them so divided"),
            }
        }
        (Some(layer), Some(&(_, most))) if layer > Layer::NODE && misfit.kind == MisfitKind::TooFew => {
            let name = fabric.layer_name(layer);
            format!("must:{name} with {asked}: the largest {name} has {most} {unit}")
        }
        (Some(Layer::NODE), _) => format!("must:node with {asked}: no node holds that"),
        _ if let MisfitKind::Span { layer, most } = misfit.kind => match (fabric.layer_name(layer), most) {
            (name, 1) => format!("{asked}: no {name} holds them"),
            (name, _) => format!("{asked}: no {most} of layer {name} hold them"),
        },
        _ if misfit.kind == MisfitKind::Link => {
            format!("{asked}: no domain whose links are that fast holds them")
        }
        (_, Some(&(id, most))) if misfit.kind == MisfitKind::TooFew => {
            let name = fabric.domain(id).name();
            format!("{asked}: the largest part of the fabric, {name}, holds {most}")
        }
        (_, None) if misfit.kind == MisfitKind::TooFew => match misfit.unit {
            Unit::Nodes => format!("{asked}: there are {}", view.slots.nodes()),
            Unit::Tasks => format!("{asked}: there are {}", view.slots.total()),
        },
        _ if !ask.required.is_empty()
            && place(view, &Ask { required: Vec::new(), ..ask.clone() }).is_ok() =>
        {
            let part = misfit.layer.map_or("part of the fabric", |layer| fabric.layer_name(layer));
            format!("{asked}: no {part} holds them with all nodes of -w")
        }
        _ => format!("{asked}: no part of the fabric has the shape asked for, even when idle"),
    };
    let nearest =
        [fewer(view, ask, misfit.wanted), wider(view, ask), slower(view, ask), without_fabric(view, ask)];
    Some(Never { text, nearest: nearest.into_iter().flatten().collect(), multiples: multiple.is_some() })
}

/// The multiple without which the job could be placed; if no single one, the first of several.
fn forbidding(view: &View<'_>, ask: &Ask) -> Option<(Layer, u32)> {
    let fits = |multiples: Vec<(Layer, u32)>| place(view, &Ask { multiples, ..ask.clone() }).is_ok();
    let first = ask.multiples.first().filter(|_| fits(Vec::new()))?;
    let without =
        |one: &&(Layer, u32)| fits(ask.multiples.iter().filter(|other| other != one).copied().collect());
    Some(*ask.multiples.iter().find(without).unwrap_or(first))
}

/// The nodes or tasks that the largest domain of a layer holds.
fn largest_multiple(view: &View<'_>, unit: Unit, layer: Layer) -> u32 {
    let slots = view.slots;
    let most = match (layer, unit) {
        (Layer::NODE, Unit::Nodes) => slots.nodes().min(1) as u64,
        (Layer::NODE, Unit::Tasks) => slots.iter().map(|(_, slots)| slots.into()).max().unwrap_or(0),
        (_, unit) => {
            let of = |id| if unit == Unit::Nodes { slots.nodes_of(id).into() } else { slots.of(id) };
            view.fabric.domains_covering(layer).into_iter().map(of).max().unwrap_or(0)
        }
    };
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The slots of the `nodes` largest nodes, if these hold fewer than `wanted`. `None` if they hold enough, if
/// there are no more than `nodes` nodes, or if slots are whole nodes.
#[must_use]
pub fn hold_fewer(idle: &Slots, nodes: u32, wanted: u64) -> Option<u64> {
    // Whole nodes have one slot each.
    if idle.are_whole() || idle.nodes() <= nodes as usize {
        return None;
    }
    let slots: Vec<u32> = idle.iter().map(|(_, slots)| slots).collect();
    let hold = sum_of_largest(slots, nodes as usize);
    (hold < wanted).then_some(hold)
}

/// The refusal where only the counts do not fit the number of nodes, with the next larger number that fits.
fn too_few_for_counts(view: &View<'_>, ask: &Ask) -> Option<Never> {
    let (_, nodes) = ask.nodes.filter(|_| !ask.counts.is_empty())?;
    place(view, &Ask { counts: Vec::new(), ..ask.clone() }).ok()?;
    let sum = ask.counts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let mut larger = (nodes.saturating_add(1)..=sum).take(PROBES as usize);
    let fits = |size: &u32| {
        let tasks = ask.tasks.map(|tasks| tasks.max(*size));
        place(view, &Ask { nodes: Some((*size, *size)), tasks, ..ask.clone() }).is_ok()
    };
    let unit = Unit::Nodes.name(nodes);
    let nearest = larger.find(fits).map(Nearest::Nodes).into_iter().collect();
    let text = format!("--constraint: {nodes} {unit} cannot meet every count");
    Some(Never { text, nearest, multiples: false })
}

/// Number of sizes that are tried one by one.
const PROBES: u32 = 64;

/// The largest smaller size that fits.
fn fewer(view: &View<'_>, ask: &Ask, wanted: u32) -> Option<Nearest> {
    let holders = holders(view.fabric, ask.must).into_iter().map(|id| view.slots.of(id));
    let holds = u32::try_from(holders.max().unwrap_or(view.slots.total())).unwrap_or(u32::MAX);
    let limit = holds.min(wanted.saturating_sub(1));
    (limit.saturating_sub(PROBES)..=limit).rev().filter(|&size| size > 0).find_map(|size| {
        let mut smaller = ask.clone();
        if ask.tasks.is_some() {
            smaller.tasks = Some(size);
        } else {
            smaller.nodes = Some((size, size));
        }
        place(view, &smaller).ok().map(|_| Nearest::AtMost(size))
    })
}

/// The fastest links that would do, where faster ones were asked for.
fn slower(view: &View<'_>, ask: &Ask) -> Option<Nearest> {
    let need = ask.min_speed?;
    let speeds = view.fabric.domains().filter_map(|(_, domain)| domain.link().speed);
    let slower: BTreeSet<u64> = speeds.filter(|speed| *speed < need).collect();
    let found = slower.into_iter().rev().find_map(|speed| {
        let slower = Ask { min_speed: Some(speed), ..ask.clone() };
        place(view, &slower).ok().map(|_| Nearest::Speed(LinkSpeed(speed)))
    });
    let without = || place(view, &Ask { min_speed: None, ..ask.clone() });
    found.or_else(|| without().ok().map(|_| Nearest::AnySpeed))
}

/// `--topology=none`, if that would work and the job asks nothing of the fabric.
fn without_fabric(view: &View<'_>, ask: &Ask) -> Option<Nearest> {
    let plain = ask.must.is_none()
        && ask.multiples.is_empty()
        && ask.max_spans.is_empty()
        && ask.segment.is_none()
        && ask.adjacent.is_none()
        && ask.min_speed.is_none()
        && !ask.contiguous
        && !ask.whole_leaves;
    let flat = || place(view, &Ask { strategy: Strategy::Flat, ..ask.clone() });
    (plain && ask.strategy != Strategy::Flat && flat().is_ok()).then_some(Nearest::Flat)
}

/// The lowest layer above the `must` at which the job could be placed.
fn wider(view: &View<'_>, ask: &Ask) -> Option<Nearest> {
    let must = ask.must?;
    ((must.0 + 1)..u8::try_from(view.fabric.layer_names().len()).ok()?).map(Layer).find_map(|layer| {
        let wider = Ask { must: Some(layer), ..ask.clone() };
        place(view, &wider).ok().map(|_| Nearest::Must(view.fabric.layer_name(layer).to_owned()))
    })
}
