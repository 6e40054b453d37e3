//! Tests of `spur discover` as a user runs it, on generated fabrics and on the output of tools.

mod fabric;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fabric::{Dice, Fabric};
use serde::Deserialize;
use spur_cli::commands::discover as command;
use spur_cli::error;
use spur_cli::session::Session;
use spur_core::model::config::Config;
use spur_core::model::topology::{Plugin, TopologyConfig};
use spur_core::text::hostlist::HostList;

/// Creates an empty directory for a test.
fn fresh(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("discover").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).expect("it can be written");
    path.display().to_string()
}

/// Writes a `spur.toml` with these nodes, or without a node table if there are none.
fn config(directory: &Path, nodes: &str) -> String {
    let table = if nodes.is_empty() { String::new() } else { format!("[[nodes]]\nnames = \"{nodes}\"\n") };
    write(&directory.join("spur.toml"), &format!("cluster_name = \"x\"\n{table}"))
}

/// Runs `spur discover`; returns its exit code, output and messages.
fn run(words: &[&str]) -> (u8, String, String) {
    let mut session = Session::in_memory("spur discover", BTreeMap::new(), None);
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let code = match runtime.block_on(command::run(&mut session, words)) {
        Ok(code) => code,
        Err(error) => error::report(&mut session, &error),
    };
    (code, session.out.take_text(), session.take_complaints())
}

fn found(words: &[&str]) -> String {
    let (code, text, said) = run(words);
    assert_eq!(code, 0, "{words:?}: {said}");
    text
}

/// Returns the topologies of a text, which must load with the nodes that it names.
fn topologies(text: &str) -> Vec<TopologyConfig> {
    #[derive(Deserialize)]
    struct File {
        topology: Option<TopologyConfig>,
        #[serde(default)]
        topologies: Vec<TopologyConfig>,
    }
    let File { topology, topologies } = toml::from_str(text).expect("it is TOML");
    let all: Vec<TopologyConfig> = topology.into_iter().chain(topologies).collect();
    let nodes: BTreeSet<String> = all.iter().flat_map(leaves).flat_map(|(_, nodes)| nodes).collect();
    let whole = format!("[[nodes]]\nnames = \"{}\"\n{text}", HostList::from_names(nodes));
    if let Err(errors) = Config::parse(&whole, "found") {
        panic!("{errors}\n{whole}");
    }
    all
}

fn names(list: &str) -> Vec<String> {
    list.parse::<HostList>().expect("a hostlist").iter().collect()
}

/// Returns the leaves or blocks of a topology with their nodes.
fn leaves(topology: &TopologyConfig) -> Vec<(String, Vec<String>)> {
    let switches = topology
        .switches
        .iter()
        .filter_map(|switch| Some((switch.name.clone(), names(switch.nodes.as_ref()?))));
    let blocks = topology.blocks.iter().map(|block| (block.name.clone(), names(&block.nodes)));
    switches.chain(blocks).collect()
}

/// Returns the tree as `a: n1 n2; s > a b`.
fn shown(text: &str) -> String {
    let topologies = topologies(text);
    let [topology] = &topologies[..] else { panic!("one topology is expected: {text}") };
    let switch = |switch: &spur_core::model::topology::SwitchConfig| match (&switch.nodes, &switch.switches) {
        (Some(nodes), _) => format!("{}: {}", switch.name, names(nodes).join(" ")),
        (None, children) => {
            format!("{} > {}", switch.name, names(children.as_deref().unwrap_or_default()).join(" "))
        }
    };
    topology.switches.iter().map(switch).collect::<Vec<_>>().join("; ")
}

fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# ")).collect()
}

fn has_comment(text: &str, part: &str) -> bool {
    comments(text).iter().any(|comment| comment.contains(part))
}

#[test]
fn rails_become_units_below_one_parent() {
    let directory = fresh("rails");
    let mut fabric = Fabric::rails(&[3, 2], 2, 2);
    fabric.describe("u1h1 mlx5_2", "MT4129 ConnectX7   Mellanox Technologies");
    let engine = fabric.adapter("Mellanox Technologies Aggregation Node");
    let leaf = fabric.links[0][0].0;
    fabric.link(leaf, engine);
    let file = write(&directory.join("fabric"), &fabric.ibnetdiscover());
    let text = found(&["ibnet", &file, "-f", &config(&directory, "u1h[1-3],u2h[1-2],u3h1")]);
    assert_eq!(shown(&text), "leaf1-1: u1h1 u1h2 u1h3; leaf2-1: u2h1 u2h2; spine1 > leaf1-1 leaf2-1");
    for part in [
        "The leaves leaf1-[1-2]",
        "The switches spine[1-2]",
        "has no host name (MT4129 ConnectX7 Mellanox Technologies): leaf1-2 port 1",
        "engines inside switches are no hosts, 1 in all: leaf1-1",
        "nodes that were not found, and are in no domain: u3h1",
    ] {
        assert!(has_comment(&text, part), "{part}\n{text}");
    }
}

