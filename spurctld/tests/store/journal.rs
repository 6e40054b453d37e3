//! Tests of the journal's interface: commits, recovery, request ids, blobs, snapshots and compaction.

use std::fs;

use crate::fixture::{batch, body, directory, drain, on_both, request_id, script};
use spurctld::store::{Batch, Blob, Compacted, Entry, Journal, Place, Retention, StoreError, Tuning};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};

const DAY: Retention = Retention { entries_through: u64::MAX, requests_before: i64::MIN };

/// Runs SQL on a closed journal, bypassing the store.
async fn tamper(path: &std::path::Path, sql: &'static str) {
    let mut conn =
        SqliteConnectOptions::new().filename(path).connect().await.expect("the journal is a database");
    conn.execute(sql).await.expect("the statement fits the schema");
    conn.close().await.expect("a database that was opened can be closed");
}

on_both! {
    async fn pipelined_batches_become_durable_in_order(place) {
        let (journal, recovered) = Journal::open(place).await.unwrap();
        assert_eq!((recovered.epoch, recovered.last_seq, recovered.snapshot_seq), (1, 0, 0));
        let mut commits = Vec::new();
        let mut next = 1;
        for count in (0..100).map(|n| n % 7 * 11) {
            commits.push((next + count - 1, journal.submit(batch(&journal, next, count)).await.unwrap()));
            next += count;
        }
        let mut durable = 0;
        for (last, commit) in commits {
            let committed = commit.await.unwrap().seq;
            assert!(committed >= last && committed >= durable);
            assert!(*journal.committed().borrow() >= last);
            durable = committed;
        }
        assert_eq!(durable, next - 1);
        journal.close().await;

        let (journal, mut recovered) = Journal::open(place).await.unwrap();
        assert_eq!((recovered.epoch, recovered.last_seq), (2, next - 1));
        assert_eq!(recovered.next_chunk().await.unwrap(), None);
        assert_eq!(drain(&mut recovered).await, Some((1, next - 1)));
        let page = journal.entries(41).await.unwrap();
        assert_eq!((page[0].seq, page[0].epoch), (42, 1));
        assert_eq!(journal.entries(next - 1).await.unwrap(), Vec::new());
    }
}

