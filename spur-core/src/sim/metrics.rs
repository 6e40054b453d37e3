//! Metrics of a simulation: waiting times, slowdowns, utilisation and spans. All of them are functions of the
//! input.

use std::sync::Arc;

use super::fragmentation::{Fewest, Fragmentation};
use crate::model::alloc::Alloc;
use crate::text::time::Time;

/// Shortest run time that the bounded slowdown uses, in seconds. Shorter runs count as this long.
const SLOWDOWN_BOUND: u64 = 10;

/// One run of a job, from start to end, or a part of it during which the job had the same nodes.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the job in the workload.
    pub job: Arc<str>,
    /// Time at which the job was submitted.
    pub submitted: Time,
    /// Start of the run.
    pub started: Time,
    /// Time at which the run ended, or lost or got a node.
    pub ended: Time,
    /// Seconds between `started` and `ended` during which the job was suspended.
    pub suspended: u64,
    /// Time from which the job had these nodes.
    pub since: Time,
    /// Seconds that the job ran before `since`.
    pub before: u64,
    /// Allocation during the run.
    pub alloc: Arc<Alloc>,
    /// Number of CPUs in the allocation.
    pub cpus: u64,
}

impl Run {
    /// Seconds that the job ran, without suspended time.
    fn seconds(&self) -> u64 {
        self.ended.since(self.started).saturating_sub(self.suspended)
    }
}

/// Metrics of a whole simulation. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of jobs submitted, with refused ones counted.
    pub jobs: u64,
    /// Number of jobs started.
    pub started: u64,
    /// Number of jobs refused.
    pub rejected: u64,
    /// Waiting time from submission to the last start, over jobs that started.
    pub wait: Spread,
    /// Bounded slowdown, max(1, (wait + run) / max(run, 10 s)), over jobs that started and ended. Suspended
    /// time counts as waiting time here, but not in `wait`.
    pub slowdown: Spread,
    /// CPU-seconds allocated divided by the cluster's CPUs times the makespan, 0 to 1.
    pub utilization: f64,
    /// Seconds from the first submission to the last end.
    pub makespan: u64,
    /// Spans of each layer above the nodes, from the bottom up.
    pub spans: Vec<(Arc<str>, LayerSpans)>,
    /// Fragmentation of each layer above the nodes: mean over time of the share of free nodes that no request
    /// for whole domains can use.
    pub fragmentation: Vec<(Arc<str>, f64)>,
}

/// Mean, percentiles (nearest rank) and maximum of a set of values; all 0 for an empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median of the values.
    pub p50: f64,
    /// 95th percentile of the values.
    pub p95: f64,
    /// 99th percentile of the values.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// Duration of a run.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Seconds that the job ran.
    seconds: u64,
    /// Seconds that the job was suspended during the run.
    suspended: u64,
}

impl Spread {
    /// Computes the spread of values in any order.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of values are far below 2^52")]
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        Self { mean, p50: rank(50), p95: rank(95), p99: rank(99), max: rank(100) }
    }
}

/// Number of domains of one layer that jobs used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerSpans {
    /// Mean over runs that ended.
    pub mean: f64,
    /// Ratio of domains used to the fewest that a job of that size needs: mean over runs, weighted by
    /// node-seconds.
    pub over_minimum: f64,
    /// Ratio of domains used by all runs to the fewest that all need, both weighted by node-seconds. Jobs
    /// that need many domains weigh more than in `over_minimum`.
    pub total_over_minimum: f64,
    /// Share of runs that used several domains, among runs of jobs that one domain could hold.
    pub split: f64,
}

/// Sums of one layer.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    runs: u64,
    domains: u64,
    node_seconds: f64,
    over: f64,
    /// Sum of domains used, weighted by node-seconds. `fewest` is the same sum for the fewest domains
    /// possible.
    touched: f64,
    fewest: f64,
    /// Number of runs that one domain could hold. `split` counts those of them that used several domains.
    small: u64,
    split: u64,
}

/// Counts collected during a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) jobs: u64,
    pub(super) rejected: u64,
    /// Waiting time before the last run, and that run after its end, by job number; `None` for numbers of
    /// jobs that never started.
    outcomes: Vec<Option<(u64, Option<Ran>)>>,
    first: Option<Time>,
    last: Option<Time>,
    /// CPU-seconds of runs that ended.
    used: u128,
    /// CPU-seconds of the whole cluster up to `capacity_at`.
    capacity: u128,
    capacity_at: Time,
    /// CPU-seconds of the whole cluster up to the last end.
    capacity_by_last: u128,
    cpus: u64,
    layers: Vec<(Arc<str>, Touched)>,
    frag_names: Vec<Arc<str>>,
    frag: Vec<f64>,
    frag_by_last: Vec<f64>,
}

impl Tally {
    /// Sets the number of CPUs of the cluster from this time on.
    pub(super) fn set_cpus(&mut self, cpus: u64) {
        self.cpus = cpus;
    }

