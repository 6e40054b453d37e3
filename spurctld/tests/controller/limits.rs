//! Limits per user: one user's requests delay those of others by no more than a fair share.

use std::path::Path;
use std::sync::Arc;

use spur_core::cluster::Event;
use spur_core::id::JobId;
use spur_core::model::caller::Owner;
use spur_core::model::job::JobSpec;
use spur_proto::convert::spec;
use spur_proto::refusal::error_of;
use spur_proto::v1;
use spurctld::store::{Batch, Entry, Journal};
use tokio_stream::StreamExt;

use super::support::{ADA, BOB, Client, Controller, job, jobs, submit};

/// Number of bytes of a text that is over every limit; earlier releases accepted it.
const BIG: usize = 3_900_000;

fn of_all_states() -> v1::JobFilter {
    v1::JobFilter { states: vec!["all".to_owned()], ..v1::JobFilter::default() }
}

async fn cancel(client: &mut Client, request: v1::CancelJobsRequest) -> v1::CancelJobsResponse {
    client.cancel_jobs(request).await.expect("the request is served").into_inner()
}

async fn accounted(client: &mut Client) -> Vec<v1::AccountingRow> {
    let request = v1::ListAccountingRequest { all_users: true, ..v1::ListAccountingRequest::default() };
    let mut stream = client.list_accounting(request).await.expect("rows are listed").into_inner();
    let mut rows = Vec::new();
    while let Some(page) = stream.message().await.expect("no message is too long") {
        rows.extend(page.rows);
    }
    rows
}

/// A held job of a user with this comment, however long it is.
fn held(uid: u32, comment: &str) -> Arc<JobSpec> {
    let wish = v1::JobSpec { comment: String::new(), hold: true, ..job("held") };
    let mut spec = spec::submission(wish).unwrap().0.spec;
    let name: Arc<str> = format!("u{uid}").into();
    spec.owner = Arc::new(Owner { uid, gid: uid, user: Arc::clone(&name), group: name });
    spec.partitions = ["main".into()].into();
    spec.extra.get_or_insert_default().comment = Some(comment.into());
    Arc::new(spec)
}

