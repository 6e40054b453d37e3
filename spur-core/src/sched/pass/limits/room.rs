//! The amounts that limits leave, now and at later times, beside the jobs that a pass starts and plans.
//!
//! Each limit that counts running jobs has a counter: the sum now, and the sum of the jobs that are planned
//! for later. While both together leave enough, nothing else is computed. Otherwise the amount over time, a
//! step function of the ends of running jobs and of planned jobs, is computed once and then kept up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::counters::Rest;
use crate::cluster::limits::{Asked, Judge, Rule, Rules, Stop, Sums};
use crate::cluster::tres::{Amounts, Held};
use crate::cluster::usage::Usage;
use crate::cluster::{Counters, Holder};
use crate::id::JobId;
use crate::model::accounts::LimitKind;
use crate::model::accounts::usage::{Amount, Rate};
use crate::sched::planned_starts::Turn;
use crate::sched::queue::asleep::Lane;
use crate::sched::timeline::step_function::StepFunction;
use crate::text::time::Time;
use crate::text::tres::TresKind;

/// The unit of a limit: `None` for jobs, or a resource.
type Counts = Option<TresKind>;

/// A job that a pass starts or plans for later, as limits count it.
#[derive(Clone, Debug)]
pub(super) struct Booking {
    pub(super) rules: Arc<Rules>,
    /// The resources that the job holds.
    pub(super) amounts: Arc<Amounts>,
    pub(super) from: Time,
    pub(super) to: Time,
    /// The seconds for which the job may hold its resources, as limits of resources times minutes count them.
    pub(super) seconds: u64,
}

/// The jobs that are planned to start later, by their turns. Turns are also kept by the address of the limits
/// that apply to the jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bookings {
    by_turn: BTreeMap<Turn, Booking>,
    by_rules: BTreeMap<usize, (Arc<Rules>, BTreeSet<Turn>)>,
}

/// The counters of the limits that apply to jobs.
#[derive(Debug)]
struct CountersOf {
    /// The limits, which are kept so that no other limits get their address.
    rules: Arc<Rules>,
    /// The counter of each limit of a start.
    start: Arc<[usize]>,
    /// The counters that the jobs count for, among the first `among` counters.
    all: Arc<[usize]>,
    among: usize,
}

/// The sums of one holder's jobs, or of one resource that they hold.
#[derive(Debug)]
struct Counter {
    counts: Counts,
    /// Number of running jobs, or the amount that they hold in units of 2^-32, including the jobs that the
    /// pass starts.
    running: u128,
    /// Number, or amount, of the jobs that are planned for later, in the same units.
    booked: u128,
    /// The amount that the jobs may use that the pass starts.
    started: Amount,
    /// The amount that the jobs may use that are planned for later.
    planned: Amount,
    /// The amount that running jobs may still use, and the past usage; `None` until a limit needs them.
    used: Option<(Amount, Amount)>,
    /// The amount in use over time, as negative numbers; `None` until `running` and `booked` together leave
    /// too little.
    over_time: Option<StepFunction>,
}

impl Counter {
    /// The amount that a job with the resources `held` counts.
    fn amount(&self, held: &Held) -> u128 {
        held.counted(self.counts.as_ref())
    }

    /// The usage of a job that holds an amount of the resource for `seconds`; zero for a counter of jobs.
    fn use_of(&self, amount: u128, seconds: u64) -> Amount {
        if self.counts.is_some() { Amount::of(Rate(amount), seconds) } else { Amount::ZERO }
    }

    /// An amount in the units of the step function: jobs, or 2^-16 of a resource, rounded down.
    fn steps(&self, amount: u128) -> i64 {
        let amount = if self.counts.is_some() { amount >> 16 } else { amount };
        i64::try_from(amount).unwrap_or(i64::MAX >> 8).min(i64::MAX >> 8)
    }

    /// The largest amount that a limit allows, in the units of [`Counter::running`].
    fn most(&self, rule: &Rule) -> u128 {
        self.counts.as_ref().map_or(u128::from(rule.most), |_| Rate::whole(rule.most).0)
    }

    fn amount_of_steps(&self, steps: i64) -> u128 {
        let amount = u128::try_from(steps).unwrap_or(0);
        if self.counts.is_some() { amount << 16 } else { amount }
    }

    fn occupy(&mut self, from: Time, to: Time, amount: u128, takes: bool) {
        let steps = self.steps(amount);
        if let Some(over_time) = &mut self.over_time {
            over_time.add(from, to, if takes { -steps } else { steps });
        }
    }

