//! Predicted run times of jobs, from runs of the same user that resemble them.
//!
//! The newest run weighs 1, and each earlier one nine tenths of the next. Differences from the job lower the
//! weight: a run that asked for twice or half the time, or for twice or half the CPUs, weighs a quarter.
//! These weights give two guesses, because orders and plans err differently. The *mean* estimates the average
//! cost of a job, and orders weigh jobs by it: one long run among short ones counts. The *likely* time is the
//! geometric mean, which one long run among short ones hardly changes: plans use it. The three constants were
//! chosen on the traces KTH-SP2 and SDSC-SP2 with arrivals jittered; nearby values do as well.

use std::collections::VecDeque;

/// Number of runs remembered per user.
pub(crate) const REMEMBERED: usize = 30;

/// The weight of a run relative to the next newer one.
const FADES: f64 = 0.9;

/// Shorter runs count as this long, in seconds. Below it differences are noise, as they are for the bounded
/// slowdown.
const SHORTEST: u64 = 10;

/// A run, and what its job asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The run time, in seconds.
    pub(crate) seconds: u64,
    /// The requested time, in seconds.
    pub(crate) request: u64,
    /// The smallest number of CPUs that the job accepted.
    pub(crate) cpus: u64,
}

/// The predicted run time of a job, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    /// The time that plans use.
    pub(crate) likely: u64,
    /// The time by which orders weigh the job.
    pub(crate) mean: u64,
}

/// Guesses from a user's last runs, the newest first; `None` without any.
pub(crate) fn guess(runs: &VecDeque<Run>, asked: &Run) -> Option<Guess> {
    let (mut weight, mut weights, mut mean, mut logs) = (1.0, 0.0, 0.0, 0.0);
    for run in runs {
        let resembles = (alike(run.request, asked.request) * alike(run.cpus, asked.cpus)).powi(2);
        // Runs that hardly resemble the job are still better than none.
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
    // The exponential of a logarithm may fall slightly below the whole second.
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
