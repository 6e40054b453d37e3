//! The command `scontrol`: shows and changes all entities.

mod completing;
pub(in crate::commands) mod controller;
mod entity;
mod errnumstr;
mod help;
pub mod hostnames;
mod list_pids;
mod pid_info;
mod queue;
mod reboot;
mod record;
pub mod reservation;
mod show;
mod show_assoc;
mod show_config;
mod show_host;
pub mod show_job;
pub mod show_license;
pub mod show_node;
pub mod show_partition;
pub mod show_reservation;
pub mod show_step;
pub mod show_topology;
mod slurm_keys;
pub mod update;

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use jiff::Timestamp;
use spur_core::model::change::{ChangeError, JobChange};
use spur_core::text::nearest::nearest;
use spur_proto::client::{Controller, JOBS_AT_ONCE};
use spur_proto::v1::{
    CreateReservationRequest, GetScriptRequest, JobFilter, RaiseFeatureLevelRequest, UpdateJobRequest,
    UpdateReservationRequest,
};

use super::clusters;
use super::listing::{self, Common, Listing};
use super::query;
use crate::commands::called;
use crate::commands::interactive::{self, Console};
use crate::error::{Bare, Failure};
use crate::format::json::Wish;
use crate::options::help::long;
use crate::options::{CommandLine, Opt};
use crate::session::Session;
use crate::zone;
pub use controller::ping;
use entity::{Creation, Deletion};
use help::COMMANDS;
use update::Update;

/// Settings for the printing of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// True to include hidden partitions.
    pub all: bool,
    /// True for one line per record.
    pub oneline: bool,
    /// True for more details.
    pub details: bool,
    /// True to include information that Slurm does not have.
    pub own: bool,
    /// True to print the time and the number of records first.
    pub verbose: bool,
    /// Format of records as JSON or YAML; `None` for text.
    pub wish: Option<Wish>,
}

/// Values of the options, and of commands that act like options for later commands.
#[derive(Clone, Debug, Default)]
pub struct Call {
    common: Common,
    oneline: bool,
    details: bool,
    own: bool,
}

impl Call {
    /// Returns the settings for the printing of records.
    pub fn settings(&self) -> Settings {
        let Call { oneline, details, own, .. } = *self;
        let listing::Common { all, verbose, wish, .. } = self.common;
        Settings { all, oneline, details, own, verbose, wish }
    }
}

impl Listing for Call {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

type CallOpt = Opt<Call>;

const OPTIONS: &[CallOpt] = &[
    listing::all(&["SCONTROL_ALL"]),
    listing::clusters(),
    CallOpt::flag("details", Some('d'), "show more of each record", |call, _| {
        call.details = true;
        Ok(())
    }),
    listing::federation(&["SCONTROL_FEDERATION"]),
    CallOpt::flag("future", Some('F'), "nodes in the state FUTURE", |_, _| Ok(()))
        .env(&["SCONTROL_FUTURE"])
        .without_effect("no node is in that state"),
    listing::hide(),
    listing::json(),
    listing::local(&["SCONTROL_LOCAL"]),
    CallOpt::flag("oneliner", Some('o'), "show each record on one line", |call, _| {
        call.oneline = true;
        Ok(())
    }),
    CallOpt::flag("quiet", Some('Q'), "say no more than errors", |_, _| Ok(()))
        .without_effect("no more is said anyway"),
    listing::sibling(&["SCONTROL_SIBLING"]),
    CallOpt::flag("spur", None, "show what only Spur knows of each record as well", |call, _| {
        call.own = true;
        Ok(())
    }),
    CallOpt::value("uid", Some('u'), "UID", "change jobs in the name of that user", |_, _| Ok(()))
        .refused("whoever may change the jobs of others does so in his own name"),
    listing::verbose(),
    listing::yaml(),
];

/// Command line of `scontrol`.
pub const LINE: CommandLine<Call> = CommandLine {
    name: "scontrol",
    synopsis: "[<OPTION>] [<COMMAND>]",
    about: COMMANDS,
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SCONTROL_", "SLURM_CLUSTERS"],
    permute: true,
};

/// No limit on the number of arguments.
const ANY: usize = usize::MAX;

/// Commands with their minimum and maximum number of arguments.
const KEYWORDS: [(&str, usize, usize); 43] = [
    ("abort", 0, ANY),
    ("all", 0, 0),
    ("cancel_reboot", 1, 1),
    ("cluster", 0, 1),
    ("completing", 0, 0),
    ("create", 1, ANY),
    ("delete", 1, ANY),
    ("details", 0, 0),
    ("errnumstr", 1, 1),
    ("exit", 0, 0),
    ("fsdampeningfactor", 1, 1),
    ("help", 0, 0),
    ("hide", 0, 0),
    ("hold", 1, ANY),
    ("holdu", 1, ANY),
    ("listpids", 1, 2),
    ("notify", 2, ANY),
    ("oneliner", 0, 0),
    ("pidinfo", 1, 1),
    ("ping", 0, 0),
    ("quiet", 0, 0),
    ("quit", 0, 0),
    ("reboot", 0, ANY),
    ("reconfigure", 0, 0),
    ("release", 1, ANY),
    ("requeue", 1, ANY),
    ("requeuehold", 1, ANY),
    ("resume", 1, ANY),
    ("schedloglevel", 1, 1),
    ("setdebug", 1, 1),
    ("setdebugflags", 1, ANY),
    ("show", 1, ANY),
    ("shutdown", 0, 1),
    ("suspend", 1, ANY),
    ("takeover", 0, 1),
    ("token", 0, ANY),
    ("top", 1, ANY),
    ("uhold", 1, ANY),
    ("update", 1, ANY),
    ("verbose", 0, 0),
    ("version", 0, 0),
    ("wait_job", 1, 1),
    ("write", 1, 3),
];

/// Returns the word in `known` that is equal to `word`, or the only one with this prefix. `None` for an
/// unknown or ambiguous word.
fn meant<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let mut begun = known.iter().filter(|name| name.starts_with(&word));
    match (known.iter().find(|name| **name == word), begun.next(), begun.next()) {
        (Some(exact), ..) => Some(exact),
        (None, Some(only), None) if !word.is_empty() => Some(only),
        _ => None,
    }
}

