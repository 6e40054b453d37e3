//! Brute force: every placement of small fabrics, judged by the definition alone.
//!
//! Nothing here is shared with the solver but the fabric and the types of the question. `judge` is the definition, `kinds` are
//! the kinds of questions on small fabrics, `named` those that were answered wrongly once. On larger ones `windows` tries every
//! window, `large` holds the special solvers to the general search, and `budget` says what the default budget must not lose.

mod budget;
mod case;
mod judge;
mod kinds;
mod large;
mod named;
mod slots;
mod windows;

use crate::model::fabric::{Fabric, Layer, Pos};

use super::{
    Ask, LeafLoad, Misfit, Missed, Mode, Placement, Segment, Slots, Strategy, View, Weights, place,
    place_or_say, rivals,
};
use case::{Case, Random};
use judge::Judge;

/// How many random cases each kind gets; more by the environment, for a long search.
fn cases(default: u64) -> u64 {
    std::env::var("SPUR_ORACLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
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

fn common_multiple(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(1, |all, by| (1..).map(|times| times * all).find(|sum| sum % by == 0).unwrap_or(1))
}

fn ask(case: &Case) -> Result<Placement, Misfit> {
    place_or_say(&case.view(), &case.ask)
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
            let had = case.amounts(placement);
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
        case.maybe(random, 3, Case::constrain);
        let view = case.view();
        let Ok(placement) = place(&view, &case.ask) else { continue };
        let all = rivals(&view, &case.ask, &placement, 1000);
        for most in 1..4 {
            let few = rivals(&view, &case.ask, &placement, most);
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
