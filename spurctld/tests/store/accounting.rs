//! Tests of accounting: rows are written together with the entry that they reach, and read back by queries.

use crate::fixture::{file, on_both};
use spurctld::store::accounting::{
    Accounting, EventQuery, JobRow, NodeChange, NodeEvent, OldRun, Outage, Query, StepRow,
};
use spurctld::store::{Place, StoreError};

/// Returns a job of user 1000 + `job_id` % 3 that ran for one minute and was submitted at hour `job_id`.
fn job(job_id: u32) -> JobRow {
    let submitted = i64::from(job_id) * 3600;
    JobRow {
        job_id,
        name: format!("name-{}", job_id % 2),
        user: format!("user{}", job_id % 3),
        uid: 1000 + job_id % 3,
        group: "staff".to_owned(),
        account: "physics".to_owned(),
        partition: ["main", "gpu"][job_id as usize % 2].to_owned(),
        qos: "normal".to_owned(),
        state: "COMPLETED".to_owned(),
        submitted,
        eligible: Some(submitted),
        started: Some(submitted + 10),
        ended: Some(submitted + 70),
        time_limit_secs: Some(3600),
        alloc_tres: "cpu=4,mem=1G,node=1,billing=4".to_owned(),
        node_list: "n[1-4]".to_owned(),
        ..JobRow::default()
    }
}

fn ids(rows: &[JobRow]) -> Vec<(u32, u32)> {
    rows.iter().map(|row| (row.job_id, row.restarts)).collect()
}

async fn found(accounting: &Accounting, query: Query) -> Vec<u32> {
    accounting.jobs(&query).await.expect("the query is answered").rows.iter().map(|row| row.job_id).collect()
}

on_both! {
    async fn rows_and_the_entry_they_reach_are_kept_together(place) {
        let accounting = Accounting::open(place).await.unwrap();
        assert_eq!(accounting.reached().await.unwrap(), 0);
        let mut running = job(7);
        running.state = "RUNNING".to_owned();
        running.ended = None;
        accounting.write(10, vec![running.clone(), job(8)], Vec::new()).await.unwrap();
        assert_eq!(accounting.jobs(&Query::default()).await.unwrap().rows, [running, job(8)]);
        let step = StepRow {
            job_id: 7,
            step_id: -1,
            name: "batch".to_owned(),
            cancelled_by: Some(1000),
            max_rss_bytes: 1 << 33,
            ..StepRow::default()
        };
        accounting
            .write(12, vec![job(7)], vec![step.clone(), StepRow { step_id: 0, ..step.clone() }])
            .await
            .unwrap();
        let backwards = accounting.write(11, vec![JobRow::default()], Vec::new()).await.unwrap_err();
        assert!(matches!(backwards, StoreError::OutOfOrder { expected: 12, found: 11 }), "{backwards}");
        accounting.close().await.unwrap();
        assert!(matches!(accounting.write(13, Vec::new(), Vec::new()).await, Err(StoreError::Stopped)));

        let accounting = Accounting::open(place).await.unwrap();
        assert_eq!(accounting.reached().await.unwrap(), 12);
        assert_eq!(accounting.jobs(&Query::default()).await.unwrap().rows, [job(7), job(8)]);
        let steps = accounting.steps(&[(8, 0), (7, 0), (7, 1)]).await.unwrap();
        assert_eq!(steps, [step.clone(), StepRow { step_id: 0, ..step }]);
        assert_eq!(accounting.steps(&[]).await.unwrap(), []);
    }
}

