//! One controller's session with the lease: a connection, the state machine [`Lease`], and the last row that
//! was read.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spur_core::controller::lease::{End, Holder, Lease, Outcome, Statement};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::watch;

use super::connect::Database;
use super::statements::{self, Beside, Names, outcome_of};
use super::{StoreError, failed};
use crate::clock;
use crate::store::{Batch, Condition};

/// Stands for an unknown time.
const NO_TIME: i64 = i64::MIN;

/// The part of a lease that the rest of the controller sees. Clones share it.
#[derive(Clone)]
pub(in crate::store) struct Shared {
    /// Time until which answers may leave, in milliseconds since boot.
    answers_until: Arc<AtomicI64>,
    /// Difference between the cluster's own clock and the milliseconds since boot.
    own_base_ms: Arc<AtomicI64>,
    condition: watch::Sender<Condition>,
    /// Addresses of the controller that leads, separated by commas; empty if no other controller leads.
    leader: Arc<Mutex<String>>,
}

impl Shared {
    fn new() -> Self {
        let (answers_until, own_base_ms) =
            (Arc::new(AtomicI64::new(NO_TIME)), Arc::new(AtomicI64::new(NO_TIME)));
        let (condition, leader) = (watch::Sender::new(Condition::Well), Arc::default());
        Self { answers_until, own_base_ms, condition, leader }
    }

    pub(in crate::store) fn leader(&self) -> String {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_leader(&self, address: &str) {
        let mut leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if *leader != address {
            address.clone_into(&mut leader);
        }
    }

    pub(in crate::store) fn may_answer(&self) -> bool {
        clock::since_boot_ms() < self.answers_until.load(Ordering::Acquire)
    }

    pub(in crate::store) fn follow_clock(&self, base_ms: i64) {
        self.own_base_ms.store(base_ms, Ordering::Relaxed);
    }

    pub(in crate::store) fn condition(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// Returns the present time of the cluster's own clock, in milliseconds; `None` if it is not known yet.
    fn own_ms(&self) -> Option<i64> {
        let base = self.own_base_ms.load(Ordering::Relaxed);
        (base != NO_TIME).then(|| base.saturating_add(clock::since_boot_ms()))
    }
}

/// The session, see the [module](self).
pub(super) struct Session {
    pub(super) database: Database,
    pub(super) names: Names,
    pub(super) lease: Lease,
    pub(super) shared: Shared,
    /// Further columns of the lease row that was read last.
    pub(super) beside: Beside,
    /// Time of that reading, in milliseconds since boot.
    pub(super) read_at: i64,
    connection: Option<PgConnection>,
}

impl Session {
    /// Begins a session on a database that has the schema.
    pub(super) async fn begin(
        database: Database,
        mut connection: PgConnection,
        address: String,
    ) -> Result<Self, StoreError> {
        let lasts_ms = i64::try_from(database.lease().as_millis()).unwrap_or(i64::MAX);
        let holder = random().map_err(|error| StoreError::io("read", "/dev/urandom".as_ref(), error))?;
        let mut names = Names { history: String::new(), holder, address, lasts_ms };
        let looked = statements::send(&mut connection, &names, &Statement::Look, &[], None).await;
        let (_, beside) = looked.map_err(|error| failed("read the lease of", database.place(), error))?;
        let beside = beside.unwrap_or_else(|| unreachable!("a look reads the row"));
        names.history.clone_from(&beside.history);
        let lease = Lease::new(holder, lasts_ms);
        let (shared, read_at) = (Shared::new(), clock::since_boot_ms());
        Ok(Self { database, names, lease, shared, beside, read_at, connection: Some(connection) })
    }

    /// Sends a statement and records its outcome. Returns true if the offered batches are durable.
    ///
    /// # Errors
    /// Fails only if no repetition can help.
    pub(super) async fn send(
        &mut self,
        statement: &Statement,
        batches: &[Batch],
    ) -> Result<bool, StoreError> {
        let sent = clock::since_boot_ms();
        let outcome = match self.try_send(statement, batches).await {
            Ok(outcome) => {
                self.shared.condition.send_if_modified(|condition| {
                    let was_away = *condition != Condition::Well;
                    if was_away {
                        tracing::info!("the database is back");
                        *condition = Condition::Well;
                    }
                    was_away
                });
                outcome
            }
            Err(error) => {
                let failed = outcome_of(error, self.database.place())?;
                self.fail(failed.outcome == Outcome::Lost, &super::words(&failed.error)).await;
                failed.outcome
            }
        };
        let durable = self.lease.note(sent, clock::since_boot_ms(), statement, outcome);
        self.shared.answers_until.store(self.lease.answers_until(), Ordering::Release);
        let other = self.lease.seen().filter(|row| !row.released && row.holder.is_some());
        self.shared.note_leader(other.map_or("", |_| &self.beside.address));
        Ok(durable)
    }

    async fn try_send(&mut self, statement: &Statement, batches: &[Batch]) -> Result<Outcome, sqlx::Error> {
        if self.connection.is_none() {
            let connected = self.database.connect().await;
            // A refused connection may succeed later: a password may be changed, a server replaced.
            let connected =
                connected.map_err(|error| sqlx::Error::Io(std::io::Error::other(chain(&error))))?;
            self.connection = Some(connected);
        }
        let Some(connection) = &mut self.connection else { return Err(sqlx::Error::PoolClosed) };
        let own_ms = self.shared.own_ms();
        let (outcome, beside) = statements::send(connection, &self.names, statement, batches, own_ms).await?;
        if let Some(beside) = beside {
            (self.beside, self.read_at) = (beside, clock::since_boot_ms());
        }
        Ok(outcome)
    }

    /// Records that the database does not answer, and drops the connection if it is lost.
    async fn fail(&mut self, lost: bool, why: &str) {
        if lost && let Some(connection) = self.connection.take() {
            // The connection is lost already, and an orderly close could wait as long as the statement.
            drop(connection.close_hard());
        }
        self.shared.condition.send_if_modified(|condition| {
            let was_well = *condition == Condition::Well;
            if was_well {
                tracing::error!("the database is away, and is asked again until it is back: {why}");
                *condition = Condition::Away { since: clock::wall(), why: why.into() };
            }
            was_well
        });
    }

    /// Returns the error of a session whose lease is over.
    pub(super) fn ended(&self, end: End) -> StoreError {
        let path = self.database.place().to_owned();
        match end {
            End::Released => StoreError::Stopped,
            End::Fenced { epoch } => StoreError::Fenced { path, epoch },
            End::WentBack { confirmed, found } => StoreError::WentBack { path, confirmed, found },
        }
    }

    /// Closes the connection; the next statement connects again.
    pub(super) async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            // Everything that was confirmed is durable.
            let _ = super::connect::limited(connection.close()).await;
        }
    }
}

/// Formats an error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn random() -> std::io::Result<Holder> {
    use std::io::Read as _;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Holder::from_ne_bytes(bytes))
}