#[test]
fn without_a_node_table_names_decide() {
    let directory = fresh("names");
    let mut fabric = Fabric::rails(&[4, 3], 4, 2);
    for (device, name) in [(1, "localhost"), (2, "localhost")] {
        fabric.describe(&format!("u1h1 mlx5_{device}"), &format!("{name} mlx5_{device}"));
    }
    // A manager on two of four leaves, and two hosts with the same name.
    for rail in 1..=2 {
        let manager = fabric.adapter(&format!("ufm mlx5_{rail}"));
        let leaf = fabric.links.iter().map(|[from, _]| from.0).nth((rail - 1) * 6).expect("a leaf");
        fabric.link(leaf, manager);
    }
    fabric.describe("u2h1 mlx5_1", "twin mlx5_1");
    fabric.describe("u2h2 mlx5_1", "twin mlx5_1");
    let file = write(&directory.join("fabric"), &fabric.ibnetdiscover());
    let empty = config(&directory, "");
    let text = found(&["ibnet", &file, "-f", &empty]);
    let of = |text: &str| {
        leaves(&topologies(text)[0]).into_iter().flat_map(|(_, nodes)| nodes).collect::<Vec<_>>()
    };
    assert!(!of(&text).iter().any(|node| node == "localhost" || node == "twin"), "{text}");
    for part in [
        "localhost is the name of any host",
        "twin is the name of several hosts",
        "ufm is doubtful, on 2 of the 4 leaves of leaf1-1",
        "without a node table every name of a host counts",
    ] {
        assert!(has_comment(&text, part), "{part}\n{text}");
    }
    assert!(of(&text).contains(&"ufm".to_owned()));
    let text = found(&["ibnet", &file, "-f", &empty, "--exclude", "ufm,u1h[2-3]"]);
    assert!(has_comment(&text, "ufm is left out by --exclude"), "{text}");
    assert!(!of(&text).iter().any(|node| ["ufm", "u1h2", "u1h3"].contains(&&**node)), "{text}");
    let known = config(&directory, "u1h[1-4],u2h[1-3],localhost,twin");
    let text = found(&["ibnet", &file, "-f", &known]);
    assert!(
        of(&text).contains(&"localhost".to_owned()) && has_comment(&text, "ufm is not in [[nodes]]"),
        "{text}"
    );
}

/// Returns a fabric of eight units of four rails, the size of a real one.
fn large() -> Fabric {
    Fabric::rails(&[11, 11, 15, 16, 16, 17, 18, 18], 4, 9)
}

#[test]
fn swapped_cables_join_no_units_and_are_named() {
    let directory = fresh("swapped");
    let empty = config(&directory, "");
    let path = directory.join("fabric");
    let units = |text: &str| leaves(&topologies(text)[0]);
    let right = units(&found(&["ibnet", &write(&path, &large().ibnetdiscover()), "-f", &empty]));
    let sizes: Vec<usize> = right.iter().map(|(_, nodes)| nodes.len()).collect();
    assert_eq!(sizes, [11, 11, 15, 16, 16, 17, 18, 18]);
    for swaps in 1..=7 {
        for seed in 0..60 {
            let mut fabric = large();
            let swapped = fabric.swap(swaps, &mut Dice(1000 * seed + swaps as u64));
            let text = found(&["ibnet", &write(&path, &fabric.ibnetdiscover()), "-f", &empty]);
            assert_eq!(units(&text), right, "{swaps} swaps, seed {seed}");
            for host in swapped {
                let said = format!("{host} is in leaf");
                let is_named =
                    |line: &&str| line.starts_with(&said) && line.contains("likely wrong cables: leaf");
                assert!(comments(&text).iter().any(is_named), "{swaps} swaps, seed {seed}: {host}\n{text}");
            }
        }
    }
}

