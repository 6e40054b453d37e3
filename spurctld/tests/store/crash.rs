//! Tests of the journal under kill -9, power loss and a failing disk: acknowledged entries survive complete.
//!
//! A child process (this program, started at [`commit_until_told`]) commits batches while it takes snapshots
//! and compacts. It prints `ack N` once entry N is durable.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fixture::{batch, directory, drain, request_id, script};
use spur_powerloss::{Action, Failure, Loss, Recorder, Trace, failing};
use spurctld::store::accounting::{Accounting, JobRow, Query};
use spurctld::store::{Batch, Entry, Journal, Recovered, Retention, Tuning};

const DATABASE: &str = "SPUR_TEST_JOURNAL";
const UNTIL: &str = "SPUR_TEST_UNTIL";
/// Number of batches in flight.
const PIPELINE: usize = 4;
/// Number of entries between two snapshots.
const SNAPSHOT_EVERY: u64 = 100;
/// Number of entries after which a blob is released.
const BLOB_KEPT: u64 = 40;

/// Sizes that make the log be copied and restarted every few batches.
const SMALL: Tuning = Tuning { checkpoint_bytes: 64 << 10, long_log_bytes: 256 << 10, kept_bytes: 64 << 10 };

/// Runs the child process of the other tests; not a test of its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child process of the other tests"]
async fn commit_until_told() {
    let path = PathBuf::from(std::env::var_os(DATABASE).expect("started by another test"));
    let until: u64 = std::env::var(UNTIL).unwrap().parse().unwrap();
    let (journal, mut recovered) = Journal::open_with(&path, SMALL).await.unwrap();
    let mut next = check(&mut recovered).await + 1;
    let accounting = Accounting::open(&path.with_file_name("acct.db")).await.unwrap();
    let accountant = tokio::spawn(keep_accounts(journal.clone(), accounting.clone(), until));
    let housekeeper = tokio::spawn(keep_house(journal.clone(), accounting.clone(), until));
    let mut commits = VecDeque::new();
    while next <= until || !commits.is_empty() {
        if next <= until && commits.len() < PIPELINE {
            let count = (next * 7 % 13).min(until - next) + 1;
            let more = release_old(batch(&journal, next, count));
            commits.push_back(journal.submit(more).await.unwrap());
            next += count;
        } else if let Some(commit) = commits.pop_front() {
            say(&format!("ack {}", commit.await.unwrap().seq));
        }
    }
    housekeeper.await.unwrap();
    accountant.await.unwrap();
    accounting.close().await.unwrap();
    journal.close().await;
}

/// Prints one line to the parent process in a single write.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).expect("the other end is open");
}

fn release_old(mut batch: Batch) -> Batch {
    batch.released = batch.entries.iter().filter_map(|entry| entry.seq.checked_sub(BLOB_KEPT)).collect();
    batch
}

/// Writes one row of accounting per entry.
async fn keep_accounts(journal: Journal, accounting: Accounting, until: u64) {
    let mut committed = journal.committed();
    let mut reached = accounting.reached().await.expect("readable");
    while reached < until {
        committed.wait_for(|&seq| seq > reached).await.expect("the journal is open");
        let page = journal.entries(reached).await.expect("compaction waits for the accountant");
        let row = |entry: &Entry| JobRow { job_id: entry.seq as u32, ..JobRow::default() };
        let rows = page.iter().map(row).collect();
        reached = page.last().expect("there is at least one").seq;
        accounting.write(reached, rows, Vec::new()).await.expect("there is room");
    }
}

async fn keep_house(journal: Journal, accounting: Accounting, until: u64) {
    let mut committed = journal.committed();
    let mut at = *committed.borrow() / SNAPSHOT_EVERY * SNAPSHOT_EVERY + SNAPSHOT_EVERY;
    while at <= until {
        committed.wait_for(|&seq| seq >= at).await.expect("the journal is open");
        let mut snapshot = journal.begin_snapshot(at).await.expect("the entry is durable");
        for number in 0..20 {
            snapshot.chunk("job", vec![number; 20_000]).await.expect("there is room");
        }
        snapshot.chunk("end", at.to_string().into_bytes()).await.expect("there is room");
        snapshot.finish().await.expect("there is room");
        let entries_through = accounting.reached().await.expect("readable").min(at);
        let requests_before = at.saturating_sub(SNAPSHOT_EVERY) as i64;
        let retention = Retention { entries_through, requests_before };
        journal.compact(retention).await.expect("the journal is open");
        at += SNAPSHOT_EVERY;
    }
}

