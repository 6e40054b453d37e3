//! Licenses over time: counts that belong to no node.
//!
//! A reservation keeps its licenses for its jobs while it is in force. These jobs use the reserved licenses
//! first, then the open ones; a job in no reservation of a license uses only the open ones. With `total`
//! licenses, `reserved` by each reservation in force and `used` by its jobs, the following is left at a
//! moment:
//!
//! ```text
//! for any job        open = total - used in none - sum over reservations of max(reserved, used)
//! in a reservation   open + max(reserved - used, 0)
//! ```
//!
//! So licenses used by jobs of a reservation are never counted twice. A floating reservation (`TIME_FLOAT`)
//! keeps its licenses from a job of others from its lead after the job's start on. A job that ends by then is
//! not affected. So such a job never takes a license that was promised to a job which starts later and has to
//! leave some.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::job::JobSpec;
use crate::text::time::Time;

use super::realm::Realms;
use super::step_function::StepFunction;

/// The licenses that a job wants: names and counts.
pub(crate) type WantedLicenses = [(Box<str>, u32)];

/// The licenses that are wanted by jobs which start at one moment: pairs of a realm and the licenses.
pub(crate) type Asked<'a> = [(usize, &'a WantedLicenses)];

/// True if no licenses are wanted, as by most jobs.
#[inline]
fn wants_none(asked: &Asked<'_>) -> bool {
    asked.iter().all(|(_, wanted)| wanted.is_empty())
}

/// The licenses in a request.
pub(crate) fn wanted(spec: &JobSpec) -> &WantedLicenses {
    spec.extra.as_ref().map_or(&[], |extra| &extra.licenses)
}

/// The state of one license at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stock {
    /// Number of licenses that any job may use; negative if more are held than are left beside reserved ones.
    open: i64,
    /// For each owner, the reserved number less the number that its jobs use; may be negative.
    shares: SmallVec<[i64; 2]>,
}

impl Stock {
    /// Takes `count` licenses for an owner or for none; a negative count returns them.
    fn take(&mut self, owner: Option<usize>, count: i64) {
        let Some(share) = owner.and_then(|owner| self.shares.get_mut(owner)) else {
            self.open -= count;
            return;
        };
        let beyond = |share: i64| (-share).max(0);
        let before = beyond(*share);
        *share -= count;
        self.open -= beyond(*share) - before;
    }

    /// The most licenses that an owner, or a job without one, can take.
    fn left(&self, owner: Option<usize>) -> i64 {
        self.open + owner.and_then(|owner| self.shares.get(owner)).map_or(0, |share| (*share).max(0))
    }

    /// True if everything in the demand can be taken at once while `barred` licenses are kept besides.
    fn covers(&self, Demand { by, .. }: &Demand, barred: i64) -> bool {
        let open = self.open - barred;
        let share = |owner: Option<usize>| self.left(owner) - self.open;
        let all: i64 = by.iter().map(|(_, count)| count).sum();
        let reserved: i64 = by.iter().map(|(owner, _)| share(*owner)).sum();
        let beyond: i64 = by.iter().map(|(owner, count)| (count - share(*owner)).max(0)).sum();
        beyond <= open.max(0) && all <= open + reserved
    }
}

/// The demand for one license at one moment.
#[derive(Default)]
struct Demand {
    /// The number that each owner holds, each owner once.
    by: SmallVec<[(Option<usize>, i64); 1]>,
    /// The licenses that floating reservations keep from these jobs.
    ahead: SmallVec<[Ahead; 1]>,
}

/// The licenses that a floating reservation keeps: its realm, its lead in seconds, and their number.
type Ahead = (usize, u64, i64);

/// The demand for each license.
type Demands<'a> = SmallVec<[(&'a str, &'a License, Demand); 2]>;

/// The free number of a license over time.
#[derive(Clone, Debug)]
enum FreeOverTime {
    /// The free number of a license without reservations.
    Open(StepFunction),
    /// The steps of a license with reservations: the time from which each state holds; the first step is now.
    Shared(Vec<(Time, Stock)>),
}

