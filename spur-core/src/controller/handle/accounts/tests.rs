use std::sync::Arc;

use crate::cluster::limits::Rule;
use crate::cluster::{Accounts, Cluster, Holder, snapshot};
use crate::controller::handle::{qos, wckey};
use crate::controller::{self, Command, Input, Reject, Reply};
use crate::model::accounts::Charged;
use crate::model::accounts::ask::{self, Ask, AssociationSet, Entity, LoadLine, Word};
use crate::model::caller::{Caller, Owner};
use crate::model::config::{AccountingEnforce, PartitionConfig, Policy, QosConfig};
use crate::model::job::{JobSpec, Shape};
use crate::text::time::Time;

fn caller(user: &str) -> Caller {
    let uid = if user == "root" { 0 } else { 1000 };
    let owner = Owner { uid, gid: uid, user: user.into(), group: "g".into() };
    Caller::new(Arc::new(owner), Arc::default(), user == "root")
}

struct World(Cluster);

impl World {
    fn new(file: &[QosConfig]) -> Self {
        let mut world = Self(Cluster::of_newest_level());
        let policy = Policy { cluster_name: "c".into(), qos: file.to_vec(), ..Policy::default() };
        world.reconfigure(policy);
        controller::handle(&mut world.0, 1, Time(0), Input::FileQos(file.to_vec())).answer.unwrap();
        world
    }

    fn reconfigure(&mut self, policy: Policy) -> Vec<String> {
        let command = Command::Reconfigure(Arc::new(policy));
        let input = Input::Command { caller: caller("root"), request: None, command };
        match controller::handle(&mut self.0, 1, Time(0), input).answer {
            Ok(Reply::Reconfigured { changes }) => changes,
            other => panic!("{other:?}"),
        }
    }

    fn change(&mut self, user: &str, ask: Ask, shown: Option<Vec<String>>) -> Result<Vec<String>, Reject> {
        let command = Command::ChangeAccounts { ask: Box::new(ask), shown };
        let input = Input::Command { caller: caller(user), request: None, command };
        match controller::handle(&mut self.0, 1, Time(0), input).answer? {
            Reply::AccountsChanged { lines } => Ok(lines),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, user: &str, text: &str) -> Result<Vec<String>, Reject> {
        self.change(user, read(text), None)
    }

    /// Makes a request that must succeed; returns its output.
    fn ok(&mut self, user: &str, text: &str) -> String {
        self.ask(user, text).unwrap_or_else(|refused| panic!("{text}: {refused}")).join("\n")
    }

    /// Makes a request that must be refused without any change; returns the refusal.
    fn no(&mut self, user: &str, text: &str) -> String {
        let before = self.0.seq();
        let refused = self.ask(user, text).expect_err(text).to_string();
        assert_eq!(self.0.seq(), before, "{text}");
        refused
    }

    fn tree(&self) -> String {
        Self::lines(self.0.accounts())
    }

    /// Returns this world after its cluster was written to a snapshot and read again.
    fn restored(&self) -> Self {
        let mut restore = snapshot::Restore::default();
        for record in snapshot::records(&self.0) {
            let text = serde_json::to_string(&record).unwrap();
            restore.push(serde_json::from_str(&text).unwrap());
        }
        Self(restore.finish())
    }

    /// The tree of another cluster.
    fn tree_of(&self, cluster: &str) -> String {
        self.0.accounts().of_cluster(cluster).as_ref().map(Self::lines).unwrap_or_default()
    }

    fn lines(tree: &Accounts) -> String {
        let line = |placed: crate::cluster::Placed<'_>| {
            let (own, indent) = (placed.association, " ".repeat(placed.depth));
            let user = own.user.as_ref().map(|user| format!(":{user}")).unwrap_or_default();
            let partition = own.partition.as_ref().map(|name| format!("@{name}")).unwrap_or_default();
            let limits: Vec<String> =
                tree.limits_of(own).texts().map(|(kind, text)| format!(" {}={text}", kind.name())).collect();
            format!("{indent}{}{user}{partition}{}\n", own.account, limits.concat())
        };
        tree.walk().into_iter().map(line).collect()
    }
}

/// Reads a request of the form `VERB ENTITY NAMES KEY=VALUE …`, with `where` and `set`. Words `cluster=` name
/// the clusters that the request is for.
fn read(text: &str) -> Ask {
    let of_clusters = |word: &&str| word.starts_with("cluster=");
    let (clusters, words): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(of_clusters);
    let (clusters, _) = ask::split_clusters(clusters.into_iter().map(Word::read).collect());
    let ask = read_words(&words);
    if clusters.is_empty() { ask } else { Ask::In(clusters, Box::new(ask)) }
}

