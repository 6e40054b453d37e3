//! Turns written options into an [`Ask`]: layer names become layers, rules by size and limits are added,
//! constraints that have expired are relaxed, and requests that can never be met are refused.

use std::fmt::Display;
use std::sync::Arc;

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::model::job::FabricAsk;
use crate::model::topology::{Plugin, RuleConfig, TopologyConfig};
use crate::text::features::FeatureExpr;
use crate::text::gather::{Gather, GatherClause, Switches};
use crate::text::nearest::nearest;
use crate::text::score::Score as Expression;

use super::{Ask, LeafLoad, Mode, Score, Segment, Strategy};

/// The fabric options of a job, and the facts about the job that they depend on.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The options that the job was submitted with.
    pub asked: &'a FabricAsk,
    /// True if the job was submitted with `--exclusive=topo`.
    pub whole_leaves: bool,
    /// Seconds since the job became eligible.
    pub waited: u64,
    /// The partition's default for `--placement`.
    pub placement: Mode,
    /// Number of nodes, for the rules by size; for a job that only gives tasks, the fewest nodes that could
    /// hold them.
    pub size: u32,
    /// Number of GPUs of one slot, for the limit per leaf; 0 if the job uses none.
    pub gpus_per_slot: u32,
    /// Number of GPUs on one node, whatever its number of slots, for the limit per leaf; for a node taken
    /// whole all its GPUs.
    pub gpus_per_node: u32,
    /// Number of GPUs of each node, by position, for the limit per leaf, where nodes taken whole have unequal
    /// numbers.
    pub gpus_by_node: Option<&'a Arc<[u32]>>,
    /// The domain that `--gather-with` resolves to.
    pub gather_with: Option<DomainId>,
    /// The partition's own score, in the place of the topology's.
    pub score: Option<&'a Expression>,
}

/// An ask, with the notes for its user.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The resolved ask.
    pub ask: Ask,
    /// Options without effect, each with the reason.
    pub warnings: Vec<String>,
    /// Constraints of the job that have been relaxed, because it has waited long enough.
    pub relaxed: Vec<String>,
    /// Seconds after eligibility at which the next constraint relaxes; `None` if none will.
    pub relaxes_at: Option<u64>,
}

/// A request that can never be met, with one that would work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// A topology option where the topology has no domains.
    #[error(
        "{option} needs switches or blocks, and topology {topology} has neither: leave it out, or name another with --topology=NAME"
    )]
    NoTopology {
        /// The option as written.
        option: String,
        /// The name of the partition's topology.
        topology: String,
    },
    /// An option that has no meaning under the chosen rule.
    #[error("{option} has no meaning with --topology=none: leave out one of the two")]
    Ignored {
        /// The option as written.
        option: String,
    },
    /// A layer name that the topology does not have.
    #[error("{option}: topology {topology} has no layer {layer}{}; its layers are {}", near.as_ref().map_or_else(String::new, |near| format!(" (did you mean {near}?)")), .known.join(", "))]
    UnknownLayer {
        /// The clause as written.
        option: String,
        /// The name of the topology.
        topology: String,
        /// The unknown name.
        layer: String,
        /// The most similar name of a layer, if any.
        near: Option<String>,
        /// The names of all layers of the topology.
        known: Vec<String>,
    },
    /// A total that is no multiple of the given number.
    #[error("{0}: ask for {around} instead", around = around(.0))]
    NoMultiple(NoMultiple),
    /// `--segment` for a job without a number of nodes.
    #[error("--segment={0} needs a number of nodes: add -N")]
    SegmentWithoutNodes(u32),
    /// A segment of size 0.
    #[error("--segment=0 is no segment: give its nodes, or leave it out")]
    EmptySegment,
    /// An option that needs `--segment`.
    #[error("{0} needs --segment=N")]
    NeedsSegment(&'static str),
    /// A node name in an option that no node has.
    #[error("{0}")]
    NoNode(String),
}

