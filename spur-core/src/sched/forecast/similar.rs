//! How long a job will run, judged by runs of the same user that resemble it.
//!
//! The newest run weighs 1, each one before it nine tenths of the next. What differs from the job weighs less: a run
//! that asked for twice or half the time, or for twice or half the CPUs, a quarter. Two guesses come of these weights,
//! because orders and plans err differently. The *mean* says what a job costs on average, and orders weigh jobs by it: a
//! long run among short ones counts. The *likely* time is the geometric mean, which one long run among short ones
//! hardly moves: plans count with it. The three constants were chosen on the traces KTH-SP2 and SDSC-SP2 with arrivals
//! jittered; anything near them does as well.

use std::collections::VecDeque;

/// Runs of a user that are remembered.
pub(crate) const REMEMBERED: usize = 30;

/// What a run weighs, of the weight of the one after it.
const FADES: f64 = 0.9;

/// Shorter runs count as this long, seconds: below it differences are noise, as they are for the bounded slowdown.
const SHORTEST: u64 = 10;

/// A run, and what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The run time, seconds.
    pub(crate) seconds: u64,
    /// How long it was allowed to take, seconds.
    pub(crate) request: u64,
    /// The fewest CPUs it would have run on.
    pub(crate) cpus: u64,
}

/// What is guessed of a job's run time, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    /// What plans count with.
    pub(crate) likely: u64,
    /// What orders weigh by.
    pub(crate) mean: u64,
}

/// Guesses from a user's last runs, the newest first; `None` without any.
pub(crate) fn guess(runs: &VecDeque<Run>, asked: &Run) -> Option<Guess> {
    let (mut weight, mut weights, mut mean, mut logs) = (1.0, 0.0, 0.0, 0.0);
    for run in runs {
        let resembles = (alike(run.request, asked.request) * alike(run.cpus, asked.cpus)).powi(2);
        // However little they resemble it, some runs are better than none.
        let counts = weight * resembles.max(1e-9);
        let seconds = real(run.seconds.max(SHORTEST));
        weights += counts;
        mean += counts * seconds;
        logs += counts * seconds.ln();
        weight *= FADES;
    }
    (weights > 0.0).then(|| Guess { likely: whole((logs / weights).exp()), mean: whole(mean / weights) })
}

/// 1 for equal numbers, and the smaller over the larger otherwise.
fn alike(one: u64, other: u64) -> f64 {
    real(one.min(other).max(1)) / real(one.max(other).max(1))
}

#[expect(clippy::cast_precision_loss, reason = "seconds and CPU counts are far below 2^52")]
fn real(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of run times lies between the shortest and the longest; the conversion saturates"
)]
fn whole(seconds: f64) -> u64 {
    // Logarithms of whole seconds come back a hair below them.
    (seconds + 1e-6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Run = Run { seconds: 0, request: 3_600, cpus: 4 };

    /// Likely time and mean.
    type Guessed = Option<(u64, u64)>;

    fn guess_from(runs: &[Run]) -> Guessed {
        guess(&runs.iter().copied().collect(), &ASKED).map(|guess| (guess.likely, guess.mean))
    }

    #[test]
    fn runs_count_by_age_and_resemblance() {
        let run = |seconds| Run { seconds, ..ASKED };
        let table: [(&[Run], Guessed); 6] = [
            (&[], None),
            (&[run(100)], Some((100, 100))),
            (&[run(3)], Some((10, 10))),
            // 1 : 0.9; the geometric mean of 100 and 10,000 with these weights is 10^(2 + 2 × 0.9 / 1.9).
            (&[run(100), run(10_000)], Some((885, 4_789))),
            // Twice the time asked for: a quarter of the weight.
            (&[Run { request: 7_200, ..run(10_000) }, run(100)], Some((272, 2_252))),
            // Twice the time and twice the CPUs: a sixteenth.
            (&[Run { request: 7_200, cpus: 8, ..run(10_000) }, run(100)], Some((134, 742))),
        ];
        for (runs, wanted) in table {
            assert_eq!(guess_from(runs), wanted, "{runs:?}");
        }
    }
}