fn read_words(words: &[&str]) -> Ask {
    let (verb, entity) = (words[0], words[1]);
    let mut sets = verb == "add" && entity != "coordinator";
    let (mut names, mut conditions, mut settings) = (Vec::new(), Vec::new(), Vec::new());
    for word in &words[2..] {
        match *word {
            "where" => sets = false,
            "set" => sets = true,
            name if !name.contains('=') => names.extend(ask::names(name).unwrap()),
            _ if sets => settings.push(Word::read(word)),
            _ => conditions.push(Word::read(word)),
        }
    }
    let kind = match entity {
        "account" => Entity::Account,
        "user" => Entity::User,
        "qos" => Entity::Qos,
        "cluster" => Entity::Cluster,
        _ => Entity::Coordinator,
    };
    let list: Vec<Arc<str>> = names.iter().map(|name| Arc::from(name.as_str())).collect();
    conditions.extend(names.iter().map(|name| Word::read(name)));
    let which = || ask::which(kind, "c", &conditions).unwrap();
    let set = || AssociationSet::of_words(&settings).unwrap();
    match (verb, kind) {
        ("add", Entity::Cluster) => Ask::AddClusters(list.into_iter().collect(), set()),
        ("modify", Entity::Cluster) => {
            Ask::In(list.into_iter().collect(), Box::new(Ask::ModifyCluster(set())))
        }
        (_, Entity::Cluster) => Ask::DeleteClusters(list.into_iter().collect()),
        ("add", Entity::Account) => Ask::AddAccounts(list, ask::account_set(&settings).unwrap()),
        ("add", Entity::User) => Ask::AddUsers(list, ask::user_add(&settings).unwrap()),
        ("add", Entity::Qos) => Ask::AddQos(list, ask::qos_set(&settings).unwrap()),
        ("add", _) => Ask::AddCoordinators(which()),
        ("modify", Entity::Account) => Ask::ModifyAccounts(which(), ask::account_set(&settings).unwrap()),
        ("modify", Entity::User) => Ask::ModifyUsers(which(), ask::user_set(&settings).unwrap()),
        ("modify", _) => Ask::ModifyQos(which(), ask::qos_set(&settings).unwrap()),
        (_, Entity::Account) => Ask::DeleteAccounts(which()),
        (_, Entity::User) => Ask::DeleteUsers(which()),
        (_, Entity::Qos) => Ask::DeleteQos(which()),
        (..) => Ask::DeleteCoordinators(which()),
    }
}

fn site() -> World {
    let mut world = World::new(&[]);
    for text in [
        "add account sci description=science",
        "add account chem,phys parent=sci maxjobs=7",
        "add user alice account=chem,phys",
        "add user bob account=chem maxjobs=2",
        "add user dave account=chem partition=debug",
        "add qos high priority=10",
    ] {
        world.ok("root", text);
    }
    world
}

#[test]
fn a_tree_is_built_in_slurms_words() {
    let mut world = World::new(&[]);
    let said = world.ok("root", "add account chem,phys fairshare=10");
    let wanted = " Adding Account(s)\n  chem\n  phys\n Settings\n  Description     = Account Name\n  Organization    = \
                  Parent/Account Name\n Associations\n  A = chem       C = c         \n  A = phys       C = c         \n \
                  Settings\n  Fairshare     = 10\n  Parent        = root";
    assert_eq!(said, wanted);
    assert_eq!(world.no("root", "add account chem"), " Nothing new added.");
    let said = world.ok("root", "add user alice,bob account=chem");
    let wanted = " Adding User(s)\n  alice\n  bob\n Associations =\n  U = alice     A = chem       C = c         \n  \
                  U = bob       A = chem       C = c         \n Non Default Settings";
    assert_eq!(said, wanted);
    assert_eq!(world.no("root", "add user carol"), " Need name of account to add user to.");
    assert!(world.no("root", "add user carol account=x").starts_with(" This account 'x' doesn't exist."));
    assert!(
        world
            .no("root", "add account x parent=y")
            .starts_with(" Parent account 'y' doesn't exist on cluster c")
    );
}

#[test]
fn limits_and_lists_are_inherited() {
    let mut world = site();
    let wanted = "root\n root:root\n sci\n  chem MaxJobs=7\n   chem:alice MaxJobs=7\n   chem:bob MaxJobs=2\n   \
                  chem:dave@debug MaxJobs=7\n  phys MaxJobs=7\n   phys:alice MaxJobs=7\n";
    assert_eq!(world.tree(), wanted);
    let qos = |world: &World| {
        let own = world.0.accounts().exactly("bob", "chem", None).unwrap();
        world.0.accounts().qos_of(own).iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    };
    assert_eq!(qos(&world), "normal");
    world.ok("root", "modify account sci set qos+=high");
    assert_eq!(qos(&world), "high,normal");
    world.ok("root", "modify user bob set qos=high");
    assert_eq!(qos(&world), "high");
    assert!(
        world
            .no("root", "modify user bob set qos=foo")
            .contains("You gave a bad qos 'foo'. Valid QOS's are normal,high")
    );
    assert!(
        world.no("root", "modify user alice set defaultqos=high qos=normal").contains("don't have access")
    );
    world.ok("root", "modify user bob set maxjobs=-1");
    assert!(world.tree().contains("chem:bob MaxJobs=7"));
    world.ok("root", "delete qos high");
    assert_eq!(qos(&world), "");
}

