//! The slow and simple planner: free resources of every node in every second, examined second by second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::id::{JobId, NodeId};
use spur_core::model::config::Backfill;
use spur_core::model::fabric::{Fabric, Layer, Pos};
use spur_core::model::job::{Job, MemoryNeed, Sharing};
use spur_core::model::phase::Phase;
use spur_core::model::reservation::{Flag, Reservation};
use spur_core::sched::place::{self, Ask, Slots, Strategy, View};
use spur_core::text::gather::GatherClause;
use spur_core::text::time::Time;

use crate::world::World;

/// CPUs, memory, and devices of the only kind.
type Amount = [u64; 3];

/// Expected start time and nodes of each job.
pub(crate) type Starts = BTreeMap<JobId, (Time, Vec<NodeId>)>;

/// Free resources of every node in every second from the present on, and licenses used by jobs of each
/// reservation or of none. The last second lasts for ever.
struct Seconds {
    now: Time,
    free: Vec<Vec<Amount>>,
    used: Vec<BTreeMap<Option<Arc<str>>, i64>>,
}

impl Seconds {
    fn of(world: &World, horizon: usize) -> Self {
        let nodes = world.cluster.nodes();
        let full = |node: &spur_core::cluster::Node| {
            let gpus = node.shape.gres.first().map_or(0, |gres| u64::from(gres.count));
            [u64::from(node.shape.cpus), node.shape.memory_mb, gpus]
        };
        let mut seconds = Self {
            now: world.now,
            free: nodes.iter().map(|node| vec![full(node); horizon]).collect(),
            used: vec![BTreeMap::new(); horizon],
        };
        for job in world.cluster.jobs().active() {
            let Phase::Running { alloc, started, .. } = &job.phase else { continue };
            let left = (job.ends_at(*started) - world.now).max(0);
            for part in &alloc.nodes {
                let gpus = part.gres.iter().map(|gres| u64::from(gres.ids.len())).sum();
                let held = [u64::from(part.cpus.len()), part.memory_mb, gpus];
                seconds.take(part.node, world.now, u64::try_from(left).unwrap(), held);
            }
            let left = u64::try_from(left).unwrap();
            seconds.license(alloc.reservation.as_ref(), world.now, left, licenses(job));
        }
        for node in nodes.iter().filter(|node| !node.available()) {
            seconds.free[node.id.index()].fill([0; 3]);
        }
        seconds
    }

    fn index(&self, at: Time) -> usize {
        usize::try_from(at - self.now).unwrap()
    }

    fn take(&mut self, node: NodeId, from: Time, seconds: u64, amount: Amount) {
        let from = self.index(from);
        for free in self.free[node.index()].iter_mut().skip(from).take(usize::try_from(seconds).unwrap()) {
            for (free, take) in free.iter_mut().zip(amount) {
                *free = free.checked_sub(take).expect("nothing is booked twice");
            }
        }
    }

    fn license(&mut self, within: Option<&Arc<str>>, from: Time, seconds: u64, count: i64) {
        let from = self.index(from);
        for used in self.used.iter_mut().skip(from).take(usize::try_from(seconds).unwrap()) {
            *used.entry(within.cloned()).or_default() += count;
        }
    }

    /// Number of licenses free in a second for a job of a reservation, or of none, that has run this long.
    ///
    /// Other reservations reduce the unused licenses by their excess over the use of their jobs. A
    /// reservation does so while it is in force. One that is always ahead does so if the job has run for at
    /// least that time.
    fn licenses(&self, world: &World, within: Option<&Arc<str>>, at: Time, ran: u64) -> i64 {
        let used = &self.used[self.index(at)];
        let total: u32 = world.cluster.policy().licenses.iter().map(|(_, count)| count).sum();
        let others = world.cluster.reservations().filter(|other| within != Some(&other.name));
        let kept = others.map(|other| {
            let count = i64::from(other.license("x"));
            let in_force = other.start <= at && at < other.end;
            let uses = used.get(&Some(Arc::clone(&other.name))).copied().unwrap_or(0);
            let ahead = if other.lead.is_some_and(|lead| ran >= lead) { count } else { 0 };
            ahead + if in_force { (count - uses).max(0) } else { 0 }
        });
        i64::from(total) - used.values().sum::<i64>() - kept.sum::<i64>()
    }

    /// Resources of a node that are free in all of these seconds.
    fn throughout(&self, node: NodeId, from: Time, seconds: u64) -> Amount {
        let window =
            self.free[node.index()].iter().skip(self.index(from)).take(usize::try_from(seconds).unwrap());
        window.fold([u64::MAX; 3], |least, free| std::array::from_fn(|index| least[index].min(free[index])))
    }
}

