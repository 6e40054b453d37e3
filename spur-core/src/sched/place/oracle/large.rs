//! Questions on fabrics that are too large for brute force. With few steps, or one, the special solvers must
//! give the answers of the general search, with the same reasons why other domains lost.

use fixedbitset::FixedBitSet;

use crate::model::fabric::{Fabric, Layer, Pos};
use crate::sched::place::problem::{Meter, Problem};
use crate::sched::place::special::largest_first;

use super::case::{Case, Random};
use super::{Ask, Mode, Segment, Slots, Strategy, View, Weights, common_multiple, each_seed, place, rivals};

/// More steps than any search takes.
const ANY: u64 = 1 << 40;
/// Enough steps for a knapsack over the leaves of such a fabric, but too few for a search.
const FEW: u64 = 10_000;

/// Asks each question twice: with its budget, and of the general search without a limit. Compares the answers
/// and the reasons why up to `most` domains lost. A count that every placement meets keeps the special
/// solvers out of the second.
fn same(count: u64, most: usize, question: impl Fn(&mut Random) -> (Case, u64)) {
    each_seed(count, |random| {
        let (case, budget) = question(random);
        let mut general = Ask { budget: ANY, ..case.ask.clone() };
        general.counts.push((case.slots.open().clone(), 1));
        let answer = |ask: &Ask| {
            let placement = place(&case.view(), ask).map_err(|missed| missed.exact)?;
            let lost = rivals(&case.view(), ask, &placement, most);
            Ok::<_, bool>((placement, lost))
        };
        let (special, general) = (answer(&Ask { budget, ..case.ask.clone() }), answer(&general));
        let is_exact = special.as_ref().map_or_else(|exact| *exact, |(placement, _)| placement.exact);
        let is_right = special == general && is_exact;
        let wrong = || format!("{special:?}, but {general:?}\n{}", case.describe());
        is_right.then_some(general.is_ok()).ok_or_else(wrong)
    });
}

/// Each open node with a probability of one in `times`, at most `most` of them.
fn some(case: &Case, random: &mut Random, (times, most): (u32, usize)) -> Vec<Pos> {
    let open = case.slots.open().ones().filter(|_| random.one_in(times)).take(most);
    open.map(|index| Pos(index as u32)).collect()
}

/// A number from 1 to `all`.
fn part(random: &mut Random, all: usize) -> u32 {
    random.between(1, u32::try_from(all).expect("some hundred").max(1))
}

/// A question about whole nodes.
fn whole(random: &mut Random) -> Case {
    let fabric = random.four_layers([3, 3, 3], 4);
    let slots = random.whole(&fabric);
    let nodes = part(random, slots.nodes());
    Case::new(random, fabric, slots, Ask::nodes(nodes))
}

/// Rounds the job up to multiples of one or two layers.
fn round(case: &mut Case, random: &mut Random, layers: &[Layer], each: u32) {
    let multiples: Vec<(Layer, u32)> = layers.iter().map(|&layer| (layer, random.between(2, 4))).collect();
    let unit = common_multiple(multiples.iter().map(|(_, by)| *by));
    case.ask.multiples = multiples.iter().map(|&(layer, by)| (layer, by * each)).collect();
    if let Some((nodes, _)) = case.ask.nodes {
        let nodes = nodes.next_multiple_of(unit);
        case.ask.nodes = Some((nodes, nodes));
        case.ask.tasks = case.ask.tasks.map(|_| nodes * each);
    } else if let Some(tasks) = case.ask.tasks {
        case.ask.tasks = Some(tasks.next_multiple_of(unit * each));
    }
}

/// Adds preferred layers, a must, or a cap per leaf, each at times.
fn constrain(case: &mut Case, random: &mut Random) {
    case.maybe(random, 3, |case, random| case.ask.prefer = vec![case.layer(random, 1)]);
    case.maybe(random, 4, |case, random| case.ask.must = Some(case.layer(random, 1)));
    case.maybe(random, 3, |case, random| case.ask.max_nodes_per_leaf = Some(random.between(1, 5)));
}