on_both! {
    async fn queries_find_what_they_ask_for(place) {
        let accounting = Accounting::open(place).await.unwrap();
        let mut rows: Vec<JobRow> = (1..=12).map(job).collect();
        rows[2].array_job_id = Some(3);
        rows[3].array_job_id = Some(3);
        rows[5].het_job_id = Some(6);
        rows[6].het_job_id = Some(6);
        rows[8].state = "FAILED".to_owned();
        rows[9].state = "RUNNING".to_owned();
        rows[9].ended = None;
        let requeued = JobRow { state: "NODE_FAIL".to_owned(), ..rows[11].clone() };
        rows[11].restarts = 1;
        rows.push(requeued);
        accounting.write(1, rows, Vec::new()).await.unwrap();

        let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let all = Query::default();
        for (query, expected) in [
            (Query { job_ids: vec![3, 5, 99], ..all.clone() }, &[3, 4, 5][..]),
            (Query { job_ids: vec![6], ..all.clone() }, &[6, 7]),
            (Query { uids: vec![1001], before: Some(8 * 3600), ..all.clone() }, &[1, 4, 7]),
            (Query { users: strings(&["user0", "nobody"]), last_run_only: true, ..all.clone() }, &[3, 6, 9, 12]),
            (Query { partitions: strings(&["gpu"]), before: Some(6 * 3600), ..all.clone() }, &[1, 3, 5]),
            (Query { states: strings(&["FAILED", "NODE_FAIL"]), ..all.clone() }, &[9, 12]),
            (Query { names: strings(&["name-1"]), not_before: Some(9 * 3600), ..all.clone() }, &[9, 11]),
            (Query { accounts: strings(&["chemistry"]), ..all.clone() }, &[]),
            (Query { qos: strings(&["normal"]), limit: 2, ..all.clone() }, &[1, 2]),
            (Query { not_before: Some(10 * 3600 + 71), ..all.clone() }, &[10, 11, 12, 12]),
            (Query { not_before: Some(11 * 3600), before: Some(12 * 3600), ..all.clone() }, &[10, 11]),
        ] {
            assert_eq!(found(&accounting, query.clone()).await, expected, "{query:?}");
        }
    }
}

on_both! {
    async fn states_are_those_of_the_window(place) {
        let accounting = Accounting::open(place).await.unwrap();
        let mut rows: Vec<JobRow> = (1..=7).map(job).collect();
        rows[1].state = "FAILED".to_owned();
        (rows[2].state, rows[2].ended) = ("RUNNING".to_owned(), None);
        (rows[3].state, rows[3].started, rows[3].ended) = ("PENDING".to_owned(), None, None);
        // A job that was cancelled before its start.
        (rows[4].state, rows[4].started) = ("CANCELLED".to_owned(), None);
        (rows[5].state, rows[5].ended) = ("SUSPENDED".to_owned(), None);
        // A held job.
        (rows[6].state, rows[6].eligible) = ("PENDING".to_owned(), None);
        (rows[6].started, rows[6].ended) = (None, None);
        accounting.write(1, rows, Vec::new()).await.unwrap();
        let hour = |hours: i64| hours * 3600;
        for (state, from, to, expected) in [
            ("RUNNING", hour(1), hour(7), &[1, 2, 3][..]),
            ("RUNNING", hour(1) + 10, hour(1) + 10, &[1]),
            ("RUNNING", hour(1) + 71, hour(2), &[]),
            ("RUNNING", hour(9), hour(9), &[3]),
            ("PENDING", hour(1), hour(9), &[1, 2, 3, 4, 5, 6]),
            ("PENDING", hour(2) + 5, hour(2) + 5, &[2]),
            ("PENDING", hour(5) + 70, hour(5) + 70, &[4, 5]),
            ("FAILED", hour(1), hour(7), &[2]),
            ("FAILED", hour(3), hour(7), &[]),
            ("CANCELLED", hour(5), hour(5) + 70, &[5]),
            ("SUSPENDED", hour(7), hour(7), &[6]),
            ("SUSPENDED", hour(1), hour(5), &[]),
        ] {
            let query = Query {
                states: vec![state.to_owned()],
                not_before: Some(from),
                before: Some(to),
                ..Query::default()
            };
            assert_eq!(found(&accounting, query).await, expected, "{state} {from} {to}");
        }
        let now = |state: &str| Query { states: vec![state.to_owned()], ..Query::default() };
        assert_eq!(found(&accounting, now("RUNNING")).await, [3]);
        // Whoever asks for pending jobs does not ask for held ones, not even by id.
        assert_eq!(found(&accounting, now("PENDING")).await, [4]);
        assert!(found(&accounting, Query { job_ids: vec![7], ..now("PENDING") }).await.is_empty());
        // A held job was there from its submission, but only for those who ask for it by id.
        let window = Query { not_before: Some(hour(7)), before: Some(hour(8)), ..Query::default() };
        assert_eq!(found(&accounting, Query { job_ids: vec![7], ..window.clone() }).await, [7]);
        assert_eq!(found(&accounting, window).await, [3, 4, 6]);
    }
}