/// Appends jobs to a journal, numbered from 1, as an earlier release may have accepted them.
async fn append(directory: &Path, jobs: impl IntoIterator<Item = Arc<JobSpec>>) {
    let (journal, recovered) = Journal::open(&directory.join("spur.db")).await.unwrap();
    let last = recovered.last_seq;
    drop(recovered);
    let entry = |(number, spec): (u32, Arc<JobSpec>)| Entry {
        seq: last + u64::from(number),
        epoch: journal.epoch(),
        at: 1_700_000_000,
        body: serde_json::to_vec(&Event::JobSubmitted { job: JobId(number), spec }).unwrap(),
    };
    let entries = (1..).zip(jobs).map(entry).collect();
    journal.commit(Batch { entries, ..Batch::default() }).await.unwrap();
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_large_texts_are_listed_and_cancelled_like_others() {
    let directory = Controller::start("large-texts").await.stop().await;
    let large = held(ADA, &"x".repeat(BIG));
    append(&directory, std::iter::repeat_n(large, 9)).await;
    let controller = Controller::start_in(directory).await;
    let mut bob = controller.client(BOB).await;
    let own = submit(&mut bob, job("small")).await;
    assert_eq!(jobs(&mut bob, of_all_states()).await.len(), 10);
    assert_eq!(accounted(&mut bob).await.iter().filter(|row| row.comment.len() == BIG).count(), 9);
    let mut ada = controller.client(ADA).await;
    let filter = v1::JobFilter { users: vec![format!("u{ADA}")], ..v1::JobFilter::default() };
    let request = v1::CancelJobsRequest { filter: Some(filter), ..v1::CancelJobsRequest::default() };
    assert_eq!(cancel(&mut ada, request).await.cancelled.len(), 9);
    let left = jobs(&mut bob, v1::JobFilter::default()).await;
    assert_eq!(left.iter().map(|job| job.id).collect::<Vec<_>>(), [own]);
    controller.stop().await;
}

/// The jobs of few users are looked up by owner, those of many users are filtered out of all jobs.
#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_some_users_are_listed_in_order_over_several_pages() {
    const FIRST: u32 = 7_000;
    let directory = Controller::start("owners").await.stop().await;
    let owners: Vec<u32> = (0..900).map(|number| FIRST + number * 7 % 3).collect();
    append(&directory, owners.iter().map(|uid| held(*uid, ""))).await;
    let controller = Controller::start_in(directory).await;
    let mut bob = controller.client(BOB).await;
    let all = jobs(&mut bob, of_all_states()).await;
    assert_eq!(all.len(), owners.len());
    let many = (FIRST + 1..FIRST + 30).collect();
    for users in [vec![FIRST], vec![FIRST + 2, FIRST + 1], many, vec![FIRST + 20]] {
        let name = |uid: &u32| if uid.is_multiple_of(2) { format!("u{uid}") } else { uid.to_string() };
        let filter = v1::JobFilter { users: users.iter().map(name).collect(), ..of_all_states() };
        let listed: Vec<u32> = jobs(&mut bob, filter).await.iter().map(|job| job.id).collect();
        let own = all.iter().filter(|job| users.contains(&job.uid)).map(|job| job.id);
        assert_eq!(listed, own.collect::<Vec<_>>(), "{users:?}");
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_is_refused_with_its_length_and_the_limit() {
    let controller = Controller::start("too-long").await;
    let mut ada = controller.client(ADA).await;
    let id = submit(&mut ada, job("fine")).await.to_string();
    let names: Vec<String> = (0..300_000).map(|number| format!("l{number}")).collect();
    let with = |wish: v1::JobSpec| v1::SubmitRequest { job: Some(wish), ..v1::SubmitRequest::default() };
    // The command line is truncated rather than refused, because it does not affect the job.
    let long = v1::JobSpec { submit_line: "ü".repeat(BIG / 2), ..job("long") };
    let long = submit(&mut ada, long).await;
    let shown = jobs(&mut ada, of_all_states()).await;
    let line = shown.into_iter().find(|job| job.id == long).unwrap().submit_line;
    assert_eq!((line.len(), line.chars().all(|c| c == 'ü')), (64 << 10, true));
    let client = |command: &str| {
        let client = v1::Client { command: command.to_owned(), work_dir: "/".to_owned(), no_shell: false };
        v1::JobSpec { client: Some(client), batch: None, ..job("held by a command") }
    };
    for (wish, expected) in [
        (client(&"x".repeat(BIG)), "command: 3900000 bytes are too many; at most 4096"),
        (
            v1::JobSpec { comment: "x".repeat(BIG), ..job("a") },
            "--comment: 3900000 bytes are too many; at most 1024",
        ),
        (
            v1::JobSpec { licenses: names.join(","), ..job("a") },
            "--licenses: 2288889 bytes are too many; at most 1024",
        ),
        (
            v1::JobSpec { name: "n".repeat(2000), ..job("a") },
            "--job-name: 2000 bytes are too many; at most 1024",
        ),
    ] {
        let status = ada.submit(with(wish)).await.expect_err("it is too long");
        let message = error_of(&status).expect("a refusal says why").message;
        assert!(message.starts_with(expected), "{message}");
    }
    let job_id = id.parse().unwrap();
    let notice = v1::NotifyJobRequest { job_id: id.clone(), message: "x".repeat(BIG) };
    let message = error_of(&ada.notify_job(notice).await.expect_err("too long")).unwrap().message;
    assert!(message.contains("3900000 bytes are too many; at most 4096"), "{message}");
    let many = vec!["n1".to_owned(); 65_537];
    for (step, expected) in [
        (
            v1::CreateStepRequest { gpus: "x".repeat(BIG), ..v1::CreateStepRequest::default() },
            "--gpus: 3900000 bytes are too many",
        ),
        (
            v1::CreateStepRequest { hosts: many, ..v1::CreateStepRequest::default() },
            "--distribution: one request names 65536 at most",
        ),
    ] {
        let step = v1::CreateStepRequest { job_id, ..step };
        let message = error_of(&ada.create_step(step).await.expect_err("too much")).unwrap().message;
        assert!(message.contains(expected), "{message}");
    }
    let changes = [("Comment".to_owned(), "x".repeat(2000))].into();
    let change = v1::UpdateJobRequest { job_ids: vec![id], changes, ..v1::UpdateJobRequest::default() };
    let message = error_of(&ada.update_job(change).await.expect_err("too long")).unwrap().message;
    assert!(message.contains("Comment: 2000 bytes are too many; at most 1024"), "{message}");
    let job_ids = (0..10_001).map(|id| id.to_string()).collect();
    let hold = v1::HoldJobsRequest { job_ids, ..v1::HoldJobsRequest::default() };
    let message = error_of(&ada.hold_jobs(hold).await.expect_err("too many")).unwrap().message;
    assert!(message.contains("job ids: one request names 10000 at most"), "{message}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_user_are_cancelled_some_at_a_time() {
    const JOBS: usize = 10_050;
    let controller = Controller::start("by-slices").await;
    let mut ada = controller.client(ADA).await;
    let wish = v1::SubmitRequest {
        job: Some(v1::JobSpec { hold: true, ..job("one of many") }),
        ..v1::SubmitRequest::default()
    };
    let requests = tokio_stream::iter(std::iter::repeat_n(wish, JOBS));
    let answers = ada.submit_stream(requests).await.unwrap().into_inner();
    assert_eq!(answers.filter(|answer| answer.is_ok()).fold(0, |count, _| count + 1).await, JOBS);
    let users = vec![format!("u{ADA}")];
    let filter = Some(v1::JobFilter { users, ..v1::JobFilter::default() });
    let (mut after_job_id, mut sizes) = (0, Vec::new());
    loop {
        let (filter, request_id) = (filter.clone(), vec![u8::try_from(sizes.len()).unwrap(); 16].into());
        let request =
            v1::CancelJobsRequest { filter, after_job_id, request_id, ..v1::CancelJobsRequest::default() };
        let answer = cancel(&mut ada, request).await;
        sizes.push(answer.cancelled.len());
        after_job_id = answer.next_job_id;
        if after_job_id == 0 {
            break;
        }
    }
    assert_eq!(sizes, [10_000, 50]);
    assert_eq!(jobs(&mut ada, v1::JobFilter::default()).await, []);
    controller.stop().await;
}

/// A waiting request occupies memory of the controller, so each user may have only a few.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_waits_for_few_things_at_a_time() {
    let edited = "kill_wait = \"2s\"\nmax_requests_per_user = 3";
    let controller = Controller::start_edited("waits", "kill_wait = \"2s\"", edited).await;
    let mut bob = controller.client(BOB).await;
    let held = v1::JobSpec { hold: true, ..job("held") };
    let id = submit(&mut bob, held.clone()).await;
    let watch = async |client: &mut Client| {
        client.watch_jobs(v1::WatchJobsRequest { job_ids: vec![id] }).await.map(tonic::Response::into_inner)
    };
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(watch(&mut bob).await.expect("three may wait"));
    }
    let refused = watch(&mut bob).await.map(drop).expect_err("a fourth may not");
    let words = format!("user {BOB} has 3 requests that wait for jobs and steps");
    assert!(refused.message().contains(&words), "{refused}");
    let request = v1::CreateStepRequest { job_id: id, ..v1::CreateStepRequest::default() };
    let refused = bob.create_step(request).await.map(drop).expect_err("neither may a step");
    assert!(refused.message().contains(&words), "{refused}");
    // Other requests of the same user are served, and so are other users.
    assert_eq!(jobs(&mut bob, v1::JobFilter::default()).await.len(), 1);
    let mut ada = controller.client(ADA).await;
    let other = submit(&mut ada, held).await;
    ada.watch_jobs(v1::WatchJobsRequest { job_ids: vec![other] }).await.expect("she waits for nothing else");
    waiting.clear();
    while watch(&mut bob).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn amounts_that_no_cluster_has_are_no_fault_of_the_controller() {
    type Change = fn(&mut v1::JobSpec);
    let changes: [Change; 22] = [
        |wish| wish.memory_per_node_mb = Some(u64::MAX),
        |wish| wish.memory_per_node_mb = Some(1 << 40),
        |wish| (wish.memory_per_cpu_mb, wish.cpus_per_task) = (Some(1 << 40), Some(u32::MAX)),
        |wish| {
            (wish.memory_per_cpu_mb, wish.cpus_per_task, wish.tasks) =
                (Some(1 << 40), Some(u32::MAX), Some(u32::MAX));
        },
        |wish| (wish.cpus_per_task, wish.tasks_per_node) = (Some(u32::MAX), Some(u32::MAX)),
        |wish| wish.nodes = u32::MAX.to_string(),
        |wish| (wish.nodes, wish.tasks_per_node) = (u32::MAX.to_string(), Some(u32::MAX)),
        |wish| wish.min_cpus = u32::MAX,
        |wish| wish.tmp_disk_mb = 1 << 40,
        |wish| wish.gres = format!("gpu:{}", 1_u64 << 44),
        |wish| wish.gres = format!("gpu:a:{0},gpu:b:{0}", u64::MAX),
        |wish| wish.gpus = (1_u64 << 44).to_string(),
        |wish| (wish.gpus_per_task, wish.tasks) = ((1_u64 << 44).to_string(), Some(u32::MAX)),
        |wish| wish.begin = Some(i64::MAX),
        |wish| (wish.begin, wish.time_limit) = (Some(i64::MAX - 1), Some(u64::from(u32::MAX) * 60)),
        |wish| wish.deadline = Some(i64::MIN),
        |wish| (wish.nice, wish.priority) = (i32::MIN, Some(u32::MAX)),
        |wish| wish.nice = i32::MAX,
        |wish| wish.segment = Some(u32::MAX),
        |wish| wish.overcommit_tasks = Some(u32::MAX),
        |wish| {
            wish.cores = Some(v1::CoreAsk {
                sockets_per_node: Some(u32::MAX),
                cores_per_socket: Some(u32::MAX),
                threads_per_core: Some(u32::MAX),
                tasks_per_core: Some(u32::MAX),
                tasks_per_socket: Some(u32::MAX),
                cpus_per_gpu: Some(u32::MAX),
                memory_per_gpu_mb: Some(1 << 40),
            });
            wish.gpus = "4".to_owned();
        },
        |wish| wish.licenses = format!("l:{}", u32::MAX),
    ];
    let controller = Controller::start("amounts").await;
    let mut ada = controller.client(ADA).await;
    for (number, change) in changes.into_iter().enumerate() {
        let mut wish = job("large");
        change(&mut wish);
        let request = v1::SubmitRequest { job: Some(wish), ..v1::SubmitRequest::default() };
        let tried = ada.test_submit(request.clone()).await.map(|_| ());
        let submitted = ada.submit(request).await.map(|_| ());
        for answer in [tried, submitted] {
            if let Err(status) = answer {
                let error = error_of(&status).unwrap_or_default();
                assert!(error.code.starts_with("ESLURM"), "{number}: {status:?}");
            }
        }
    }
    controller.stop().await;
}