#[test]
fn other_shapes_become_trees() {
    let directory = fresh("shapes");
    let empty = config(&directory, "");
    let mut cases: Vec<(&str, Fabric, &str, &str)> = vec![(
        "pods",
        Fabric::pods(2, 2, 1),
        "pod1-leaf1: p1l1h1; pod1-leaf2: p1l2h1; pod2-leaf1: p2l1h1; pod2-leaf2: p2l2h1; \
         pod1-spine1 > pod1-leaf1 pod1-leaf2; pod2-spine1 > pod2-leaf1 pod2-leaf2; core1 > pod1-spine1 pod2-spine1",
        "",
    )];
    // Leaves that are linked with each other, without a switch above.
    let mut mesh = Fabric::default();
    let around: Vec<usize> = (1..=3).map(|leaf| mesh.switch(&format!("s{leaf}"))).collect();
    for (at, &leaf) in around.iter().enumerate() {
        around[at + 1..].iter().for_each(|&other| mesh.link(leaf, other));
        let adapter = mesh.adapter(&format!("n{}", at + 1));
        mesh.link(leaf, adapter);
    }
    cases.push((
        "mesh",
        mesh,
        "s1: n1; s2: n2; s3: n3; fabric > s1 s2 s3",
        "no switch is above all of s[1-3]",
    ));
    // A leaf directly below the core, and a host on a spine.
    let mut uneven = Fabric::pods(2, 2, 2);
    let (leaf, host) = (uneven.switch("far"), uneven.adapter("far1 HCA-1"));
    uneven.link(leaf, host);
    uneven.link(0, leaf);
    cases.push((
        "uneven",
        uneven.clone(),
        "far: far1; pod1-leaf1: p1l1h1 p1l1h2; pod1-leaf2: p1l2h1 p1l2h2; pod2-leaf1: p2l1h1 p2l1h2; \
         pod2-leaf2: p2l2h1 p2l2h2; pod1-spine1 > pod1-leaf1 pod1-leaf2; pod2-spine1 > pod2-leaf1 pod2-leaf2; \
         core1 > far pod1-spine1 pod2-spine1",
        "",
    ));
    let mut managed = Fabric::pods(1, 3, 2);
    let manager = managed.adapter("ufm HCA-1");
    managed.link(2, manager);
    cases.push((
        "a host on a spine",
        managed,
        "pod1-leaf1: p1l1h1 p1l1h2; pod1-leaf2: p1l2h1 p1l2h2; pod1-leaf3: p1l3h1 p1l3h2; pod1-spine1-leaf: ufm; \
         pod1-spine1 > pod1-leaf1 pod1-leaf2 pod1-leaf3 pod1-spine1-leaf",
        "pod1-spine1 has hosts and leaves; its hosts, ufm, are below pod1-spine1-leaf",
    ));
    for (name, fabric, tree, said) in cases {
        let text =
            found(&["ibnet", &write(&directory.join("fabric"), &fabric.ibnetdiscover()), "-f", &empty]);
        assert_eq!(shown(&text), tree, "{name}\n{text}");
        assert!(has_comment(&text, said), "{name}: {said}\n{text}");
    }
}

const CLUSTERS: [&str; 2] = ["aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"];