/// Number of licenses that a job requests.
fn licenses(job: &Job) -> i64 {
    job.spec.extra.iter().flat_map(|extra| &extra.licenses).map(|(_, count)| i64::from(*count)).sum()
}

/// Requirements of a job in the simplest form.
struct Plain<'a> {
    job: &'a Job,
    seconds: u64,
    least: Option<u64>,
    nodes: Option<u32>,
    /// Number of tasks of the whole job; `None` if each node has the same number.
    tasks: Option<u32>,
    on_each: u64,
    /// Number of CPUs and GPUs of each task, and memory and GPUs of each node.
    cpus: u64,
    gpus: u64,
    memory: u64,
    gpus_of_node: u64,
    whole: bool,
    must: Option<Layer>,
    /// Number of adjacent leaves that a topology rule gives to a job without requirements of its own; `None`
    /// for no rule.
    adjacent: Option<u32>,
}

impl<'a> Plain<'a> {
    fn of(world: &World, job: &'a Job, fabric: &Fabric) -> Self {
        let shape = &job.spec.shape;
        let gather = job.spec.fabric.as_ref().and_then(|fabric| fabric.gather.as_ref());
        let rule = world.cluster.policy().topologies.iter().flat_map(|topology| &topology.rule).next();
        let must = gather.and_then(|gather| match &gather.clauses[0] {
            GatherClause::Must { layer, .. } => fabric.layer(layer),
            GatherClause::Prefer { .. } | GatherClause::Multiple { .. } => None,
        });
        Self {
            job,
            seconds: job.spec.time_limit.seconds().unwrap(),
            least: job.spec.time_min.and_then(|least| least.seconds()),
            nodes: shape.nodes.as_ref().map(|nodes| nodes.min),
            tasks: shape.tasks,
            on_each: u64::from(shape.tasks_per_node.unwrap_or(1)),
            cpus: u64::from(shape.cpus_per_task.unwrap_or(1)),
            memory: match shape.memory {
                Some(MemoryNeed::PerNode(memory)) => memory,
                Some(MemoryNeed::PerCpu(_)) | None => 0,
            },
            gpus: shape.gpus_per_task.iter().map(|gpus| gpus.count).sum(),
            gpus_of_node: shape.gres.iter().map(|gpus| gpus.count).sum(),
            whole: shape.sharing == Sharing::Exclusive,
            must,
            adjacent: rule.filter(|_| gather.is_none()).and_then(|rule| rule.adjacent),
        }
    }

    /// Number of tasks that fit, counted one by one. For a job that counts nodes, the number of times its
    /// resources fit, at most once for a whole node.
    fn slots(&self, full: Amount, free: Amount) -> u32 {
        if self.whole && free[0] < full[0] {
            return 0;
        }
        let fits = |slots: u32| self.asked(slots).iter().zip(free).all(|(asked, free)| *asked <= free);
        let most = if self.whole && self.tasks.is_none() { 1 } else { u32::MAX };
        (1..=most).take_while(|slots| fits(*slots)).last().unwrap_or(0)
    }

    /// Resources of this number of slots on one node.
    fn asked(&self, slots: u32) -> Amount {
        let slots = u64::from(slots);
        match self.tasks {
            Some(_) => [slots * self.cpus, self.memory, slots * self.gpus + self.gpus_of_node],
            None => [
                slots * self.on_each * self.cpus,
                slots * self.memory,
                slots * (self.on_each * self.gpus + self.gpus_of_node),
            ],
        }
    }

    fn amount(&self, full: Amount, slots: u32) -> Amount {
        if self.whole { [full[0], self.memory, full[2]] } else { self.asked(slots) }
    }

    fn ask(&self, fabric: &Fabric) -> Ask {
        let strategy = if fabric.is_flat() { Strategy::Flat } else { Strategy::Tree };
        let nodes = self.nodes.or(self.tasks.is_none().then_some(1));
        Ask {
            nodes: nodes.filter(|_| self.nodes.is_some() || self.tasks.is_none()).map(|nodes| (nodes, nodes)),
            tasks: self.tasks,
            must: self.must,
            adjacent: self.adjacent,
            strategy,
            ..Ask::tasks(0)
        }
    }
}

trait Flat {
    fn is_flat(&self) -> bool;
}

impl Flat for Fabric {
    fn is_flat(&self) -> bool {
        self.plugin() == spur_core::model::topology::Plugin::None
    }
}

