//! Licenses over time: counts that belong to no node.
//!
//! A reservation keeps its licenses for the jobs in it while it is in force. These use what is reserved first, and besides
//! that what everybody may use; whoever runs in no reservation of a license has only the latter. With `total` of a
//! license, `reserved` by each reservation in force and `used` by the jobs of each, there is left at a moment
//!
//! ```text
//! for everybody      open = total - used in none - sum over reservations of max(reserved, used)
//! in a reservation   open + max(reserved - used, 0)
//! ```
//!
//! so what jobs of a reservation use is never counted twice. A reservation that is always ahead by so many seconds keeps its
//! licenses from jobs of others from that long after their start on. Whoever is over by then is none of its business, and
//! so never takes from one who starts later, and has to leave it some, what that one has been promised.

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

/// What a job wants: names and counts.
pub(crate) type WantedLicenses = [(Box<str>, u32)];

/// What jobs want that start at one moment: by realm.
pub(crate) type Asked<'a> = [(usize, &'a WantedLicenses)];

/// Whether no licenses are wanted, as by most jobs.
#[inline]
fn wants_none(asked: &Asked<'_>) -> bool {
    asked.iter().all(|(_, wanted)| wanted.is_empty())
}

/// What a request says of licenses.
pub(crate) fn wanted(spec: &JobSpec) -> &WantedLicenses {
    spec.extra.as_ref().map_or(&[], |extra| &extra.licenses)
}

/// What there is of one license at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stock {
    /// What everybody may use; below zero where more is held than there is beside what is reserved.
    open: i64,
    /// By owner: what is reserved less what its jobs use, which may be more.
    shares: SmallVec<[i64; 2]>,
}

impl Stock {
    /// Somebody takes so many, or gives them back if it is less than none.
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

    /// What one owner, or who is none, can take at most.
    fn left(&self, owner: Option<usize>) -> i64 {
        self.open + owner.and_then(|owner| self.shares.get(owner)).map_or(0, |share| (*share).max(0))
    }

    /// Whether all that is demanded at once can be taken where `barred` are kept besides.
    fn covers(&self, Demand { by, .. }: &Demand, barred: i64) -> bool {
        let open = self.open - barred;
        let share = |owner: Option<usize>| self.left(owner) - self.open;
        let all: i64 = by.iter().map(|(_, count)| count).sum();
        let reserved: i64 = by.iter().map(|(owner, _)| share(*owner)).sum();
        let beyond: i64 = by.iter().map(|(owner, count)| (count - share(*owner)).max(0)).sum();
        beyond <= open.max(0) && all <= open + reserved
    }
}

/// What is demanded of one license at once.
#[derive(Default)]
struct Demand {
    /// What every owner holds, each named once.
    by: SmallVec<[(Option<usize>, i64); 1]>,
    /// What reservations that are always ahead keep from these: whose, from how many seconds after the start on, and how
    /// many.
    ahead: SmallVec<[Ahead; 1]>,
}

/// What a reservation keeps that is always ahead: its realm, how far in seconds, and how many.
type Ahead = (usize, u64, i64);

/// What is demanded of which license.
type Demands<'a> = SmallVec<[(&'a str, &'a License, Demand); 2]>;

/// What is free of a license over time.
#[derive(Clone, Debug)]
enum FreeOverTime {
    /// Of one that no reservation has: what everybody may use.
    Open(StepFunction),
    /// Of one that reservations have: from which time on; the first step is now.
    Shared(Vec<(Time, Stock)>),
}

/// One license: how many are free over time, and how many nobody holds at this moment.
#[derive(Clone, Debug)]
struct License {
    free: FreeOverTime,
    idle: Stock,
    /// The realms of the reservations that have some.
    owners: SmallVec<[usize; 2]>,
    /// What reservations keep that are always ahead.
    ahead: Vec<Ahead>,
}

/// What a job that runs holds of a license, from now until its end.
struct Held {
    realm: usize,
    count: i64,
    end: Time,
}

