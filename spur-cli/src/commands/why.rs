//! The command `spur why`: prints why a job waits and until when, or why it runs on its nodes.

use std::io::Write;

use spur_core::text::jobid::JobRef;
use spur_proto::convert::job::word;
use spur_proto::v1::{ExplainJobRequest, Job, JobFilter};

use super::query;
use crate::error::{FAILURE, Failure};
use crate::format::fields::job::job_id;
use crate::format::{Show, json, value};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;

#[derive(Debug, Default)]
pub(super) struct Args {
    json: bool,
}

pub(super) const LINE: CommandLine<Args> = CommandLine {
    name: "spur why",
    synopsis: "[--json] JOB …",
    about: "Says why jobs wait, and when and where each will start if everybody before it starts as soon as it can; and of \
            jobs that run or have run, why they were given the nodes they have.",
    options: &[Opt::flag("json", None, "print the jobs as JSON", |args: &mut Args, _| {
        args.json = true;
        Ok(())
    })],
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
    for job in jobs.iter_mut().filter(|job| job.state == "PENDING") {
        let request = ExplainJobRequest { job_id: job.id };
        let explained =
            async |mut controller: spur_proto::client::Controller, r| controller.explain_job(r).await;
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
