//! The cost of a policy tree: ranks, a change by `sacctmgr`, memory and a restart, with the aims of each.
//!
//! `cargo bench -p spur-core --bench accounts [-- USERS]` prints one line a figure, for 50,000 users in a
//! thousand accounts on three levels, each with usage. Times are processor time of this thread, the least of
//! several; the memory of an association is that of the four clusters of a controller, each after usage has
//! been rolled.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "shared/processor.rs"]
mod processor;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use processor::processor;
use serde_json::json;
use spur_core::cluster::Holder;
use spur_core::cluster::snapshot::{Record, Restore, records};
use spur_core::cluster::usage::UsageRecord;
use spur_core::cluster::{AccountChange, Cluster, Entry, Event};
use spur_core::controller::{Command, Input, handle};
use spur_core::model::accounts::ask::{self, Ask, Entity, Word};
use spur_core::model::accounts::usage::Ratio;
use spur_core::model::accounts::{Account, Association, AssociationId, Shares, User};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::Config;
use spur_core::text::time::Time;

/// The allocator of `spurctld` and of the commands.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const CONFIG: &str = "cluster_name = \"bench\"\n[controller]\naccounting_storage_enforce = [\"limits\"]\n\
                      [scheduler]\npriority_weight_fairshare = 1000\n[[nodes]]\nnames = \"n1\"\ncpus = 4\n\
                      [[partitions]]\nname = \"main\"\nnodes = \"ALL\"\ndefault = true\n";
/// The accounts below each account of the level above.
const ACCOUNTS: u32 = 10;
/// The clusters of a controller: of the owner, the planner, the readers and the archive.
const CLUSTERS: usize = 4;
const TIMES: usize = 5;

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let users: u32 = words.filter_map(|word| word.parse().ok()).next().unwrap_or(50_000);
    let bare = cluster(&[]);
    let tree: Vec<Record> = tree(users);
    let associations =
        tree.iter().filter(|record| matches!(record, Record::Account(AccountChange::Association(_))));
    let associations = associations.count();
    let whole = cluster(&tree);
    println!("{associations} associations of {users} users");
    println!(
        "ranks: {:.1} ms (aim: 50 ms)",
        milliseconds(least(|| whole.clone(), |all| drop(all.fair_shares())))
    );
    println!("a change by sacctmgr: {:.2} ms", milliseconds(least(|| whole.clone(), change)));
    let texts = |cluster: &Cluster| -> Vec<String> {
        records(cluster).map(|record| serde_json::to_string(&record).unwrap()).collect()
    };
    let (with, without) = (texts(&whole), texts(&bare));
    drop((whole, tree));
    let restart = |texts: &[String]| {
        least(
            || (),
            |()| {
                let mut restore = Restore::default();
                texts.iter().for_each(|text| restore.push(serde_json::from_str(text).unwrap()));
                drop(black_box(restore.finish()));
            },
        )
    };
    let more = restart(&with).saturating_sub(restart(&without));
    println!("a restart from a snapshot takes {:.0} ms more (aim: 500 ms)", milliseconds(more));
    let before = resident();
    let clusters = clusters(&with);
    let bytes = resident().saturating_sub(before) / associations as u64;
    println!("memory: {bytes} bytes an association in {CLUSTERS} clusters (aim: 1,536)");
    drop(clusters);
}

/// The clusters of a controller after a start and a roll of usage.
fn clusters(texts: &[String]) -> Vec<Cluster> {
    let mut restore = Restore::default();
    texts.iter().for_each(|text| restore.push(serde_json::from_str(text).unwrap()));
    let first = restore.finish();
    let mut all: Vec<Cluster> = vec![first; CLUSTERS];
    for cluster in &mut all {
        let seq = cluster.seq() + 1;
        let event = Event::UsageRolled { until: Time(600), periods: 1, ratio: Ratio(None), reset: false };
        let record = spur_core::cluster::Record::default();
        cluster.apply(&Entry { seq, epoch: 1, at: Time(600), request: None, event, record });
    }
    drop(all[1].fair_shares());
    all
}