/// One license: the free number over time, and the state at the current moment.
#[derive(Clone, Debug)]
struct License {
    free: FreeOverTime,
    idle: Stock,
    /// The realms of the reservations that keep some of it.
    owners: SmallVec<[usize; 2]>,
    /// The licenses that floating reservations keep.
    ahead: Vec<Ahead>,
}

/// The licenses that a running job holds, from now until its end.
struct Held {
    realm: usize,
    count: i64,
    end: Time,
}

/// All licenses by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Licenses {
    known: BTreeMap<Arc<str>, License>,
    /// For each realm, the time by which its jobs must end. Empty if there are no reservations.
    ends: Vec<Time>,
}

/// A license of which there are too few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) name: Box<str>,
    pub(crate) wanted: i64,
    /// Number of licenses that are left for the job.
    pub(crate) left: i64,
    /// True if the license is lacking only later, before the job ends.
    pub(crate) later: bool,
    /// Number of licenses that are kept for others.
    pub(crate) reserved: i64,
}

impl Licenses {
    /// The free licenses beside running jobs, which hold theirs until the given times.
    pub(crate) fn new<'a>(
        cluster: &'a Cluster,
        realms: &Realms,
        running: impl Iterator<Item = (Time, JobId)> + 'a,
        now: Time,
    ) -> Self {
        let mut licenses = Self::unused(&cluster.policy().licenses, realms, now);
        if licenses.is_empty() {
            return licenses;
        }
        let mut held: BTreeMap<&str, Vec<Held>> = BTreeMap::new();
        for (end, job) in running {
            let Some(job) = cluster.job(job).filter(|job| !wanted(&job.spec).is_empty()) else { continue };
            let within = job.phase.alloc().and_then(|alloc| alloc.reservation.as_deref());
            let realm = realms.within(within);
            for (name, count) in wanted(&job.spec) {
                held.entry(name).or_default().push(Held { realm, count: (*count).into(), end });
            }
        }
        for (name, held) in held {
            if let Some(license) = licenses.known.get_mut(name) {
                license.hold(held, now);
            }
        }
        licenses
    }

    /// The free licenses while no job runs.
    pub(crate) fn unused(configured: &[(Arc<str>, u32)], realms: &Realms, now: Time) -> Self {
        let license = |count: &u32| License {
            free: FreeOverTime::Open(StepFunction::new((*count).into())),
            idle: Stock { open: (*count).into(), ..Stock::default() },
            owners: SmallVec::new(),
            ahead: Vec::new(),
        };
        let known = configured.iter().map(|(name, count)| (Arc::clone(name), license(count))).collect();
        let ends = |realm| realms.end(realm).unwrap_or(Time::MAX);
        let count = if realms.is_single() { 0 } else { realms.count() };
        let mut licenses = Self { known, ends: (0..count).map(ends).collect() };
        for (realm, reservation, windows) in realms.licensed() {
            for (name, count) in &reservation.licenses {
                let Some(license) = licenses.known.get_mut(&**name) else { continue };
                license.keep(realm, i64::from(*count), windows, now);
                license.ahead.extend(reservation.lead.map(|lead| (realm, lead, i64::from(*count))));
            }
        }
        licenses
    }

    /// True if no licenses are configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Takes licenses for a stretch of time.
    pub(crate) fn take(&mut self, asked: (usize, &WantedLicenses), from: Time, to: Time, starts: bool) {
        self.change(asked, from, to, (1, starts));
    }

    /// Returns licenses that were taken for a reservation.
    pub(crate) fn give_back(&mut self, asked: (usize, &WantedLicenses), from: Time, to: Time) {
        self.change(asked, from, to, (-1, false));
    }

    fn change(
        &mut self,
        (realm, wanted): (usize, &WantedLicenses),
        from: Time,
        to: Time,
        (sign, starts): (i64, bool),
    ) {
        for (name, count) in wanted {
            let Some(license) = self.known.get_mut(&**name) else { continue };
            let (owner, count) = (license.owner(realm), sign * i64::from(*count));
            match &mut license.free {
                FreeOverTime::Open(free) => free.add(from, to, -count),
                FreeOverTime::Shared(steps) => during(steps, from, to, |stock| stock.take(owner, count)),
            }
            if starts {
                license.idle.take(owner, count);
            }
        }
    }

    /// The first time from `from` on at which all licenses are free for `seconds`, or until the end of the
    /// reservation that they are wanted in; `None` if there is none.
    pub(crate) fn earliest(&self, asked: &Asked<'_>, from: Time, seconds: u64) -> Option<Time> {
        if wants_none(asked) {
            return Some(from);
        }
        let demands = self.demands(asked, seconds)?;
        let mut at = from;
        // Each round moves one part of the demand to the end of a step that is too small for it. So there are
        // at most as many rounds as steps for each part.
        'again: loop {
            for (_, license, demand) in &demands {
                let until = self.over(asked, at + seconds).max(at + 1);
                for (after, barred) in demand.parts().filter(|(after, _)| at + *after < until) {
                    let from = at + after;
                    if let Some(end) = license.end_of_last_short(demand, barred, (from, until)) {
                        // A job that has to end by then no longer has such a part.
                        let end = if after > 0 { end.min(self.over(asked, Time::MAX)) } else { end };
                        if end.is_never() {
                            return None;
                        }
                        at = at + end.since(from);
                        continue 'again;
                    }
                }
            }
            return Some(at);
        }
    }

    /// The first license of which too few are free at this moment, or too few are left by reservations before
    /// a job of `seconds` ends.
    pub(crate) fn lacking(&self, asked: &Asked<'_>, now: Time, seconds: u64) -> Option<Lack> {
        if wants_none(asked) {
            return None;
        }
        let Some(demands) = self.demands(asked, seconds) else {
            let unknown = |(name, _): &&(Box<str>, u32)| !self.known.contains_key(&**name);
            let (name, count) = asked.iter().flat_map(|(_, wanted)| *wanted).find(unknown)?;
            return Some(Lack { name: name.clone(), wanted: i64::from(*count), ..Lack::default() });
        };
        let until = self.over(asked, now + seconds);
        demands.iter().find_map(|(name, license, demand)| {
            let name = || Box::from(*name);
            if !license.idle.covers(demand, 0) {
                return Some(demand.lack(name(), &license.idle, (0, false)));
            }
            let mut parts =
                demand.parts().filter(|(after, _)| !license.owners.is_empty() && now + *after < until);
            parts.find_map(|(after, barred)| {
                let mut later = license.shared(now + after, until).iter().map(|(_, stock)| stock);
                let lacks = |stock: &&Stock| {
                    !stock.covers(demand, barred) && demand.lacks_only_reserved(stock, barred)
                };
                Some(demand.lack(name(), later.find(lacks)?, (barred, true)))
            })
        })
    }

    /// The smallest number of a license that is free in a realm during a stretch of time; 0 for an unknown
    /// license.
    pub(crate) fn least(&self, realm: usize, name: &str, from: Time, to: Time) -> i64 {
        let Some(license) = self.known.get(name) else { return 0 };
        match &license.free {
            FreeOverTime::Open(free) => free.least(from, to),
            FreeOverTime::Shared(_) => {
                let steps = license.shared(from, to).iter();
                steps.map(|(_, stock)| stock.left(license.owner(realm))).min().unwrap_or(0)
            }
        }
    }

    /// The demand for each license; `None` if one is unknown.
    fn demands<'a>(&'a self, asked: &Asked<'a>, seconds: u64) -> Option<Demands<'a>> {
        let mut demands = Demands::new();
        for (realm, wanted) in asked {
            for (name, count) in *wanted {
                let license = self.known.get(&**name)?;
                let (owner, count) = (license.owner(*realm), i64::from(*count));
                let at = demands.iter().position(|(known, ..)| *known == &**name).unwrap_or_else(|| {
                    demands.push((name, license, Demand::default()));
                    demands.len() - 1
                });
                let Demand { by, ahead } = &mut demands[at].2;
                for bar in license.bars(*realm, seconds) {
                    if !ahead.contains(&bar) {
                        ahead.push(bar);
                    }
                }
                match by.iter_mut().find(|(other, _)| *other == owner) {
                    Some((_, sum)) => *sum += count,
                    None => by.push((owner, count)),
                }
            }
        }
        Some(demands)
    }

    /// The time by which jobs that are to end at `end` must end in their realms.
    fn over(&self, asked: &Asked<'_>, end: Time) -> Time {
        let over = |realm: usize| self.ends.get(realm).map_or(end, |own| end.min(*own));
        // Of several realms the latest end counts.
        asked.iter().map(|(realm, _)| over(*realm)).max().unwrap_or(end)
    }
}

