//! The time of the longest placements, among random requests on 100,000 nodes.
//!
//! `cargo bench -p spur-core --bench worst [-- FROM TO [NODES]]` places the requests of the seeds from FROM
//! to TO - 1, each once and for up to NODES nodes. A placement that takes longer than the aim, or that is
//! not exact, is printed with its seed. A table follows with the number of requests of each kind and the
//! longest placement, and the sums of all kinds.

#[path = "shared/processor.rs"]
mod processor;

use std::collections::BTreeMap;
use std::time::Duration;

use fixedbitset::FixedBitSet;
use processor::processor;
use spur_chance::Chance;
use spur_core::id::NodeId;
use spur_core::model::fabric::{DomainId, Fabric, Layer, Pos};
use spur_core::model::topology::{Plugin, SwitchConfig, TopologyConfig, WeightsConfig};
use spur_core::sched::place::{Ask, Mode, Segment, Slots, Strategy, View, Weights, place};

const NODES: u32 = 100_000;
/// The largest number of nodes of a request, unless the arguments give another.
const MOST: u32 = 8000;
/// Longer placements are printed.
const AIM: Duration = Duration::from_millis(30);

/// Random numbers, the same for the same seed.
struct Random(Chance);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.any()
    }

    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() % (u64::from(high - low) + 1)) as u32
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.between(1, times) == 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u32 - 1) as usize]
    }

    /// A number from 1 to `most`, with every order of magnitude about equally likely.
    fn size(&mut self, most: u32) -> u32 {
        let bits = self.between(0, u32::BITS - most.leading_zeros());
        self.between(1, (1_u32 << bits).min(most).max(1))
    }
}

/// A tree of switches below one root. The first width is the number of nodes of a leaf, each further one
/// the number of children of a switch in the next layer.
fn tree(widths: &[u32]) -> Fabric {
    let mut config = TopologyConfig { plugin: Plugin::Tree, ..TopologyConfig::default() };
    let mut count = NODES;
    for (layer, width) in widths.iter().copied().chain([NODES]).enumerate() {
        let below = count;
        count = count.div_ceil(width);
        for index in 0..count {
            let (first, last) = (index * width, ((index + 1) * width).min(below) - 1);
            let of = |name: &str| Some(format!("{name}[{first}-{last}]"));
            let name = format!("l{}x{index}", layer + 1);
            let (nodes, switches) =
                if layer == 0 { (of("n"), None) } else { (None, of(&format!("l{layer}x"))) };
            config.switches.push(SwitchConfig { name, nodes, switches, ..SwitchConfig::default() });
        }
    }
    build(&config)
}

/// Base blocks of 18 nodes, with aggregates of 2 to 32 base blocks.
fn blocks() -> Fabric {
    let block_sizes = vec![18, 36, 72, 144, 288, 576];
    build(&TopologyConfig { plugin: Plugin::Block, block_sizes, ..TopologyConfig::default() })
}

