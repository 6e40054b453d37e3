//! Tests of the lease with two or three controllers and one database, under a seed.
//!
//! Controllers pause and are killed, statements are lost or late, the database is unreachable at times, and
//! clocks are set. `SPUR_LEASE_SEEDS` is the number of seeds tried.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use spur_chance::Chance;
use spur_core::controller::lease::{End, Fence, Lease, Outcome, Row, Statement, Step};

const LEASE_MS: i64 = 3_000;
const LIMIT_MS: i64 = 2_000;
const TICK_MS: i64 = 10;
const FAULTS_END_MS: i64 = 60_000;
const END_MS: i64 = 80_000;

/// The database: its row, the batches written, and a clock that may be set.
struct Database {
    row: Row,
    renewed: i64,
    /// Numbers of the batches that were written.
    written: BTreeSet<u64>,
    clock_ahead: i64,
    away_until: i64,
    /// Until when its disk is full: batches are refused.
    full_until: i64,
}

impl Database {
    fn new() -> Database {
        let row = Row {
            epoch: 0,
            holder: None,
            seq: 0,
            version: 0,
            commits: 0,
            released: true,
            lasts_ms: LEASE_MS,
        };
        Database { row, renewed: 0, written: BTreeSet::new(), clock_ahead: 0, away_until: 0, full_until: 0 }
    }

    fn is(&self, fence: &Fence, holder: u128) -> bool {
        let row = &self.row;
        row.holder == Some(holder)
            && !row.released
            && (row.epoch, row.seq, row.commits) == (fence.epoch, fence.seq, fence.commits)
    }

    fn carry_out(&mut self, now: i64, holder: u128, batch: u64, statement: &Statement) -> Outcome {
        let clock = now + self.clock_ahead;
        let written = match statement {
            Statement::Look | Statement::Judge => return Outcome::Read(self.row.clone()),
            Statement::Take { seen, whatever_its_clock_says } => {
                let is_good = (self.renewed..self.renewed + LEASE_MS).contains(&clock);
                if self.row != *seen || (is_good && !whatever_its_clock_says) {
                    return Outcome::Refused;
                }
                let (epoch, version, commits) =
                    (self.row.epoch + 1, self.row.version + 1, self.row.commits + 1);
                self.row = Row { epoch, holder: Some(holder), version, commits, released: false, ..self.row };
                self.renewed = clock;
                return Outcome::Taken(Fence { epoch, seq: self.row.seq, commits });
            }
            Statement::Commit { .. } if now < self.full_until => return Outcome::Failed,
            Statement::Commit { fence, to } if self.is(fence, holder) => {
                assert!(self.written.insert(batch), "batch {batch} is written twice");
                (self.row.seq, self.row.commits) = (*to, self.row.commits + 1);
                true
            }
            Statement::Renew { fence } => self.is(fence, holder),
            Statement::Release { fence } if self.is(fence, holder) => {
                self.row.released = true;
                true
            }
            Statement::Commit { .. } | Statement::Release { .. } => false,
        };
        if !written {
            return Outcome::Refused;
        }
        (self.row.version, self.renewed) = (self.row.version + 1, clock);
        Outcome::Confirmed
    }
}

/// A statement in flight, with its outcome as far as it is known.
struct Flight {
    statement: Statement,
    batch: u64,
    sent: i64,
    arrives: Option<i64>,
    answered: Option<(i64, Outcome)>,
}

struct Controller {
    lease: Lease,
    holder: u128,
    /// Difference of this host's clock from the simulated time, in milliseconds.
    clock_ahead: i64,
    paused_until: i64,
    flight: Option<Flight>,
    /// Batch to be written: its number and its last entry.
    offered: Option<(u64, u64)>,
    /// True if the controller releases the lease and takes no more batches.
    resigning: bool,
}

