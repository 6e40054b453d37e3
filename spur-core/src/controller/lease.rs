//! The lease of a journal that several controllers share: who may commit, who may answer, and when a standby takes over.
//!
//! The lease is one row of the database: history, epoch, holder, the last entry, and when the row was written. Every commit
//! changes the row and states what it expects there, so a controller whose epoch has passed commits nothing. The machine
//! decides which statement comes next and what its outcome means; the shell sends one statement at a time and keeps the
//! time. Times are milliseconds of a clock that the shell never sets back, and count while the host sleeps.
//!
//! * A standby takes the lease when the row has not changed for a whole lease by the standby's own clock **and** the
//!   database's clock agrees. A database whose clock is set forward therefore cannot make two leaders.
//! * A standby that could not read the row begins to count anew: while the database is away, the leader cannot renew, and
//!   neither of them is to end because of that.
//! * A leader whose commits are refused because the database's disk is full renews the lease between its attempts.
//! * A leader answers until a whole lease after it *sent* the last statement that was confirmed.
//! * A commit whose outcome is not known (the connection broke) is decided by reading the row behind a lock, which waits
//!   until the old statement is over. What had been written counts once a later statement is confirmed.

/// The name of one reign: random, drawn by each controller at each taking.
pub type Holder = u128;

/// How often a standby reads the row.
pub const LOOK_EVERY_MS: i64 = 200;
/// How often a leader renews the lease.
pub const RENEW_EVERY_MS: i64 = 250;
/// How long a leader or standby waits after a lost connection.
pub const RECONNECT_AFTER_MS: i64 = 100;

/// The row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Counts the takings.
    pub epoch: u64,
    /// Who leads; `None` before the first taking.
    pub holder: Option<Holder>,
    /// The last entry of the journal.
    pub seq: u64,
    /// Changes with every statement that writes the row.
    pub version: u64,
    /// Counts the takings and the commits.
    pub commits: u64,
    /// Whether the holder has given the lease up.
    pub released: bool,
    /// How long the holder's lease lasts, in milliseconds.
    pub lasts_ms: i64,
}

/// What a leader expects in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Our epoch.
    pub epoch: u64,
    /// The last entry.
    pub seq: u64,
    /// The takings and commits so far. A renewal that is carried out late does not change what a commit expects.
    pub commits: u64,
}

/// What the shell sends to the database. Everything but a look names the row that it expects, and writes nothing otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Read the row.
    Look,
    /// Take the lease if the row is still this one, and then, in another statement, read the last entry.
    Take {
        /// The row that was read.
        seen: Row,
        /// Take the lease although the database's clock says that the lease is still good.
        whatever_its_clock_says: bool,
    },
    /// Write the batch that ends at entry `to`.
    Commit {
        /// What the row must be.
        fence: Fence,
        /// The last entry of the batch; that of `fence` if the batch has no entries.
        to: u64,
    },
    /// Renew the lease.
    Renew {
        /// What the row must be.
        fence: Fence,
    },
    /// Read the row behind a lock that waits for whoever writes the row.
    Judge,
    /// Give the lease up.
    Release {
        /// What the row must be.
        fence: Fence,
    },
}

/// What came of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A row that was read, by [`Statement::Look`] or [`Statement::Judge`].
    Read(Row),
    /// The lease was taken, and the row is this one.
    Taken(Fence),
    /// The row was as expected, and the statement is durable.
    Confirmed,
    /// The row was another one, and nothing was written.
    Refused,
    /// The database refused the statement as such, and nothing was written: its disk is full, or a lock was not free.
    Failed,
    /// Nobody knows: the connection broke or the time limit passed.
    Lost,
}

/// What the shell does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this statement and tell its outcome.
    Send(Statement),
    /// Nothing until then, unless a batch comes.
    Wait {
        /// The time at which to ask again.
        until: i64,
    },
    /// The process ends.
    End(End),
}

/// Why a controller ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another controller leads, in this epoch.
    Fenced {
        /// The other's epoch.
        epoch: u64,
    },
    /// The database ends at `found`, and a later entry was confirmed to us: it is an older copy of itself.
    WentBack {
        /// The last entry that was confirmed.
        confirmed: u64,
        /// The last entry that is there.
        found: u64,
    },
    /// The lease was given up as was wished.
    Released,
}

/// One controller's view of the lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Our name, and how long a lease lasts.
    own: (Holder, i64),
    state: State,
    /// No statement before this time.
    not_before: i64,
    resigning: bool,
}

#[derive(Clone, Debug)]
enum State {
    Following(Following),
    Leading(Leading),
    Over(End),
}

#[derive(Clone, Debug, Default)]
struct Following {
    /// The row that was read last, and when this version of it was read first.
    seen: Option<(Row, i64)>,
    /// When the row is read next.
    next_look: i64,
    /// Whether the row may have changed unseen, because statements were lost since it was read.
    was_blind: bool,
}

