//! Nodes that are moved in the network while the cluster runs, and nodes that report their places.

use rustix::process::Signal;

use crate::cluster::{Cluster, Setup};

/// A network of n1, n2 and n3; other nodes have no place in it.
const TREE: &str = r#"[topology]
plugin = "tree"
[[topology.switches]]
name = "s1"
nodes = "n[1-2]"
[[topology.switches]]
name = "s2"
nodes = "n3"
[[topology.switches]]
name = "top"
switches = "s[1-2]"
"#;

/// The place of n2, as `scontrol` and `sinfo` show it.
fn place(cluster: &Cluster) -> [String; 2] {
    let node = cluster.ok(&["scontrol", "-o", "show", "node", "n2"]);
    let shown = node.split_whitespace().find(|word| word.starts_with("Topology=")).unwrap_or_default();
    let listed = cluster.ok(&["scontrol", "show", "topology", "node=n2"]);
    let switch = listed.split_whitespace().next().unwrap_or_default();
    [shown.to_owned(), switch.to_owned()]
}

#[test]
fn a_moved_node_stays_where_it_was_put() {
    let mut cluster = Cluster::start(&Setup { nodes: 3, more: TREE, ..Setup::default() });
    let (here, there) =
        (["Topology=default:top:s1", "SwitchName=s1"], ["Topology=default:top:s2", "SwitchName=s2"]);
    assert_eq!(place(&cluster), here);
    let mut gate = cluster.gate("go");
    let pair = ["sbatch", "-N", "2", "--exclusive", "--gather=must:leaf", "--wrap", "read x <go"];
    let running = cluster.sbatch(&pair[1..]);
    let mut client = cluster.client();
    client.wait_for(running, "RUNNING");
    let waiting = cluster.sbatch(&pair[1..]);
    let refused = cluster.fails(&["scontrol", "update", "NodeName=n2", "Topology=default:s3"]);
    assert!(refused.contains("has no domain s3: did you mean s1?"), "{refused}");
    cluster.ok(&["scontrol", "update", "NodeName=n2", "Topology=default:s2"]);
    assert_eq!(place(&cluster), there);
    assert_eq!(client.job(running).nodes, "n[1-2]", "a job that runs keeps its nodes");
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(place(&cluster), there);
    gate.open();
    let moved = client.wait_for(waiting, "RUNNING");
    assert_eq!((moved.nodes.as_str(), moved.restarts), ("n[3,2]", 0), "the job that waited sees the move");
    // The file first has the same topology, then another one.
    let file = std::fs::read_to_string(cluster.path("spur.toml")).unwrap();
    let other = file.replace("max_time = \"1:00:00\"", "max_time = \"2:00:00\"");
    std::fs::write(cluster.path("spur.toml"), &other).unwrap();
    cluster.ok(&["scontrol", "reconfigure"]);
    assert_eq!(place(&cluster), there);
    let named = other.replace("\"top\"", "\"root\"");
    std::fs::write(cluster.path("spur.toml"), named).unwrap();
    let said = cluster.run(&["scontrol", "reconfigure"]);
    assert!(said.err.contains("nodes moved by scontrol are where the file has them: n2"), "{said:?}");
    assert_eq!(place(&cluster)[1], here[1]);
    gate.open();
    client.wait_for(waiting, "COMPLETED");
}

/// The result of a discovery tool is compared with the topology in force, and replaces it.
#[test]
fn a_topology_that_is_found_is_applied() {
    let cluster = Cluster::start(&Setup { nodes: 3, more: TREE, ..Setup::default() });
    let (file, conf) = (cluster.path("network.conf"), cluster.path("spur.toml"));
    let network = "SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n[2-3]\n";
    std::fs::write(&file, network).unwrap();
    let (file, conf) = (file.display().to_string(), conf.display().to_string());
    let discover = |more: &[&str]| {
        let words = ["spur", "discover", "topograph", &file, "-f", &conf];
        cluster.run(&[&words[..], more].concat())
    };
    let limits = "[topology.limits] # ours\nmax_nodes_per_leaf = 2\n";
    let before =
        std::fs::read_to_string(&conf).unwrap().replace("[topology]\n", &format!("{limits}\n[topology]\n"));
    std::fs::write(&conf, &before).unwrap();
    let said = discover(&["--diff"]);
    assert_eq!(said.out, "topology default: n2: from s1 to s2\n", "{said:?}");
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), before, "comparing changes nothing");

    // A file that the controller does not read stays unchanged.
    let other = cluster.path("other.toml").display().to_string();
    std::fs::write(&other, &before).unwrap();
    let said = cluster.fails(&["spur", "discover", "topograph", &file, "-f", &other, "--apply"]);
    assert!(said.contains("the controller does not read"), "{said}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), before);
    assert_eq!(place(&cluster)[1], "SwitchName=s1");

    let said = discover(&["--apply"]);
    assert!(said.err.contains("has the topology, and the controller uses it"), "{said:?}");
    assert_eq!(place(&cluster), ["Topology=default:top:s2", "SwitchName=s2"]);
    let after = std::fs::read_to_string(&conf).unwrap();
    assert!(after.contains(limits), "{after}");
    let said = discover(&["--diff"]);
    assert!(said.out.is_empty() && said.err.contains("is the one that the controller uses"), "{said:?}");

    // A node that an operator moves stays there, because the file contains nothing new.
    cluster.ok(&["scontrol", "update", "NodeName=n2", "Topology=default:s1"]);
    let said = cluster.fails(&["spur", "discover", "topograph", &file, "-f", &conf, "--apply"]);
    assert!(said.contains("says this already: n2: from s1 to s2"), "{said}");
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), after);
}

