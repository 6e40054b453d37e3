//! The nearest request that would work. What a refusal offers has been tried as the whole request that it would be: another
//! limit may forbid it, too.

use std::fmt::Write;

use crate::model::job::{FabricAsk, JobSpec};
use crate::sched::place::{Nearest, Never, NoMultiple};
use crate::sched::request::{Request, Slot};
use crate::text::gather::{Gather, GatherClause, LinkSpeed, NetworkNeed};
use crate::text::nodes::NodeCount;

use super::{Refusal, RefusalKind, Say};

/// How many amounts are tried for one offer.
const TRIES: usize = 16;

/// How often an amount that is far from the one that was asked for is looked for in another place.
const LEAPS: usize = 3;

/// A refusal, with what may mend it and has not been tried.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    kind: RefusalKind,
    text: String,
    offers: Vec<Offer>,
}

/// What may mend a request.
#[derive(Clone, Debug)]
pub(super) enum Offer {
    /// So many nodes and no more.
    Nodes(u32),
    /// So many nodes at least.
    MoreNodes(u32),
    /// So many of what the job counts and no more.
    Slots(u32),
    /// Another number of nodes for as many tasks.
    OtherNodes,
    /// A number that is a multiple.
    Around(NoMultiple),
    /// What the placement found.
    Near(Nearest),
}

impl From<Refusal> for Refused {
    fn from(Refusal { kind, message }: Refusal) -> Self {
        Self { kind, text: message, offers: Vec::new() }
    }
}

impl Refused {
    pub(super) fn new(kind: RefusalKind, text: String, offer: Offer) -> Self {
        Self { kind, text, offers: vec![offer] }
    }

    /// What can never be placed.
    pub(super) fn never(kind: RefusalKind, Never { text, nearest }: Never) -> Self {
        let offers = nearest.into_iter().map(Offer::Near).chain([Offer::OtherNodes]);
        Self { kind, text, offers: offers.collect() }
    }

    /// The limit alone.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn no_multiple(total: NoMultiple) -> Self {
        Self::new(RefusalKind::Topology, total.to_string(), Offer::Around(total))
    }

    /// The refusal, with those of its offers that work, or what is nearest to them and does.
    pub(super) fn mended(
        self,
        spec: &JobSpec,
        request: Option<&Request>,
        judge: impl Fn(&JobSpec, Say) -> Result<(), Refused>,
    ) -> Refusal {
        let Self { kind, text: mut message, offers } = self;
        let mend = Mend { spec, request, judge: &judge };
        let mut found: Vec<String> = Vec::new();
        for offer in &offers {
            match offer {
                Offer::Around(total) => {
                    let around = mend.around(total);
                    if !around.is_empty() {
                        let _ = write!(message, ": ask for {} instead", around.join(" or "));
                    }
                }
                offer => found.extend(mend.offer(offer)),
            }
        }
        found.dedup();
        for (index, offer) in found.iter().enumerate() {
            let _ = match index {
                0 => write!(message, "; {offer}"),
                _ => write!(message, ", or {}", offer.strip_prefix("ask ").unwrap_or(offer)),
            };
        }
        Refusal { kind, message }
    }
}

struct Mend<'a, J> {
    spec: &'a JobSpec,
    request: Option<&'a Request>,
    judge: &'a J,
}

