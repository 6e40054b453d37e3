//! Inserts many rows with few statements.
//!
//! A statement costs far more than a row, and each new length of statement must be compiled first. Rows are
//! therefore inserted in chunks whose sizes are powers of two up to [`CHUNK`]. A table then needs at most
//! nine statements, all of which stay compiled.

use std::sync::Arc;

use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// Maximum number of rows in one statement.
const CHUNK: usize = 256;

/// Statements that insert 1, 2, 4, … [`CHUNK`] rows into one table.
pub(super) struct Insert {
    statements: Vec<SqlStr>,
}

impl Insert {
    /// Prepares the statements: `head` ends before the word VALUES, and `tail` is a conflict clause or empty.
    pub(super) fn new(head: &str, columns: usize, tail: &str) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let statement = |rows: usize| -> Arc<str> {
            format!("{head} VALUES {} {tail}", vec![row.as_str(); rows].join(",")).into()
        };
        let sizes = (0..=CHUNK.ilog2()).map(|power| AssertSqlSafe(statement(1 << power)).into_sql_str());
        Self { statements: sizes.collect() }
    }

    /// Inserts all rows; `bind` adds the columns of one row.
    pub(super) async fn run<R>(
        &self,
        conn: &mut SqliteConnection,
        rows: impl ExactSizeIterator<Item = R>,
        bind: impl Fn(R, &mut SqliteArguments) -> Result<(), BoxDynError>,
    ) -> Result<(), sqlx::Error> {
        let mut rows = rows;
        while rows.len() > 0 {
            let power = rows.len().min(CHUNK).ilog2();
            let mut arguments = SqliteArguments::default();
            for row in rows.by_ref().take(1 << power) {
                bind(row, &mut arguments).map_err(sqlx::Error::Encode)?;
            }
            let statement = self.statements[power as usize].clone();
            sqlx::query_with(statement, arguments).execute(&mut *conn).await?;
        }
        Ok(())
    }
}
