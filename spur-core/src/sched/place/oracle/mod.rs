//! Brute force: every placement of small fabrics, judged by the definition alone.
//!
//! The judge shares nothing with the solvers but the fabric and the types of the question. `judge` is the
//! definition, `kinds` has kinds of questions on small fabrics, `named` questions that were answered wrongly
//! once. On larger fabrics, `windows` tries every window, `large` compares the special solvers with the
//! general search, and `budget` checks that the default budget loses nothing.

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
    Ask, LeafLoad, Misfit, Mode, Placement, Segment, Slots, Strategy, View, Weights, place, place_or_say,
    rivals,
};
use case::{Case, Random};
use judge::{Judge, taken};

/// Number of random cases of each kind; the environment variable `SPUR_ORACLE_CASES` raises it for a long
/// search.
fn cases(default: u64) -> u64 {
    std::env::var("SPUR_ORACLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Judges one random question for each of `count` seeds. At least one must be placed and one refused.
fn each_seed(count: u64, judge: impl FnMut(&mut Random) -> Result<bool, String>) {
    each_of(0..cases(count), judge);
}

/// Judges one random question for each seed, or for the seed in `SPUR_ORACLE_SEED` alone.
fn each_of(seeds: impl Iterator<Item = u64>, mut judge: impl FnMut(&mut Random) -> Result<bool, String>) {
    let only: Option<u64> = std::env::var("SPUR_ORACLE_SEED").ok().and_then(|text| text.parse().ok());
    let (mut placed, mut refused) = (0_u64, 0_u64);
    let seeds = seeds.filter(|_| only.is_none()).chain(only);
    for seed in seeds {
        match judge(&mut Random::new(seed)) {
            Ok(true) => placed += 1,
            Ok(false) => refused += 1,
            Err(wrong) => panic!("SPUR_ORACLE_SEED={seed}: {wrong}"),
        }
    }
    println!("{placed} placed, {refused} refused");
    assert!(only.is_some() || placed > 0 && refused > 0, "{placed} placed, {refused} refused");
}

fn common_multiple(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(1, |all, by| (1..).map(|times| times * all).find(|sum| sum % by == 0).unwrap_or(1))
}

/// Checks an answer. `Ok` says whether there is a placement, `Err` what is wrong.
fn check(case: &Case, answer: &Result<Placement, Misfit>) -> Result<bool, String> {
    let judge = Judge::new(case);
    let wrong = match (judge.best(), answer) {
        (None, Err(_)) => return Ok(false),
        (None, Ok(placement)) => format!("placed although nothing is allowed: {:?}", placement.shares),
        (Some((_, amounts)), Err(_)) => format!("refused although {amounts:?} is allowed"),
        (Some((rank, amounts)), Ok(placement)) => {
            let had = case.amounts(placement);
            // Where GPUs are capped, the solver decides how many nodes a leaf gives, not that they are the
            // first ones.
            let is_first_known = case.ask.leaf_load.is_none();
            match judge.rank(&had) {
                None => format!("{had:?} is not allowed; {amounts:?} would be"),
                Some(_) if !placement.exact => return Ok(true),
                Some(own) if own != rank => format!("{had:?} ranks {own:?}, but {amounts:?} ranks {rank:?}"),
                Some(_) if is_first_known && taken(&had) != taken(&amounts) => {
                    format!("{had:?} sorts after {amounts:?}, rank {rank:?}")
                }
                Some(_) => return Ok(true),
            }
        }
    };
    Err(format!("{wrong}\n{}", case.describe()))
}

/// A search for a few losers skips domains by counts; the result must equal the first of a search for all
/// losers.
#[test]
fn a_few_rivals_are_the_first_of_all() {
    let mut named = 0;
    // The last seed has domains above leaves between the leaves that lost.
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
