//! Journals of earlier releases must stay readable for ever.
//!
//! Release N of the format wrote `tests/data/journal/vN/*.jsonl`; these files are never rewritten. Each is
//! read, applied entry by entry with its invariants checked, put through a snapshot, and compared with the
//! summary beside it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::cluster::Holder;
use spur_core::cluster::snapshot::{self, Restore};
use spur_core::cluster::{Cluster, Entry, FeatureLevel, invariant};
use spur_core::model::job::Job;
use spur_core::model::node::{Power, Predecessor};
use spur_core::model::phase::{Hold, Pending, Phase};

fn journals() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/journal");
    let versions =
        fs::read_dir(folder).expect("tests/data/journal").map(|entry| entry.expect("an entry").path());
    let files = versions.flat_map(|version| {
        fs::read_dir(version).expect("a version").map(|entry| entry.expect("an entry").path())
    });
    let mut journals: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "jsonl")).collect();
    journals.sort();
    journals
}

fn read(journal: &Path) -> Cluster {
    let mut cluster = Cluster::default();
    for (number, line) in (1..).zip(fs::read_to_string(journal).expect("a journal").lines()) {
        let entry: Entry = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{}:{number}: {error}", journal.display()));
        assert_eq!(entry.seq, number, "{}:{number}: a gap", journal.display());
        cluster.apply(&entry);
        let violations = invariant::violations(&cluster);
        assert!(violations.is_empty(), "{}:{number}: {violations:?}", journal.display());
    }
    cluster
}

fn summary(cluster: &Cluster) -> String {
    let mut text = String::new();
    for job in cluster.jobs().iter() {
        let (state, _) = job.phase.names();
        let _ = write!(text, "job {} {} {state} by {}", job.attempt(), job.spec.name, job.spec.owner.user);
        if let Some(nomination) = job.nomination() {
            let nodes: Vec<&str> = cluster.names_of(nomination.nodes()).collect();
            let _ = write!(text, " kept={}", nodes.join(","));
        }
        if let Phase::Running { ends_by: Some(by), .. } = &job.phase {
            let _ = write!(text, " over by {}", by.0);
        }
        if let Phase::Pending(pending) = &job.phase {
            text += &waiting(pending);
        }
        if let Phase::Running { preempted: Some(preempted), .. } = &job.phase {
            let _ = write!(text, " makes way for {} until {}", preempted.by, preempted.end_at.0);
        }
        if let Phase::Suspended(suspended) = &job.phase {
            let (since, wanted) = (suspended.pauses.last.map(|at| at.0), suspended.wanted.map(|at| at.0));
            let back: Vec<String> =
                suspended.back.iter().map(|(node, cpus)| format!("{cpus} of {node}")).collect();
            let _ = write!(text, " since {since:?} wanted {wanted:?} has {}", back.join(" "));
        }
        for lost in job.phase.alloc().into_iter().flat_map(|alloc| &alloc.lost) {
            let _ = write!(text, " without {} at rank {}", lost.part.node, lost.rank);
        }
        ends(job, &mut text);
        if !job.phase.pauses().is_none() {
            let _ = write!(text, " ran {} s", job.phase.run_time(cluster.at()));
        }
        if let Some(part) = &job.array {
            let waits = job.waits_for.as_ref().map(|waits| format!(" waiting for {waits}"));
            let _ = write!(text, " tasks {} of {}{}", part.tasks, part.id, waits.unwrap_or_default());
        }
        text.push('\n');
    }
    for (id, array) in cluster.jobs().arrays() {
        let ended = array.ended();
        let _ = writeln!(text, "array {id} completed={} failed={}", ended.completed, ended.failed);
    }
    for reservation in cluster.reservations() {
        let names: Vec<&str> = cluster.names_of(reservation.nodes.iter().copied()).collect();
        let (name, from, to) = (&reservation.name, reservation.start.0, reservation.end.0);
        let (nodes, users) = (names.join(","), &reservation.users);
        let _ = write!(text, "reservation {name} from {from} to {to} on {nodes} for {users}");
        let licenses = reservation.licenses.iter().map(|(name, count)| format!(" {name}:{count}"));
        text.extend(licenses);
        let idle = reservation.idle_since.zip(reservation.purged_at());
        let _ = idle.map(|(since, over)| write!(text, " idle since {} over by {}", since.0, over.0));
        text.push('\n');
    }
    for node in cluster.nodes() {
        let _ = write!(text, "node {} available={} cpus={}", node.name(), node.available(), node.used.cpus);
        for topology in cluster.topologies() {
            let place = topology.fabric.pos(node.id).map(|pos| topology.fabric.path(pos, ":"));
            let place = place.filter(|path| !path.is_empty());
            let _ = place.map(|path| write!(text, " at {}:{path}", topology.name));
        }
        for (what, attempts) in [("stale", &node.stale), ("foreign", &node.foreign)] {
            text.extend(attempts.iter().map(|attempt| format!(" {what} {attempt}")));
        }
        text.extend(node.power.as_ref().map(power));
        text.extend(node.predecessor.as_deref().map(predecessor));
        text.push('\n');
    }
    let parts: [fn(&Cluster, &mut String); 4] = [edits, accounts, usage, lineage];
    parts.iter().for_each(|part| part(cluster, &mut text));
    text
}