/// Whole nodes with multiples, preferences, caps and a score.
#[test]
fn whole_nodes() {
    same(300, 0, |random| {
        let mut case = whole(random);
        let layers = [case.layer(random, 1), case.layer(random, 1)];
        let count = random.pick(&[0, 0, 1, 2]);
        round(&mut case, random, &layers[..count], 1);
        constrain(&mut case, random);
        case.maybe(random, 4, Case::score);
        (case, 1)
    });
}

/// Tasks or shares on nodes that all have equal slots.
#[test]
fn equal_slots() {
    same(300, 0, |random| {
        let mut case = whole(random);
        let room = random.between(1, 5);
        let each = random.between(1, room);
        let open = case.slots.open().clone();
        let of = |index| if open.contains(index) { room } else { 0 };
        case.slots = Slots::tasks(&case.fabric, (0..case.fabric.len()).map(of).collect());
        case.idle = Slots::tasks(&case.fabric, vec![room; case.fabric.len()]);
        let nodes = case.ask.nodes.map_or(1, |(nodes, _)| nodes);
        match random.between(0, 4) {
            0 => case.ask = Ask { max_tasks_per_node: Some(each), ..Ask::tasks(nodes * each) },
            1 => {
                let tasks = nodes * each - random.between(0, each - 1);
                case.ask = Ask { max_tasks_per_node: Some(each), ..Ask::tasks(tasks) };
            }
            2 => {
                case.ask = Ask::tasks(nodes * room);
                let layers = [case.layer(random, 1)];
                round(&mut case, random, &layers, room);
            }
            3 => {}
            _ => case.ask = Ask::tasks(nodes * room - random.between(0, room - 1)),
        }
        constrain(&mut case, random);
        (case, 1)
    });
}

/// Segments that each fit one base block.
#[test]
fn segments() {
    same(100, 0, |random| {
        let mut case = whole(random);
        case.idle = Slots::whole(&case.fabric, (0..case.fabric.len()).collect());
        let leaves = case.fabric.domains_of(Layer::LEAF);
        let largest = leaves.map(|leaf| case.fabric.domain(leaf).range().len()).max();
        let size = part(random, largest.unwrap_or(1));
        let nodes = case.ask.nodes.map_or(1, |(nodes, _)| nodes).next_multiple_of(size);
        let segment = Some(Segment { size, spread: random.one_in(2), consolidate: false });
        case.ask = Ask { strategy: Strategy::Block, segment, ..Ask::nodes(nodes) };
        constrain(&mut case, random);
        (case, 1)
    });
}

/// Whole nodes of which some have to be used, because they are required or lighter than others; at times with
/// a limit on spans.
#[test]
fn forced_nodes() {
    same(300, 0, |random| {
        let mut case = whole(random);
        case.maybe(random, 2, Case::weigh);
        let are_weighed = case.weights.is_some();
        if !are_weighed || random.one_in(3) {
            case.ask.required = some(&case, random, (6, 4));
        }
        if random.one_in(4) {
            // The solver takes unequal units only where weights are equal.
            let layers = [if are_weighed { Layer::LEAF } else { case.layer(random, 1) }];
            round(&mut case, random, &layers, 1);
        }
        constrain(&mut case, random);
        // Outlines that add nothing: one consecutive node, one adjacent leaf.
        case.ask.contiguous = case.ask.nodes == Some((1, 1)) && random.one_in(2);
        case.ask.adjacent = random.one_in(10).then_some(1);
        case.maybe(random, 5, Case::prefer_a_domain);
        if !are_weighed && random.one_in(2) {
            case.ask.max_spans = vec![(case.layer(random, 1), random.between(1, 6))];
        }
        case.maybe(random, 5, Case::score);
        (case, 1)
    });
}