    fn start(&mut self, start: &Booking) {
        let amount = self.amount(&start.amounts.all);
        let promise = self.use_of(amount, start.seconds);
        self.running += amount;
        self.started = self.started.plus(promise);
        self.occupy(start.from, start.to, amount, true);
    }

    fn book(&mut self, booking: &Booking, takes: bool) {
        let amount = self.amount(&booking.amounts.all);
        let promise = self.use_of(amount, booking.seconds);
        if takes {
            self.booked += amount;
            self.planned = self.planned.plus(promise);
        } else {
            self.booked = self.booked.saturating_sub(amount);
            self.planned = self.planned.minus(promise);
        }
        self.occupy(booking.from, booking.to, amount, takes);
    }
}

/// One job that is checked against limits, and the time at which it would run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) asked: Asked<'a>,
    /// For each limit of a start, the amount that the job counts; empty if not computed yet.
    pub(super) wants: &'a [u128],
    pub(super) from: Time,
    pub(super) to: Time,
    /// True if the limit is judged by the amount in use now, without the jobs that are planned for later.
    pub(super) now_only: bool,
    /// Jobs that are to start together with this job.
    pub(super) beside: &'a [Booking],
    /// Jobs that are about to lose the nodes that are kept for them.
    pub(super) displaced: &'a [JobId],
}

impl Ask<'_> {
    /// The amount that the counter of a limit counts for the jobs in `beside`, the amount that these may use,
    /// and the amount that the displaced jobs count.
    fn others(&self, rule: &Rule, counter: &Counter, running: &Counters) -> (u128, Amount, u128) {
        let (mut held, mut promised) = (0, Amount::ZERO);
        for other in self.beside.iter().filter(|other| other.rules.holders.contains(&rule.holder)) {
            let amount = counter.amount(&other.amounts.all);
            held += amount;
            promised = promised.plus(counter.use_of(amount, other.seconds));
        }
        let displaced = self.displaced.iter().filter_map(|job| running.counted(*job));
        let displaced = displaced.filter(|counted| counted.holders.contains(&rule.holder));
        let displaced = displaced.filter_map(|counted| counted.holding.as_ref());
        (held, promised, displaced.map(|holding| counter.amount(&holding.held)).sum())
    }
}

/// A limit that leaves too little.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) stop: Stop,
    /// True if the job may start later, when others have ended. False if the job exceeds the limit by itself,
    /// or if the limit does not count running jobs.
    pub(super) passing: bool,
    /// The amount that the job asks for, to compare with other jobs; `None` if it exceeds the limit by
    /// itself.
    pub(super) wants: Option<u128>,
}

impl Over {
    /// The lane of the limit.
    pub(super) fn lane(&self) -> Lane {
        Lane(Arc::clone(&self.stop.rule))
    }
}

/// The counters of all limits in a pass, with the starts that the pass proposes and plans.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) running: Arc<Counters>,
    /// The past usage of the associations and QOS that have budgets.
    pub(super) usage: Usage,
    pub(super) safe: bool,
    pub(super) now: Time,
    pub(super) booked: Bookings,
    counters: Vec<Counter>,
    /// By holder: its counters so far.
    of_holders: BTreeMap<Holder, SmallVec<[usize; 4]>>,
    /// By address of the limits: their counters.
    of_rules: BTreeMap<usize, CountersOf>,
    /// By counter: the limits of the amount that running jobs may still use, if they have stopped jobs.
    falling: BTreeMap<usize, Falling>,
    /// Number of changes of the jobs that the pass starts and plans.
    pub(super) changes: u64,
    /// The starts that the pass has proposed.
    starts: Vec<Booking>,
    starts_of: BTreeMap<usize, (Arc<Rules>, Vec<usize>)>,
}

/// A limit of the amount that running jobs may still use. The limit leaves more as time goes by.
#[derive(Debug)]
struct Falling {
    holder: Holder,
    most: Amount,
    /// The least usage of a job that the limit has stopped.
    wants: Amount,
}

/// The sums of a counter, with the amounts that are added to them.
struct Sum<'a> {
    counter: &'a Counter,
    running: u128,
    beside: Amount,
}

