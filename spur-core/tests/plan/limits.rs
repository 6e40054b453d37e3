//! Accounts and limits of a world, one line each: `account x GrpTRES=cpu=4 MaxJobs=2`, `user a MaxJobs=1`,
//! `qos q GrpJobs=1 Flags=NoReserve UsageThreshold=0.5`. All users are in one account, `x`, below `root`.

use std::sync::Arc;

use proptest::prelude::*;
use spur_core::cluster::limits::Starter;
use spur_core::cluster::{AccountChange, Event};
use spur_core::id::JobId;
use spur_core::model::accounts::qos::QosFlag;
use spur_core::model::accounts::{Account, Association, AssociationId, LimitKind, Qos, ROOT, User, limits};
use spur_core::model::phase::Phase;
use spur_core::sched::Reservations;
use spur_core::sched::plan::{Plan, Start};
use spur_core::text::time::Time;
use spur_core::text::tres::TresKind;

use crate::world::World;

/// The account of all users.
const ACCOUNT: &str = "x";

/// Sets limits of an account, a user or a QOS, which are added if they are not there.
pub(crate) fn set(world: &mut World, line: &str) {
    begin(world);
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, limits): (Arc<str>, _) = (words[1].into(), &words[2..]);
    let change = |words: &[&str], own: &mut limits::Limits, admit: fn(limits::LimitKind) -> bool| {
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            let kind = limits::kind_named(name, admit).expect("a limit");
            own.change(kind, &limits::read(kind, value).expect("a value"));
        }
    };
    let tree = world.cluster.accounts();
    let changed = match words[0] {
        "account" => {
            let mut own = Association::clone(tree.of_account(&name).expect("the account is there"));
            change(limits, &mut own.limits, limits::LimitKind::is_of_associations);
            AccountChange::Association(Arc::new(own))
        }
        "user" => {
            let known = tree.of_user(&name).next().map(|own| Association::clone(own));
            let mut own = known.unwrap_or_else(|| member(&name, tree.next_association()));
            change(limits, &mut own.limits, limits::LimitKind::is_of_associations);
            AccountChange::Association(Arc::new(own))
        }
        "qos" => {
            let known = tree.qos_named(&name).map(|own| Qos::clone(own));
            let mut own = known.unwrap_or_else(|| Qos { id: tree.next_qos(), name, ..Qos::default() });
            let (settings, of_limits): (Vec<&str>, Vec<&str>) = limits
                .iter()
                .partition(|word| ["Flags=", "UsageThreshold="].iter().any(|key| word.starts_with(key)));
            for (key, value) in settings.into_iter().filter_map(|word| word.split_once('=')) {
                match key {
                    "Flags" => {
                        own.flags.extend(value.split(',').map(|flag| QosFlag::read(flag).expect("a flag")))
                    }
                    _ => own.usage_threshold = Some(value.parse().expect("a number")),
                }
            }
            change(&of_limits, &mut own.limits, limits::LimitKind::is_of_qos);
            AccountChange::Qos(Arc::new(own))
        }
        other => panic!("{other}: neither account, user nor qos"),
    };
    world.apply(Event::AccountsChanged { by: ROOT.into(), changes: vec![changed] });
}

/// Adds the accounts `root` and `x`, the users of the tests, and the QOS of the configuration.
fn begin(world: &mut World) {
    if world.cluster.accounts().has_begun() {
        return;
    }
    let account =
        |name: &str| AccountChange::Account(Arc::new(Account { name: name.into(), ..Account::default() }));
    let place = |id: u32, name: &str, parent: Option<&str>| {
        AccountChange::Association(Arc::new(Association {
            id: AssociationId(id),
            account: name.into(),
            parent: parent.map(Arc::from),
            ..Association::default()
        }))
    };
    let mut changes =
        vec![account(ROOT), place(1, ROOT, None), account(ACCOUNT), place(2, ACCOUNT, Some(ROOT))];
    for (id, name) in (3..).zip(["user", "a", "b"]) {
        let user = User { name: name.into(), default_account: Some(ACCOUNT.into()), ..User::default() };
        changes.push(AccountChange::User(Arc::new(user)));
        changes.push(AccountChange::Association(Arc::new(member(name, AssociationId(id)))));
    }
    let qos = world.cluster.policy().qos.clone();
    let qos = (1..).zip(&qos).map(|(id, qos)| AccountChange::Qos(Arc::new(Qos::of_config(id, qos))));
    changes.extend(qos);
    world.apply(Event::AccountsChanged { by: ROOT.into(), changes });
}