struct World {
    seed: u64,
    chance: Chance,
    now: i64,
    database: Database,
    controllers: Vec<Controller>,
    /// Statements that the sender no longer waits for and that may still be carried out.
    late: Vec<(i64, u128, u64, Statement)>,
    names: u128,
    batches: u64,
    /// Last entry that any client was told is durable.
    acknowledged: u64,
    commits: u64,
    takings: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            chance: Chance::new(seed),
            now: 0,
            database: Database::new(),
            controllers: Vec::new(),
            late: Vec::new(),
            names: 0,
            batches: 0,
            acknowledged: 0,
            commits: 0,
            takings: 0,
        };
        for _ in 0..world.chance.between(2, 3) {
            let controller = world.start();
            world.controllers.push(controller);
        }
        world
    }

    fn start(&mut self) -> Controller {
        self.names += 1;
        Controller {
            lease: Lease::new(self.names, LEASE_MS),
            holder: self.names,
            clock_ahead: i64::try_from(self.chance.below(1_000_000)).unwrap(),
            paused_until: self.now,
            flight: None,
            offered: None,
            resigning: false,
        }
    }

    fn run(&mut self) {
        while self.now < END_MS {
            self.now += TICK_MS;
            if self.now < FAULTS_END_MS {
                self.fault();
            }
            self.deliver();
            for number in 0..self.controllers.len() {
                self.turn(number);
            }
            self.check();
        }
        let leaders = self.controllers.iter().filter(|controller| self.answers(controller)).count();
        assert_eq!(leaders, 1, "seed {}: somebody leads at the end", self.seed);
    }

    /// Replaces a process that ended by a new one. The last statement of the ended process may still be
    /// carried out.
    fn replace(&mut self, number: usize) {
        let started = self.start();
        let ended = std::mem::replace(&mut self.controllers[number], started);
        if let Some(Flight { arrives: Some(arrives), statement, batch, .. }) = ended.flight {
            let arrives = arrives + i64::try_from(self.chance.below(2_000)).unwrap();
            self.late.push((arrives, ended.holder, batch, statement));
        }
    }

    fn fault(&mut self) {
        let pause = i64::try_from(self.chance.between(50, 8_000)).unwrap();
        let victim = usize::try_from(self.chance.below(self.controllers.len() as u64)).unwrap();
        match self.chance.below(4_000) {
            0..=3 => self.controllers[victim].paused_until = self.now + pause,
            4..=6 => self.replace(victim),
            7..=8 => self.database.away_until = self.now + pause,
            9 => self.database.clock_ahead += 3_600_000,
            10 => self.database.clock_ahead -= 3_600_000,
            11 => {
                self.controllers[victim].lease.resign();
                self.controllers[victim].resigning = true;
            }
            12..=13 => self.database.full_until = self.now + pause,
            _ => {}
        }
    }

    /// Carries out the statements that have arrived.
    fn deliver(&mut self) {
        let (now, away) = (self.now, self.now < self.database.away_until);
        let database = &mut self.database;
        self.late.retain(|(arrives, holder, batch, statement)| {
            let due = *arrives <= now && !away;
            if due {
                let _ = database.carry_out(now, *holder, *batch, statement);
            }
            !due
        });
        for controller in &mut self.controllers {
            let Some(flight) = &mut controller.flight else { continue };
            if flight.answered.is_none() && flight.arrives.is_some_and(|arrives| arrives <= now) && !away {
                let outcome = database.carry_out(now, controller.holder, flight.batch, &flight.statement);
                flight.arrives = None;
                // Some answers are lost, and some statements fail.
                if now >= FAULTS_END_MS || !self.chance.percent(3) {
                    flight.answered =
                        Some((now + i64::try_from(self.chance.between(1, 60)).unwrap(), outcome));
                }
            }
        }
    }

    fn turn(&mut self, number: usize) {
        let now = self.now;
        let Self { controllers, chance, .. } = self;
        let controller = &mut controllers[number];
        if now < controller.paused_until {
            return;
        }
        let clock = now + controller.clock_ahead;
        if let Some(flight) = &controller.flight {
            let answer =
                flight.answered.as_ref().filter(|(at, _)| *at <= now).map(|(_, outcome)| outcome.clone());
            let outcome = match answer {
                Some(outcome) => outcome,
                None if clock - flight.sent >= LIMIT_MS => Outcome::Lost,
                None => return,
            };
            let flight = controller.flight.take().expect("it was there");
            if outcome == Outcome::Lost
                && let Some(arrives) = flight.arrives
            {
                // The statement may be carried out after its sender has stopped waiting for it.
                let arrives = arrives.max(now) + i64::try_from(chance.below(4_000)).unwrap();
                self.late.push((arrives, controller.holder, flight.batch, flight.statement.clone()));
            }
            let taken = matches!(outcome, Outcome::Taken(_));
            self.takings += u64::from(taken);
            if controller.lease.note(flight.sent, clock, &flight.statement, outcome) {
                let (batch, last) = controller.offered.take().expect("a batch was offered");
                assert!(
                    self.database.written.contains(&batch),
                    "seed {}: batch {batch} is not written",
                    self.seed
                );
                self.acknowledged = self.acknowledged.max(last);
                self.commits += 1;
            }
        }
        if let Some(durable) = controller.lease.durable()
            && controller.offered.is_none()
            && !controller.resigning
            && chance.percent(20)
        {
            self.batches += 1;
            // Some batches have no entries.
            controller.offered = Some((self.batches, durable + chance.between(0, 5)));
        }
        match controller.lease.next(clock, controller.offered.map(|(_, last)| last)) {
            Step::Send(statement) => {
                let batch = controller.offered.map_or(0, |(batch, _)| batch);
                let lost = now < FAULTS_END_MS && chance.percent(2);
                let arrives = (!lost).then(|| now + i64::try_from(chance.between(1, 40)).unwrap());
                controller.flight = Some(Flight { statement, batch, sent: clock, arrives, answered: None });
            }
            Step::Wait { .. } => {}
            Step::End(end) => {
                assert!(!matches!(end, End::WentBack { .. }), "seed {}: {end:?}", self.seed);
                self.replace(number);
            }
        }
    }

    fn answers(&self, controller: &Controller) -> bool {
        self.now >= controller.paused_until
            && self.now + controller.clock_ahead < controller.lease.answers_until()
    }

    /// Checks that at most one controller answers, and that it and the database have every acknowledged
    /// entry.
    fn check(&self) {
        let answering: Vec<&Controller> =
            self.controllers.iter().filter(|controller| self.answers(controller)).collect();
        assert!(
            answering.len() <= 1,
            "seed {}: {} controllers answer at {}",
            self.seed,
            answering.len(),
            self.now
        );
        for controller in answering {
            let durable = controller.lease.durable().unwrap();
            assert!(durable >= self.acknowledged, "seed {}: an old answer at {}", self.seed, self.now);
        }
        let last = self.database.row.seq;
        assert!(last >= self.acknowledged, "seed {}: acknowledged entries are gone", self.seed);
    }
}

