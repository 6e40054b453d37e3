//! The definition of a best placement, written as plainly as possible.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::{Plugin, ScoreBefore};
use crate::sched::place::{Segment, Strategy};

use super::Mode;
use super::case::Case;

pub(super) struct Judge<'c> {
    case: &'c Case,
    layers: usize,
    by_tasks: bool,
    /// The only allowed set of nodes where the fabric is ignored and the number of nodes is open; the inner
    /// `None` if there is none.
    filled: Option<Option<Vec<usize>>>,
}

/// The key of a placement: missing nodes, rank, positions, amounts.
type Judged = (usize, Vec<i64>, Vec<usize>, Vec<u32>);

/// The amount in every used domain (or node) of a layer.
type Used = BTreeMap<u32, u64>;

impl<'c> Judge<'c> {
    pub(super) fn new(case: &'c Case) -> Self {
        let layers = usize::from(case.fabric.top().0) + 1;
        let mut judge = Self { case, layers, by_tasks: case.ask.tasks.is_some(), filled: None };
        let ask = &case.ask;
        if judge.is_flat() && !ask.contiguous && ask.nodes.is_none() {
            judge.filled = ask.tasks.map(|tasks| judge.fill(tasks));
        }
        judge
    }

    /// Number of slots of a position.
    fn has(&self, pos: usize) -> u32 {
        self.case.slots.at(Pos(pos as u32))
    }

    fn weight(&self, pos: usize) -> u32 {
        self.case.weights.as_ref().map_or(0, |weights| weights.at(Pos(pos as u32)))
    }

    fn is_flat(&self) -> bool {
        self.case.ask.strategy == Strategy::Flat || self.case.fabric.roots().is_empty()
    }

    /// The least rank of all allowed placements on as many nodes as possible, with the placement whose
    /// positions sort first.
    pub(super) fn best(&self) -> Option<(Vec<i64>, Vec<u32>)> {
        let mut best: Option<Judged> = None;
        let mut amounts = vec![0; self.case.fabric.len()];
        self.enumerate(0, self.case.ask.tasks, &mut amounts, &mut |amounts| {
            let Some(rank) = self.rank(amounts) else { return };
            let positions: Vec<usize> = taken(amounts);
            // The number of nodes decides only if the ask gives a range.
            let fewer = if self.case.ask.nodes.is_some() { usize::MAX - positions.len() } else { 0 };
            let new = (fewer, rank, positions, amounts.to_vec());
            if best.as_ref().is_none_or(|best| (new.0, &new.1, &new.2) < (best.0, &best.1, &best.2)) {
                best = Some(new);
            }
        });
        best.map(|(_, rank, _, amounts)| (rank, amounts))
    }

    /// Calls `see` with every way to give amounts to the positions from `pos` on; `left` is the amount that
    /// remains, if it is fixed.
    fn enumerate(&self, pos: usize, left: Option<u32>, amounts: &mut Vec<u32>, see: &mut impl FnMut(&[u32])) {
        if pos == amounts.len() {
            if left.is_none_or(|left| left == 0) {
                see(amounts);
            }
            return;
        }
        let most = self.has(pos).min(left.unwrap_or(u32::MAX));
        for amount in 0..=most {
            if !self.by_tasks && amount > 1 {
                continue;
            }
            amounts[pos] = amount;
            self.enumerate(pos + 1, left.map(|left| left - amount), amounts, see);
        }
        amounts[pos] = 0;
    }

    fn used(&self, amounts: &[u32], layer: usize) -> Used {
        let mut used = Used::new();
        for (pos, &amount) in amounts.iter().enumerate().filter(|(_, amount)| **amount > 0) {
            let unit = if layer == 0 { pos as u32 } else { self.domain(pos, layer).unwrap().0 };
            *used.entry(unit).or_default() += u64::from(amount);
        }
        used
    }

    fn domain(&self, pos: usize, layer: usize) -> Option<DomainId> {
        self.case.fabric.domain_at(Pos(pos as u32), Layer(layer as u8))
    }