fn member(name: &str, id: AssociationId) -> Association {
    Association { id, account: ACCOUNT.into(), user: Some(name.into()), ..Association::default() }
}

/// Asserts that limits let jobs start together, as the controller asks before it starts them.
pub(crate) fn let_start(world: &World, start: &Start) {
    let is_kept = |job: JobId| world.cluster.job(job).is_some_and(|job| job.nomination().is_some());
    if start.all().all(|start| is_kept(start.attempt.job)) {
        return;
    }
    let starter = |start: &Start| Starter {
        job: start.attempt.job,
        spec: Arc::clone(&start.spec),
        partition: Arc::clone(&start.partition),
        amounts: world.cluster.amounts_proposed(&start.spec, &start.partition, &start.parts, start.exclusive),
        limit: start.time_limit.unwrap_or(start.spec.time_limit),
    };
    let starters: Vec<Starter> = start.all().map(starter).collect();
    let stop = world.cluster.stops(world.now, &starters, &[]);
    assert!(stop.is_none(), "job {}: {}", start.attempt.job, stop.unwrap());
}

/// Lines that set limits in random clusters.
pub(crate) fn lines() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(line(), 1..5)]
}

/// A line that sets a limit.
pub(crate) fn line() -> impl Strategy<Value = String> {
    let holder = prop_oneof![
        2 => Just("account x"),
        2 => Just("user a"),
        1 => Just("user b"),
        1 => Just("account root"),
    ];
    let own = prop_oneof![
        2 => (1_u32..4).prop_map(|most| format!("GrpJobs={most}")),
        2 => (1_u32..4).prop_map(|most| format!("MaxJobs={most}")),
        3 => (2_u32..16).prop_map(|most| format!("GrpTRES=cpu={most}")),
        1 => (1_u32..5).prop_map(|most| format!("GrpTRES=node={most}")),
        1 => (1_u32..6).prop_map(|most| format!("GrpTRES=gres/gpu={most}")),
        1 => (4_u32..20).prop_map(|most| format!("GrpTRES=billing={most}")),
        1 => (4_u32..20).prop_map(|most| format!("GrpTRES=mem={most}M")),
        1 => (1_u32..2).prop_map(|most| format!("GrpTRES=license/lic={most}")),
        1 => (2_u32..10).prop_map(|most| format!("MaxTRES=cpu={most}")),
        2 => (1_u32..8).prop_map(|most| format!("GrpTRESRunMins=cpu={most}")),
        1 => (1_u32..8).prop_map(|most| format!("GrpTRESMins=cpu={most}")),
        1 => (0_u32..3).prop_map(|most| format!("GrpWall={most}")),
        1 => Just("GrpJobs=-1".to_owned()),
        1 => Just("MaxJobs=-1".to_owned()),
    ];
    let in_qos = prop_oneof![
        (1_u32..3).prop_map(|most| format!("MaxJobsPU={most}")),
        (1_u32..3).prop_map(|most| format!("MaxJobsPA={most}")),
        (2_u32..12).prop_map(|most| format!("MaxTRESPU=cpu={most}")),
        (1_u32..6).prop_map(|most| format!("MaxTRESPA=node={most}")),
        (2_u32..12).prop_map(|most| format!("GrpTRES=cpu={most}")),
        (1_u32..6).prop_map(|most| format!("MaxTRESRunMinsPU=cpu={most}")),
        (2_u32..4).prop_map(|most| format!("MinTRES=cpu={most}")),
    ];
    let qos = prop_oneof![Just("low"), Just("high"), Just("part")];
    prop_oneof![
        3 => (holder, own).prop_map(|(holder, limit)| format!("{holder} {limit}")),
        2 => (qos, in_qos).prop_map(|(qos, limit)| format!("qos {qos} {limit}")),
    ]
}

