//! Opening of a journal: the checks, the schema, the lease, recovery, and the writer's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use spur_core::controller::lease::Step;
use tokio::sync::{mpsc, watch};

use super::StoreError;
use super::compact;
use super::connect::Database;
use super::lease::Session;
use super::read::{Chunks, Reader};
use super::schema;
use super::writer::{self, Writer};
use crate::clock;
use crate::store::Condition;
use crate::store::backend::{self, Opened, QUEUED_BATCHES, Queues, Recovery};

/// Connects, checks the server, and creates or updates the schema, so that a lease can be taken.
pub(super) async fn prepare(database: Database, address: String) -> Result<Session, StoreError> {
    database.check_anew();
    let mut connection = database.connect().await?;
    schema::migrate(&mut connection, &database).await?;
    Session::begin(database, connection, address).await
}

/// Opens the journal and leads; see [`Journal::open`](crate::store::Journal::open).
pub(in crate::store) async fn open(database: Database, address: String) -> Result<Opened, StoreError> {
    let mut session = prepare(database, address).await?;
    let begun = clock::since_boot_ms();
    while session.lease.leads().is_none() {
        match session.lease.next(clock::since_boot_ms(), None) {
            Step::Send(statement) => drop(session.send(&statement, &[]).await?),
            Step::Wait { until } => rest(until).await,
            Step::End(end) => return Err(session.ended(end)),
        }
        if let Condition::Away { why, .. } = &*session.shared.condition().borrow() {
            let error = sqlx::Error::Io(std::io::Error::other(why.to_string()));
            return Err(super::failed("take the lease of", session.database.place(), error));
        }
        // A lease that is still valid after that time is being renewed by a living controller.
        let own = session.names.lasts_ms;
        let lasts_ms = session.lease.seen().map_or(own, |row| row.lasts_ms.max(own));
        if clock::since_boot_ms() - begun > 3 * lasts_ms {
            let (path, address) = (session.database.place().to_owned(), session.beside.address.clone());
            return Err(StoreError::Leased { path, address });
        }
    }
    lead(session).await
}

/// Waits until a time, in milliseconds since boot.
pub(super) async fn rest(until: i64) {
    let rest = u64::try_from(until - clock::since_boot_ms()).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(rest)).await;
}

/// Returns the journal of a session that leads.
pub(super) async fn lead(mut session: Session) -> Result<Opened, StoreError> {
    let (Some(epoch), Some(last_seq)) = (session.lease.leads(), session.lease.durable()) else {
        return Err(StoreError::Stopped);
    };
    let reader = Reader::new(session.database.clone());
    // In a statement after the one that took the lease: the same statement would read the state from before
    // its wait.
    if let Some(last) = reader.last_entry().await?.filter(|last| *last != last_seq) {
        let what = format!("its lease ends at entry {last_seq}, and its journal at entry {last}");
        return Err(StoreError::damaged(reader.place(), what));
    }
    let newest = reader.newest_snapshot().await?;
    let snapshot_seq = newest.map_or(0, |(seq, _)| seq);
    if last_seq < snapshot_seq {
        let what = format!("it ends at entry {last_seq}, before its snapshot at entry {snapshot_seq}");
        return Err(StoreError::damaged(reader.place(), what));
    }
    let chunks = match newest {
        Some(of) => Some(backend::Chunks::Postgres(Chunks::open(reader.clone(), of).await?)),
        None => None,
    };
    // The writer's thread has a runtime of its own, to which the connection must belong.
    session.disconnect().await;
    let (batches, batch_queue) = mpsc::channel(QUEUED_BATCHES);
    let (compactions, compaction_queue) = mpsc::channel(1);
    let (committed_sender, committed) = watch::channel(last_seq);
    let (snapshot, snapshot_seen) = watch::channel(snapshot_seq);
    let (cluster, lease) = (session.names.history.clone(), session.shared.clone());
    let queues = Queues { batches: batch_queue, compactions: compaction_queue };
    let writer = Writer { session, epoch, last_seq, committed: committed_sender };
    let (failure, ended) = write(writer, queues, snapshot_seen)?;
    let reader = backend::Reader::Postgres(reader);
    let recovery = Recovery::new(reader.clone(), chunks, snapshot_seq, last_seq);
    Ok(Opened {
        epoch,
        cluster,
        last_seq,
        snapshot_seq,
        recovery,
        reader,
        batches,
        compactions,
        committed,
        snapshot,
        failure,
        ended,
        lease: Some(lease),
    })
}

/// The failure of the writer, and a signal that it has ended.
type Ended = (Arc<OnceLock<StoreError>>, watch::Receiver<bool>);

/// Starts the writer on a thread of its own, so that neither commits nor renewals wait for the controller's
/// other tasks.
fn write(writer: Writer, queues: Queues, snapshot: watch::Receiver<u64>) -> Result<Ended, StoreError> {
    let place = writer.session.database.place().to_owned();
    let refused = |error| StoreError::io("start a thread for", &place, error);
    let (ended_sender, ended) = watch::channel(false);
    let failure = Arc::new(OnceLock::new());
    let failure_seen = Arc::clone(&failure);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
    let reader = Reader::new(writer.session.database.clone());
    let work = move || {
        let Queues { mut batches, compactions } = queues;
        let compacting = async {
            compact::serve(reader, compactions, snapshot).await;
            std::future::pending().await
        };
        runtime.block_on(async {
            tokio::select! {
                () = writer::serve(writer, &mut batches, &failure) => {}
                () = compacting => {}
            }
        });
    };
    let begun = thread::Builder::new().name("journal".to_owned()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            crate::fault::end("the journal thread has panicked");
        }
        ended_sender.send_replace(true);
    });
    begun.map_err(refused)?;
    Ok((failure_seen, ended))
}