#[derive(Clone, Debug)]
struct Leading {
    /// The row as we have written it.
    known: Fence,
    /// The last entry that is durable.
    confirmed: u64,
    /// Whether the batch that was offered is written, and not confirmed yet.
    batch_written: bool,
    /// Whether nobody knows if the last statement that would have changed the row did.
    in_doubt: bool,
    /// The last entry of the batch that was offered, once a commit of it was sent that was not confirmed: whatever came of
    /// that commit, it may still be carried out.
    attempted: Option<u64>,
    /// Answers leave until then.
    until: i64,
    next_renewal: i64,
    /// Whether the last statement was a commit that the database refused as such.
    commit_failed: bool,
}

impl Lease {
    /// A controller that follows whoever leads, under a name that nobody else has.
    #[must_use]
    pub fn new(holder: Holder, lasts_ms: i64) -> Lease {
        let following = Following { seen: None, next_look: i64::MIN, was_blind: false };
        Lease {
            own: (holder, lasts_ms),
            state: State::Following(following),
            not_before: i64::MIN,
            resigning: false,
        }
    }

    /// What comes next. `offered` is the last entry of the batch that waits, if one does; it stays the same until
    /// [`Lease::note`] says that the batch is durable.
    #[must_use]
    pub fn next(&self, now: i64, offered: Option<u64>) -> Step {
        match &self.state {
            State::Over(end) => Step::End(*end),
            _ if now < self.not_before => Step::Wait { until: self.not_before },
            State::Following(following) => following.next(now),
            State::Leading(leading) => leading.next(now, offered, self.resigning),
        }
    }

    /// Notes what came of the statement that was sent at `sent`. Returns whether the batch that was offered is durable.
    pub fn note(&mut self, sent: i64, now: i64, statement: &Statement, outcome: Outcome) -> bool {
        if outcome == Outcome::Lost || outcome == Outcome::Failed {
            self.not_before = now + RECONNECT_AFTER_MS;
        }
        let mut durable = false;
        let next = match &mut self.state {
            State::Following(following) => following.note(sent, now, outcome, self.own),
            State::Leading(leading) => {
                durable = outcome == Outcome::Confirmed
                    && (leading.batch_written || matches!(statement, Statement::Commit { .. }));
                leading.note(sent, statement, outcome, self.own).map(State::Over)
            }
            State::Over(_) => None,
        };
        if let Some(next) = next {
            self.state = next;
        }
        durable
    }

    /// Gives the lease up as soon as no batch waits; a standby ends at once. No answer leaves from now on: whoever takes the
    /// lease may do so before the release is confirmed.
    pub fn resign(&mut self) {
        self.resigning = true;
        if matches!(self.state, State::Following(_)) {
            self.state = State::Over(End::Released);
        }
    }

    /// Has a standby read the row before anything else: somebody may have written it.
    pub fn look_now(&mut self) {
        if let State::Following(following) = &mut self.state {
            following.next_look = i64::MIN;
        }
    }

    /// Whether this controller leads, and in which epoch.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        match &self.state {
            State::Leading(leading) => Some(leading.known.epoch),
            State::Following(_) | State::Over(_) => None,
        }
    }

    /// The last entry that is durable, for a leader.
    #[must_use]
    pub fn durable(&self) -> Option<u64> {
        match &self.state {
            State::Leading(leading) => Some(leading.confirmed),
            State::Following(_) | State::Over(_) => None,
        }
    }

    /// Until when answers may leave this controller; the beginning of time if it does not lead.
    #[must_use]
    pub fn answers_until(&self) -> i64 {
        match &self.state {
            State::Leading(leading) if !self.resigning => leading.until,
            State::Leading(_) | State::Following(_) | State::Over(_) => i64::MIN,
        }
    }

    /// The row that a standby has read last.
    #[must_use]
    pub fn seen(&self) -> Option<&Row> {
        match &self.state {
            State::Following(following) => following.seen.as_ref().map(|(row, _)| row),
            State::Leading(_) | State::Over(_) => None,
        }
    }
}

impl Following {
    fn next(&self, now: i64) -> Step {
        if now >= self.next_look {
            return Step::Send(Statement::Look);
        }
        let Some((row, since)) = &self.seen else { return Step::Wait { until: self.next_look } };
        let unchanged = now.saturating_sub(*since);
        let (lasts_ms, free) = (row.lasts_ms, row.released || row.holder.is_none());
        if free || unchanged >= lasts_ms {
            // A database whose clock was set back would call a dead leader's lease good for as long.
            let whatever_its_clock_says = free || unchanged >= 2 * lasts_ms;
            return Step::Send(Statement::Take { seen: row.clone(), whatever_its_clock_says });
        }
        Step::Wait { until: self.next_look.min(since + lasts_ms) }
    }