#[test]
fn cliques_are_the_lowest_layer_of_one_tree() {
    let directory = fresh("nvlink");
    let file = write(&directory.join("fabric"), &Fabric::rails(&[4, 3], 2, 2).ibnetdiscover());
    let known = config(&directory, "u1h[1-4],u2h[1-3]");
    let [a, b] = CLUSTERS;
    let inside = format!(
        "u1h1: {a}, 1\nu1h2: {a}, 1\nu1h3: {b}, 1\nu1h4: {b}, 1\nu2h1: {a}, 2\nu2h2: {a}, 2\nu2h3: [N/A], [N/A]\n"
    );
    let cliques = write(&directory.join("cliques"), &inside);
    let text = found(&["ibnet", &file, "nvlink", &cliques, "-f", &known]);
    let tree = "nvl-aaaaaaaa-1: u1h1 u1h2; nvl-bbbbbbbb-1: u1h3 u1h4; nvl-aaaaaaaa-2: u2h1 u2h2; nvl-u2h3: u2h3; \
                leaf1-1 > nvl-aaaaaaaa-1 nvl-bbbbbbbb-1; leaf2-1 > nvl-aaaaaaaa-2 nvl-u2h3; spine1 > leaf1-1 leaf2-1";
    assert_eq!(shown(&text), tree, "{text}");
    assert_eq!(topologies(&text)[0].layers, ["nvl", "leaf", "spine"]);
    assert!(has_comment(&text, "in no NVLink clique: u2h3"), "{text}");
    // Cliques that cross units become a separate topology.
    let cliques = write(&directory.join("cliques"), &inside.replace(", 2", ", 1"));
    let text = found(&["ibnet", &file, "nvlink", &cliques, "-f", &known]);
    let all = topologies(&text);
    assert_eq!(
        all.iter().map(|topology| (&*topology.name, topology.plugin)).collect::<Vec<_>>(),
        [("default", Plugin::Tree), ("nvl", Plugin::Block)]
    );
    assert!(
        has_comment(&text, "NVLink clique nvl-aaaaaaaa-1 crosses units: leaf[1-2]-1")
            || has_comment(&text, "crosses units: leaf1-1,leaf2-1"),
        "{text}"
    );
    // Cliques without a tree become blocks.
    let text = found(&["nvlink", &cliques, "-f", &known]);
    let all = topologies(&text);
    assert_eq!((&*all[0].name, all[0].plugin, all[0].blocks.len()), ("default", Plugin::Block, 2), "{text}");
}

#[test]
fn output_of_commands_is_read() {
    let directory = fresh("run");
    let file = write(&directory.join("fabric"), &Fabric::pods(1, 2, 1).ibnetdiscover());
    let empty = config(&directory, "");
    let cat = format!("--run=cat {file}");
    assert_eq!(found(&["ibnet", &cat, "-f", &empty]), found(&["ibnet", &file, "-f", &empty]));
    let text = found(&["nvlink", &format!("--run=echo {}, 7", CLUSTERS[0]), "-f", &empty]);
    assert_eq!(topologies(&text)[0].blocks.len(), 1, "{text}");
    let (code, _, said) = run(&["ibnet", "--run=echo no fabric >&2; exit 3", "-f", &empty]);
    assert!(code == 1 && said.contains("no fabric"), "{said}");
}

#[test]
fn what_topograph_writes_is_read() {
    let directory = fresh("topograph");
    let known = config(&directory, "n[1-4]");
    let file = |name: &str, text: &str| write(&directory.join(name), text);
    let conf = file(
        "tree",
        "# switch.2.1=spine\nSwitchName=switch.2.1 Switches=switch.1.[1-2],no-topology\n# switch.1.1=leaf-a\n\
         SwitchName=switch.1.1 Nodes=n[1-2]\n# switch.1.2=leaf-b\nSwitchName=switch.1.2 Nodes=n3,x9\nSwitchName=no-topology Nodes=n4\n",
    );
    let text = found(&["topograph", &conf, "-f", &known]);
    assert_eq!(shown(&text), "spine > leaf-a leaf-b; leaf-a: n1 n2; leaf-b: n3");
    for part in ["x9 is not in [[nodes]]", "n4 has no place that topograph knows", "in no domain: n4"] {
        assert!(has_comment(&text, part), "{part}\n{text}");
    }
    let blocks = file(
        "blocks",
        "# block001=nvl-1\nBlockName=block001 Nodes=n[1-2]\nBlockName=block002 Nodes=n[3-4]\nBlockSizes=2,4\n",
    );
    let text = found(&["topograph", &blocks, "-f", &known]);
    assert_eq!(leaves(&topologies(&text)[0])[0].0, "nvl-1", "{text}");
    assert_eq!(topologies(&text)[0].block_sizes, [2, 4]);
    let yaml = file(
        "topology.yaml",
        "- topology: main\n  cluster_default: true\n  tree:\n    switches:\n    - switch: s\n      children: a\n    - switch: a\n      nodes: n[1-4]\n\
         - topology: cube\n  torus3d:\n    toruses: []\n- topology: round\n  ring:\n    rings: []\n",
    );
    let text = found(&["topograph", &yaml, "-f", &known]);
    let all = topologies(&text);
    let kinds: Vec<_> = all.iter().map(|topology| (&*topology.name, topology.plugin)).collect();
    assert_eq!(kinds, [("default", Plugin::Tree), ("cube", Plugin::None), ("round", Plugin::None)]);
    assert!(has_comment(&text, "torus3d: ") && has_comment(&text, "ring: "), "{text}");
    let graph = r#"{"instances": [
        {"id": "n1", "network_layers": ["la", "sp"], "labels": {"accelerator.topograph.run/domain": "nvl-1"}},
        {"id": "n2", "network_layers": ["la", "sp"], "attributes": {"nvlink": "nvl-1"}},
        {"id": "n3", "network_layers": ["lb", "sp"], "attributes": {"nvlink": "nvl-2"}},
        {"id": "n4"}]}"#;
    let text = found(&["topograph", &file("graph.json", graph), "-f", &known]);
    assert_eq!(shown(&text), "nvl-1: n1 n2; nvl-2: n3; la > nvl-1; lb > nvl-2; sp > la lb", "{text}");
    assert!(has_comment(&text, "n4 has no switch above it"), "{text}");
}