impl<J: Fn(&JobSpec, Say) -> Result<(), Refused>> Mend<'_, J> {
    fn works(&self, spec: &JobSpec) -> bool {
        (self.judge)(spec, Say::Whether).is_ok()
    }

    fn offer(&self, offer: &Offer) -> Option<String> {
        match offer {
            Offer::Nodes(most) => self.at_most(*most, 1, |size| with_nodes(self.spec, self.request, size)),
            Offer::Slots(most) | Offer::Near(Nearest::AtMost(most)) => self.fewer(*most),
            Offer::MoreNodes(least) => {
                self.works(&with_nodes(self.spec, self.request, *least)).then(|| format!("ask ≥ {least}"))
            }
            Offer::OtherNodes => self.other_nodes(),
            Offer::Near(near) => self.works(&self.near(near)).then(|| near.to_string()),
            Offer::Around(_) => None,
        }
    }

    /// The largest amount from there down that works. Where that is further than some steps, what the refusal of the first one
    /// offers is gone on from.
    fn at_most(&self, most: u32, least: u32, sized: impl Fn(u32) -> JobSpec) -> Option<String> {
        let least = least.max(1);
        let mut from = most;
        for _ in 0..LEAPS {
            let works = |size: &u32| self.works(&sized(*size));
            if let Some(size) = (least..=from).rev().take(TRIES).find(works) {
                return Some(format!("ask ≤ {size}"));
            }
            let offers = (self.judge)(&sized(from), Say::Nearest).err()?.offers;
            let amounts = offers.iter().filter_map(|offer| match offer {
                Offer::Nodes(size) | Offer::Slots(size) | Offer::Near(Nearest::AtMost(size)) => Some(*size),
                Offer::Around(NoMultiple { wanted, by, .. }) => Some(wanted - wanted % by.max(&1)),
                Offer::MoreNodes(_) | Offer::OtherNodes | Offer::Near(_) => None,
            });
            from = amounts.filter(|size| *size < from).max()?;
        }
        None
    }

    /// Fewer of what the job counts: no fewer tasks than it wants nodes.
    fn fewer(&self, most: u32) -> Option<String> {
        let least = self.request.filter(|request| request.slots.is_some()).map_or(1, Request::min_nodes);
        self.at_most(most, least, |size| sized(self.spec, self.request, size))
    }

    /// The nearest number of nodes on which a job that gives nodes and tasks could be.
    fn other_nodes(&self) -> Option<String> {
        let request = self.request.filter(|request| request.slots.is_some())?;
        let (least, most) = request.nodes?;
        let below = (1..least).rev().map(Some).chain(std::iter::repeat(None));
        let above = most.saturating_add(1)..;
        let sizes = below.zip(above).flat_map(|(below, above)| below.into_iter().chain([above]));
        let works = |size: &u32| self.works(&with_nodes(self.spec, self.request, *size));
        sizes.take(TRIES).find(works).map(|size| Nearest::Nodes(size).to_string())
    }

    /// The nearest multiples that work, the smaller one first.
    fn around(&self, total: &NoMultiple) -> Vec<String> {
        let (wanted, by) = (total.wanted, total.by.max(1));
        let below = (1..=wanted / by).rev();
        let above = wanted / by + 1..=u32::MAX / by;
        let works = |times: &u32| self.works(&sized(self.spec, self.request, times * by));
        let found = [below.take(TRIES).find(works), above.take(TRIES).find(works)];
        found.into_iter().flatten().map(|times| (times * by).to_string()).collect()
    }

    fn near(&self, near: &Nearest) -> JobSpec {
        if let Nearest::Nodes(nodes) = near {
            return with_nodes(self.spec, self.request, *nodes);
        }
        let mut spec = self.spec.clone();
        let mut fabric: FabricAsk = spec.fabric.as_deref().cloned().unwrap_or_default();
        let need = fabric.network.take();
        let network = |bandwidth: Option<LinkSpeed>| {
            let latency = need.is_some_and(|need| need.latency);
            (bandwidth.is_some() || latency).then_some(NetworkNeed { bandwidth, latency })
        };
        fabric.network = match near {
            Nearest::Speed(speed) => network(Some(*speed)),
            Nearest::AnySpeed => network(None),
            _ => need,
        };
        match near {
            Nearest::Must(layer) => fabric.gather = Some(with_must(fabric.gather.take(), layer)),
            Nearest::Flat => fabric.topology = Some("none".into()),
            _ => {}
        }
        spec.fabric = Some(Box::new(fabric));
        spec
    }
}

/// A request with another number of what it counts.
pub(super) fn sized(spec: &JobSpec, request: Option<&Request>, size: u32) -> JobSpec {
    let slot = request.map(|request| (request.need.slot, request.slots.is_some()));
    match slot {
        Some((Slot::Task, true)) => {
            let mut spec = spec.clone();
            spec.shape.tasks = Some(size);
            spec
        }
        Some((Slot::Gpu, true)) => {
            let mut spec = spec.clone();
            if let Some(gpus) = spec.shape.gpus.first_mut() {
                gpus.count = u64::from(size);
            }
            spec
        }
        _ => with_nodes(spec, request, size),
    }
}

/// A request with another number of nodes; where the tasks follow from the nodes, with as many.
fn with_nodes(spec: &JobSpec, request: Option<&Request>, nodes: u32) -> JobSpec {
    let mut spec = spec.clone();
    spec.shape.nodes = Some(NodeCount::exactly(nodes));
    if let Some(Slot::Node { tasks }) = request.map(|request| request.need.slot)
        && spec.shape.tasks.is_some()
    {
        spec.shape.tasks = nodes.checked_mul(tasks);
    }
    spec
}

/// What is asked, with its musts at another layer.
fn with_must(asked: Option<Gather>, layer: &str) -> Gather {
    let mut clauses = asked.map_or_else(Vec::new, |asked| asked.clauses);
    let first = clauses.iter().position(|clause| matches!(clause, GatherClause::Must { .. }));
    let mut until = None;
    clauses.retain(|clause| match clause {
        GatherClause::Must { until: limit, .. } => {
            until = until.or(*limit);
            false
        }
        GatherClause::Prefer { .. } | GatherClause::Multiple { .. } => true,
    });
    let must = GatherClause::Must { layer: layer.to_owned(), until };
    clauses.insert(first.unwrap_or(0).min(clauses.len()), must);
    Gather { clauses }
}