impl License {
    /// Keeps `count` licenses for the jobs of a realm while it is in force.
    fn keep(&mut self, realm: usize, count: i64, windows: &[(Time, Time)], now: Time) {
        if matches!(self.free, FreeOverTime::Open(_)) {
            self.free = FreeOverTime::Shared(vec![(now, self.idle.clone())]);
        }
        let FreeOverTime::Shared(steps) = &mut self.free else { return };
        self.owners.push(realm);
        self.idle.shares.push(0);
        steps.iter_mut().for_each(|(_, stock)| stock.shares.push(0));
        let owner = self.owners.len() - 1;
        let reserve = |stock: &mut Stock| {
            stock.shares[owner] += count;
            stock.open -= count;
        };
        for (from, to) in windows {
            during(steps, (*from).max(now), *to, reserve);
        }
        if windows.iter().any(|(from, to)| *from <= now && now < *to) {
            reserve(&mut self.idle);
        }
    }

    /// Takes what jobs hold from now on, all at once: one at a time they would change every step before their
    /// end.
    fn hold(&mut self, mut held: Vec<Held>, now: Time) {
        let owners = self.owners.clone();
        let owner = |held: &Held| owners.iter().position(|owner| *owner == held.realm);
        held.iter().for_each(|held| self.idle.take(owner(held), held.count));
        let steps = match &mut self.free {
            FreeOverTime::Open(free) => {
                return held.iter().for_each(|held| free.add(now, held.end, -held.count));
            }
            FreeOverTime::Shared(steps) => steps,
        };
        held.retain(|held| held.end > now);
        held.sort_unstable_by_key(|held| held.end);
        let mut times: Vec<Time> = steps.iter().map(|(at, _)| *at).collect();
        times.extend(held.iter().map(|held| held.end).filter(|end| !end.is_never()));
        times.sort_unstable();
        times.dedup();
        // From the last step to the first, more and more jobs hold licenses.
        let mut all = Vec::with_capacity(times.len());
        let mut taken = vec![0; owners.len() + 1];
        for at in times.into_iter().rev() {
            while let Some(last) = held.pop_if(|last| last.end > at) {
                taken[owner(&last).map_or(0, |owner| owner + 1)] += last.count;
            }
            let mut stock = steps[touched(steps, at, at).start].1.clone();
            for (owner, count) in taken.iter().enumerate() {
                stock.take(owner.checked_sub(1), *count);
            }
            all.push((at, stock));
        }
        all.reverse();
        *steps = all;
    }