/// Tasks on nodes with unequal slots.
#[test]
fn tasks() {
    same(100, 0, |random| {
        let fabric = random.four_layers([3, 3, 3], 4);
        let (most, full) = (random.pick(&[3, 7, 16]), random.between(2, 4));
        let takes = (0..fabric.len())
            .map(|_| if random.one_in(full) { 0 } else { random.between(1, most) })
            .collect();
        let slots = Slots::tasks(&fabric, takes);
        let tasks = part(random, slots.total() as usize);
        let mut case = Case::new(random, fabric, slots, Ask::tasks(tasks));
        case.maybe(random, 4, Case::weigh);
        case.maybe(random, 4, |case, random| case.ask.must = Some(case.layer(random, 1)));
        case.maybe(random, 4, |case, random| case.ask.prefer = vec![case.layer(random, 1)]);
        case.maybe(random, 4, |case, random| case.ask.max_tasks_per_node = Some(random.between(1, most)));
        // With preferred layers a higher domain may win, and with weights heavier nodes may be needed: both
        // need a search.
        let is_plain = case.ask.prefer.is_empty() && case.weights.is_none();
        (case, if is_plain { 1 } else { ANY })
    });
}

/// Shares of nodes, some of which other jobs partly use.
#[test]
fn shared_nodes() {
    same(300, 0, |random| {
        let fabric = if random.one_in(3) { random.four_layers([4, 4, 5], 9) } else { random.large_tree() };
        let slots = if random.one_in(2) { random.many_tasks(&fabric) } else { random.shares(&fabric) };
        let nodes = part(random, slots.nodes().min(30));
        let mut case = Case::new(random, fabric, slots, Ask::nodes(nodes));
        let each = random.one_in(3).then(|| random.between(1, 3));
        (case.ask.tasks, case.ask.max_tasks_per_node) = (each.map(|each| nodes * each), each);
        let layers = [case.layer(random, 1), case.layer(random, 1)];
        let count = random.pick(&[0, 1, 1, 2]);
        round(&mut case, random, &layers[..count], each.unwrap_or(1));
        constrain(&mut case, random);
        case.maybe(random, 4, |case, random| {
            case.ask.max_spans = vec![(case.layer(random, 1), random.between(1, 4))]
        });
        case.maybe(random, 4, Case::score);
        (case, ANY)
    });
}

/// Spread jobs.
#[test]
fn spread() {
    same(300, 4, |random| {
        let mut case = whole(random);
        case.slots = match random.between(0, 3) {
            0 | 1 => case.slots,
            2 => random.shares(&case.fabric),
            _ => {
                let most = random.pick(&[1, 2, 5, 9]);
                let takes = (0..case.fabric.len()).map(|_| random.between(0, most));
                Slots::tasks(&case.fabric, takes.collect())
            }
        };
        let by_tasks = !case.slots.are_whole() && random.one_in(2);
        let amount = part(random, if by_tasks { case.slots.total() as usize } else { case.slots.nodes() });
        let ask = if by_tasks { Ask::tasks(amount) } else { Ask::nodes(amount) };
        let mut case = Case::new(random, case.fabric, case.slots, Ask { mode: Mode::Distributed, ..ask });
        for _ in 0..random.between(0, 2) {
            constrain_spread(&mut case, random, amount);
        }
        // With weights and caps, counts do not decide.
        if case.weights.is_some() {
            (case.ask.max_nodes_per_leaf, case.ask.max_slots_per_leaf) = (None, None);
        }
        if case.weights.is_some() || !case.ask.required.is_empty() {
            case.ask.multiples.clear();
        }
        (case, 1)
    });
}