/// A total that is no multiple of the number that every domain or segment has to hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {wanted} {unit}{} is no multiple of {by}", if *.wanted == 1 { "" } else { "s" })]
pub struct NoMultiple {
    /// The clause as written.
    pub option: String,
    /// The total that the job asks for.
    pub wanted: u32,
    /// The unit of the total: `task` or `node`.
    pub unit: &'static str,
    /// The number that the total should be a multiple of.
    pub by: u32,
}

/// The multiples just below and above the total, in words.
fn around(total: &NoMultiple) -> String {
    let below = total.wanted - total.wanted % total.by.max(1);
    let above = u64::from(below) + u64::from(total.by);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}

/// The rule for a job on a fabric: the rule that the job asks for, or else the one of the fabric's plugin.
/// The name of a topology in `--topology` chooses the fabric, not the rule.
///
/// # Errors
/// [`AskError::NoTopology`] for `tree` or `block` where the fabric has no domains.
pub fn strategy(fabric: &Fabric, asked: &FabricAsk) -> Result<Strategy, AskError> {
    let bare = fabric.roots().is_empty();
    match asked.topology.as_deref() {
        Some("none") => Ok(Strategy::Flat),
        Some(word @ ("tree" | "block")) if bare => {
            let option = format!("--topology={word}");
            Err(AskError::NoTopology { option, topology: fabric.name().to_owned() })
        }
        Some("tree") => Ok(Strategy::Tree),
        Some("block") => Ok(Strategy::Block),
        // Each segment keeps the block rule, so segments imply it.
        _ if asked.segment.is_some() && !bare => Ok(Strategy::Block),
        _ => Ok(match fabric.plugin() {
            Plugin::Tree => Strategy::Tree,
            Plugin::Block => Strategy::Block,
            Plugin::None => Strategy::Flat,
        }),
    }
}

/// Completes an ask in which the caller has set nodes, tasks and facts about nodes.
///
/// # Errors
/// [`AskError`] if the request can never be met, with one that would work.
pub fn resolve(
    fabric: &Fabric,
    config: &TopologyConfig,
    wish: Wish<'_>,
    mut base: Ask,
) -> Result<Resolved, AskError> {
    let strategy = strategy(fabric, wish.asked)?;
    (base.strategy, base.budget) = (strategy, config.search_budget);
    let mut resolver = Resolver {
        fabric,
        wish,
        done: Resolved { ask: base, warnings: Vec::new(), relaxed: Vec::new(), relaxes_at: None },
    };
    resolver.check_meaning()?;
    resolver.options()?;
    // The limits cap a job's share of a leaf, even with `--topology=none`.
    if !fabric.roots().is_empty() {
        resolver.limits(config);
    }
    if strategy != Strategy::Flat {
        if let Some(rule) = rule_for(config, wish) {
            resolver.rule(rule)?;
        }
        let ask = &mut resolver.done.ask;
        let expression = wish.score.or(config.score.as_ref()).cloned();
        ask.score = Score { weights: config.weights, expression, before: config.score_before };
    }
    resolver.drop_implied();
    resolver.check_multiples()?;
    resolver.tell_implied();
    Ok(resolver.done)
}

/// The domain that `--prefer` names; `None` if it names no domain or the job ignores the fabric.
fn wished_domain(fabric: &Fabric, asked: &FabricAsk) -> Option<DomainId> {
    match asked.prefer.as_deref() {
        Some(FeatureExpr::Name(name)) if strategy(fabric, asked) != Ok(Strategy::Flat) => {
            fabric.find(name).ok()
        }
        _ => None,
    }
}

/// The features that `--prefer` asks for; `None` if it names a domain.
pub fn wished_features<'a>(fabric: &Fabric, asked: &'a FabricAsk) -> Option<&'a FeatureExpr> {
    asked.prefer.as_deref().filter(|_| wished_domain(fabric, asked).is_none())
}

