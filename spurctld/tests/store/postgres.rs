//! Tests of a journal in PostgreSQL whose database fails, or for which another controller competes.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use spur_tests::postgres::Postgres;
use spurctld::store::{Batch, Condition, Journal, Place, Retention, StoreError};

use crate::fixture::{batch, body, database, drain, place_at, request_id};

/// Returns the shared server and a database of its own for the test. `None` without PostgreSQL.
fn shared(name: &str) -> Option<(&'static Postgres, Place)> {
    Some((Postgres::shared()?, database(name)?))
}

/// Commits batches of ten until `stop` is set. Returns the number of the last entry; all up to it were
/// acknowledged.
async fn commit_until(journal: Journal, stop: &AtomicBool) -> u64 {
    let mut next = *journal.committed().borrow() + 1;
    while !stop.load(Ordering::Relaxed) {
        let committed = journal.commit(batch(&journal, next, 10)).await.expect("the database comes back");
        assert_eq!(committed.seq, next + 9);
        next += 10;
    }
    next - 1
}

/// Checks that every entry up to `last` exists once, and its blob and request where sampled.
async fn check(place: &Place, last: u64) {
    let (journal, mut recovered) = Journal::open(place).await.unwrap();
    assert_eq!(recovered.last_seq, last);
    assert_eq!(drain(&mut recovered).await, Some((1, last)));
    for seq in [1, last / 2 + 1, last] {
        assert!(journal.blob(seq).await.unwrap().is_some());
        assert_eq!(journal.request(request_id(seq)).await.unwrap().unwrap().seq, seq);
    }
    journal.close().await;
}

