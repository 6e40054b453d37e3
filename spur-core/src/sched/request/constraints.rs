//! The fabric constraints of a job over time: constraints with a time limit relax one after another.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::Partition;
use crate::id::NodeId;
use crate::model::config::Policy;
use crate::model::fabric::{DomainId, Fabric, LookupError, Pos};
use crate::model::job::{FabricAsk, JobSpec, Sharing};
use crate::model::topology::TopologyConfig;
use crate::sched::inventory::amounts::ClassId;
use crate::sched::inventory::{self, Inventory};
use crate::sched::place::{self, Ask, AskError, Resolved, Wish, gcd};
use crate::sched::request::eligible_nodes::{Filter, known_features, named, positions_where};
use crate::sched::request::{Request, Slot, gpus};
use crate::text::features::FeatureExpr;
use crate::text::gather::{Gather, GatherClause, Switches};
use crate::text::time::{Time, TimeLimit};

/// The asks of a job for starts within a stretch of time.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// The first moment of the stage.
    pub(crate) from: Time,
    /// The end of the stage, exclusive.
    pub(crate) until: Time,
    /// The asks of the stage: one, or one for each allowed size, the preferred size first.
    pub(crate) asks: Vec<Ask>,
    /// Constraints that have been relaxed, as written.
    pub(crate) relaxed: Vec<String>,
    /// Options without effect.
    pub(crate) warnings: Vec<String>,
}

/// A job with its request in one partition, as the input for asks.
#[derive(Clone, Copy)]
pub(crate) struct Wisher<'a> {
    pub(crate) inventory: &'a Inventory,
    /// The index of the partition.
    pub(crate) partition: usize,
    /// The fabric on which the job is placed there.
    pub(crate) fabric: &'a Arc<Fabric>,
    pub(crate) spec: &'a JobSpec,
    pub(crate) request: &'a Request,
    /// The nodes of the job that `--gather-with` names, if that job runs.
    pub(crate) gather_with: &'a [NodeId],
}

/// The time limits of the constraints in `--gather` and `--switches`.
fn limits(gather: Option<&Gather>, switches: Option<Switches>) -> impl Iterator<Item = TimeLimit> {
    let clauses = gather.into_iter().flat_map(|gather| &gather.clauses).filter_map(|clause| match clause {
        GatherClause::Must { until, .. } => *until,
        GatherClause::Prefer { .. } | GatherClause::Multiple { .. } => None,
    });
    let limits = clauses.chain(switches.and_then(|switches| switches.wait));
    limits.filter(|limit| *limit != TimeLimit::Unlimited)
}

/// The time limits of the constraints in rules by size.
pub(crate) fn rule_limits(policy: &Policy) -> Vec<TimeLimit> {
    let rules = policy.topologies.iter().flat_map(|config| &config.rule);
    rules.flat_map(|rule| limits(rule.gather.as_ref(), rule.switches)).collect()
}

/// The times at which constraints of a job relax. For a job with neither `--gather` nor `--switches` these
/// are the times at which constraints of rules may relax.
pub(crate) fn relax_times<'a>(
    spec: &'a JobSpec,
    rules: &'a [TimeLimit],
    eligible: Time,
) -> impl Iterator<Item = Time> + 'a {
    let fabric = spec.fabric.as_deref();
    let (gather, switches) =
        (fabric.and_then(|fabric| fabric.gather.as_ref()), fabric.and_then(|fabric| fabric.switches));
    let rules = if gather.is_none() && switches.is_none() { rules } else { &[] };
    limits(gather, switches).chain(rules.iter().copied()).map(move |limit| limit.end(eligible))
}

impl Stage {
    /// The first ask, for properties that all asks of the stage share.
    pub(crate) fn ask(&self) -> &Ask {
        &self.asks[0]
    }
}