/// Place of a job with respect to reservations: in one, or in none.
#[derive(Clone)]
struct Place(Option<Arc<Reservation>>);

impl Place {
    /// Places of a job, preferred ones first.
    fn all(world: &World, job: &Job) -> Vec<Self> {
        let names: Vec<&str> = job.spec.reservations().collect();
        if names.is_empty() {
            let drawn = world.cluster.reservations().filter(|own| own.has(Flag::Magnetic));
            return drawn.map(|own| Self(Some(Arc::clone(own)))).chain([Self(None)]).collect();
        }
        names.into_iter().map(|name| Self(world.cluster.reservation(name).cloned())).collect()
    }

    /// Reservation whose nodes bound the job; `None` if none does.
    fn bounds(&self) -> Option<&Arc<Reservation>> {
        self.0.as_ref().filter(|own| !own.has(Flag::Flex) && !own.has(Flag::AnyNodes))
    }

    /// Name of the reservation.
    fn name(&self) -> Option<&Arc<str>> {
        self.0.as_ref().map(|own| &own.name)
    }

    /// Duration of a job that starts at a time; `None` if it cannot start then.
    fn lasts(&self, at: Time, seconds: u64) -> Option<u64> {
        match self.0.as_ref().filter(|own| !own.has(Flag::Flex)) {
            Some(own) if at < own.start || at >= own.end => None,
            Some(own) => Some(seconds.min(own.end.since(at))),
            None => Some(seconds),
        }
    }

    /// True if another reservation gives way to the job's reservation.
    fn spares(&self, other: &Reservation) -> bool {
        self.0.as_ref().is_some_and(|own| {
            own.name == other.name
                || own.has(Flag::Maint)
                || (own.has(Flag::Overlap) && !other.has(Flag::Maint))
        })
    }

    /// True if the node may run a job of this duration at any time. The node is in the job's reservation,
    /// and in no other reservation that is always ahead by less than this duration.
    fn admits(&self, world: &World, node: NodeId, seconds: u64) -> bool {
        let bars = |other: &&Arc<Reservation>| {
            other.bars(seconds) && other.nodes.contains(&node) && !self.spares(other)
        };
        self.bounds().is_none_or(|own| own.nodes.contains(&node))
            && !world.cluster.reservations().any(|other| bars(&other))
    }

    /// True if the job may use the node in all of these seconds.
    fn opens(&self, world: &World, node: NodeId, at: Time, seconds: u64) -> bool {
        let meets = |other: &Reservation| other.start < at + seconds && at < other.end;
        let shut =
            |other: &&Arc<Reservation>| !self.spares(other) && other.nodes.contains(&node) && meets(other);
        !world.cluster.reservations().any(|other| shut(&other))
    }
}

/// Plans the queue of a cluster with one partition, with jobs in the order of their numbers.
pub(crate) fn plan(world: &World, fabric: &Arc<Fabric>) -> Starts {
    let scheduler = &world.cluster.policy().scheduler;
    let all: u64 = world.cluster.jobs().iter().map(|job| job.spec.time_limit.seconds().unwrap()).sum();
    let comes = world.cluster.reservations().filter(|reservation| reservation.lead.is_none());
    let last = comes.map(|reservation| reservation.end.since(world.now)).max();
    let horizon = usize::try_from(all + last.unwrap_or(0)).unwrap() * 2 + 10;
    let mut seconds = Seconds::of(world, horizon);
    let mut starts = Starts::new();
    let mut blocked: BTreeSet<Option<Arc<str>>> = BTreeSet::new();
    for job in world.cluster.jobs().pending() {
        let plain = Plain::of(world, job, fabric);
        let places = Place::all(world, job);
        let search = |long: u64, before: Time| {
            let mut best: Option<Found> = None;
            for place in &places {
                let seat = place.bounds().map(|own| Arc::clone(&own.name));
                let last = match scheduler.backfill {
                    Backfill::Easy if blocked.contains(&seat) => 1,
                    Backfill::None if blocked.contains(&seat) => 0,
                    Backfill::Conservative | Backfill::Easy | Backfill::None => horizon / 2,
                };
                let times = (0..last).map(|after| world.now + u64::try_from(after).unwrap());
                let before = best.as_ref().map_or(before, |best| best.at);
                let found = times.take_while(|at| *at < before).find_map(|at| {
                    let lasts = place.lasts(at, long)?;
                    let mut all = (0..lasts).map(|after| at + after);
                    let enough = |then: Time| {
                        seconds.licenses(world, place.name(), then, then.since(at)) >= licenses(job)
                    };
                    if licenses(job) > 0 && !all.all(enough) {
                        return None;
                    }
                    let shares = fit(world, fabric, &seconds, &plain, place, at, lasts)?;
                    Some(Found { at, lasts, shares, seat: seat.clone(), within: place.name().cloned() })
                });
                best = found.or(best);
            }
            best
        };
        let best = earliest(&plain, world.now, search);
        let Some(Found { at, lasts, shares, seat, within }) = best else { continue };
        for (node, tasks) in &shares {
            let amount = plain.amount(full(world, *node), *tasks);
            seconds.take(*node, at, lasts, amount);
        }
        seconds.license(within.as_ref(), at, lasts, licenses(job));
        if at > world.now {
            // Without backfill, a job delays all jobs that compete for the same places.
            let all = places.iter().map(|place| place.bounds().map(|own| Arc::clone(&own.name)));
            blocked.extend(all.filter(|_| scheduler.backfill == Backfill::None).chain([seat]));
        }
        starts.insert(plain.job.id, (at, shares.into_iter().map(|(node, _)| node).collect()));
    }
    starts
}