/// Starts a service that answers requests one after another; each must begin with the expected line.
fn serve(answers: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (expected, answer) in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = BufReader::new(stream.try_clone().expect("a stream"));
            let (mut first, mut length) = (String::new(), 0);
            request.read_line(&mut first).expect("a request");
            assert_eq!(first.trim_end(), *expected);
            loop {
                let mut line = String::new();
                request.read_line(&mut line).expect("a header");
                if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = said.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            request.read_exact(&mut vec![0; length]).expect("a body");
            let (status, body) = answer.split_once('|').expect("a status");
            let length = body.len();
            let text =
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).expect("the client reads");
        }
    });
    format!("http://{address}")
}

#[test]
fn topographs_service_is_asked() {
    let known = config(&fresh("service"), "n[1-4]");
    let url = serve(&[
        ("POST /v1/generate HTTP/1.1", "202 Accepted|abc"),
        ("GET /v1/topology?uid=abc HTTP/1.1", "202 Accepted|"),
        ("GET /v1/topology?uid=abc HTTP/1.1", "200 OK|SwitchName=a Nodes=n[1-4]\n"),
    ]);
    assert_eq!(shown(&found(&["topograph", &url, "-f", &known])), "a: n1 n2 n3 n4");
    let url = serve(&[("GET /v1/topology?uid=x HTTP/1.1", "404 Not Found|no such request")]);
    let (code, _, said) = run(&["topograph", &format!("{url}/v1/topology?uid=x"), "-f", &known]);
    assert!(code == 1 && said.contains("404") && said.contains("no such request"), "{said}");
    let url = serve(&[("GET /v1/topology?uid=x HTTP/1.1", "200 OK|OK")]);
    let (code, _, said) = run(&["topograph", &format!("{url}/v1/topology?uid=x"), "-f", &known]);
    assert!(code == 1 && said.contains("topologyConfigPath"), "{said}");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let directory = fresh("refused");
    let empty = config(&directory, "");
    let file = write(&directory.join("fabric"), &Fabric::pods(1, 1, 1).ibnetdiscover());
    let nothing = write(&directory.join("nothing"), "hello\n");
    let other = config(&fresh("refused-nodes"), "zz[1-2]");
    for (words, expected) in [
        (&["-f", &*empty][..], "say what to read"),
        (&["lldp", &*file, "-f", &*empty], "`lldp` is none of ibnet, topograph, nvlink and reports"),
        (&["ibnet", "-f", &*empty], "name a file behind ibnet and nvlink, or say --run"),
        (&["ibnet", &*file, "--run", "-f", &*empty], "every one has a file"),
        (&["ibnet", &*file, "ibnet", "-f", &*empty], "ibnet is named twice"),
        (&["ibnet", &*file, "topograph", &*file, "-f", &*empty], "name one of them"),
        (&["topograph", "--run", "-f", &*empty], "topograph needs a file or the address"),
        (&["ibnet", "nvlink", "--run=x", "-f", &*empty], "so that the command is one tool's"),
        (&["ibnet", "/nowhere", "-f", &*empty], "cannot read /nowhere"),
        (&["ibnet", &*nothing, "-f", &*empty], "no line of it is one of a switch"),
        (&["nvlink", &*nothing, "-f", &*empty], "line 1: `hello` is not HOST: CLUSTER-UUID, CLIQUE-ID"),
        (&["topograph", "https://x/v1/topology", "-f", &*empty], "only http:// is read"),
        (
            &["ibnet", &*file, "-f", &*other],
            "no node of [[nodes]] is in the network that was read; [[nodes]] begins with zz1",
        ),
        (&["ibnet", &*file, "--apply", "-f", &*empty], "--apply changes the controller's spur.toml"),
        (&["ibnet", &*file, "-f", "/nowhere.toml"], "cannot read /nowhere.toml"),
        (&["ibnet", &*file, "-f", &*empty, "-x", "n[1-"], "n[1-"),
    ] {
        let (code, out, said) = run(words);
        assert_eq!((code, out.as_str()), (1, ""), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

/// A simulator of a fabric, which ends when the value is dropped.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const WRAPPER: &str = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so";

/// Runs `ibnetdiscover` against the simulator at a port.
fn discover(fabric: &Fabric, port: u16) -> std::io::Result<Output> {
    let mut command = Command::new("ibnetdiscover");
    command.envs([("IBSIM_SERVER_NAME", "127.0.0.1"), ("LD_PRELOAD", WRAPPER)]);
    command.env("SIM_HOST", fabric.first_adapter()).env("IBSIM_SERVER_PORT", port.to_string()).output()
}

/// Returns the output of the real `ibnetdiscover` for a fabric simulated by `ibsim`; `None` if these are not
/// installed.
fn simulated(directory: &Path, fabric: &Fabric) -> Option<String> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).ok()?.port();
    let net = write(&directory.join("net"), &fabric.ibsim());
    let mut ibsim = Command::new("ibsim");
    ibsim.args(["-s", "-n", "-r", "-l", &port.to_string(), &net]);
    let started = ibsim.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok();
    let mut simulator = Simulator(started.filter(|_| Path::new(WRAPPER).exists())?);
    let mut lines = BufReader::new(simulator.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("MaxMcastCap")), "ibsim does not read {net}");
    // The simulator reports that it is ready before it has bound its sockets.
    let mut output = discover(fabric, port).ok()?;
    for _ in 0..1000 {
        if output.status.success() {
            break;
        }
        assert!(simulator.0.try_wait().expect("it is ours").is_none(), "ibsim has ended");
        output = discover(fabric, port).ok()?;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

/// The output of the real tool gives the same tree as generated output.
#[test]
fn the_real_tool_gives_the_same() {
    let directory = fresh("ibsim");
    let empty = config(&directory, "");
    let mut nameless = Fabric::rails(&[3, 3], 2, 2);
    nameless.describe("u1h2 mlx5_1", "MT4129 ConnectX7 Mellanox Technologies 1");
    nameless.describe("u2h3 mlx5_2", "MT4129 ConnectX7 Mellanox Technologies 2");
    let mut swapped = Fabric::rails(&[6, 5, 4], 3, 2);
    swapped.swap(2, &mut Dice(7));
    for (name, fabric) in [
        ("pods", Fabric::pods(3, 3, 4)),
        ("rails", Fabric::rails(&[4, 3, 5], 4, 3)),
        ("nameless", nameless),
        ("swapped", swapped),
    ] {
        let Some(printed) = simulated(&directory, &fabric) else {
            println!("SKIPPED: ibsim and ibnetdiscover are not installed");
            return;
        };
        let real = found(&["ibnet", &write(&directory.join("real"), &printed), "-f", &empty]);
        let generated =
            found(&["ibnet", &write(&directory.join("made"), &fabric.ibnetdiscover()), "-f", &empty]);
        assert_eq!(topologies(&real), topologies(&generated), "{name}:\n{real}\n{generated}");
        // GUIDs and the order of links are those of the simulator.
        let kinds = |text: &str| {
            let mut said: Vec<String> = comments(text)
                .iter()
                .map(|line| line.split(':').next().unwrap_or_default().to_owned())
                .collect();
            said.iter_mut()
                .filter(|line| line.starts_with("adapter 0x"))
                .for_each(|line| line.replace_range(8..26, ""));
            said.sort();
            said
        };
        assert_eq!(kinds(&real), kinds(&generated), "{name}");
    }
}

/// A fabric of ten thousand hosts with eight rails.
#[test]
fn ten_thousand_hosts_are_read() {
    let directory = fresh("ten-thousand");
    let file = write(&directory.join("fabric"), &Fabric::rails(&[32; 313], 8, 16).ibnetdiscover());
    let text = found(&["ibnet", &file, "-f", &config(&directory, "")]);
    assert_eq!(leaves(&topologies(&text)[0]).len(), 313);
}