#[test]
fn a_change_that_is_not_what_was_shown_is_not_made() {
    let mut world = site();
    let ask = read("delete account chem,phys");
    let shown = controller::preview(&world.0, &caller("root"), &ask).unwrap();
    assert_eq!(shown, [" Deleting accounts...", "  chem", "  phys"]);
    world.ok("root", "delete account phys");
    let refused = world.change("root", ask.clone(), Some(shown)).unwrap_err();
    assert!(refused.to_string().contains("would do something else than was shown"), "{refused}");
    let shown = controller::preview(&world.0, &caller("root"), &ask).unwrap();
    assert!(world.change("root", ask, Some(shown)).is_ok());
    assert_eq!(world.tree(), "root\n root:root\n sci\n");
    let names: Vec<String> =
        world.0.accounts().all_accounts().map(|account| account.name.to_string()).collect();
    assert_eq!(names, ["chem", "phys", "root", "sci"], "names of what is deleted stay known");
}

#[test]
fn rights_go_by_level_and_account() {
    let mut world = site();
    assert!(world.no("alice", "add account x parent=chem").contains("Access/permission denied"));
    world.ok("root", "add coordinator account=sci alice");
    world.ok("alice", "add account organic parent=chem");
    world.ok("alice", "add user erin account=organic");
    world.ok("alice", "modify user bob where account=chem set maxjobs=3");
    for text in [
        "add account x",
        "add qos x",
        "modify user alice set adminlevel=operator",
        "add user frank account=chem adminlevel=operator",
        "modify qos high set priority=1",
        "delete account root",
        "modify account sci set parent=root description=x",
    ] {
        assert!(!world.no("alice", text).is_empty());
    }
    world.ok("root", "modify user bob set adminlevel=operator");
    world.ok("bob", "add account bio");
    assert!(world.no("bob", "modify user bob set adminlevel=admin").contains("Access/permission denied"));
    assert!(world.no("bob", "add qos x").contains("Access/permission denied"));
    let bob = world.0.recognize(caller("bob"));
    assert!(bob.is_operator() && !bob.is_in_any(&["staff".into()]), "an operator is in no group of others");
}

#[test]
fn accounts_move_but_never_below_themselves() {
    let mut world = site();
    world.ok("root", "modify account chem set parent=root");
    world.ok("root", "modify account sci set parent=chem");
    assert!(world.no("root", "modify account chem set parent=sci").contains("cannot be below sci"));
    assert!(world.no("root", "modify account chem set parent=chem").contains("cannot be below chem"));
    assert_eq!(world.no("root", "modify account x set fairshare=2"), " Nothing modified");
    assert_eq!(world.no("root", "delete user"), " No conditions given to remove, not executing.");
}

#[test]
fn users_lose_associations_and_then_themselves() {
    let mut world = site();
    world.ok("root", "delete user alice where account=chem");
    let alice = world.0.accounts().user("alice").unwrap();
    assert_eq!(alice.default_account, None);
    assert!(
        world.ok("root", "delete user alice where account=phys").contains("(No Associations)...\n  alice")
    );
    assert!(world.0.accounts().user("alice").is_none());
    assert_eq!(world.no("root", "delete user alice"), " Nothing deleted");
    assert!(world.no("root", "modify user bob set defaultaccount=phys").contains("aren't associated"));
}

#[test]
fn qos_never_preempt_each_other_in_a_circle() {
    let mut world = site();
    world.ok("root", "add qos low");
    world.ok("root", "modify qos high set preempt=low");
    assert!(world.no("root", "modify qos low set preempt=high").contains("cannot preempt high"));
    assert!(world.no("root", "modify qos low set preempt=low").contains("cannot preempt low"));
    let depths = world.0.policy().qos_depths();
    assert_eq!(depths, [0, 0, 1], "the planner goes by the tree");
}