/// Adds a constraint with which counts still decide.
fn constrain_spread(case: &mut Case, random: &mut Random, amount: u32) {
    let by_tasks = case.ask.tasks.is_some();
    match random.between(0, 6) {
        0 => case.ask.must = Some(case.layer(random, 1)),
        1 => case.ask.whole_leaves = true,
        2 if by_tasks => case.ask.max_slots_per_leaf = Some(random.between(1, 9)),
        2 => case.ask.max_nodes_per_leaf = Some(random.between(1, 4)),
        3 if by_tasks => case.ask.max_tasks_per_node = Some(random.between(1, 3)),
        3 => case.weigh(random),
        4 => case.prefer_a_domain(random),
        5 if !by_tasks => case.ask.required = some(case, random, (9, 4)),
        _ => {
            let by = random.between(2, 3);
            let wanted = amount.next_multiple_of(by);
            case.ask.multiples = vec![(if by_tasks { Layer::NODE } else { Layer::LEAF }, by)];
            if by_tasks { case.ask.tasks = Some(wanted) } else { case.ask.nodes = Some((wanted, wanted)) }
        }
    }
}

/// Whole nodes of counted kinds, at times of one kind per leaf.
#[test]
fn counted_kinds() {
    same(100, 3, |random| {
        let mut case = whole(random);
        let kinds = random.between(1, 3);
        let mut all: Vec<u32> = (0..case.fabric.len()).map(|_| random.between(0, kinds)).collect();
        if random.one_in(2) {
            for leaf in case.fabric.domains_of(Layer::LEAF) {
                all[case.fabric.domain(leaf).range()].fill(random.between(0, kinds));
            }
        }
        for kind in 1..=kinds {
            let set: FixedBitSet = (0..all.len()).filter(|&pos| all[pos] == kind).collect();
            case.ask.counts.push((set, random.pick(&[1, 1, 2, 4])));
        }
        let least: u32 = case.ask.counts.iter().map(|(_, count)| count).sum();
        let more = random.pick(&[1, 6, 20]);
        let wanted = least + random.between(0, more);
        case.ask.nodes = Some((wanted, wanted));
        case.maybe(random, 4, |case, random| case.ask.must = Some(case.layer(random, 1)));
        case.ask.whole_leaves = random.one_in(6);
        (case, FEW)
    });
}

/// The reasons why other domains lost to a job of whole nodes.
#[test]
fn losers_of_whole_nodes() {
    for most in [1, 3, 50] {
        same(600, most, |random| {
            let fabric =
                if random.one_in(2) { random.four_layers([3, 3, 3], 4) } else { random.large_tree() };
            // Identical leaves are the rule on an idle machine.
            let slots = random.whole(&fabric);
            let largest = random.pick(&[2, 6, 20]);
            let ask = Ask::nodes(random.between(1, largest));
            let mut case = Case::new(random, fabric, slots, ask);
            case.maybe(random, 3, |case, random| {
                case.ask.prefer = (0..random.between(1, 2)).map(|_| case.layer(random, 1)).collect()
            });
            case.maybe(random, 4, |case, random| case.ask.must = Some(case.layer(random, 1)));
            case.ask.whole_leaves = random.one_in(6);
            (case, ANY)
        });
    }
}

/// Nodes, shares and tasks without a limit on steps, with preferred layers, weights and required nodes.
#[test]
fn any_size() {
    same(400, 0, |random| {
        let fabric = random.large_tree();
        let whole = random.one_in(3);
        let slots = if whole { random.whole(&fabric) } else { random.many_tasks(&fabric) };
        let amount = part(random, (slots.total() as usize).min(if whole { 40 } else { 90 }));
        let are_nodes = whole || random.one_in(4);
        let ask = if are_nodes { Ask::nodes(amount.min(40)) } else { Ask::tasks(amount) };
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(3) {
            case.ask.prefer =
                random.pick(&[&[1][..], &[2], &[1, 2], &[2, 1]]).iter().copied().map(Layer).collect();
        }
        case.maybe(random, 4, |case, _| case.ask.must = Some(Layer(2)));
        if !are_nodes && random.one_in(4) {
            case.ask.max_tasks_per_node = Some(random.between(1, 4));
        }
        case.maybe(random, 4, |case, _| case.ask.mode = Mode::Balanced);
        case.maybe(random, 3, Case::weigh);
        case.maybe(random, 4, |case, random| case.ask.required = some(case, random, (12, 6)));
        case.ask.whole_leaves = random.one_in(4);
        (case, ANY)
    });
}

