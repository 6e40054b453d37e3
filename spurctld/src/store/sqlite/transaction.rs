//! One commit as one statement for the database's thread.
//!
//! What costs most in a small commit is not the rows but the way to the thread that owns the connection and back. So
//! all of a commit, from BEGIN to COMMIT, goes there at once, and the statements are always the same, however many rows
//! there are: the rows of a table arrive as two arguments, their contents one after the other and a list in JSON of
//! what lies where. Numbers are part of the contents, in digits, and an item of the list is one number: JSON that had to
//! be taken apart for each column would cost more than the row.

use std::io::Write as _;

use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use super::{BLOB_PART_BITS, BLOB_PART_BYTES, sql_int};
use crate::store::{Batch, Blob, Entry, Request};

/// Should it fail on the way, the connection is closed, which takes back what was done of it. An item says where its
/// contents begin, times 2^32, and how many bytes they have behind the columns of fixed width.
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

/// Digits of a number among the contents, with its sign.
const DIGITS: usize = 20;
/// Bytes in a request's id.
const ID: usize = 16;

/// Rows of one table.
struct Rows {
    /// What they hold, one after the other, behind one byte that keeps this from being empty: SQL takes the piece of
    /// nothing for NULL.
    content: Vec<u8>,
    /// A JSON array with a number for each.
    list: Vec<u8>,
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
        let mut rows = Self {
            content: Vec::with_capacity(content + 1),
            list: Vec::with_capacity(count * (DIGITS + 1) + 2),
        };
        rows.content.push(0);
        rows.list.push(b'[');
        rows
    }

    /// Adds a row whose columns of fixed width come next, and then `length` bytes.
    fn row(&mut self, length: usize) {
        // As SQL counts: from 1.
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
    /// All of `batches`, whose entries follow each other from `first` on.
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

    /// Cuts a blob into parts under ascending keys. An empty one has one empty part, so that it is there.
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
        self.requests.bind(&mut arguments)?;
        bind_list(self.released.list, &mut arguments)?;
        Ok(arguments)
    }
}