#[test]
fn a_dump_is_loaded_whole_or_not_at_all() {
    let mut world = World::new(&[]);
    let words = |text: &str| text.split_whitespace().map(Word::read).collect::<Vec<_>>();
    let account = |name: &str, parent: &str, text: &str| {
        let set = ask::AccountSet { parent: Some(parent.into()), ..ask::account_set(&words(text)).unwrap() };
        LoadLine::Account { name: name.into(), set }
    };
    let user = |name: &str, account: &str, text: &str| {
        let add = ask::UserAdd { accounts: vec![account.into()], ..ask::user_add(&words(text)).unwrap() };
        LoadLine::User { name: name.into(), add }
    };
    let lines = vec![
        (2, account("sci", "root", "fairshare=60")),
        (3, user("ulf", "sci", "defaultaccount=sci coordinator=sci maxjobs=3")),
    ];
    let load = |lines: &[(u32, LoadLine)], clean| Ask::Load { lines: lines.to_vec(), clean };
    let mut bad = lines.clone();
    bad.push((4, user("x", "nosuch", "")));
    let refused = world.change("root", load(&bad, false), None).unwrap_err().to_string();
    assert!(refused.contains("add this parent (nosuch)") && refused.ends_with("line(4)"), "{refused}");
    assert_eq!(world.tree(), "root\n root:root\n");
    let said = world.change("root", load(&lines, false), None).unwrap();
    assert_eq!(said, [" Added account sci of root", " Added user ulf to account sci"]);
    assert_eq!(world.change("root", load(&lines, false), None).unwrap(), Vec::<String>::new());
    assert!(world.0.accounts().coordinates("ulf", "sci"));
    let bare = [(3, user("ulf", "sci", ""))];
    assert_eq!(world.change("root", load(&bare, false), None).unwrap(), Vec::<String>::new());
    assert_eq!(
        world.change("root", load(&bare, true), None).unwrap().len(),
        1,
        "what a line does not set is gone"
    );
}

#[test]
fn other_clusters_have_trees_of_their_own() {
    let mut world = site();
    let own = world.tree();
    let said = world.ok("root", "add cluster t1,t2 fairshare=3 maxjobs=4");
    let wanted = " Adding Cluster(s)\n  Name           = t1\n  Name           = t2\n Setting\n  Default Limits:\n  \
                  Fairshare     = 3\n  MaxJobs       = 4";
    assert_eq!(said, wanted);
    assert_eq!(world.no("root", "add cluster c"), " This cluster c already exists.  Not adding.");
    assert!(world.no("alice", "add cluster t3").contains("Access/permission denied"));
    assert_eq!(world.tree_of("t1"), "root MaxJobs=4\n root:root MaxJobs=4\n");
    // Without a cluster, a request is for all; what one of them has already is added to the others.
    world.ok("root", "add account geo cluster=t1");
    let said = world.ok("root", "add account geo");
    assert!(said.contains("C = c ") && said.contains("C = t2") && !said.contains("C = t1"), "{said}");
    world.ok("root", "add user alice account=geo cluster=t1,t2 maxjobs=1");
    world.ok("root", "modify user alice set maxjobs=2 cluster=t2");
    let of =
        |jobs| format!("root MaxJobs=4\n geo MaxJobs=4\n  geo:alice MaxJobs={jobs}\n root:root MaxJobs=4\n");
    let same = |tree: String| {
        let mut lines: Vec<&str> = tree.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_eq!(same(world.tree_of("t1")), same(of(1)));
    assert_eq!(same(world.tree_of("t2")), same(of(2)));
    assert!(world.no("root", "add account x cluster=t9").starts_with(" This cluster 't9' doesn't exist."));
    assert_eq!(world.no("root", "modify user alice set maxjobs=2 cluster=t9"), " Nothing modified");
    // QOS are shared: a deleted one leaves all trees.
    world.ok("root", "modify user alice set qos=high cluster=t2");
    world.ok("root", "modify account geo set qos=high,normal defaultqos=high cluster=t1");
    assert!(world.no("root", "delete qos high").contains("C = t1"));
    world.ok("root", "modify account geo set defaultqos=normal cluster=t1");
    world.ok("root", "delete qos high");
    let other = world.0.accounts().of_cluster("t2").unwrap();
    assert!(other.qos_of(other.exactly("alice", "geo", None).unwrap()).is_empty());
    let set = ask::account_set(&[Word::read("maxjobs=6")]).unwrap();
    let set = ask::AccountSet { parent: Some("root".into()), ..set };
    let line = LoadLine::Account { name: "geo".into(), set };
    let load = Ask::Load { lines: vec![(1, line)], clean: false };
    world.change("root", load.clone(), None).unwrap();
    assert!(world.tree().contains("geo MaxJobs=6") && !world.tree_of("t1").contains("geo MaxJobs=6"));
    world.change("root", Ask::In(["t1".into()].into(), Box::new(load)), None).unwrap();
    assert!(world.tree_of("t1").contains("geo MaxJobs=6") && !world.tree_of("t2").contains("geo MaxJobs=6"));
    // The trees outlive a snapshot.
    let kept = [world.tree(), world.tree_of("t1"), world.tree_of("t2")];
    let mut world = world.restored();
    assert_eq!([world.tree(), world.tree_of("t1"), world.tree_of("t2")], kept);
    world.ok("root", "delete account geo");
    assert_eq!(
        (world.tree(), world.tree_of("t1")),
        (own, "root MaxJobs=4\n root:root MaxJobs=4\n".to_owned())
    );
    assert!(world.no("root", "delete cluster c").contains("cannot be deleted"));
    assert_eq!(world.ok("root", "delete cluster t1"), " Deleting clusters...\n  t1");
    assert_eq!(world.no("root", "delete cluster t1"), " Nothing deleted");
    assert_eq!(world.tree_of("t1"), "");
    world.ok("root", "modify cluster t2 set maxjobs=9");
    assert_eq!(world.tree_of("t2"), "root MaxJobs=9\n root:root MaxJobs=9\n");
}

#[test]
fn the_files_qos_are_taken_once() {
    let low = QosConfig { name: "low".into(), ..QosConfig::default() };
    let high =
        QosConfig { name: "high".into(), priority: 5, preempt: vec!["low".into()], ..QosConfig::default() };
    let mut world = World::new(&[high.clone(), low.clone()]);
    let names =
        |world: &World| world.0.policy().qos.iter().map(|qos| qos.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&world), ["normal", "high", "low"]);
    let policy =
        |qos: &[QosConfig]| Policy { cluster_name: "c".into(), qos: qos.to_vec(), ..Policy::default() };
    assert_eq!(world.reconfigure(policy(&[high.clone(), low.clone()])), Vec::<String>::new());
    let higher = QosConfig { priority: 9, ..high };
    let changes = world.reconfigure(policy(std::slice::from_ref(&higher))).join("\n");
    assert!(changes.contains("sacctmgr modify qos high set Priority=9"), "{changes}");
    assert!(changes.contains("sacctmgr delete qos low"), "{changes}");
    assert_eq!(names(&world), ["normal", "high", "low"], "the sections have no effect");
    assert_eq!(world.reconfigure(policy(&[higher])), Vec::<String>::new(), "it is said once");
}

