//! Throughput and commit latency of the journal, for batches of several sizes, alone and beside snapshots and
//! compaction. Each entry has 1 KB, a blob of 6 KB and a request id.
//!
//! `cargo bench -p spurctld --bench journal [-- DIRECTORY [SECONDS [CHECKPOINT_MIB [LONG_LOG_MIB]]]]`: the
//! directory decides which disk is measured.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spurctld::store::{Batch, Blob, Commit, Entry, Journal, Request, Retention, StoreError, Tuning};

const ENTRY_BYTES: usize = 1024;
const BLOB_BYTES: usize = 6 * 1024;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let directory =
        arguments.next().map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let mut number =
        |usual: u64| arguments.next().map_or(usual, |text| text.parse().expect("a whole number"));
    let (seconds, checkpoint_mib, long_log_mib) = (number(4), number(2), number(8));
    let checkpoint_bytes = usize::try_from(checkpoint_mib << 20).expect("fits the memory");
    let tuning = Tuning { checkpoint_bytes, long_log_bytes: long_log_mib << 20, ..Tuning::default() };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    runtime.block_on(recovery(&directory, tuning)).expect("the journal works");
    println!(
        "{:>6} {:>9} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "batch", "pipelined", "beside", "entries/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "wal MiB"
    );
    for (count, depth, beside) in [
        (1, 1, false),
        (1, 64, false),
        (64, 1, false),
        (64, 2, false),
        (256, 1, false),
        (256, 2, false),
        (1, 64, true),
        (64, 1, true),
        (64, 2, true),
        (256, 2, true),
    ] {
        let case = Case { count, depth, beside, time: Duration::from_secs(seconds), tuning };
        runtime.block_on(case.run(&directory)).expect("the journal works");
    }
}

/// Measures the recovery of 100,000 entries without a snapshot.
async fn recovery(directory: &Path, tuning: Tuning) -> Result<(), StoreError> {
    let path = fresh(directory).join("spur.db");
    let (journal, _) = Journal::open_with(&path, tuning).await?;
    for first in (0..400).map(|number| number * 250 + 1) {
        journal.commit(batch(&journal, first, 250)).await?;
    }
    journal.close().await;
    let begun = Instant::now();
    let (journal, mut recovered) = Journal::open_with(&path, tuning).await?;
    let mut entries = 0;
    loop {
        let page = recovered.next_entries().await?;
        if page.is_empty() {
            break;
        }
        entries += page.len();
    }
    println!("recovery of {entries} entries: {:.2} s\n", begun.elapsed().as_secs_f64());
    journal.close().await;
    Ok(())
}

/// Creates an empty directory.
fn fresh(directory: &Path) -> PathBuf {
    let place = directory.join("journal-bench");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("the directory can be written");
    place
}

struct Case {
    /// Entries in a batch.
    count: u64,
    /// Batches under way at a time.
    depth: usize,
    /// True if snapshots and compaction run beside the commits.
    beside: bool,
    time: Duration,
    tuning: Tuning,
}

impl Case {
    async fn run(&self, directory: &Path) -> Result<(), StoreError> {
        let place = fresh(directory);
        let path = place.join("spur.db");
        let (journal, _) = Journal::open_with(&path, self.tuning).await?;
        let housekeeper = self.beside.then(|| tokio::spawn(keep_house(journal.clone())));
        let begun = Instant::now();
        let mut under_way: VecDeque<(Instant, Commit)> = VecDeque::new();
        let mut latencies = Vec::new();
        let mut next = 1;
        while begun.elapsed() < self.time {
            if under_way.len() == self.depth {
                finish(&mut under_way, &mut latencies).await?;
            }
            let batch = batch(&journal, next, self.count);
            next += self.count;
            under_way.push_back((Instant::now(), journal.submit(batch).await?));
        }
        while !under_way.is_empty() {
            finish(&mut under_way, &mut latencies).await?;
        }
        let rate = (next - 1) as f64 / begun.elapsed().as_secs_f64();
        if let Some(housekeeper) = housekeeper {
            housekeeper.abort();
            let _ = housekeeper.await;
        }
        let wal = fs::metadata(place.join("spur.db-wal")).map_or(0, |data| data.len()) as f64 / 1_048_576.0;
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies[place.min(latencies.len() - 1)].as_secs_f64() * 1000.0
        };
        println!(
            "{:>6} {:>9} {:>7} {:>11.0} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>8.1}",
            self.count,
            self.depth,
            if self.beside { "yes" } else { "no" },
            rate,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            wal
        );
        journal.close().await;
        let _ = fs::remove_dir_all(&place);
        Ok(())
    }
}

async fn finish(
    under_way: &mut VecDeque<(Instant, Commit)>,
    latencies: &mut Vec<Duration>,
) -> Result<(), StoreError> {
    if let Some((handed_in, commit)) = under_way.pop_front() {
        commit.await?;
        latencies.push(handed_in.elapsed());
    }
    Ok(())
}

/// Writes snapshots of 64 MiB one after the other, and compacts up to each.
async fn keep_house(journal: Journal) -> Result<(), StoreError> {
    loop {
        let seq = *journal.committed().borrow();
        let mut snapshot = journal.begin_snapshot(seq).await?;
        for _ in 0..1024 {
            snapshot.chunk("job", vec![7; 64 << 10]).await?;
        }
        snapshot.finish().await?;
        journal.compact(Retention { entries_through: seq, requests_before: seq as i64 }).await?;
    }
}

fn batch(journal: &Journal, first: u64, count: u64) -> Batch {
    let mut batch = Batch::default();
    for seq in first..first + count {
        let at = seq as i64;
        batch.entries.push(Entry { seq, epoch: journal.epoch(), at, body: vec![seq as u8; ENTRY_BYTES] });
        batch.blobs.push(Blob { id: seq, body: vec![seq as u8; BLOB_BYTES].into() });
        let id = u128::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes();
        batch.requests.push(Request { id, uid: 1000, seq, at, reply: vec![0; 16] });
        batch.released.extend(seq.checked_sub(50_000).filter(|&id| id > 0));
    }
    batch
}