/// One job over time: its user, its times, its CPUs and nodes; `is_new` is true if the plan starts the job.
struct Slice {
    user: Arc<str>,
    from: Time,
    to: Time,
    cpus: u64,
    nodes: u64,
    is_new: bool,
}

/// The slices of the running jobs, and of the jobs that a plan starts at once or later, by their time limits.
fn slices(world: &World, plan: &Plan, later: &Reservations) -> Vec<Slice> {
    let running = world.cluster.jobs().iter().filter_map(|job| {
        let (alloc, to) = match &job.phase {
            Phase::Running { alloc, started, .. } => (alloc, job.ends_at(*started).max(world.now + 1)),
            Phase::Suspended(held) => (&held.alloc, Time::MAX),
            _ => return None,
        };
        let lost: u64 = alloc.lost.iter().map(|lost| u64::from(lost.part.cpus.len())).sum();
        let nodes = (alloc.nodes.len() + alloc.lost.len()) as u64;
        let user = Arc::clone(&job.spec.owner.user);
        Some(Slice { user, from: world.now, to, cpus: alloc.cpus() + lost, nodes, is_new: false })
    });
    let starts = plan.starts.iter().flat_map(Start::all).map(|start| Slice {
        user: Arc::clone(&start.spec.owner.user),
        from: world.now,
        to: world.now + start.time_limit.unwrap_or(start.spec.time_limit).seconds().expect("a limit"),
        cpus: start.parts.iter().map(|part| u64::from(part.cpus)).sum(),
        nodes: start.parts.len() as u64,
        is_new: true,
    });
    let later = later.iter().map(|made| Slice {
        user: Arc::clone(&made.spec.owner.user),
        from: made.start,
        to: made.end,
        cpus: made.amounts().map(|(_, taken)| taken[0]).sum(),
        nodes: made.amounts().count() as u64,
        is_new: true,
    });
    running.chain(starts).chain(later).collect()
}

/// Asserts that the jobs that a plan starts or plans for later exceed no limit of an association at any
/// moment.
pub(crate) fn are_planned_for(world: &World, plan: &Plan, later: &Reservations) {
    let tree = world.cluster.accounts();
    let slices = slices(world, plan, later);
    let sets_no_limits = tree.qos().all(|qos| qos.limits.is_empty());
    let has_nominated = world.cluster.jobs().nominated().next().is_some() || !plan.preemptions.is_empty();
    if !sets_no_limits || has_nominated {
        return;
    }
    for own in tree.associations() {
        let count = |kind| own.limits.number(kind).into_iter().map(move |most| (kind, None, most));
        let tres = own.limits.tres(LimitKind::GrpTres).into_iter().flat_map(|tres| &tres.0);
        let tres = tres.map(|(kind, most)| (LimitKind::GrpTres, Some(kind), *most));
        for (kind, tres, most) in count(LimitKind::GrpJobs).chain(count(LimitKind::MaxJobs)).chain(tres) {
            let amount = |slice: &&Slice| match tres {
                None => 1,
                Some(TresKind::Cpu) => slice.cpus,
                Some(TresKind::Node) => slice.nodes,
                Some(_) => 0,
            };
            let users: Vec<&Arc<str>> = match &own.user {
                Some(user) => vec![user],
                None if kind == LimitKind::MaxJobs => continue,
                None => tree.members(ACCOUNT).filter_map(|member| member.user.as_ref()).collect(),
            };
            for at in slices.iter().map(|slice| slice.from) {
                let there = slices.iter().filter(|slice| slice.from <= at && at < slice.to);
                let there: Vec<&Slice> = there.filter(|slice| users.contains(&&slice.user)).collect();
                let used: u64 = there.iter().map(amount).sum();
                let is_new = there.iter().any(|slice| slice.is_new && amount(slice) > 0);
                assert!(!is_new || used <= most, "{kind:?} {tres:?} of {own:?} at {at:?}: {used} of {most}");
            }
        }
    }
}
