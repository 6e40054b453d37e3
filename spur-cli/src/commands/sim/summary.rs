//! Summary of a simulation: a JSON object for programs, or a few lines for people.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use spur_core::sim::{LayerSpans, Spread, Summary};

/// Cost of the simulation itself, the only part of a summary that differs between runs.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) passes: usize,
    /// Duration in microseconds of each pass that examined a queue.
    pub(super) pass_us: Spread,
    pub(super) wall: Duration,
    /// Maximum memory of the process in bytes; 0 if unknown.
    pub(super) peak_rss_bytes: u64,
}

/// Returns the maximum memory of this process so far, in bytes.
pub(super) fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns a JSON object, in which means and ratios have six decimals.
pub(super) fn json(summary: &Summary, skipped: Option<u64>, cost: &Cost) -> String {
    let mut out = format!(
        "{{\"jobs\":{},\"started\":{},\"rejected\":{}",
        summary.jobs, summary.started, summary.rejected
    );
    if let Some(skipped) = skipped {
        let _ = write!(out, ",\"skipped\":{skipped}");
    }
    let (wait, slow, pass) = (&summary.wait, &summary.slowdown, &cost.pass_us);
    let _ = write!(
        out,
        ",\"wait\":{{\"mean\":{:.6},\"p50\":{},\"p95\":{},\"p99\":{},\"max\":{}}}",
        wait.mean, wait.p50, wait.p95, wait.p99, wait.max
    );
    let _ = write!(
        out,
        ",\"bsld\":{{\"mean\":{:.6},\"p95\":{:.6},\"p99\":{:.6},\"max\":{:.6}}}",
        slow.mean, slow.p95, slow.p99, slow.max
    );
    let _ = write!(out, ",\"utilization\":{:.6},\"makespan\":{}", summary.utilization, summary.makespan);
    let spans = summary.spans.iter().map(|(layer, spans)| {
        let quoted = serde_json::Value::from(&**layer);
        let LayerSpans { mean, over_minimum, total_over_minimum, split } = spans;
        format!(
            "{quoted}:{{\"mean\":{mean:.6},\"over_minimum\":{over_minimum:.6},\"total_over_minimum\":{total_over_minimum:.6},\"split\":{split:.6}}}"
        )
    });
    let _ = write!(out, ",\"spans\":{{{}}}", spans.collect::<Vec<_>>().join(","));
    let layers = summary.fragmentation.iter();
    let layers = layers.map(|(layer, share)| format!("{}:{share:.6}", serde_json::Value::from(&**layer)));
    let _ = write!(out, ",\"fragmentation\":{{{}}}", layers.collect::<Vec<_>>().join(","));
    let _ = write!(
        out,
        ",\"cost\":{{\"passes\":{},\"pass_us\":{{\"mean\":{:.6},\"p99\":{:.3},\"max\":{:.3}}},\"wall_s\":{:.6},\"peak_rss_bytes\":{}}}}}",
        cost.passes,
        pass.mean,
        pass.p99,
        pass.max,
        cost.wall.as_secs_f64(),
        cost.peak_rss_bytes
    );
    out
}

/// Returns a few lines of text.
pub(super) fn text(summary: &Summary, skipped: Option<u64>, cost: &Cost) -> String {
    let mut out = String::new();
    let (wait, slow) = (&summary.wait, &summary.slowdown);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<14} {value}");
    };
    let skipped = skipped.map(|skipped| format!(", {skipped} skipped")).unwrap_or_default();
    line(
        "jobs",
        format!("{}, {} started, {} rejected{skipped}", summary.jobs, summary.started, summary.rejected),
    );
    line(
        "wait",
        format!(
            "mean {:.1} s, median {}, 95% {}, 99% {}, longest {}",
            wait.mean, wait.p50, wait.p95, wait.p99, wait.max
        ),
    );
    line(
        "slowdown",
        format!("mean {:.3}, 95% {:.3}, largest {:.3} (bounded at 10 s)", slow.mean, slow.p95, slow.max),
    );
    line("utilization", format!("{:.2} %", summary.utilization * 100.0));
    line("makespan", format!("{} s", summary.makespan));
    for (layer, spans) in &summary.spans {
        let LayerSpans { mean, over_minimum, total_over_minimum, split } = spans;
        let text = format!(
            "mean {mean:.3} a job, {over_minimum:.3} times the fewest possible ({total_over_minimum:.3} all together), {:.2} % split without need",
            split * 100.0
        );
        line(&format!("{layer} spans"), text);
    }
    for (layer, share) in &summary.fragmentation {
        line(&format!("{layer} frag."), format!("{:.2} % of free nodes", share * 100.0));
    }
    let pass = &cost.pass_us;
    line(
        "passes",
        format!(
            "{}, mean {:.0} us, 99% {:.0} us, longest {:.0} us",
            cost.passes, pass.mean, pass.p99, pass.max
        ),
    );
    line(
        "cost",
        format!("{:.2} s, {} MiB at most", cost.wall.as_secs_f64(), cost.peak_rss_bytes.div_ceil(1 << 20)),
    );
    out
}
