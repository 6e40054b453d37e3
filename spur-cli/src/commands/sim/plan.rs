//! The command `spur plan`: returns start, nodes and the reason for their choice for a request that is not
//! submitted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use spur_core::model::reason::Reason;
use spur_core::sim::{Foresight, PassMode, Spans, Watch, World};
use spur_core::text::time::Time;
use spur_proto::v1::{Batch, JobSpec, SubmitRequest, TestSubmitResponse};

use super::args::Overrides;
use super::deed::Users;
use super::{input, play, request, workload};
use crate::error::{FAILURE, Failure};
use crate::options::submission::Submission;
use crate::options::{CommandLine, Opt, Settled, sets};
use crate::place::Here;
use crate::session::Session;
use crate::zone;

/// Value of `--state` for the running controller.
const LIVE: &str = "live";

#[derive(Debug, Default)]
pub(in crate::commands) struct Args {
    config: Option<PathBuf>,
    state: Option<String>,
    at: Option<i64>,
    json: bool,
}

type PlanOpt = Opt<Args>;

const OPTIONS: &[PlanOpt] = &[
    PlanOpt::value("config", Some('c'), "FILE", "the cluster that the state is of", |args, value| {
        args.config = Some(value.into());
        Ok(())
    }),
    PlanOpt::value(
        "state",
        None,
        "FILE",
        "a workload as `spur sim` reads it; live, the default, asks the controller",
        |args, value| {
            args.state = Some(value.to_owned());
            Ok(())
        },
    ),
    PlanOpt::value(
        "at",
        None,
        "SECONDS",
        "when to ask, from the start of the workload; after its last line without",
        |args, value| {
            let at = value.parse().ok().filter(|at| *at >= 0);
            args.at = Some(at.ok_or_else(|| format!("`{value}` is no whole number of seconds"))?);
            Ok(())
        },
    ),
    PlanOpt::flag("json", None, "print one JSON object", sets!(Args.json)),
];

pub(in crate::commands) const LINE: CommandLine<Args> = CommandLine {
    name: "spur plan",
    synopsis: "[--config FILE --state FILE] [OPTIONS] -- SBATCH_OPTIONS",
    about: "Says when and where a job would start that is not submitted: among the jobs of the running controller, or \
            on a cluster as a workload would have left it.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: false,
};

/// Answer of the controller or of a simulation.
struct Answer {
    foresight: Foresight,
    /// True if the start is relative to the simulation; otherwise it is a date.
    simulated: bool,
}

/// Observer that ignores all events before the request.
struct Unwatched;

impl Watch for Unwatched {}

/// Runs `spur plan`. The exit code is 0 if the job has a known start.
///
/// # Errors
/// Invalid options, a state that cannot be read, or no answer.
pub async fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let asked = match LINE.settle(words, &|_| None, &mut args)? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(words) => words,
    };
    let wish = Submission::parse(&asked, &|_| None, None)?;
    let answer = match (args.state.as_deref().unwrap_or(LIVE), &args.config) {
        (LIVE, None) if args.at.is_none() => live(session, wish).await?,
        (LIVE, _) => {
            let text = "--config and --at are for a state from a file; the running controller has its own";
            return Err(Failure::new(text).into());
        }
        (state, Some(config)) => from_file(config, Path::new(state), args.at, wish)?,
        (_, None) => return Err(Failure::new("--state FILE needs the cluster: --config FILE").into()),
    };
    for warning in &answer.foresight.warnings {
        session.warn(warning);
    }
    match args.json {
        true => writeln!(session.out, "{}", object(&answer.foresight))?,
        false => write!(session.out, "{}", text(&answer))?,
    }
    Ok(if answer.foresight.start.is_some() { 0 } else { FAILURE })
}

