//! The lease of a journal that several controllers share: it decides which of them commits and answers, and
//! when a standby takes over.
//!
//! The lease is one row of the database: history, epoch, holder, the last entry, and when the row was
//! written. Every commit changes the row and states what it expects there, so a controller whose epoch has
//! passed commits nothing. The machine decides which statement comes next and what its outcome means; the
//! shell sends one statement at a time and keeps the time. Times are milliseconds of a clock that the shell
//! never sets back, and count while the host sleeps.
//!
//! * A standby takes the lease when the row has not changed for a whole lease by the standby's own clock
//!   **and** the database's clock agrees. A database whose clock is set forward therefore cannot make two
//!   leaders.
//! * A standby that could not read the row begins to count anew: while the database is away, the leader
//!   cannot renew, and neither of them is to end because of that.
//! * A leader whose commits are refused because the database's disk is full renews the lease between its
//!   attempts.
//! * A leader answers until a whole lease after it *sent* the last statement that was confirmed.
//! * A commit whose outcome is unknown (the connection broke) is settled by a read of the row behind a lock,
//!   which waits until the old statement is over. A batch that was written counts once a later statement is
//!   confirmed.

/// The name of one reign: a random number that a controller draws when it takes the lease.
pub type Holder = u128;

/// Milliseconds between two reads of the row by a standby.
pub const LOOK_EVERY_MS: i64 = 200;
/// Milliseconds between two renewals by a leader.
pub const RENEW_EVERY_MS: i64 = 250;
/// Milliseconds that a controller waits after a lost connection.
pub const RECONNECT_AFTER_MS: i64 = 100;

/// The row of the lease, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of times that the lease was taken.
    pub epoch: u64,
    /// The controller that leads; `None` before the lease was first taken.
    pub holder: Option<Holder>,
    /// The last entry of the journal.
    pub seq: u64,
    /// Number that changes with every statement that writes the row.
    pub version: u64,
    /// Number of takings and commits.
    pub commits: u64,
    /// True if the holder has given up the lease.
    pub released: bool,
    /// Duration of the holder's lease in milliseconds.
    pub lasts_ms: i64,
}

/// The values of the row that a leader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The leader's own epoch.
    pub epoch: u64,
    /// Number of the journal's last entry.
    pub seq: u64,
    /// Number of takings and commits so far. A renewal that is carried out late does not change this number.
    pub commits: u64,
}

/// A statement for the database. Every statement but the two that read names the row that it expects, and
/// writes nothing if the row differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Reads the lease row.
    Look,
    /// Takes the lease if the row is still this one, then reads the last entry in another statement.
    Take {
        /// The row that was read.
        seen: Row,
        /// True to take the lease even if the database's clock says that it has not expired.
        whatever_its_clock_says: bool,
    },
    /// Writes the batch that ends at entry `to`.
    Commit {
        /// The row that is expected.
        fence: Fence,
        /// The last entry of the batch; that of `fence` if the batch has no entries.
        to: u64,
    },
    /// Renews the lease for another period.
    Renew {
        /// The row that is expected.
        fence: Fence,
    },
    /// Reads the row behind a lock that waits for statements writing the row.
    Judge,
    /// Gives up the lease.
    Release {
        /// The row that is expected.
        fence: Fence,
    },
}

/// The outcome of a statement.
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
    /// The database refused the statement as such, and nothing was written: its disk is full, or a lock was
    /// not free.
    Failed,
    /// The outcome is unknown: the connection broke or the time limit passed.
    Lost,
}

/// The next step of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends this statement and reports its outcome.
    Send(Statement),
    /// Waits until a time, or until a batch arrives.
    Wait {
        /// Time at which [`Lease::next`] is called again.
        until: i64,
    },
    /// Ends the process, for the reason given.
    End(End),
}

/// The reason for which a controller ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another controller leads, in this epoch.
    Fenced {
        /// The epoch of the other controller.
        epoch: u64,
    },
    /// The database ends at `found` although a later entry was confirmed: it is an older copy of itself.
    WentBack {
        /// The last entry that was confirmed.
        confirmed: u64,
        /// The last entry that is there.
        found: u64,
    },
    /// The lease was given up as requested.
    Released,
}