    pub(super) fn submitted(&mut self, at: Time) {
        self.jobs += 1;
        if self.first.is_none() {
            self.first = Some(at);
            self.capacity = 0;
            self.frag.iter_mut().for_each(|sum| *sum = 0.0);
        }
    }

    /// Adds the time up to `now`, during which nothing changed.
    #[expect(clippy::cast_precision_loss, reason = "seconds of a simulation are far below 2^52")]
    pub(super) fn pass_time(&mut self, now: Time, fragmentation: Option<&Fragmentation>) {
        let seconds = now.since(self.capacity_at);
        self.capacity_at = now;
        self.capacity += u128::from(seconds) * u128::from(self.cpus);
        if let Some(fragmentation) = fragmentation {
            if self.frag.is_empty() {
                self.frag_names = fragmentation.layers().map(Arc::from).collect();
                self.frag = vec![0.0; self.frag_names.len()];
            }
            for (sum, share) in self.frag.iter_mut().zip(fragmentation.shares()) {
                *sum += share * seconds as f64;
            }
        }
    }

    pub(super) fn started(&mut self, job: u32, wait: u64) {
        *self.outcome(job) = Some((wait, None));
    }

    fn outcome(&mut self, job: u32) -> &mut Option<(u64, Option<Ran>)> {
        let index = job as usize;
        if self.outcomes.len() <= index {
            self.outcomes.resize(index + 1, None);
        }
        &mut self.outcomes[index]
    }

    /// Counts a run that ended. `job` is its number, and `None` for components of a het job after
    /// the first, because the whole counts as one job.
    pub(super) fn ended(&mut self, job: Option<u32>, run: &Run, fewest: Option<&Fewest>) {
        let ran = Ran { seconds: run.seconds(), suspended: run.suspended };
        if let Some(job) = job {
            *self.outcome(job) = Some((run.started.since(run.submitted), Some(ran)));
        }
        self.last = self.last.max(Some(run.ended));
        self.capacity_by_last = self.capacity;
        self.frag_by_last.clone_from(&self.frag);
        self.held(run, fewest);
        for (index, (layer, touched)) in run.alloc.why.spans.iter().skip(1).enumerate() {
            let sums = self.sums(layer);
            sums.runs += 1;
            sums.domains += u64::from(*touched);
            if fewest.and_then(|fewest| fewest.of(index, run.alloc.nodes.len() as u64)) == Some(1) {
                sums.small += 1;
                sums.split += u64::from(*touched > 1);
            }
        }
    }

    /// Counts the time for which a run had its nodes.
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes and seconds are far below 2^52")]
    pub(super) fn held(&mut self, run: &Run, fewest: Option<&Fewest>) {
        let seconds = run.seconds().saturating_sub(run.before);
        self.used += u128::from(run.cpus) * u128::from(seconds);
        let nodes = run.alloc.nodes.len() as u64;
        let weight = (nodes * seconds) as f64;
        for (index, (layer, touched)) in run.alloc.why.spans.iter().skip(1).enumerate() {
            let sums = self.sums(layer);
            if let Some(fewest) = fewest.and_then(|fewest| fewest.of(index, nodes)) {
                sums.node_seconds += weight;
                sums.over += weight * f64::from(*touched) / fewest as f64;
                sums.touched += weight * f64::from(*touched);
                sums.fewest += weight * fewest as f64;
            }
        }
    }

    /// Sums of a layer, created on first use.
    fn sums(&mut self, layer: &Arc<str>) -> &mut Touched {
        let known = self.layers.iter().position(|(name, _)| name == layer);
        let at = known.unwrap_or_else(|| {
            self.layers.push((Arc::clone(layer), Touched::default()));
            self.layers.len() - 1
        });
        &mut self.layers[at].1
    }