    /// The rank of a placement; `None` if it is not allowed.
    pub(super) fn rank(&self, amounts: &[u32]) -> Option<Vec<i64>> {
        let nodes = amounts.iter().filter(|&&amount| amount > 0).count() as u32;
        if self.is_flat() {
            let positions = taken(amounts);
            let allowed = nodes > 0
                && self.allowed_flat(amounts, nodes)
                && (!self.case.ask.contiguous || are_in_a_row(&positions))
                && self.filled.as_ref().is_none_or(|filled| filled.as_ref() == Some(&positions));
            return allowed.then(|| self.steps_flat(amounts, &positions));
        }
        let in_a_leaf = |pos: usize| amounts[pos] == 0 || self.domain(pos, 1).is_some();
        if nodes == 0 || !(0..amounts.len()).all(in_a_leaf) {
            return None;
        }
        let used: Vec<Used> = (0..self.layers).map(|layer| self.used(amounts, layer)).collect();
        (self.allowed(amounts, nodes, &used)).then(|| self.steps(amounts, &used))
    }

    /// True if the constraints hold that do not depend on the fabric.
    fn allowed_flat(&self, amounts: &[u32], nodes: u32) -> bool {
        let ask = &self.case.ask;
        let sum: u32 = amounts.iter().sum();
        let counts = ask.counts.iter().all(|(set, need)| {
            set.ones().filter(|&pos| amounts.get(pos).is_some_and(|&a| a > 0)).count() as u32 >= *need
        });
        ask.nodes.is_none_or(|(least, most)| (least..=most).contains(&nodes))
            && ask.tasks.is_none_or(|tasks| tasks == sum)
            && (ask.max_tasks_per_node).is_none_or(|most| amounts.iter().all(|&a| a <= most))
            && ask.required.iter().all(|pos| amounts[pos.index()] > 0)
            && counts
            && self.kept_by_leaves(amounts)
    }

    /// True if no leaf gives more than the caps allow.
    fn kept_by_leaves(&self, amounts: &[u32]) -> bool {
        let ask = &self.case.ask;
        let mut leaves: BTreeMap<DomainId, (u32, u32, u32)> = BTreeMap::new();
        for (pos, amount) in amounts.iter().enumerate().filter(|(_, amount)| **amount > 0) {
            let Some(leaf) = self.case.fabric.leaf_of(Pos(pos as u32)) else { continue };
            let (nodes, slots, load) = leaves.entry(leaf).or_default();
            (*nodes, *slots, *load) = (*nodes + 1, *slots + amount, *load + self.load_of(pos));
        }
        leaves.values().all(|(nodes, slots, load)| {
            ask.max_nodes_per_leaf.is_none_or(|most| *nodes <= most)
                && ask.max_slots_per_leaf.is_none_or(|most| *slots <= most)
                && ask.leaf_load.as_ref().is_none_or(|limit| *load <= limit.most)
        })
    }

    /// Number of capped GPUs that a node brings.
    fn load_of(&self, pos: usize) -> u32 {
        self.case.ask.leaf_load.as_ref().map_or(0, |limit| limit.of[pos])
    }

    /// The most slots that these nodes give, at least one each; `None` if the caps forbid so many nodes of a
    /// leaf.
    fn held(&self, nodes: &[usize], takes: &impl Fn(usize) -> u32) -> Option<u32> {
        let most = self.case.ask.max_slots_per_leaf.unwrap_or(u32::MAX);
        let mut ones = vec![0; self.case.fabric.len()];
        nodes.iter().for_each(|pos| ones[*pos] = 1);
        let mut leaves: BTreeMap<Option<DomainId>, u32> = BTreeMap::new();
        for pos in nodes {
            *leaves.entry(self.case.fabric.leaf_of(Pos(*pos as u32))).or_default() += takes(*pos);
        }
        let slots = leaves.into_iter().map(|(leaf, sum)| if leaf.is_some() { sum.min(most) } else { sum });
        self.kept_by_leaves(&ones).then(|| slots.sum())
    }