/// If the best choice takes too long to find, the largest leaves of the largest domains give an allowed
/// placement.
#[test]
fn the_largest_will_do() {
    each_seed(400, |random| {
        let mut case = whole(random);
        constrain(&mut case, random);
        let ask = &case.ask;
        let nodes = ask.nodes.map(|(nodes, _)| nodes);
        let view = case.view();
        let problem = Problem::framed(&view, ask, nodes, &Meter::alone(1));
        let found = problem.as_ref().and_then(largest_first);
        let is_any = place(&view, ask).is_ok();
        let is_judged = problem.zip(found.as_ref()).is_none_or(|(problem, placement)| {
            !placement.exact && problem.judge(&placement.shares).is_some()
        });
        let is_right = found.is_some() == is_any && is_judged;
        is_right.then_some(is_any).ok_or_else(|| format!("{found:?}, placed: {is_any}\n{}", case.describe()))
    });
}

/// Tasks that are too many for a knapsack, on more nodes than labels distinguish, are placed all the same: in
/// as few of the largest domains as possible, and marked as not exact.
#[test]
fn too_large_for_a_walk() {
    let random = &mut Random::new(1);
    let fabric = Random::blocks_of(20, 66_000);
    let by_position = (0..fabric.len()).map(|_| random.between(1, 9)).collect();
    let slots = Slots::tasks(&fabric, by_position);
    let tasks = u32::try_from(slots.total()).unwrap() * 9 / 10;
    let placed = place(&View::new(&fabric, &slots, &slots), &Ask::tasks(tasks)).expect("there is room");
    assert!(!placed.exact);
    assert_eq!(placed.shares.iter().map(|(_, share)| share).sum::<u32>(), tasks);
    assert!(placed.shares.iter().all(|&(pos, share)| (1..=slots.at(pos)).contains(&share)));
    let top = fabric.top().index();
    let mut largest: Vec<u64> =
        fabric.domains_of(Layer(fabric.top().0 - 1)).map(|domain| slots.of(domain)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let sums = largest.iter().scan(0, |sum, slots| {
        *sum += slots;
        Some(*sum)
    });
    let fewest = 1 + sums.take_while(|sum| *sum < u64::from(tasks)).count();
    assert_eq!((placed.spans[top], placed.spans[top - 1] as usize), (1, fewest));
}

/// Ten thousand nodes: light ones take 8 tasks, then heavy ones take 16. 30 light nodes do not take 333
/// tasks; 18 light and 12 heavy ones do, 19 and 11 do not. Even where the search is cut, no more than 12
/// heavy nodes are used.
#[test]
fn no_more_heavy_nodes_where_a_search_is_cut() {
    let fabric: Fabric = Random::blocks_of(20, 10_000);
    let is_light = |pos: usize| pos < 5_000;
    let takes = (0..fabric.len()).map(|pos| if is_light(pos) { 8 } else { 16 }).collect();
    let weights = Weights::new((0..fabric.len()).map(|pos| if is_light(pos) { 1 } else { 5 }).collect());
    let slots = Slots::tasks(&fabric, takes);
    let view = View { weights: Some(&weights), ..View::new(&fabric, &slots, &slots) };
    for multiples in [Vec::new(), vec![(Layer::LEAF, 3)]] {
        let ask = Ask { nodes: Some((30, 30)), budget: 20_000, multiples, ..Ask::tasks(333) };
        let placed = place(&view, &ask).expect("there is room");
        let light = placed.shares.iter().filter(|(pos, _)| is_light(pos.index())).count();
        assert_eq!((light, placed.shares.len()), (18, 30));
    }
}