/// Runs a workload up to a time and then plans the request.
fn from_file(config: &Path, state: &Path, at: Option<i64>, wish: Vec<Submission>) -> Result<Answer, Failure> {
    let overrides = Overrides::default();
    let policy = Arc::new(input::policy(config, &overrides)?);
    let directory = state.parent().unwrap_or(Path::new("."));
    let mut workload =
        workload::read(&input::read(state)?, &state.display().to_string(), directory, &overrides)?;
    workload.sort(None);
    let last = workload.deeds.last().map_or(0, |deed| i64::try_from(deed.at).unwrap_or(i64::MAX));
    let until = Time(at.unwrap_or(last));
    let world = World::new(policy, PassMode::Timestamp, Unwatched);
    let mut world = world.map_err(|reject| Failure::new(reject.to_string()))?;
    play(&mut world, &workload, Some(until))?;
    world.advance(until);
    let (submission, _) = request::submission(&world, &wish).map_err(Failure::new)?;
    let foresight = world.foresee(Users::default().owner("user"), submission);
    Ok(Answer { foresight, simulated: true })
}

/// Requests the plan from the running controller.
async fn live(session: &mut Session, wish: Vec<Submission>) -> anyhow::Result<Answer> {
    let batch = Batch { script: request::SCRIPT.into(), work_dir: "/".to_owned(), ..Batch::default() };
    let mut components =
        wish.into_iter().map(|wish| wish.into_spec(&Here)).collect::<Result<Vec<_>, _>>()?.into_iter();
    let first = components.next().unwrap_or_default();
    let job = JobSpec { batch: Some(batch), components: components.collect(), ..first };
    let request = SubmitRequest { job: Some(job), ..SubmitRequest::default() };
    let connection = session.connection()?;
    let told = connection.read(request, async |mut controller, r| controller.test_submit(r).await).await?;
    let TestSubmitResponse { start_time, nodes, spans, reason, detail, warnings, .. } = told;
    let spans = spans.into_iter().map(|span| (Arc::from(span.layer), span.count)).collect();
    // Without a reason to wait, the text explains the choice of nodes.
    let (why, detail) = if reason.is_empty() { (detail, String::new()) } else { (String::new(), detail) };
    // The reason is one of Slurm's words, which is printed before the text.
    let told = if start_time.is_none() && detail.is_empty() { reason.clone() } else { detail };
    let foresight = Foresight {
        start: start_time.map(Time),
        nodes,
        spans: Spans(spans),
        reason: Reason::named(&reason).unwrap_or_default(),
        detail: told,
        why,
        warnings,
    };
    Ok(Answer { foresight, simulated: false })
}

fn text(answer: &Answer) -> String {
    let found = &answer.foresight;
    let Some(start) = found.start else {
        let why = if found.detail.is_empty() { found.reason.name() } else { &found.detail };
        return format!("no start is known: {why}\n");
    };
    let when = match jiff::Timestamp::from_second(start.0) {
        Ok(date) if !answer.simulated => {
            date.to_zoned(zone::local()).strftime("%Y-%m-%dT%H:%M:%S").to_string()
        }
        _ => format!("{} s", start.0),
    };
    let spans: Vec<String> = found.spans.0.iter().map(|(layer, count)| format!("{layer} {count}")).collect();
    let mut text = format!("start  {when}\nnodes  {}\n", found.nodes);
    if !spans.is_empty() {
        text.push_str(&format!("spans  {}\n", spans.join(", ")));
    }
    for why in [&found.why, &found.detail].into_iter().filter(|why| !why.is_empty()) {
        text.push_str(&format!("why    {why}\n"));
    }
    text
}

fn object(found: &Foresight) -> Value {
    let spans: Map<String, Value> =
        found.spans.0.iter().map(|(layer, count)| (layer.to_string(), json!(count))).collect();
    json!({
        "start": found.start.map(|time| time.0),
        "nodes": (!found.nodes.is_empty()).then_some(&found.nodes),
        "spans": spans,
        "reason": found.reason.name(),
        "detail": found.detail,
        "why": found.why,
        "warnings": found.warnings,
    })
}
