//! Jobs made up by the model of Lublin and Feitelson ("The workload on parallel supercomputers: modeling the
//! characteristics of rigid jobs", Journal of Parallel and Distributed Computing 63(11), 2003), with the parameters
//! published there for all jobs together.
//!
//! - Size: a share of the jobs is serial. Of the others, the logarithm to base 2 is drawn from two joined uniform
//!   distributions, the upper end being the machine; most are then rounded to a power of two.
//! - Run time: its logarithm is drawn from one of two gamma distributions; large jobs are likelier to be long.
//! - Arrival: gaps are drawn in the time of the busiest hours, and stretched over the day by a daily cycle of 48 half
//!   hours, which is a gamma distribution as well.
//!
//! Chance comes from a generator that is seeded and part of this file, so that a seed gives the same jobs everywhere.

use std::sync::Arc;

use super::deed::{Arrival, Ask, Deed, Users, What, Workload, scaled};
use spur_core::model::job::{Shape, Sharing};
use spur_core::text::nodes::NodeCount;

/// The share of jobs that use one processor.
const SERIAL: f64 = 0.244;
/// The share of the others whose size is a power of two.
const POWER_OF_TWO: f64 = 0.576;
/// Ends of the lower uniform distribution of log2(size): the second is so far below the largest size.
const LOW: f64 = 0.8;
const BELOW_HIGH: f64 = 2.5;
/// How often the lower one is drawn from.
const LOWER: f64 = 0.86;

/// Shape and scale of the two gamma distributions of ln(run time).
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
/// The probability of the first: slope in the size, and intercept.
const SLOPE: f64 = -0.0054;
const INTERCEPT: f64 = 0.78;
/// The largest ln(run time): about 45 hours.
const LONGEST: f64 = 12.0;

/// Shape and scale of ln(gap) in busy hours, and how much longer gaps are over the whole day.
const GAP: (f64, f64) = (10.2303, 0.4871);
const RUSH_TO_ALL: f64 = 1.0225;
/// The largest ln(gap): about five days.
const LONGEST_GAP: f64 = 13.0;
/// Shape and scale of the daily cycle, in half hours.
const CYCLE: (f64, f64) = (8.1737, 3.9631);
const BUCKETS: usize = 48;
const BUCKET_SECONDS: f64 = 1800.0;

/// What is to be made up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) jobs: u32,
    /// The largest size.
    pub(super) largest: u32,
    pub(super) seed: u64,
    /// The offered load to scale arrivals to: work that arrives over what a machine of `machine` can do.
    pub(super) load: Option<f64>,
    pub(super) machine: u32,
    /// Whether sizes are whole nodes, or processors that are only counted.
    pub(super) whole_nodes: bool,
}

/// One job: when, on how many nodes or processors, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    at: u64,
    size: u32,
    run: u64,
}

/// Makes up a workload.
pub(super) fn workload(wish: &Wish) -> Workload {
    let mut jobs = draw(wish);
    if let Some(load) = wish.load {
        stretch(&mut jobs, load, wish.machine);
    }
    let owner = Users::default().owner("lublin");
    let shape = |size: u32| match wish.whole_nodes {
        true => {
            Shape { nodes: Some(NodeCount::exactly(size)), sharing: Sharing::Exclusive, ..Shape::default() }
        }
        false => Shape { tasks: Some(1), cpus_per_task: Some(size), ..Shape::default() },
    };
    let deed = |(index, job): (usize, &Job)| {
        let arrival = Arrival {
            name: Arc::from((index + 1).to_string()),
            owner: Arc::clone(&owner),
            run_time: Some(job.run),
            ask: Ask::Shape(shape(job.size), Some(job.run)),
        };
        Deed { at: job.at, line: index + 1, what: What::Submit(Box::new(arrival)) }
    };
    let deeds = jobs.iter().enumerate().map(deed).collect();
    Workload { source: "the lublin model".to_owned(), deeds, skipped: None }
}

fn draw(wish: &Wish) -> Vec<Job> {
    let mut chance = Chance(wish.seed);
    let mut clock = Clock::new();
    let mut jobs = Vec::with_capacity(wish.jobs as usize);
    for _ in 0..wish.jobs {
        let at = clock.arrival(&mut chance);
        let size = size(&mut chance, wish.largest);
        let run = run_time(&mut chance, size);
        jobs.push(Job { at, size, run });
    }
    jobs
}