/// Returns the command that a word selects; `None` for an unknown or ambiguous word.
fn meant_command(word: &str) -> Option<&'static str> {
    meant(word, &KEYWORDS.map(|(name, ..)| name))
}

/// Returns an error in the command line, which Slurm prints without the command's name.
fn bare(text: impl Into<String>) -> Bare {
    Bare(text.into())
}

/// The interactive mode of `scontrol`.
const CONSOLE: Console =
    Console { prompt: "scontrol: ", ends: |word| matches!(meant_command(word), Some("exit" | "quit")) };

/// Runs `scontrol`.
///
/// # Errors
/// A command that fails.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut words = words;
    // `-Backfill` removes a flag and is not an option.
    if let Some(at) = words.iter().position(|word| !word.starts_with('-'))
        && meant_command(&words[at]) == Some("setdebugflags")
    {
        words.insert(at + 1, "--".to_owned());
    }
    let mut call = Call::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut call)? else {
        return Ok(0);
    };
    if call.common.wish.is_some_and(|wish| wish.list) {
        write!(session.out, "{}", Wish::list())?;
        return Ok(0);
    }
    clusters::only(session, &call.common.clusters).await?;
    if operands.is_empty() {
        let command =
            async |session: &mut Session, words: &[String]| command(session, &mut call, words).await;
        interactive::run(session, CONSOLE, command).await
    } else {
        command(session, &mut call, &operands).await
    }
}

/// Runs one command.
async fn command(session: &mut Session, call: &mut Call, words: &[String]) -> anyhow::Result<u8> {
    let Some((word, rest)) = words.split_first() else { return Ok(0) };
    let Some(&(keyword, least, most)) =
        meant_command(word).and_then(|word| KEYWORDS.iter().find(|(name, ..)| *name == word))
    else {
        let hint = nearest(word, KEYWORDS.map(|(name, ..)| name));
        let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        return Err(bare(format!("invalid keyword: {word}{hint}")).into());
    };
    if rest.len() < least {
        let text = match keyword {
            // Slurm has specific messages for these commands.
            "errnumstr" => "one arguments required for keyword:errnumstr".to_owned(),
            "pidinfo" => "missing argument for keyword:pidinfo".to_owned(),
            "update" => "too few arguments for update keyword".to_owned(),
            _ => format!("too few arguments for keyword:{keyword}"),
        };
        return Err(bare(text).into());
    }
    if rest.len() > most {
        return Err(bare(format!("too many arguments for keyword:{keyword}")).into());
    }
    session.asks(None);
    match keyword {
        "show" => show::run(session, call.settings(), rest).await,
        "update" => change(session, rest).await,
        "create" => create(session, rest).await,
        "delete" => delete(session, rest).await,
        "write" => write(session, rest).await,
        "completing" => show_completing(session).await,
        "listpids" => list_pids::run(session, rest).await,
        "pidinfo" => pid_info::run(session, &rest[0]).await,
        "hold" | "holdu" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume" | "top" => {
            queue::queue(session, keyword, rest).await
        }
        "wait_job" => queue::wait_job(session, &rest[0]).await,
        "notify" => queue::notify(session, &rest[0], &rest[1..]).await,
        "reboot" => reboot::reboot(session, rest).await,
        "cancel_reboot" => reboot::cancel(session, &rest[0]).await,
        "ping" => controller::is_there(session, call.common.wish).await,
        "reconfigure" => controller::reconfigure(session).await,
        "shutdown" => controller::shut_down(session, rest.first().map(String::as_str)).await,
        "takeover" => controller::take_over(session, rest.first().map(String::as_str)).await,
        "setdebug" => controller::set_debug(session, &rest[0]).await,
        "setdebugflags" => controller::set_debug_flags(session, rest).await,
        "schedloglevel" => controller::set_scheduler_log(session, &rest[0]).await,
        "errnumstr" => controller::error_words(session, &rest[0]),
        "cluster" => {
            clusters::only(session, rest).await?;
            Ok(0)
        }
        "help" => say(session, &long(&LINE)),
        "version" => say(session, &crate::version::line()),
        _ => set_or_refuse(call, keyword),
    }
}