/// The state of the lease as one controller knows it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The controller's name, and the duration of its lease in milliseconds.
    own: (Holder, i64),
    state: State,
    /// Time before which no statement is sent.
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
    /// The row last read, and the time at which this version was first read.
    seen: Option<(Row, i64)>,
    /// Time of the next read.
    next_look: i64,
    /// True if the row may have changed unseen, because statements were lost since it was read.
    was_blind: bool,
}

#[derive(Clone, Debug)]
struct Leading {
    /// The row as this controller last wrote it.
    known: Fence,
    /// The last entry that is durable.
    confirmed: u64,
    /// True if the offered batch is written but not confirmed.
    batch_written: bool,
    /// True if the outcome of the last statement that would have changed the row is unknown.
    in_doubt: bool,
    /// The last entry of the offered batch after an unconfirmed commit of the batch was sent. The database
    /// may still carry out that commit.
    attempted: Option<u64>,
    /// Answers leave until then.
    until: i64,
    next_renewal: i64,
    /// True if the last statement was a commit that the database refused as such.
    commit_failed: bool,
}

impl Lease {
    /// A standby. `holder` must be a name that no other controller uses; `lasts_ms` is the duration of its
    /// lease.
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

    /// The next step. `offered` is the last entry of the waiting batch, if any; it stays the same until
    /// [`Lease::note`] reports that the batch is durable.
    #[must_use]
    pub fn next(&self, now: i64, offered: Option<u64>) -> Step {
        match &self.state {
            State::Over(end) => Step::End(*end),
            _ if now < self.not_before => Step::Wait { until: self.not_before },
            State::Following(following) => following.next(now),
            State::Leading(leading) => leading.next(now, offered, self.resigning),
        }
    }

    /// Records the outcome of the statement sent at `sent`. Returns true if the offered batch is durable.
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

    /// Gives up the lease as soon as no batch waits; a standby ends at once. No answer is sent from here on,
    /// since another controller may take the lease before the release is confirmed.
    pub fn resign(&mut self) {
        self.resigning = true;
        if matches!(self.state, State::Following(_)) {
            self.state = State::Over(End::Released);
        }
    }

    /// Makes a standby read the row as its next step.
    pub fn look_now(&mut self) {
        if let State::Following(following) = &mut self.state {
            following.next_look = i64::MIN;
        }
    }

    /// The epoch in which this controller leads; `None` if it does not lead.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        match &self.state {
            State::Leading(leading) => Some(leading.known.epoch),
            State::Following(_) | State::Over(_) => None,
        }
    }

    /// The last durable entry; `None` if this controller does not lead.
    #[must_use]
    pub fn durable(&self) -> Option<u64> {
        match &self.state {
            State::Leading(leading) => Some(leading.confirmed),
            State::Following(_) | State::Over(_) => None,
        }
    }

    /// Time until which answers may leave this controller; `i64::MIN` if it does not lead or is resigning.
    #[must_use]
    pub fn answers_until(&self) -> i64 {
        match &self.state {
            State::Leading(leading) if !self.resigning => leading.until,
            State::Leading(_) | State::Following(_) | State::Over(_) => i64::MIN,
        }
    }

    /// The row that a standby has read last; `None` before the first read, and for a controller that is no
    /// standby.
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
            // A database whose clock was set back would take a dead leader's lease for valid just as long.
            let whatever_its_clock_says = free || unchanged >= 2 * lasts_ms;
            return Step::Send(Statement::Take { seen: row.clone(), whatever_its_clock_says });
        }
        Step::Wait { until: self.next_look.min(since + lasts_ms) }
    }

    /// The next state, if it changes.
    fn note(&mut self, sent: i64, now: i64, outcome: Outcome, own: (Holder, i64)) -> Option<State> {
        let (holder, lasts_ms) = own;
        match outcome {
            Outcome::Read(row) if row.holder == Some(holder) && !row.released => {
                // The taking with the unknown outcome was carried out. Answers are sent after the first
                // renewal.
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

    /// The reason to end; `None` to go on.
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
            // A confirmed renewal does not show that commits work.
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
            // The statement that was to be judged is still in doubt.
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
        // A leader renews at once after a lost statement.
        (self.until, self.next_renewal) = (if end.is_some() { i64::MIN } else { self.until }, i64::MIN);
        end
    }
}