/// Reads a recovery to its end, checks it and returns the number of the last entry.
async fn check(recovered: &mut Recovered) -> u64 {
    let mut chunks = 0;
    let mut end = 0;
    while let Some(chunk) = recovered.next_chunk().await.expect("the snapshot is whole") {
        match chunk.kind.as_str() {
            "job" => assert!(chunk.body == [chunks as u8; 20_000]),
            _ => end = String::from_utf8(chunk.body).expect("digits").parse().expect("a number"),
        }
        chunks += 1;
    }
    assert_eq!((chunks > 0, end), (recovered.snapshot_seq > 0, recovered.snapshot_seq));
    let (first, last) = drain(recovered).await.unwrap_or((end + 1, end));
    assert_eq!((first, last), (recovered.snapshot_seq + 1, recovered.last_seq));
    last
}

/// Opens a journal after a failure and checks that everything up to entry `acknowledged` exists.
async fn check_left(path: &Path, acknowledged: u64, what: &str) -> u64 {
    let (journal, mut recovered) =
        Journal::open(path).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let last = check(&mut recovered).await;
    assert!(
        last >= acknowledged,
        "{what}: entry {acknowledged} was acknowledged, the journal ends at {last}"
    );
    for seq in (1..=last).rev().take(3) {
        assert_eq!(journal.blob(seq).await.expect("readable"), Some(script(seq)), "{what}: blob {seq}");
        let request = journal.request(request_id(seq)).await.expect("readable").expect("remembered");
        assert_eq!((request.seq, request.reply), (seq, seq.to_string().into_bytes()), "{what}");
    }
    assert_eq!(
        journal.request(request_id(last + 1)).await.expect("readable"),
        None,
        "{what}: a batch is whole"
    );
    assert_eq!(journal.blob(last + 1).await.expect("readable"), None, "{what}: a batch is whole");
    let accounting = Accounting::open(&path.with_file_name("acct.db")).await.expect("accounting is whole");
    let reached = accounting.reached().await.expect("readable");
    assert!(reached <= last, "{what}: accounting has reached entry {reached}, the journal ends at {last}");
    let rows = accounting.jobs(&Query { limit: u32::MAX, ..Query::default() }).await.expect("readable").rows;
    assert!(rows.iter().map(|row| u64::from(row.job_id)).eq(1..=reached), "{what}: one row for each entry");
    let rest = journal.entries(reached).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(rest.len() as u64, last - reached, "{what}: accounting can go on");
    accounting.close().await.expect("nothing is left to write");
    journal.close().await;
    last
}

/// Turns `command` into the child. `command` is this program, or a program that starts it with the same
/// arguments.
fn child<'a>(command: &'a mut Command, path: &Path, until: u64) -> &'a mut Command {
    command.args(["--exact", "crash::commit_until_told", "--ignored", "--nocapture"]);
    command.env(DATABASE, path).env(UNTIL, until.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped())
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("the test runs from a file")
}

/// Returns the entry that a line acknowledges; `None` for any other line.
fn acknowledged(line: &str) -> Option<u64> {
    line.trim_end().strip_prefix("ack ")?.parse().ok()
}

/// Reads `enough` acknowledgements, or all until the child ends, and returns the last one.
fn listen(child: &mut Child, enough: usize) -> u64 {
    let stdout = child.stdout.take().expect("the child's output is a pipe");
    let lines = BufReader::new(stdout).lines().map(|line| line.expect("text"));
    lines.filter_map(|line| acknowledged(&line)).take(enough).last().unwrap_or(0)
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let path = directory("kill").join("spur.db");
    let mut last = 0;
    for round in 0..50 {
        let mut child = child(&mut Command::new(this_program()), &path, u64::MAX - 1).spawn().unwrap();
        let acknowledged = listen(&mut child, 1 + round * 7 % 31);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(acknowledged > last, "round {round} went on from {last}");
        last = check_left(&path, acknowledged, &format!("round {round}")).await;
    }
}