#[test]
fn qos_mean_nothing_until_there_are_some() {
    let mut world = World::new(&[]);
    assert!(world.0.policy().qos.is_empty() && world.0.policy().knows_qos(Some("any")));
    let mut enforcing = Policy { cluster_name: "c".into(), ..Policy::default() };
    enforcing.jobs.accounting_enforce = vec![AccountingEnforce::Qos];
    world.reconfigure(enforcing);
    assert!(!world.0.policy().knows_qos(Some("any")) && world.0.enforces(AccountingEnforce::Associations));
    world.ok("root", "add qos high");
    assert_eq!(world.0.policy().qos.len(), 2);
}

#[test]
fn jobs_count_for_an_association_and_two_qos() {
    let mut world = World::new(&[]);
    let partition = |name: &str, qos: Option<&str>| PartitionConfig {
        name: name.into(),
        qos: qos.map(Into::into),
        ..PartitionConfig::default()
    };
    let partitions = vec![partition("cpu", None), partition("gpu", Some("gpus"))];
    world.reconfigure(Policy { cluster_name: "c".into(), partitions, ..Policy::default() });
    for ask in [
        "add qos gpus",
        "add qos high",
        "add account sci",
        "add account chem parent=sci",
        "add user alice account=chem",
        "add user alice account=chem partition=gpu",
    ] {
        world.ok("root", ask);
    }
    let names = |charged: Charged| {
        let tree = world.0.accounts();
        let association = tree.association(charged.association?)?;
        let qos = |number: Option<u32>| Some(Arc::clone(&tree.qos_numbered(number?)?.name));
        let part = |name: Option<Arc<str>>| name.as_deref().unwrap_or("-").to_owned();
        let place =
            [Some(Arc::clone(&association.account)), association.user.clone(), association.partition.clone()];
        let place = place.map(part).join(" ");
        Some(format!("{place} | {} {}", part(qos(charged.qos)), part(qos(charged.partition_qos))))
    };
    for (user, account, qos, partition, wanted) in [
        ("alice", Some("chem"), None, "cpu", "chem alice - | - -"),
        ("alice", Some("CHEM"), Some("high"), "gpu", "chem alice gpu | high gpus"),
        ("alice", None, Some("none"), "cpu", "chem alice - | - -"),
        ("alice", Some("sci"), None, "cpu", "sci - - | - -"),
        ("bob", Some("chem"), Some("normal"), "gpu", "chem - - | normal gpus"),
        ("bob", Some("nowhere"), None, "cpu", "root - - | - -"),
        ("bob", None, None, "cpu", "root - - | - -"),
        ("root", None, None, "cpu", "root root - | - -"),
    ] {
        let (account, qos) = (account.map(Into::into), qos.map(Into::into));
        let spec =
            JobSpec { account, qos, ..JobSpec::plain("j".into(), caller(user).owner, Shape::default()) };
        let partition = world.0.partition(partition).unwrap();
        assert_eq!(names(world.0.charged(&spec, partition)).as_deref(), Some(wanted), "{user}");
    }
}

