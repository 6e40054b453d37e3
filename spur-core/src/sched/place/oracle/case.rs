//! Random small questions, the same for the same seed.

use std::collections::BTreeSet;
use std::fmt::Write;

use fixedbitset::FixedBitSet;
use spur_chance::Chance;

use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::model::topology::{BlockConfig, Plugin, ScoreBefore, SwitchConfig, TopologyConfig};
use crate::sched::place::Strategy;

use super::{Ask, Misfit, Placement, Slots, View, Weights, place_or_say};

/// A source of random questions; a seed repeats them.
pub(super) struct Random(Chance);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Chance::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(1)))
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        let width = u64::from(high - low) + 1;
        low + u32::try_from(self.0.any() % width).expect("less than the width")
    }

    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.between(1, times) == 1
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, u32::try_from(from.len() - 1).unwrap()) as usize]
    }

    /// A fabric of at most 11 nodes: a forest of up to four layers and unequal depth, or blocks; at times
    /// with a node in no domain.
    pub(super) fn fabric(&mut self) -> Fabric {
        let plan = if self.one_in(3) { self.blocks() } else { self.tree() };
        self.build(plan)
    }

    /// A fabric like [`Random::fabric`], with random link speeds and latencies; some links have none.
    pub(super) fn linked_fabric(&mut self) -> Fabric {
        let mut plan = if self.one_in(3) { self.blocks() } else { self.tree() };
        let mut link = || {
            let speed = self.pick(&[None, Some("100G"), Some("200G"), Some("400G"), Some("400G")]);
            let latency = self.pick(&[None, Some("1us"), Some("2us"), Some("5us")]);
            (speed.map(str::to_owned), latency.map(str::to_owned))
        };
        for switch in &mut plan.config.switches {
            (switch.link_speed, switch.latency) = link();
        }
        for block in &mut plan.config.blocks {
            (block.link_speed, block.latency) = link();
        }
        self.build(plan)
    }

    /// Nodes without any domain, as in a partition without a topology.
    pub(super) fn bare_fabric(&mut self) -> Fabric {
        Plan { nodes: self.between(1, 8), ..Plan::new(Plugin::None) }.fabric()
    }

    /// Small leaves under two or three layers, so that a segment is spread over several leaves.
    pub(super) fn deep_fabric(&mut self) -> Fabric {
        if self.one_in(3) {
            let mut plan = Plan::new(Plugin::Block);
            let size = self.between(1, 2);
            (0..self.between(3, 6)).for_each(|_| plan.block(size));
            plan.config.block_sizes = vec![size, 2 * size, 4 * size];
            return self.build(plan);
        }
        let mut plan = Plan::new(Plugin::Tree);
        let depth = self.between(2, 3);
        self.grow(&mut plan, depth, &|random, depth, nodes| match depth {
            1 => Below::Nodes(if nodes > 8 { 1 } else { random.between(1, 3) }),
            2 => Below::Switches(random.between(2, 3)),
            _ => Below::Switches(random.between(2, 2)),
        });
        self.build(plan)
    }

    /// The fabric of a plan, at times with a node in no domain.
    fn build(&mut self, mut plan: Plan) -> Fabric {
        plan.nodes += (self.0.seed() % 2) as u32;
        plan.fabric()
    }

    /// A tree of three layers and up to some sixty nodes, at times more.
    pub(super) fn large_tree(&mut self) -> Fabric {
        let (mut plan, mut spines) = (Plan::new(Plugin::Tree), Vec::new());
        let largest = if self.one_in(8) { 80 } else { 5 };
        for spine in 0..self.between(2, 4) {
            let mut leaves = Vec::new();
            for leaf in 0..self.between(1, 5) {
                let count = if self.one_in(3) { self.between(1, largest) } else { self.between(1, 5) };
                leaves.push(plan.leaf(format!("l{spine}-{leaf}"), count));
            }
            spines.push(plan.above(format!("s{spine}"), &leaves));
        }
        plan.above("core".to_owned(), &spines);
        plan.fabric()
    }

    /// A tree of four layers in which some leaves are higher than others. `most` limits the children of a
    /// domain by layer, from the second layer up; no leaf has more than `largest` nodes.
    pub(super) fn four_layers(&mut self, most: [u32; 3], largest: u32) -> Fabric {
        let largest = self.between(2, largest);
        let mut plan = Plan::new(Plugin::Tree);
        self.grow(&mut plan, 3, &|random, depth, _| match depth {
            0 => Below::Nodes(random.between(1, largest)),
            1 | 2 if random.one_in(12) => Below::Nodes(random.between(1, largest)),
            _ => Below::Switches(random.between(2, most[depth as usize - 1])),
        });
        plan.fabric()
    }

    /// A fabric of 40 to 1,000 nodes: a tree of two to four layers, mostly of unequal leaves, or blocks.
    pub(super) fn site(&mut self) -> Fabric {
        let nodes = self.pick(&[40, 60, 100, 100, 150, 300, 1000]);
        if self.one_in(6) {
            let size = self.between(2, 12);
            return Self::blocks_of(size, nodes);
        }
        let largest = self.between(2, 12).max(nodes / 40);
        let (mut plan, mut below) = (Plan::new(Plugin::Tree), Vec::new());
        while plan.nodes < nodes {
            let count = if self.one_in(3) { largest } else { self.between(1, largest) };
            below.push(plan.leaf(plan.next(), count.min(nodes - plan.nodes)));
        }
        for _ in 0..self.between(0, 2) {
            let mut above = Vec::new();
            let most = self.between(2, 8);
            while !below.is_empty() {
                let count = self.between(1, most).min(below.len() as u32) as usize;
                let children: Vec<String> = below.drain(..count).collect();
                above.push(plan.above(plan.next(), &children));
            }
            below = above;
        }
        if below.len() > 1 && !self.one_in(8) {
            plan.above(plan.next(), &below);
        }
        plan.fabric()
    }

    /// `nodes` nodes in blocks of `size`.
    pub(super) fn blocks_of(size: u32, nodes: u32) -> Fabric {
        let mut plan = Plan { nodes, ..Plan::new(Plugin::Block) };
        plan.config.block_size = Some(size);
        plan.fabric()
    }

    fn tree(&mut self) -> Plan {
        let mut plan = Plan::new(Plugin::Tree);
        for _ in 0..if self.one_in(4) { 2 } else { 1 } {
            let depth = self.between(1, 3);
            self.grow(&mut plan, depth, &|random, depth, nodes| match depth <= 1 || random.one_in(5) {
                true => Below::Nodes(if nodes > 6 { random.between(0, 1) } else { random.between(1, 4) }),
                false => Below::Switches(random.between(1, 3)),
            });
        }
        plan
    }

    /// Adds a switch and everything below it. `shape` decides what is below, given the number of layers that
    /// may follow and the number of nodes so far.
    fn grow(&mut self, plan: &mut Plan, depth: u32, shape: &dyn Fn(&mut Self, u32, u32) -> Below) -> String {
        match shape(self, depth, plan.nodes) {
            Below::Nodes(count) => plan.leaf(plan.next(), count),
            Below::Switches(count) => {
                let name = plan.above(plan.next(), &[]);
                let at = plan.config.switches.len() - 1;
                let children: Vec<String> = (0..count).map(|_| self.grow(plan, depth - 1, shape)).collect();
                plan.config.switches[at].switches = Some(children.join(","));
                name
            }
        }
    }

    fn blocks(&mut self) -> Plan {
        let mut plan = Plan::new(Plugin::Block);
        for _ in 0..self.between(1, 5) {
            plan.block(if plan.nodes > 8 { 0 } else { self.between(0, 3) });
        }
        plan.config.block_sizes = self.pick(&[&[][..], &[3], &[3, 6], &[2, 8], &[2, 4, 8]]).to_vec();
        plan
    }

    /// Whole nodes, some of them taken.
    pub(super) fn whole(&mut self, fabric: &Fabric) -> Slots {
        let taken = self.between(0, 4);
        let open = (0..fabric.len()).filter(|_| !(taken > 0 && self.between(0, 5) < taken)).collect();
        Slots::whole(fabric, open)
    }

    /// A random half of all nodes.
    pub(super) fn half(&mut self, fabric: &Fabric) -> FixedBitSet {
        (0..fabric.len()).filter(|_| self.one_in(2)).collect()
    }

    /// Tasks per node, of a few kinds or of any number.
    pub(super) fn many_tasks(&mut self, fabric: &Fabric) -> Slots {
        let mut kinds: Vec<u32> = (0..self.between(1, 12)).map(|_| self.between(0, 12)).collect();
        if self.one_in(16) {
            // A number that does not fit 16 bits.
            kinds.push(70_000);
        }
        Slots::tasks(fabric, (0..fabric.len()).map(|_| self.pick(&kinds)).collect())
    }

    /// Tasks per node, few enough that every way to place them can be tried.
    pub(super) fn tasks(&mut self, fabric: &Fabric) -> Slots {
        let most = match fabric.len() {
            0..=5 => 5,
            6..=7 => 3,
            _ => 2,
        };
        Slots::tasks(fabric, (0..fabric.len()).map(|_| self.between(0, most)).collect())
    }

    /// Slots of nodes of which a job takes one share each; at times every node that has any has equally many.
    pub(super) fn shares(&mut self, fabric: &Fabric) -> Slots {
        if self.one_in(3) {
            let room = self.between(1, 4);
            let open = self.whole(fabric).open().clone();
            let of = |index| if open.contains(index) { room } else { 0 };
            return Slots::tasks(fabric, (0..fabric.len()).map(of).collect());
        }
        Slots::tasks(fabric, (0..fabric.len()).map(|_| self.between(0, 4)).collect())
    }
}

