//! The PostgreSQL backend: one database for a cluster, which several controllers share, with the schema
//! `spur`.
//!
//! Every change is one statement that commits by itself, so that a paused controller holds no lock. No
//! statement is ever cancelled: a commit whose wait for a replica is cancelled reports success. A statement
//! beyond its time limit loses its connection instead, and its outcome is looked up.

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

/// Converts a sequence number or id for SQL.
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).expect("ids and sequence numbers are checked to be far below 2^63")
}

/// Converts back a number that only this program writes.
fn from_sql(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The SQLSTATE of a full disk.
const DISK_FULL: &str = "53100";
/// SQLSTATEs of a server that is stopping, starting or a replica, or has ended this session.
const AWAY: [&str; 5] = ["57P01", "57P02", "57P03", "57P04", "25006"];
/// Classes of SQLSTATEs of statements that are themselves wrong.
const WRONG: [&str; 5] = ["0A", "22", "23", "42", "54"];

/// The chance of success of a repetition after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The connection is gone, and the outcome of the statement is unknown.
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

/// True if an operation failed because the database is away, so that a later attempt may succeed.
pub(super) fn may_pass(error: &StoreError) -> bool {
    let StoreError::Database { source, .. } = error else { return false };
    let sql = source.downcast_ref::<sqlx::Error>();
    sql.is_some_and(|error| !matches!(error, sqlx::Error::Database(_)) || failure(error) != Failure::Final)
}

/// Returns the text of an error for people.
fn words(error: &sqlx::Error) -> String {
    match error {
        // The TLS library's text for this error is a link to its manual.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the database closed the connection".to_owned()
        }
        error => error.to_string(),
    }
}

/// Converts an error of the database into the store's error. `place` names the database.
fn failed(action: &'static str, place: &Path, error: sqlx::Error) -> StoreError {
    if code(&error).is_some_and(|code| code == DISK_FULL) {
        return StoreError::DiskFull { path: place.to_owned() };
    }
    StoreError::Database { action, path: place.to_owned(), source: Arc::new(error) }
}

/// Returns the error of a connection whose time limit has passed.
fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer in time"))
}