/// Waits until the journal reports that its database is away.
async fn away(journal: &Journal) -> Condition {
    let mut conditions = journal.conditions();
    conditions.wait_for(|condition| *condition != Condition::Well).await.unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_lose_nothing() {
    let Some((server, place)) = shared("cut") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    let stop = AtomicBool::new(false);
    let cut = async {
        for _ in 0..50 {
            tokio::task::block_in_place(|| {
                server.sql("cut", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'spurctld' AND datname = 'cut'")
            });
            // The next cut waits for another commit, so that each cut meets one.
            let mut committed = journal.committed();
            committed.borrow_and_update();
            committed.changed().await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(commit_until(journal.clone(), &stop), cut);
    journal.close().await;
    assert!(last >= 500);
    check(&place, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_or_stands_still_is_waited_for() {
    let Some(mut server) = Postgres::start() else { return };
    let place = place_at(&server.create("died"));
    let (journal, _) = Journal::open(&place).await.unwrap();
    let stop = AtomicBool::new(false);
    let faults = async {
        for round in 0..3 {
            let mut committed = journal.committed();
            committed.borrow_and_update();
            committed.changed().await.unwrap();
            if round % 2 == 0 {
                tokio::task::block_in_place(|| server.kill());
                away(&journal).await;
                tokio::task::block_in_place(|| server.restart());
            } else {
                tokio::task::block_in_place(|| server.signal("STOP", true));
                away(&journal).await;
                tokio::task::block_in_place(|| server.signal("CONT", true));
            }
            committed.borrow_and_update();
            committed.changed().await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(commit_until(journal.clone(), &stop), faults);
    assert_eq!(journal.condition(), Condition::Well);
    journal.close().await;
    check(&place, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_waits_while_half_of_the_queue_is_taken() {
    let Some(server) = Postgres::start() else { return };
    let (journal, _) = Journal::open(&place_at(&server.create("busy"))).await.unwrap();
    assert!(!journal.is_busy());
    journal.has_room().await;
    server.signal("STOP", true);
    away(&journal).await;
    let mut commits = Vec::new();
    // Some batches have left the queue, to be committed together.
    while !journal.is_busy() {
        let next = 1 + commits.len() as u64;
        commits.push(journal.submit(batch(&journal, next, 1)).await.unwrap());
    }
    let waiting = tokio::spawn({
        let journal = journal.clone();
        async move { journal.has_room().await }
    });
    server.signal("CONT", true);
    waiting.await.unwrap();
    for (seq, commit) in (1..).zip(commits) {
        assert!(commit.await.unwrap().seq >= seq);
    }
    assert!(!journal.is_busy());
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_waited_for() {
    let Some((server, place)) = shared("full") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    journal.commit(batch(&journal, 1, 5)).await.unwrap();
    server.sql(
        "full",
        "CREATE FUNCTION spur.refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON spur.journal EXECUTE FUNCTION spur.refuse()",
    );
    let waiting = journal.submit(batch(&journal, 6, 5)).await.unwrap();
    let Condition::Away { why, .. } = away(&journal).await else { panic!("it is full") };
    assert!(why.contains("no space left on device"), "{why}");
    server.sql("full", "DROP TRIGGER refuse ON spur.journal");
    assert_eq!(waiting.await.unwrap().seq, 10);
    journal.close().await;
    check(&place, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_lease_was_taken_commits_and_answers_nothing() {
    let Some((server, place)) = shared("fenced") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    journal.commit(batch(&journal, 1, 5)).await.unwrap();
    assert!(journal.may_answer());
    server.sql("fenced", "UPDATE spur.lease SET epoch = epoch + 1, version = version + 1, holder = 'f00'");
    let refused = journal.commit(batch(&journal, 6, 1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { epoch: 2, .. }), "{refused}");
    assert!(matches!(journal.ended().await, StoreError::Fenced { .. }));
    assert!(!journal.may_answer());
    assert_eq!(server.sql("fenced", "SELECT max(seq), max(epoch) FROM spur.journal"), "5|1");
    journal.close().await;
    check(&place, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_went_back_is_noticed() {
    let Some((server, place)) = shared("back") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    journal.commit(batch(&journal, 1, 5)).await.unwrap();
    server.sql("back", "DELETE FROM spur.journal WHERE seq > 3; UPDATE spur.lease SET seq = 3, commits = 1");
    let noticed = journal.ended().await;
    assert!(matches!(noticed, StoreError::WentBack { confirmed: 5, found: 3, .. }), "{noticed}");
    assert!(!journal.may_answer());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_controller_is_kept_out_while_the_first_lives() {
    let Some((_, place)) = shared("second") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    let refused = Journal::open(&place).await.err().unwrap();
    assert!(refused.to_string().contains("in use by another controller (at 127.0.0.1:6817)"), "{refused}");
    journal.close().await;
    Journal::open(&place).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_waits_for_a_standby_that_was_heard_of() {
    let Some((server, place)) = shared("slow") else { return };
    let (journal, _) = Journal::open(&place).await.unwrap();
    journal.commit(batch(&journal, 1, 100)).await.unwrap();
    journal.begin_snapshot(100).await.unwrap().finish().await.unwrap();
    let through = |entries| Retention { entries_through: entries, requests_before: 0 };
    server.sql("slow", "INSERT INTO spur.standby VALUES ('b', '', 40, now(), ''), ('c', '', 7, now() - interval '11 minutes', '')");
    assert_eq!(journal.compact(through(90)).await.unwrap().entries, 40);
    server.sql("slow", "UPDATE spur.standby SET seen = now() - interval '11 minutes'");
    assert_eq!(journal.compact(through(90)).await.unwrap().entries, 50);
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_was_changed_is_called_damaged() {
    let Some((server, place)) = shared("changed") else { return };
    for (sql, said) in [
        ("UPDATE spur.journal SET at = at + 1 WHERE seq = 5", "entry 5 is not what was written"),
        ("DELETE FROM spur.journal WHERE seq = 5", "entry 5 is missing, entry 6 follows"),
    ] {
        let place = place_at(&server.create("changed"));
        let (journal, _) = Journal::open(&place).await.unwrap();
        journal.commit(batch(&journal, 1, 9)).await.unwrap();
        journal.close().await;
        server.sql("changed", sql);
        let (journal, mut recovered) = Journal::open(&place).await.unwrap();
        let refused = recovered.next_entries().await.unwrap_err().to_string();
        assert!(refused.contains(said), "{sql}: {refused}");
        journal.close().await;
    }
    server.sql("changed", "DELETE FROM spur.journal WHERE seq = 9");
    let refused = Journal::open(&place).await.err().unwrap();
    assert!(
        refused.to_string().contains("its lease ends at entry 9, and its journal at entry 8"),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_word_is_worth_nothing_is_refused() {
    let Some(server) = Postgres::start() else { return };
    let place = place_at(&server.create("unsafe"));
    for (setting, said) in [("fsync", "fsync is off"), ("full_page_writes", "full_page_writes is off")] {
        for (value, is_refused) in [("off", true), ("on", false)] {
            server.sql("unsafe", &format!("ALTER SYSTEM SET {setting} = {value}"));
            server.sql("unsafe", "SELECT pg_reload_conf()");
            while server.sql("unsafe", &format!("SHOW {setting}")) != value {}
            match Journal::open(&place).await {
                Ok((journal, _)) => {
                    assert!(!is_refused, "{setting} = {value}");
                    journal.close().await;
                }
                Err(refused) => {
                    assert!(
                        is_refused && refused.to_string().contains(said),
                        "{setting} = {value}: {refused}"
                    );
                }
            }
        }
    }
    server.sql("unsafe", "INSERT INTO spur.schema_version VALUES (7)");
    let refused = Journal::open(&place).await.err().unwrap();
    assert!(matches!(refused, StoreError::NewerSchema { found: 7, oldest: None, .. }), "{refused}");
    server.sql("unsafe", "CREATE TABLE spur.oldest (level bigint NOT NULL)");
    server.sql("unsafe", "INSERT INTO spur.oldest VALUES (99)");
    let refused = Journal::open(&place).await.err().unwrap();
    assert!(matches!(refused, StoreError::NewerSchema { oldest: Some(99), .. }), "{refused}");
    server.sql("unsafe", "UPDATE spur.oldest SET level = 2");
    Journal::open(&place).await.unwrap().0.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_in_a_list_that_can_write_is_found() {
    use spur_core::model::config::{DatabaseUrl, PostgresState, State};
    use spur_core::text::time::Seconds;
    let Some(server) = Postgres::shared() else { return };
    let good = server.create("listed");
    let urls = ["postgres://spur@127.0.0.1:1/listed", "postgres://spur@%2Fnowhere/listed", good.as_str()];
    let urls = urls.iter().map(|url| DatabaseUrl::parse(url).unwrap()).collect();
    let mut state = PostgresState { urls, password_file: None, lease: Seconds(1) };
    let place = Place::of(&State::Postgres(state.clone()), "a:1").unwrap();
    let (journal, _) = Journal::open(&place).await.unwrap();
    journal.commit(Batch { entries: batch(&journal, 1, 1).entries, ..Batch::default() }).await.unwrap();
    assert_eq!(journal.entries(0).await.unwrap()[0].body, body(1));
    journal.close().await;
    state.urls.pop();
    let place = Place::of(&State::Postgres(state), "a:1").unwrap();
    let refused = Journal::open(&place).await.err().unwrap();
    assert!(refused.to_string().contains("postgres://spur@127.0.0.1:1/listed"), "{refused}");
    assert!(refused.source().is_some());
}