/// The children of a switch.
enum Below {
    Nodes(u32),
    Switches(u32),
}

/// The plan of a fabric that is built step by step.
struct Plan {
    config: TopologyConfig,
    nodes: u32,
}

impl Plan {
    fn new(plugin: Plugin) -> Self {
        Self { config: TopologyConfig { plugin, ..TopologyConfig::default() }, nodes: 0 }
    }

    /// A name for the next switch.
    fn next(&self) -> String {
        format!("s{}", self.config.switches.len())
    }

    /// The names of the next `count` nodes, as a list.
    fn take(&mut self, count: u32) -> String {
        let list: Vec<String> = (self.nodes..self.nodes + count).map(|node| format!("n{node}")).collect();
        self.nodes += count;
        list.join(",")
    }

    fn leaf(&mut self, name: String, nodes: u32) -> String {
        let nodes = Some(self.take(nodes));
        self.config.switches.push(SwitchConfig { name: name.clone(), nodes, ..SwitchConfig::default() });
        name
    }

    fn above(&mut self, name: String, switches: &[String]) -> String {
        let switches = Some(switches.join(","));
        self.config.switches.push(SwitchConfig { name: name.clone(), switches, ..SwitchConfig::default() });
        name
    }

    fn block(&mut self, nodes: u32) {
        let (name, nodes) = (format!("b{}", self.config.blocks.len()), self.take(nodes));
        self.config.blocks.push(BlockConfig { name, nodes, ..BlockConfig::default() });
    }

