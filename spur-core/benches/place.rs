//! The time of one placement on 100,000 nodes: 3,125 leaves of 32 nodes in spines of 32 leaves, with random
//! nodes busy.
//!
//! Each row is the least and the median time of many placements of one size, and a mark if the placement is
//! not exact. `cargo bench -p spur-core --bench place [-- SIZE… NAME…]` runs the rows of the given sizes
//! and names, or all rows.

use std::hint::black_box;
use std::time::Instant;

use fixedbitset::FixedBitSet;
use spur_core::id::NodeId;
use spur_core::model::fabric::{Fabric, Layer, Pos};
use spur_core::model::topology::{Plugin, SwitchConfig, TopologyConfig};
use spur_core::sched::place::{Ask, Slots, View, Weights, place};

/// The allocator of `spurctld` and of the commands.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NODES: u32 = 100_000;
const LEAF: u32 = 32;
const SPINE: u32 = 32;
const ROUNDS: u128 = 2001;

fn fabric() -> Fabric {
    let names: Vec<String> = (0..NODES).map(|node| format!("n{node:06}")).collect();
    let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
    let mut config = TopologyConfig { plugin: Plugin::Tree, ..TopologyConfig::default() };
    let leaves = NODES / LEAF;
    let spines = leaves.div_ceil(SPINE);
    let mut switch = |name: String, nodes: Option<String>, switches: Option<String>| {
        config.switches.push(SwitchConfig { name, nodes, switches, ..SwitchConfig::default() });
    };
    for leaf in 0..leaves {
        let nodes = format!("n[{:06}-{:06}]", leaf * LEAF, (leaf + 1) * LEAF - 1);
        switch(format!("leaf{leaf:04}"), Some(nodes), None);
    }
    for spine in 0..spines {
        let last = ((spine + 1) * SPINE).min(leaves) - 1;
        let below = format!("leaf[{:04}-{last:04}]", spine * SPINE);
        switch(format!("spine{spine:03}"), None, Some(below));
    }
    switch("core".to_owned(), None, Some(format!("spine[000-{:03}]", spines - 1)));
    Fabric::build(&config, &table, &[]).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

/// The free nodes: each node with a probability of `percent`, and the same nodes in every run.
fn open(percent: u64) -> FixedBitSet {
    let mut state = 1_u64;
    let mut free = |_: &usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 100 < percent
    };
    (0..NODES as usize).filter(|node| free(node)).collect()
}

/// The sizes in the arguments, or `usual` without any.
fn sizes(usual: &[u32]) -> Vec<u32> {
    let given: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if given.is_empty() { usual.to_vec() } else { given }
}

/// Places a job many times and prints the times. Does nothing if the arguments name rows and `name` is not
/// among them.
fn row(free: &str, size: u32, name: &str, view: &View<'_>, ask: &Ask) {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word.parse::<u32>().is_err()).collect();
    let mut words = words.iter().filter(|word| !word.starts_with("--bench")).peekable();
    if words.peek().is_some() && !words.any(|word| word == name) {
        return;
    }
    let start = Instant::now();
    let placed = place(view, ask);
    let exact = placed.map_or_else(|missed| missed.exact, |placement| placement.exact);
    // All rounds of a row take half a second at most, unless three placements take longer.
    let rounds = (500_000_000 / start.elapsed().as_nanos().max(1)).clamp(3, ROUNDS);
    let mut times: Vec<u128> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            let _ = black_box(place(view, black_box(ask)));
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    let micros = |nanos: u128| nanos as f64 / 1000.0;
    let (least, median) = (micros(times[0]), micros(times[times.len() / 2]));
    let mark = if exact { "" } else { "  not exact" };
    println!("{free:>6} {size:>6} {name:>32} {least:>9.1} us {median:>9.1} us{mark}");
}

fn main() {
    let fabric = fabric();
    let idle = Slots::whole(&fabric, (0..NODES as usize).collect());
    println!("{:>6} {:>6} {:>32} {:>12} {:>12}", "free", "size", "asks", "least", "median");
    for percent in [100, 50, 5] {
        let slots = Slots::whole(&fabric, open(percent));
        let view = View::new(&fabric, &slots, &idle);
        for nodes in sizes(&[1, 8, 30, 100, 500, 1000, 5000]) {
            for (name, ask) in asks(nodes) {
                row(&format!("{percent}%"), nodes, name, &view, &ask);
            }
        }
    }
    outlines(&fabric, &idle);
    count(&fabric);
    task_slots(&fabric);
    shares(&fabric);
}

