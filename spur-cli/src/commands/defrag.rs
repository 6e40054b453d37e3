//! `spur defrag`: the running jobs that have to move so that a request starts in one domain, and the moves
//! themselves.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use spur_proto::client::Controller;
use spur_proto::v1::{Batch, DefragmentRequest, DefragmentResponse, JobSpec, Move};

use super::query;
use super::sim::request::SCRIPT;
use crate::error::{FAILURE, Failure};
use crate::format::{Show, value};
use crate::options::submission::Submission;
use crate::options::{CommandLine, Opt, Settled, directive, sets};
use crate::place::Here;
use crate::session::Session;

#[derive(Debug, Default)]
pub(super) struct Args {
    request: Option<String>,
    apply: bool,
    json: bool,
}

const OPTIONS: &[Opt<Args>] = &[
    Opt::value(
        "for",
        None,
        "REQUEST",
        "the request that is to start in one domain, in the words of sbatch",
        |args, value| {
            args.request = Some(value.to_owned());
            Ok(())
        },
    ),
    Opt::flag("apply", None, "make the moves; operators only", sets!(Args.apply)),
    Opt::flag("json", None, "print one JSON object", sets!(Args.json)),
];

pub(super) const LINE: CommandLine<Args> = CommandLine {
    name: "spur defrag",
    synopsis: "[--for REQUEST | JOB] [--apply] [--json]",
    about: "Names the cheapest moves of running jobs that let a request, or a job that waits, start in one domain. Without \
            either it looks for the waiting job that needs most nodes. A move ends a job that may be requeued and keeps \
            other nodes for its next attempt. Nothing moves without --apply.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// The options and operands of `spur defrag`.
#[derive(Debug)]
pub(super) struct Query {
    /// The components of the request of `--for`; empty without this option.
    pub(super) request: Vec<Submission>,
    /// The waiting job, as the user wrote it.
    pub(super) job: Option<String>,
    /// True to make the moves; false to print them only.
    pub(super) apply: bool,
    json: bool,
}

impl Query {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// Fails for invalid options, for a job together with `--for`, and for more than one job.
    pub(super) fn read(words: &[String]) -> anyhow::Result<query::Asked<Self>> {
        let mut args = Args::default();
        let operands = match LINE.settle(words, &|_| None, &mut args)? {
            Settled::Show(text) => return Ok(query::Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        let job = match &operands[..] {
            [] => None,
            [job] if args.request.is_none() => Some(job.clone()),
            [job] => {
                let text = format!("--for names the request; leave out job {job}, or --for");
                return Err(Failure::new(text).into());
            }
            [_, second, ..] => {
                return Err(Failure::new(format!("`{second}`: name one job, or none")).into());
            }
        };
        let words = args.request.as_deref().map(directive::words).transpose();
        let words = words.map_err(|problem| Failure::new(format!("--for: {problem}")))?;
        let request = words.map_or(Ok(Vec::new()), |words| Submission::parse(&words, &|_| None, None))?;
        Ok(query::Asked::Run(Self { request, job, apply: args.apply, json: args.json }))
    }

    /// Returns the output for an answer: text, or JSON with `--json`.
    pub(super) fn text(&self, found: &DefragmentResponse, show: &Show) -> String {
        match self.json {
            true => format!("{}\n", object(found)),
            false => text(self, found, show),
        }
    }
}

/// True if the request fits, at once or after moves. With `--apply`, all moves must also have been begun.
pub(super) fn is_success(query: &Query, found: &DefragmentResponse) -> bool {
    !found.domain.is_empty() && (!query.apply || found.stopped.is_empty())
}

/// Runs `spur defrag`. The exit code is 0 if the request fits in one domain, or moves let it fit and no move
/// failed.
///
/// # Errors
/// Fails for invalid options, for a request that the controller refuses, or if the controller does not
/// answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let query = match Query::read(&words)? {
        query::Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        query::Asked::Run(query) => query,
    };
    let job_id = match &query.job {
        Some(job) => Some(job.parse().map_err(|_| Failure::new(format!("Invalid job id: {job}")))?),
        None => None,
    };
    let request = DefragmentRequest { job: wire(&query.request)?, job_id, apply: query.apply };
    let show = query::show(&|name| session.env(name))?;
    let connection = session.connection()?;
    if query.apply {
        // A repeated call would plan moves again that the first call has begun.
        connection.set_patience(Duration::ZERO);
    }
    let call = async |mut controller: Controller, request| controller.defragment(request).await;
    let found = connection.read(request, call).await?;
    for warning in &found.warnings {
        session.warn(warning);
    }
    let text = query.text(&found, &show);
    write!(session.out, "{text}")?;
    if !found.stopped.is_empty() {
        session.error(&found.stopped);
    }
    Ok(if is_success(&query, &found) { 0 } else { FAILURE })
}

/// Converts the components of `--for` into a message; `None` without components.
fn wire(components: &[Submission]) -> anyhow::Result<Option<JobSpec>> {
    let specs = components.iter().map(|component| component.clone().into_spec(&Here));
    let mut specs = specs.collect::<Result<Vec<_>, _>>()?.into_iter();
    let Some(first) = specs.next() else { return Ok(None) };
    let batch = Batch { script: SCRIPT.into(), work_dir: "/".to_owned(), ..Batch::default() };
    Ok(Some(JobSpec { batch: Some(batch), components: specs.collect(), ..first }))
}

fn text(query: &Query, found: &DefragmentResponse, show: &Show) -> String {
    let who = found.job_id.map_or_else(|| "the request".to_owned(), |job| format!("job {job}"));
    let sure = if found.exact { "" } else { "; the search was cut short by search_budget" };
    if found.domain.is_empty() {
        return format!("no moves let {who} start in one {}{sure}\n", found.layer);
    }
    let place = format!("{} {} on {}", found.layer, found.domain, found.nodes);
    if found.moves.is_empty() {
        return format!("{who} fits in {place} without any move\n");
    }
    let lost: u64 = found.moves.iter().map(|moved| moved.lost).sum();
    let mut text = String::new();
    for (turn, moved) in (1..).zip(&found.moves) {
        let Move { job_id, user, from_nodes, to_nodes, lost, last_checkpoint } = moved;
        let since = match last_checkpoint {
            Some(at) => format!("its checkpoint at {}", value::time(Some(*at), "", show)),
            None => "its start".to_owned(),
        };
        let done = if query.apply && turn <= found.made { " (begun)" } else { "" };
        let _ = writeln!(
            text,
            "move {turn}: job {job_id} of {user} from {from_nodes} to {to_nodes}, {lost} node-seconds lost since {since}{done}"
        );
    }
    let plural = if found.moves.len() == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "{} move{plural}, {lost} node-seconds lost: {who} then fits in {place}, waste {}{sure}",
        found.moves.len(),
        found.waste
    );
    match (query.apply, found.job_id) {
        (false, _) => text.push_str("nothing was moved; --apply makes these moves\n"),
        (true, _) if !found.stopped.is_empty() => {}
        (true, Some(_)) => {
            let _ = writeln!(text, "all moves are begun, and the nodes are kept for {who}");
        }
        (true, None) => text.push_str("all moves are begun; nothing keeps the nodes for the request\n"),
    }
    text
}

fn object(found: &DefragmentResponse) -> Value {
    let moves: Vec<Value> = (found.moves.iter())
        .map(|moved| {
            json!({
                "job_id": moved.job_id,
                "user": moved.user,
                "from": moved.from_nodes,
                "to": moved.to_nodes,
                "lost_node_seconds": moved.lost,
                "last_checkpoint": moved.last_checkpoint,
            })
        })
        .collect();
    json!({
        "job_id": found.job_id,
        "layer": found.layer,
        "domain": (!found.domain.is_empty()).then_some(&found.domain),
        "nodes": found.nodes,
        "moves": moves,
        "lost_node_seconds": found.moves.iter().map(|moved| moved.lost).sum::<u64>(),
        "waste": found.waste,
        "exact": found.exact,
        "made": found.made,
        "stopped": found.stopped,
    })
}