    /// The set of nodes where their number is open: first the fewest nodes that meet the counts and include
    /// the required ones, of these the set that sorts first. Then the fewest further nodes of the heaviest
    /// weight, then of the next, that hold every task, again the first such set. Under caps per leaf nodes
    /// are added one after another until every task fits.
    fn fill(&self, tasks: u32) -> Option<Vec<usize>> {
        let ask = &self.case.ask;
        let takes = |pos: usize| self.has(pos).min(ask.max_tasks_per_node.unwrap_or(u32::MAX));
        let order: Vec<usize> = self.order_flat().into_iter().filter(|&pos| takes(pos) > 0).collect();
        let meets = |set: u32| {
            let has = |pos: usize| order.iter().position(|&o| o == pos).is_some_and(|at| set >> at & 1 == 1);
            ask.required.iter().all(|pos| has(pos.index()))
                && ask
                    .counts
                    .iter()
                    .all(|(counted, need)| counted.ones().filter(|&pos| has(pos)).count() as u32 >= *need)
        };
        let places = |set: u32| (0..order.len()).filter(|at| set >> at & 1 == 1).collect::<Vec<usize>>();
        let held =
            |set: u32| self.held(&places(set).iter().map(|&at| order[at]).collect::<Vec<usize>>(), &takes);
        // A set can be completed if some superset holds the tasks.
        let mut can = vec![false; 1 << order.len()];
        for set in (0..1_u32 << order.len()).rev() {
            let more = (0..order.len()).map(|at| set | 1 << at).any(|more| more != set && can[more as usize]);
            can[set as usize] = more || held(set).is_some_and(|held| held >= tasks);
        }
        let can_be = |set: u32| can[set as usize];
        let first = (0..1_u32 << order.len())
            .filter(|&set| can_be(set) && meets(set))
            .min_by_key(|&set| (set.count_ones(), places(set)))?;
        let mut taken = first;
        if !ask.caps_leaves() {
            let weight = |at: usize| self.weight(order[at]);
            let weights: BTreeSet<u32> = (0..order.len()).map(weight).collect();
            let heavy = |set: u32| -> Vec<usize> {
                let of = |own: &u32| places(set).into_iter().filter(|&at| weight(at) == *own).count();
                weights.iter().rev().map(of).collect()
            };
            taken = (0..1_u32 << order.len())
                .filter(|&set| set & first == first && held(set) >= Some(tasks))
                .min_by_key(|&set| (heavy(set & !first), places(set)))?;
        }
        for at in 0..order.len() {
            let with = taken | 1 << at;
            if held(taken) < Some(tasks) && held(with) > held(taken) && can_be(with) {
                taken = with;
            }
        }
        let mut positions: Vec<usize> = places(taken).iter().map(|&at| order[at]).collect();
        positions.sort_unstable();
        (held(taken) >= Some(tasks) && positions.len() as u32 <= tasks).then_some(positions)
    }

