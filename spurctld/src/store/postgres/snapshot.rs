//! A snapshot in chunks: rows that become valid when one fenced statement completes the snapshot.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::connect::limited;
use super::read::Reader;
use super::{StoreError, sql_int};

/// Completes a snapshot and removes the older ones, if this controller still has the lease. The row lock
/// delays a takeover meanwhile.
const FINISH: &str = "WITH fence AS (
    SELECT 1 FROM lease WHERE one = 1 AND history = $1 AND epoch = $2 FOR UPDATE
), older AS (
    DELETE FROM snapshot USING fence WHERE snapshot.seq < $3 OR (snapshot.seq = $3 AND snapshot.epoch < $2)
)
UPDATE snapshot SET chunks = $4 FROM fence WHERE snapshot.seq = $3 AND snapshot.epoch = $2 RETURNING chunks";

/// A snapshot being written, on a connection of its own.
pub(in crate::store) struct Writer {
    reader: Reader,
    connection: PgConnection,
    history: String,
    epoch: u64,
    seq: u64,
    chunks: i64,
}

impl Writer {
    pub(in crate::store) async fn begin(
        reader: &Reader,
        history: &str,
        epoch: u64,
        seq: u64,
    ) -> Result<Self, StoreError> {
        let mut connection = reader.database().connect().await?;
        // Removes interrupted snapshots: those of earlier epochs, and this controller's at the same entry.
        let remove =
            "DELETE FROM snapshot WHERE chunks IS NULL AND (epoch < $2 OR (epoch = $2 AND seq = $1))";
        let begin = "INSERT INTO snapshot (seq, epoch) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        for sql in [remove, begin] {
            let statement = sqlx::query(sql).bind(sql_int(seq)).bind(sql_int(epoch));
            let begun = limited(statement.execute(&mut connection)).await;
            begun.map_err(|error| reader.failed("begin a snapshot in", error))?;
        }
        Ok(Self { reader: reader.clone(), connection, history: history.to_owned(), epoch, seq, chunks: 0 })
    }

    pub(in crate::store) async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        self.chunks += 1;
        let insert =
            sqlx::query("INSERT INTO chunk (seq, epoch, number, kind, body) VALUES ($1, $2, $3, $4, $5)")
                .bind(sql_int(self.seq))
                .bind(sql_int(self.epoch))
                .bind(self.chunks)
                .bind(kind)
                .bind(body);
        let written = limited(insert.execute(&mut self.connection)).await;
        written.map(drop).map_err(|error| self.reader.failed("write a snapshot to", error))
    }

    /// Makes the snapshot valid and removes the older ones.
    pub(in crate::store) async fn finish(mut self) -> Result<(), StoreError> {
        let finish = sqlx::query(FINISH)
            .bind(&self.history)
            .bind(sql_int(self.epoch))
            .bind(sql_int(self.seq))
            .bind(self.chunks);
        let row = limited(finish.fetch_optional(&mut self.connection)).await;
        let row = row.map_err(|error| self.reader.failed("finish a snapshot in", error))?;
        match row.map(|row| row.try_get::<Option<i64>, _>(0)) {
            Some(_) => Ok(()),
            None => Err(StoreError::Stopped),
        }
    }
}