#[test]
fn a_limit_applies_where_it_is_first_set() {
    let mut world = World::new(&[]);
    let partition = |name: &str, qos: Option<&str>| PartitionConfig {
        name: name.into(),
        qos: qos.map(Into::into),
        ..PartitionConfig::default()
    };
    let partitions = vec![partition("cpu", None), partition("gpu", Some("part"))];
    let mut policy = Policy { cluster_name: "c".into(), partitions, ..Policy::default() };
    policy.jobs.accounting_enforce = vec![AccountingEnforce::Limits];
    world.reconfigure(policy);
    for ask in [
        "add qos part GrpTRES=cpu=10,node=2 MaxWall=60",
        "add qos high GrpTRES=cpu=4 MaxWall=30 MaxJobsPU=3",
        "add qos over Flags=OverPartQOS MaxWall=20",
        "add account sci GrpTRES=cpu=100,mem=1G MaxJobs=9 MaxWall=90",
        "add account chem parent=sci GrpJobs=7",
        "add user alice account=chem MaxTRES=cpu=8",
    ] {
        world.ok("root", ask);
    }
    for (user, qos, partition, wanted) in [
        (
            "alice",
            None,
            "cpu",
            "MaxJobs 9 of user alice in account chem; MaxWall 90 of user alice in account chem; GrpJobs 7 of account chem; \
             MaxTRES cpu 8 of user alice in account chem; GrpTRES cpu 100 of account sci; GrpTRES mem 1024 of account sci",
        ),
        (
            "alice",
            Some("high"),
            "gpu",
            "MaxWall 60 of QOS part; MaxJobsPerUser 3 of QOS high; GrpJobs 7 of account chem; GrpTRES cpu 10 of QOS part; \
             GrpTRES node 2 of QOS part; MaxTRES cpu 8 of user alice in account chem; GrpTRES mem 1024 of account sci",
        ),
        (
            "bob",
            Some("over"),
            "gpu",
            "MaxWall 20 of QOS over; GrpJobs 7 of account chem; MaxJobs 9 of user bob in account chem; \
             GrpTRES cpu 10 of QOS part; GrpTRES node 2 of QOS part; GrpTRES mem 1024 of account sci",
        ),
    ] {
        let (account, qos) = (Some("chem".into()), qos.map(Into::into));
        let spec =
            JobSpec { account, qos, ..JobSpec::plain("j".into(), caller(user).owner, Shape::default()) };
        let said = |rule: &Arc<Rule>| {
            let tres = rule.tres.as_ref().map(|tres| format!("{tres} ")).unwrap_or_default();
            format!("{} {tres}{} of {}", rule.kind.short_name(), rule.most, rule.setter)
        };
        let rules: Vec<String> = world.0.rules(&spec, partition).start.iter().map(said).collect();
        assert_eq!(rules.join("; "), wanted, "{user} {partition}");
    }
}

#[test]
fn a_tree_goes_through_a_snapshot() {
    let mut world = site();
    world.ok("root", "add coordinator account=sci alice");
    world.ok("root", "delete user dave");
    world.ok("root", "delete qos high");
    let again = world.restored();
    assert_eq!(again.tree(), world.tree());
    let records = |world: &World| snapshot::records(&world.0).collect::<Vec<_>>();
    assert_eq!(records(&again), records(&world));
}

/// Loads lines of a file: the name of a user in the account `chem`, and the settings.
fn load_user(world: &mut World, user: &str, settings: &[&str]) {
    let words: Vec<Word> = settings.iter().map(|text| Word::read(text)).collect();
    let add = ask::user_add(&words).unwrap();
    let line =
        LoadLine::User { name: user.into(), add: ask::UserAdd { accounts: vec!["chem".into()], ..add } };
    world.change("root", Ask::Load { lines: vec![(1, line)], clean: false }, None).unwrap();
}

/// Slurm's dumps have a sign before each name, and a number for `parent`.
#[test]
fn dumps_of_slurm_are_read() {
    for (settings, wanted) in [
        (&["QOS='+high,-normal'"][..], "high"),
        (&["QOS='+high,low'"], "high,low,normal"),
        (&["QOS='high,low'"], "high,low"),
        (&["QOS=-normal", "QOS+=low"], "low"),
        (&["QOS='high'", "QOS=-1", "QOS=+low"], "low,normal"),
    ] {
        let mut world = site();
        world.ok("root", "add qos low");
        load_user(&mut world, "carol", &[settings, &["Fairshare=2147483647"]].concat());
        let tree = world.0.accounts();
        let own = tree.exactly("carol", "chem", None).unwrap();
        let qos: Vec<String> = tree.qos_of(own).iter().map(ToString::to_string).collect();
        assert_eq!(
            (qos.join(","), own.shares.to_string()),
            (wanted.to_owned(), "parent".to_owned()),
            "{settings:?}"
        );
    }
}

