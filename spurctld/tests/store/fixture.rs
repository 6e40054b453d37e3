//! Support for the tests of the store: an empty directory per test, and batches to commit.

use std::fs;
use std::path::PathBuf;

use spur_core::model::config::{DatabaseUrl, PostgresState, State};
use spur_core::text::time::Seconds;
use spur_tests::postgres::Postgres;
use spurctld::store::{Batch, Blob, Entry, Journal, Place, Recovered, Request};

/// Defines a test that runs on both backends, each with an empty place. PostgreSQL is skipped where it is not
/// installed.
macro_rules! on_both {
    ($(#[$documented:meta])* async fn $name:ident($place:ident) $body:block) => {
        $(#[$documented])*
        mod $name {
            use super::*;

            async fn run($place: &Place) $body

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                run(&$crate::fixture::file(stringify!($name))).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                if let Some(place) = $crate::fixture::database(stringify!($name)) {
                    run(&place).await;
                }
            }
        }
    };
}
pub(crate) use on_both;

/// Returns a journal's place in an empty directory.
pub(crate) fn file(name: &str) -> Place {
    Place::File(directory(name).join("spur.db"))
}

/// Creates a database on the server that all tests share. `None` without PostgreSQL.
pub(crate) fn database(name: &str) -> Option<Place> {
    Some(place_at(&Postgres::shared()?.create(name)))
}

/// Returns the place at a URL, with a lease of one second.
pub(crate) fn place_at(url: &str) -> Place {
    let urls = vec![DatabaseUrl::parse(url).expect("a test's URL is good")];
    let state = PostgresState { urls, password_file: None, lease: Seconds(1) };
    Place::of(&State::Postgres(state), "127.0.0.1:6817").expect("a test's URL is good")
}

/// Creates an empty directory below the build directory.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        _ => fs::create_dir_all(&path).expect("the build directory can be written"),
    }
    path
}

/// Returns the body of entry `seq`. Each number has its own body, so that a mixed-up one is detected.
pub(crate) fn body(seq: u64) -> Vec<u8> {
    format!(r#"{{"JobSubmitted":{{"job":{seq},"pad":"{}"}}}}"#, "x".repeat((seq % 997) as usize)).into_bytes()
}

/// Returns the script of entry `seq`.
pub(crate) fn script(seq: u64) -> Vec<u8> {
    (0..seq * 37 % 9001).map(|byte| (byte ^ seq) as u8).collect()
}

/// Returns the request id that entry `seq` answers.
pub(crate) fn request_id(seq: u64) -> [u8; 16] {
    (u128::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_be_bytes()
}

/// Returns a batch of the entries `first..first + count`, each with a blob and a request.
pub(crate) fn batch(journal: &Journal, first: u64, count: u64) -> Batch {
    let mut batch = Batch::default();
    for seq in first..first + count {
        let at = seq as i64;
        batch.entries.push(Entry { seq, epoch: journal.epoch(), at, body: body(seq) });
        batch.blobs.push(Blob { id: seq, body: script(seq).into() });
        batch.requests.push(Request {
            id: request_id(seq),
            uid: 1000,
            seq,
            at,
            reply: seq.to_string().into_bytes(),
        });
    }
    batch
}

/// Reads the entries of a recovery to the end and checks their bodies and epochs. Returns the numbers of the
/// first and the last entry; `None` without entries.
pub(crate) async fn drain(recovered: &mut Recovered) -> Option<(u64, u64)> {
    let mut range = None;
    loop {
        let page = recovered.next_entries().await.expect("the journal is whole");
        if page.is_empty() {
            return range;
        }
        for entry in page {
            assert_eq!(entry.body, body(entry.seq), "entry {}", entry.seq);
            assert!(entry.epoch < recovered.epoch, "entry {} is of epoch {}", entry.seq, entry.epoch);
            let first = range.map_or(entry.seq, |(first, _)| first);
            range = Some((first, entry.seq));
        }
    }
}
