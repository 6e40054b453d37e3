//! The command `sdiag`: prints the controller's statistics since their last reset.

use std::fmt::Write as _;
use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use spur_proto::client::Controller;
use spur_proto::v1::{Cycles, GetStatisticsRequest, GetStatisticsResponse, RequestCount};

use super::clusters;
use super::listing::{self, Common, Listing};
use super::query;
use crate::commands::called;
use crate::error::Failure;
use crate::format::json;
use crate::format::json::value::{number, time};
use crate::options::{CommandLine, Opt};
use crate::session::Session;
use crate::zone;

/// Values of the options.
#[derive(Default)]
pub struct Query {
    reset: bool,
    order: Order,
    common: Common,
}

/// Order of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Count,
    Id,
    Sum,
    Mean,
}

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

type QueryOpt = Opt<Query>;

const OPTIONS: &[QueryOpt] = &[
    QueryOpt::flag("all", Some('a'), "show everything, as without options", |q, _| {
        q.reset = false;
        Ok(())
    }),
    listing::clusters(),
    QueryOpt::flag("reset", Some('r'), "begin all figures anew; operators only", |q, _| {
        q.reset = true;
        Ok(())
    }),
    QueryOpt::flag("sort-by-id", Some('i'), "requests by their numbers", |q, _| {
        q.order = Order::Id;
        Ok(())
    }),
    QueryOpt::flag("sort-by-time", Some('t'), "requests by the time they took in all", |q, _| {
        q.order = Order::Sum;
        Ok(())
    }),
    QueryOpt::flag("sort-by-time2", Some('T'), "requests by the time each took", |q, _| {
        q.order = Order::Mean;
        Ok(())
    }),
    listing::json(),
    listing::yaml(),
];

/// Command line of `sdiag`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "sdiag",
    synopsis: "[OPTIONS]",
    about: "Shows what the controller has done: requests, jobs, and cycles of the planner.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SLURM_CLUSTERS"],
    permute: true,
};

/// Runs `sdiag`.
///
/// # Errors
/// An invalid option, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    session.asks("slurm_get_statistics");
    let mut query = Query::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut query)? else {
        return Ok(0);
    };
    query::no_operands(operands.into_iter())?;
    clusters::only(session, &query.common.clusters).await?;
    if query.common.wish.is_some_and(|wish| wish.list) {
        write!(session.out, "{}", json::Wish::list())?;
        return Ok(0);
    }
    let call = async |mut controller: Controller, request| controller.get_statistics(request).await;
    let request = GetStatisticsRequest { reset: query.reset };
    let mut figures = session.connection()?.read(request, call).await?;
    if query.reset {
        writeln!(session.out, "Reset scheduling statistics")?;
        return Ok(0);
    }
    sort(&mut figures.by_type, query.order);
    sort(&mut figures.by_user, query.order);
    let text = match query.common.wish {
        Some(wish) => {
            let mut show = query::show(&|name| session.env(name))?;
            query::identify(session, &mut show).await?;
            match wish.spur {
                true => wish.own([("statistics", json::to_value(&figures))]),
                false => wish.slurm(&show, [("statistics", statistics(&figures).into())]),
            }
        }
        None => text(&figures, &zone::local())?,
    };
    write!(session.out, "{text}")?;
    Ok(0)
}