on_both! {
    async fn pages_follow_each_other_without_gap_or_repetition(place) {
        let accounting = Accounting::open(place).await.unwrap();
        let runs = |id| [job(id), JobRow { restarts: 1, ..job(id) }];
        let rows: Vec<JobRow> = (1..=150).flat_map(runs).collect();
        let expected = ids(&rows);
        accounting.write(1, rows, Vec::new()).await.unwrap();
        for limit in [0, 1, 77, 300] {
            let mut query = Query { limit, ..Query::default() };
            let size = if limit == 0 { Query::PAGE } else { limit } as usize;
            let mut seen = Vec::new();
            loop {
                let page = accounting.jobs(&query).await.unwrap();
                seen.extend(ids(&page.rows));
                query.after = seen.last().copied();
                if !page.more {
                    break;
                }
            }
            assert_eq!(seen, expected, "pages of {size}");
        }
    }
}

on_both! {
    async fn a_page_is_full_by_bytes_too(place) {
        let accounting = Accounting::open(place).await.unwrap();
        let rows = (1..=5).map(|id| JobRow { comment: "x".repeat(3 << 20), ..job(id) });
        accounting.write(1, rows.collect(), Vec::new()).await.unwrap();
        let page = accounting.jobs(&Query::default()).await.unwrap();
        assert_eq!((page.rows.len(), page.more), (2, true));
        let rest = Query { after: Some((4, 0)), ..Query::default() };
        assert_eq!(accounting.jobs(&rest).await.map(|page| (page.rows.len(), page.more)).ok(), Some((1, false)));
    }
}

on_both! {
    async fn events_of_nodes_begin_and_end_in_their_order(place) {
        let accounting = Accounting::open(place).await.unwrap();
        let outage = |state: &str, reason: &str| Outage {
            state: state.to_owned(),
            reason: reason.to_owned(),
            user: "root".to_owned(),
        };
        let change = |node: &str, at, outage, is_new| NodeChange { node: node.to_owned(), at, outage, is_new };
        let changes = [
            change("n1", 100, Some(outage("DRAIN", "fan")), true),
            change("n2", 100, Some(outage("DOWN*", "silent")), true),
            change("n1", 150, Some(outage("DOWN", "fan")), true),
            change("n1", 200, None, true),
            // State recorded at a start of the controller counts only for nodes without an open event.
            change("n2", 90, Some(outage("DOWN*", "silent")), false),
            change("n3", 90, Some(outage("DRAIN", "disk")), false),
        ];
        accounting.change_nodes(&changes).await.unwrap();
        let found = async |query: EventQuery| {
            let events = accounting.node_events(&query).await.unwrap();
            let shown = |e: &NodeEvent| (e.node.clone(), e.started, e.ended, e.state.clone());
            events.iter().map(shown).collect::<Vec<_>>()
        };
        let event = |node: &str, started, ended, state: &str| (node.to_owned(), started, ended, state.to_owned());
        let all = [
            event("n3", 90, None, "DRAIN"),
            event("n1", 100, Some(150), "DRAIN"),
            event("n2", 100, None, "DOWN*"),
            event("n1", 150, Some(200), "DOWN"),
        ];
        assert_eq!(found(EventQuery::default()).await, all);
        // The same entries may be applied again after a start.
        accounting.change_nodes(&changes).await.unwrap();
        assert_eq!(found(EventQuery::default()).await, all);
        assert_eq!(
            found(EventQuery { open: true, ..EventQuery::default() }).await,
            [all[0].clone(), all[2].clone()]
        );
        let window = EventQuery { not_before: Some(160), before: Some(120), ..EventQuery::default() };
        assert_eq!(found(window).await, [all[0].clone(), all[2].clone()]);
        let after = Some((100, "n1".to_owned(), "DRAIN".to_owned()));
        assert_eq!(found(EventQuery { after, ..EventQuery::default() }).await, all[2..]);
        for (before, purged) in [(150, 0), (151, 1), (i64::MAX, 1), (i64::MAX, 0)] {
            assert_eq!(accounting.purge_events(before).await.unwrap(), purged, "before {before}");
        }
        assert_eq!(found(EventQuery::default()).await, [all[0].clone(), all[2].clone()]);
        let page = u64::from(OldRun::PAGE);
        let outages = (0..=OldRun::PAGE).flat_map(|number| {
            let at = 1_000 + 2 * i64::from(number);
            [change("n4", at, Some(outage("DOWN", "fan")), true), change("n4", at + 1, None, true)]
        });
        accounting.change_nodes(&outages.collect::<Vec<_>>()).await.unwrap();
        assert_eq!(accounting.purge_events(i64::MAX).await.unwrap(), page, "the first page");
        assert_eq!(accounting.purge_events(i64::MAX).await.unwrap(), 1, "the rest");
    }
}