/// A cluster with a policy tree, to which these records are added.
fn cluster(tree: &[Record]) -> Cluster {
    let mut cluster = Cluster::default();
    let policy = Config::parse(CONFIG, "bench").unwrap().policy;
    for input in [command(Command::Reconfigure(Arc::new(policy))), Input::FileQos(Vec::new())] {
        handle(&mut cluster, 1, Time(1), input).answer.unwrap();
    }
    let mut restore = Restore::default();
    let head = records(&cluster).collect::<Vec<_>>();
    let at = head.iter().position(|record| matches!(record, Record::AccountNumbers { .. })).unwrap();
    head[..at].iter().chain(tree).chain(&head[at..]).for_each(|record| {
        // The record of account numbers comes from the larger tree.
        if tree.is_empty() || !matches!(record, Record::AccountNumbers { .. }) {
            restore.push(record.clone());
        }
    });
    restore.finish()
}

/// Accounts on three levels, with users spread over the lowest level.
fn tree(users: u32) -> Vec<Record> {
    let (mut all, mut usage, mut next) = (Vec::new(), Vec::new(), 10);
    let mut add = |association: Association, used: u64| {
        next += 1;
        let id = AssociationId(next);
        usage.push(Record::Usage(UsageRecord::Used(
            Holder::Association(id),
            serde_json::from_value(json!({ "billing": u128::from(used) << 32, "ranked": u128::from(used) << 32, "wall": 1, "tres": [1, 2, 3] }))
                .unwrap(),
        )));
        Record::Account(AccountChange::Association(Arc::new(Association { id, ..association })))
    };
    let mut lowest: Vec<Arc<str>> = Vec::new();
    let mut level: Vec<Arc<str>> = vec!["root".into()];
    for depth in 0..3 {
        let mut below = Vec::new();
        for parent in &level {
            for number in 0..ACCOUNTS {
                let name: Arc<str> =
                    format!("{}{}a{number}", parent.trim_start_matches("root"), depth).into();
                all.push(Record::Account(AccountChange::Account(Arc::new(Account {
                    name: Arc::clone(&name),
                    ..Account::default()
                }))));
                let (account, parent) = (Arc::clone(&name), Some(Arc::clone(parent)));
                let shares = Shares::Raw(number + 1);
                all.push(add(Association { account, parent, shares, ..Association::default() }, 1_000_000));
                below.push(name);
            }
        }
        lowest.clone_from(&below);
        level = below;
    }
    for user in 0..users {
        let name: Arc<str> = format!("user{user}").into();
        let account = Arc::clone(&lowest[user as usize % lowest.len()]);
        let default_account = Some(Arc::clone(&account));
        all.push(Record::Account(AccountChange::User(Arc::new(User {
            name: Arc::clone(&name),
            default_account,
            ..User::default()
        }))));
        let own = Association { account, user: Some(name), ..Association::default() };
        all.push(add(own, u64::from(user.wrapping_mul(2_654_435_761) % 1_000_003)));
    }
    all.into_iter().chain(usage).collect()
}

/// One user gets a limit.
fn change(mut cluster: Cluster) {
    let words = |text: &str| text.split(' ').map(Word::read).collect::<Vec<Word>>();
    let which = ask::which(Entity::User, "bench", &words("user4711")).unwrap();
    let set = ask::user_set(&words("maxjobs=7")).unwrap();
    let ask = Box::new(Ask::ModifyUsers(which, set));
    let input = command(Command::ChangeAccounts { ask, shown: None });
    handle(&mut cluster, 1, Time(2), input).answer.unwrap();
    // The time to drop the cluster does not count.
    std::mem::forget(cluster);
}

fn command(command: Command) -> Input {
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    Input::Command { caller: Caller::new(Arc::new(owner), Arc::default(), true), request: None, command }
}

/// The least processor time that `work` takes on a fresh value of `make`.
fn least<T>(make: impl Fn() -> T, work: impl Fn(T)) -> Duration {
    let once = || {
        let made = make();
        let before = processor();
        work(made);
        processor().saturating_sub(before)
    };
    (0..TIMES).map(|_| once()).min().unwrap()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}
