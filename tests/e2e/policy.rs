//! The policy tree as a file: it is exported, imported into another cluster, compared and changed.

use std::fs;
use std::path::Path;

use crate::accounts::me;
use crate::cluster::{Cluster, Setup};

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/migrate").join(name).display().to_string()
}

fn export(cluster: &Cluster) -> String {
    cluster.ok(&["spur", "policy", "export"])
}

/// Writes a text into a file of the cluster's directory; returns the path.
fn written(cluster: &Cluster, name: &str, text: &str) -> String {
    fs::write(cluster.path(name), text).unwrap();
    cluster.path(name).display().to_string()
}

#[test]
fn a_tree_goes_through_its_file() {
    let cluster = Cluster::start(&Setup::default());
    let (qos, tree) = (format!("--qos={}", data("qos.txt")), format!("--accounts={}", data("tree.cfg")));
    cluster.ok(&["spur", "import", "slurm", &qos, &tree]);
    cluster.ok(&[
        "sacctmgr",
        "-i",
        "modify",
        "qos",
        "high",
        "set",
        "MaxTRESPU=cpu=8,mem=4G",
        "UsageFactor=1.5",
    ]);
    let exported = export(&cluster);
    for wanted in [
        "[[account]]\nName = \"chem\"\nParent = \"sci\"\n",
        "QOS = [\"+scavenger\"]",
        "Fairshare = \"parent\"",
        "MaxTRESPerUser = \"cpu=8,mem=4G\"",
    ] {
        assert!(exported.contains(wanted), "{wanted}\n{exported}");
    }

    let other = Cluster::start(&Setup::default());
    let file = written(&other, "tree.toml", &exported);
    other.ok(&["spur", "policy", "import", "-i", &file]);
    assert_eq!(export(&other), exported);
    assert_eq!(other.run(&["spur", "policy", "diff", &file]).code, Some(0));
    let shown =
        ["sacctmgr", "-nP", "show", "assoc", "format=account,user,partition,share,qos,maxjobs,grptres"];
    assert_eq!(other.rows(&shown), cluster.rows(&shown));
}

#[test]
fn differences_are_named_with_their_jobs_and_made() {
    let user = me();
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    for words in [
        "add qos night priority=5 MaxTRESPU=cpu=8,mem=4G flags=NoReserve",
        "add account lab,old",
        "add account part parent=lab grptres=cpu=9 maxjobs=4",
        &format!("add user {user} account=part,old"),
        "add user ada account=part qos+=night",
        "add coordinator account=lab names=ada",
    ] {
        cluster.ok(&[&["sacctmgr", "-i"], words.split_whitespace().collect::<Vec<_>>().as_slice()].concat());
    }
    let before = export(&cluster);
    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&["-A", "part", "-n", "4", "--wrap", "read x <gate"]);
    client.wait_for(runs, "RUNNING");
    let waits = cluster.sbatch(&["-A", "old", "-n", "4", "--wrap", "true"]);

    // A limit of a resource, a limit, a list, a level, a coordinator, an account and a user's place change.
    let changed = before
        .replace("MaxTRESPerUser = \"cpu=8,mem=4G\"", "MaxTRESPerUser = \"cpu=16\"")
        .replace("GrpTRES = \"cpu=9\"\nMaxJobs = 4\n", "GrpTRES = \"cpu=10\"\n")
        .replace("QOS = [\"+night\"]", "QOS = [\"normal\"]")
        .replace("Coordinator = [\"lab\"]", "AdminLevel = \"Operator\"");
    let start = changed.find("[[account]]\nName = \"old\"").unwrap();
    let end = start + changed[start..].find("\n\n").unwrap() + 2;
    let changed = format!("{}{}", &changed[..start], &changed[end..]);
    let start = changed.find("[[association]]\nAccount = \"old\"").unwrap();
    let end = changed[start..].find("\n\n").map_or(changed.len(), |length| start + length + 2);
    let changed = format!("{}{}", &changed[..start], &changed[end..])
        + "\n[[account]]\nname = \"new\"\nparent = \"lab\"\nfairshare = 7\n";
    let file = written(&cluster, "changed.toml", &changed);
    let said = cluster.run(&["spur", "policy", "diff", &file]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for wanted in [
        "~ qos night MaxTRESPerUser: cpu=8,mem=4G -> cpu=16\n".to_owned(),
        format!(
            "~ account part GrpTRES: cpu=9 -> cpu=10 MaxJobs: 4 -> (not set)\n    running jobs: {runs}\n"
        ),
        "+ account new Parent=lab".to_owned(),
        format!("- account old\n    waiting jobs: {waits}\n"),
        format!("- user {user} in account old\n    waiting jobs: {waits}\n"),
        "~ user ada AdminLevel: (not set) -> Operator Coordinator: lab -> (not set)\n".to_owned(),
        "~ user ada in account part QOS: +night -> normal\n".to_owned(),
    ] {
        assert!(said.out.contains(&wanted), "{wanted}\n{}", said.out);
    }
    let json = cluster.run(&["spur", "policy", "diff", "--json", &file]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let old = json["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|change| change["change"] == "- account old")
        .unwrap();
    assert_eq!(old["pending"], serde_json::json!([waits]));

    // Nothing that has jobs is deleted, and then nothing at all is changed.
    let refused = cluster.fails(&["spur", "policy", "import", "-i", &file]);
    assert!(refused.contains("Job(s) active, cancel job(s) before remove"), "{refused}");
    assert_eq!(export(&cluster), before);
    cluster.ok(&["scancel", &waits.to_string()]);
    client.wait_for(waits, "CANCELLED");
    cluster.ok(&["spur", "policy", "import", "-i", &file]);
    assert_eq!(cluster.run(&["spur", "policy", "diff", &file]).code, Some(0));
    let after = export(&cluster);
    let again = written(&cluster, "after.toml", &after);
    assert_eq!(cluster.run(&["spur", "policy", "diff", &again]).code, Some(0));
    cluster.ok(&["spur", "policy", "import", "-i", &written(&cluster, "before.toml", &before)]);
    assert_eq!(export(&cluster), before);
    gate.open();
    client.wait_for(runs, "COMPLETED");
}

#[test]
fn files_that_are_no_tree_are_refused() {
    let cluster = Cluster::start(&Setup::default());
    let before = export(&cluster);
    for (text, wanted) in [
        ("[[acount]]\nName = \"x\"\n", "unknown field `acount`"),
        ("\n[[account]]\nParent = \"root\"\n", "line 2: this [[account]] has no Name"),
        ("[[account]]\nName = \"a\"\nParent = \"b\"\n", "line 1: account a: there is no account b above it"),
        ("[[account]]\nName = \"a\"\nGrpCats = 3\n", "Problem with line(1)"),
        ("[[account]]\nName = \"a\"\n[[account]]\nName = \"A\"\n", "line 3: account a is on line 1 as well"),
        ("[[user]]\nName = \"u\"\n", "line 1: user u needs an [[association]]"),
        ("[[association]]\nUser = \"u\"\nAccount = \"a\"\n", "You need to add this parent (a)"),
    ] {
        let file = written(&cluster, "wrong.toml", text);
        let said = cluster.fails(&["spur", "policy", "import", "-i", &file]);
        assert!(said.contains(wanted), "{text}: {said}");
    }
    assert_eq!(export(&cluster), before);
}