fn full(world: &World, node: NodeId) -> Amount {
    let shape = &world.cluster.node(node).unwrap().shape;
    [u64::from(shape.cpus), shape.memory_mb, shape.gres.first().map_or(0, |gres| u64::from(gres.count))]
}

/// Earliest start with the full time. If it is later than the present, the earliest start with the shortest
/// acceptable time; if that is now, as long as possible.
fn earliest(plain: &Plain<'_>, now: Time, search: impl Fn(u64, Time) -> Option<Found>) -> Option<Found> {
    let full = search(plain.seconds, Time::MAX);
    let starts = |found: &Option<Found>| found.as_ref().is_some_and(|found| found.at == now);
    let Some(least) = plain.least.filter(|_| !starts(&full)) else { return full };
    let brief = search(least, full.as_ref().map_or(Time::MAX, |full| full.at));
    if !starts(&brief) {
        return brief.or(full);
    }
    (least..plain.seconds).rev().find_map(|seconds| search(seconds, now + 1))
}

/// Start, duration and nodes of a job, and the reservations concerned. The job blocks later jobs that are
/// bounded by `seat`, and uses the licenses of `within`.
struct Found {
    at: Time,
    lasts: u64,
    shares: Vec<(NodeId, u32)>,
    seat: Option<Arc<str>>,
    within: Option<Arc<str>>,
}

/// Nodes of a job that starts at `at`.
fn fit(
    world: &World,
    fabric: &Arc<Fabric>,
    seconds: &Seconds,
    plain: &Plain<'_>,
    place: &Place,
    at: Time,
    lasts: u64,
) -> Option<Vec<(NodeId, u32)>> {
    let positions = || (0..fabric.len()).map(|index| Pos(u32::try_from(index).unwrap()));
    let slots = |free: &dyn Fn(NodeId) -> Amount| -> Slots {
        let counts: Vec<u32> = positions()
            .map(|pos| fabric.node(pos))
            .map(|node| plain.slots(full(world, node), free(node)))
            .collect();
        if plain.tasks.is_some() || !plain.whole {
            return Slots::tasks(fabric, counts);
        }
        let open = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, _)| index);
        Slots::whole(fabric, open.collect())
    };
    let holds = |node: NodeId| place.admits(world, node, plain.seconds);
    let now = slots(&|node| {
        let opens = holds(node) && place.opens(world, node, at, lasts);
        if opens { seconds.throughout(node, at, lasts) } else { [0; 3] }
    });
    let idle = slots(&|node| if holds(node) { full(world, node) } else { [0; 3] });
    let (view, ask) = (View::new(fabric, &now, &idle), plain.ask(fabric));
    let mut placement = place::place(&view, &ask).ok()?;
    // The GPUs in use on a node are known for the present only. Without GPUs and memory, a slot of one CPU
    // leaves as many CPUs on a node as slots.
    let asks_gpus = plain.gpus > 0 || plain.gpus_of_node > 0;
    let cpus_of_slot = if plain.tasks.is_some() { plain.cpus } else { plain.on_each * plain.cpus };
    if at == seconds.now && !plain.whole && (asks_gpus || cpus_of_slot > 1 || plain.memory > 0) {
        let scarcest = if asks_gpus { 2 } else { 0 };
        let free = |pos: Pos| seconds.throughout(fabric.node(pos), at, 1)[scarcest];
        placement = place::least_left(&view, &ask, placement, &free);
    }
    Some(placement.shares.iter().map(|(pos, tasks)| (fabric.node(*pos), *tasks)).collect())
}
