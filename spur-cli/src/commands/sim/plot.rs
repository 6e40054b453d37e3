//! Plots of a simulation as SVG: utilisation, queue, Gantt chart by position in the fabric, fragmentation per
//! layer, and waiting times.

use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::{
    AreaSeries, ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoFont, IntoLogRange, LineSeries,
    PathElement, RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, TRANSPARENT, Text, WHITE,
};
use spur_core::cluster::Cluster;
use spur_core::model::fabric::{Fabric, Layer};
use spur_core::sim::{Moment, Run};
use spur_core::text::time::Time;

use crate::error::Failure;

const SIZE: (u32, u32) = (1200, 600);
const TALL: (u32, u32) = (1200, 900);
/// Number of points of a line over time, which is more than a reader can distinguish.
const BINS: usize = 1000;
/// Maximum number of bars in a Gantt chart, which a browser shows without delay.
const BARS: usize = 20_000;
/// Maximum number of domains whose names fit beside a Gantt chart.
const NAMED: usize = 48;

/// Colours that people with colour vision deficiency can distinguish (Okabe and Ito 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(148, 132, 20),
];
const GRID: RGBColor = RGBColor(220, 220, 220);

/// Data of the plots, collected while the simulation runs.
#[derive(Debug, Default)]
pub(super) struct Trail {
    samples: Vec<Sample>,
    layers: Vec<String>,
    bars: Vec<Bar>,
    rows: Rows,
}

/// State from one time to the next.
#[derive(Debug)]
struct Sample {
    at: f64,
    utilization: f64,
    pending: f64,
    fragmentation: Vec<f64>,
}

/// A run of a job.
#[derive(Debug)]
struct Bar {
    job: usize,
    /// Seconds before the start; `None` for the earlier part of a run that continues on other nodes.
    wait: Option<f64>,
    time: Range<f64>,
    rows: Vec<Range<u32>>,
}

/// Rows of a Gantt chart.
#[derive(Debug, Default)]
struct Rows {
    count: u32,
    /// Name of one row.
    name: &'static str,
    /// Lowest domains by name, with their rows.
    domains: Vec<(String, Range<u32>)>,
}

#[expect(clippy::cast_precision_loss, reason = "times and counts of a simulation are far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

fn seconds(time: Time) -> f64 {
    float(time.since(Time::ZERO))
}

impl Trail {
    pub(super) fn moment(&mut self, moment: &Moment<'_>) {
        if let (true, Some(fragmentation)) = (self.layers.is_empty(), moment.fragmentation) {
            self.layers = fragmentation.layers().map(str::to_owned).collect();
        }
        let shares = moment.fragmentation.into_iter().flat_map(|fragmentation| fragmentation.shares());
        self.samples.push(Sample {
            at: seconds(moment.now),
            utilization: float(moment.busy_cpus) / float(moment.cpus.max(1)),
            pending: float(u64::try_from(moment.pending).unwrap_or(u64::MAX)),
            fragmentation: shares.collect(),
        });
    }

    /// Adds a run that is `over`, or that continues on other nodes.
    pub(super) fn ran(&mut self, cluster: &Cluster, run: &Run, over: bool) {
        let partition = cluster.default_partition().or_else(|| cluster.partitions().first());
        let fabric = partition.and_then(|partition| cluster.fabric_of(partition));
        if self.rows.count == 0 {
            self.rows = Rows::of(cluster, fabric.map(|fabric| &**fabric));
        }
        let rows = match &run.alloc.nodes[..] {
            [part] if cluster.nodes().len() == 1 => part.cpus.iter().collect(),
            parts => {
                let row = |node| fabric.and_then(|fabric| fabric.pos(node)).map_or(node.0, |pos| pos.0);
                let mut rows: Vec<u32> = parts.iter().map(|part| row(part.node)).collect();
                rows.sort_unstable();
                rows
            }
        };
        let bar = Bar {
            job: self.bars.len(),
            wait: over.then(|| float(run.started.since(run.submitted))),
            time: seconds(run.since)..seconds(run.ended),
            rows: ranges(&rows),
        };
        self.bars.push(bar);
    }