/// Rows for consecutive nodes and for adjacent leaves. All nodes are free except every 3,000th, so that a
/// window may begin at nearly every node.
fn outlines(fabric: &Fabric, idle: &Slots) {
    let slots = Slots::whole(fabric, (0..NODES as usize).filter(|node| node % 3_000 != 7).collect());
    let view = View::new(fabric, &slots, idle);
    for nodes in sizes(&[8, 100, 1000]) {
        let contiguous = Ask { contiguous: true, ..Ask::nodes(nodes) };
        row("", nodes, "--contiguous", &view, &contiguous);
        let leaves = nodes.div_ceil(LEAF).max(2);
        row("", nodes, "adjacent", &view, &Ask { adjacent: Some(leaves), ..Ask::nodes(nodes) });
    }
}

fn asks(nodes: u32) -> Vec<(&'static str, Ask)> {
    let plain = Ask::nodes(nodes);
    let mut must = Ask::nodes(nodes);
    must.must = Some(Layer(2));
    let mut prefer = Ask::nodes(nodes);
    prefer.prefer = vec![Layer(1), Layer(2)];
    vec![("plain", plain), ("must:spine", must), ("prefer:leaf,prefer:spine", prefer)]
}

/// Prints the time to count the slots of all nodes, and the time to change one node.
fn count(fabric: &Fabric) {
    let open = open(50);
    let start = Instant::now();
    let mut slots = black_box(Slots::whole(fabric, open));
    println!("counting from nothing {:.1} us", start.elapsed().as_nanos() as f64 / 1000.0);
    let start = Instant::now();
    for node in 0..1000 {
        slots.set(fabric, Pos(node * 97), 1);
    }
    println!("changing one node {:.3} us", start.elapsed().as_nanos() as f64 / 1e6);
}

/// Rows for jobs that share nodes: half of the nodes hold from 1 to 7 tasks each, and the others none. The
/// rows with `weights` have nodes of three weights.
fn task_slots(fabric: &Fabric) {
    let open = open(50);
    let slots =
        (0..NODES as usize).map(|node| if open.contains(node) { 1 + (node as u32 * 5 % 7) } else { 0 });
    let slots = Slots::tasks(fabric, slots.collect());
    let idle = Slots::tasks(fabric, vec![8; NODES as usize]);
    let whole = Slots::whole(fabric, open);
    let weights = Weights::new((0..NODES).map(|node| 1 + node % 3).collect());
    let tasks = View::new(fabric, &slots, &idle);
    let weighed = View { weights: Some(&weights), ..tasks };
    for count in sizes(&[1, 7, 16, 60, 200, 1_000]) {
        let nodes = count.div_ceil(5);
        let fixed = Ask { nodes: Some((nodes, nodes)), ..Ask::tasks(count) };
        let capped = Ask { max_tasks_per_node: Some(4), ..Ask::tasks(count) };
        row("", count, "-n", &tasks, &Ask::tasks(count));
        row("", count, "-n, --ntasks-per-node=4", &tasks, &capped);
        row("", count, "-n, weights", &weighed, &Ask::tasks(count));
        row("", count, "-N, weights", &View { slots: &whole, ..weighed }, &Ask::nodes(count));
        row("", count, "-N, shared", &tasks, &Ask::nodes(count));
        if count <= 60 {
            row("", count, "-N and -n", &tasks, &fixed);
        }
    }
}

/// Rows for jobs that take a share of each of their nodes.
///
/// In the rows `idle` each node holds 8 shares. In the rows `half` half of the nodes are full and the
/// others hold 1 to 7 shares. In the rows `most` nearly all nodes are idle.
fn shares(fabric: &Fabric) {
    let idle = Slots::tasks(fabric, vec![8; NODES as usize]);
    let open = |percent: u64, of: fn(u32) -> u32| {
        let open = open(percent);
        let slots = (0..NODES).map(|node| if open.contains(node as usize) { of(node) } else { 0 });
        Slots::tasks(fabric, slots.collect())
    };
    let used = open(50, |node| 1 + node * 5 % 7);
    let mostly_idle = open(99, |node| if node * 7 % 100 < 3 { 1 + node % 7 } else { 8 });
    for (free, slots) in [("idle", &idle), ("most", &mostly_idle), ("half", &used)] {
        let view = View::new(fabric, slots, &idle);
        for nodes in sizes(&[1, 8, 30, 96, 500, 1000, 5000]) {
            let plain = Ask::nodes(nodes);
            let must = Ask { must: Some(Layer(2)), ..plain.clone() };
            let prefer = Ask { prefer: vec![Layer(1), Layer(2)], ..plain.clone() };
            let rounded = Ask { multiples: vec![(Layer(1), 4)], ..Ask::nodes(nodes.next_multiple_of(4)) };
            let capped = Ask { max_nodes_per_leaf: Some(7), ..plain.clone() };
            for (name, ask) in [
                ("share", plain),
                ("share, must:spine", must),
                ("share, prefer:leaf,prefer:spine", prefer),
                ("share, leaf*4", rounded),
                ("share, 7 nodes of a leaf", capped),
            ] {
                row(free, nodes, name, &view, &ask);
            }
        }
    }
}