#[tokio::test]
async fn power_loss_loses_nothing_that_was_acknowledged() {
    const UNTIL: u64 = 500;
    let place = directory("power");
    let root = place.join("state");
    fs::create_dir(&root).unwrap();
    let recorder = Recorder::new(&root, &place.join("log")).unwrap();
    let mut child =
        child(&mut recorder.command(this_program()), &root.join("spur.db"), UNTIL).spawn().unwrap();
    assert_eq!(listen(&mut child, usize::MAX), UNTIL);
    assert!(child.wait().unwrap().success());
    let trace = recorder.trace().unwrap();
    trace.check_complete().unwrap();
    let started_over = trace.records().iter().filter(|record| begins_log(&record.action)).count();
    assert!(started_over > 3, "the log was to be copied and started over, it was {started_over} times");

    let left = place.join("left");
    let acks = acknowledgements(&trace);
    let every = trace.records().len() / 100;
    let (mut disk, mut acknowledged, mut cuts) = (trace.disk(), 0, 0);
    for record in trace.records() {
        disk.apply(record).unwrap();
        let ack = acks.iter().find(|(number, _)| *number == record.number);
        acknowledged = ack.map_or(acknowledged, |(_, seq)| *seq);
        if ack.is_none() && record.number % every != 0 {
            continue;
        }
        for loss in [Loss::Unsynced, Loss::Some { seed: record.number as u64 }] {
            disk.image(loss).write(&left).unwrap();
            let what = format!("cut after record {}, {loss:?}", record.number);
            let last = check_left(&left.join("spur.db"), acknowledged, &what).await;
            assert!(last <= UNTIL);
            cuts += 1;
        }
    }
    assert!(cuts >= 250 && acks.len() >= 50, "{cuts} cuts, {} acknowledgements", acks.len());
}

/// True if the action writes the header of SQLite's log, which happens each time the log restarts.
fn begins_log(action: &Action) -> bool {
    matches!(action, Action::Write { offset: 0, content, .. } if content.len() == 32)
}

/// Returns the acknowledgements of a trace as pairs of record number and entry.
fn acknowledgements(trace: &Trace) -> Vec<(usize, u64)> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    trace.marks().filter_map(|(number, bytes)| Some((number, acknowledged(text(bytes)?)?))).collect()
}

/// Number of calls to make fail, one per process. The first few hundred create, fill, copy and snapshot a
/// journal.
const CALLS: u32 = 360;

#[tokio::test]
async fn whatever_call_fails_what_was_acknowledged_is_there() {
    let root = directory("failing");
    let path = root.join("spur.db");
    let (mut runs, mut ended) = (0, 0);
    for (number, failure) in (1..=CALLS).zip(Failure::ALL.into_iter().cycle()) {
        fs::remove_dir_all(&root).unwrap();
        fs::create_dir(&root).unwrap();
        let mut command = failing(this_program(), &root, number, failure).unwrap();
        let mut child = child(&mut command, &path, 150).stderr(Stdio::null()).spawn().unwrap();
        let acknowledged = listen(&mut child, usize::MAX);
        ended += u32::from(!child.wait().unwrap().success());
        runs += 1;
        check_left(&path, acknowledged, &format!("call {number} fails: {failure:?}")).await;
    }
    println!("{runs} runs, of which {ended} ended badly; every acknowledged entry was there");
    assert!(ended > runs / 3, "only {ended} of {runs} runs met the failure");
}

#[tokio::test]
async fn a_disk_that_refuses_ends_the_process_and_keeps_what_was_acknowledged() {
    let path = directory("refused").join("spur.db");
    // Files are limited to one megabyte, and a longer write fails instead of killing the process by a signal.
    let limited = "ulimit -f 2048; trap '' XFSZ; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.arg("-c").arg(limited).arg(this_program()).stderr(Stdio::piped());
    let mut child = child(&mut command, &path, u64::MAX - 1).spawn().unwrap();
    let acknowledged = listen(&mut child, usize::MAX);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("disk I/O error") || message.contains("no space is left for"), "{message}");
    assert!(acknowledged > 0);
    check_left(&path, acknowledged, "after the disk refused").await;
}