/// Partitions and nodes that differ from the configuration.
fn edits(cluster: &Cluster, text: &mut String) {
    let said = &cluster.policy().partitions;
    for partition in cluster.partitions() {
        let config = &partition.config;
        if !said.contains(config) {
            let nodes: Vec<&str> = cluster.names_of(partition.nodes.iter().copied()).collect();
            let (name, state, nodes) = (&config.name, config.state, nodes.join(","));
            let default = config.default_time.map(|time| format!(" default_time={time}")).unwrap_or_default();
            let max = config.max_time;
            let _ = writeln!(text, "partition {name} {state:?} nodes={nodes} max_time={max}{default}");
        }
    }
    for gone in said.iter().filter(|said| cluster.partition(&said.name).is_none()) {
        let _ = writeln!(text, "partition {} is deleted", gone.name);
    }
    let is_edited = |node: &&spur_core::cluster::Node| {
        let said = cluster.policy().nodes.iter().find(|said| said.name == *node.name());
        (node.configured && said != Some(&node.config)) || !node.comment.is_empty() || !node.extra.is_empty()
    };
    for node in cluster.nodes().iter().filter(is_edited) {
        let (features, weight) = (node.config.shape.features.join(","), node.config.weight);
        let _ = write!(text, "node {} weight={weight} features={features} ", node.name());
        let gres = node.shape.gres.iter().map(|gres| format!("{}:{}", gres.name, gres.count));
        let gres = gres.collect::<Vec<_>>().join(",");
        let _ = writeln!(text, "gres={gres} comment={} extra={}", node.comment, node.extra);
    }
}

/// The policy tree.
fn accounts(cluster: &Cluster, text: &mut String) {
    let tree = cluster.accounts();
    for placed in tree.walk() {
        let own = placed.association;
        let user = own.user.as_deref().unwrap_or("-");
        let qos: Vec<String> = tree.qos_of(own).iter().map(ToString::to_string).collect();
        let _ = write!(
            text,
            "association {} {} {user} shares={} qos={}",
            own.id.0,
            own.account,
            own.shares,
            qos.join(",")
        );
        text.extend(tree.limits_of(own).texts().map(|(kind, value)| format!(" {}={value}", kind.name())));
        text.push('\n');
    }
    for account in tree.all_accounts() {
        let _ = writeln!(
            text,
            "account {} deleted={} coordinators={:?}",
            account.name, account.deleted, account.coordinators
        );
    }
    for user in tree.all_users() {
        let _ = writeln!(
            text,
            "user {} {} default={:?} deleted={}",
            user.name, user.admin_level, user.default_account, user.deleted
        );
    }
    for qos in tree.qos() {
        let _ = writeln!(text, "qos {} {} priority={} flags={:?}", qos.id, qos.name, qos.priority, qos.flags);
    }
}

/// Usage of clusters that know when it is reset.
fn usage(cluster: &Cluster, text: &mut String) {
    let usage = cluster.usage();
    if usage.zone().is_empty() {
        return;
    }
    let (rolled, reset, zone) = (usage.rolled().0, usage.next_reset().map(|at| at.0), usage.zone());
    let _ = writeln!(text, "usage until {rolled}, reset at {reset:?} in {zone}");
    let associations = cluster.accounts().walk();
    let mut holders: Vec<Holder> = Vec::new();
    for placed in associations {
        let id = placed.association.id;
        holders.push(Holder::Association(id));
        let outsider = |user: &Arc<str>| Holder::Outsider { account: id, user: Arc::clone(user) };
        holders.extend(usage.outsiders(id).map(|(user, _)| outsider(user)));
    }
    holders.extend(cluster.accounts().qos().map(|qos| Holder::Qos(qos.id)));
    let shares = cluster.fair_shares();
    for holder in holders.iter().filter(|holder| usage.of(holder).is_some()) {
        let (used, wall) = (usage.seconds(holder), usage.past_wall(holder).units());
        let rank = shares.standing(holder).map_or(0, |standing| standing.rank);
        let _ = writeln!(text, "used by {holder:?}: {used} wall={wall} rank={rank}");
    }
}

fn waiting(pending: &Pending) -> String {
    let mut text = String::new();
    if pending.hold == Some(Hold::Reservation) {
        text += " held without its reservation";
    }
    let _ = pending.accrued.map(|since| write!(text, " gains age since {}", since.0));
    let _ = pending.kept_priority.map(|priority| write!(text, " keeps priority {priority}"));
    text
}

