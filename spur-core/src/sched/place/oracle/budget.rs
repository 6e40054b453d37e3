//! Checks that the default budget loses nothing, on fabrics of the size of a site, where not every placement
//! can be tried.
//!
//! Every answer is allowed by the definition. One check leaves out a constraint. If the answer still keeps
//! this constraint, the whole question must have an answer, too. That answer ranks no worse by the first
//! steps. An answer that is marked exact stays the same with a budget fifty times as large.

use crate::sched::place::Slots;

use super::case::{Case, Random};
use super::judge::Judge;
use super::{Ask, Layer, Misfit, Mode, Placement, Strategy, cases, each_of};

/// The name of a constraint or preference, and a function that removes it from an ask.
type Without = (&'static str, fn(&mut Ask));

const PARTS: [Without; 11] = [
    ("a mode", |ask| ask.mode = Mode::Consolidated),
    ("a must", |ask| ask.must = None),
    ("spans", |ask| ask.max_spans.clear()),
    ("multiples", |ask| ask.multiples.clear()),
    ("a cap on nodes", |ask| ask.max_nodes_per_leaf = None),
    ("a cap on slots", |ask| ask.max_slots_per_leaf = None),
    ("named nodes", |ask| ask.required.clear()),
    ("counts", |ask| ask.counts.clear()),
    ("an outline", |ask| (ask.contiguous, ask.adjacent) = (false, None)),
    ("preferred layers", |ask| ask.prefer.clear()),
    ("a preferred domain", |ask| ask.prefer_domain = None),
];

/// Factor for the budget that must change no exact answer.
const MORE: u64 = 50;

fn slots(random: &mut Random, fabric: &super::Fabric) -> Slots {
    match random.between(0, 3) {
        0 => random.whole(fabric),
        1 => random.shares(fabric),
        2 => random.many_tasks(fabric),
        _ => {
            // Nodes that other jobs partly use.
            let most = random.pick(&[4, 8, 16]);
            let free = |random: &mut Random| if random.one_in(2) { most } else { random.between(0, most) };
            Slots::tasks(fabric, (0..fabric.len()).map(|_| free(random)).collect())
        }
    }
}

fn case(random: &mut Random) -> Case {
    let fabric = random.site();
    let slots = slots(random, &fabric);
    let (open, all) = (slots.nodes() as u32, slots.iter().map(|(_, slots)| slots).sum::<u32>());
    let part = random.pick(&[2, 3, 4, 8]);
    let nodes = random.between(1, (open / part).max(1));
    let mut ask = Ask::nodes(nodes);
    if !slots.are_whole() && !random.one_in(4) {
        ask = Ask::tasks(random.between(1, (all / part).max(1)));
        if random.one_in(2) {
            let tasks = ask.tasks.unwrap_or(1);
            let least = random.between(tasks * open / all.max(1), tasks).clamp(1, open.max(1));
            ask.nodes = Some((least, least));
        }
    }
    let mut case = Case::new(random, fabric, slots, ask);
    case.ask.mode = random.pick(&[Mode::Consolidated, Mode::Balanced, Mode::Distributed]);
    for _ in 0..random.between(0, 3) {
        constrain(&mut case, random);
    }
    case
}

fn constrain(case: &mut Case, random: &mut Random) {
    let layer = |case: &Case, random: &mut Random| case.layer(random, 1);
    let amount = case.ask.tasks.or(case.ask.nodes.map(|(nodes, _)| nodes)).unwrap_or(1);
    match random.between(0, 12) {
        0 => case.ask.must = Some(layer(case, random)),
        1 | 2 => {
            let by = random.between(2, 4);
            let rounded = amount.next_multiple_of(by);
            match case.ask.tasks {
                Some(_) => case.ask.tasks = Some(rounded),
                None => case.ask.nodes = Some((rounded, rounded)),
            }
            case.ask.multiples = vec![(Layer::LEAF, by)];
        }
        3 | 4 => case.ask.max_spans = vec![(layer(case, random), random.between(1, 14))],
        5 | 6 => case.ask.prefer = vec![layer(case, random)],
        7 => case.prefer_a_domain(random),
        8 => case.weigh(random),
        9 => case.ask.max_nodes_per_leaf = Some(random.between(1, 6)),
        10 => case.ask.max_slots_per_leaf = Some(random.between(2, 40)),
        11 => case.ask.counts = vec![(random.half(&case.fabric), random.between(1, 6))],
        _ => match random.between(0, 3) {
            0 => case.ask.strategy = Strategy::Block,
            1 => case.require(random),
            2 => case.ask.contiguous = true,
            _ => case.ask.adjacent = Some(random.between(1, 4)),
        },
    }
}

/// Number of leading steps of a rank that come before everything that depends on the mode.
fn wishes(case: &Case) -> usize {
    let weights = case.weights.as_ref().map_or(0, |weights| weights.known().len());
    weights + case.ask.prefer.len() + usize::from(case.ask.prefer_domain.is_some())
}

fn check(case: &Case) -> Result<bool, String> {
    let judge = Judge::new(case);
    let found = case.answer(&case.ask);
    let rank = match &found {
        Ok(placement) => {
            Some(judge.rank(&case.amounts(placement)).ok_or(format!("{placement:?} is not allowed"))?)
        }
        Err(_) => None,
    };
    let is_exact = found.as_ref().map_or_else(|misfit| misfit.exact, |placement| placement.exact);
    for (name, leave_out) in PARTS {
        let mut ask = case.ask.clone();
        leave_out(&mut ask);
        let Some(other) = case.answer(&ask).ok().filter(|_| ask != case.ask) else { continue };
        let Some(theirs) = judge.rank(&case.amounts(&other)) else { continue };
        let Some(own) = &rank else {
            let shares = other.shares;
            return Err(format!(
                "nowhere (exact: {is_exact}), but without {name} {shares:?} keeps everything"
            ));
        };
        let first = if is_exact { own.len() } else { wishes(case) };
        if own[..first] > theirs[..first] {
            return Err(format!("{own:?} (exact: {is_exact}), but without {name} {theirs:?}: {other:?}"));
        }
    }
    if is_exact {
        let more = case.answer(&Ask { budget: case.ask.budget * MORE, ..case.ask.clone() });
        let shares =
            |found: &Result<Placement, Misfit>| found.as_ref().ok().map(|found| found.shares.clone());
        if shares(&more) != shares(&found) {
            let theirs = more.as_ref().ok().and_then(|more| judge.rank(&case.amounts(more)));
            return Err(format!(
                "exact, but {rank:?} and {theirs:?} with a larger budget\n{found:?}\n{more:?}"
            ));
        }
    }
    Ok(found.is_ok())
}

#[test]
fn nothing_is_lost_with_the_default_budget() {
    // The last seed asks for shared nodes, solved layer by layer.
    each_of((0..cases(40)).chain([10_911]), |random| {
        let case = case(random);
        check(&case).map_err(|wrong| format!("{wrong}\n{}", case.describe()))
    });
}
