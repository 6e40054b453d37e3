//! The nearest requests that would work. Every offer of a refusal has been tried as a whole request, because
//! another limit may forbid it. Where no single change is enough, several are offered together.

use std::fmt::Write;

use crate::model::job::{JobSpec, MemoryNeed};
use crate::model::node::NodeShape;
use crate::model::reason::Reason;
use crate::sched::inventory::Inventory;
use crate::sched::place::{Nearest, Never, NoMultiple, SharedBudget, halve};
use crate::sched::request::{Request, Slot};
use crate::text::gather::{Gather, GatherClause};
use crate::text::time::TimeLimit;

use super::parameters::{Parameter, SearchDirection, with_nodes, without_zeros};
use super::{Refusal, RefusalKind, Say};

/// This number over the nodes of the cluster is the number of amounts that are tried one after another,
/// within [`TRIES`].
const TRIED_NODES: usize = 80_000;

/// The smallest and the largest number of amounts that are tried one after another.
const TRIES: (usize, usize) = (8, 128);

/// The largest number of places, far from the amount asked for, around which amounts are tried one by one.
const LEAPS: usize = 3;

/// Number of cut trials in a row after which amounts further away are tried.
const CUT_TRIALS: usize = 3;

/// Number of steps for single parameters, after which several parameters are changed together.
const STEPS_FOR_SINGLE: u64 = 400_000;

/// The largest number of changes to other parameters that are offered where no change that the limit names
/// works.
const OTHERS: usize = 2;

/// A refusal, with possible changes that have not been tried.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) kind: RefusalKind,
    /// The limit, without offers.
    pub(super) text: String,
    pub(super) offers: Vec<Offer>,
    /// The reason with which a job waits if only this limit forbids it and an administrator can raise it.
    pub(super) reason: Reason,
}

/// The budgets of trials.
#[derive(Clone, Copy)]
pub(super) struct Budgets<'a> {
    /// The steps that all trials together may still take.
    pub(super) all: &'a SharedBudget,
    /// The steps that the trials of one parameter may take.
    pub(super) parameter: &'a SharedBudget,
    /// The steps that one trial may take.
    pub(super) trial: &'a SharedBudget,
}

/// A possible change to a request.
#[derive(Clone, Debug)]
pub(super) enum Offer {
    /// At most this amount of the parameter that the limit is about.
    AtMost(Parameter, u64),
    /// Less of a related parameter.
    Other(Parameter),
    /// At least this number of nodes.
    MoreNodes(u32),
    /// A number that is a multiple.
    Around(NoMultiple),
    /// A suggestion of the placement code.
    Near(Nearest),
}

impl From<Refusal> for Refused {
    fn from(Refusal { kind, message, .. }: Refusal) -> Self {
        Self::new(kind, message, [])
    }
}

impl Refused {
    pub(super) fn new(kind: RefusalKind, text: String, offers: impl IntoIterator<Item = Offer>) -> Self {
        Self { kind, text, offers: offers.into_iter().collect(), reason: Reason::PartitionConfig }
    }

    /// Makes this the refusal of a limit that an administrator can raise.
    pub(super) fn raised_by(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// The refusal of a request that can never be placed.
    pub(super) fn never(kind: RefusalKind, spec: &JobSpec, never: Never) -> Self {
        let Never { text, nearest, multiples } = never;
        let near = nearest.into_iter().map(|near| match near {
            Nearest::AtMost(most) => Offer::AtMost(Parameter::Slots, most.into()),
            near => Offer::Near(near),
        });
        let multiples = Parameter::multiples(spec).filter(|_| multiples).map(Offer::Other);
        Self::new(kind, text, near.chain(multiples).chain([Offer::Other(Parameter::Nodes)]))
    }

    /// The refusal with those of its offers that work, or the nearest ones that do. `judge` takes its steps
    /// from the budget of one trial. Once the budget of all trials is spent, no further request counts as
    /// working.
    pub(super) fn mended(
        self,
        spec: &JobSpec,
        request: Option<&Request>,
        inventory: &Inventory,
        (budgets, judge): (Budgets<'_>, impl Fn(&JobSpec, Say) -> Result<(), Refused>),
    ) -> Refusal {
        let Self { kind, text: mut message, offers, reason: _ } = self;
        let tries = (TRIED_NODES / inventory.nodes.len().max(1)).clamp(TRIES.0, TRIES.1);
        let mend = Mend { spec, request, judge: &judge, inventory, tries, budgets };
        let mut found = WorkingRequests::default();
        for offer in &offers {
            mend.offer(offer, &mut found, &mut message);
        }
        // A request refused only for unknown names is left to its user.
        if found.works.is_empty() && !offers.is_empty() {
            mend.others(&mut found);
        }
        if found.works.is_empty() && !offers.is_empty() {
            found.add(mend.several().or_else(|| mend.without_gpus()));
        }
        for (index, words) in found.words.iter().enumerate() {
            let _ = match index {
                0 => write!(message, "; {words}"),
                _ => write!(message, ", or {}", words.strip_prefix("ask ").unwrap_or(words)),
            };
        }
        Refusal { kind, message, works: found.works, waits: None }
    }
}

/// Working requests, with the words for each.
#[derive(Default)]
struct WorkingRequests {
    words: Vec<String>,
    works: Vec<JobSpec>,
}

impl WorkingRequests {
    fn add(&mut self, found: Option<(String, JobSpec)>) {
        let Some((words, spec)) = found else { return };
        let spec = without_zeros(spec);
        if !self.works.contains(&spec) {
            self.words.push(words);
            self.works.push(spec);
        }
    }
}

struct Mend<'a, J> {
    spec: &'a JobSpec,
    request: Option<&'a Request>,
    judge: &'a J,
    inventory: &'a Inventory,
    /// Number of amounts that are tried one after another.
    tries: usize,
    budgets: Budgets<'a>,
}

impl<J: Fn(&JobSpec, Say) -> Result<(), Refused>> Mend<'_, J> {
    fn works(&self, spec: &JobSpec) -> bool {
        !self.budgets.parameter.is_spent() && self.keeps(spec) && self.judged(spec, Say::Sure).is_ok()
    }

