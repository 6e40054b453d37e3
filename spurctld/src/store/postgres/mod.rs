//! The PostgreSQL backend: one database for a cluster, which several controllers reach, schema `spur`.
//!
//! Every change is one statement that commits by itself, so a controller that is paused holds no lock. No statement is
//! ever cancelled: a commit whose wait for a replica is cancelled reports success. A statement that takes longer than its
//! time limit loses its connection instead, and what came of it is looked up.

pub(super) mod accounting;
mod compact;
mod connect;
mod follow;
mod import;
mod lease;
mod open;
mod read;
mod schema;
pub(super) mod snapshot;
mod statements;
mod writer;

use std::path::Path;
use std::sync::Arc;

use super::StoreError;

pub use connect::Database;
pub use follow::{Follower, Turn};
pub use import::{Import, Imported};
pub(super) use lease::Shared;
pub(super) use open::open;
pub(super) use read::{Chunks, Reader};

/// A sequence number or id as SQL knows it.
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).expect("ids and sequence numbers are checked to be far below 2^63")
}

/// A number that only this program writes, read back.
fn from_sql(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The SQLSTATE of a full disk.
const DISK_FULL: &str = "53100";
/// The server is ending or starting, has turned into a replica, or has ended this session.
const AWAY: [&str; 5] = ["57P01", "57P02", "57P03", "57P04", "25006"];
/// Classes of errors that say that the statement itself is wrong.
const WRONG: [&str; 5] = ["0A", "22", "23", "42", "54"];

/// What an error says about trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The connection is gone, and so is what became of the statement.
    Lost,
    /// The statement changed nothing, and may succeed later on the same connection.
    Later,
    /// The statement changed nothing and never will.
    Final,
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(std::borrow::Cow::into_owned)
}

fn failure(error: &sqlx::Error) -> Failure {
    let Some(code) = code(error) else {
        return match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => Failure::Lost,
            _ => Failure::Final,
        };
    };
    match code.as_str() {
        // Class 08 is that of connections.
        code if AWAY.contains(&code) || code.starts_with("08") => Failure::Lost,
        code if WRONG.iter().any(|class| code.starts_with(class)) => Failure::Final,
        _ => Failure::Later,
    }
}

/// Whether an operation failed because the database is away, and may succeed later.
pub(super) fn may_pass(error: &StoreError) -> bool {
    let StoreError::Database { source, .. } = error else { return false };
    let sql = source.downcast_ref::<sqlx::Error>();
    sql.is_some_and(|error| !matches!(error, sqlx::Error::Database(_)) || failure(error) != Failure::Final)
}

/// What an error says, for people.
fn words(error: &sqlx::Error) -> String {
    match error {
        // The library of TLS has a link there to its manual.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the database closed the connection".to_owned()
        }
        error => error.to_string(),
    }
}

/// What a database error means for the one who asked. `place` names the database.
fn failed(action: &'static str, place: &Path, error: sqlx::Error) -> StoreError {
    if code(&error).is_some_and(|code| code == DISK_FULL) {
        return StoreError::DiskFull { path: place.to_owned() };
    }
    StoreError::Database { action, path: place.to_owned(), source: Arc::new(error) }
}

/// A time limit that has passed, as the error of a connection.
fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer in time"))
}