fn build(config: &TopologyConfig) -> Fabric {
    let names: Vec<String> = (0..NODES).map(|node| format!("n{node}")).collect();
    let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
    Fabric::build(config, &table, &[]).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

/// The fabrics of the requests, each built at its first use.
#[derive(Default)]
struct Fabrics([std::cell::OnceCell<Fabric>; 4]);

impl Fabrics {
    fn get(&self, index: usize) -> &Fabric {
        self.0[index].get_or_init(|| match index {
            0 => tree(&[32, 32]),
            1 => tree(&[40]),
            2 => tree(&[16, 8, 12]),
            _ => blocks(),
        })
    }
}

/// Random slots of the nodes: a share of the nodes is free, and some of the free nodes hold fewer tasks
/// than the others.
fn slots(fabric: &Fabric, random: &mut Random, is_whole: bool) -> Slots {
    let free = random.pick(&[100, 90, 50, 20, 5, 1]);
    if is_whole {
        return Slots::whole(fabric, (0..NODES as usize).filter(|_| random.between(0, 99) < free).collect());
    }
    let most = random.pick(&[4, 7, 8, 16, 64, 128, 192]);
    let (step, busy) = (random.pick(&[1, 1, 4]), random.pick(&[10, 50, 100]));
    let mut tasks = |_| match random.between(0, 99) {
        chance if chance >= free => 0,
        _ if random.between(0, 99) >= busy => most,
        _ => (random.between(1, most) / step * step).max(1),
    };
    Slots::tasks(fabric, (0..NODES).map(&mut tasks).collect())
}

/// A request, and the name of its kind in the table.
struct Question {
    kind: String,
    ask: Ask,
    weights: Option<Weights>,
}

impl Question {
    fn new(fabric: &Fabric, slots: &Slots, most: u32, random: &mut Random) -> Self {
        let nodes = random.size(most);
        let each = (slots.total() / slots.nodes().max(1) as u64).max(1) as u32;
        let tasks = nodes * random.between(each.div_ceil(4), each * 2) + random.between(0, each);
        let (kind, mut ask) = match random.between(0, 5) {
            _ if slots.are_whole() => ("-N", Ask::nodes(nodes)),
            0 => ("-N shared", Ask::nodes(nodes)),
            1 => ("-n", Ask::tasks(tasks)),
            2 => {
                let per_node = random.between(1, each);
                let ask = Ask { max_tasks_per_node: Some(per_node), ..Ask::tasks(nodes * per_node) };
                ("-n --ntasks-per-node", ask)
            }
            3 => {
                let most = nodes + random.size(nodes);
                ("-N a-b -n", Ask { nodes: Some((nodes, most)), ..Ask::tasks(tasks.max(nodes)) })
            }
            _ => ("-N -n", Ask { nodes: Some((nodes, nodes)), ..Ask::tasks(tasks.max(nodes)) }),
        };
        if slots.are_whole() && random.one_in(8) {
            ask.nodes = Some((nodes, nodes + random.size(nodes)));
        }
        let mut question = Self { kind: kind.to_owned(), ask, weights: None };
        for _ in 0..random.pick(&[0, 0, 1, 1, 2]) {
            question.constrain(fabric, nodes, random);
        }
        question
    }

    fn constrain(&mut self, fabric: &Fabric, nodes: u32, random: &mut Random) {
        let what = if random.one_in(2) {
            self.limit(fabric, nodes, random)
        } else {
            self.prefer(fabric, nodes, random)
        };
        self.kind += ", ";
        self.kind += what;
    }

    /// Adds a random constraint that excludes placements. Returns its name.
    fn limit(&mut self, fabric: &Fabric, nodes: u32, random: &mut Random) -> &'static str {
        let layer = Layer(random.between(1, u32::from(fabric.top().0)) as u8);
        let set = |random: &mut Random| -> FixedBitSet {
            let times = random.between(1, 20);
            (0..NODES as usize).filter(|_| random.one_in(times)).collect()
        };
        let ask = &mut self.ask;
        match random.between(0, 7) {
            0 => {
                ask.must = Some(layer);
                "must"
            }
            1 => {
                ask.multiples.push((layer, random.pick(&[2, 4, 8])));
                let unit = ask.multiples.iter().fold(1, |unit: u32, (_, by)| unit.max(*by));
                let up = |amount: u32| amount.next_multiple_of(unit);
                ask.nodes = ask.nodes.map(|(least, most)| (up(least), up(most)));
                ask.tasks = ask.tasks.map(up);
                "multiple"
            }
            2 => {
                ask.max_spans = vec![(Layer::LEAF, random.size(nodes.div_ceil(8)))];
                "--switches"
            }
            3 => {
                ask.contiguous = true;
                "contiguous"
            }
            4 => {
                ask.required =
                    (0..random.size(nodes.min(40))).map(|_| Pos(random.between(0, NODES - 1))).collect();
                ask.required.sort_unstable();
                ask.required.dedup();
                "-w"
            }
            5 => {
                ask.max_nodes_per_leaf = Some(random.between(1, 20));
                "nodes per leaf"
            }
            6 => {
                ask.max_slots_per_leaf = Some(random.between(4, 100));
                "slots per leaf"
            }
            _ => {
                ask.counts.push((set(random), random.size(nodes)));
                "counts"
            }
        }
    }

    /// Adds a random preference among placements. Returns its name.
    fn prefer(&mut self, fabric: &Fabric, nodes: u32, random: &mut Random) -> &'static str {
        let layer = Layer(random.between(1, u32::from(fabric.top().0)) as u8);
        let domains: Vec<DomainId> = fabric.domains_of(layer).collect();
        let ask = &mut self.ask;
        match random.between(0, 10) {
            0 => {
                ask.prefer = vec![layer];
                "prefer"
            }
            1 => {
                ask.mode = Mode::Balanced;
                "balanced"
            }
            2 => {
                ask.mode = Mode::Distributed;
                "distributed"
            }
            3 => {
                let heaviest = random.between(2, 5);
                self.weights = Some(Weights::new((0..NODES).map(|_| random.between(1, heaviest)).collect()));
                "weights"
            }
            4 => {
                let WeightsConfig { topology_alignment, domain_utilisation, .. } = &mut ask.score.weights;
                (topology_alignment.0, domain_utilisation.0) = (1_000_000, 500_000);
                "score"
            }
            5 => {
                ask.prefer_domain = Some(random.pick(&domains));
                "prefer domain"
            }
            6 => {
                ask.strategy = Strategy::Flat;
                "none"
            }
            7 => {
                ask.adjacent = Some(random.size(nodes.div_ceil(8)));
                "adjacent"
            }
            8 => {
                ask.strategy = Strategy::Block;
                "block"
            }
            9 => {
                ask.lowest_latency = true;
                "latency"
            }
            _ => {
                let size = random.size(100);
                let count = nodes.div_ceil(size);
                ask.strategy = Strategy::Block;
                ask.segment = Some(Segment { size, spread: random.one_in(3), consolidate: random.one_in(3) });
                ask.nodes = ask.nodes.map(|_| (size * count, size * count));
                "segments"
            }
        }
    }
}