    fn judged(&self, spec: &JobSpec, say: Say) -> Result<(), Refused> {
        self.budgets.trial.renew();
        (self.judge)(spec, say)
    }

    /// The first of several amounts that works; `None` if none does, or if several trials were cut.
    fn first_of(&self, amounts: impl Iterator<Item = u64>, set: impl Fn(u64) -> JobSpec) -> Option<u64> {
        let mut cut = 0;
        for amount in amounts.take(self.tries) {
            if self.works(&set(amount)) {
                return Some(amount);
            }
            cut += usize::from(self.budgets.trial.is_spent());
            if cut == CUT_TRIALS {
                return None;
            }
        }
        None
    }

    /// True if the request has tasks for all its nodes, or the original had too few: more nodes would stay
    /// empty.
    fn keeps(&self, spec: &JobSpec) -> bool {
        let enough = |spec: &JobSpec| match (&spec.shape.nodes, spec.shape.tasks) {
            (Some(nodes), Some(tasks)) => nodes.min <= tasks,
            _ => true,
        };
        enough(spec) || !enough(self.spec)
    }

    fn offer(&self, offer: &Offer, found: &mut WorkingRequests, message: &mut String) {
        self.budgets.parameter.renew();
        match offer {
            Offer::AtMost(parameter, most) => {
                let amount = self.nearest(*parameter, self.spec, Some(*most));
                found.add(amount.map(|amount| {
                    let spec = parameter.set(self.spec, self.request, amount);
                    let words = match parameter {
                        _ if amount == 0 => parameter.words(&spec, self.request),
                        Parameter::Time => {
                            format!("{} ≤ {}", spec.least_time_option(), TimeLimit::Seconds(amount))
                        }
                        _ => format!("≤ {amount}"),
                    };
                    (ask(&words), spec)
                }));
            }
            Offer::Other(parameter) => found.add(self.other(*parameter)),
            Offer::MoreNodes(least) => {
                let spec = with_nodes(self.spec, self.request, *least);
                found.add(self.works(&spec).then(|| (format!("ask ≥ {least}"), spec)));
            }
            Offer::Around(total) => {
                let around = self.around(total);
                if !around.is_empty() {
                    let words: Vec<String> = around.iter().map(|(amount, _)| amount.to_string()).collect();
                    let _ = write!(message, ": ask for {} instead", words.join(" or "));
                }
                found.works.extend(around.into_iter().map(|(_, spec)| spec));
            }
            Offer::Near(near) => {
                let spec = self.near(near);
                found.add(self.works(&spec).then(|| (near.to_string(), spec)));
            }
        }
    }

    /// Tries the parameters that the limit does not name, each by itself.
    fn others(&self, found: &mut WorkingRequests) {
        for parameter in Parameter::all(self.spec, self.request).into_iter().rev() {
            if found.works.len() < OTHERS && self.budgets.all.taken() < STEPS_FOR_SINGLE {
                self.budgets.parameter.renew();
                found.add(self.other(parameter));
            }
        }
    }

    fn other(&self, parameter: Parameter) -> Option<(String, JobSpec)> {
        let amount = self.nearest(parameter, self.spec, None)?;
        let spec = parameter.set(self.spec, self.request, amount);
        Some((ask(&parameter.words(&spec, self.request)), spec))
    }