/// Imported usage replaces what was imported before, and moves with its association.
#[test]
fn imported_usage_is_set_and_not_added() {
    let mut world = site();
    let import = |world: &mut World, account: &str, user: Option<&str>, settings: &[&str]| {
        let words: Vec<Word> = settings.iter().map(|text| Word::read(text)).collect();
        let line = ask::UsageLine::of_words(account.into(), user.unwrap_or_default(), &words).unwrap();
        let ask = Ask::Load { lines: vec![(3, LoadLine::Usage(line))], clean: false };
        world.change("root", ask, None)
    };
    let used = |world: &World, account: &str, user: Option<&str>| {
        let tree = world.0.accounts();
        let own = match user {
            Some(user) => tree.exactly(user, account, None),
            None => tree.of_account(account),
        };
        world.0.usage().seconds(&Holder::Association(own.unwrap().id)).to_string()
    };
    for raw in [900, 600] {
        for (account, user) in [("root", None), ("sci", None), ("chem", None), ("chem", Some("alice"))] {
            let settings = [format!("RawUsage={raw}"), "GrpTRESRaw=cpu=5,billing=9".to_owned()];
            import(&mut world, account, user, &settings.each_ref().map(String::as_str)).unwrap();
        }
        assert_eq!(used(&world, "chem", Some("alice")), format!("cpu=300,billing={raw}"));
    }
    world.ok("root", "add account arts");
    world.ok("root", "modify account where name=chem set parent=arts");
    assert_eq!(used(&world, "arts", None), "cpu=300,billing=600");
    assert_eq!(used(&world, "sci", None), "cpu=0,billing=0");
    import(&mut world, "arts", None, &["RawUsage=700"]).unwrap();
    assert_eq!(used(&world, "arts", None), "cpu=0,billing=700");
    let refused = import(&mut world, "chem", Some("nobody"), &["RawUsage=1"]).unwrap_err().to_string();
    assert_eq!(refused, " There is no association of user nobody in account chem\n Problem with line(3)");
    assert!(import(&mut world, "chem", None, &[]).is_ok());
    assert!(matches!(
        world.change("alice", Ask::Load { lines: Vec::new(), clean: false }, None),
        Err(Reject::AccountsDenied(_))
    ));
}

/// A job gets the QOS of its association if the association has only one, and QOS are enforced.
#[test]
fn an_only_qos_is_the_default() {
    for (enforced, given, wanted) in [
        (AccountingEnforce::Qos, "qos=high", Some("high")),
        (AccountingEnforce::Limits, "qos=high", Some("normal")),
        (AccountingEnforce::Associations, "qos=high", None),
        (AccountingEnforce::Qos, "qos=high,normal", Some("normal")),
        (AccountingEnforce::Qos, "qos=high,low defaultqos=low", Some("low")),
    ] {
        let mut world = site();
        world.ok("root", "add qos low");
        let mut policy = Policy { cluster_name: "c".into(), ..Policy::default() };
        policy.jobs.accounting_enforce = vec![enforced];
        world.reconfigure(policy);
        world.ok("root", &format!("modify user bob set {given}"));
        let plain = JobSpec::plain("j".into(), caller("bob").owner, Shape::default());
        let spec = JobSpec {
            account: Some("chem".into()),
            partitions: Box::new([Arc::<str>::from("main")]),
            ..plain
        };
        assert_eq!(qos::default(&world.0, &[], &spec).as_deref(), wanted, "{enforced:?} {given}");
    }
}

