//! Waits, slowdowns, utilisation, spans: what a simulation comes to in numbers. All of it is a function of the input.

use std::sync::Arc;

use super::fragmentation::{Fewest, Fragmentation};
use crate::model::alloc::Alloc;
use crate::text::time::Time;

/// Runs shorter than this count as this long in the bounded slowdown, seconds.
const SLOWDOWN_BOUND: u64 = 10;

/// One run of a job, from its start to its end, or as long as it had the same nodes.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name in the workload.
    pub job: Arc<str>,
    /// When the job was submitted.
    pub submitted: Time,
    /// When this run started.
    pub started: Time,
    /// When it ended, or lost or got a node.
    pub ended: Time,
    /// Seconds between the two that it was suspended.
    pub suspended: u64,
    /// Since when it had these nodes.
    pub since: Time,
    /// Seconds that it ran before that.
    pub before: u64,
    /// What it held.
    pub alloc: Arc<Alloc>,
    /// CPUs of it.
    pub cpus: u64,
}

impl Run {
    /// Seconds that it ran.
    fn seconds(&self) -> u64 {
        self.ended.since(self.started).saturating_sub(self.suspended)
    }
}

/// What a simulation comes to. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Jobs that were submitted, refused ones included.
    pub jobs: u64,
    /// Jobs that started.
    pub started: u64,
    /// Jobs that were refused.
    pub rejected: u64,
    /// From submission to the last start, of jobs that started.
    pub wait: Spread,
    /// Bounded slowdown, max(1, (wait + run) / max(run, 10 s)), of jobs that started and ended. Time that a job was
    /// suspended is time that it waited, here and not in `wait`.
    pub slowdown: Spread,
    /// CPU-seconds held over the cluster's CPUs times the makespan, 0 to 1.
    pub utilization: f64,
    /// From the first submission to the last end.
    pub makespan: u64,
    /// By layer above the nodes, from the bottom up.
    pub spans: Vec<(Arc<str>, LayerSpans)>,
    /// By layer above the nodes: mean over time of the share of free nodes that no request for whole domains can use.
    pub fragmentation: Vec<(Arc<str>, f64)>,
}

/// Mean, percentiles (nearest rank) and maximum; 0 where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// What became of a run.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Seconds that it ran.
    seconds: u64,
    /// Seconds that it was suspended meanwhile.
    suspended: u64,
}

impl Spread {
    /// Of some values, in any order.
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

/// How many domains of a layer jobs touched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerSpans {
    /// Mean over runs that ended.
    pub mean: f64,
    /// Domains touched over the fewest that a job of that many nodes needs: the mean over runs, weighted by node-seconds.
    pub over_minimum: f64,
    /// Domains touched by all runs over the fewest that all need, both weighted by node-seconds: jobs that need many count
    /// for more.
    pub total_over_minimum: f64,
    /// Of the runs of jobs that one domain could hold, the share that touched several.
    pub split: f64,
}

/// Sums of one layer.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    runs: u64,
    domains: u64,
    node_seconds: f64,
    over: f64,
    /// Domains touched, and the fewest possible, both times node-seconds.
    touched: f64,
    fewest: f64,
    /// Runs that one domain could hold, and those of them that touched several.
    small: u64,
    split: u64,
}

/// Counts while a simulation goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) jobs: u64,
    pub(super) rejected: u64,
    /// By job number: the wait for its last run, and that run once it is over; nothing for numbers of no started jobs.
    outcomes: Vec<Option<(u64, Option<Ran>)>>,
    first: Option<Time>,
    last: Option<Time>,
    /// CPU-seconds of runs that ended.
    used: u128,
    /// CPU-seconds of the whole cluster, up to `capacity_at`.
    capacity: u128,
    capacity_at: Time,
    /// The same up to the last end.
    capacity_by_last: u128,
    cpus: u64,
    layers: Vec<(Arc<str>, Touched)>,
    frag_names: Vec<Arc<str>>,
    frag: Vec<f64>,
    frag_by_last: Vec<f64>,
}

impl Tally {
    /// From now on the cluster has so many CPUs.
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

    /// The clock goes on to `now`; until then everything was as it is.
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

    /// A run is over. `job` is its number, but for components of a het job behind the first: the whole counts as one job.
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

    /// A run had its nodes until now.
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

    /// The sums of a layer.
    fn sums(&mut self, layer: &Arc<str>) -> &mut Touched {
        let known = self.layers.iter().position(|(name, _)| name == layer);
        let at = known.unwrap_or_else(|| {
            self.layers.push((Arc::clone(layer), Touched::default()));
            self.layers.len() - 1
        });
        &mut self.layers[at].1
    }

    /// The numbers, once the simulation is over. `running`: CPUs and start of runs that never ended.
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
        // There for 105 s, of which it ran 40.
        assert_eq!((summary.wait.max, summary.slowdown.max), (5.0, 105.0 / 40.0));
    }

    #[test]
    fn a_hand_made_case_adds_up() {
        // Four nodes in two leaves of two, two CPUs each, from 100 on.
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
        // 2 leaves where 1 would do for 40 node-seconds, 1 of 1 for 5.
        let leaf = summary.spans[0].1;
        assert_eq!((leaf.mean, leaf.over_minimum, leaf.split), (1.5, (2.0 * 40.0 + 5.0) / 45.0, 0.5));
    }

    #[test]
    fn the_leaves_of_all_are_summed_up_before_they_are_compared() {
        let mut tally = Tally::default();
        let fewest = Fewest::from_sizes(&[&[2, 2]]);
        // 2 leaves where 1 would do for 40 node-seconds, 2 of 2 for 30.
        tally.ended(Some(1), &run(0, 0, 20, 2, 2), Some(&fewest));
        tally.ended(Some(2), &run(0, 0, 10, 2, 3), Some(&fewest));
        let leaf = tally.summary(std::iter::empty()).spans[0].1;
        assert_eq!((leaf.over_minimum, leaf.total_over_minimum), (110.0 / 70.0, 140.0 / 100.0));
    }
}