/// Scales arrivals so that the work of the jobs over the time of their arrival is `load` times what the machine does.
#[expect(clippy::cast_precision_loss, reason = "sums of a workload are far below 2^52")]
fn stretch(jobs: &mut [Job], load: f64, machine: u32) {
    let work: f64 = jobs.iter().map(|job| job.run as f64 * f64::from(job.size)).sum();
    let (Some(first), Some(last)) = (jobs.first().map(|job| job.at), jobs.last().map(|job| job.at)) else {
        return;
    };
    if last > first {
        let factor = work / (f64::from(machine) * load) / (last - first) as f64;
        jobs.iter_mut().for_each(|job| job.at = scaled(job.at - first, factor));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it lies between 1 and `largest`"
)]
fn size(chance: &mut Chance, largest: u32) -> u32 {
    let high = f64::from(largest).log2();
    if largest == 1 || chance.uniform() <= SERIAL {
        return 1;
    }
    let low = LOW.min(high);
    let middle = (high - BELOW_HIGH).max(low);
    let (from, to) = if chance.uniform() <= LOWER { (low, middle) } else { (middle, high) };
    let log = from + chance.uniform() * (to - from);
    let rounded = if chance.uniform() <= POWER_OF_TWO { log.round().exp2() } else { log.exp2().round() };
    (rounded as u32).clamp(1, largest)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most e^12")]
fn run_time(chance: &mut Chance, size: u32) -> u64 {
    let short = (SLOPE * f64::from(size) + INTERCEPT).clamp(0.0, 1.0);
    loop {
        let (shape, scale) = if chance.uniform() <= short { SHORT } else { LONG };
        let log = chance.gamma(shape) * scale;
        if log <= LONGEST {
            return (log.exp().round() as u64).max(1);
        }
    }
}

/// The time of arrivals, which goes the slower the quieter the hour is.
struct Clock {
    /// By half hour of the day: arrivals, 1 on average.
    weights: [f64; BUCKETS],
    bucket: usize,
    /// Half hours of whole days and of this day that are over.
    passed: u64,
    /// The part of this half hour that is over.
    part: f64,
}

impl Clock {
    fn new() -> Self {
        Self { weights: cycle(), bucket: 0, passed: 0, part: 0.0 }
    }

    /// The next arrival, seconds from the start of the first day.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "times of a workload are far below 2^52 and not negative"
    )]
    fn arrival(&mut self, chance: &mut Chance) -> u64 {
        let (shape, scale) = GAP;
        let log = loop {
            let log = chance.gamma(shape * RUSH_TO_ALL) * scale;
            if log <= LONGEST_GAP {
                break log;
            }
        };
        let mut points = log.exp() / BUCKET_SECONDS;
        loop {
            let left = (1.0 - self.part) * self.weights[self.bucket];
            if points <= left {
                self.part += points / self.weights[self.bucket];
                break;
            }
            points -= left;
            self.part = 0.0;
            self.passed += 1;
            self.bucket = (self.bucket + 1) % BUCKETS;
        }
        ((self.passed as f64 + self.part) * BUCKET_SECONDS) as u64
    }
}

/// The daily cycle: the density of its gamma distribution over each half hour, the tail of the next day folded back.
fn cycle() -> [f64; BUCKETS] {
    const PARTS: u32 = 16;
    let (shape, scale) = CYCLE;
    let density = |x: f64| x.powf(shape - 1.0) * (-x / scale).exp();
    let mut weights = [0.0; BUCKETS];
    for half_hour in 0..2 * BUCKETS {
        for part in 0..PARTS {
            let start = u32::try_from(half_hour).unwrap_or(0);
            let x = f64::from(start) + (f64::from(part) + 0.5) / f64::from(PARTS);
            weights[half_hour % BUCKETS] += density(x);
        }
    }
    let mean = weights.iter().sum::<f64>() / f64::from(u32::try_from(BUCKETS).unwrap_or(1));
    weights.map(|weight| weight / mean)
}

/// A seeded source of chance: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Chance(u64);

impl Chance {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From the open interval 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// From the standard normal distribution (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform(), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }

    /// From the gamma distribution of that shape, at least 1, and scale 1 (Marsaglia and Tsang 2000).
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish =
        Wish { jobs: 20_000, largest: 256, seed: 7, load: None, machine: 256, whole_nodes: true };

    #[test]
    fn a_seed_gives_the_same_jobs() {
        let head = |seed| draw(&Wish { seed, jobs: 50, ..WISH });
        assert_eq!(head(1), head(1));
        assert_ne!(head(1), head(2));
    }

    /// Against the means of 10,000 jobs that the model's authors published for a machine of 256 processors.
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn jobs_are_as_the_published_ones() {
        let jobs = draw(&WISH);
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let serial = mean(jobs.iter().map(|job| f64::from(u8::from(job.size == 1))).collect());
        let parallel = jobs.iter().filter(|job| job.size > 1);
        let log_size = mean(parallel.map(|job| f64::from(job.size).log2()).collect());
        let log_run = mean(jobs.iter().map(|job| (job.run as f64).ln()).collect());
        let gap = jobs.last().unwrap().at as f64 / jobs.len() as f64;
        assert!((serial - 0.25).abs() < 0.02, "serial {serial}");
        assert!((log_size - 3.62).abs() < 0.1, "log2 size {log_size}");
        assert!((log_run - 5.68).abs() < 0.15, "ln run {log_run}");
        assert!((gap - 770.0).abs() < 150.0, "gap {gap}");
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn arrivals_are_scaled_to_the_load() {
        let mut jobs = draw(&WISH);
        stretch(&mut jobs, 1.2, 256);
        let work: f64 = jobs.iter().map(|job| job.run as f64 * f64::from(job.size)).sum();
        let load = work / 256.0 / (jobs.last().unwrap().at - jobs[0].at) as f64;
        assert!((load - 1.2).abs() < 0.001, "{load}");
    }
}