    /// The order in which nodes are taken where the fabric is ignored: lighter nodes first, then nodes with
    /// fewer slots.
    fn order_flat(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.case.fabric.len()).collect();
        order.sort_by_key(|&pos| (self.weight(pos), self.has(pos), pos));
        order
    }

    /// The rank where the fabric is ignored: the places of the nodes in the order by weight and slots. For
    /// consecutive nodes: their number of each weight, then their slots.
    fn steps_flat(&self, amounts: &[u32], positions: &[usize]) -> Vec<i64> {
        if self.case.ask.contiguous {
            let slots = positions.iter().map(|&pos| i64::from(self.has(pos))).sum();
            let mut steps = self.weights(amounts);
            steps.push(slots);
            return steps;
        }
        (0..).zip(self.order_flat()).filter(|&(_, pos)| amounts[pos] > 0).map(|(place, _)| place).collect()
    }

    fn allowed(&self, amounts: &[u32], nodes: u32, used: &[Used]) -> bool {
        let ask = &self.case.ask;
        let one = |layer: usize| used[layer].len() == 1;
        let multiples = ask
            .multiples
            .iter()
            .all(|&(layer, by)| used[layer.index()].values().all(|amount| amount % u64::from(by) == 0));
        let spans = ask.max_spans.iter().all(|&(layer, cap)| used[layer.index()].len() as u32 <= cap);
        self.allowed_flat(amounts, nodes)
            && one(self.layers - 1)
            && ask.must.is_none_or(|layer| one(layer.index()))
            && multiples
            && spans
            && (!ask.whole_leaves || used[1].keys().all(|leaf| !self.is_occupied(DomainId(*leaf))))
            && self.block_rule(nodes, used)
            && self.outline(amounts, &used[1])
            && self.links(used)
    }

    /// True if every domain that a message between two of its nodes can pass is fast enough; for one node,
    /// its leaf.
    fn links(&self, used: &[Used]) -> bool {
        let Some(need) = self.case.ask.min_speed else { return true };
        let common = (1..self.layers).find(|&layer| used[layer].len() == 1).unwrap();
        let fast =
            |id: &u32| self.case.fabric.domain(DomainId(*id)).link().speed.is_some_and(|speed| speed >= need);
        used[1..=common].iter().flat_map(Used::keys).all(fast)
    }

    /// The latency in nanoseconds between two nodes: the least of the lowest common domain and the domains
    /// above it.
    fn latency(&self, used: &[Used]) -> i64 {
        let common = (0..self.layers).find(|&layer| used[layer].len() == 1).unwrap();
        let says = |layer: usize| {
            let (id, _) = used[layer].iter().next().unwrap();
            self.case.fabric.domain(DomainId(*id)).link().latency
        };
        let least = (common..self.layers).filter(|_| common > 0).filter_map(says).min();
        if common == 0 { 0 } else { least.map_or(i64::MAX, |least| least as i64) }
    }

    fn outline(&self, amounts: &[u32], leaves: &Used) -> bool {
        let fabric = &self.case.fabric;
        let side_by_side = |count: u32| -> bool {
            let ids: Vec<DomainId> = leaves.keys().map(|&id| DomainId(id)).collect();
            let parent = fabric.domain(ids[0]).parent();
            let siblings: Vec<DomainId> = match (fabric.plugin(), parent) {
                (Plugin::Block, _) => fabric.domains_of(Layer(1)).collect(),
                (_, Some(parent)) => fabric.domain(parent).children().to_vec(),
                (_, None) => vec![ids[0]],
            };
            let place = |id: &DomainId| siblings.iter().position(|sibling| sibling == id);
            let places: Option<Vec<usize>> = ids.iter().map(place).collect();
            ids.len() as u32 == count && places.is_some_and(|places| are_in_a_row(&places))
        };
        (!self.case.ask.contiguous || are_in_a_row(&taken(amounts)))
            && self.case.ask.adjacent.is_none_or(side_by_side)
    }

    /// True if a job runs in a leaf.
    fn is_occupied(&self, leaf: DomainId) -> bool {
        self.case.fabric.domain(leaf).range().any(|pos| self.case.occupied.contains(pos))
    }

    fn block_rule(&self, nodes: u32, used: &[Used]) -> bool {
        let ask = &self.case.ask;
        if ask.strategy != Strategy::Block {
            return true;
        }
        if let Some(segment) = ask.segment {
            return self.segments(&used[0], segment);
        }
        // Jobs that give only tasks are measured by tasks, all others by nodes.
        let (wanted, size): (u32, &dyn Fn(DomainId) -> u64) = match ask.nodes {
            Some(_) => (nodes, &|id| self.idle_nodes(id)),
            None => (ask.tasks.unwrap(), &|id| self.idle_in(id).map(|(_, slots)| u64::from(slots)).sum()),
        };
        let (within, below, most) = self.containment(wanted.into(), size);
        within.is_none_or(|layer| used[layer].len() == 1) && used[below].len() as u64 <= most
    }

    /// The positions of a domain that have slots when idle, with these slots.
    fn idle_in(&self, id: DomainId) -> impl Iterator<Item = (usize, u32)> {
        let all = self.case.fabric.domain(id).range().map(|pos| (pos, self.case.idle.at(Pos(pos as u32))));
        all.filter(|(_, slots)| *slots > 0)
    }

    fn idle_nodes(&self, id: DomainId) -> u64 {
        self.idle_in(id).count() as u64
    }

    /// The block rule for an amount, from the sizes of domains: the layer at which one domain has to hold it,
    /// if any; the layer below; and the most domains of that layer it may use, the fewest that could hold it
    /// within one holder or root.
    fn containment(&self, wanted: u64, size: &dyn Fn(DomainId) -> u64) -> (Option<usize>, usize, u64) {
        let ids = |layer: usize| -> BTreeSet<DomainId> {
            (0..self.case.fabric.wired()).map(|pos| self.domain(pos, layer).unwrap()).collect()
        };
        let within = (1..self.layers).find(|&layer| ids(layer).into_iter().any(|id| size(id) >= wanted));
        let below = within.unwrap_or(self.layers) - 1;
        if below == 0 {
            return (within, below, u64::MAX);
        }
        let mut holders: BTreeMap<DomainId, BTreeMap<DomainId, u64>> = BTreeMap::new();
        for pos in 0..self.case.fabric.wired() {
            let holder = self.domain(pos, within.unwrap_or(self.layers - 1)).unwrap();
            let unit = self.domain(pos, below).unwrap();
            holders.entry(holder).or_default().entry(unit).or_insert_with(|| size(unit));
        }
        let count = |units: &BTreeMap<DomainId, u64>| -> u64 {
            let mut sizes: Vec<u64> = units.values().copied().collect();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            let enough = (1..=sizes.len()).find(|&count| sizes[..count].iter().sum::<u64>() >= wanted);
            enough.unwrap_or(sizes.len()).max(1) as u64
        };
        let holds =
            |units: &&BTreeMap<DomainId, u64>| within.is_none() || units.values().sum::<u64>() >= wanted;
        (within, below, holders.values().filter(holds).map(count).min().unwrap_or(u64::MAX))
    }

    /// True if the nodes can be divided into segments that each keep the block rule.
    fn segments(&self, nodes: &Used, segment: Segment) -> bool {
        let nodes: Vec<usize> = nodes.keys().map(|&pos| pos as usize).collect();
        let wanted = segment.size as usize;
        if !nodes.len().is_multiple_of(wanted) {
            return false;
        }
        let (within, below, most) = self.containment(wanted as u64, &|id| self.idle_nodes(id));
        let touched = |some: &[usize], layer: usize| -> usize {
            some.iter().map(|&pos| self.domain(pos, layer)).collect::<BTreeSet<_>>().len()
        };
        let one_is_right = |some: &[usize]| {
            within.is_none_or(|layer| touched(some, layer) == 1)
                && (below == 0 || touched(some, below) as u64 <= most)
        };
        if segment.consolidate {
            // Sizes count whole segments, at the layer at which one domain holds a segment; domains below
            // count nodes.
            let home = within.unwrap_or(self.layers - 1);
            let holds = |id: DomainId| -> u64 {
                if self.case.fabric.domain(id).cover().index() < home {
                    return self.idle_nodes(id);
                }
                let range = self.case.fabric.domain(id).range();
                let homes: BTreeSet<DomainId> = range.filter_map(|pos| self.domain(pos, home)).collect();
                let whole = |home: DomainId| {
                    let all: Vec<usize> = self.idle_in(home).map(|(pos, _)| pos).collect();
                    let holds = |count: &usize| self.has_room_for(&all, *count, segment, &one_is_right);
                    (0..=all.len() / wanted).rev().find(holds).unwrap_or(0) * wanted
                };
                homes.into_iter().map(whole).sum::<usize>() as u64
            };
            let (within, below, most) = self.containment(nodes.len() as u64, &holds);
            if within.is_some_and(|layer| touched(&nodes, layer) > 1)
                || below >= home && touched(&nodes, below) as u64 > most
            {
                return false;
            }
        }
        self.has_room_for(&nodes, nodes.len() / wanted, segment, &one_is_right)
    }

    /// True if `count` segments fit on these nodes.
    fn has_room_for(
        &self,
        left: &[usize],
        count: usize,
        segment: Segment,
        one_is_right: &impl Fn(&[usize]) -> bool,
    ) -> bool {
        if count == 0 || left.len() < count * segment.size as usize {
            return count == 0;
        }
        let base = |pos: usize| self.domain(pos, 1);
        let with_first = (0_u32..1 << left.len())
            .filter(|set| set & 1 == 1 && set.count_ones() == segment.size)
            .any(|set| {
                let (some, rest): (Vec<_>, Vec<_>) = (0..left.len()).partition(|&i| set >> i & 1 == 1);
                let some: Vec<usize> = some.into_iter().map(|i| left[i]).collect();
                let is_free = |pos: usize| !segment.spread || some.iter().all(|&one| base(one) != base(pos));
                let rest: Vec<usize> =
                    rest.into_iter().map(|i| left[i]).filter(|&pos| is_free(pos)).collect();
                one_is_right(&some) && self.has_room_for(&rest, count - 1, segment, one_is_right)
            });
        with_first || self.has_room_for(&left[1..], count, segment, one_is_right)
    }

    /// The multiple that each domain of a layer has to hold.
    fn factor(&self, layer: usize) -> i64 {
        let own = self.case.ask.multiples.iter().filter(|(at, _)| at.index() == layer);
        i64::from(super::common_multiple(own.map(|(_, by)| *by)))
    }

    /// The slots of the nodes of a domain once their number is rounded down to a multiple; the surplus nodes
    /// are those with the most slots.
    fn nodes_left(&self, domain: DomainId) -> Vec<i64> {
        let (fabric, slots) = (&self.case.fabric, &self.case.slots);
        let own = fabric.domain(domain);
        let mut nodes: Vec<i64> = match own.children() {
            [] if !self.may_use(domain) => Vec::new(),
            [] => {
                own.range().map(|pos| i64::from(slots.at(Pos(pos as u32)))).filter(|&has| has > 0).collect()
            }
            children => children.iter().flat_map(|&child| self.nodes_left(child)).collect(),
        };
        nodes.sort_unstable();
        for covered in own.layer().index()..=own.cover().index() {
            while nodes.len() as i64 % self.factor(covered) != 0 {
                nodes.pop();
            }
        }
        nodes
    }

    /// True if a leaf may be used.
    fn may_use(&self, leaf: DomainId) -> bool {
        let domain = self.case.fabric.domain(leaf);
        let slow = |need: u64| domain.link().speed.is_none_or(|speed| speed < need);
        !(self.case.ask.whole_leaves && self.is_occupied(leaf) || self.case.ask.min_speed.is_some_and(slow))
    }

    /// Number of slots of a node or domain, after rounding.
    fn slots(&self, unit: u32, is_node: bool) -> i64 {
        if is_node {
            let slots = i64::from(self.case.slots.at(Pos(unit)));
            return slots - slots % self.factor(0);
        }
        if self.case.ask.tasks.is_none() {
            return self.nodes_left(DomainId(unit)).iter().sum();
        }
        let domain = self.case.fabric.domain(DomainId(unit));
        let mut sum: i64 = match domain.children() {
            [] if !self.may_use(DomainId(unit)) => 0,
            [] => domain.range().map(|pos| self.slots(pos as u32, true)).sum(),
            children => children.iter().map(|child| self.slots(child.0, false)).sum(),
        };
        for covered in domain.layer().index()..=domain.cover().index() {
            sum -= sum % self.factor(covered);
        }
        sum
    }

    fn steps(&self, amounts: &[u32], used: &[Used]) -> Vec<i64> {
        let ask = &self.case.ask;
        let mut steps = self.weights(amounts);
        steps.extend(ask.prefer.iter().map(|layer| used[layer.index()].len() as i64));
        if let Some(wanted) = ask.prefer_domain {
            let range = self.case.fabric.domain(wanted).range();
            let outside = (0..amounts.len()).any(|pos| amounts[pos] > 0 && !range.contains(&pos));
            steps.push(i64::from(outside));
        }
        let downwards = || (0..self.layers).rev();
        let common = (0..self.layers).find(|&layer| used[layer].len() == 1).unwrap();
        let holder = *used[common.max(1)].keys().next().unwrap();
        let score_if =
            |counts| (counts && ask.score.any()).then(|| self.score(amounts, holder).saturating_neg());
        if ask.mode == Mode::Distributed {
            steps.extend(downwards().map(|layer| -(used[layer].len() as i64)));
            let square = |layer: usize| used[layer].values().map(|&a| (a * a) as i64).sum::<i64>();
            steps.extend(downwards().map(square));
            steps.extend(score_if(true));
            return steps;
        }
        let score = |before: ScoreBefore| score_if(ask.score.before == before);
        if ask.lowest_latency {
            steps.push(self.latency(used));
        }
        steps.push(common as i64);
        steps.extend(score(ScoreBefore::Span));
        steps.extend(downwards().map(|layer| used[layer].len() as i64));
        if ask.mode == Mode::Balanced {
            for layer in downwards() {
                steps.push(-(*used[layer].values().min().unwrap() as i64));
                steps.push(*used[layer].values().max().unwrap() as i64);
            }
        }
        steps.extend(score(ScoreBefore::Fit));
        let left = |layer: usize| used[layer].keys().map(|&unit| self.slots(unit, layer == 0)).sum::<i64>();
        steps.extend((common..self.layers).map(left));
        steps.extend((0..common).rev().map(left));
        steps.extend(score(ScoreBefore::None));
        steps
    }

    /// The settable score of a domain, as the documentation defines its terms, in millionths.
    fn score(&self, amounts: &[u32], domain: u32) -> i64 {
        let range = self.case.fabric.domain(DomainId(domain)).range();
        let share = |part: usize, whole: usize| {
            (part * 1_000_000).checked_div(whole).map_or(0, |share| share.min(1_000_000))
        };
        let open = range.clone().filter(|&pos| self.has(pos) > 0).count();
        let busy = range.clone().filter(|&pos| self.case.occupied.contains(pos)).count();
        let well =
            |known: &Vec<u32>| range.clone().map(|pos| known[pos] as usize).sum::<usize>() / range.len();
        let filled = amounts.iter().sum::<u32>() as usize;
        let known = self.case.performance.as_ref().map_or(1_000_000, well);
        if let Some(expression) = &self.case.ask.score.expression {
            let count = |count: usize| count as i64 * 1_000_000;
            return expression.value(&[
                share(open, range.len()) as i64,
                share(filled, self.slots(domain, false) as usize) as i64,
                share(busy, range.len()) as i64,
                known as i64,
                count(open),
                count(range.len()),
                count(self.slots(domain, false) as usize),
                count(self.case.fabric.domain(DomainId(domain)).layer().index()),
            ]);
        }
        let weights = self.case.ask.score.weights;
        let terms = [
            (weights.resource_availability, share(open, range.len())),
            (weights.topology_alignment, share(filled, self.slots(domain, false) as usize)),
            (weights.domain_utilisation, share(busy, range.len())),
            (weights.past_performance, known),
        ];
        terms.iter().map(|(weight, term)| i64::from(weight.0) * *term as i64 / 1_000_000).sum()
    }

    /// Number of nodes of each weight but the lightest, the heaviest first.
    fn weights(&self, amounts: &[u32]) -> Vec<i64> {
        if self.case.weights.is_none() {
            return Vec::new();
        }
        let open = (0..amounts.len()).filter(|&pos| self.has(pos) > 0);
        let classes: BTreeSet<u32> = open.map(|pos| self.weight(pos)).collect();
        let taken: Vec<u32> = taken(amounts).into_iter().map(|pos| self.weight(pos)).collect();
        let count = |class: u32| taken.iter().filter(|weight| **weight == class).count() as i64;
        classes.into_iter().skip(1).rev().map(count).collect()
    }
}

/// The positions that give anything.
pub(super) fn taken(amounts: &[u32]) -> Vec<usize> {
    (0..amounts.len()).filter(|&pos| amounts[pos] > 0).collect()
}

fn are_in_a_row(places: &[usize]) -> bool {
    places.windows(2).all(|pair| pair[0] + 1 == pair[1])
}