    fn fabric(&self) -> Fabric {
        let names: Vec<String> = (0..self.nodes).map(|index| format!("n{index}")).collect();
        let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
        Fabric::build(&self.config, &table, &[]).expect("random fabrics are right")
    }
}

/// One question.
pub(super) struct Case {
    pub(super) fabric: Fabric,
    pub(super) slots: Slots,
    pub(super) idle: Slots,
    pub(super) occupied: FixedBitSet,
    pub(super) weights: Option<Weights>,
    pub(super) performance: Option<Vec<u32>>,
    pub(super) ask: Ask,
}

impl Case {
    pub(super) fn new(random: &mut Random, fabric: Fabric, slots: Slots, ask: Ask) -> Self {
        let mut occupied: FixedBitSet = (0..fabric.len()).filter(|_| random.one_in(8)).collect();
        occupied.grow(fabric.len());
        let most = slots.iter().map(|(_, slots)| slots).max().unwrap_or(1);
        let admitted = |pos: usize| slots.open().contains(pos) || !(pos * 7).is_multiple_of(5);
        let idle = if slots.are_whole() {
            Slots::whole(&fabric, (0..fabric.len()).filter(|&pos| admitted(pos)).collect())
        } else {
            let idle = (0..fabric.len()).map(|pos| if admitted(pos) { most } else { 0 }).collect();
            Slots::tasks(&fabric, idle)
        };
        Self { fabric, slots, idle, occupied, weights: None, performance: None, ask }
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            fabric: &self.fabric,
            slots: &self.slots,
            idle: &self.idle,
            occupied: Some(&self.occupied),
            weights: self.weights.as_ref(),
            performance: self.performance.as_deref(),
            budget: None,
        }
    }

    /// The answer to this question with another ask.
    pub(super) fn answer(&self, ask: &Ask) -> Result<Placement, Misfit> {
        place_or_say(&self.view(), ask)
    }

    pub(super) fn layer(&self, random: &mut Random, least: u8) -> Layer {
        let top = self.fabric.layer_names().len() - 1;
        Layer(u8::try_from(random.between(least.into(), (top as u32).max(least.into()))).unwrap())
    }

    pub(super) fn pos(&self, random: &mut Random) -> Pos {
        Pos(random.between(0, self.fabric.len() as u32 - 1))
    }

    /// Applies `wish`, an extra demand, with a probability of one in `times`.
    pub(super) fn maybe(
        &mut self,
        random: &mut Random,
        times: u32,
        wish: impl FnOnce(&mut Self, &mut Random),
    ) {
        if random.one_in(times) {
            wish(self, random);
        }
    }

    /// Asks for links of a speed, for the lowest latency, or both.
    pub(super) fn network(&mut self, random: &mut Random) {
        let which = random.between(0, 2);
        if which != 1 {
            self.ask.min_speed = Some(random.pick(&[100, 200, 400]) * 1_000_000_000);
        }
        self.ask.lowest_latency = which != 0;
    }

    /// Gives nodes weights.
    pub(super) fn weigh(&mut self, random: &mut Random) {
        self.weights = Some(Weights::new((0..self.fabric.len()).map(|_| random.between(1, 3)).collect()));
    }

    /// Asks for counted features; some nodes have several.
    pub(super) fn count_kinds(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 3) {
            self.ask.counts.push((random.half(&self.fabric), random.between(1, 3)));
        }
    }

    /// Asks for whole or adjacent leaves, caps per leaf and multiples.
    pub(super) fn limit_leaves(&mut self, random: &mut Random) {
        self.ask.whole_leaves = random.one_in(2);
        self.maybe(random, 2, |case, random| case.ask.adjacent = Some(random.between(1, 3)));
        self.maybe(random, 2, |case, random| case.ask.max_nodes_per_leaf = Some(random.between(1, 3)));
        self.maybe(random, 2, |case, random| case.ask.max_slots_per_leaf = Some(random.between(1, 6)));
        for _ in 0..random.between(0, 2) {
            let layer = self.layer(random, u8::from(self.slots.are_whole()));
            self.ask.multiples.push((layer, random.between(1, 3)));
        }
    }

    /// Names nodes that the job must have.
    pub(super) fn require(&mut self, random: &mut Random) {
        let required: BTreeSet<Pos> = (0..random.between(1, 3)).map(|_| self.pos(random)).collect();
        self.ask.required = required.into_iter().collect();
    }

    /// Names a domain that the job prefers.
    pub(super) fn prefer_a_domain(&mut self, random: &mut Random) {
        let domains: Vec<DomainId> = self.fabric.domains().map(|(id, _)| id).collect();
        self.ask.prefer_domain = Some(random.pick(&domains));
    }

    /// Adds a few constraints and preferences.
    pub(super) fn constrain(&mut self, random: &mut Random) {
        if self.fabric.is_empty() {
            return;
        }
        for _ in 0..random.between(1, 3) {
            self.constrain_once(random);
        }
        self.ask.required.sort_unstable();
        self.ask.required.dedup();
    }

    fn constrain_once(&mut self, random: &mut Random) {
        match random.between(0, 13) {
            0 => self.ask.must = Some(self.layer(random, 0)),
            1 | 2 => {
                let layer = self.layer(random, u8::from(self.slots.are_whole()));
                self.ask.multiples.push((layer, random.between(1, 4)));
            }
            3 => self.ask.max_spans.push((Layer::LEAF, random.between(1, 2))),
            4 => self.ask.prefer.push(self.layer(random, 1)),
            5 => {
                let prefer = [self.layer(random, 1), self.layer(random, 1)];
                self.ask.prefer = if prefer[0] == prefer[1] { vec![prefer[0]] } else { prefer.to_vec() };
            }
            6 => self.prefer_a_domain(random),
            7 => self.weigh(random),
            8 => self.ask.whole_leaves = true,
            9 => self.ask.required = (0..random.between(1, 2)).map(|_| self.pos(random)).collect(),
            10 => self.ask.max_nodes_per_leaf = Some(random.between(1, 2)),
            11 => self.ask.max_slots_per_leaf = Some(random.between(1, 4)),
            12 => self.ask.counts.push((random.half(&self.fabric), random.between(1, 2))),
            _ => self.ask.strategy = Strategy::Block,
        }
    }

    /// Adds constraints that have a meaning where the fabric is ignored.
    pub(super) fn constrain_flat(&mut self, random: &mut Random) {
        if self.fabric.is_empty() {
            return;
        }
        self.maybe(random, 3, Case::weigh);
        self.maybe(random, 4, Case::require);
        if !self.slots.are_whole() && random.one_in(4) {
            self.ask.max_tasks_per_node = Some(random.between(1, 2));
        }
        self.maybe(random, 3, Case::count_kinds);
        self.ask.contiguous = random.one_in(4);
        self.maybe(random, 4, |case, random| case.ask.max_nodes_per_leaf = Some(random.between(1, 3)));
        self.maybe(random, 4, |case, random| case.ask.max_slots_per_leaf = Some(random.between(1, 5)));
    }

    /// Asks for a settable score of a few terms before a random step; at times gives nodes a past
    /// performance.
    pub(super) fn score(&mut self, random: &mut Random) {
        let weights = &mut self.ask.score.weights;
        for weight in [
            &mut weights.resource_availability,
            &mut weights.topology_alignment,
            &mut weights.domain_utilisation,
            &mut weights.past_performance,
        ] {
            weight.0 = random.pick(&[0, 0, 500_000, 1_000_000, 3_000_000]);
        }
        if random.one_in(3) {
            let text = random.pick(&[
                "free_nodes - 2 * total_nodes",
                "topology_alignment / (1 - domain_utilisation)",
                "-free_slots * past_performance",
                "(resource_availability + 1) / (layer - 1)",
            ]);
            self.ask.score.expression = Some(text.parse().unwrap());
        }
        self.ask.score.before = random.pick(&[ScoreBefore::Span, ScoreBefore::Fit, ScoreBefore::None]);
        let ended = |random: &mut Random| random.pick(&[0, 500_000, 900_000, 1_000_000]);
        self.performance = random.one_in(2).then(|| (0..self.fabric.len()).map(|_| ended(random)).collect());
    }

    /// The amount that a placement gives at each position.
    pub(super) fn amounts(&self, placement: &Placement) -> Vec<u32> {
        let mut amounts = vec![0; self.fabric.len()];
        placement.shares.iter().for_each(|(pos, share)| amounts[pos.index()] = *share);
        amounts
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (_, domain) in self.fabric.domains() {
            let (name, layer, range) = (domain.full_name(), domain.layer().0, domain.range());
            let (cover, parent) = (domain.cover().0, domain.parent());
            writeln!(text, "layer {layer}-{cover} {name} {range:?} below {parent:?}").unwrap();
        }
        let slots: Vec<u32> = (0..self.fabric.len() as u32).map(|pos| self.slots.at(Pos(pos))).collect();
        let idle: Vec<u32> = (0..self.fabric.len() as u32).map(|pos| self.idle.at(Pos(pos))).collect();
        writeln!(text, "slots {slots:?} idle {idle:?} weights {:?}", self.weights).unwrap();
        writeln!(text, "occupied {:?}", self.occupied.ones().collect::<Vec<_>>()).unwrap();
        writeln!(text, "{:?}", self.ask).unwrap();
        text
    }
}