/// Makes tools that print what a file of the node says: its clique and its switch. The name of the node is on
/// the command line of the daemon that runs the tool.
fn make_tools(cluster: &Cluster) {
    let node = r"node=$(tr '\0' ' ' </proc/$PPID/cmdline | sed 's/.* -N \([^ ]*\) .*/\1/')";
    let directory = cluster.path("work").display().to_string();
    let lldp = r#"{"lldp":[{"interface":[{"name":"eth0","chassis":[{"name":[{"value":"%s"}]}]}]}]}"#;
    for (tool, print) in [
        ("nvidia-smi", format!("cat {directory}/$node.clique")),
        ("lldpcli", format!("printf '{lldp}' \"$(cat {directory}/$node.switch)\"")),
    ] {
        let path = cluster.path("bin").join(tool);
        std::fs::write(&path, format!("#!/bin/sh\n{node}\n{print}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// Connects a node to a switch.
fn connect(cluster: &Cluster, node: &str, switch: &str) {
    std::fs::write(cluster.work(&format!("{node}.switch")), switch).unwrap();
}

/// The place of a node and the one that it reports, if that differs.
fn places(cluster: &Cluster, node: &str) -> Vec<String> {
    let shown = cluster.ok(&["scontrol", "-o", "show", "node", node]);
    let places = shown.split_whitespace().filter(|word| word.contains("Topology="));
    places.map(str::to_owned).collect()
}

#[test]
fn nodes_report_their_places() {
    let agent = "report = [\"nvlink\", \"lldp\", \"ib\"]\n";
    let mut cluster = Cluster::prepare(&Setup { nodes: 5, agent, more: TREE, ..Setup::default() });
    make_tools(&cluster);
    for (node, switch) in [("n1", "s1"), ("n2", "s1"), ("n3", "s2"), ("n4", "s2"), ("n5", "s9")] {
        connect(&cluster, node, switch);
        std::fs::write(cluster.work(&format!("{node}.clique")), "[N/A], [N/A]\n").unwrap();
    }
    cluster.start_controller();
    for node in ["n1", "n2", "n3", "n4", "n5"] {
        cluster.start_node(node);
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    assert_eq!(places(&cluster, "n4"), ["Topology=default:top:s2"], "{}", cluster.logs());
    assert_eq!(places(&cluster, "n5"), ["ReportedTopology=default:s9(new)"], "nobody else names s9");
    assert_eq!(places(&cluster, "n1"), ["Topology=default:top:s1"]);

    // The cable of n2 goes to another switch: both places are shown, and the node stays.
    connect(&cluster, "n2", "s2");
    cluster.signal("n2", Signal::HUP);
    let both = ["Topology=default:top:s1", "ReportedTopology=default:top:s2"];
    cluster.wait_until(|cluster| places(cluster, "n2") == both);
    let listed = cluster.ok(&["sinfo", "-h", "-N", "-O", "NodeList:4,Topology:20,ReportedTopology:20"]);
    assert!(listed.contains("n2  default:top:s1      default:top:s2"), "{listed}");
    let json = cluster.ok(&["scontrol", "show", "node", "n2", "--json"]);
    assert!(json.contains("\"reported_topology\": \"default:top:s2\""), "{json}");

    // The reports of all nodes make a topology.
    let discover = |more: &str| cluster.run(&["spur", "discover", "reports", more]);
    let said = discover("--diff");
    assert!(
        said.out.contains("n2: from s1 to s2") && said.out.contains("n5: was in no leaf, is in s9"),
        "{said:?}"
    );
    let clique = "aaaaaaaa-1111-2222-3333-444444444444, 7\n".repeat(2);
    std::fs::write(cluster.work("n1.clique"), clique).unwrap();
    cluster.signal("n1", Signal::HUP);
    cluster.wait_until(|cluster| cluster.ok(&["spur", "discover", "reports"]).contains("nvl-aaaaaaaa-7"));

    // What was decided survives; the reports do, too.
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(places(&cluster, "n4"), ["Topology=default:top:s2"]);
    assert_eq!(places(&cluster, "n2"), both);

    // An operator accepts the reports. An ordinary user may not.
    cluster.ok(&["scontrol", "update", "NodeName=n2,n5", "Topology=reported"]);
    assert_eq!(places(&cluster, "n2"), ["Topology=default:top:s2"]);
    assert_eq!(places(&cluster, "n5"), ["Topology=default:top:s9"]);
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(places(&cluster, "n5"), ["Topology=default:top:s9"]);
    let job = cluster.sbatch(&["-w", "n5", "--gather=must:leaf", "--wrap", "true"]);
    cluster.client().wait_for(job, "COMPLETED");
}