impl Sums for Sum<'_> {
    fn jobs(&self, _: &Rule) -> u64 {
        u64::try_from(self.running).unwrap_or(u64::MAX)
    }

    fn submitted(&self, _: &Rule) -> u64 {
        0
    }

    fn held(&self, _: &Rule) -> Rate {
        Rate(self.running)
    }

    fn promised(&self, _: &Rule) -> Amount {
        let (running, _) = self.counter.used.unwrap_or_default();
        running.plus(self.counter.started).plus(self.counter.planned).plus(self.beside)
    }

    fn past(&self, _: &Rule) -> Amount {
        self.counter.used.unwrap_or_default().1
    }
}

impl Room {
    pub(super) fn new(running: Arc<Counters>, usage: Usage, safe: bool, now: Time) -> Self {
        Self {
            running,
            usage,
            safe,
            now,
            booked: Bookings::default(),
            counters: Vec::new(),
            of_holders: BTreeMap::new(),
            of_rules: BTreeMap::new(),
            falling: BTreeMap::new(),
            changes: 0,
            starts: Vec::new(),
            starts_of: BTreeMap::new(),
        }
    }

    /// The first limit that leaves too little for a job. Its `passing` is true only if all limits that leave
    /// too little are passing.
    pub(super) fn over(&mut self, rules: &Arc<Rules>, ask: &Ask<'_>) -> Option<Over> {
        let counters = self.counters_of(rules);
        let mut first: Option<Over> = None;
        for (number, (rule, at)) in rules.start.iter().zip(counters.iter()).enumerate() {
            let known = ask.wants.get(number).copied();
            let wants = known.unwrap_or_else(|| ask.asked.amounts.all.counted(rule.tres.as_ref()));
            let Some(over) = self.over_rule((rule, *at), wants, ask) else { continue };
            let passing = over.passing;
            let first = first.get_or_insert(over);
            if !passing {
                first.passing = false;
                break;
            }
        }
        first
    }

    fn over_rule(&mut self, (rule, at): (&Arc<Rule>, usize), wants: u128, ask: &Ask<'_>) -> Option<Over> {
        let counts_running = rule.kind.counts_running();
        if counts_running && wants == 0 {
            return None;
        }
        let counter = &self.counters[at];
        let (more, promised, less) = ask.others(rule, counter, &self.running);
        let most = counter.most(rule);
        if counts_running && counter.running + counter.booked + more + wants <= most + less {
            return None;
        }
        let mut used = (counter.running + more).saturating_sub(less);
        let lacks_now = ask.from <= self.now && used + wants > most;
        let planned = counts_running && !ask.now_only && !lacks_now;
        if planned {
            used = (self.most_used(at, rule, ask.from, ask.to) + more).saturating_sub(less);
        } else if rule.kind.counts_use() {
            self.look_up(at, rule);
        }
        if counts_running && used + wants <= most {
            return None;
        }
        let sum = Sum { counter: &self.counters[at], running: used, beside: promised };
        let stop = Judge { sums: &sum, safe: self.safe }.over(rule, &ask.asked, 1)?;
        let asks = match (counts_running, rule.kind) {
            (true, _) => (wants <= most).then_some(wants),
            (false, LimitKind::GrpWall) => Some(0),
            (false, LimitKind::GrpTresMins) if !self.safe => Some(0),
            (false, kind) if kind.counts_use() => {
                Some(self.counters[at].use_of(wants, ask.asked.seconds()).0)
            }
            (false, _) => None,
        };
        let passing = counts_running && asks.is_some();
        if let (false, Some(wants)) = (counts_running || rule.kind.is_budget(), asks) {
            self.note_falling(at, rule, Amount(wants));
        }
        Some(Over { stop: Stop { planned, ..stop }, passing, wants: asks })
    }

    /// Notes that a limit of the amount that running jobs may still use has stopped a job.
    fn note_falling(&mut self, at: usize, rule: &Rule, wants: Amount) {
        let most = Amount::of(Rate::whole(rule.most), 60);
        let holder = || rule.holder.clone();
        let falling = self.falling.entry(at).or_insert_with(|| Falling { holder: holder(), most, wants });
        falling.wants = falling.wants.min(wants);
    }

    /// The first second at which a limit in `falling` leaves enough for a job that it has stopped, if nothing
    /// else happens until then; `None` if there is none.
    pub(super) fn again(&self) -> Option<Time> {
        self.falling.iter().filter_map(|(at, falling)| self.leaves_enough(&self.counters[*at], falling)).min()
    }