#[test]
fn a_thread_without_a_runtime_can_commit() {
    let path = directory("blocking").join("spur.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (journal, _) = runtime.block_on(Journal::open(&path)).unwrap();
    let first = journal.submit_blocking(batch(&journal, 1, 3)).unwrap();
    let second = journal.submit_blocking(batch(&journal, 4, 1)).unwrap();
    assert_eq!(second.wait_blocking().unwrap().seq, 4);
    assert!(first.wait_blocking().unwrap().seq >= 3);
}

on_both! {
    async fn a_request_is_remembered_until_it_expires(place) {
        let (journal, _) = Journal::open(place).await.unwrap();
        journal.commit(batch(&journal, 1, 700)).await.unwrap();
        journal.close().await;
        let (journal, _) = Journal::open(place).await.unwrap();
        let found = journal.request(request_id(300)).await.unwrap().unwrap();
        assert_eq!((found.uid, found.seq, found.at, found.reply), (1000, 300, 300, b"300".to_vec()));
        assert_eq!(journal.request(request_id(701)).await.unwrap(), None);

        let deleted = journal.compact(Retention { entries_through: 0, requests_before: 301 }).await.unwrap();
        assert_eq!(deleted, Compacted { entries: 0, requests: 300, blobs: 0 });
        assert_eq!(journal.request(request_id(300)).await.unwrap(), None);
        assert!(journal.request(request_id(301)).await.unwrap().is_some());
    }
}

on_both! {
    async fn an_id_made_up_twice_keeps_its_first_answer(place) {
        let (journal, _) = Journal::open(place).await.unwrap();
        journal.commit(batch(&journal, 1, 1)).await.unwrap();
        let mut again = batch(&journal, 2, 1);
        again.requests[0].id = request_id(1);
        journal.commit(again).await.unwrap();
        let kept = journal.request(request_id(1)).await.unwrap().unwrap();
        assert_eq!((kept.seq, kept.reply), (1, b"1".to_vec()));
        let mut blob = batch(&journal, 3, 1);
        blob.blobs[0].id = 1;
        let refused = journal.commit(blob).await.unwrap_err();
        assert!(matches!(refused, StoreError::Duplicate { what: "blob id" }), "{refused}");
        let stopped = journal.commit(batch(&journal, 3, 1)).await.unwrap_err();
        assert!(matches!(stopped, StoreError::Duplicate { .. }), "the reason is kept: {stopped}");
        assert!(matches!(journal.ended().await, StoreError::Duplicate { .. }));
        journal.close().await;
        let (_journal, recovered) = Journal::open(place).await.unwrap();
        assert_eq!(recovered.last_seq, 2, "nothing of the refused batch is left");
    }
}

on_both! {
    async fn blobs_of_every_size_come_back(place) {
        let (journal, _) = Journal::open(place).await.unwrap();
        let sizes = [0, 1, 4096, 65_535, 65_536, 65_537, 8 << 20, 16 << 20];
        for (id, size) in (1..).zip(sizes) {
            let body: Vec<u8> = (0..size).map(|byte: usize| (byte * 31 + size) as u8).collect();
            let blobs = vec![Blob { id, body: body.clone().into() }];
            journal.commit(Batch { blobs, ..Batch::default() }).await.unwrap();
            assert!(journal.blob(id).await.unwrap() == Some(body), "{size} bytes");
        }
        assert_eq!(journal.blob(99).await.unwrap(), None);
        let blobs = vec![Blob { id: 100, body: vec![0; (16 << 20) + 1].into() }];
        let refused = journal.commit(Batch { blobs, ..Batch::default() }).await.unwrap_err();
        assert_eq!(refused.to_string(), "blob 100 has 16777217 bytes, at most 16777216 can be kept");

        journal.commit(Batch { released: vec![2, 8, 99], ..Batch::default() }).await.unwrap();
        assert_eq!(journal.compact(DAY).await.unwrap().blobs, 3);
        assert_eq!(journal.blob(2).await.unwrap(), None);
        assert_eq!(journal.blob(8).await.unwrap(), None);
        assert_eq!(journal.blob(7).await.unwrap().unwrap().len(), 8 << 20);
    }
}

on_both! {
    async fn entries_that_do_not_continue_the_journal_are_refused(place) {
        for (tamper, message) in [
            (3, "entry 4 was handed in where entry 2 comes next"),
            (0, "entry 2 carries epoch 9, the journal is open in epoch 2"),
        ] {
            let (journal, recovered) = Journal::open(place).await.unwrap();
            if recovered.last_seq == 0 {
                journal.commit(batch(&journal, 1, 1)).await.unwrap();
            }
            let mut wrong = batch(&journal, 2, 2);
            match tamper {
                0 => wrong.entries[0].epoch = 9,
                _ => drop(wrong.entries.splice(..1, [Entry { seq: 4, epoch: 1, at: 0, body: body(4) }])),
            }
            assert_eq!(journal.commit(wrong).await.unwrap_err().to_string(), message);
            journal.close().await;
        }
    }
}

#[tokio::test]
async fn a_second_controller_is_kept_out() {
    let path = directory("lock").join("spur.db");
    let (journal, _) = Journal::open(&path).await.unwrap();
    let refused = Journal::open(&path).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    journal.close().await;
    Journal::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let path = directory("newer").join("spur.db");
    Journal::open(&path).await.unwrap().0.close().await;
    tamper(&path, "INSERT INTO _sqlx_migrations VALUES (7, 'later', 0, 1, x'00', 0)").await;
    let before = fs::read(&path).unwrap();
    let refused = Journal::open(&path).await.err().unwrap();
    assert!(matches!(refused, StoreError::NewerSchema { found: 7, known: 2, .. }), "{refused}");
    assert!(before == fs::read(&path).unwrap());
}

#[tokio::test]
async fn a_newer_schema_says_which_programs_can_use_it() {
    let path = directory("oldest").join("spur.db");
    Journal::open(&path).await.unwrap().0.close().await;
    tamper(&path, "INSERT INTO _sqlx_migrations VALUES (7, 'later', 0, 1, x'00', 0)").await;
    tamper(&path, "CREATE TABLE oldest (level INTEGER)").await;
    tamper(&path, "INSERT INTO oldest VALUES (2)").await;
    Journal::open(&path).await.unwrap().0.close().await;
    tamper(&path, "INSERT INTO oldest VALUES (99)").await;
    let refused = Journal::open(&path).await.err().unwrap().to_string();
    assert!(refused.ends_with("start a program that knows FeatureLevel=99"), "{refused}");
}

#[tokio::test]
async fn a_missing_entry_is_noticed() {
    let path = directory("gap").join("spur.db");
    let (journal, _) = Journal::open(&path).await.unwrap();
    journal.commit(batch(&journal, 1, 9)).await.unwrap();
    journal.close().await;
    tamper(&path, "DELETE FROM journal WHERE seq = 5").await;
    let (journal, mut recovered) = Journal::open(&path).await.unwrap();
    let refused = recovered.next_entries().await.unwrap_err().to_string();
    assert!(refused.ends_with("is damaged: entry 5 is missing, entry 6 follows"), "{refused}");
    assert!(matches!(journal.entries(0).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn an_entry_that_was_changed_is_noticed() {
    for (sql, said) in [
        ("UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'x', 'y') AS BLOB) WHERE seq = 5", true),
        ("UPDATE journal SET at = at + 1 WHERE seq = 5", true),
        ("UPDATE journal SET epoch = epoch - 1 WHERE seq = 5", true),
        // Entries written before checksums existed have none.
        ("UPDATE journal SET sum = NULL", false),
    ] {
        let path = directory("changed").join("spur.db");
        let (journal, _) = Journal::open(&path).await.unwrap();
        journal.commit(batch(&journal, 1, 9)).await.unwrap();
        journal.close().await;
        tamper(&path, sql).await;
        let (journal, mut recovered) = Journal::open(&path).await.unwrap();
        match recovered.next_entries().await {
            Err(refused) if said => {
                let refused = refused.to_string();
                assert!(refused.contains("is damaged: entry 5 is not what was written"), "{sql}: {refused}");
            }
            Ok(page) if !said => assert_eq!(page.len(), 9),
            other => panic!("{sql}: {other:?}"),
        }
        journal.close().await;
    }
}

#[tokio::test]
async fn a_journal_whose_end_is_missing_is_called_that() {
    let place = directory("shortened");
    let path = place.join("spur.db");
    let (journal, _) = Journal::open(&path).await.unwrap();
    journal.commit(batch(&journal, 1, 50)).await.unwrap();
    journal.close().await;
    let (journal, mut recovered) = Journal::open(&path).await.unwrap();
    assert_eq!(drain(&mut recovered).await, Some((1, 50)));
    journal.commit(batch(&journal, 51, 10)).await.unwrap();
    // Keeps the log of the last entries, as a crash leaves it.
    let copy = |name: &str| fs::copy(place.join(name), place.join(format!("{name}.kept"))).unwrap();
    for name in ["spur.db", "spur.db-wal"] {
        copy(name);
    }
    journal.close().await;
    let refusal = async |path| Journal::open(path).await.err().map(|error| error.to_string()).unwrap();
    // The log is missing.
    fs::copy(place.join("spur.db.kept"), &path).unwrap();
    let refused = refusal(&path).await;
    assert!(
        refused.contains("is shortened: it ends at entry 50, and entry 60 was acknowledged"),
        "{refused}"
    );
    // The end of the log is missing.
    let log = fs::read(place.join("spur.db-wal.kept")).unwrap();
    fs::write(place.join("spur.db-wal"), &log[..log.len() - 100]).unwrap();
    let refused = refusal(&path).await;
    assert!(refused.contains("is shortened: it ends at entry"), "{refused}");
    let left = fs::read(place.join("spur.db-wal")).unwrap();
    assert!(left == log[..log.len() - 100], "what is left of the log stays as it is");
    // The log is complete.
    fs::copy(place.join("spur.db.kept"), &path).unwrap();
    fs::write(place.join("spur.db-wal"), &log).unwrap();
    let _ = fs::remove_file(place.join("spur.db-shm"));
    let (journal, mut recovered) = Journal::open(&path).await.unwrap();
    assert_eq!(drain(&mut recovered).await, Some((1, 60)));
    journal.close().await;
    // The end of the database is missing.
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let refused = refusal(&path).await;
    assert!(refused.contains("is damaged: it has") && refused.contains("its end is missing"), "{refused}");
    // The database is missing.
    fs::remove_file(&path).unwrap();
    let refused = refusal(&path).await;
    assert!(refused.ends_with("is damaged: it is missing, and entry 60 of it was acknowledged"), "{refused}");
    // The operator accepts the loss.
    fs::copy(place.join("spur.db.kept"), &path).unwrap();
    let (journal, recovered) = Journal::open_shortened(&path).await.unwrap();
    assert_eq!(recovered.last_seq, 50);
    journal.close().await;
}

#[tokio::test]
async fn a_directory_that_cannot_hold_it_is_named() {
    let directory = directory("unwritable");
    fs::write(directory.join("file"), "").unwrap();
    for place in ["file/spur.db", "missing/spur.db"] {
        let refused = Journal::open(&directory.join(place)).await.err().unwrap();
        let message = refused.to_string();
        assert!(message.ends_with(&format!("unwritable/{place}.lock")), "{message}");
        assert!(std::error::Error::source(&refused).is_some());
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let path = directory("garbage").join("spur.db");
    fs::write(&path, "#!/bin/sh\n".repeat(1000)).unwrap();
    let refused = Journal::open(&path).await.err().unwrap();
    assert!(refused.to_string().ends_with("is damaged: file is not a database"), "{refused:?}");
}

on_both! {
    async fn a_snapshot_stands_for_the_entries_it_covers(place) {
        let (journal, _) = Journal::open(place).await.unwrap();
        journal.commit(batch(&journal, 1, 1000)).await.unwrap();
        assert_eq!(journal.compact(DAY).await.unwrap().entries, 0, "no snapshot covers them yet");
        let ahead = journal.begin_snapshot(1001).await.err().unwrap();
        assert!(matches!(ahead, StoreError::SnapshotAhead { asked: 1001, committed: 1000 }));

        for seq in [400, 900] {
            let mut snapshot = journal.begin_snapshot(seq).await.unwrap();
            for number in 0..100u64 {
                snapshot.chunk("job", vec![number as u8; 100_000]).await.unwrap();
            }
            snapshot.chunk("end", seq.to_string().into_bytes()).await.unwrap();
            snapshot.finish().await.unwrap();
        }
        let retention = Retention { entries_through: 950, ..DAY };
        assert_eq!(journal.compact(retention).await.unwrap().entries, 900);
        assert!(matches!(journal.entries(899).await, Err(StoreError::Compacted { wanted: 900, first: 901 })));
        journal.close().await;

        let (_journal, mut recovered) = Journal::open(place).await.unwrap();
        assert_eq!((recovered.snapshot_seq, recovered.last_seq), (900, 1000));
        let mut chunks = 0;
        while let Some(chunk) = recovered.next_chunk().await.unwrap() {
            match chunk.kind.as_str() {
                "job" => assert!(chunk.body == [chunks as u8; 100_000]),
                _ => assert_eq!((chunk.kind.as_str(), chunk.body), ("end", b"900".to_vec())),
            }
            chunks += 1;
        }
        assert_eq!(chunks, 101);
        assert_eq!(drain(&mut recovered).await, Some((901, 1000)));
        if let Place::File(path) = place {
            assert!(!path.with_file_name("spur.db.snapshot-400").exists(), "older snapshots are gone");
        }
    }
}

on_both! {
    async fn the_journal_goes_on_after_all_of_it_was_compacted(place) {
        let (journal, _) = Journal::open(place).await.unwrap();
        journal.commit(batch(&journal, 1, 10)).await.unwrap();
        journal.begin_snapshot(10).await.unwrap().finish().await.unwrap();
        assert_eq!(journal.compact(DAY).await.unwrap().entries, 10);
        assert!(matches!(journal.entries(3).await, Err(StoreError::Compacted { wanted: 4, first: 11 })));
        journal.close().await;
        let (journal, mut recovered) = Journal::open(place).await.unwrap();
        assert_eq!((recovered.snapshot_seq, recovered.last_seq), (10, 10));
        assert_eq!(drain(&mut recovered).await, None);
        journal.commit(batch(&journal, 11, 1)).await.unwrap();
        journal.close().await;

        let Place::File(path) = place else { return };
        fs::remove_file(path.with_file_name("spur.db.snapshot-10")).unwrap();
        let (_journal, mut recovered) = Journal::open(place).await.unwrap();
        let refused = recovered.next_entries().await.unwrap_err().to_string();
        assert!(refused.ends_with("is damaged: entry 1 is missing, entry 11 follows"), "{refused}");
    }
}

#[tokio::test]
async fn an_interrupted_snapshot_is_ignored_and_removed() {
    let path = directory("interrupted").join("spur.db");
    let (journal, _) = Journal::open(&path).await.unwrap();
    journal.commit(batch(&journal, 1, 20)).await.unwrap();
    let mut dropped = journal.begin_snapshot(10).await.unwrap();
    dropped.chunk("job", vec![1; 5 << 20]).await.unwrap();
    let part = |seq| path.with_file_name(format!("spur.db.snapshot-{seq}.part"));
    assert!(part(10).exists());
    drop(dropped);
    assert!(!part(10).exists());

    let mut killed = journal.begin_snapshot(20).await.unwrap();
    killed.chunk("job", vec![1; 5 << 20]).await.unwrap();
    std::mem::forget(killed);
    journal.close().await;
    assert!(part(20).exists());
    let (_journal, mut recovered) = Journal::open(&path).await.unwrap();
    assert!(!part(20).exists());
    assert_eq!((recovered.snapshot_seq, recovered.next_chunk().await.unwrap()), (0, None));
    assert_eq!(drain(&mut recovered).await, Some((1, 20)));
}

#[tokio::test]
async fn a_snapshot_of_another_cluster_is_refused() {
    let directory = directory("foreign");
    let (mine, other) = (directory.join("spur.db"), directory.join("other.db"));
    let (journal, _) = Journal::open(&other).await.unwrap();
    journal.begin_snapshot(0).await.unwrap().finish().await.unwrap();
    journal.close().await;
    Journal::open(&mine).await.unwrap().0.close().await;
    fs::rename(directory.join("other.db.snapshot-0"), directory.join("spur.db.snapshot-0")).unwrap();
    let refused = Journal::open(&mine).await.err().unwrap().to_string();
    assert!(
        refused.ends_with("spur.db.snapshot-0 is damaged: it is the snapshot of another cluster"),
        "{refused}"
    );
}

on_both! {
    /// Commits, takes snapshots and compacts at the same time; the remaining journal must be complete.
    async fn compaction_and_snapshots_run_beside_commits(place) {
        const LAST: u64 = 20_000;
        let (journal, _) = Journal::open(place).await.unwrap();
        let housekeeper = tokio::spawn({
            let journal = journal.clone();
            async move {
                let mut seen = journal.committed();
                let mut deleted = Compacted::default();
                for through in [3_000, 9_000, 15_000] {
                    seen.wait_for(|&seq| seq >= through).await.unwrap();
                    let mut snapshot = journal.begin_snapshot(through).await.unwrap();
                    for number in 0..64u8 {
                        snapshot.chunk("job", vec![number; 64 << 10]).await.unwrap();
                    }
                    snapshot.finish().await.unwrap();
                    let retention = Retention { entries_through: through - 500, requests_before: through as i64 };
                    let step = journal.compact(retention).await.unwrap();
                    deleted.entries += step.entries;
                    deleted.requests += step.requests;
                    deleted.blobs += step.blobs;
                }
                deleted
            }
        });
        let mut commits = std::collections::VecDeque::new();
        let mut next = 1;
        while next <= LAST {
            let mut more = batch(&journal, next, 50);
            more.released =
                (next..next + 50).filter(|id| id % 2 == 0 && *id > 1000).map(|id| id - 1000).collect();
            commits.push_back(journal.submit(more).await.unwrap());
            next += 50;
            if commits.len() > 8 {
                commits.pop_front().unwrap().await.unwrap();
            }
        }
        for commit in commits {
            commit.await.unwrap();
        }
        let deleted = housekeeper.await.unwrap();
        assert_eq!((deleted.entries, deleted.requests), (14_500, 14_999));
        let rest = journal.compact(Retention { entries_through: 0, ..DAY }).await.unwrap();
        assert_eq!(rest.blobs + deleted.blobs, (LAST - 1000) / 2);
        journal.close().await;
        let (journal, mut recovered) = Journal::open(place).await.unwrap();
        assert_eq!((recovered.snapshot_seq, recovered.last_seq), (15_000, LAST));
        assert_eq!(drain(&mut recovered).await, Some((15_001, LAST)));
        assert_eq!(journal.entries(14_600).await.unwrap()[0].seq, 14_601);
        for id in [1, 19_000, 19_001, LAST] {
            let kept = (id % 2 == 1 || id > LAST - 1000).then(|| script(id));
            assert_eq!(journal.blob(id).await.unwrap(), kept, "blob {id}");
        }
    }
}

/// Each commit is followed by one step, so the number of commits bounds the time.
#[tokio::test(flavor = "multi_thread")]
async fn space_is_given_back_after_a_burst() {
    let path = directory("space_is_given_back_after_a_burst").join("spur.db");
    let small = Tuning { checkpoint_bytes: 64 << 10, long_log_bytes: 256 << 10, kept_bytes: 0 };
    let size = || fs::metadata(&path).unwrap().len();
    let (journal, _) = Journal::open_with(&path, small).await.unwrap();
    let entry = |seq, body| Entry { seq, epoch: journal.epoch(), at: 0, body };
    for seq in 1..=200 {
        let entries = vec![entry(seq, vec![b'x'; 64 << 10])];
        journal.commit(Batch { entries, ..Batch::default() }).await.unwrap();
    }
    let full = size();
    assert!(full > 8 << 20, "{full} bytes");
    journal.begin_snapshot(200).await.unwrap().finish().await.unwrap();
    journal.compact(DAY).await.unwrap();
    let mut seq = 200;
    while size() > full / 4 && seq < 2_000 {
        seq += 1;
        let entries = vec![entry(seq, body(seq))];
        journal.commit(Batch { entries, ..Batch::default() }).await.unwrap();
    }
    assert!(size() <= full / 4, "{full} bytes became {} in {} commits", size(), seq - 200);
    journal.close().await;
    let (journal, mut recovered) = Journal::open_with(&path, small).await.unwrap();
    assert_eq!(drain(&mut recovered).await, Some((201, seq)));
    journal.close().await;
}

/// A database without incremental vacuum, as earlier releases created it, has it after a burst and a start.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_database_gives_space_back_when_it_is_opened() {
    let path = directory("an_old_database_gives_space_back_when_it_is_opened").join("spur.db");
    let small = Tuning { kept_bytes: 0, ..Tuning::default() };
    let (journal, _) = Journal::open(&path).await.unwrap();
    journal.commit(batch(&journal, 1, 500)).await.unwrap();
    journal.begin_snapshot(500).await.unwrap().finish().await.unwrap();
    journal.close().await;
    tamper(&path, "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM").await;
    let (journal, _) = Journal::open_with(&path, small).await.unwrap();
    let retention = Retention { requests_before: i64::MAX, ..DAY };
    journal.compact(retention).await.unwrap();
    journal.close().await;
    let full = fs::metadata(&path).unwrap().len();
    tamper(&path, "DELETE FROM blob").await;
    let (journal, recovered) = Journal::open_with(&path, small).await.unwrap();
    assert_eq!(recovered.last_seq, 500);
    journal.close().await;
    let shorter = fs::metadata(&path).unwrap().len();
    assert!(shorter < full / 2, "{full} bytes became {shorter}");
}