    /// The state that comes next, if it is another one.
    fn note(&mut self, sent: i64, now: i64, outcome: Outcome, own: (Holder, i64)) -> Option<State> {
        let (holder, lasts_ms) = own;
        match outcome {
            Outcome::Read(row) if row.holder == Some(holder) && !row.released => {
                // The taking whose outcome was not known had been written. Answers leave after the first renewal.
                let known = Fence { epoch: row.epoch, seq: row.seq, commits: row.commits };
                return Some(State::Leading(Leading::new(known, i64::MIN, now)));
            }
            Outcome::Read(row) => {
                let known = self.seen.take().filter(|(seen, _)| *seen == row && !self.was_blind);
                let since = known.map_or(now, |(_, since)| since);
                (self.seen, self.next_look, self.was_blind) =
                    (Some((row, since)), now + LOOK_EVERY_MS, false);
            }
            Outcome::Taken(known) => {
                return Some(State::Leading(Leading::new(known, sent + lasts_ms, sent + RENEW_EVERY_MS)));
            }
            Outcome::Lost => (self.next_look, self.was_blind) = (now, true),
            // Whoever has the lease is in the row.
            Outcome::Confirmed | Outcome::Refused | Outcome::Failed => self.next_look = now,
        }
        None
    }
}

impl Leading {
    fn new(known: Fence, until: i64, next_renewal: i64) -> Leading {
        let confirmed = known.seq;
        let (batch_written, in_doubt, attempted, commit_failed) = (false, false, None, false);
        Leading { known, confirmed, batch_written, in_doubt, attempted, until, next_renewal, commit_failed }
    }

    fn next(&self, now: i64, offered: Option<u64>, resigning: bool) -> Step {
        let fence = self.known;
        if self.in_doubt {
            return Step::Send(Statement::Judge);
        }
        if self.batch_written {
            return Step::Send(Statement::Renew { fence });
        }
        match offered {
            Some(_) if self.commit_failed && now >= self.next_renewal => {
                Step::Send(Statement::Renew { fence })
            }
            Some(to) => Step::Send(Statement::Commit { fence, to }),
            None if resigning => Step::Send(Statement::Release { fence }),
            None if now >= self.next_renewal => Step::Send(Statement::Renew { fence }),
            None => Step::Wait { until: self.next_renewal },
        }
    }

    /// The reason to end, if there is one.
    fn note(
        &mut self,
        sent: i64,
        statement: &Statement,
        outcome: Outcome,
        own: (Holder, i64),
    ) -> Option<End> {
        let (holder, lasts_ms) = own;
        self.commit_failed = match (statement, &outcome) {
            (Statement::Commit { .. }, Outcome::Failed) => true,
            // A renewal that is confirmed says nothing of commits.
            (Statement::Renew { .. }, Outcome::Confirmed) => self.commit_failed,
            _ => false,
        };
        let (last, batch) = match statement {
            Statement::Commit { to, .. } => (*to, true),
            Statement::Renew { fence } | Statement::Release { fence } => (fence.seq, false),
            Statement::Look | Statement::Take { .. } | Statement::Judge => (self.known.seq, false),
        };
        if batch && outcome != Outcome::Confirmed {
            self.attempted = Some(last);
        }
        match outcome {
            Outcome::Confirmed => {
                if batch || self.batch_written {
                    self.attempted = None;
                }
                (self.until, self.next_renewal) = (sent + lasts_ms, sent + RENEW_EVERY_MS);
                (self.known.seq, self.known.commits) = (last, self.known.commits + u64::from(batch));
                (self.confirmed, self.batch_written) = (last, false);
                if matches!(statement, Statement::Release { .. }) {
                    self.until = i64::MIN;
                    return Some(End::Released);
                }
            }
            Outcome::Read(row) => return self.judge(&row, holder),
            // What the reading would have decided is still in doubt.
            Outcome::Lost if *statement == Statement::Judge => {}
            Outcome::Refused | Outcome::Lost => self.in_doubt = true,
            // Nothing was written.
            Outcome::Failed | Outcome::Taken(_) => {}
        }
        None
    }

    fn judge(&mut self, row: &Row, holder: Holder) -> Option<End> {
        self.in_doubt = false;
        let went_back = End::WentBack { confirmed: self.confirmed, found: row.seq };
        let end = if row.epoch < self.known.epoch || row.seq < self.confirmed {
            Some(went_back)
        } else if row.holder != Some(holder) || row.epoch != self.known.epoch {
            Some(End::Fenced { epoch: row.epoch })
        } else if row.released {
            Some(End::Released)
        } else if (row.seq, row.commits) == (self.known.seq, self.known.commits) {
            None
        } else if let Some(last) = self.attempted
            && (row.seq, row.commits) == (last, self.known.commits + 1)
        {
            (self.known.seq, self.known.commits) = (last, row.commits);
            self.batch_written = true;
            None
        } else {
            Some(went_back)
        };
        // A leader whose statement was lost renews at once.
        (self.until, self.next_renewal) = (if end.is_some() { i64::MIN } else { self.until }, i64::MIN);
        end
    }
}