    /// Combines changes where no single one is enough: starts from the least of everything, then raises one
    /// parameter after another as far as works.
    fn several(&self) -> Option<(String, JobSpec)> {
        let least = |parameter: Parameter| match parameter {
            Parameter::Slots | Parameter::Nodes => self.least_count(),
            Parameter::Devices(..) => 0,
            _ => parameter.way(self.spec, self.request).end(),
        };
        let with = |amounts: &[(Parameter, u64)]| {
            let set =
                |spec, (parameter, amount): &(Parameter, u64)| parameter.set(&spec, self.request, *amount);
            amounts.iter().fold(self.spec.clone(), set)
        };
        let all = Parameter::all(self.spec, self.request);
        let mut amounts: Vec<(Parameter, u64)> =
            all.iter().map(|parameter| (*parameter, least(*parameter))).collect();
        self.budgets.parameter.renew();
        if !self.works(&with(&amounts)) {
            return None;
        }
        // Parameters that can keep their original amount do so, before anything is searched for.
        for parameter in all {
            self.budgets.parameter.renew();
            let others: Vec<_> = amounts.iter().copied().filter(|(other, _)| *other != parameter).collect();
            if self.works(&with(&others)) {
                amounts = others;
            }
        }
        for at in 0..amounts.len() {
            self.budgets.parameter.renew();
            let parameter = amounts[at].0;
            let others: Vec<_> = amounts.iter().copied().filter(|(other, _)| *other != parameter).collect();
            if let Some(amount) = self.nearest(parameter, &with(&others), None) {
                amounts[at].1 = amount;
            }
        }
        let (parameters, spec) = (amounts.iter().map(|(parameter, _)| parameter), with(&amounts));
        let mut words: Vec<String> = Vec::new();
        for said in parameters.map(|parameter| parameter.words(&spec, self.request)) {
            if !words.contains(&said) {
                words.push(said);
            }
        }
        Some((ask(&words.join(" and ")), spec))
    }

    /// The request without `--gpus`, otherwise unchanged or as near to the original as works, with its words.
    /// `None` unless the job counts GPUs, or tasks that share GPUs.
    fn without_gpus(&self) -> Option<(String, JobSpec)> {
        let counts = |slot| matches!(slot, Slot::Gpu { .. } | Slot::Tasks { each: 2.. });
        let by_gpus = self.request.is_some_and(|request| counts(request.need.slot));
        let mut spec = self.spec.clone();
        spec.shape.gpus.drain(..).next().filter(|_| by_gpus)?;
        let words = "leave out --gpus".to_owned();
        self.budgets.parameter.renew();
        if self.works(&spec) {
            return Some((words, spec));
        }
        let (several, spec) = Mend { spec: &spec, request: None, ..*self }.several()?;
        Some((format!("{words} and {several}"), spec))
    }

    /// The smallest number of slots or nodes from which changes are combined: the least nodes of the first
    /// partition if the job gives a number of nodes, else 1.
    fn least_count(&self) -> u64 {
        let partition = self.inventory.partitions_of(self.spec).next();
        let floor = partition.filter(|_| self.spec.shape.nodes.is_some());
        floor.map_or(1, |(_, partition)| partition.config.min_nodes.max(1).into())
    }

    /// The largest amount that any node has; `None` if nodes do not limit the parameter.
    fn most(&self, parameter: Parameter) -> Option<u64> {
        let has: fn(&NodeShape) -> u64 = match (parameter, self.spec.shape.memory) {
            (Parameter::Cpus | Parameter::LeastCpus, _) => |shape| shape.cpus.into(),
            (Parameter::Memory, Some(MemoryNeed::PerNode(_))) => |shape| shape.memory_mb,
            (Parameter::Disk, _) => |shape| shape.tmp_disk_mb,
            _ => return None,
        };
        Some(self.inventory.nodes.iter().map(|node| has(&node.shape)).max().unwrap_or(0))
    }

    /// The amount nearest to the original that works, with everything else as in `spec`; `hint` is a likely
    /// amount.
    fn nearest(&self, parameter: Parameter, spec: &JobSpec, hint: Option<u64>) -> Option<u64> {
        let asked = parameter.asked(self.spec, self.request)?;
        let works = |amount: u64| self.works(&parameter.set(spec, self.request, amount));
        match parameter.way(spec, self.request) {
            SearchDirection::Down(least) => {
                let top = hint.or_else(|| self.most(parameter)).filter(|top| (least..asked).contains(top));
                if let Some(top) = top.filter(|top| works(*top)) {
                    return Some(top);
                }
                // No cluster has more than this, so larger amounts need not be tried.
                let top = top.unwrap_or(asked.min(MOST));
                (top > least && works(least)).then(|| halve(least, top, works))
            }
            SearchDirection::Up(most) => (most > asked && works(most))
                .then(|| most - halve(0, most - asked, |less| works(most - less))),
            SearchDirection::Scan(least) => {
                let step = parameter.step(spec);
                let times = (asked.div_ceil(step), least.div_ceil(step), hint.map(|hint| hint / step));
                let found = self.scan(times, step, |times| parameter.set(spec, self.request, times * step));
                found.map(|times| times * step)
            }
            SearchDirection::Around(least) => {
                let below = (least..asked).rev().map(Some).chain(std::iter::repeat(None));
                let sides = below.zip(asked.saturating_add(1)..=u64::MAX);
                let amounts = sides.flat_map(|(below, above)| below.into_iter().chain([above]));
                self.first_of(amounts, |amount| parameter.set(spec, self.request, amount))
            }
        }
    }