fn say(session: &mut Session, text: &str) -> anyhow::Result<u8> {
    write!(session.out, "{text}")?;
    Ok(0)
}

/// Commands of Slurm that Spur does not have, with their messages.
const REFUSED: [(&str, &str); 3] = [
    ("abort", "abort: not supported by Spur; scontrol shutdown controller ends it, and nothing is lost"),
    (
        "fsdampeningfactor",
        "fsdampeningfactor: not supported by Spur; set fair_share_dampening_factor in [scheduler], then scontrol reconfigure",
    ),
    ("token", "Error fetching token: each command gets its own from the daemon of its host"),
];

/// Returns all commands, each with true if Spur has it.
pub fn commands() -> impl Iterator<Item = (&'static str, bool)> {
    KEYWORDS.iter().map(|(name, ..)| (*name, !REFUSED.iter().any(|(refused, _)| refused == name)))
}

/// Returns the entities that can be shown.
pub fn entities() -> impl Iterator<Item = &'static str> {
    show::ENTITIES.into_iter()
}

/// Runs commands that act like options for later commands, and refuses commands that Spur does not have.
fn set_or_refuse(call: &mut Call, keyword: &str) -> anyhow::Result<u8> {
    if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == keyword) {
        return Err(bare(*why).into());
    }
    match keyword {
        "all" => call.common.all = true,
        "hide" => call.common.all = false,
        "details" => call.details = true,
        "oneliner" => call.oneline = true,
        "verbose" => call.common.verbose = true,
        "quiet" => call.common.verbose = false,
        // `exit` and `quit` have no effect on a command line.
        _ => {}
    }
    Ok(0)
}

async fn show_completing(session: &mut Session) -> anyhow::Result<u8> {
    let show = query::show(&|name| session.env(name))?;
    let filter = JobFilter { states: vec!["COMPLETING".into()], ..JobFilter::default() };
    let jobs = query::jobs(session.connection()?, filter).await?;
    write!(session.out, "{}", completing::text(&jobs, &show))?;
    Ok(0)
}

/// Creates a partition, nodes or a reservation.
async fn create(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(creation) = entity::create(words)? else {
        let request = reservation::create(words, &zone::local(), Timestamp::now())?;
        return reserve(session, request).await;
    };
    let connection = session.connection()?;
    match creation {
        Creation::Partition(request) => {
            let call = async |mut controller: Controller, request| controller.create_partition(request).await;
            connection.change(request, call).await.context(bare("Error creating the partition"))?;
        }
        Creation::Nodes(request) => {
            let call = async |mut controller: Controller, request| controller.create_nodes(request).await;
            connection.change(request, call).await.context(bare("Error creating the node(s)"))?;
        }
    }
    Ok(0)
}

/// Deletes a partition, nodes or a reservation.
async fn delete(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let written = words.join(" ");
    let Some(deletion) = entity::delete(words)? else {
        let request = reservation::delete(words)?;
        let call = async |mut controller: Controller, request| controller.delete_reservation(request).await;
        let deleted = session.connection()?.change(request, call).await;
        deleted.context(bare(format!("delete_reservation {written}")))?;
        return Ok(0);
    };
    let connection = session.connection()?;
    match deletion {
        Deletion::Partition(request) => {
            let context = bare(format!("delete_partition {written}"));
            let call = async |mut controller: Controller, request| controller.delete_partition(request).await;
            connection.change(request, call).await.context(context)?;
        }
        Deletion::Nodes(request) => {
            let context = bare(format!("delete_node {written}"));
            let call = async |mut controller: Controller, request| controller.delete_nodes(request).await;
            connection.change(request, call).await.context(context)?;
        }
    }
    Ok(0)
}