    /// The end of the last step in a stretch of time that has too few licenses while `barred` are kept
    /// besides.
    fn end_of_last_short(&self, demand: &Demand, barred: i64, (from, until): (Time, Time)) -> Option<Time> {
        match &self.free {
            FreeOverTime::Open(free) => free.end_of_last_below(demand.sum() + barred, from, until),
            FreeOverTime::Shared(steps) => {
                let touched = touched(steps, from, until);
                let is_short = |at: &usize| !steps[*at].1.covers(demand, barred);
                let short = touched.rev().find(is_short)?;
                Some(steps.get(short + 1).map_or(Time::MAX, |(end, _)| *end))
            }
        }
    }

    /// The steps of a license with reservations that touch a stretch of time.
    fn shared(&self, from: Time, until: Time) -> &[(Time, Stock)] {
        match &self.free {
            FreeOverTime::Open(_) => &[],
            FreeOverTime::Shared(steps) => &steps[touched(steps, from, until)],
        }
    }

    /// The owner whose reserved licenses the jobs of a realm use, if any.
    fn owner(&self, realm: usize) -> Option<usize> {
        self.owners.iter().position(|owner| *owner == realm)
    }

    /// The licenses that floating reservations keep from a job of a realm that runs for `seconds`.
    fn bars(&self, realm: usize, seconds: u64) -> impl Iterator<Item = Ahead> {
        let bars = move |(own, lead, _): &&Ahead| *own != realm && seconds > *lead;
        self.ahead.iter().filter(bars).copied()
    }
}

