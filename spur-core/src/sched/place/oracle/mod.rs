//! Brute force: every placement of small fabrics, judged by the definition alone.
//!
//! Nothing here is shared with the solver but the fabric and the types of the question.

mod budget;
mod case;
mod counted;
mod counted_kinds;
mod filled;
mod judge;
mod loaded;
mod mixed;
mod named;
mod rivals;
mod slots;
mod spread;
mod sure;
mod weighed;
mod windows;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};

use super::{
    Ask, Lost, Misfit, Missed, Mode, Placement, Segment, Slots, Strategy, View, Weights, place, place_or_say,
    rivals,
};
use case::{Case, Random};
use judge::Judge;

/// How many random cases each kind gets; more by the environment, for a long search.
fn cases(default: u64) -> u64 {
    std::env::var("SPUR_ORACLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs random cases and reports the first that is wrong, by its seed.
fn search(kind: &str, count: u64, build: impl Fn(&mut Random) -> Case) {
    let mut inexact = 0_u64;
    each_seed(kind, count, |random| {
        let case = build(random);
        let answer = ask(&case);
        inexact += u64::from(answer.as_ref().is_ok_and(|placement| !placement.exact));
        check(&case, &answer).map_err(|wrong| format!("{wrong}\n{}", case.describe()))
    });
    println!("{kind}: {inexact} of these inexact");
}

/// Asks for every seed, or for that of `SPUR_ORACLE_SEED` alone, whether what it makes is placed; some has to be, and some not.
fn each_seed(kind: &str, count: u64, mut judge: impl FnMut(&mut Random) -> Result<bool, String>) {
    let only: Option<u64> = std::env::var("SPUR_ORACLE_SEED").ok().and_then(|text| text.parse().ok());
    let (mut placed, mut refused) = (0_u64, 0_u64);
    for seed in only.map_or(0..cases(count), |seed| seed..seed + 1) {
        match judge(&mut Random::new(seed)) {
            Ok(true) => placed += 1,
            Ok(false) => refused += 1,
            Err(wrong) => panic!("{kind}, SPUR_ORACLE_SEED={seed}: {wrong}"),
        }
    }
    println!("{kind}: {placed} placed, {refused} refused");
    assert!(only.is_some() || placed > 0 && refused > 0, "{kind}: {placed} placed, {refused} refused");
}

/// An answer that has to be exact; whether it is right if there is one is for `suits` to say, given the best there is.
fn exactly<T: std::fmt::Debug>(
    answer: Result<Placement, Missed>,
    best: Option<T>,
    suits: impl FnOnce(&Placement, &T) -> bool,
) -> Result<bool, String> {
    match (answer, best) {
        (Ok(placement), Some(best)) if placement.exact && suits(&placement, &best) => Ok(true),
        (Err(missed), None) if missed.exact => Ok(false),
        (found, best) => Err(format!("{found:?}, but {best:?}")),
    }
}

/// What a domain that counts up to a layer holds a multiple of.
fn unit(multiples: &[(Layer, u32)], layer: Layer) -> u32 {
    common_multiple(multiples.iter().filter(|(own, _)| *own <= layer).map(|(_, by)| *by))
}

fn common_multiple(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(1, |all, by| (1..).map(|times| times * all).find(|sum| sum % by == 0).unwrap_or(1))
}

/// Open nodes of a domain, rounded at the layers that carry a multiple.
fn open_nodes(fabric: &Fabric, slots: &Slots, multiples: &[(Layer, u32)], id: DomainId) -> u64 {
    let domain = fabric.domain(id);
    let mut rounded: u64 = match domain.children() {
        [] => slots.nodes_of(id).into(),
        children => children.iter().map(|&child| open_nodes(fabric, slots, multiples, child)).sum(),
    };
    for layer in (domain.layer().0..=domain.cover().0).map(Layer) {
        let own = multiples.iter().filter(|(of, _)| *of == layer);
        rounded -= rounded % u64::from(common_multiple(own.map(|(_, by)| *by)));
    }
    rounded
}

fn ask(case: &Case) -> Result<Placement, Misfit> {
    let view = View {
        slots: &case.slots,
        idle: &case.idle,
        occupied: Some(&case.occupied),
        weights: case.weights.as_ref(),
        performance: case.performance.as_deref(),
    };
    place_or_say(&case.fabric, &view, &case.ask)
}

/// Whether the answer is right: Ok says whether there is a placement, Err what is wrong with it.
fn check(case: &Case, answer: &Result<Placement, Misfit>) -> Result<bool, String> {
    let judge = Judge::new(case);
    let best = judge.best();
    match (best, answer) {
        (None, Err(_)) => Ok(false),
        (None, Ok(placement)) => Err(format!("placed although nothing is allowed: {:?}", placement.shares)),
        (Some((_, amounts)), Err(_)) => Err(format!("refused although {amounts:?} is allowed")),
        (Some((rank, amounts)), Ok(placement)) => {
            let mut had = vec![0; case.fabric.len()];
            placement.shares.iter().for_each(|(pos, share)| had[pos.index()] = *share);
            let Some(own) = judge.rank(&had) else {
                return Err(format!("{had:?} is not allowed; {amounts:?} would be"));
            };
            if own != rank && placement.exact {
                return Err(format!("{had:?} ranks {own:?}, but {amounts:?} ranks {rank:?}"));
            }
            if !placement.exact {
                return Ok(true);
            }
            let positions = |amounts: &[u32]| amounts.iter().map(|&amount| amount > 0).collect::<Vec<_>>();
            // Leaves that give the more nodes the less these bring are filled one after the other, which says how many
            // nodes each gives and not that the first nodes are taken.
            let is_first_known = case.ask.leaf_load.is_none();
            if is_first_known && positions(&had) != positions(&amounts) {
                return Err(format!("{had:?} sorts after {amounts:?}, rank {rank:?}"));
            }
            Ok(true)
        }
    }
}

/// Holds the answer to one ask against that to another, which has to be exact, each with the reasons why that many other domains
/// lost; whether there is one.
fn same_answers(case: &Case, short: &Ask, long: &Ask, most: usize) -> Result<bool, String> {
    let view = View {
        occupied: Some(&case.occupied),
        weights: case.weights.as_ref(),
        ..View::new(&case.slots, &case.idle)
    };
    let answer = |ask: &Ask| {
        let placement = place(&case.fabric, &view, ask).ok()?;
        let lost = rivals(&case.fabric, &view, ask, &placement, most);
        Some((placement, lost))
    };
    let (short, long) = (answer(short), answer(long));
    let is_right = short == long && long.as_ref().is_none_or(|(placement, _)| placement.exact);
    is_right.then_some(long.is_some()).ok_or_else(|| format!("{short:?}, but {long:?}\n{}", case.describe()))
}

/// Looking for few rivals leaves out those that cannot be among them, by counts; looking for all leaves out none.
#[test]
fn a_few_rivals_are_the_first_of_all() {
    let mut named = 0;
    // The last one has domains above leaves between the leaves that lost.
    for seed in (0..cases(1500)).chain([4187]) {
        let random = &mut Random::new(seed);
        let fabric = if random.one_in(2) { random.large_tree() } else { random.fabric() };
        let are_shared = random.one_in(4);
        let slots = match random.one_in(3) {
            _ if are_shared => random.shares(&fabric),
            true => random.tasks(&fabric),
            false => random.whole(&fabric),
        };
        let ask = if slots.are_whole() || are_shared {
            Ask::nodes(random.between(1, 6))
        } else {
            Ask::tasks(random.between(1, 9))
        };
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(3) {
            case.constrain(random);
        }
        let view = View { weights: case.weights.as_ref(), ..View::new(&case.slots, &case.idle) };
        let Ok(placement) = place(&case.fabric, &view, &case.ask) else { continue };
        let all = rivals(&case.fabric, &view, &case.ask, &placement, 1000);
        for most in 1..4 {
            let few = rivals(&case.fabric, &view, &case.ask, &placement, most);
            assert_eq!(
                few,
                all[..most.min(all.len())],
                "seed {seed}, {most} of {}\n{}",
                all.len(),
                case.describe()
            );
            named += few.len();
        }
    }
    assert!(named > 0, "no case has rivals");
}

#[test]
fn whole_nodes_plain() {
    search("whole nodes, plain", 2000, |random| {
        let fabric = random.fabric();
        let slots = random.whole(&fabric);
        let ask = Ask::nodes(random.between(1, 6));
        Case::new(random, fabric, slots, ask)
    });
}

#[test]
fn whole_nodes_constrained() {
    search("whole nodes, constrained", 4000, |random| {
        let fabric = random.fabric();
        let slots = random.whole(&fabric);
        let least = random.between(1, 5);
        let mut ask = Ask::nodes(least);
        if random.one_in(3) {
            ask.nodes = Some((least, least + random.between(0, 3)));
        }
        let mut case = Case::new(random, fabric, slots, ask);
        case.constrain(random);
        case
    });
}

#[test]
fn tasks_plain() {
    search("tasks, plain", 1500, |random| {
        let fabric = random.fabric();
        let slots = random.tasks(&fabric);
        let mut ask = Ask::tasks(random.between(1, 9));
        if random.one_in(2) {
            let nodes = random.between(1, 4);
            ask.nodes = Some((nodes, nodes + random.between(0, 1)));
        }
        Case::new(random, fabric, slots, ask)
    });
}

#[test]
fn tasks_constrained() {
    search("tasks, constrained", 3000, |random| {
        let fabric = random.fabric();
        let slots = random.tasks(&fabric);
        let mut ask = Ask::tasks(random.between(1, 9));
        if random.one_in(2) {
            let nodes = random.between(1, 4);
            ask.nodes = Some((nodes, nodes + random.between(0, 1)));
        } else if random.one_in(4) {
            let each = random.between(1, 2);
            ask.tasks_per_node = Some(each);
            ask.tasks = Some(each * random.between(1, 4));
        }
        let mut case = Case::new(random, fabric, slots, ask);
        case.constrain(random);
        case
    });
}

#[test]
fn every_mode() {
    search("balanced and distributed", 3000, |random| {
        let fabric = random.fabric();
        let whole = random.one_in(2);
        let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
        let amount = random.between(1, if whole { 6 } else { 8 });
        let mut ask = if whole { Ask::nodes(amount) } else { Ask::tasks(amount) };
        if !whole && random.one_in(3) {
            let nodes = random.between(1, 4);
            ask.nodes = Some((nodes, nodes));
        }
        ask.mode = if random.one_in(2) { Mode::Balanced } else { Mode::Distributed };
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(2) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn outlines() {
    search("contiguous and adjacent", 3000, |random| {
        let fabric = random.fabric();
        let whole = random.one_in(2);
        let are_shared = !whole && random.one_in(2);
        let slots = match (whole, are_shared) {
            (true, _) => random.whole(&fabric),
            (false, true) => random.shares(&fabric),
            (false, false) => random.tasks(&fabric),
        };
        let amount = random.between(1, 6);
        let mut ask = if whole || are_shared { Ask::nodes(amount) } else { Ask::tasks(amount) };
        match random.between(0, 2) {
            0 => ask.contiguous = true,
            1 => ask.adjacent = Some(random.between(1, 3)),
            _ => {
                ask.contiguous = true;
                ask.adjacent = Some(random.between(1, 2));
            }
        }
        if random.one_in(3) {
            ask.mode = Mode::Balanced;
        }
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(2) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn segments() {
    search("segments", 3000, |random| {
        let fabric = random.fabric();
        let slots = if random.one_in(3) { random.shares(&fabric) } else { random.whole(&fabric) };
        let (size, count) = (random.between(1, 3), random.between(1, 3));
        let mut ask = Ask::nodes(size * count);
        ask.strategy = Strategy::Block;
        ask.segment = Some(Segment { size, spread: random.one_in(2), consolidate: random.one_in(2) });
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(4) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn scores() {
    search("settable score", 3000, |random| {
        let fabric = random.fabric();
        let whole = random.one_in(2);
        let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
        let amount = random.between(1, 6);
        let mut ask = if whole { Ask::nodes(amount) } else { Ask::tasks(amount) };
        if random.one_in(3) {
            ask.mode = if random.one_in(2) { Mode::Balanced } else { Mode::Distributed };
        }
        let mut case = Case::new(random, fabric, slots, ask);
        case.score(random);
        if random.one_in(2) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn flat() {
    search("fabric ignored", 3000, |random| {
        let fabric = random.fabric();
        let whole = random.one_in(2);
        let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
        let amount = random.between(1, 8);
        let mut ask = if whole { Ask::nodes(amount) } else { Ask::tasks(amount) };
        if !whole && random.one_in(2) {
            let nodes = random.between(1, 4);
            ask.nodes = Some((nodes, nodes + random.between(0, 1)));
        }
        ask.strategy = Strategy::Flat;
        let mut case = Case::new(random, fabric, slots, ask);
        case.constrain_flat(random);
        case
    });
}

/// A question on a fabric that is too large for brute force.
fn large(random: &mut Random) -> Case {
    let fabric = random.large_tree();
    let whole = random.one_in(3);
    let slots = if whole { random.whole(&fabric) } else { random.many_tasks(&fabric) };
    let most = u32::try_from(slots.total()).unwrap().clamp(1, if whole { 40 } else { 90 });
    let amount = random.between(1, most);
    let are_shared = !whole && random.one_in(4);
    let mut ask = if whole || are_shared { Ask::nodes(amount.min(40)) } else { Ask::tasks(amount) };
    if random.one_in(3) {
        ask.prefer = vec![Layer(1 + u8::from(random.one_in(2)))];
        if random.one_in(2) {
            ask.prefer.push(Layer(3 - ask.prefer[0].0));
        }
    }
    if random.one_in(4) {
        ask.must = Some(Layer(2));
    }
    if !whole && !are_shared && random.one_in(4) {
        ask.max_tasks_per_node = Some(random.between(1, 4));
    }
    let mut case = Case::new(random, fabric, slots, ask);
    case.ask.budget = 1 << 40;
    if random.one_in(4) {
        case.ask.whole_leaves = true;
    }
    case
}

/// The same without the special solvers, and both answers with what lost against them. A limit on the span of the top layer
/// that can never bind keeps an ask from taking them.
fn both_ways(case: &Case) -> [Option<(Placement, Vec<Lost>)>; 2] {
    let mut long = case.ask.clone();
    long.max_spans.push((case.fabric.top(), 1));
    let view = View {
        occupied: Some(&case.occupied),
        weights: case.weights.as_ref(),
        ..View::new(&case.slots, &case.idle)
    };
    [&case.ask, &long].map(|ask| {
        let placement = place(&case.fabric, &view, ask).ok()?;
        let lost = rivals(&case.fabric, &view, ask, &placement, 3);
        Some((placement, lost))
    })
}

/// The special solvers of the common cases give what the full search gives.
#[test]
fn short_cuts_change_nothing() {
    for seed in 0..cases(400) {
        let random = &mut Random::new(seed);
        let mut case = large(random);
        if random.one_in(4) {
            case.ask.mode = Mode::Balanced;
        }
        let [short, long] = both_ways(&case);
        assert_eq!(short, long, "SPUR_ORACLE_SEED={seed}: {}", case.describe());
    }
}

/// The same where nodes weigh unequally much, or some are required. A count that any placement meets keeps an ask from
/// being one of counts alone.
#[test]
fn short_cuts_change_nothing_by_weight() {
    for seed in 0..cases(100) {
        let random = &mut Random::new(seed);
        let mut case = large(random);
        let heaviest = random.between(1, 3);
        case.weights = Some(random.weights(&case.fabric, heaviest));
        if heaviest == 1 || random.one_in(3) {
            let open = case.slots.open().ones().filter(|_| random.one_in(12)).take(6);
            case.ask.required = open.map(|index| Pos(index as u32)).collect();
        }
        let mut long = case.ask.clone();
        long.counts.push((case.slots.open().clone(), 1));
        let view = View {
            occupied: Some(&case.occupied),
            weights: case.weights.as_ref(),
            ..View::new(&case.slots, &case.idle)
        };
        let [short, long] = [&case.ask, &long].map(|ask| place(&case.fabric, &view, ask).ok());
        assert_eq!(short, long, "SPUR_ORACLE_SEED={seed}: {}", case.describe());
    }
}

/// Tasks on nodes that all take as many are placed like whole nodes. A count that any placement meets keeps an ask from
/// being turned into one about nodes.
#[test]
fn tasks_on_equal_nodes() {
    for seed in 0..cases(400) {
        let random = &mut Random::new(seed);
        let fabric = random.large_tree();
        let each = random.between(1, 5);
        let open = random.whole(&fabric).open().clone();
        let by_position =
            (0..fabric.len()).map(|index| if open.contains(index) { each } else { 0 }).collect();
        let slots = Slots::tasks(&fabric, by_position);
        let amount = random.between(1, u32::try_from(slots.total()).unwrap().clamp(1, 24));
        let nodes = amount.div_ceil(each);
        let exactly = random.one_in(2).then_some((nodes, nodes));
        let mut ask = Ask { nodes: exactly, ..Ask::tasks(amount) };
        if random.one_in(4) {
            ask.prefer = vec![Layer::LEAF];
        }
        if random.one_in(4) {
            ask.must = Some(Layer(2));
        }
        let mut long = ask.clone();
        long.counts.push((open, 1));
        let view = View::new(&slots, &slots);
        let (short, long) = (place(&fabric, &view, &ask), place(&fabric, &view, &long));
        assert_eq!(short.ok(), long.ok(), "SPUR_ORACLE_SEED={seed}: {ask:?}");
    }
}

/// What is too large for a walk, on more nodes than are told apart, is placed all the same, in as few of the largest domains as
/// will do, and says that it may not be the best.
#[test]
fn too_large_for_a_walk() {
    let random = &mut Random::new(1);
    let fabric = Random::blocks_of(20, 66_000);
    let by_position = (0..fabric.len()).map(|_| random.between(1, 9)).collect();
    let slots = Slots::tasks(&fabric, by_position);
    let tasks = u32::try_from(slots.total()).unwrap() * 9 / 10;
    let placed = place(&fabric, &View::new(&slots, &slots), &Ask::tasks(tasks)).expect("there is room");
    assert!(!placed.exact);
    assert_eq!(placed.shares.iter().map(|(_, share)| share).sum::<u32>(), tasks);
    assert!(placed.shares.iter().all(|&(pos, share)| (1..=slots.at(pos)).contains(&share)));
    let top = fabric.top().index();
    let below: Vec<u64> =
        fabric.domains_of(Layer(fabric.top().0 - 1)).map(|domain| slots.of(domain)).collect();
    let (mut largest, mut sum) = (below, 0);
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let fewest = 1 + largest
        .iter()
        .take_while(|&&slots| {
            sum += slots;
            sum < u64::from(tasks)
        })
        .count();
    assert_eq!((placed.spans[top], placed.spans[top - 1] as usize), (1, fewest));
}
