//! Node events in the accounting database.

use sqlx::sqlite::{Sqlite, SqliteConnection};
use sqlx::{QueryBuilder, Row};

use crate::store::accounting::{EventQuery, NodeChange, NodeEvent, restrict_events};

/// Ends the open event of a node. A change that is written again ends an event that it has opened itself.
const END: &str = "UPDATE node_event SET ended = max(?, started) WHERE node = ? AND ended IS NULL";
const BEGIN: &str = "INSERT INTO node_event (node, started, ended, state, reason, user) VALUES (?, ?, NULL, ?, ?, ?) \
                     ON CONFLICT (node, started, state) DO UPDATE SET ended = NULL, reason = excluded.reason, \
                     user = excluded.user";
const IS_OPEN: &str = "SELECT count(*) FROM node_event WHERE node = ? AND ended IS NULL";

/// Writes changes in order.
pub(super) async fn change(writer: &mut SqliteConnection, changes: &[NodeChange]) -> Result<(), sqlx::Error> {
    for NodeChange { node, at, outage, is_new } in changes {
        if *is_new {
            sqlx::query(END).bind(at).bind(node).execute(&mut *writer).await?;
        } else {
            let open = sqlx::query(IS_OPEN).bind(node).fetch_one(&mut *writer).await?;
            if open.try_get::<i64, _>(0)? > 0 {
                continue;
            }
        }
        if let Some(outage) = outage {
            let begin = sqlx::query(BEGIN).bind(node).bind(at);
            begin.bind(&outage.state).bind(&outage.reason).bind(&outage.user).execute(&mut *writer).await?;
        }
    }
    Ok(())
}

/// Returns the statement that reads a page of events.
pub(super) fn select(query: &EventQuery) -> QueryBuilder<Sqlite> {
    let mut sql =
        QueryBuilder::new("SELECT node, started, ended, state, reason, user FROM node_event WHERE true");
    restrict_events(&mut sql, query);
    sql
}

/// Reads one event from a row.
pub(super) fn read(row: &sqlx::sqlite::SqliteRow) -> Result<NodeEvent, sqlx::Error> {
    Ok(NodeEvent {
        node: row.try_get("node")?,
        started: row.try_get("started")?,
        ended: row.try_get("ended")?,
        state: row.try_get("state")?,
        reason: row.try_get("reason")?,
        user: row.try_get("user")?,
    })
}