impl Demand {
    /// Number of licenses that all hold together.
    fn sum(&self) -> i64 {
        self.by.iter().map(|(_, count)| count).sum()
    }

    /// The parts of the demand: seconds after the start, and the number that floating reservations keep from
    /// then on.
    fn parts(&self) -> impl Iterator<Item = (u64, i64)> {
        let leads = self.ahead.iter().map(|(_, lead, _)| *lead);
        std::iter::once(0).chain(leads).map(|after| {
            let kept = self.ahead.iter().filter(|(_, lead, _)| *lead <= after);
            (after, kept.map(|(.., count)| count).sum())
        })
    }

    /// Number of licenses that others have reserved and do not use, plus the barred ones.
    fn reserved(&self, stock: &Stock, barred: i64) -> i64 {
        let others = stock.shares.iter().enumerate();
        let others = others.filter(|(owner, _)| !self.by.iter().any(|(own, _)| *own == Some(*owner)));
        others.map(|(_, share)| (*share).max(0)).sum::<i64>() + barred
    }

    /// True if there would be enough licenses without the reservations of others.
    fn lacks_only_reserved(&self, stock: &Stock, barred: i64) -> bool {
        let open = stock.open + self.reserved(stock, barred);
        Stock { open, ..stock.clone() }.covers(self, barred)
    }

    fn lack(&self, name: Box<str>, stock: &Stock, (barred, later): (i64, bool)) -> Lack {
        let share = |owner: Option<usize>| stock.left(owner) - stock.open;
        let left = stock.open - barred + self.by.iter().map(|(owner, _)| share(*owner)).sum::<i64>();
        let wanted = self.sum();
        Lack { name, wanted, left: left.max(0), later, reserved: self.reserved(stock, barred) }
    }
}

/// Changes the state during a stretch of time.
fn during(steps: &mut Vec<(Time, Stock)>, from: Time, to: Time, change: impl Fn(&mut Stock)) {
    split(steps, from);
    split(steps, to);
    let [first, behind] = [from, to].map(|time| steps.partition_point(|(at, _)| *at < time));
    steps[first..behind.max(first)].iter_mut().for_each(|(_, stock)| change(stock));
}

/// The indices of the steps that touch a stretch of time.
fn touched(steps: &[(Time, Stock)], from: Time, until: Time) -> Range<usize> {
    let first = steps.partition_point(|(time, _)| *time <= from).saturating_sub(1);
    first..steps.partition_point(|(time, _)| *time < until).max(first)
}