on_both! {
    async fn a_purge_deletes_old_runs_with_their_steps(place) {
        let accounting = Accounting::open(place).await.unwrap();
        assert_eq!(accounting.complete_from().await.unwrap(), None);
        let mut rows: Vec<JobRow> = (1..=6).map(job).collect();
        rows[2].array_job_id = Some(2);
        // A run that a requeue ended, a job that runs, and the last job.
        rows.push(JobRow { restarts: 1, ended: None, ..job(4) });
        let step = |job_id, restarts| StepRow { job_id, restarts, step_id: 0, ..StepRow::default() };
        let steps = vec![step(1, 0), step(4, 0), step(4, 1)];
        accounting.write(9, rows, steps).await.unwrap();

        let old = accounting.old_runs(5 * 3600, None).await.unwrap();
        let end = |job_id: u32| i64::from(job_id) * 3600 + 70;
        let keys: Vec<_> = old.iter().map(|run| (run.ended, run.job_id, run.restarts)).collect();
        assert_eq!(keys, [(end(1), 1, 0), (end(2), 2, 0), (end(3), 3, 0), (end(4), 4, 0)]);
        assert_eq!(old[2].array_job_id, Some(2));
        let rest = accounting.old_runs(i64::MAX, Some(keys[2])).await.unwrap();
        let rest: Vec<_> = rest.iter().map(|run| run.job_id).collect();
        assert_eq!(rest, [4, 5], "the last job number is kept");

        accounting.purge(&[(1, 0), (4, 0)], end(4) + 1).await.unwrap();
        accounting.purge(&[], 7).await.unwrap();
        assert_eq!(accounting.complete_from().await.unwrap(), Some(end(4) + 1));
        assert_eq!(found(&accounting, Query::default()).await, [2, 3, 4, 5, 6]);
        let steps = accounting.steps(&[(1, 0), (4, 0), (4, 1)]).await.unwrap();
        assert_eq!(steps, [step(4, 1)]);
        assert_eq!((accounting.reached().await.unwrap(), accounting.last_job().await.unwrap()), (9, 6));
    }
}

#[tokio::test]
async fn space_of_purged_runs_is_given_back() {
    let Place::File(path) = file("space_of_purged_runs_is_given_back") else { unreachable!("it is a file") };
    let accounting = Accounting::open(&path).await.unwrap();
    let size = || std::fs::metadata(&path).unwrap().len();
    // Texts as long as those of real jobs.
    let real = |job_id| JobRow {
        work_dir: format!("/scratch/user{job_id}/projects/simulation"),
        submit_line: "sbatch --nodes=4 --time=1-00:00:00 --gres=gpu:8 train.sh".to_owned(),
        std_out: format!("/scratch/user{job_id}/projects/simulation/slurm-{job_id}.out"),
        ..job(job_id)
    };
    for seq in 1..=50 {
        let rows: Vec<JobRow> = (0..500).map(|n| real(n * 50 + seq)).collect();
        let batch = |row: &JobRow| StepRow { job_id: row.job_id, step_id: -1, ..StepRow::default() };
        let steps = rows.iter().map(batch).collect();
        accounting.write(u64::from(seq), rows, steps).await.unwrap();
    }
    accounting.release_space().await.unwrap();
    let full = size();
    while let Some(last) = accounting.old_runs(i64::MAX, None).await.unwrap().last() {
        let old = accounting.old_runs(i64::MAX, None).await.unwrap();
        let runs: Vec<(u32, u32)> = old.iter().map(|run| (run.job_id, run.restarts)).collect();
        accounting.purge(&runs, last.ended + 1).await.unwrap();
    }
    while accounting.release_space().await.unwrap() {}
    assert!(full > 8 << 20 && size() < 5 << 20, "{full} bytes became {}; 4 MiB are kept", size());
    assert_eq!(found(&accounting, Query::default()).await, [25_000]);
}
