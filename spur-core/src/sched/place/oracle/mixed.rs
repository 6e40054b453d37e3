//! Kinds of questions in which several options meet.

use crate::model::fabric::{Fabric, Layer};

use super::case::{Case, Random};
use super::{Ask, Mode, Segment, Strategy, View, ask, check, common_multiple, each_seed, place, search};

/// Something that a question may ask besides its size.
type Wish = fn(&mut Case, &mut Random);

/// Asks questions of any size on some fabrics, with every wish one time in so many.
fn mix(kind: &str, fabric: fn(&mut Random) -> Fabric, wishes: &[(u32, Wish)]) {
    search(kind, 3000, |random| {
        let fabric = fabric(random);
        let mut case = any_size(random, fabric);
        for (times, wish) in wishes {
            if random.one_in(*times) {
                wish(&mut case, random);
            }
        }
        case
    });
}

/// A random number of whole nodes, of nodes that are shared, or of tasks, with a range or a number of nodes at times.
fn any_size(random: &mut Random, fabric: Fabric) -> Case {
    let whole = random.one_in(2);
    let are_shared = !whole && random.one_in(4);
    let are_nodes = whole || are_shared;
    let slots = match (whole, are_shared) {
        (true, _) => random.whole(&fabric),
        (false, true) => random.shares(&fabric),
        (false, false) => random.tasks(&fabric),
    };
    let amount = random.between(1, if are_nodes { 6 } else { 8 });
    let mut ask = if are_nodes { Ask::nodes(amount) } else { Ask::tasks(amount) };
    if are_nodes && random.one_in(4) {
        ask.nodes = Some((amount, amount + random.between(1, 3)));
    } else if !are_nodes && random.one_in(3) {
        let nodes = random.between(1, 4);
        ask.nodes = Some((nodes, nodes + random.between(0, 1)));
    } else if !are_nodes && random.one_in(5) {
        let each = random.between(1, 2);
        ask.tasks_per_node = Some(each);
        ask.tasks = Some(each * random.between(1, 4));
    }
    Case::new(random, fabric, slots, ask)
}

fn any_mode(case: &mut Case, random: &mut Random) {
    case.ask.mode = match random.between(0, 5) {
        0 => Mode::Balanced,
        1 => Mode::Distributed,
        _ => Mode::Consolidated,
    };
}

fn contiguous(case: &mut Case, _: &mut Random) {
    case.ask.contiguous = true;
}

fn tree_or_flat(case: &mut Case, random: &mut Random) {
    case.ask.strategy = if random.one_in(2) { Strategy::Tree } else { Strategy::Flat };
}

#[test]
fn shared_nodes() {
    search("nodes that are shared", 3000, |random| {
        let fabric = random.fabric();
        let slots = random.shares(&fabric);
        let amount = random.between(1, 6);
        let mut ask = Ask::nodes(amount);
        if random.one_in(4) {
            ask.nodes = Some((amount, amount + random.between(1, 3)));
        }
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(2) {
            case.constrain(random);
        }
        if random.one_in(4) {
            any_mode(&mut case, random);
        }
        case
    });
}

/// With a budget of one step nothing is searched: what is then said to be exact is so all the same, a refusal as well. Limits,
/// and tasks next to a number of nodes, are mostly kept by the best choice without them.
#[test]
fn limits_with_one_step() {
    let (mut exact, mut rough) = (0, 0);
    each_seed("limits, with one step", 3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        if case.ask.tasks.is_some() && random.one_in(2) {
            let nodes = random.between(1, 4);
            case.ask.nodes = Some((nodes, nodes));
        }
        if random.one_in(2) {
            case.count_kinds(random);
        }
        if random.one_in(2) {
            case.limit_leaves(random);
            case.ask.adjacent = None;
        }
        if random.one_in(3) {
            case.constrain(random);
        }
        case.ask.budget = 1;
        let answer = ask(&case);
        let is_exact = answer.as_ref().map_or_else(|misfit| misfit.exact, |placement| placement.exact);
        exact += u64::from(is_exact);
        rough += u64::from(!is_exact);
        if answer.is_err() && !is_exact {
            return Ok(false);
        }
        check(&case, &answer).map_err(|wrong| format!("{wrong}\n{}", case.describe()))
    });
    println!("{exact} exact, {rough} not");
    assert!(exact > 2 * rough, "{exact} exact, {rough} not");
}