/// Makes a step begin at `at`.
fn split(steps: &mut Vec<(Time, Stock)>, at: Time) {
    let next = steps.partition_point(|(time, _)| *time <= at);
    if let Some((time, stock)) = next.checked_sub(1).map(|before| &steps[before])
        && *time < at
        && !at.is_never()
    {
        let stock = stock.clone();
        steps.insert(next, (at, stock));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::reservation::tests::licensed;

    const EVER: Time = Time(30);

    /// `total` licenses `a`, with reservations given as start, end and number.
    fn licenses(total: u32, reserved: &[(i64, i64, u32)]) -> Licenses {
        let made = reserved.iter().map(|(from, to, count)| Arc::new(licensed(*from, *to, *count)));
        let realms = Realms::new(&made.collect(), Time(0));
        Licenses::unused(&[("a".into(), total)], &realms, Time(0))
    }

    fn want(count: u32) -> [(Box<str>, u32); 1] {
        [(Box::from("a"), count)]
    }

    /// The earliest time from `from` on at which `count` licenses are free for jobs of a realm for `seconds`.
    fn earliest(licenses: &Licenses, realm: usize, count: u32, from: i64, seconds: u64) -> Option<i64> {
        licenses.earliest(&[(realm, &want(count))], Time(from), seconds).map(|at| at.0)
    }

    #[test]
    fn the_earliest_time_is_free_throughout() {
        let mut licenses = licenses(4, &[]);
        licenses.take((0, &want(3)), Time(0), Time(10), true);
        licenses.take((0, &want(2)), Time(20), Time(30), false);
        for (count, seconds, start) in [
            (1, 5, Some(0)),
            (2, 5, Some(10)),
            (2, 11, Some(10)),
            (3, 10, Some(10)),
            (3, 11, Some(30)),
            (5, 1, None),
        ] {
            assert_eq!(earliest(&licenses, 0, count, 0, seconds), start, "{count} for {seconds}");
        }
        let lack = Lack { name: "a".into(), wanted: 2, left: 1, later: false, reserved: 0 };
        assert_eq!(licenses.lacking(&[(0, &want(2))], Time(0), 5), Some(lack));
        licenses.give_back((0, &want(2)), Time(20), Time(30));
        assert_eq!(earliest(&licenses, 0, 3, 0, 11), Some(10));
        assert_eq!(licenses.earliest(&[(0, &[("b".into(), 1)])], Time(0), 1), None);
    }

    #[test]
    fn what_is_reserved_is_left_to_the_jobs_of_the_reservation() {
        // Four licenses, of which two are reserved from 10 to 20.
        let mut licenses = licenses(4, &[(10, 20, 2)]);
        for (realm, count, seconds, start) in
            [(0, 3, 10, 0), (0, 3, 11, 20), (0, 2, 50, 0), (1, 4, 10, 0), (1, 3, 50, 0)]
        {
            let found = earliest(&licenses, realm, count, 0, seconds);
            assert_eq!(found, Some(start), "{realm} {count} {seconds}");
        }
        let lack = Lack { name: "a".into(), wanted: 3, left: 2, later: true, reserved: 2 };
        assert_eq!(licenses.lacking(&[(0, &want(3))], Time(0), 11), Some(lack));
        // Jobs of the reservation use its licenses first, and are not counted twice.
        licenses.take((1, &want(1)), Time(10), Time(20), false);
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(10));
        assert_eq!(earliest(&licenses, 1, 3, 10, 5), Some(10));
        licenses.take((1, &want(2)), Time(10), Time(20), false);
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(20));
        assert_eq!(earliest(&licenses, 0, 1, 10, 5), Some(10));
        licenses.give_back((1, &want(2)), Time(10), Time(20));
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(10));
        // Two jobs that start together share the licenses of each realm.
        let (three, one, two) = (want(3), want(1), want(2));
        assert_eq!(licenses.earliest(&[(1, &three), (0, &one)], Time(10), 5), Some(Time(20)));
        assert_eq!(licenses.earliest(&[(1, &two), (0, &one)], Time(10), 5), Some(Time(10)));
    }

    /// Running jobs that are taken all at once leave what they would leave one after another.
    #[test]
    fn what_is_held_is_what_is_taken_one_by_one() {
        let jobs = [(0, 1, 5), (1, 2, 12), (1, 1, 30), (0, 1, 15), (2, 1, 5), (1, 1, 0)];
        let reserved = [(10, 20, 2), (3, 25, 1)];
        let (mut at_once, mut one_by_one) = (licenses(9, &reserved), licenses(9, &reserved));
        for (realm, count, end) in jobs {
            one_by_one.take((realm, &want(count)), Time(0), Time(end), true);
        }
        let held = jobs.map(|(realm, count, end)| Held { realm, count: count.into(), end: Time(end) });
        let license = at_once.known.get_mut("a").expect("there is one");
        license.hold(held.into(), Time(0));
        assert_eq!(license.idle, one_by_one.known["a"].idle);
        for (realm, at) in (0..3).flat_map(|realm| (0..EVER.0).map(move |at| (realm, at))) {
            let left = |licenses: &Licenses| licenses.least(realm, "a", Time(at), Time(at + 1));
            assert_eq!(left(&at_once), left(&one_by_one), "{realm} at {at}");
        }
    }

    #[test]
    fn one_that_is_always_ahead_is_kept_from_what_runs_longer() {
        let made = Arc::new(licensed(10, 20, 2).floating(Time(0)));
        let mut licenses =
            Licenses::unused(&[("a".into(), 4)], &Realms::new(&Arc::from([made]), Time(0)), Time(0));
        for (realm, count, seconds, start) in
            [(0, 4, 10, Some(0)), (0, 3, 11, None), (0, 2, 11, Some(0)), (1, 4, 11, Some(0))]
        {
            assert_eq!(earliest(&licenses, realm, count, 0, seconds), start, "{realm} {count} {seconds}");
        }
        let lack = Lack { name: "a".into(), wanted: 3, left: 2, later: true, reserved: 2 };
        assert_eq!(licenses.lacking(&[(0, &want(3))], Time(0), 11), Some(lack));
        // Two licenses are left from 10 on for a long job that is planned then; a job that ends before may
        // have them all.
        licenses.take((0, &want(2)), Time(0), Time(14), false);
        for (count, seconds, start) in [(2, 10, 0), (3, 10, 14), (2, 11, 4), (1, 11, 4)] {
            assert_eq!(earliest(&licenses, 0, count, 0, seconds), Some(start), "{count} for {seconds}");
        }
    }

    proptest! {
        /// The free number at every moment follows the formula, whatever was taken and returned.
        #[test]
        fn what_is_left_is_what_nobody_uses_or_keeps(
            total in 0_u32..9,
            reserved in prop::collection::vec((0_i64..20, 1_i64..20, 0_u32..4), 0..3),
            jobs in prop::collection::vec((0_usize..4, 0_i64..25, 1_i64..20, 1_u32..4, any::<bool>()), 0..8),
        ) {
            let reserved: Vec<(i64, i64, u32)> =
                reserved.into_iter().map(|(from, lasts, count)| (from, from + lasts, count)).collect();
            let mut licenses = licenses(total, &reserved);
            let span = |from: i64, lasts: i64| (Time(from), Time(from + lasts).min(EVER));
            for (realm, from, lasts, count, _) in &jobs {
                let (from, to) = span(*from, *lasts);
                licenses.take((*realm, &want(*count)), from, to, false);
            }
            for (realm, from, lasts, count, stays) in &jobs {
                let (from, to) = span(*from, *lasts);
                if !stays {
                    licenses.give_back((*realm, &want(*count)), from, to);
                }
            }
            for at in 0..EVER.0 {
                let used = |of: usize| -> i64 {
                    let here = jobs.iter().filter(|(realm, from, lasts, _, stays)| {
                        let (from, to) = span(*from, *lasts);
                        // A realm that does not exist counts as the open one.
                        let realm = if *realm > reserved.len() { 0 } else { *realm };
                        realm == of && *stays && from.0 <= at && at < to.0
                    });
                    here.map(|(.., count, _)| i64::from(*count)).sum()
                };
                let kept = |of: usize| {
                    let (from, to, count) = reserved[of - 1];
                    if from <= at && at < to { i64::from(count) } else { 0 }
                };
                let all = 1..=reserved.len();
                let open = i64::from(total) - used(0) - all.clone().map(|of| used(of).max(kept(of))).sum::<i64>();
                prop_assert_eq!(licenses.least(0, "a", Time(at), Time(at + 1)), open, "at {}", at);
                for of in all {
                    let left = open + (kept(of) - used(of)).max(0);
                    prop_assert_eq!(licenses.least(of, "a", Time(at), Time(at + 1)), left, "in {} at {}", of, at);
                }
            }
        }
    }
}
