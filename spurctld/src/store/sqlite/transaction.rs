//! One commit as one statement for the database's thread.
//!
//! In a small commit, the way to the connection's thread and back costs more than the rows. The whole commit,
//! from BEGIN to COMMIT, is therefore sent at once. The text of the statements never depends on the number of
//! rows: each table gets its rows as two arguments. One argument is the contents of all rows, one after the
//! other; the other is a JSON list of their places and lengths. Numbers are stored in the contents as digits,
//! and a list item is a single number. A list item with one JSON value per column would cost more to parse
//! than the row costs to insert.

use std::io::Write as _;

use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use super::{BLOB_PART_BITS, BLOB_PART_BYTES, sql_int};
use crate::store::{Batch, Blob, Entry, Request};

/// Statements of a commit. After a failure the connection is closed, which rolls the commit back. A list item
/// is `place << 32 | length`: the place where a row's contents begin, and the number of bytes after its
/// fixed-width columns.
const COMMIT: &str = "BEGIN IMMEDIATE;
INSERT INTO journal (seq, epoch, at, sum, body)
    SELECT $1 + key, $2, CAST(substr($3, value >> 32, 20) AS INTEGER),
           CAST(substr($3, (value >> 32) + 20, 20) AS INTEGER),
           substr($3, (value >> 32) + 40, value & 0xffffffff) FROM json_each($4);
INSERT INTO blob (key, body)
    SELECT CAST(substr($5, value >> 32, 20) AS INTEGER),
           substr($5, (value >> 32) + 20, value & 0xffffffff) FROM json_each($6);
INSERT INTO request (id, uid, seq, at, reply)
    SELECT substr($7, value >> 32, 16), CAST(substr($7, (value >> 32) + 16, 20) AS INTEGER),
           CAST(substr($7, (value >> 32) + 36, 20) AS INTEGER), CAST(substr($7, (value >> 32) + 56, 20) AS INTEGER),
           substr($7, (value >> 32) + 76, value & 0xffffffff) FROM json_each($8)
    WHERE true ON CONFLICT (id) DO NOTHING;
INSERT INTO released (id) SELECT value FROM json_each($9) WHERE true ON CONFLICT DO NOTHING;
COMMIT";

/// Number of characters of an integer in the contents, with its sign.
const DIGITS: usize = 20;
/// Number of bytes in a request's id.
const ID: usize = 16;

/// Rows of one table.
struct Rows {
    /// Contents of the rows, one after the other, after one filler byte. SQL treats a piece of an empty
    /// argument as NULL.
    content: Vec<u8>,
    /// JSON array with one number per row.
    list: Vec<u8>,
}

/// Everything that becomes durable in one commit.
pub(super) struct Transaction {
    /// Number of the first entry.
    first: u64,
    epoch: u64,
    entries: Rows,
    parts: Rows,
    requests: Rows,
    released: Rows,
}

impl Rows {
    /// Returns an empty set with capacity for `content` bytes and `count` rows.
    fn new(content: usize, count: usize) -> Self {
        let mut rows = Self {
            content: Vec::with_capacity(content + 1),
            list: Vec::with_capacity(count * (DIGITS + 1) + 2),
        };
        rows.content.push(0);
        rows.list.push(b'[');
        rows
    }

    /// Starts a row; its fixed-width columns and then `length` bytes must follow.
    fn row(&mut self, length: usize) {
        // SQL counts bytes from 1.
        let place = self.content.len() as u64 + 1;
        self.item(place << 32 | length as u64);
    }

    fn item(&mut self, item: u64) {
        let separator = if self.list.len() > 1 { "," } else { "" };
        // Writing into memory cannot fail.
        let _ = write!(self.list, "{separator}{item}");
    }

    fn number(&mut self, number: i64) {
        // Writing into memory cannot fail.
        let _ = write!(self.content, "{number:0DIGITS$}");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.content.extend_from_slice(bytes);
    }

    fn bind(self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
        arguments.add(self.content)?;
        bind_list(self.list, arguments)
    }
}

fn bind_list(mut list: Vec<u8>, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
    list.push(b']');
    arguments.add(String::from_utf8(list)?)
}

impl Transaction {
    /// Builds the transaction of all `batches`, whose entries are numbered consecutively from `first`.
    pub(super) fn of(first: u64, epoch: u64, batches: &[Batch]) -> Self {
        let entries = batches.iter().flat_map(|batch| &batch.entries);
        let blobs = batches.iter().flat_map(|batch| &batch.blobs);
        let requests = batches.iter().flat_map(|batch| &batch.requests);
        let released = batches.iter().flat_map(|batch| &batch.released);
        let rows = |sizes: &mut dyn Iterator<Item = usize>| {
            let (count, content) = sizes.fold((0, 0), |(count, content), size| (count + 1, content + size));
            Rows::new(content, count)
        };
        let mut transaction = Self {
            first,
            epoch,
            entries: rows(&mut entries.clone().map(|entry| 2 * DIGITS + entry.body.len())),
            parts: rows(&mut blobs.clone().map(|blob| DIGITS + blob.body.len())),
            requests: rows(&mut requests.clone().map(|request| ID + 3 * DIGITS + request.reply.len())),
            released: rows(&mut released.clone().map(|_| 0)),
        };
        entries.for_each(|entry| transaction.entry(entry));
        blobs.for_each(|blob| transaction.blob(blob));
        requests.for_each(|request| transaction.request(request));
        released.for_each(|id| transaction.released.item(*id));
        transaction
    }

    fn entry(&mut self, entry: &Entry) {
        let rows = &mut self.entries;
        rows.row(entry.body.len());
        rows.number(entry.at);
        rows.number(entry.checksum().into());
        rows.bytes(&entry.body);
    }

    /// Adds a blob, cut into parts under ascending keys. An empty blob gets one empty part, so that it
    /// exists.
    fn blob(&mut self, blob: &Blob) {
        let rows = &mut self.parts;
        let mut rest = &blob.body[..];
        for key in blob.id << BLOB_PART_BITS.. {
            let (part, after) = rest.split_at(rest.len().min(BLOB_PART_BYTES));
            rows.row(part.len());
            rows.number(sql_int(key));
            rows.bytes(part);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }

    fn request(&mut self, request: &Request) {
        let rows = &mut self.requests;
        rows.row(request.reply.len());
        rows.bytes(&request.id);
        rows.number(request.uid.into());
        rows.number(sql_int(request.seq));
        rows.number(request.at);
        rows.bytes(&request.reply);
    }

    /// Commits the transaction.
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
        self.requests.bind(&mut arguments)?;
        bind_list(self.released.list, &mut arguments)?;
        Ok(arguments)
    }
}