fn main() {
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let seeds = match given[..] {
        [seed] => seed..seed + 1,
        [from, to, ..] => from..to,
        [] => 0..2000,
    };
    let most = given.get(2).and_then(|&most| u32::try_from(most).ok()).unwrap_or(MOST);
    let fabrics = Fabrics::default();
    let mut longest: BTreeMap<String, (u32, u32, u32, Duration, u64)> = BTreeMap::new();
    let mut sum = Duration::ZERO;
    for seed in seeds {
        let mut random = Random(Chance::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D)));
        let is_whole = random.one_in(3);
        let index = random.between(0, 3);
        let fabric = fabrics.get(index as usize);
        let slots = slots(fabric, &mut random, is_whole);
        let idle = if is_whole {
            Slots::whole(fabric, (0..NODES as usize).collect())
        } else {
            Slots::tasks(fabric, vec![192; NODES as usize])
        };
        let Question { kind, ask, weights } = Question::new(fabric, &slots, most, &mut random);
        let view = View { weights: weights.as_ref(), ..View::new(fabric, &slots, &idle) };
        let start = processor();
        let answer = place(&view, &ask);
        let took = processor() - start;
        sum += took;
        let (is_placed, is_exact) = match &answer {
            Ok(placement) => (true, placement.exact),
            Err(misfit) => (false, misfit.exact),
        };
        let (count, slow, inexact, most, which) = longest.entry(kind.clone()).or_default();
        *count += 1;
        *inexact += u32::from(!is_exact);
        *slow += u32::from(took > AIM);
        if took > *most {
            (*most, *which) = (took, seed);
        }
        if took > AIM || !is_exact {
            let (nodes, tasks) = (ask.nodes, ask.tasks);
            let found = if is_placed { "placed" } else { "refused" };
            let exact = if is_exact { "" } else { ", not exact" };
            let millis = took.as_secs_f64() * 1e3;
            println!(
                "{seed:>8} {millis:>9.1} ms  {kind}: {nodes:?} nodes, {tasks:?} tasks, fabric {index}, {found}{exact}"
            );
        }
    }
    println!("{:>6} {:>5} {:>9} {:>12} {:>8}", "asked", "slow", "not exact", "longest", "seed");
    let all = longest.values().fold((0, 0, 0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1, sum.2 + kind.2));
    let mut kinds: Vec<_> = longest.into_iter().collect();
    kinds.sort_by_key(|(_, (_, _, _, most, _))| std::cmp::Reverse(*most));
    for (kind, (count, slow, inexact, most, seed)) in kinds {
        println!("{count:>6} {slow:>5} {inexact:>9} {:>9.1} ms {seed:>8}  {kind}", most.as_secs_f64() * 1e3);
    }
    println!("{:>6} {:>5} {:>9} {:>9.1} ms in sum", all.0, all.1, all.2, sum.as_secs_f64() * 1e3);
}