fn predecessor(before: &Predecessor) -> String {
    format!(" was on {} until {}", before.hostname, before.until.0)
}

fn power(power: &Power) -> String {
    let Power::Reboot(reboot) = power else { return format!(" is {power:?}") };
    let issued = reboot.issued.map(|at| at.0);
    format!(" boots since {issued:?}, then {:?}: {}", reboot.next, reboot.reason)
}

/// The end of a job's script, and the causes that ended its steps.
fn ends(job: &Job, text: &mut String) {
    if let Some(batch) = job.batch_end.as_deref() {
        let memory = batch.end.usage.as_ref().map_or(0, |usage| usage.memory.max.value);
        let _ = write!(text, " script ended {} at {} with {memory} bytes", batch.end.exit, batch.at.0);
    }
    for step in &job.steps {
        text.extend(step.cancelled_by.map(|by| format!(" step {} cancelled by {by}", step.id.0)));
        if let (Some(limit), Some(at)) = (step.time_limit, step.timed_out) {
            let _ = write!(text, " step {} had {limit} s till {}", step.id.0, at.0);
        }
    }
}

fn lineage(cluster: &Cluster, text: &mut String) {
    if cluster.feature_level() > FeatureLevel::OLDEST {
        let _ = writeln!(text, "feature level {}", cluster.feature_level());
    }
    if let Some(history) = cluster.history() {
        let from: Vec<String> = history.ancestors.iter().map(ToString::to_string).collect();
        let _ =
            writeln!(text, "history {} from [{}] to job {}", history.id, from.join(" "), cluster.last_job());
        let clock = cluster.clock();
        if clock.ahead != 0 || !clock.boot.is_empty() {
            let _ = writeln!(
                text,
                "wall {} s ahead, {} ms beyond boot {}",
                clock.ahead, clock.base_ms, clock.boot
            );
        }
        let known = [1, 2, 3, 4].map(|epoch| cluster.knows_reign(epoch, cluster.reign()));
        let _ =
            writeln!(text, "reign {} known {known:?} doubted {}", cluster.reign(), cluster.doubt().is_some());
    }
}

#[test]
fn journals_of_every_version_are_read() {
    let journals = journals();
    assert!(!journals.is_empty());
    for journal in journals {
        let cluster = read(&journal);
        let expected =
            fs::read_to_string(journal.with_extension("txt")).expect("the summary beside the journal");
        assert_eq!(summary(&cluster), expected, "{}", journal.display());
        let mut restore = Restore::default();
        for record in snapshot::records(&cluster) {
            let text = serde_json::to_string(&record).expect("a record is plain data");
            restore.push(serde_json::from_str(&text).expect("our own record"));
        }
        assert_eq!(summary(&restore.finish()), expected, "{}: through a snapshot", journal.display());
    }
}

/// A journal whose entries all belong to the oldest level gives a snapshot of that level.
#[test]
fn snapshots_of_the_oldest_level_contain_nothing_newer() {
    let oldest = Cluster::default();
    let mut checked = 0;
    for journal in journals() {
        let text = fs::read_to_string(&journal).expect("a journal");
        let entries =
            text.lines().map(|line| serde_json::from_str::<Entry>(line).expect("it was read before"));
        if entries.map(|entry| entry.event).any(|event| oldest.allows(&event).is_err()) {
            continue;
        }
        for record in snapshot::records(&read(&journal)) {
            assert_eq!(oldest.allows(&record), Ok(()), "{}: {record:?}", journal.display());
        }
        checked += 1;
    }
    assert!(checked > 10, "most journals are of the oldest level");
}

#[test]
fn every_event_occurs_in_some_journal() {
    let all: String =
        journals().iter().map(|journal| fs::read_to_string(journal).expect("a journal")).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spur-core/src/cluster/event.rs");
    let source = fs::read_to_string(source).expect("the events");
    let body = source.split("pub enum Event {").nth(1).expect("the enum");
    let body = body.split("\n}\n").next().expect("its end");
    let missing: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" {"))
        .filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter(|name| !all.contains(&format!("\"{name}\":")))
        .collect();
    assert!(missing.is_empty(), "no journal under tests/data/journal holds {missing:?}");
}

#[test]
fn an_unknown_event_is_refused() {
    let line = r#"{"seq":1,"epoch":1,"at":0,"event":{"JobTeleported":{"job":1}}}"#;
    let error = serde_json::from_str::<Entry>(line).expect_err("nobody knows what it means");
    assert!(error.to_string().contains("unknown variant `JobTeleported`"), "{error}");
}

#[test]
fn a_missing_new_field_has_its_default() {
    let line = r#"{"seq":1,"epoch":1,"at":5,"event":{"JobRequeued":{"job":1}}}"#;
    let entry: Entry = serde_json::from_str(line).expect("fields added later have defaults");
    assert_eq!(entry.seq, 1);
}
