//! One commit as one statement for the database's thread.
//!
//! What costs most in a small commit is not the rows but the way to the thread that owns the connection and back. So
//! all of a commit, from BEGIN to COMMIT, goes there at once, and the statements are always the same, however many rows
//! there are: the rows of a table arrive as two arguments, their contents one after the other and a list in JSON of
//! what lies where.

use std::fmt::Write;

use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use super::{BLOB_PART_BITS, BLOB_PART_BYTES, sql_int};
use crate::store::{Batch, Blob, Entry, Request};

/// Should it fail on the way, the connection is closed, which takes back what was done of it.
const COMMIT: &str = "BEGIN IMMEDIATE;
INSERT INTO journal (seq, epoch, at, body)
    SELECT ? + key, ?, value ->> 0, substr(?, value ->> 1, value ->> 2) FROM json_each(?);
INSERT INTO blob (key, body)
    SELECT value ->> 0, substr(?, value ->> 1, value ->> 2) FROM json_each(?);
INSERT INTO request (id, uid, seq, at, reply)
    SELECT substr(?, value ->> 0, 16), value ->> 1, value ->> 2, value ->> 3,
           substr(?, (value ->> 0) + 16, value ->> 4) FROM json_each(?)
    WHERE true ON CONFLICT (id) DO NOTHING;
INSERT INTO released (id) SELECT value FROM json_each(?) WHERE true ON CONFLICT DO NOTHING;
COMMIT";

/// Rows of one table.
struct Rows {
    /// What they hold, one after the other, behind one byte that keeps this from being empty: SQL takes the piece of
    /// nothing for NULL.
    content: Vec<u8>,
    /// A JSON array with an item for each.
    list: String,
}

/// What is to become durable at once.
pub(super) struct Transaction {
    /// The first entry's number.
    first: u64,
    epoch: u64,
    entries: Rows,
    parts: Rows,
    requests: Rows,
    released: Rows,
}

impl Rows {
    /// No rows; `content` is how many bytes will come, `count` how many rows.
    fn new(content: usize, count: usize) -> Self {
        const ITEM: usize = 40;
        let mut rows =
            Self { content: Vec::with_capacity(content + 1), list: String::with_capacity(count * ITEM + 2) };
        rows.content.push(0);
        rows.list.push('[');
        rows
    }

    /// Where the next content begins, as SQL counts: from 1.
    fn place(&self) -> usize {
        self.content.len() + 1
    }

    fn item(&mut self, item: std::fmt::Arguments<'_>) {
        if self.list.len() > 1 {
            self.list.push(',');
        }
        // Writing into a string cannot fail.
        let _ = self.list.write_fmt(item);
    }

    fn bind(mut self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
        self.list.push(']');
        arguments.add(self.content)?;
        arguments.add(self.list)
    }
}

impl Transaction {
    /// All of `batches`, whose entries follow each other from `first` on.
    pub(super) fn of(first: u64, epoch: u64, batches: Vec<Batch>) -> Self {
        let sum = |size: fn(&Batch) -> usize| batches.iter().map(size).sum::<usize>();
        let entries = sum(|batch| batch.entries.iter().map(|entry| entry.body.len()).sum());
        let blobs = sum(|batch| batch.blobs.iter().map(|blob| blob.body.len()).sum());
        let requests = sum(|batch| batch.requests.iter().map(|request| 16 + request.reply.len()).sum());
        let mut transaction = Self {
            first,
            epoch,
            entries: Rows::new(entries, sum(|batch| batch.entries.len())),
            parts: Rows::new(blobs, sum(|batch| batch.blobs.len())),
            requests: Rows::new(requests, sum(|batch| batch.requests.len())),
            released: Rows::new(0, sum(|batch| batch.released.len())),
        };
        for batch in batches {
            batch.entries.iter().for_each(|entry| transaction.entry(entry));
            batch.blobs.iter().for_each(|blob| transaction.blob(blob));
            batch.requests.iter().for_each(|request| transaction.request(request));
            for id in batch.released {
                transaction.released.item(format_args!("{}", sql_int(id)));
            }
        }
        transaction
    }

    fn entry(&mut self, entry: &Entry) {
        let rows = &mut self.entries;
        let (place, length) = (rows.place(), entry.body.len());
        rows.item(format_args!("[{},{place},{length}]", entry.at));
        rows.content.extend_from_slice(&entry.body);
    }

    /// Cuts a blob into parts under ascending keys. An empty one has one empty part, so that it is there.
    fn blob(&mut self, blob: &Blob) {
        let rows = &mut self.parts;
        let (mut place, mut rest) = (rows.place(), blob.body.len());
        for key in blob.id << BLOB_PART_BITS.. {
            let length = rest.min(BLOB_PART_BYTES);
            rows.item(format_args!("[{},{place},{length}]", sql_int(key)));
            (place, rest) = (place + length, rest - length);
            if rest == 0 {
                break;
            }
        }
        rows.content.extend_from_slice(&blob.body);
    }

    fn request(&mut self, request: &Request) {
        let (rows, seq) = (&mut self.requests, sql_int(request.seq));
        let (place, length) = (rows.place(), request.reply.len());
        rows.item(format_args!("[{place},{},{seq},{},{length}]", request.uid, request.at));
        rows.content.extend_from_slice(&request.id);
        rows.content.extend_from_slice(&request.reply);
    }

    /// Makes it durable.
    pub(super) async fn commit(self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let arguments = self.arguments().map_err(sqlx::Error::Encode)?;
        sqlx::query_with(COMMIT, arguments).execute(conn).await.map(drop)
    }

    fn arguments(self) -> Result<SqliteArguments, BoxDynError> {
        let mut arguments = SqliteArguments::default();
        arguments.add(sql_int(self.first))?;
        arguments.add(sql_int(self.epoch))?;
        self.entries.bind(&mut arguments)?;
        self.parts.bind(&mut arguments)?;
        // The statement looks at it in two places.
        arguments.add(self.requests.content.clone())?;
        self.requests.bind(&mut arguments)?;
        let Rows { mut list, .. } = self.released;
        list.push(']');
        arguments.add(list)?;
        Ok(arguments)
    }
}
