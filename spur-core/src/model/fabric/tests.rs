//! Tests of fabrics: construction, look-up, refusals.

use super::{Fabric, FunctionNodes, Layer, LookupError, Pos};
use crate::id::NodeId;
use crate::model::topology::TopologyConfig;
use crate::text::hostlist::{Function, HostExpr};

fn build(text: &str, nodes: &[&str]) -> Result<Fabric, Vec<String>> {
    let config: TopologyConfig = toml::from_str(text).unwrap();
    let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(nodes.iter().copied()).collect();
    Fabric::build(&config, &table, &[]).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("n{index}")).collect()
}

fn fabric(text: &str, count: usize) -> Fabric {
    let names = names(count);
    build(text, &names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
}

/// A leaf directly under the core, next to a spine of two leaves; the children are named out of order.
const UNEQUAL: &str = r#"
    plugin = "tree"
    switches = [
        { name = "core", switches = "b,spine" },
        { name = "spine", switches = "a[1-2]" },
        { name = "a1", nodes = "n[4-5]" },
        { name = "a2", nodes = "n[2-3]" },
        { name = "b", nodes = "n1,n0" },
    ]
"#;

#[test]
fn positions_follow_the_file_and_the_hostlists() {
    let fabric = fabric(UNEQUAL, 7);
    let order: Vec<&str> = (0..7).map(|pos| fabric.node_name(Pos(pos))).collect();
    // The spine comes before b in the file; n6 is in no domain and comes last.
    assert_eq!(order, ["n4", "n5", "n2", "n3", "n1", "n0", "n6"]);
    assert_eq!(fabric.wired(), 6);
    assert_eq!(fabric.pos(NodeId(0)), Some(Pos(5)));
    assert_eq!(fabric.layer_names(), ["node", "leaf", "spine", "core"]);
    for (id, domain) in fabric.domains() {
        for &child in domain.children() {
            let inner = fabric.domain(child).range();
            assert!(domain.range().start <= inner.start && inner.end <= domain.range().end);
            assert_eq!(fabric.domain(child).parent(), Some(id));
        }
    }
}

#[test]
fn rows_of_children_are_the_children() {
    // One spine between those of the core belongs to a pod, which also has a leaf of its own.
    let uneven = r#"
        plugin = "tree"
        switches = [
            { name = "core", switches = "s1,pod,s3" },
            { name = "s1", switches = "a1" },
            { name = "pod", switches = "s2,b" },
            { name = "s2", switches = "a2" },
            { name = "s3", switches = "a3" },
            { name = "b", nodes = "n3" },
            { name = "a1", nodes = "n0" },
            { name = "a2", nodes = "n[1-2]" },
            { name = "a3", nodes = "n4" },
        ]
    "#;
    for (text, nodes, rows) in [(UNEQUAL, 7, 1), (uneven, 5, 3)] {
        let fabric = fabric(text, nodes);
        let mut found = 0;
        for (_, domain, row) in fabric.inner() {
            let Some(row) = row else { continue };
            found += 1;
            let children: Vec<usize> = domain.children().iter().map(|child| child.index()).collect();
            assert_eq!(children, row.collect::<Vec<_>>(), "{}", domain.name());
        }
        assert_eq!(found, rows, "{text}");
    }
}

#[test]
fn a_domain_counts_for_the_layers_its_branch_lacks() {
    let fabric = fabric(UNEQUAL, 7);
    let b = fabric.find("b").unwrap();
    assert_eq!(fabric.domain_at(Pos(4), Layer(2)), Some(b));
    assert_eq!(fabric.domains_covering(Layer(2)), [fabric.find("spine").unwrap(), b]);
    assert_eq!(fabric.spans(&[Pos(0), Pos(2), Pos(4)]), [3, 3, 2, 1]);
    assert_eq!(fabric.deepest_common(&[Pos(0), Pos(3)]), Some(fabric.find("spine").unwrap()));
    assert_eq!(fabric.deepest_common(&[Pos(0), Pos(6)]), None);
    let address = fabric.address(Pos(4));
    assert_eq!(address, ("core..b.n1".to_owned(), "switch.switch.switch.node".to_owned()));
    assert_eq!(fabric.path(Pos(0), "/"), "core/spine/a1");
}

#[test]
fn blocks_and_their_aggregates() {
    let text = r#"
        plugin = "block"
        block_sizes = [2, 4]
        blocks = [{ name = "b0", nodes = "n[0-1]" }, { name = "b1" }, { name = "b2", nodes = "n[2-3]" }]
    "#;
    let fabric = fabric(text, 5);
    assert_eq!(fabric.layer_names(), ["node", "block", "block2"]);
    assert!(fabric.has_hidden_top(), "two aggregates stand side by side");
    assert_eq!(fabric.roots().len(), 1, "a job may span the whole of a block topology");
    let facts: Vec<(String, u32, u32)> =
        fabric.facts().into_iter().map(|facts| (facts.name, facts.index, facts.size)).collect();
    let want = [("b0", 0, 2), ("b1", 1, 2), ("b2", 2, 2), ("b[0-1]", 3, 4)];
    assert_eq!(facts, want.map(|(name, index, size)| (name.to_owned(), index, size)));
    assert_eq!(fabric.address(Pos(2)), ("b2.n2".to_owned(), "block.node".to_owned()));
    assert_eq!(fabric.find("b2").map(|id| fabric.domain(id).layer()), Ok(Layer::LEAF));
    assert!(matches!(fabric.find("default"), Err(LookupError::Unknown { .. })));
}

#[test]
fn names_are_short_where_that_is_unambiguous() {
    let text = r#"
        plugin = "tree"
        switches = [
            { name = "pod-a", switches = "pod-a/r1" },
            { name = "pod-b", switches = "pod-b/r1,r2" },
            { name = "pod-a/r1", nodes = "n0" },
            { name = "pod-b/r1", nodes = "n1" },
            { name = "pod-b/r2", nodes = "n2" },
        ]
    "#;
    let fabric = fabric(text, 3);
    let shown: Vec<&str> = fabric.domains_of(Layer::LEAF).map(|id| fabric.domain(id).name()).collect();
    assert_eq!(shown, ["pod-a/r1", "pod-b/r1", "r2"]);
    assert!(matches!(fabric.find("r1"), Err(LookupError::Ambiguous { paths, .. }) if paths.len() == 2));
    assert_eq!(fabric.find("r2"), fabric.find("pod-b/r2"));
    let features: Vec<&str> = fabric.features(Pos(2)).into_iter().collect();
    assert_eq!(features, ["pod-b", "pod-b/r2", "r2"]);
}

#[test]
fn hostlist_functions() {
    let fabric = fabric(UNEQUAL, 7);
    let nodes = |list: &str| -> Result<String, String> {
        let mut functions = FunctionNodes::new(&fabric);
        let list: HostExpr = list.parse().unwrap();
        let mut add = |function: &Function| functions.add(function).map_err(|error| error.to_string());
        list.expand(&mut add).map(|names| names.to_string()).map_err(|error| error.problem)
    };
    for (list, expected) in [
        ("switch{a[1-2]}", "n[4-5,2-3]"),
        ("switch{a1,a2}", "n[4-5,2-3]"),
        ("switchwith{n0}", "n[1,0]"),
        // Nodes of functions occur once, other nodes as often as they are named.
        ("switch{a1},switch{a1},switchwith{n4},n4", "n[4-5,4]"),
    ] {
        assert_eq!(nodes(list).as_deref(), Ok(expected), "{list}");
    }
    assert_eq!(nodes("switch{spine}"), nodes("switch{a1},switch{a2,a1}"));
    for (list, part) in [
        ("block{b}", "use switch{} or switchwith{}"),
        ("switchwith{n6}", "n6 is no node with a place"),
        ("switch{a3}", "did you mean"),
    ] {
        assert!(nodes(list).unwrap_err().contains(part), "{list}");
    }
}

#[test]
fn moved_nodes_go_behind_the_others() {
    let config: TopologyConfig = toml::from_str(UNEQUAL).unwrap();
    let names = names(7);
    let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
    let moved = [(NodeId(4), Some("b")), (NodeId(2), None)];
    let fabric = Fabric::build(&config, &table, &moved).unwrap();
    let order: Vec<&str> = (0..7).map(|pos| fabric.node_name(Pos(pos))).collect();
    assert_eq!(order, ["n5", "n3", "n1", "n0", "n4", "n2", "n6"]);
    let errors = Fabric::build(&config, &table, &[(NodeId(0), Some("spine"))]).unwrap_err();
    assert!(errors[0].to_string().contains("holds domains, not nodes"), "{}", errors[0]);
}

#[test]
fn blocks_keep_their_size_when_nodes_move() {
    let names = names(6);
    let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
    let order = |text: &str, moved: &[(NodeId, Option<&str>)]| {
        let fabric = Fabric::build(&toml::from_str(text).unwrap(), &table, moved).unwrap();
        let order: Vec<u32> = (0..6).map(|pos| fabric.node(Pos(pos)).0).collect();
        (fabric.base_size(), order)
    };
    let written = "plugin = \"block\"\nblocks = [{ name = \"a\", nodes = \"n[0-2]\" }, { name = \"b\", nodes = \"n[3-5]\" }]";
    assert_eq!(order(written, &[(NodeId(0), Some("b"))]), (3, vec![1, 2, 3, 4, 5, 0]));
    let cut = "plugin = \"block\"\nblock_size = 3";
    assert_eq!(order(cut, &[(NodeId(4), Some("block000"))]), (3, vec![0, 1, 2, 4, 3, 5]));
    // A node that was moved back has its old position.
    for text in [written, cut] {
        let back = [(NodeId(0), Some(if text == cut { "block000" } else { "a" }))];
        assert_eq!(order(text, &back), (3, vec![0, 1, 2, 3, 4, 5]));
    }
}

#[test]
fn mistakes_are_named_with_their_fix() {
    let leaf = r#"{ name = "l", nodes = "n0" }"#;
    let cases = [
        (r#"plugin = "tree""#.to_owned(), "needs at least one [[topology.switches]]"),
        (format!("plugin = \"block\"\nblock_size = 2\nswitches = [{leaf}]"), "switches has no effect"),
        (format!("plugin = \"tree\"\nswitches = [{leaf}, {leaf}]"), "l is defined twice"),
        ("plugin = \"tree\"\nswitches = [{ name = \"s\" }]".to_owned(), "neither nodes nor switches"),
        (
            format!("plugin = \"tree\"\nswitches = [{leaf}, {{ name = \"s\", nodes = \"n1\", switches = \"l\" }}]"),
            "both nodes and switches",
        ),
        (
            "plugin = \"tree\"\nswitches = [{ name = \"a\", switches = \"b\" }, { name = \"b\", switches = \"a\" }]"
                .to_owned(),
            "form a cycle: b > a > b",
        ),
        (format!("plugin = \"tree\"\nswitches = [{leaf}, {{ name = \"s\", switches = \"k\" }}]"), "names k"),
        (
            format!(
                "plugin = \"tree\"\nswitches = [{leaf}, {{ name = \"s\", switches = \"l\" }}, {{ name = \"t\", switches = \"l\" }}]"
            ),
            "l is below s and below t",
        ),
        ("plugin = \"tree\"\nswitches = [{ name = \"s\", nodes = \"m0\" }]".to_owned(), "names node m0"),
        (
            format!("plugin = \"tree\"\nswitches = [{leaf}, {{ name = \"m\", nodes = \"n[0-1]\" }}]"),
            "node n0 is in l and in m",
        ),
        ("plugin = \"tree\"\nswitches = [{ name = \"s\", nodes = \"n[0\" }]".to_owned(), "is not a hostlist"),
        ("plugin = \"block\"\nblock_sizes = [2, 6]".to_owned(), "6 is not 2 times a power of two: 4 or 8 would be"),
        ("plugin = \"block\"\nblock_sizes = [4, 2]".to_owned(), "each is larger"),
        ("plugin = \"block\"\nblock_sizes = [4, 8]\nblock_size = 2".to_owned(), "make them equal"),
        (format!("plugin = \"tree\"\nlayers = [\"node\"]\nswitches = [{leaf}]"), "node is always the lowest"),
        (format!("plugin = \"tree\"\nlayers = [\"a\", \"b\"]\nswitches = [{leaf}]"), "remove b"),
        (
            "plugin = \"tree\"\nswitches = [{ name = \"s\", nodes = \"n0\", link_speed = \"fast\" }]".to_owned(),
            "write it like 400G",
        ),
        (
            format!("plugin = \"tree\"\nswitches = [{leaf}]\nrule = [{{ gather = \"must:pod\" }}]"),
            "has no layer pod",
        ),
    ];
    for (text, want) in cases {
        let errors = build(&text, &["n0", "n1"]).map(|_| ()).unwrap_err();
        assert!(errors.iter().any(|error| error.contains(want)), "{text}\n{want}\n{errors:?}");
    }
}