impl<'a> Wisher<'a> {
    /// The partition.
    pub(crate) fn partition(&self) -> &'a Partition {
        &self.inventory.partitions[self.partition].partition
    }

    /// The stages of a job that has not waited yet; at least one.
    ///
    /// # Errors
    /// [`AskError`] if the request can never be met, with one that would work.
    pub(crate) fn first_stages(&self) -> Result<Vec<Stage>, AskError> {
        self.stages(Time::ZERO, Time::ZERO)
    }

    /// The stages from `now` on of a job that has been eligible since `eligible`; at least one.
    ///
    /// # Errors
    /// [`AskError`] if the request can never be met, with one that would work.
    pub(crate) fn stages(&self, eligible: Time, now: Time) -> Result<Vec<Stage>, AskError> {
        let mut stages = vec![self.stage(eligible, now)?];
        while let Some(last) = stages.last().filter(|last| last.until < Time::MAX) {
            stages.push(self.stage(eligible, last.until)?);
        }
        Ok(stages)
    }

    /// The stage that begins at `from`, up to the time at which the next constraint of the job or of a rule
    /// relaxes.
    fn stage(&self, eligible: Time, from: Time) -> Result<Stage, AskError> {
        let base = self.base().map_err(AskError::NoNode)?;
        let resolved = self.resolve(base, from.since(eligible))?;
        let Resolved { ask, warnings, relaxed, relaxes_at } = resolved;
        let until = relaxes_at.map_or(Time::MAX, |waited| TimeLimit::Seconds(waited).end(eligible));
        let asks = match &self.request.sizes {
            Some(sizes) => {
                let of_size =
                    |size: &u32| Ask { nodes: Some((*size, *size)), is_limited: false, ..ask.clone() };
                sizes.iter().map(of_size).collect()
            }
            None => vec![ask],
        };
        Ok(Stage { from, until, asks, relaxed, warnings })
    }

    fn resolve(&self, base: Ask, waited: u64) -> Result<Resolved, AskError> {
        let nothing = FabricAsk::default();
        let need = &self.request.need;
        let (per_node, per_task) = (gpus(&need.gres_per_node), gpus(&need.gres_per_task));
        let config = self.inventory.topology(self.fabric);
        // A job that has a node whole has all its devices.
        let of_whole =
            (need.whole && config.limits.max_gpus_per_leaf.is_some()).then(|| self.gpus_of_whole());
        let (gpus_per_slot, gpus_per_node) = match need.slot {
            _ if let Some((fewest, most)) = of_whole => (0, if fewest == most { most } else { 0 }),
            Slot::Node { tasks } => (per_node + per_task * u64::from(tasks), 0),
            Slot::Tasks { .. } | Slot::Gpu { .. } => (per_task, per_node),
        };
        let wish = Wish {
            asked: self.spec.fabric.as_deref().unwrap_or(&nothing),
            whole_leaves: self.spec.shape.sharing == Sharing::Topo,
            waited,
            placement: self.partition().config.placement,
            size: self.size(config),
            gpus_per_slot: u32::try_from(gpus_per_slot).unwrap_or(u32::MAX),
            gpus_per_node: u32::try_from(gpus_per_node).unwrap_or(u32::MAX),
            gpus_by_node: of_whole
                .filter(|(fewest, most)| fewest < most)
                .and_then(|_| self.inventory.gpus_on(self.fabric)),
            gather_with: self.companion(),
            score: self.partition().config.score.as_ref(),
        };
        let mut resolved = place::resolve(self.fabric, config, wish, base)?;
        resolved.warnings.extend(self.unknown_wish(wish.asked));
        if let Slot::Tasks { each } = need.slot {
            // Multiples in the request count tasks; the ask counts slots.
            let of_slots = |by: u32| by / gcd(by, each);
            resolved.ask.multiples.iter_mut().for_each(|(_, by)| *by = of_slots(*by));
        }
        Ok(resolved)
    }

    /// A sentence about a preferred feature that no node of the partition has; `None` if all are known.
    fn unknown_wish(&self, asked: &FabricAsk) -> Option<String> {
        let wish = place::wished_features(self.fabric, asked)?;
        let known = known_features(self);
        let unknown = |name: &&str| !known.contains(*name);
        let name = wish.names().into_iter().find(unknown)?;
        let said = match self.fabric.find(name) {
            Err(ambiguous @ LookupError::Ambiguous { .. }) => ambiguous.to_string(),
            _ => format!("no node of partition {} has feature {name}", self.partition().name()),
        };
        Some(format!("--prefer={wish}: {said}"))
    }

    /// The size of the job in nodes, for rules: the most that it may get, or the fewest idle nodes that hold
    /// its tasks.
    fn size(&self, config: &TopologyConfig) -> u32 {
        let slots = self.request.slots.unwrap_or(1);
        match self.request.nodes.filter(|_| !self.request.is_limited) {
            Some((_, most)) => most,
            None if config.rule.iter().any(|rule| rule.max_nodes.is_some()) => {
                let kinds = self.usable().into_iter().map(|(_, has, count)| (has, count)).collect();
                super::whole_leaves::fewest_nodes(kinds, slots.into()).unwrap_or(slots)
            }
            None => slots,
        }
    }

    /// The fewest and the most GPUs of a node that the job may use.
    fn gpus_of_whole(&self) -> (u64, u64) {
        let gpus = |(class, ..): (ClassId, u32, u32)| u64::from(self.inventory.rooms.shape(class).gpus());
        let all: Vec<u64> = self.usable().into_iter().map(gpus).collect();
        (all.iter().copied().min().unwrap_or(0), all.into_iter().max().unwrap_or(0))
    }

    /// The classes of nodes that the job may use, whatever their state, each with the slots of an idle node
    /// and the number of nodes.
    fn usable(&self) -> Vec<(ClassId, u32, u32)> {
        let rooms = &self.inventory.rooms;
        let slots = |class| self.request.need.slots(rooms.shape(class), rooms.amount(rooms.full(class)));
        let classes = self.admitted().into_iter().map(|(class, count)| (class, slots(class), count));
        classes.filter(|(_, has, _)| *has > 0).collect()
    }

    /// The classes of nodes that partition, constraint and exclusion admit, each with the number of nodes.
    fn admitted(&self) -> Vec<(ClassId, u32)> {
        let (partition, shape) = (&self.inventory.partitions[self.partition], &self.spec.shape);
        if shape.features.is_none() && shape.exclude.is_none() {
            return partition.classes.clone();
        }
        // An invalid exclusion is refused elsewhere.
        let Ok(admitted) = Filter::of(shape).admitted(self) else {
            return partition.classes.clone();
        };
        inventory::count_classes(admitted.ones().map(|node| self.inventory.nodes[node].class))
    }

    /// The ask before fabric options are added: nodes, tasks, and required nodes.
    fn base(&self) -> Result<Ask, String> {
        let (fabric, request) = (self.fabric, self.request);
        let mut ask = Ask::tasks(0);
        (ask.nodes, ask.tasks, ask.is_limited) = (request.nodes, request.slots, request.is_limited);
        ask.max_tasks_per_node = request.need.most;
        if let Some(nodelist) = &self.spec.shape.nodelist {
            let position =
                |name: &String| fabric.pos_named(name).ok_or_else(|| format!("there is no node {name}"));
            let required: Result<BTreeSet<Pos>, String> =
                named(fabric, nodelist)?.iter().map(position).collect();
            ask.required = required?.into_iter().collect();
            let least = u32::try_from(ask.required.len()).unwrap_or(u32::MAX);
            ask.nodes = ask.nodes.map(|(min, max)| (min.max(least), max.max(least)));
        }
        if let Some(features) = &self.spec.shape.features {
            for (wanted, count) in features.counts() {
                ask.counts.push((positions_where(fabric, |node| self.has_features(node, wanted)), count));
            }
        }
        Ok(ask)
    }

    /// True if a node has the wanted features, by itself or by its domains.
    pub(super) fn has_features(&self, node: NodeId, wanted: &FeatureExpr) -> bool {
        let own = &self.inventory.nodes[node.index()].shape.features;
        let domains = self.fabric.pos(node).map(|pos| self.fabric.features(pos)).unwrap_or_default();
        wanted.admits(&|name: &str| own.iter().any(|own| **own == *name) || domains.contains(name))
    }

    /// The domain that holds the job which `--gather-with` names.
    fn companion(&self) -> Option<DomainId> {
        let positions = self.gather_with.iter().filter_map(|node| self.fabric.pos(*node));
        let mut positions: Vec<Pos> = positions.collect();
        positions.sort_unstable();
        self.fabric.deepest_common(&positions)
    }
}