/// Creates a reservation and prints its name.
async fn reserve(session: &mut Session, request: CreateReservationRequest) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.create_reservation(request).await;
    let made = session.connection()?.change(request, call).await;
    let made = made.map_err(|error| refused_reservation(error.into(), "Error creating the reservation"))?;
    writeln!(session.out, "Reservation created: {}", made.name)?;
    Ok(0)
}

/// Returns the error of a refused reservation. `beginning` are the words that Slurm's scontrol prints before
/// a refusal of the controller, but not before the sentences on faults that it finds itself.
fn refused_reservation(error: anyhow::Error, beginning: &'static str) -> anyhow::Error {
    let found_by_scontrol = error.to_string().contains("No reservation ");
    if found_by_scontrol { error } else { error.context(bare(beginning)) }
}

async fn change_reservation(session: &mut Session, request: UpdateReservationRequest) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.update_reservation(request).await;
    let changed = session.connection()?.change(request, call).await;
    changed.map_err(|error| refused_reservation(error.into(), "Error updating the reservation"))?;
    writeln!(session.out, "Reservation updated.")?;
    Ok(0)
}

/// Changes jobs, nodes, a partition or a reservation.
async fn change(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let (zone, now) = (zone::local(), Timestamp::now());
    if let Some(request) = reservation::change(words, &zone, now)? {
        return change_reservation(session, request).await;
    }
    let update = update::read(words, &zone, now).map_err(|failure| bare(failure.text))?;
    match update {
        Update::Job(mut request) => {
            only_here(session, &mut request.changes).await?;
            known(&request.changes)?;
            return change_jobs(session, request).await;
        }
        Update::Named { name, user, mut changes } => {
            only_here(session, &mut changes).await?;
            known(&changes)?;
            let none = match &user {
                Some(user) => format!("No jobs with user ID {user} and name '{name}'"),
                None => format!("No jobs with name '{name}'"),
            };
            let names = vec![name];
            let users = user.into_iter().collect();
            let filter = JobFilter { names, users, ..JobFilter::default() };
            let jobs = query::jobs(session.connection()?, filter).await?;
            let job_ids = jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>();
            if job_ids.is_empty() {
                return Err(Failure::new(none).into());
            }
            let request = UpdateJobRequest { job_ids, changes, ..UpdateJobRequest::default() };
            return change_jobs(session, request).await;
        }
        Update::Nodes(request) => {
            let call = async |mut controller: Controller, request| controller.update_nodes(request).await;
            session.connection()?.change(request, call).await.context(bare("slurm_update error"))?;
        }
        Update::FeatureLevel(level) => {
            let request = RaiseFeatureLevelRequest { level, ..RaiseFeatureLevelRequest::default() };
            let call =
                async |mut controller: Controller, request| controller.raise_feature_level(request).await;
            session.connection()?.change(request, call).await.context(bare("slurm_update error"))?;
        }
        Update::Partition(request) => {
            let call = async |mut controller: Controller, request| controller.update_partition(request).await;
            session.connection()?.change(request, call).await.context(bare("slurm_update error"))?;
        }
    }
    Ok(0)
}

/// Changes jobs, in several requests if there are many.
async fn change_jobs(session: &mut Session, request: UpdateJobRequest) -> anyhow::Result<u8> {
    if request.changes.is_empty() {
        return Ok(0);
    }
    let call = async |mut controller: Controller, request| controller.update_job(request).await;
    let (mut code, changes) = (0, request.changes);
    for some in request.job_ids.chunks(JOBS_AT_ONCE) {
        let (job_ids, changes) = (some.to_vec(), changes.clone());
        let request = UpdateJobRequest { job_ids, changes, ..UpdateJobRequest::default() };
        let is_of_steps = request.job_ids.iter().any(|id| id.contains('.'));
        let answer = session.connection()?.change(request, call).await?;
        if let Some(error) =
            answer.problems.iter().find_map(|problem| problem.error.as_ref().filter(|_| is_of_steps))
        {
            return Err(bare(format!("slurm_update error: {}", error.message)).into());
        }
        code = code.max(queue::report(session, answer));
    }
    Ok(code)
}