fn mean(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

fn sort(counts: &mut [RequestCount], order: Order) {
    counts.sort_by(|a, b| match order {
        Order::Count => b.count.cmp(&a.count),
        Order::Id => a.id.cmp(&b.id),
        Order::Sum => b.sum.cmp(&a.sum),
        Order::Mean => mean(b.sum, b.count).cmp(&mean(a.sum, a.count)),
    });
}

/// Formats a point in time as `ctime` does, followed by seconds since the Unix epoch.
fn moment(seconds: i64, zone: &TimeZone) -> Result<String, Failure> {
    let at = Timestamp::from_second(seconds).map_err(|error| Failure::new(error.to_string()))?;
    Ok(format!("{} ({seconds})", at.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Y")))
}

const RULE: &str = "*******************************************************";

/// Returns Slurm's page, without the statistics of Slurm's backfill table, which Spur does not have.
fn text(figures: &GetStatisticsResponse, zone: &TimeZone) -> Result<String, Failure> {
    let (now, since) = (moment(figures.time, zone)?, moment(figures.since, zone)?);
    let mut page = format!(
        "{RULE}\nsdiag output at {now}\nData since      {since}\n{RULE}\n\
         Server thread count:  {}\nAgent queue size:     {}\nAgent count:          {}\nAgent thread count:   0\n\
         DBD Agent queue size: {}\n\n\
         Jobs submitted: {}\nJobs started:   {}\nJobs completed: {}\nJobs canceled:  {}\nJobs failed:    {}\n\n\
         Job states ts:  {now}\nJobs pending:   {}\nJobs running:   {}\n",
        figures.threads,
        figures.agent_queue_size,
        figures.agent_count,
        figures.accounting_queue_size,
        figures.jobs_submitted,
        figures.jobs_started,
        figures.jobs_completed,
        figures.jobs_cancelled,
        figures.jobs_failed,
        figures.jobs_pending,
        figures.jobs_running,
    );
    let seconds = figures.time.saturating_sub(figures.since);
    main_cycles(&mut page, &figures.main.unwrap_or_default(), u64::try_from(seconds).unwrap_or(0));
    backfill(&mut page, figures, zone)?;
    let _ = write!(page, "\nLatency for 1000 calls to gettimeofday(): {} microseconds\n", figures.clock);
    page.push_str("\nRemote Procedure Call statistics by message type\n");
    for count in &figures.by_type {
        let _ = writeln!(page, "\t{:<40}({:>5}) {}", count.name, count.id, times(count));
    }
    page.push_str("\nRemote Procedure Call statistics by user\n");
    for count in &figures.by_user {
        let _ = writeln!(page, "\t{:<16}({:>8}) {}", count.name, count.id, times(count));
    }
    page.push_str("\nPending RPC statistics\n");
    let _ = match figures.queued {
        0 => writeln!(page, "\tNo pending RPCs"),
        waiting => writeln!(page, "\t{waiting} requests wait for the controller"),
    };
    Ok(page)
}

fn times(count: &RequestCount) -> String {
    let average = mean(count.sum, count.count);
    format!("count:{:<6} ave_time:{average:<6} total_time:{}", count.count, count.sum)
}

fn main_cycles(page: &mut String, cycles: &Cycles, seconds: u64) {
    let _ = write!(
        page,
        "\nMain schedule statistics (microseconds):\n\tLast cycle:   {}\n\tMax cycle:    {}\n\tTotal cycles: {}\n",
        cycles.last, cycles.max, cycles.count
    );
    if cycles.count > 0 {
        let _ = write!(
            page,
            "\tMean cycle:   {}\n\tMean depth cycle:  {}\n",
            mean(cycles.sum, cycles.count),
            mean(cycles.depth_sum, cycles.count)
        );
    }
    if seconds > 60 {
        let _ = writeln!(page, "\tCycles per minute: {}", cycles.count / (seconds / 60));
    }
    let _ = writeln!(page, "\tLast queue length: {}", cycles.last_queue);
    // In Spur, none of these limits ends a pass.
    let _ = write!(
        page,
        "\nMain scheduler exit:\n\tEnd of job queue:{:>2}\n\tHit default_queue_depth:{:>2}\n\
         \tHit sched_max_job_start: 0\n\tBlocked on licenses: 0\n\tHit max_rpc_cnt: 0\n\tTimeout (max_sched_time): 0\n",
        whole(cycles),
        cycles.truncated,
    );
}

/// Returns the number of cycles that examined all jobs in their scope.
fn whole(cycles: &Cycles) -> u64 {
    cycles.count.saturating_sub(cycles.truncated)
}

fn backfill(page: &mut String, figures: &GetStatisticsResponse, zone: &TimeZone) -> Result<(), Failure> {
    let cycles = figures.backfill.unwrap_or_default();
    let when = cycles.last_when.map(|at| moment(at, zone)).transpose()?;
    let _ = write!(
        page,
        "\nBackfilling stats\n\
         \tTotal backfilled jobs (since last slurm start): {}\n\
         \tTotal backfilled jobs (since last stats cycle start): {}\n\
         \tTotal backfilled heterogeneous job components: {}\n\
         \tTotal cycles: {}\n\tLast cycle when: {}\n\tLast cycle: {}\n\tMax cycle:  {}\n",
        figures.backfilled_ever,
        figures.backfilled,
        figures.backfilled_het,
        cycles.count,
        when.as_deref().unwrap_or("N/A"),
        cycles.last,
        cycles.max,
    );
    if cycles.count > 0 {
        let _ = writeln!(page, "\tMean cycle: {}", mean(cycles.sum, cycles.count));
    }
    // Each examined job is also tried.
    let (last, depth) = (cycles.last_depth, mean(cycles.depth_sum, cycles.count));
    let _ = write!(page, "\tLast depth cycle: {last}\n\tLast depth cycle (try sched): {last}\n");
    if cycles.count > 0 {
        let _ = write!(page, "\tDepth Mean: {depth}\n\tDepth Mean (try depth): {depth}\n");
    }
    let _ = writeln!(page, "\tLast queue length: {}", cycles.last_queue);
    if cycles.count > 0 {
        let _ = writeln!(page, "\tQueue length mean: {}", mean(cycles.queue_sum, cycles.count));
    }
    let _ = write!(
        page,
        "\nBackfill exit\n\tEnd of job queue:{:>2}\n\tHit bf_max_job_start: 0\n\tHit bf_max_job_test:{:>2}\n\
         \tSystem state changed:{:>2}\n\tHit table size limit (bf_node_space_size): 0\n\tTimeout (bf_max_time): 0\n",
        whole(&cycles),
        cycles.truncated,
        cycles.abandoned,
    );
    Ok(())
}

/// Returns the reasons for which main cycles ended.
fn main_exit(cycles: &Cycles) -> Value {
    json!({
        "end_job_queue": whole(cycles), "default_queue_depth": cycles.truncated,
        "max_job_start": 0, "max_rpc_cnt": 0, "max_sched_time": 0, "licenses": 0,
    })
}

/// Returns the reasons for which backfill cycles ended.
fn backfill_exit(cycles: &Cycles) -> Value {
    json!({
        "end_job_queue": whole(cycles), "bf_max_job_test": cycles.truncated, "state_changed": cycles.abandoned,
        "bf_max_job_start": 0, "bf_max_time": 0, "bf_node_space_size": 0,
    })
}

/// Returns the statistics under the names of Slurm's data parser.
fn statistics(figures: &GetStatisticsResponse) -> Value {
    let (main, backfill) = (figures.main.unwrap_or_default(), figures.backfill.unwrap_or_default());
    let minutes = u64::try_from(figures.time.saturating_sub(figures.since)).unwrap_or(0) / 60;
    let depth = mean(backfill.depth_sum, backfill.count);
    let requests = figures.by_type.iter().map(|count| {
        json!({
            "message_type": count.name, "type_id": count.id, "count": count.count, "total_time": count.sum,
            "average_time": number(Some(mean(count.sum, count.count))),
        })
    });
    let users = figures.by_user.iter().map(|count| {
        json!({
            "user": count.name, "user_id": count.id, "count": count.count, "total_time": count.sum,
            "average_time": number(Some(mean(count.sum, count.count))),
        })
    });
    let mut all = json!({
        "parts_packed": 1,
        "req_time": time(Some(figures.time)),
        "req_time_start": time(Some(figures.since)),
        "server_thread_count": figures.threads,
        "agent_queue_size": figures.agent_queue_size,
        "agent_count": figures.agent_count,
        "agent_thread_count": 0,
        "dbd_agent_queue_size": figures.accounting_queue_size,
        "gettimeofday_latency": figures.clock,
        "jobs_submitted": figures.jobs_submitted,
        "jobs_started": figures.jobs_started,
        "jobs_completed": figures.jobs_completed,
        "jobs_canceled": figures.jobs_cancelled,
        "jobs_failed": figures.jobs_failed,
        "jobs_pending": figures.jobs_pending,
        "jobs_running": figures.jobs_running,
        "job_states_ts": time(Some(figures.time)),
        "rpcs_by_message_type": requests.collect::<Vec<_>>(),
        "rpcs_by_user": users.collect::<Vec<_>>(),
        "pending_rpcs": [],
    });
    let cycles = json!({
        "schedule_cycle_max": main.max,
        "schedule_cycle_last": main.last,
        "schedule_cycle_sum": main.sum,
        "schedule_cycle_total": main.count,
        "schedule_cycle_mean": mean(main.sum, main.count),
        "schedule_cycle_mean_depth": mean(main.depth_sum, main.count),
        "schedule_cycle_per_minute": main.count.checked_div(minutes).unwrap_or(0),
        "schedule_cycle_depth": main.depth_sum,
        "schedule_queue_length": main.last_queue,
        "schedule_exit": main_exit(&main),
        "bf_active": figures.backfill_active,
        "bf_exit": backfill_exit(&backfill),
        "bf_backfilled_jobs": figures.backfilled_ever,
        "bf_last_backfilled_jobs": figures.backfilled,
        "bf_backfilled_het_jobs": figures.backfilled_het,
        "bf_cycle_counter": backfill.count,
        "bf_cycle_mean": mean(backfill.sum, backfill.count),
        "bf_cycle_sum": backfill.sum,
        "bf_cycle_last": backfill.last,
        "bf_cycle_max": backfill.max,
        "bf_depth_mean": depth, "bf_depth_mean_try": depth,
        "bf_last_depth": backfill.last_depth, "bf_last_depth_try": backfill.last_depth,
        "bf_depth_sum": backfill.depth_sum, "bf_depth_try_sum": backfill.depth_sum,
        "bf_queue_len": backfill.last_queue,
        "bf_queue_len_mean": mean(backfill.queue_sum, backfill.count),
        "bf_queue_len_sum": backfill.queue_sum,
        "bf_when_last_cycle": time(backfill.last_when),
    });
    if let (Value::Object(all), Value::Object(cycles)) = (&mut all, cycles) {
        all.extend(cycles);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> GetStatisticsResponse {
        let count = |name: &str, id, count, sum| RequestCount { name: name.into(), id, count, sum };
        let cycles =
            Cycles { count: 4, last: 16, max: 18, sum: 44, last_queue: 3, truncated: 1, ..Cycles::default() };
        GetStatisticsResponse {
            time: 1_795_582_255,
            since: 1_795_581_814,
            threads: 3,
            agent_queue_size: 5,
            accounting_queue_size: 12,
            jobs_submitted: 7,
            main: Some(cycles),
            by_type: vec![
                count("REQUEST_PARTITION_INFO", 2009, 2, 8232),
                count("REQUEST_NODE_INFO", 2007, 3, 30),
            ],
            by_user: vec![count("root", 0, 7, 19524)],
            ..GetStatisticsResponse::default()
        }
    }

    #[test]
    fn lines_stand_where_slurm_has_them() {
        let page = text(&figures(), &TimeZone::UTC).unwrap();
        for line in [
            "sdiag output at Wed Nov 25 04:50:55 2026 (1795582255)",
            "Data since      Wed Nov 25 04:43:34 2026 (1795581814)",
            "Server thread count:  3",
            "Agent queue size:     5",
            "DBD Agent queue size: 12",
            "Jobs submitted: 7",
            "\tEnd of job queue: 3",
            "\tHit default_queue_depth: 1",
            "\tMean cycle:   11",
            "\tLast cycle when: N/A",
            "\tREQUEST_PARTITION_INFO                  ( 2009) count:2      ave_time:4116   total_time:8232",
            "\troot            (       0) count:7      ave_time:2789   total_time:19524",
            "\tNo pending RPCs",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn requests_are_sorted_as_asked() {
        for (order, first) in
            [(Order::Count, 2007), (Order::Id, 2007), (Order::Sum, 2009), (Order::Mean, 2009)]
        {
            let mut counts = figures().by_type;
            sort(&mut counts, order);
            assert_eq!(counts[0].id, first, "{order:?}");
        }
    }
}