/// Shares of nodes on fabrics that are too large for brute force, with what counts over leaves: a count that any placement
/// meets keeps an ask from the special solvers.
#[test]
fn shared_nodes_without_short_cuts() {
    each_seed("nodes that are shared, without short cuts", 300, |random| {
        let fabric = if random.one_in(3) { random.four_layers() } else { random.large_tree() };
        let slots = if random.one_in(2) { random.many_tasks(&fabric) } else { random.shares(&fabric) };
        let open = u32::try_from(slots.nodes()).expect("a few hundred");
        let layer = |random: &mut Random| {
            Layer(u8::try_from(random.between(1, fabric.top().0.into())).expect("a few"))
        };
        let mut ask = Ask { budget: 1 << 40, ..Ask::nodes(random.between(1, open.clamp(1, 30))) };
        for _ in 0..random.pick(&[0, 1, 1, 2]) {
            ask.multiples.push((layer(random), random.between(2, 4)));
        }
        let unit = common_multiple(ask.multiples.iter().map(|(_, by)| *by));
        ask.nodes = ask.nodes.map(|(nodes, _)| (nodes.next_multiple_of(unit), nodes.next_multiple_of(unit)));
        if random.one_in(3) {
            ask.max_nodes_per_leaf = Some(random.between(1, 5));
        }
        for _ in 0..random.pick(&[0, 1, 2]) {
            ask.prefer.push(layer(random));
        }
        ask.prefer.dedup();
        if random.one_in(4) {
            ask.max_spans.push((layer(random), random.between(1, 4)));
        }
        if random.one_in(4) {
            ask.must = Some(layer(random));
        }
        if random.one_in(4) {
            ask.score = random.score(fabric.len()).0;
        }
        if random.one_in(3) {
            let each = random.between(1, 3);
            ask.tasks = ask.nodes.map(|(nodes, _)| nodes * each);
            ask.tasks_per_node = Some(each);
            ask.multiples.iter_mut().for_each(|(_, by)| *by *= each);
        }
        let mut long = ask.clone();
        long.counts.push((slots.open().clone(), 1));
        let view = View::new(&slots, &slots);
        let [short, long] =
            [&ask, &long].map(|ask| place(&fabric, &view, ask).map_err(|missed| missed.exact));
        let is_right = short == long && !matches!(short, Err(false));
        let placed = short.is_ok();
        if is_right { Ok(placed) } else { Err(format!("{short:?}, but {long:?}: {ask:?}")) }
    });
}

#[test]
fn shared_nodes_of_no_fabric() {
    search("nodes that are shared, the fabric ignored", 1000, |random| {
        let fabric = if random.one_in(2) { random.bare_fabric() } else { random.fabric() };
        let slots = random.shares(&fabric);
        let amount = random.between(1, 6);
        let mut case = Case::new(random, fabric, slots, Ask::nodes(amount));
        tree_or_flat(&mut case, random);
        case.constrain_flat(random);
        case
    });
}

#[test]
fn networks() {
    let wishes: [(u32, Wish); 3] = [(1, Case::network), (1, any_mode), (3, Case::constrain)];
    mix("speed and latency of links", Random::linked_fabric, &wishes);
}

#[test]
fn bare() {
    let wishes: [(u32, Wish); 2] = [(1, tree_or_flat), (1, Case::constrain_flat)];
    mix("no topology", Random::bare_fabric, &wishes);
}

#[test]
fn kinds_of_nodes() {
    let wishes: [(u32, Wish); 3] = [(1, Case::count_kinds), (1, any_mode), (2, Case::constrain)];
    mix("counted features", Random::fabric, &wishes);
}

#[test]
fn consecutive_and_more() {
    let wishes: [(u32, Wish); 5] =
        [(1, contiguous), (1, any_mode), (2, Case::count_kinds), (2, Case::weigh), (3, Case::constrain)];
    mix("contiguous with counts and weights", Random::fabric, &wishes);
}

#[test]
fn limits_of_leaves() {
    let wishes: [(u32, Wish); 2] = [(1, Case::limit_leaves), (3, Case::constrain)];
    mix("whole, adjacent and capped leaves with multiples", Random::fabric, &wishes);
}

#[test]
fn preferred_domains() {
    let wishes: [(u32, Wish); 5] = [
        (1, Case::prefer_a_domain),
        (1, any_mode),
        (6, contiguous),
        (4, Case::limit_leaves),
        (2, Case::constrain),
    ];
    mix("a preferred domain with all else", Random::fabric, &wishes);
}

#[test]
fn deep_segments() {
    search("segments over several blocks", 3000, |random| {
        let fabric = random.deep_fabric();
        let size = random.between(2, 5);
        let nodes = size * random.between(1, 3);
        let whole = fabric.len() > 8 || random.one_in(2);
        let are_shared = random.one_in(3);
        let slots = match (whole, are_shared) {
            (_, true) => random.shares(&fabric),
            (true, false) => random.whole(&fabric),
            (false, false) => random.tasks(&fabric),
        };
        let mut ask = Ask::nodes(nodes);
        ask.tasks = (!whole && !are_shared).then(|| nodes + random.between(0, 3));
        ask.strategy = Strategy::Block;
        ask.segment = Some(Segment { size, spread: random.one_in(3), consolidate: random.one_in(3) });
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(3) {
            case.require(random);
        }
        if random.one_in(4) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn anything() {
    let wishes: [(u32, Wish); 8] = [
        (1, any_mode),
        (3, Case::network),
        (3, Case::limit_leaves),
        (3, Case::count_kinds),
        (3, Case::weigh),
        (5, contiguous),
        (4, Case::score),
        (1, Case::constrain),
    ];
    mix("everything at once", Random::linked_fabric, &wishes);
}