    fn leaves_enough(&self, counter: &Counter, falling: &Falling) -> Option<Time> {
        let kind = counter.counts.as_ref()?;
        let promised = |at: Time| self.running.promised(&falling.holder, kind, at, &[]);
        let others = counter.started.plus(counter.planned).plus(falling.wants);
        let fits = |at: Time| promised(at).plus(others) <= falling.most;
        let running = self.running.tally(&falling.holder)?.running.iter();
        let ends = running.filter_map(|job| match self.running.counted(*job)?.holding.as_ref()?.rest {
            Rest::Until(end) => Some(end),
            Rest::Seconds(_) | Rest::Endless => None,
        });
        let (mut no, mut yes) = (self.now, ends.max()?);
        if yes <= no || !fits(yes) {
            return None;
        }
        while yes.since(no) > 1 {
            let middle = no + yes.since(no) / 2;
            if fits(middle) { yes = middle } else { no = middle }
        }
        Some(yes)
    }

    /// The first time from which a limit, which counts running jobs and leaves too little for a job now,
    /// leaves enough for the job for some seconds; [`Time::MAX`] if it never does.
    pub(super) fn enough_from(&mut self, rules: &Arc<Rules>, over: &Over, lasts: u64) -> Time {
        let rule = &over.stop.rule;
        let counters = self.counters_of(rules);
        let number = rules.start.iter().position(|own| Arc::ptr_eq(own, rule));
        let Some((at, wants)) = number.map(|number| counters[number]).zip(over.wants) else {
            return self.now;
        };
        self.trace(at, rule);
        let counter = &self.counters[at];
        let Some(left) = counter.most(rule).checked_sub(wants) else { return Time::MAX };
        let need = -counter.steps(left);
        let mut from = self.now;
        while let Some(end) =
            counter.over_time.as_ref().and_then(|steps| steps.end_of_last_below(need, from, from + lasts))
        {
            if end.is_never() {
                return end;
            }
            from = end;
        }
        from
    }

    /// The most that is in use at any moment from one time until another.
    fn most_used(&mut self, at: usize, rule: &Rule, from: Time, to: Time) -> u128 {
        self.trace(at, rule);
        let counter = &self.counters[at];
        let least = counter.over_time.as_ref().map_or(0, |steps| steps.least(from.max(self.now), to));
        counter.amount_of_steps(-least)
    }

    /// Computes the amount in use over time, if it is not known yet.
    fn trace(&mut self, at: usize, rule: &Rule) {
        if self.counters[at].over_time.is_none() {
            self.counters[at].over_time = Some(StepFunction::default());
            let running = self.running.tally(&rule.holder).into_iter().flat_map(|tally| &tally.running);
            let holdings = running.filter_map(|job| self.running.counted(*job)?.holding.as_ref());
            let counter = &mut self.counters[at];
            for holding in holdings {
                let end = match holding.rest {
                    Rest::Until(end) => end.max(self.now + 1),
                    // The time at which a suspended job goes on, or a job starts for which nodes are kept, is
                    // not known.
                    Rest::Seconds(_) | Rest::Endless => Time::MAX,
                };
                counter.occupy(self.now, end, counter.amount(&holding.held), true);
            }
            let starts = self.starts_of.values().filter(|(rules, _)| rules.holders.contains(&rule.holder));
            for start in starts.flat_map(|(_, starts)| starts) {
                let start = &self.starts[*start];
                counter.occupy(start.from, start.to, counter.amount(&start.amounts.all), true);
            }
            for booking in self.booked.of(&rule.holder) {
                counter.occupy(booking.from, booking.to, counter.amount(&booking.amounts.all), true);
            }
        }
    }

    /// Looks up the amount that running jobs may still use, and the past usage, for a limit.
    fn look_up(&mut self, at: usize, rule: &Rule) {
        if self.counters[at].used.is_some() {
            return;
        }
        let used = match &rule.tres {
            Some(kind) => {
                let promised = self.running.promised(&rule.holder, kind, self.now, &[]);
                (promised, self.usage.past(&rule.holder, kind))
            }
            None => (Amount::ZERO, self.usage.past_wall(&rule.holder)),
        };
        self.counters[at].used = Some(used);
    }

