//! A standby: follows the leader's journal, and takes the lease when there is no leader.

use std::time::Duration;

use spur_core::controller::lease::Step;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::mpsc;

use super::connect::{Database, limited};
use super::lease::Session;
use super::open::{self, prepare};
use super::read::{Chunks, Reader};
use super::{StoreError, sql_int};
use crate::clock;
use crate::store::backend::{self, Recovery};
use crate::store::{Entry, Journal, Recovered};

/// Pause of the listener after its connection broke.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// A journal that this controller follows and does not lead yet.
pub struct Follower {
    session: Session,
    reader: Reader,
    /// Receives a hint for each commit of the leader; the lease row that is then read counts.
    hints: mpsc::Receiver<()>,
}

/// The outcome of a turn of a [`Follower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The leader has committed entries up to this one.
    Follows {
        /// The last entry.
        last: u64,
    },
    /// This controller leads from here on.
    Leads,
}

impl Follower {
    /// Follows the journal in a database, creating the schema if necessary. `address` is where clients and
    /// nodes reach this controller.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::Unsafe`], or the database's refusal.
    pub async fn open(database: &Database, address: &str) -> Result<Self, StoreError> {
        let session = prepare(database.clone(), address.to_owned()).await?;
        let reader = Reader::new(database.clone());
        let (hint, hints) = mpsc::channel(1);
        tokio::spawn(listen(database.clone(), hint));
        Ok(Self { session, reader, hints })
    }

    /// Returns the newest snapshot and the entries after it.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn recover(&mut self) -> Result<Recovered, StoreError> {
        let newest = self.reader.newest_snapshot().await?;
        let snapshot_seq = newest.map_or(0, |(seq, _)| seq);
        let last_seq = self.reader.last_entry().await?.unwrap_or(snapshot_seq);
        let chunks = match newest {
            Some(of) => Some(backend::Chunks::Postgres(Chunks::open(self.reader.clone(), of).await?)),
            None => None,
        };
        let source =
            Recovery::new(backend::Reader::Postgres(self.reader.clone()), chunks, snapshot_seq, last_seq);
        Ok(Recovered::of(0, last_seq, snapshot_seq, source))
    }

    /// Returns the entry of the newest complete snapshot; 0 without one.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn snapshot(&self) -> Result<u64, StoreError> {
        Ok(self.reader.newest_snapshot().await?.map_or(0, |(seq, _)| seq))
    }

    /// Returns a page of about a megabyte of entries after `after`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is missing, [`StoreError::Compacted`] if they have been deleted.
    pub async fn entries(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let page = backend::Reader::Postgres(self.reader.clone()).entries(after).await?;
        match page.first() {
            Some(first) if first.seq > after + 1 => {
                Err(StoreError::Compacted { wanted: after + 1, first: first.seq })
            }
            _ => Ok(page),
        }
    }

    /// Waits until the lease has to be read, or the leader has committed, and reads the lease.
    ///
    /// # Errors
    /// Fails only if no repetition can help. A database that does not answer is no error.
    pub async fn turn(&mut self) -> Result<Turn, StoreError> {
        loop {
            match self.session.lease.next(clock::since_boot_ms(), None) {
                Step::Send(statement) => {
                    self.session.send(&statement, &[]).await?;
                    if self.session.lease.leads().is_some() {
                        return Ok(Turn::Leads);
                    }
                    if let Some(row) = self.session.lease.seen() {
                        return Ok(Turn::Follows { last: row.seq });
                    }
                }
                Step::Wait { until } => {
                    tokio::select! {
                        () = open::rest(until) => {}
                        Some(()) = self.hints.recv() => self.session.lease.look_now(),
                    }
                }
                Step::End(end) => return Err(self.session.ended(end)),
            }
        }
    }

    /// Returns a handle of the journal for readers. The handle also gives the state of the database and
    /// the address of the leader.
    #[must_use]
    pub fn journal(&self) -> Journal {
        let reader = backend::Reader::Postgres(self.reader.clone());
        Journal::following(reader, self.session.names.history.clone(), self.session.shared.clone())
    }

    /// Returns the version of the lease row that was read last; `None` before the first reading.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        self.session.lease.seen().map(|row| row.version)
    }

    /// Present reading of the cluster's own clock in milliseconds, computed from the lease row and the
    /// database's clock; `None` if no leader has recorded it.
    #[must_use]
    pub fn own_ms(&self) -> Option<i64> {
        let beside = &self.session.beside;
        let since_read = clock::since_boot_ms() - self.session.read_at;
        Some(beside.own_ms?.saturating_add(beside.age_ms.max(0)).saturating_add(since_read))
    }

    /// Records this standby's progress, so that compaction keeps the entries that it needs, and the
    /// differences of its configuration.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn report(&self, name: &str, seq: u64, differs: &str) -> Result<(), StoreError> {
        let mut borrowed = self.reader.borrow().await?;
        let sql = "INSERT INTO standby (name, address, seq, seen, differs) VALUES ($1, $2, $3, clock_timestamp(), $4)
            ON CONFLICT (name) DO UPDATE SET address = $2, seq = $3, seen = clock_timestamp(), differs = $4";
        let report =
            sqlx::query(sql).bind(name).bind(&self.session.names.address).bind(sql_int(seq)).bind(differs);
        let reported = limited(report.execute(&mut borrowed.connection)).await;
        reported.map_err(|error| self.reader.failed("write to", error))?;
        self.reader.give_back(borrowed);
        Ok(())
    }

    /// Returns the journal of a follower that has the lease, and removes the standby's row.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], or the database's refusal.
    pub async fn lead(self, name: &str) -> Result<(Journal, Recovered), StoreError> {
        let mut borrowed = self.reader.borrow().await?;
        let gone = sqlx::query("DELETE FROM standby WHERE name = $1").bind(name);
        // A row that stays is ignored after ten minutes.
        if limited(gone.execute(&mut borrowed.connection)).await.is_ok() {
            self.reader.give_back(borrowed);
        } else {
            drop(borrowed);
        }
        Journal::opened(open::lead(self.session).await?)
    }
}

/// Sends a hint for every notification, until the receiver is dropped.
async fn listen(database: Database, hint: mpsc::Sender<()>) {
    while !hint.is_closed() {
        let listened = async {
            let options =
                database.options().await.map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
            let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen("spur").await?;
            while !hint.is_closed() && listener.try_recv().await?.is_some() {
                // One waiting hint is enough.
                let _ = hint.try_send(());
            }
            Ok::<_, sqlx::Error>(())
        };
        tokio::select! {
            // Trouble with the database shows in the statements that matter.
            _ = listened => {}
            () = hint.closed() => return,
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}