/// The first rule by size that fits, for a job without fabric options of its own; otherwise `None`.
fn rule_for<'c>(config: &'c TopologyConfig, wish: Wish<'_>) -> Option<&'c RuleConfig> {
    let asked = wish.asked;
    let asks_nothing = asked.topology.is_none()
        && asked.gather.is_none()
        && asked.switches.is_none()
        && asked.segment.is_none()
        && !asked.contiguous
        && asked.placement.is_none()
        && !wish.whole_leaves;
    let fits = |rule: &&RuleConfig| rule.max_nodes.is_none_or(|most| wish.size <= most);
    config.rule.iter().find(fits).filter(|_| asks_nothing)
}

struct Resolver<'a> {
    fabric: &'a Fabric,
    wish: Wish<'a>,
    done: Resolved,
}

impl Resolver<'_> {
    /// Refuses options that a job which ignores the fabric cannot use.
    fn check_meaning(&self) -> Result<(), AskError> {
        if self.done.ask.strategy != Strategy::Flat {
            return Ok(());
        }
        let asked = self.wish.asked;
        // On a topology without switches `--switches` only warns, unless the job asks for `--topology=none`
        // by name.
        let switches = asked.switches.filter(|_| asked.topology.is_some());
        let options = [
            asked.gather.as_ref().map(|gather| format!("--gather={gather}")),
            switches.map(|switches| format!("--switches={switches}")),
            asked.segment.map(|segment| format!("--segment={segment}")),
            asked.network.map(|network| format!("--network={network}")),
            asked.placement.map(|placement| format!("--placement={placement}")),
            self.wish.whole_leaves.then(|| "--exclusive=topo".to_owned()),
        ];
        let Some(option) = options.into_iter().flatten().next() else { return Ok(()) };
        Err(match asked.topology.as_deref() {
            Some("none") => AskError::Ignored { option },
            _ => AskError::NoTopology { option, topology: self.fabric.name().to_owned() },
        })
    }

    fn options(&mut self) -> Result<(), AskError> {
        let asked = self.wish.asked;
        if let Some(gather) = &asked.gather {
            self.gather(gather, "--gather=")?;
        }
        if let Some(switches) = asked.switches {
            if self.done.ask.strategy == Strategy::Flat {
                let topology = self.fabric.name();
                let told =
                    format!("--switches={switches} has no effect: topology {topology} has no switches");
                self.done.warnings.push(told);
            } else {
                self.switches(switches);
            }
        }
        self.segment()?;
        let ask = &mut self.done.ask;
        ask.contiguous |= asked.contiguous;
        ask.whole_leaves |= self.wish.whole_leaves;
        ask.mode = asked.placement.unwrap_or(self.wish.placement);
        if let Some(need) = asked.network {
            ask.min_speed = need.bandwidth.map(|speed| speed.0);
            ask.lowest_latency = need.latency;
        }
        ask.prefer_domain = wished_domain(self.fabric, asked).or(self.wish.gather_with);
        Ok(())
    }

    fn gather(&mut self, gather: &Gather, source: &str) -> Result<(), AskError> {
        for clause in &gather.clauses {
            let found = layer_named(self.fabric, clause.layer(), format_args!("{source}{clause}"));
            let layer = match (found, clause) {
                (Err(error), GatherClause::Prefer { .. }) => {
                    self.done.warnings.push(format!("{error}; it has no effect"));
                    continue;
                }
                (layer, _) => layer?,
            };
            match *clause {
                GatherClause::Must { until, .. } => {
                    if self.holds_still(until.and_then(|limit| limit.seconds()), clause) {
                        self.must(layer, source);
                    } else {
                        self.prefer(layer);
                    }
                }
                GatherClause::Prefer { .. } => self.prefer(layer),
                GatherClause::Multiple { multiple, .. } => self.done.ask.multiples.push((layer, multiple)),
            }
        }
        Ok(())
    }

    /// True if a constraint that relaxes `until` seconds after eligibility still holds. Records the
    /// relaxation, or the time at which it will come.
    fn holds_still(&mut self, until: Option<u64>, what: &dyn Display) -> bool {
        let Some(until) = until else { return true };
        if self.wish.waited >= until {
            self.done.relaxed.push(what.to_string());
            return false;
        }
        self.done.relaxes_at = self.done.relaxes_at.into_iter().chain([until]).min();
        true
    }

    fn must(&mut self, layer: Layer, source: &str) {
        let name = |layer| self.fabric.layer_name(layer);
        if let Some(other) = self.done.ask.must.replace(layer) {
            let (low, high) = (layer.min(other), layer.max(other));
            let warning = format!("{source}must:{} has no effect: must:{} implies it", name(high), name(low));
            self.done.warnings.push(warning);
            self.done.ask.must = Some(low);
        }
    }

    fn prefer(&mut self, layer: Layer) {
        if !self.done.ask.prefer.contains(&layer) {
            self.done.ask.prefer.push(layer);
        }
    }

    fn switches(&mut self, switches: Switches) {
        let what = format!("switches={switches}");
        if self.holds_still(switches.wait.and_then(|limit| limit.seconds()), &what) {
            self.done.ask.max_spans.push((Layer::LEAF, switches.count));
        }
    }

    fn segment(&mut self) -> Result<(), AskError> {
        let asked = self.wish.asked;
        let (spread, consolidate) = (asked.spread_segments, asked.consolidate_segments);
        let Some(size) = asked.segment else {
            return match (spread, consolidate) {
                (true, _) => Err(AskError::NeedsSegment("--spread-segments")),
                (_, true) => Err(AskError::NeedsSegment("--consolidate-segments")),
                _ => Ok(()),
            };
        };
        let Some(nodes) = self.done.ask.nodes else { return Err(AskError::SegmentWithoutNodes(size)) };
        if size == 0 {
            return Err(AskError::EmptySegment);
        }
        let (least, most) = nodes;
        if size > most {
            let warning = format!("--segment={size} has no effect: the job has at most {most} nodes");
            self.done.warnings.push(warning);
            return Ok(());
        }
        // The segment size must divide some number of nodes in the range.
        if !any_multiple(nodes, size) {
            let (option, wanted) = (format!("--segment={size}"), least);
            return Err(AskError::NoMultiple(NoMultiple { option, wanted, unit: "node", by: size }));
        }
        self.done.ask.segment = Some(Segment { size, spread, consolidate });
        Ok(())
    }

    fn limits(&mut self, config: &TopologyConfig) {
        let ask = &mut self.done.ask;
        let limits = config.limits;
        let gpus_of = |each: u32| limits.max_gpus_per_leaf.and_then(|gpus| gpus.checked_div(each));
        let nodes = [ask.max_nodes_per_leaf, limits.max_nodes_per_leaf, gpus_of(self.wish.gpus_per_node)];
        let slots = [ask.max_slots_per_leaf, gpus_of(self.wish.gpus_per_slot)];
        ask.max_nodes_per_leaf = nodes.into_iter().flatten().min();
        ask.max_slots_per_leaf = slots.into_iter().flatten().min();
        ask.leaf_load = (limits.max_gpus_per_leaf.zip(self.wish.gpus_by_node))
            .map(|(most, of)| LeafLoad { of: Arc::clone(of), most });
    }

    fn rule(&mut self, rule: &RuleConfig) -> Result<(), AskError> {
        if let Some(gather) = &rule.gather {
            self.gather(gather, "[[topology.rule]] gather = ")?;
        }
        if let Some(switches) = rule.switches {
            self.switches(switches);
        }
        let ask = &mut self.done.ask;
        ask.mode = rule.placement.unwrap_or(ask.mode);
        ask.whole_leaves |= rule.whole;
        ask.adjacent = rule.adjacent;
        Ok(())
    }

    /// Drops constraints that `must` implies, with a warning.
    fn drop_implied(&mut self) {
        let Resolved { ask, warnings, .. } = &mut self.done;
        let Some(must) = ask.must else { return };
        let name = |layer| self.fabric.layer_name(layer);
        let implied = |what: String| format!("{what} has no effect: must:{} implies it", name(must));
        let prefer = ask.prefer.extract_if(.., |layer| *layer >= must);
        warnings.extend(prefer.map(|layer| implied(format!("prefer:{}", name(layer)))));
        let spans = ask.max_spans.extract_if(.., |(layer, _)| *layer >= must);
        warnings.extend(spans.map(|(_, most)| implied(format!("--switches={most}"))));
    }

    /// Warns of multiples that other constraints imply, and of layers that `--switches=1` implies. These stay
    /// in the ask, because a domain's slots are rounded to every multiple that the job gives.
    fn tell_implied(&mut self) {
        let (fabric, ask) = (self.fabric, &self.done.ask);
        let name = |layer| fabric.layer_name(layer);
        // A constraint that relaxes later implies nothing for good.
        let lasts = self.done.relaxes_at.is_none();
        let mut warnings = Vec::new();
        for (index, &(layer, by)) in ask.multiples.iter().enumerate() {
            let implies = |&(at, &(lower, of)): &(usize, &(Layer, u32))| {
                let same = (lower, of) == (layer, by);
                lower <= layer && of % by.max(1) == 0 && if same { at < index } else { at != index }
            };
            let other = ask.multiples.iter().enumerate().find(implies);
            let implied = match (other, ask.must.filter(|must| lasts && *must <= layer)) {
                (Some((_, &(lower, of))), _) => format!("{}*{of}", name(lower)),
                (None, Some(must)) => format!("must:{}", name(must)),
                (None, None) => continue,
            };
            warnings.push(format!("{}*{by} has no effect: {implied} implies it", name(layer)));
        }
        if lasts && ask.max_spans.contains(&(Layer::LEAF, 1)) {
            let musts = ask.must.iter().map(|layer| ("must", *layer));
            let soft = musts.chain(ask.prefer.iter().map(|layer| ("prefer", *layer)));
            for (how, layer) in soft.filter(|(_, layer)| *layer >= Layer::LEAF) {
                warnings.push(format!("{how}:{} has no effect: --switches=1 implies it", name(layer)));
            }
        }
        self.done.warnings.extend(warnings);
    }

    /// Checks that the total is a multiple of the number that each used domain has to hold.
    fn check_multiples(&self) -> Result<(), AskError> {
        let ask = &self.done.ask;
        for &(layer, by) in &ask.multiples {
            let (wanted, unit) = match (ask.tasks, ask.nodes) {
                (Some(tasks), _) if tasks % by != 0 => (tasks, "task"),
                (None, Some(nodes)) if !any_multiple(nodes, by) => (nodes.0, "node"),
                _ => continue,
            };
            let option = format!("--gather={}*{by}", self.fabric.layer_name(layer));
            return Err(AskError::NoMultiple(NoMultiple { option, wanted, unit, by }));
        }
        Ok(())
    }
}

/// The layer with the name that an option gives.
///
/// # Errors
/// [`AskError::UnknownLayer`] if there is none, with the most similar name.
pub(crate) fn layer_named(fabric: &Fabric, name: &str, option: impl Display) -> Result<Layer, AskError> {
    fabric.layer(name).ok_or_else(|| {
        let known = fabric.layer_names();
        AskError::UnknownLayer {
            option: option.to_string(),
            topology: fabric.name().to_owned(),
            layer: name.to_owned(),
            near: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
            known: known.to_vec(),
        }
    })
}

/// True if some number of nodes in the range is a multiple of `by`.
fn any_multiple((least, most): (u32, u32), by: u32) -> bool {
    most / by * by >= least.max(1)
}