    /// The counters of the limits of a start.
    fn counters_of(&mut self, rules: &Arc<Rules>) -> Arc<[usize]> {
        let address = Arc::as_ptr(rules).addr();
        if let Some(known) = self.of_rules.get(&address) {
            return Arc::clone(&known.start);
        }
        let start: Arc<[usize]> = rules.start.iter().map(|rule| self.counter_of(rule)).collect();
        let known = CountersOf { rules: Arc::clone(rules), start, all: Arc::default(), among: 0 };
        Arc::clone(&self.of_rules.entry(address).or_insert(known).start)
    }

    fn counter_of(&mut self, rule: &Rule) -> usize {
        let known = self.of_holders.get(&rule.holder).into_iter().flatten();
        if let Some(known) = known.copied().find(|at| self.counters[*at].counts == rule.tres) {
            return known;
        }
        let tally = self.running.tally(&rule.holder);
        let mut counter = Counter {
            counts: rule.tres.clone(),
            running: match &rule.tres {
                Some(kind) => tally.map_or(0, |tally| tally.held.rate(kind).0),
                None => tally.map_or(0, |tally| tally.running.len() as u128),
            },
            booked: 0,
            started: Amount::ZERO,
            planned: Amount::ZERO,
            used: None,
            over_time: None,
        };
        let starts = self.starts_of.values().filter(|(rules, _)| rules.holders.contains(&rule.holder));
        starts.flat_map(|(_, starts)| starts).for_each(|start| counter.start(&self.starts[*start]));
        self.booked.of(&rule.holder).for_each(|booking| counter.book(booking, true));
        self.counters.push(counter);
        let at = self.counters.len() - 1;
        self.of_holders.entry(rule.holder.clone()).or_default().push(at);
        at
    }

    /// The counters so far that jobs under these limits count for.
    fn touched(&mut self, rules: &Arc<Rules>) -> Arc<[usize]> {
        let address = Arc::as_ptr(rules).addr();
        if let Some(known) = self.of_rules.get(&address).filter(|known| known.among == self.counters.len()) {
            return Arc::clone(&known.all);
        }
        self.counters_of(rules);
        let Some(known) = self.of_rules.get_mut(&address) else { return Arc::default() };
        let holders = known.rules.holders.iter();
        known.all = holders.filter_map(|holder| self.of_holders.get(holder)).flatten().copied().collect();
        known.among = self.counters.len();
        Arc::clone(&known.all)
    }

    /// Counts a start that the pass proposes.
    pub(super) fn start(&mut self, start: Booking) {
        self.changes += 1;
        for at in &*self.touched(&start.rules) {
            self.counters[*at].start(&start);
        }
        let address = Arc::as_ptr(&start.rules).addr();
        let starts = self.starts_of.entry(address).or_insert_with(|| (Arc::clone(&start.rules), Vec::new()));
        starts.1.push(self.starts.len());
        self.starts.push(start);
    }

    /// Counts a job that is planned for later.
    pub(super) fn book(&mut self, turn: Turn, booking: Booking) {
        self.changes += 1;
        for at in &*self.touched(&booking.rules) {
            self.counters[*at].book(&booking, true);
        }
        let (address, rules) = (Arc::as_ptr(&booking.rules).addr(), &booking.rules);
        let turns =
            self.booked.by_rules.entry(address).or_insert_with(|| (Arc::clone(rules), BTreeSet::new()));
        turns.1.insert(turn);
        self.booked.by_turn.insert(turn, booking);
    }

    /// Removes a job that was planned for later; does nothing if no job has this turn.
    pub(super) fn unbook(&mut self, turn: &Turn) {
        let Some(rules) = self.booked.by_turn.get(turn).map(|booking| Arc::clone(&booking.rules)) else {
            return;
        };
        // Counters that are created here count the booking, so the booking is removed only afterwards.
        let touched = self.touched(&rules);
        let Some(booking) = self.booked.by_turn.remove(turn) else { return };
        self.changes += 1;
        for at in &*touched {
            self.counters[*at].book(&booking, false);
        }
        let address = Arc::as_ptr(&booking.rules).addr();
        if let Some((_, turns)) = self.booked.by_rules.get_mut(&address) {
            turns.remove(turn);
            if turns.is_empty() {
                self.booked.by_rules.remove(&address);
            }
        }
    }
}

impl Bookings {
    fn of(&self, holder: &Holder) -> impl Iterator<Item = &Booking> {
        let turns = self.by_rules.values().filter(|(rules, _)| rules.holders.contains(holder));
        turns.flat_map(|(_, turns)| turns).filter_map(|turn| self.by_turn.get(turn))
    }
}