    /// Computes the metrics at the end of a simulation. `running` gives CPUs and start of runs that never
    /// ended.
    #[expect(clippy::cast_precision_loss, reason = "sums of a simulation are shown to a few digits")]
    pub(super) fn summary(&self, running: impl Iterator<Item = (u64, Time)>) -> Summary {
        let outcomes = || self.outcomes.iter().flatten();
        let wait = outcomes().map(|(wait, _)| *wait as f64).collect();
        let slowdown = |(wait, ran): &(u64, Option<Ran>)| {
            let ran = ran.as_ref()?;
            let there = wait + ran.suspended + ran.seconds;
            Some((there as f64 / ran.seconds.max(SLOWDOWN_BOUND) as f64).max(1.0))
        };
        let makespan = match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => 0,
        };
        let last = self.last.unwrap_or_default();
        let endless = running.map(|(cpus, started)| u128::from(cpus) * u128::from(last.since(started)));
        let used = self.used + endless.sum::<u128>();
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let spans = self.layers.iter().map(|(name, sums)| {
            let mean = ratio(sums.domains as f64, sums.runs as f64);
            let over_minimum = ratio(sums.over, sums.node_seconds);
            let total_over_minimum = ratio(sums.touched, sums.fewest);
            let split = ratio(sums.split as f64, sums.small as f64);
            (Arc::clone(name), LayerSpans { mean, over_minimum, total_over_minimum, split })
        });
        let frag = self.frag_names.iter().zip(&self.frag_by_last);
        Summary {
            jobs: self.jobs,
            started: outcomes().count() as u64,
            rejected: self.rejected,
            wait: Spread::of(wait),
            slowdown: Spread::of(outcomes().filter_map(slowdown).collect()),
            utilization: ratio(used as f64, self.capacity_by_last as f64),
            makespan,
            spans: spans.collect(),
            fragmentation: frag.map(|(name, sum)| (Arc::clone(name), ratio(*sum, makespan as f64))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(submitted: i64, started: i64, ended: i64, spans: u32, nodes: u32) -> Run {
        let node = |id| crate::model::alloc::NodeAlloc {
            node: crate::id::NodeId(id),
            tasks: 1,
            cpus: crate::model::idset::IdSet::first(2),
            memory_mb: 0,
            gres: Box::default(),
        };
        let mut alloc = Alloc { nodes: (0..nodes).map(node).collect(), ..Alloc::default() };
        alloc.why.spans = vec![("node".into(), nodes), ("leaf".into(), spans)];
        Run {
            job: "j".into(),
            submitted: Time(submitted),
            started: Time(started),
            ended: Time(ended),
            suspended: 0,
            since: Time(started),
            before: 0,
            cpus: alloc.cpus(),
            alloc: Arc::new(alloc),
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!(
            (spread.mean, spread.p50, spread.p95, spread.p99, spread.max),
            (100.5, 100.0, 190.0, 198.0, 200.0)
        );
        assert_eq!(Spread::of(vec![7.0]), Spread { mean: 7.0, p50: 7.0, p95: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn who_is_suspended_waits() {
        let mut tally = Tally::default();
        tally.submitted(Time(0));
        tally.started(1, 5);
        tally.ended(Some(1), &Run { suspended: 60, ..run(0, 5, 105, 1, 1) }, None);
        let summary = tally.summary(std::iter::empty());
        // 105 s from submission to end, of which it ran 40.
        assert_eq!((summary.wait.max, summary.slowdown.max), (5.0, 105.0 / 40.0));
    }

    #[test]
    fn a_hand_made_case_adds_up() {
        // Four nodes in two leaves of two, two CPUs each, from 100 s on.
        let mut tally = Tally::default();
        let fewest = Fewest::from_sizes(&[&[2, 2]]);
        tally.set_cpus(8);
        tally.pass_time(Time(100), None);
        for job in 1..=3 {
            tally.submitted(Time(100));
            tally.started(job, 0);
        }
        tally.pass_time(Time(120), None);
        tally.ended(Some(1), &run(100, 100, 120, 2, 2), Some(&fewest));
        tally.pass_time(Time(140), None);
        tally.ended(Some(2), &run(100, 135, 140, 1, 1), Some(&fewest));
        let summary = tally.summary([(1, Time(135))].into_iter());
        assert_eq!((summary.jobs, summary.started, summary.makespan), (3, 3, 40));
        // 2 nodes × 2 CPUs × 20 s, 1 × 2 × 5, and 1 CPU for 5 s, of 8 CPUs × 40 s.
        assert_eq!(summary.utilization, 95.0 / 320.0);
        assert_eq!((summary.wait.mean, summary.wait.max), (35.0 / 3.0, 35.0));
        // (0 + 20) / 20 and (35 + 5) / 10; the third has not ended.
        assert_eq!((summary.slowdown.mean, summary.slowdown.max), (2.5, 4.0));
        // 2 leaves instead of 1 for 40 node-seconds, 1 of 1 for 5.
        let leaf = summary.spans[0].1;
        assert_eq!((leaf.mean, leaf.over_minimum, leaf.split), (1.5, (2.0 * 40.0 + 5.0) / 45.0, 0.5));
    }

    #[test]
    fn the_leaves_of_all_are_summed_up_before_they_are_compared() {
        let mut tally = Tally::default();
        let fewest = Fewest::from_sizes(&[&[2, 2]]);
        // 2 leaves instead of 1 for 40 node-seconds, 2 of 2 for 30.
        tally.ended(Some(1), &run(0, 0, 20, 2, 2), Some(&fewest));
        tally.ended(Some(2), &run(0, 0, 10, 2, 3), Some(&fewest));
        let leaf = tally.summary(std::iter::empty()).spans[0].1;
        assert_eq!((leaf.over_minimum, leaf.total_over_minimum), (110.0 / 70.0, 140.0 / 100.0));
    }
}