/// All licenses by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Licenses {
    known: BTreeMap<Arc<str>, License>,
    /// By realm: when its jobs have to be over. Empty where nothing is reserved.
    ends: Vec<Time>,
}

/// A license of which there is too little.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) name: Box<str>,
    pub(crate) wanted: i64,
    /// What is left of it for whoever wants it.
    pub(crate) left: i64,
    /// Whether that is so only later, before whoever wants it is over.
    pub(crate) later: bool,
    /// What is kept for others.
    pub(crate) reserved: i64,
}

impl Licenses {
    /// What is left of the configured licenses by jobs that run until the given times.
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

    /// Licenses over time where no job runs.
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

    /// Whether none are configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Takes licenses for a stretch of time.
    pub(crate) fn take(&mut self, asked: (usize, &WantedLicenses), from: Time, to: Time, starts: bool) {
        self.change(asked, from, to, (1, starts));
    }

    /// Undoes a reservation.
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

    /// The first time from `from` on at which all that is wanted is free for `seconds`, or until the reservation it is
    /// wanted in is over; `None` if there is none.
    pub(crate) fn earliest(&self, asked: &Asked<'_>, from: Time, seconds: u64) -> Option<Time> {
        if wants_none(asked) {
            return Some(from);
        }
        let demands = self.demands(asked, seconds)?;
        let mut at = from;
        // Each round moves a part of the job on to the end of a step that is too small for it, so there are no more rounds
        // than steps for each part.
        'again: loop {
            for (_, license, demand) in &demands {
                let until = self.over(asked, at + seconds).max(at + 1);
                for (after, barred) in demand.parts().filter(|(after, _)| at + *after < until) {
                    let from = at + after;
                    if let Some(end) = license.end_of_last_short(demand, barred, (from, until)) {
                        // Who has to be over by then has no such part any more.
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

    /// The first license of which too few are held by nobody at this moment, or will be left by reservations before a job
    /// is over that lasts so many seconds.
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

    /// What is left of a license in a realm throughout a stretch of time; nothing of one that is not known.
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

    /// What is wanted of each license. `None` if one is not known.
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

    /// When whoever is to end at a time has to be over.
    fn over(&self, asked: &Asked<'_>, end: Time) -> Time {
        let over = |realm: usize| self.ends.get(realm).map_or(end, |own| end.min(*own));
        // Of several the last counts.
        asked.iter().map(|(realm, _)| over(*realm)).max().unwrap_or(end)
    }
}

impl License {
    /// Keeps so many for the jobs of a realm while it is in force.
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

    /// Takes what jobs hold from now on, all at once: one after another they would change every step before their end.
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
        // From the last step to the first more and more jobs hold something.
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

    /// When the last step ends of those that touch a stretch of time and have too little where `barred` are kept besides.
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

    /// The steps that touch a stretch of time, of a license that reservations have.
    fn shared(&self, from: Time, until: Time) -> &[(Time, Stock)] {
        match &self.free {
            FreeOverTime::Open(_) => &[],
            FreeOverTime::Shared(steps) => &steps[touched(steps, from, until)],
        }
    }

    /// The owner that the jobs of a realm use the reserved ones of, if it has any.
    fn owner(&self, realm: usize) -> Option<usize> {
        self.owners.iter().position(|owner| *owner == realm)
    }

    /// What reservations that are always ahead keep from a job of a realm that runs so many seconds.
    fn bars(&self, realm: usize, seconds: u64) -> impl Iterator<Item = Ahead> {
        let bars = move |(own, lead, _): &&Ahead| *own != realm && seconds > *lead;
        self.ahead.iter().filter(bars).copied()
    }
}

impl Demand {
    /// What all hold together.
    fn sum(&self) -> i64 {
        self.by.iter().map(|(_, count)| count).sum()
    }

    /// From how many seconds after the start on how many are kept besides: none from the start on, and more from each
    /// reservation on that is always ahead.
    fn parts(&self) -> impl Iterator<Item = (u64, i64)> {
        let leads = self.ahead.iter().map(|(_, lead, _)| *lead);
        std::iter::once(0).chain(leads).map(|after| {
            let kept = self.ahead.iter().filter(|(_, lead, _)| *lead <= after);
            (after, kept.map(|(.., count)| count).sum())
        })
    }

    /// What others have reserved and not in use, with what is barred.
    fn reserved(&self, stock: &Stock, barred: i64) -> i64 {
        let others = stock.shares.iter().enumerate();
        let others = others.filter(|(owner, _)| !self.by.iter().any(|(own, _)| *own == Some(*owner)));
        others.map(|(_, share)| (*share).max(0)).sum::<i64>() + barred
    }

    /// Whether there would be enough if others had reserved nothing.
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

/// Changes what there is during a stretch of time.
fn during(steps: &mut Vec<(Time, Stock)>, from: Time, to: Time, change: impl Fn(&mut Stock)) {
    split(steps, from);
    split(steps, to);
    let [first, behind] = [from, to].map(|time| steps.partition_point(|(at, _)| *at < time));
    steps[first..behind.max(first)].iter_mut().for_each(|(_, stock)| change(stock));
}

/// The numbers of the steps that touch a stretch of time.
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

    /// Licenses `a` as often as said, and reservations from and to a time with so many of them.
    fn licenses(total: u32, reserved: &[(i64, i64, u32)]) -> Licenses {
        let made = reserved.iter().map(|(from, to, count)| Arc::new(licensed(*from, *to, *count)));
        let realms = Realms::new(&made.collect(), Time(0));
        Licenses::unused(&[("a".into(), total)], &realms, Time(0))
    }

    fn want(count: u32) -> [(Box<str>, u32); 1] {
        [(Box::from("a"), count)]
    }

    /// When so many are there for jobs of a realm, from a time on for so many seconds.
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
        // Four, of which two are reserved from 10 to 20.
        let mut licenses = licenses(4, &[(10, 20, 2)]);
        for (realm, count, seconds, start) in
            [(0, 3, 10, 0), (0, 3, 11, 20), (0, 2, 50, 0), (1, 4, 10, 0), (1, 3, 50, 0)]
        {
            let found = earliest(&licenses, realm, count, 0, seconds);
            assert_eq!(found, Some(start), "{realm} {count} {seconds}");
        }
        let lack = Lack { name: "a".into(), wanted: 3, left: 2, later: true, reserved: 2 };
        assert_eq!(licenses.lacking(&[(0, &want(3))], Time(0), 11), Some(lack));
        // Jobs of the reservation use its own first, and are not counted twice.
        licenses.take((1, &want(1)), Time(10), Time(20), false);
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(10));
        assert_eq!(earliest(&licenses, 1, 3, 10, 5), Some(10));
        licenses.take((1, &want(2)), Time(10), Time(20), false);
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(20));
        assert_eq!(earliest(&licenses, 0, 1, 10, 5), Some(10));
        licenses.give_back((1, &want(2)), Time(10), Time(20));
        assert_eq!(earliest(&licenses, 0, 2, 10, 5), Some(10));
        // Two that start together share what there is for each.
        let (three, one, two) = (want(3), want(1), want(2));
        assert_eq!(licenses.earliest(&[(1, &three), (0, &one)], Time(10), 5), Some(Time(20)));
        assert_eq!(licenses.earliest(&[(1, &two), (0, &one)], Time(10), 5), Some(Time(10)));
    }

    /// Jobs that run are taken all at once, and leave what they would leave one after another.
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
        // Two are left from 10 on for who is planned then and long, and whoever is over before that counts may have them.
        licenses.take((0, &want(2)), Time(0), Time(14), false);
        for (count, seconds, start) in [(2, 10, 0), (3, 10, 14), (2, 11, 4), (1, 11, 4)] {
            assert_eq!(earliest(&licenses, 0, count, 0, seconds), Some(start), "{count} for {seconds}");
        }
    }

    proptest! {
        /// What is left at every moment is what the formula says, however things were taken and given back.
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
                        // A realm that there is not is everybody's.
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