#[test]
fn users_have_wckeys_in_slurms_words() {
    let mut world = site();
    let said = world.ok("root", "add user erin account=chem wckeys=K2,k1,k2 defaultwckey=k3 maxjobs=4");
    let wanted = " Adding User(s)\n  erin\n Settings =\n  Default WCKey   = k3\n Associations =\n  U = erin      A = chem       C = c         \n \
                  WCKeys =\n  U = erin      W = k2         C = c         \n  U = erin      W = k1         C = c         \n  U = erin      \
                  W = k3         C = c         \n Non Default Settings\n  MaxJobs       = 4";
    assert_eq!(said, wanted);
    let said = world.ok("root", "add user bob,dave wckey=k1");
    assert_eq!(
        said,
        " WCKeys =\n  U = bob       W = k1         C = c         \n  U = dave      W = k1         C = c         "
    );
    assert_eq!(world.no("root", "add user bob account=chem wckey=k1"), " Nothing new added.");
    assert!(world.no("root", "add user bob wckey=*k1").contains("'*k1' cannot be the name"));
    let state = |world: &World, name: &str| {
        let user = world.0.accounts().user(name).unwrap();
        let keys: Vec<&str> = user.wckeys.iter().map(|key| &**key).collect();
        format!("{} {}", user.default_wckey.as_deref().unwrap_or("-"), keys.join(","))
    };
    assert_eq!((state(&world, "erin"), state(&world, "bob")), ("k3 k1,k2,k3".into(), "k1 k1".into()));
    world.ok("root", "modify user erin set defaultwckey=K2");
    assert_eq!(
        world.no("root", "modify user bob,erin set defaultwckey=k2"),
        " Can't modify because these users aren't associated with new default wckey 'k2'...\n  U = bob C = c"
    );
    assert!(world.no("bob", "modify user erin set defaultwckey=k1").contains("Access/permission denied"));
    world.ok("erin", "modify user erin set defaultwckey=k1");
    assert!(world.no("erin", "add user erin wckey=k9").contains("Access/permission denied"));
    assert!(world.no("erin", "delete user erin wckey=k2").contains("Access/permission denied"));
    assert_eq!(
        world.no("root", "delete user erin account=chem wckey=k1"),
        " Mixing Account and WCKeys is not allowed"
    );
    assert_eq!(world.no("root", "delete user alice wckey=k1"), " Nothing deleted");
    assert_eq!(
        world.ok("root", "delete user where wckeys=k1,k2"),
        " Deleting user WCKeys...\n  C = c          W = k1                   U = bob      \n  C = c          W = k1                   \
         U = dave     \n  C = c          W = k1                   U = erin     \n  C = c          W = k2                   U = erin     \n \
         Modified users...\n  U = bob       Default WCKey = NONE\n  U = dave      Default WCKey = NONE\n  U = erin      Default \
         WCKey = k3"
    );
    assert_eq!((state(&world, "erin"), state(&world, "bob")), ("k3 k3".into(), "- ".into()));
    world.ok("root", "delete user erin");
    world.ok("root", "add user erin account=chem");
    assert_eq!(state(&world, "erin"), "- ");
}

#[test]
fn a_job_has_a_wckey_where_wckeys_are_tracked() {
    let mut world = site();
    world.ok("root", "add user alice wckeys=k1,k2");
    let wckey = |world: &World, user: &str, named: Option<&str>| {
        let mut spec = JobSpec::plain("j".into(), caller(user).owner, Shape::default());
        if let Some(named) = named {
            spec.extra.get_or_insert_default().wckey = Some(named.into());
        }
        let outcome = wckey::fill_in(&world.0, &mut spec);
        let wckey = spec.extra.and_then(|extra| extra.wckey).unwrap_or_else(|| "none".into());
        outcome.map_or_else(|refused| refused.to_string(), |()| wckey.into_string())
    };
    assert_eq!(
        (wckey(&world, "alice", None), wckey(&world, "alice", Some("K1"))),
        ("none".into(), "K1".into())
    );
    let policy = |track_wckey, enforced: &[AccountingEnforce]| {
        let mut policy = Policy { cluster_name: "c".into(), ..Policy::default() };
        policy.jobs.track_wckey = track_wckey;
        policy.jobs.accounting_enforce = enforced.to_vec();
        policy
    };
    world.reconfigure(policy(true, &[]));
    for (user, named, wanted) in [
        ("alice", None, "*k1"),
        ("alice", Some("K2"), "k2"),
        ("alice", Some("Other"), "other"),
        ("bob", None, "*"),
        ("nobody", Some("k1"), "k1"),
    ] {
        assert_eq!(wckey(&world, user, named), wanted, "{user} {named:?}");
    }
    world.reconfigure(policy(false, &[AccountingEnforce::Wckeys]));
    let has_none = "user bob has no wckey; an operator adds one with sacctmgr add user bob WCKeys=";
    for (user, named, wanted) in [
        ("alice", None, "*k1".to_owned()),
        ("alice", Some("K2"), "k2".to_owned()),
        (
            "alice",
            Some("Other"),
            "Invalid wckey specification: 'other'; wckeys of user alice: k1, k2".to_owned(),
        ),
        ("alice", Some("*k1"), "Invalid wckey specification: '*k1'; wckeys of user alice: k1, k2".to_owned()),
        ("bob", None, format!("Invalid wckey specification: the job names none; {has_none}")),
        ("bob", Some("k1"), format!("Invalid wckey specification: 'k1'; {has_none}")),
    ] {
        assert_eq!(wckey(&world, user, named), wanted, "{user} {named:?}");
    }
}