/// Removes `Clusters=` if it names this cluster; any other cluster is refused.
async fn only_here(session: &mut Session, changes: &mut HashMap<String, String>) -> anyhow::Result<()> {
    let key = changes.keys().find(|key| key.eq_ignore_ascii_case("Clusters")).cloned();
    if let Some(named) = key.and_then(|key| changes.remove(&key)) {
        clusters::none_but_own(session, &query::list(&named)).await?;
    }
    Ok(())
}

/// Refuses invalid changes before any request, as Slurm does.
fn known(changes: &HashMap<String, String>) -> anyhow::Result<()> {
    for (key, value) in changes {
        match JobChange::parse(key, value) {
            Ok(_) => {}
            Err(error @ ChangeError::UnknownKey { .. }) => {
                return Err(bare(format!(
                    "{}\nRequest aborted",
                    error.to_string().replacen(key, &format!("{key}={value}"), 1)
                ))
                .into());
            }
            Err(ChangeError::BadValue { key, value, problem }) => {
                return Err(Failure::new(format!("Invalid {key} value: {value}: {problem}")).into());
            }
            Err(error) => return Err(Failure::new(error.to_string()).into()),
        }
    }
    Ok(())
}

/// Runs `write batch_script JOB [FILE]`.
async fn write(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let what = words.first().map_or("", String::as_str);
    match meant(what, &["batch_script", "config"]) {
        Some("batch_script") => {}
        Some(_) => {
            let text = "write config: not supported by Spur: the configuration is spur.toml, and scontrol show partition \
                        and show node tell what commands have changed beside it";
            return Err(bare(text).into());
        }
        None => return Err(bare(format!("invalid write argument:{what}")).into()),
    }
    let [_, job, file @ ..] = words else {
        return Err(bare("too few arguments for keyword:write").into());
    };
    let ids = update::job_ids(job)?;
    let [job_id] = &ids[..] else {
        return Err(Failure::new(format!("{job}: name one job")).into());
    };
    let request = GetScriptRequest { job_id: job_id.clone() };
    let call = async |mut controller: Controller, request| controller.get_script(request).await;
    let script = session.connection()?.read(request, call).await?.script;
    if file.first().is_some_and(|file| file == "-") {
        session.out.write_all(&script)?;
        return Ok(0);
    }
    let path = file.first().cloned().unwrap_or_else(|| format!("slurm-{job_id}.sh"));
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o700).open(&path);
    let written = file.and_then(|mut file| file.write_all(&script));
    written.with_context(|| format!("cannot write {path}"))?;
    writeln!(session.out, "batch script for job {job_id} written to {path}")?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_cut_where_they_stay_clear() {
        for (word, wanted) in [
            ("show", Some("show")),
            ("Show", Some("show")),
            ("sho", Some("show")),
            ("sh", None),
            ("hold", Some("hold")),
            ("requeue", Some("requeue")),
            ("requeueh", Some("requeuehold")),
            ("rel", Some("release")),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(meant_command(word), wanted, "{word}");
        }
    }

    #[test]
    fn help_has_every_command() {
        for (keyword, ..) in KEYWORDS {
            assert!(COMMANDS.contains(&format!(" {keyword}")), "{keyword}");
        }
    }

    async fn said(input: &str) -> (u8, String, String) {
        let mut session = Session::in_memory("scontrol", std::collections::BTreeMap::new(), None);
        let (mut lines, mut call) = (input.lines(), Call::default());
        let next = async || Ok(lines.next().map(str::to_owned));
        let run = async |session: &mut Session, words: &[String]| command(session, &mut call, words).await;
        let code = interactive::follow(&mut session, CONSOLE, next, run, true).await.unwrap();
        (code, session.out.take_text(), session.take_complaints())
    }

    #[tokio::test]
    async fn commands_follow_one_another() {
        let (code, out, err) = said("show hostlist a1,a2\n!!\nfoo\nhide\nexit\nversion\n").await;
        assert_eq!(
            out,
            "scontrol: show hostlist a1,a2\na[1-2]\nscontrol: !!\na[1-2]\nscontrol: foo\nscontrol: hide\nscontrol: exit\n"
        );
        assert!(err.contains("invalid keyword: foo"), "{err}");
        assert_eq!(code, 1);
        assert_eq!(said("quit\n").await, (0, "scontrol: quit\n".into(), String::new()));
        // The end of the input ends the program.
        assert_eq!(said("").await, (0, "scontrol: \n".into(), String::new()));
    }
}