    /// The largest amount below `asked` that works: first one by one, then from the hint, then from what
    /// refusals there offer, finally by bisection. All amounts are in steps.
    fn scan(
        &self,
        (asked, least, hint): (u64, u64, Option<u64>),
        step: u64,
        set: impl Fn(u64) -> JobSpec,
    ) -> Option<u64> {
        let works = |amount: &u64| self.works(&set(*amount));
        let least = least.max(1);
        let near = |from: u64| self.first_of((least..=from).rev(), &set);
        let last = asked.checked_sub(1)?;
        if let Some(amount) = near(last) {
            return Some(amount);
        }
        let last = last.saturating_sub(self.tries as u64);
        let mut from = last.min(hint.unwrap_or(last));
        if from < least {
            return None;
        }
        for _ in 0..LEAPS {
            if let Some(amount) = near(from) {
                return Some(amount);
            }
            let next = self.judged(&set(from), Say::Nearest).err().and_then(|refused| {
                let amounts = refused.offers.iter().filter_map(|offer| match offer {
                    Offer::AtMost(Parameter::Slots, amount) => Some(*amount),
                    Offer::Around(NoMultiple { wanted, by, .. }) => {
                        Some(u64::from(wanted - wanted % by.max(&1)))
                    }
                    _ => None,
                });
                amounts.map(|amount| amount / step).filter(|amount| *amount < from).max()
            });
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        let low = std::iter::successors(Some(from), |from| (*from > least).then(|| (from / 2).max(least)));
        let low = low.skip(1).find(works)?;
        Some(halve(low, (2 * low + 1).min(from), |amount| works(&amount)))
    }

    /// The nearest multiples that work, the smaller one first.
    fn around(&self, total: &NoMultiple) -> Vec<(u32, JobSpec)> {
        let (wanted, by) = (total.wanted, total.by.max(1));
        let sized = |times: u32| Parameter::Slots.set(self.spec, self.request, u64::from(times * by));
        let below = (1..=wanted / by).rev();
        let above = wanted / by + 1..=u32::MAX / by;
        let set = |times: u64| sized(u32::try_from(times).unwrap_or(u32::MAX));
        let found = [self.first_of(below.map(u64::from), set), self.first_of(above.map(u64::from), set)];
        let found = found.into_iter().flatten().filter_map(|times| u32::try_from(times).ok());
        found.map(|times| (times * by, sized(times))).collect()
    }

    fn near(&self, near: &Nearest) -> JobSpec {
        let mut spec = self.spec.clone();
        let fabric = spec.fabric.get_or_insert_default();
        match near {
            Nearest::AtMost(slots) => return Parameter::Slots.set(self.spec, self.request, (*slots).into()),
            Nearest::Nodes(nodes) => return with_nodes(self.spec, self.request, *nodes),
            Nearest::Must(layer) => fabric.gather = Some(with_must(fabric.gather.take(), layer)),
            Nearest::Speed(speed) => {
                fabric.network.iter_mut().for_each(|need| need.bandwidth = Some(*speed));
            }
            Nearest::AnySpeed => return Parameter::Links.set(self.spec, self.request, 0),
            Nearest::Flat => fabric.topology = Some("none".into()),
        }
        spec
    }
}

fn ask(words: &str) -> String {
    if words.starts_with("leave out") { words.to_owned() } else { format!("ask {words}") }
}

/// An amount larger than any cluster has of anything.
const MOST: u64 = 1 << 40;

/// The gather list with its musts moved to another layer.
fn with_must(asked: Option<Gather>, layer: &str) -> Gather {
    let mut clauses = asked.map_or_else(Vec::new, |asked| asked.clauses);
    let is_must = |clause: &mut GatherClause| matches!(clause, GatherClause::Must { .. });
    let first = clauses.iter_mut().position(is_must).unwrap_or(0);
    let musts: Vec<GatherClause> = clauses.extract_if(.., is_must).collect();
    let until = musts.into_iter().find_map(|must| match must {
        GatherClause::Must { until, .. } => until,
        GatherClause::Prefer { .. } | GatherClause::Multiple { .. } => None,
    });
    clauses.insert(first, GatherClause::Must { layer: layer.to_owned(), until });
    Gather { clauses }
}