#[test]
fn one_controller_commits_and_only_a_leader_answers() {
    let seeds = std::env::var("SPUR_LEASE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let (mut commits, mut takings) = (0, 0);
    for seed in 1..=seeds {
        let mut world = World::new(seed);
        world.run();
        (commits, takings) = (commits + world.commits, takings + world.takings);
    }
    assert!(
        commits > 100 * seeds && takings > 3 * seeds,
        "{commits} commits and {takings} takings are too few"
    );
}

fn row(epoch: u64, holder: Option<u128>, seq: u64, version: u64) -> Row {
    Row { epoch, holder, seq, version, commits: epoch, released: holder.is_none(), lasts_ms: LEASE_MS }
}

/// Commits fail for a long time, as they do while the database's disk is full.
#[test]
fn a_leader_whose_commits_fail_renews_the_lease_between_them() {
    let mut lease = Lease::new(7, LEASE_MS);
    lease.note(0, 1, &Statement::Look, Outcome::Read(row(0, None, 4, 0)));
    let Step::Send(take) = lease.next(2, None) else { panic!("a free lease is taken") };
    lease.note(2, 3, &take, Outcome::Taken(Fence { epoch: 1, seq: 4, commits: 1 }));
    let (mut now, mut renewed, mut commits) = (4, 2, 0);
    while now < 10 * LEASE_MS {
        match lease.next(now, Some(5)) {
            Step::Send(renew @ Statement::Renew { .. }) => {
                lease.note(now, now + 1, &renew, Outcome::Confirmed);
                assert!(now - renewed < LEASE_MS, "the lease has run out at {now}");
                renewed = now;
            }
            Step::Send(commit) => {
                commits += 1;
                assert!(!lease.note(now, now + 1, &commit, Outcome::Failed));
            }
            Step::Wait { .. } => {}
            Step::End(end) => panic!("{end:?}"),
        }
        now += 10;
    }
    assert!(commits > 50 && lease.answers_until() > now, "{commits} commits were tried");
    let mut is_durable = false;
    while !is_durable {
        now += 10;
        if let Step::Send(statement) = lease.next(now, Some(5)) {
            is_durable = lease.note(now, now + 1, &statement, Outcome::Confirmed);
        }
    }
    assert_eq!(lease.durable(), Some(5));
}

/// A commit is lost and tried again, the disk is full then, and the lost commit arrives before the renewal.
#[test]
fn a_commit_that_arrives_late_counts_although_a_renewal_met_it() {
    let mut lease = Lease::new(7, LEASE_MS);
    lease.note(0, 1, &Statement::Look, Outcome::Read(row(0, None, 4, 0)));
    let Step::Send(take) = lease.next(2, None) else { panic!("a free lease is taken") };
    lease.note(2, 3, &take, Outcome::Taken(Fence { epoch: 1, seq: 4, commits: 1 }));
    let ours = |seq, commits| Row { commits, ..row(1, Some(7), seq, 9) };
    let mut now = 10;
    for outcome in [
        Outcome::Lost,
        Outcome::Read(ours(4, 1)),
        Outcome::Failed,
        Outcome::Refused,
        Outcome::Read(ours(5, 2)),
        Outcome::Confirmed,
    ] {
        now += 400;
        let Step::Send(statement) = lease.next(now, Some(5)) else { panic!("before {outcome:?}") };
        let is_last = outcome == Outcome::Confirmed;
        assert_eq!(lease.note(now, now + 1, &statement, outcome), is_last, "after {statement:?}");
    }
    assert_eq!(lease.durable(), Some(5));
}

/// The database was away for longer than the lease, and leader and standby reach it at the same moment.
#[test]
fn a_standby_that_saw_nothing_for_long_gives_the_leader_time() {
    let mut standby = Lease::new(8, LEASE_MS);
    let led = row(3, Some(7), 4, 50);
    standby.note(0, 1, &Statement::Look, Outcome::Read(led.clone()));
    standby.note(300, 2_300, &Statement::Look, Outcome::Lost);
    let back = 20_000;
    assert_eq!(standby.next(back, None), Step::Send(Statement::Look));
    standby.note(back, back + 1, &Statement::Look, Outcome::Read(led.clone()));
    assert!(matches!(standby.next(back + 2, None), Step::Wait { .. }), "the leader may live");
    let later = back + 1 + LEASE_MS;
    standby.note(later - 1, later, &Statement::Look, Outcome::Read(led));
    assert!(matches!(standby.next(later, None), Step::Send(Statement::Take { .. })), "it has not renewed");
}

/// A database that was replaced by an older copy of itself.
#[test]
fn a_leader_of_a_database_that_went_back_ends() {
    let fence = |seq, commits| Fence { epoch: 1, seq, commits };
    let mut lease = Lease::new(7, LEASE_MS);
    let free =
        Row { epoch: 0, holder: None, seq: 4, version: 0, commits: 0, released: true, lasts_ms: LEASE_MS };
    lease.note(0, 1, &Statement::Look, Outcome::Read(free.clone()));
    let Step::Send(take) = lease.next(2, None) else { panic!("a free lease is taken") };
    lease.note(2, 3, &take, Outcome::Taken(fence(4, 1)));
    let commit = Statement::Commit { fence: fence(4, 1), to: 9 };
    assert_eq!(lease.next(4, Some(9)), Step::Send(commit.clone()));
    assert!(lease.note(4, 5, &commit, Outcome::Confirmed));
    lease.note(6, 7, &Statement::Renew { fence: fence(9, 2) }, Outcome::Refused);
    assert_eq!(lease.next(8, None), Step::Send(Statement::Judge));
    let back = Row {
        epoch: 1,
        holder: Some(7),
        seq: 4,
        version: 1,
        commits: 1,
        released: false,
        lasts_ms: LEASE_MS,
    };
    lease.note(8, 9, &Statement::Judge, Outcome::Read(back));
    assert_eq!(lease.next(10, None), Step::End(End::WentBack { confirmed: 9, found: 4 }));
    assert!(lease.answers_until() < 10);
}
