//! Import of a whole journal: all rows are written first, and the lease row, which makes them valid, last.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::connect::{Database, limited, limited_by};
use super::{StoreError, failed, from_sql, schema, sql_int};
use crate::store::Request;

/// Longest time to write one blob.
const BLOB_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// An import under way.
pub struct Import {
    connection: PgConnection,
    place: std::path::PathBuf,
    seq: u64,
    epoch: u64,
    chunks: i64,
}

/// The numbers of imported rows, as the database counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Number of scripts and environments.
    pub blobs: u64,
    /// Number of request ids.
    pub requests: u64,
    /// Number of runs of jobs in accounting.
    pub jobs: u64,
    /// Number of steps in accounting.
    pub steps: u64,
}

impl Import {
    /// Begins to write the state after entry `seq` of a journal whose last epoch was `epoch`.
    ///
    /// # Errors
    /// [`StoreError::NotEmpty`] for a database with a journal, or a part of an import; otherwise the
    /// database's refusal.
    pub async fn begin(database: &Database, seq: u64, epoch: u64) -> Result<Self, StoreError> {
        let mut connection = database.connect().await?;
        schema::migrate(&mut connection, database).await?;
        let place = database.place().to_owned();
        let mut import = Self { connection, place, seq, epoch, chunks: 0 };
        let used = "SELECT (SELECT epoch + seq FROM lease) + (SELECT count(*) FROM snapshot) + (SELECT count(*) FROM blob)
                    + (SELECT count(*) FROM request) + (SELECT count(*) FROM job)";
        let used: i64 = limited(sqlx::query(used).fetch_one(&mut import.connection))
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|error| import.failed(error))?;
        if used > 0 {
            return Err(StoreError::NotEmpty { path: import.place });
        }
        let begin = sqlx::query("INSERT INTO snapshot (seq, epoch) VALUES ($1, $2)");
        let begun = begin.bind(sql_int(seq)).bind(sql_int(epoch)).execute(&mut import.connection);
        let begun = limited(begun).await;
        begun.map_err(|error| import.failed(error))?;
        Ok(import)
    }

    /// Adds a chunk of the snapshot.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        self.chunks += 1;
        let insert =
            sqlx::query("INSERT INTO chunk (seq, epoch, number, kind, body) VALUES ($1, $2, $3, $4, $5)")
                .bind(sql_int(self.seq))
                .bind(sql_int(self.epoch))
                .bind(self.chunks)
                .bind(kind)
                .bind(body);
        let written = limited(insert.execute(&mut self.connection)).await;
        written.map(drop).map_err(|error| self.failed(error))
    }

    /// Adds a blob.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn blob(&mut self, id: u64, body: Vec<u8>) -> Result<(), StoreError> {
        let insert = sqlx::query("INSERT INTO blob (id, body) VALUES ($1, $2)").bind(sql_int(id)).bind(body);
        let written = limited_by(BLOB_LIMIT, insert.execute(&mut self.connection)).await;
        written.map(drop).map_err(|error| self.failed(error))
    }

    /// Adds ids of handled requests, in the order of their arrival.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn requests(&mut self, requests: &[Request]) -> Result<(), StoreError> {
        let insert = "INSERT INTO request (id, uid, seq, at, reply) SELECT r.id, r.uid, r.seq, r.at, r.reply
            FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
                WITH ORDINALITY AS r (id, uid, seq, at, reply, n) ORDER BY r.n";
        let insert = sqlx::query(insert)
            .bind(requests.iter().map(|request| &request.id[..]).collect::<Vec<&[u8]>>())
            .bind(requests.iter().map(|request| i64::from(request.uid)).collect::<Vec<i64>>())
            .bind(requests.iter().map(|request| sql_int(request.seq)).collect::<Vec<i64>>())
            .bind(requests.iter().map(|request| request.at).collect::<Vec<i64>>())
            .bind(requests.iter().map(|request| &request.reply[..]).collect::<Vec<&[u8]>>());
        let written = limited(insert.execute(&mut self.connection)).await;
        written.map(drop).map_err(|error| self.failed(error))
    }

    /// Makes the import valid, durably, unless the database is in use already.
    ///
    /// # Errors
    /// [`StoreError::NotEmpty`], or the database's refusal.
    pub async fn finish(mut self) -> Result<Imported, StoreError> {
        let finish = "WITH whole AS (UPDATE snapshot SET chunks = $3 WHERE seq = $1 AND epoch = $2)
            UPDATE lease SET seq = $1, epoch = $2, version = version + 1 WHERE one = 1 AND epoch = 0 RETURNING
                (SELECT count(*) FROM blob), (SELECT count(*) FROM request), (SELECT count(*) FROM job),
                (SELECT count(*) FROM step)";
        let finish = sqlx::query(finish).bind(sql_int(self.seq)).bind(sql_int(self.epoch)).bind(self.chunks);
        let row = limited_by(BLOB_LIMIT, finish.fetch_optional(&mut self.connection)).await;
        let Some(row) = row.map_err(|error| self.failed(error))? else {
            return Err(StoreError::NotEmpty { path: self.place });
        };
        let count = |column| row.try_get::<i64, _>(column).map(from_sql).map_err(|error| self.failed(error));
        Ok(Imported { blobs: count(0)?, requests: count(1)?, jobs: count(2)?, steps: count(3)? })
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        failed("write to", &self.place, error)
    }
}