    /// Returns the period of the plots in seconds.
    fn span(&self) -> Range<f64> {
        let first = self.samples.first().map_or(0.0, |sample| sample.at);
        let last = self.samples.last().map_or(first, |sample| sample.at);
        first..last.max(first + 1.0)
    }
}

impl Rows {
    fn of(cluster: &Cluster, fabric: Option<&Fabric>) -> Self {
        if let [only] = cluster.nodes() {
            return Self { count: only.shape.cpus.max(1), name: "processor", domains: Vec::new() };
        }
        let count = u32::try_from(cluster.nodes().len()).unwrap_or(u32::MAX).max(1);
        let leaves = fabric.into_iter().filter(|fabric| fabric.top() > Layer::NODE).flat_map(|fabric| {
            let row = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            fabric.domains_of(Layer::LEAF).map(move |id| {
                let domain = fabric.domain(id);
                (domain.name().to_owned(), row(domain.range().start)..row(domain.range().end))
            })
        });
        Self { count, name: "position in the fabric", domains: leaves.collect() }
    }
}

/// Converts sorted numbers to ranges without gaps.
fn ranges(sorted: &[u32]) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for &row in sorted {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end = row + 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

/// Draws all plots into a directory, which is created if it is missing.
///
/// # Errors
/// A directory or file that cannot be written.
pub(super) fn draw(trail: &Trail, directory: &Path) -> Result<(), Failure> {
    let failed =
        |error: &dyn Display| Failure::new(format!("cannot draw into {}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    type Picture = fn(&Trail, &Canvas<'_>) -> Drawn;
    let pictures: [(&str, (u32, u32), Picture); 5] = [
        ("utilisation.svg", SIZE, utilisation),
        ("queue.svg", SIZE, queue),
        ("gantt.svg", TALL, gantt),
        ("fragmentation.svg", SIZE, fragmentation),
        ("waits.svg", SIZE, waits),
    ];
    for (name, size, picture) in pictures {
        let path = directory.join(name);
        let canvas = SVGBackend::new(&path, size).into_drawing_area();
        let drawn = canvas.fill(&WHITE).map_err(|error| Box::from(error.to_string()));
        let drawn = drawn.and_then(|()| picture(trail, &canvas));
        drawn.and_then(|()| Ok(canvas.present()?)).map_err(|error| failed(&error))?;
    }
    Ok(())
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Returns the number of seconds in the unit that suits a period, and the unit's name.
fn unit(span: &Range<f64>) -> (f64, &'static str) {
    match span.end - span.start {
        ..600.0 => (1.0, "seconds"),
        600.0..36_000.0 => (60.0, "minutes"),
        36_000.0..864_000.0 => (3600.0, "hours"),
        _ => (86_400.0, "days"),
    }
}

/// Returns the mean of a value over time in each of [`BINS`] equal parts of the period, as points of time and
/// value.
fn thin(trail: &Trail, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let span = trail.span();
    let bins = float(u64::try_from(BINS).unwrap_or(1));
    let width = (span.end - span.start) / bins;
    let mut sums = vec![0.0; BINS];
    for (index, sample) in trail.samples.iter().enumerate() {
        let until = trail.samples.get(index + 1).map_or(span.end, |next| next.at);
        spread(&mut sums, (sample.at - span.start) / width..(until - span.start) / width, value(sample));
    }
    let middle = |bin: usize| span.start + (float(u64::try_from(bin).unwrap_or(0)) + 0.5) * width;
    sums.into_iter().enumerate().map(|(bin, sum)| (middle(bin), sum)).collect()
}

/// Adds a value to the bins that a range covers, in proportion.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bins are few and not negative")]
fn spread(sums: &mut [f64], range: Range<f64>, value: f64) {
    let last = sums.len().saturating_sub(1);
    let (from, to) = ((range.start.max(0.0) as usize).min(last), (range.end.max(0.0) as usize).min(last));
    for (bin, sum) in sums.iter_mut().enumerate().take(to + 1).skip(from) {
        let start = float(u64::try_from(bin).unwrap_or(0));
        let covered = range.end.min(start + 1.0) - range.start.max(start);
        *sum += value * covered.max(0.0);
    }
}

fn utilisation(trail: &Trail, canvas: &Canvas<'_>) -> Drawn {
    let line = thin(trail, |sample| sample.utilization * 100.0);
    over_time(trail, canvas, "CPUs in use", "% of all CPUs", 100.0, &[("", line)])
}

fn queue(trail: &Trail, canvas: &Canvas<'_>) -> Drawn {
    let line = thin(trail, |sample| sample.pending);
    let most = line.iter().map(|(_, jobs)| *jobs).fold(1.0, f64::max);
    over_time(trail, canvas, "Jobs that wait", "jobs", most * 1.05, &[("", line)])
}

fn fragmentation(trail: &Trail, canvas: &Canvas<'_>) -> Drawn {
    let share = |layer: usize| {
        thin(trail, move |sample| sample.fragmentation.get(layer).copied().unwrap_or(0.0) * 100.0)
    };
    let lines: Vec<(&str, Vec<(f64, f64)>)> =
        trail.layers.iter().enumerate().map(|(layer, name)| (name.as_str(), share(layer))).collect();
    let title = if lines.is_empty() {
        "Fragmentation: this cluster has no topology"
    } else {
        "Fragmentation: free nodes that no request for whole domains can use"
    };
    over_time(trail, canvas, title, "% of free nodes", 100.0, &lines)
}

/// Draws lines over time, from 0 to `most`; a single line is filled.
fn over_time(
    trail: &Trail,
    canvas: &Canvas<'_>,
    title: &str,
    what: &str,
    most: f64,
    lines: &[(&str, Vec<(f64, f64)>)],
) -> Drawn {
    let span = trail.span();
    let (scale, name) = unit(&span);
    let mut chart = ChartBuilder::on(canvas)
        .caption(title, ("sans-serif", 24).into_font())
        .margin(20)
        .x_label_area_size(50)
        .y_label_area_size(70)
        .build_cartesian_2d(span.start / scale..span.end / scale, 0.0..most)?;
    mesh(&mut chart, name, what)?;
    for (index, (label, line)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = line.iter().map(|(at, value)| (at / scale, *value));
        if lines.len() == 1 {
            chart.draw_series(AreaSeries::new(points.clone(), 0.0, colour.mix(0.25)))?;
        }
        let drawn = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        if !label.is_empty() {
            drawn
                .label(*label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        }
    }
    if lines.iter().any(|(label, _)| !label.is_empty()) {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .label_font(("sans-serif", 16))
            .draw()?;
    }
    Ok(())
}

/// Draws axes with their names over a light grid.
fn mesh<'a, X, Y>(
    chart: &mut plotters::prelude::ChartContext<'_, SVGBackend<'a>, plotters::prelude::Cartesian2d<X, Y>>,
    across: &str,
    up: &str,
) -> Drawn
where
    X: plotters::coord::ranged1d::Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: plotters::coord::ranged1d::Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    let plain =
        |value: &f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    chart
        .configure_mesh()
        .x_desc(across)
        .y_desc(up)
        .x_label_formatter(&plain)
        .y_label_formatter(&plain)
        .axis_desc_style(("sans-serif", 18))
        .label_style(("sans-serif", 15))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

/// Draws a bar for each run, with time on the horizontal axis and nodes on the vertical one.
fn gantt(trail: &Trail, canvas: &Canvas<'_>) -> Drawn {
    let span = trail.span();
    let (scale, name) = unit(&span);
    let rows = &trail.rows;
    let mut bars: Vec<&Bar> = trail.bars.iter().collect();
    let area = |bar: &Bar| {
        let rows: u32 = bar.rows.iter().map(|rows| rows.end - rows.start).sum();
        (bar.time.end - bar.time.start) * f64::from(rows)
    };
    bars.sort_by(|one, other| area(other).total_cmp(&area(one)).then(one.job.cmp(&other.job)));
    bars.truncate(BARS);
    let title = if bars.len() < trail.bars.len() {
        format!("Where jobs ran: the {BARS} largest of {} runs", trail.bars.len())
    } else {
        "Where jobs ran".to_owned()
    };
    let mut chart = ChartBuilder::on(canvas)
        .caption(title, ("sans-serif", 24).into_font())
        .margin(20)
        .margin_right(if rows.domains.is_empty() { 20 } else { 130 })
        .x_label_area_size(50)
        .y_label_area_size(70)
        .build_cartesian_2d(span.start / scale..span.end / scale, 0.0..f64::from(rows.count.max(1)))?;
    mesh(&mut chart, name, if rows.name.is_empty() { "node" } else { rows.name })?;
    let boxes = bars.iter().flat_map(|bar| {
        let colour = COLOURS[bar.job % COLOURS.len()];
        let (from, to) = (bar.time.start / scale, bar.time.end / scale);
        bar.rows.iter().flat_map(move |rows| {
            let corners = [(from, f64::from(rows.start)), (to, f64::from(rows.end))];
            [
                Rectangle::new(corners, colour.mix(0.6).filled()),
                Rectangle::new(corners, colour.stroke_width(1)),
            ]
        })
    });
    chart.draw_series(boxes)?;
    let edges = rows.domains.iter().map(|(_, range)| f64::from(range.end));
    let (left, right) = (span.start / scale, span.end / scale);
    chart.draw_series(
        edges.map(|edge| {
            PathElement::new([(left, edge), (right, edge)], RGBColor(90, 90, 90).stroke_width(1))
        }),
    )?;
    if rows.domains.len() <= NAMED {
        let area = chart.plotting_area();
        for (domain, range) in &rows.domains {
            let (x, y) =
                area.map_coordinate(&(right, f64::midpoint(f64::from(range.start), f64::from(range.end))));
            canvas.draw(&Text::new(domain.clone(), (x + 8, y - 7), ("sans-serif", 14).into_font()))?;
        }
    }
    Ok(())
}

/// Draws the share of jobs by their maximum waiting time.
fn waits(trail: &Trail, canvas: &Canvas<'_>) -> Drawn {
    let mut waits: Vec<f64> =
        trail.bars.iter().filter_map(|bar| bar.wait).map(|wait| wait.max(1.0)).collect();
    waits.sort_by(f64::total_cmp);
    let longest = waits.last().copied().unwrap_or(1.0).max(10.0);
    let mut chart = ChartBuilder::on(canvas)
        .caption("Waiting times", ("sans-serif", 24).into_font())
        .margin(20)
        .x_label_area_size(50)
        .y_label_area_size(70)
        .build_cartesian_2d((1.0..longest * 1.1).log_scale(), 0.0..100.0)?;
    mesh(&mut chart, "seconds from submission to start (1 for less)", "% of jobs that waited no longer")?;
    let count = float(u64::try_from(waits.len().max(1)).unwrap_or(1));
    let mut points = vec![(1.0, 0.0)];
    let mut share = 0.0;
    for (index, wait) in waits.iter().enumerate() {
        let next = float(u64::try_from(index + 1).unwrap_or(0)) / count * 100.0;
        let is_last = waits.get(index + 1).is_none_or(|after| after > wait);
        if is_last {
            points.extend([(*wait, share), (*wait, next)]);
            share = next;
        }
    }
    points.push((longest * 1.1, share));
    chart.draw_series(LineSeries::new(thinned(points), COLOURS[0].stroke_width(2)))?;
    Ok(())
}

/// Reduces the number of points by taking every n-th one.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let last = points.last().copied();
    let step = points.len().div_ceil(4 * BINS).max(1);
    points.into_iter().step_by(step).chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_gaps_are_one_range() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        assert!(ranges(&[]).is_empty());
    }

    #[test]
    fn a_value_is_spread_over_the_bins_it_covers() {
        let mut sums = vec![0.0; 4];
        spread(&mut sums, 0.5..2.25, 8.0);
        assert_eq!(sums, [4.0, 8.0, 2.0, 0.0]);
        spread(&mut sums, 3.0..4.0, 1.0);
        assert_eq!(sums, [4.0, 8.0, 2.0, 1.0]);
    }
}
