//! The command `spur why`: prints why a job waits and until when, or why it runs on its nodes. With `--fix`
//! it prints changes with which a waiting job starts earlier.

use std::io::Write;

use spur_core::text::jobid::JobRef;
use spur_proto::client::Controller;
use spur_proto::convert::job::word;
use spur_proto::v1::{ExplainJobRequest, FixJobRequest, FixJobResponse, Job, JobFilter, JobFix};

use super::query;
use crate::error::{FAILURE, Failure};
use crate::format::fields::job::job_id;
use crate::format::{Show, json, value};
use crate::options::{CommandLine, Opt, Settled, sets};
use crate::session::Session;

#[derive(Debug, Default)]
pub(super) struct Args {
    json: bool,
    fix: bool,
}

pub(super) const LINE: CommandLine<Args> = CommandLine {
    name: "spur why",
    synopsis: "[--fix] [--json] JOB …",
    about: "Says why jobs wait, and when and where each will start if everybody before it starts as soon as it can; and of \
            jobs that run or have run, why they were given the nodes they have.\n\n\
            With --fix: the smallest changes with which a waiting job starts earlier, each with its planned start. Less time, fewer \
            nodes, and other partitions, accounts and QOS that the user may use are tried, one change at a time. At most 20 plans \
            are made for a job.",
    options: &[
        Opt::flag("fix", None, "print changes with which a waiting job starts earlier", sets!(Args.fix)),
        Opt::flag("json", None, "print JSON", sets!(Args.json)),
    ],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur why`.
///
/// # Errors
/// Words that name no job, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let operands = match LINE.settle(&words, &|name| session.env(name), &mut args)? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(operands) if operands.is_empty() => {
            return Err(Failure::new("a job is expected: spur why 42").into());
        }
        Settled::Run(operands) => operands,
    };
    let mut job_ids = Vec::new();
    for word in &operands {
        let named = JobRef::<u32>::parse_list(word);
        let named = named.map_err(|_| Failure::new(format!("Invalid job id: {word}")))?;
        job_ids.extend(named.iter().map(JobRef::to_string));
    }
    let show = query::show(&|name| session.env(name))?;
    let connection = session.connection()?;
    let filter = JobFilter { job_ids, states: vec!["all".to_owned()], ..JobFilter::default() };
    let mut jobs = query::jobs(connection, filter).await?;
    if args.fix {
        return fix(session, &jobs, args.json, &show).await;
    }
    for job in jobs.iter_mut().filter(|job| job.state == "PENDING") {
        let request = ExplainJobRequest { job_id: job.id };
        let explained = async |mut controller: Controller, r| controller.explain_job(r).await;
        if let Some(explained) = connection.read(request, explained).await?.job {
            *job = explained;
        }
    }
    if args.json {
        writeln!(session.out, "{}", json::Wish::default().own([("jobs", json::to_value(&jobs))]))?;
    } else {
        let texts: Vec<String> = jobs.iter().map(|job| text(job, &show)).collect();
        write!(session.out, "{}", texts.join("\n"))?;
    }
    Ok(if jobs.is_empty() { FAILURE } else { 0 })
}

/// Prints changes with which the waiting ones of some jobs start earlier. The exit code is 1 if no job waits.
async fn fix(session: &mut Session, jobs: &[Job], as_json: bool, show: &Show) -> anyhow::Result<u8> {
    let waiting: Vec<&Job> = jobs.iter().filter(|job| job.state == "PENDING").collect();
    let mut answers = Vec::new();
    for job in &waiting {
        let request = FixJobRequest { job_id: job.id };
        let call = async |mut controller: Controller, request| controller.fix_job(request).await;
        answers.push(session.connection()?.read(request, call).await?);
    }
    if as_json {
        let record = |(job, answer): (&&Job, &FixJobResponse)| {
            let fixes = answer.fixes.iter().map(|fix| {
                let JobFix { key, value, start_time, nodes } = fix;
                serde_json::json!({ "key": key, "value": value, "start_time": start_time, "nodes": nodes })
            });
            serde_json::json!({
                "job_id": job.id,
                "start_time": answer.start_time,
                "nodes": answer.nodes,
                "plans": answer.plans,
                "fixes": fixes.collect::<Vec<_>>(),
            })
        };
        let records: Vec<serde_json::Value> = waiting.iter().zip(&answers).map(record).collect();
        writeln!(session.out, "{}", json::Wish::default().own([("jobs", records.into())]))?;
    } else {
        let texts: Vec<String> =
            waiting.iter().zip(&answers).map(|(job, answer)| fixes_text(job, answer, show)).collect();
        write!(session.out, "{}", texts.join("\n"))?;
    }
    if waiting.is_empty() {
        session.inform("no job waits: --fix is for pending jobs");
        return Ok(FAILURE);
    }
    Ok(0)
}

/// Returns the planned start of a job, and a table of the changes with which the job starts earlier.
fn fixes_text(job: &Job, answer: &FixJobResponse, show: &Show) -> String {
    let date = |seconds: i64| value::time(Some(seconds), "", show);
    let id = job_id(job, show);
    let planned = match answer.start_time {
        Some(start) => format!("planned to start {} on {}", date(start), answer.nodes),
        None => "no start is known".to_owned(),
    };
    let mut text = format!("job {id} ({}) of {} in {}: {planned}\n", job.name, job.user, job.partition);
    if answer.fixes.is_empty() {
        text += &format!(
            "no single change was found with which the job starts earlier ({} plans)\n",
            answer.plans
        );
        return text;
    }
    let mut rows = vec![["CHANGE", "START", "EARLIER", "NODES"].map(str::to_owned)];
    for JobFix { key, value: to, start_time, nodes } in &answer.fixes {
        let gain = answer.start_time.and_then(|start| u64::try_from(start - start_time).ok());
        let gain = gain.map_or_else(|| "-".to_owned(), |seconds| value::long_limit(Some(seconds)));
        rows.push([format!("{key}={to}"), date(*start_time), gain, nodes.clone()]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for [change, start, gain, nodes] in &rows {
        let [changes, starts, gains] = widths;
        let line = format!("{change:<changes$}  {start:<starts$}  {gain:<gains$}  {nodes}");
        text += line.trim_end();
        text.push('\n');
    }
    text + &format!("scontrol update JobId={id} CHANGE makes one of these changes\n")
}

/// Returns the known facts about a job, one per line, without empty ones.
fn text(job: &Job, show: &Show) -> String {
    let date = |seconds: Option<i64>| value::time(seconds, "not known", show);
    let spans: Vec<String> = job.spans.iter().map(|span| format!("{} {}", span.layer, span.count)).collect();
    let waits = job.state == "PENDING";
    let reason = Some(word(&job.reason)).filter(|reason| *reason != "None");
    let (start, nodes) = if waits { ("planned", &job.planned_nodes) } else { ("start", &job.nodes) };
    let lines = [
        ("job", format!("{} ({}) of {} in {}", job_id(job, show), job.name, job.user, job.partition)),
        ("state", reason.map_or_else(|| job.state.clone(), |reason| format!("{}, {reason}", job.state))),
        (start, date(job.start_time)),
        ("nodes", nodes.clone()),
        ("spans", spans.join(", ")),
        ("why", value::local_times(if waits { &job.reason_detail } else { &job.why }, show)),
        // The detail names the file for which a launch failed.
        ("ended", if waits { String::new() } else { value::local_times(&job.reason_detail, show) }),
        ("relaxed", job.relaxed.join(", ")),
        (
            "exact",
            if job.exact == Some(false) { "no: search_budget was used up".to_owned() } else { String::new() },
        ),
    ];
    let told = lines.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| format!("{name:<8}{text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use spur_proto::v1::Span;

    use super::*;

    #[test]
    fn times_are_those_of_the_users_zone() {
        let show = Show::new(TimeZone::fixed(jiff::tz::offset(2)), 0);
        for (text, wanted) in [
            ("earliest 2026-11-20T10:00:00Z in r1", "earliest 2026-11-20T12:00:00 in r1"),
            ("2026-11-20T23:00:00Z", "2026-11-21T01:00:00"),
            ("größer als 2026-11-20T10:00:00", "größer als 2026-11-20T10:00:00"),
            ("", ""),
        ] {
            assert_eq!(value::local_times(text, &show), wanted);
        }
    }

    #[test]
    fn a_job_is_explained_by_what_is_known_of_it() {
        let show = Show::new(TimeZone::UTC, 1_000);
        let job = Job {
            id: 42,
            name: "train".to_owned(),
            user: "alice".to_owned(),
            partition: "main".to_owned(),
            state: "PENDING".to_owned(),
            reason: "Resources".to_owned(),
            reason_detail: "needs 4 nodes in one leaf; r1 has 3 free".to_owned(),
            start_time: Some(3_600),
            start_is_planned: true,
            planned_nodes: "n[1-4]".to_owned(),
            ..Job::default()
        };
        let waiting = "job     42 (train) of alice in main\nstate   PENDING, Resources\nplanned 1970-01-01T01:00:00\n\
                       nodes   n[1-4]\nwhy     needs 4 nodes in one leaf; r1 has 3 free\n";
        assert_eq!(text(&job, &show), waiting);
        let unknown = Job { start_time: None, planned_nodes: String::new(), ..job.clone() };
        assert!(text(&unknown, &show).contains("planned not known\n"), "{}", text(&unknown, &show));
        let spans =
            vec![Span { layer: "leaf".to_owned(), count: 2 }, Span { layer: "spine".to_owned(), count: 1 }];
        let running = Job {
            state: "RUNNING".to_owned(),
            reason: "None".to_owned(),
            reason_detail: String::new(),
            nodes: "n[5-8]".to_owned(),
            why: "spine-1 holds it with no waste".to_owned(),
            spans,
            relaxed: vec!["--switches=1".to_owned()],
            exact: Some(false),
            ..job
        };
        let ran = "job     42 (train) of alice in main\nstate   RUNNING\nstart   1970-01-01T01:00:00\n\
                   nodes   n[5-8]\nspans   leaf 2, spine 1\nwhy     spine-1 holds it with no waste\n\
                   relaxed --switches=1\nexact   no: search_budget was used up\n";
        assert_eq!(text(&running, &show), ran);
        let failed = Job {
            state: "FAILED".to_owned(),
            reason_detail: "Could not open stdout file /no/x: No such file or directory".to_owned(),
            ..running
        };
        assert!(text(&failed, &show).contains("\nended   Could not open stdout file /no/x: No such"));
    }
}
