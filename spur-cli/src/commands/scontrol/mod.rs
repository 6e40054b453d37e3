//! `scontrol`: shows everything there is in full, and changes it.

mod completing;
mod entity;
pub mod hostnames;
mod list_pids;
mod record;
pub mod reservation;
mod show;
pub mod show_config;
pub mod show_job;
pub mod show_license;
pub mod show_node;
pub mod show_partition;
pub mod show_reservation;
pub mod show_step;
pub mod show_topology;
pub mod update;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use spur_core::text::jobid::JobRef;
use spur_core::text::nearest::nearest;
use spur_proto::client::{CallError, Controller, JOBS_AT_ONCE};
use spur_proto::v1::{
    CreateReservationRequest, GetScriptRequest, HoldJobsRequest, JobFilter, JobsChangedResponse, PingRequest,
    PingResponse, ReconfigureRequest, ReleaseJobsRequest, RequeueJobsRequest, ShutdownRequest,
    SuspendJobsRequest, UpdateJobRequest, UpdateReservationRequest,
};
use tokio::signal::unix::{SignalKind, signal};

use super::query;
use crate::error::{FAILURE, Failure};
use crate::format::json::{self, Wish};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;
use entity::{Creation, Deletion};
use update::Update;

/// What the options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Hidden partitions, too.
    pub all: bool,
    /// Every record on one line.
    pub oneline: bool,
    /// More of each record.
    pub details: bool,
    /// What only Spur knows of each record as well.
    pub own: bool,
    /// Records as JSON or YAML.
    pub wish: Option<Wish>,
}

type SettingsOpt = Opt<Settings>;

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::flag("all", Some('a'), "hidden partitions, too", |settings, _| {
        settings.all = true;
        Ok(())
    })
    .env(&["SCONTROL_ALL"]),
    SettingsOpt::flag("details", Some('d'), "show more of each record", |settings, _| {
        settings.details = true;
        Ok(())
    }),
    SettingsOpt::value(
        "json",
        None,
        "SHAPE",
        "as JSON: v0.0.41, spur, or list for the shapes there are",
        |s, text| {
            s.wish = Some(Wish::read(text, false)?);
            Ok(())
        },
    )
    .optional(),
    SettingsOpt::flag("oneliner", Some('o'), "show each record on one line", |settings, _| {
        settings.oneline = true;
        Ok(())
    }),
    SettingsOpt::flag("spur", None, "show what only Spur knows of each record as well", |settings, _| {
        settings.own = true;
        Ok(())
    }),
    SettingsOpt::value("yaml", None, "SHAPE", "the same as YAML", |s, text| {
        s.wish = Some(Wish::read(text, true)?);
        Ok(())
    })
    .optional(),
];

/// How `scontrol` is called.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "scontrol",
    synopsis: "[OPTIONS] COMMAND [ARGUMENTS]; `scontrol help` lists the commands",
    about: "Shows and changes jobs, nodes, partitions and the controller.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SCONTROL_"],
    permute: true,
};

const KEYWORDS: [&str; 20] = [
    "completing",
    "create",
    "delete",
    "help",
    "hold",
    "holdu",
    "listpids",
    "ping",
    "reconfigure",
    "release",
    "requeue",
    "requeuehold",
    "resume",
    "show",
    "shutdown",
    "suspend",
    "uhold",
    "update",
    "version",
    "write",
];

const HELP: &str = "\
scontrol [OPTIONS] COMMAND [ARGUMENTS]
    hold JOBS                       keep jobs from starting
    uhold JOBS, holdu JOBS          the same, and their owners may release them
    release JOBS                    undo hold
    requeue JOBS                    put running or ended jobs back into the queue
    requeuehold JOBS                the same, held
    suspend JOBS                    stop running jobs; others may have their CPUs, not their memory or devices
    resume JOBS                     let them go on, as soon as their CPUs are free
    update JobId=JOBS KEY=VALUE …   change jobs, all keys at once
    update NodeName=NODES …         State=DOWN|DRAIN|RESUME|UNDRAIN Reason= Weight= Features= Gres= Comment= Extra=
                                    Topology= Foreign=END
    update PartitionName=NAME …     State=UP|DOWN|DRAIN|INACTIVE MaxTime= Nodes= (also += and -=) Default= AllowAccounts= …
    create PartitionName=NAME …     a partition, with the same keys; it stays until it is deleted
    create NodeName=NODES State=CLOUD …
                                    nodes that are not in the configuration: CPUs= RealMemory= Gres= Features= Topology= …
    delete PartitionName=NAME, delete NodeName=NODES
    create reservation KEY=VALUE …  ReservationName= StartTime= EndTime=|Duration= Nodes=|NodeCnt= PartitionName=
                                    Licenses= Features= Users= Accounts= Flags= Comment=
    update ReservationName=NAME …   the same keys; Duration, Nodes, Users, Accounts and Flags also with += and -=
    delete ReservationName=NAME     end a reservation; jobs that wait for it are held
    show job|node|partition|reservation|step|license [NAMES]
    listpids JOB[.STEP] [NODE]      processes of running steps, on one node or on all
    completing                      jobs that have ended and still hold nodes
    show topology [NAME] [unit=NAME] [node=NODES]
    show config
    show hostnames [LIST]           names, one on a line; by default those of the job
    show hostlist|hostlistsorted [LIST]
    write batch_script JOB [FILE]   write a job's script; - is the standard output
    ping                            whether the controller is there; also with --json
    reconfigure                     read the configuration again
    shutdown [controller|slurmctld] end the controller and the daemons of the nodes, or it alone; jobs go on
    version                         show the version
    help                            show this
JOBS are ids with commas or blanks between: 12 13_2 14_[1-4]. Words may be cut where no other begins like them.
";

/// The word of `known` that is meant: the word itself, or the only one that begins like it.
fn meant<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let mut begun = known.iter().filter(|name| name.starts_with(&word));
    match (known.iter().find(|name| **name == word), begun.next(), begun.next()) {
        (Some(exact), ..) => Some(exact),
        (None, Some(only), None) if !word.is_empty() => Some(only),
        _ => None,
    }
}

/// Runs `scontrol`.
///
/// # Errors
/// A command that cannot be carried out.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let operands = match LINE.settle(&words, &|name| session.env(name), &mut settings)? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(operands) => operands,
    };
    if settings.wish.is_some_and(|wish| wish.list) {
        write!(session.out, "{}", Wish::list())?;
        return Ok(0);
    }
    let Some((word, rest)) = operands.split_first() else {
        return Err(Failure::new("no command given; `scontrol help` lists them").into());
    };
    let Some(keyword) = meant(word, &KEYWORDS) else {
        let hint = nearest(word, KEYWORDS).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        return Err(Failure::new(format!("invalid keyword: {word}{hint}")).into());
    };
    let least = match keyword {
        "hold" | "holdu" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume"
        | "update" | "show" | "create" | "delete" => 1,
        "write" => 2,
        _ => 0,
    };
    if rest.len() < least {
        return Err(Failure::new(format!("too few arguments for keyword:{keyword}")).into());
    }
    let most = match keyword {
        "listpids" => 2,
        "shutdown" => 1,
        _ => 0,
    };
    if least == 0 && rest.len() > most {
        return Err(Failure::new(format!("too many arguments for keyword:{keyword}")).into());
    }
    match keyword {
        "show" => show::run(session, settings, rest).await,
        "update" => {
            let (zone, now) = (TimeZone::system(), Timestamp::now());
            match reservation::change(rest, &zone, now)? {
                Some(request) => change_reservation(session, request).await,
                None => change(session, update::read(rest, &zone, now)?).await,
            }
        }
        "create" => create(session, rest).await,
        "delete" => delete(session, rest).await,
        "write" => write_script(session, rest).await,
        "completing" => show_completing(session).await,
        "listpids" => list_pids(session, rest).await,
        "help" => {
            write!(session.out, "{HELP}")?;
            Ok(0)
        }
        "version" => {
            write!(session.out, "{}", crate::version::version())?;
            Ok(0)
        }
        "ping" => is_there(session, settings.wish).await,
        "reconfigure" => reconfigure(session).await,
        "shutdown" => shut_down(session, rest.first().map(String::as_str)).await,
        _ => queue(session, keyword, rest).await,
    }
}

async fn list_pids(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let (job, node) = match words {
        [job] => (job, None),
        [job, node] => (job, Some(node.as_str())),
        _ => {
            return Err(Failure::new(
                "a job and perhaps a node are expected: scontrol listpids JOB[.STEP] [NODE]",
            )
            .into());
        }
    };
    let mut steps = Vec::new();
    for job in JobRef::parse_list(job).map_err(|error| Failure::new(error.to_string()))? {
        steps.extend(super::sstat::live_steps(session, &job, true).await?);
    }
    write!(session.out, "{}", list_pids::text(&steps, node))?;
    Ok(0)
}

async fn show_completing(session: &mut Session) -> anyhow::Result<u8> {
    let show = query::show(&|name| session.env(name))?;
    let filter = JobFilter { states: vec!["COMPLETING".into()], ..JobFilter::default() };
    let jobs = query::jobs(session.connection()?, filter).await?;
    write!(session.out, "{}", completing::text(&jobs, &show))?;
    Ok(0)
}

/// Asks the controller whether it is there: what it says of itself.
///
/// # Errors
/// No answer.
pub async fn ping(session: &mut Session) -> anyhow::Result<PingResponse> {
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    Ok(session.connection()?.read(PingRequest {}, call).await?)
}

/// What stands below the configuration, and is all that `ping` prints.
fn is_up(answer: &PingResponse) -> String {
    let but = match answer.old_copy.as_str() {
        "" => String::new(),
        why => format!(
            " and starts nothing: it has an old copy of its journal ({why}); see spurctld --new-history"
        ),
    };
    format!("Slurmctld(primary) at {} is UP{but}", answer.hostname)
}

/// Says whether the controller is there; fails if it is not.
async fn is_there(session: &mut Session, wish: Option<Wish>) -> anyhow::Result<u8> {
    session.connection()?.set_patience(Duration::ZERO);
    let answer = match ping(session).await {
        Err(error) if !error.is::<CallError>() => return Err(error),
        other => other,
    };
    let address = session.connection()?.address().to_owned();
    let text = match (&answer, wish) {
        (Ok(answer), Some(wish)) => {
            let mut show = query::show(&|name| session.env(name))?;
            show.cluster.clone_from(&answer.cluster_name);
            let pings = || json!([pinged(&answer.hostname, Some(answer), wish.spur)]);
            wish.listing(&show, "pings", pings(), pings)
        }
        (Ok(answer), None) => format!("{}\n", is_up(answer)),
        (Err(_), Some(wish)) => {
            let show = query::show(&|name| session.env(name))?;
            let pings = || json!([pinged(&address, None, wish.spur)]);
            wish.listing(&show, "pings", pings(), pings)
        }
        (Err(_), None) => format!("Slurmctld(primary) at {address} is DOWN\n"),
    };
    write!(session.out, "{text}")?;
    answer.map(|_| 0)
}

/// What `ping` found, under Slurm's names, and what the controller says of itself.
fn pinged(host: &str, answer: Option<&PingResponse>, own: bool) -> serde_json::Value {
    let mut found = json!({
        "hostname": host,
        "pinged": if answer.is_some() { "UP" } else { "DOWN" },
        "responding": answer.is_some(),
        "mode": "primary",
        "primary": true,
        "latency": 0,
    });
    if let Some(answer) = answer.filter(|_| own) {
        found["controller"] = json::to_value(answer);
    }
    found
}

async fn reconfigure(session: &mut Session) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.reconfigure(request).await;
    let answer = session.connection()?.read(ReconfigureRequest {}, call).await?;
    for change in answer.changes {
        session.inform(&change);
    }
    Ok(0)
}

/// Ends the daemons; the controller's alone if only it is named.
async fn shut_down(session: &mut Session, whose: Option<&str>) -> anyhow::Result<u8> {
    let controller_only = match whose.map(|whose| (whose, meant(whose, &["controller", "slurmctld"]))) {
        None => false,
        Some((_, Some(_))) => true,
        Some((other, None)) => {
            let message =
                format!("invalid option for keyword:shutdown: {other}; controller, slurmctld or none");
            return Err(Failure::new(message).into());
        }
    };
    let call = async |mut controller: Controller, request| controller.shutdown(request).await;
    session.connection()?.read(ShutdownRequest { controller_only }, call).await?;
    Ok(0)
}

/// Holds, releases, requeues, suspends or resumes jobs.
async fn queue(session: &mut Session, keyword: &str, words: &[String]) -> anyhow::Result<u8> {
    let mut job_ids = Vec::new();
    for word in words {
        let lower = word.to_ascii_lowercase();
        let prefix = ["jobid=", "job="].into_iter().find(|prefix| lower.starts_with(prefix));
        job_ids.extend(update::job_ids(&word[prefix.unwrap_or_default().len()..])?);
    }
    // Who requeues the job that it runs in is asked to end at once, and still has to say how it went.
    let stays = keyword.starts_with("requeue").then(|| signal(SignalKind::terminate()));
    let _stay = stays.transpose().context("cannot listen for signals")?;
    let mut code = 0;
    for some in job_ids.chunks(JOBS_AT_ONCE) {
        let answer = queue_some(session, keyword, some.to_vec()).await?;
        code = code.max(report(session, answer));
    }
    Ok(code)
}

async fn queue_some(
    session: &mut Session,
    keyword: &str,
    job_ids: Vec<String>,
) -> anyhow::Result<JobsChangedResponse> {
    let connection = session.connection()?;
    Ok(match keyword {
        "release" => {
            let request = ReleaseJobsRequest { job_ids, ..ReleaseJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.release_jobs(request).await;
            connection.change(request, call).await?
        }
        "requeue" | "requeuehold" => {
            let hold = keyword == "requeuehold";
            let request = RequeueJobsRequest { job_ids, hold, ..RequeueJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.requeue_jobs(request).await;
            connection.change(request, call).await?
        }
        "suspend" | "resume" => {
            let resume = keyword == "resume";
            let request = SuspendJobsRequest { job_ids, resume, ..SuspendJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.suspend_jobs(request).await;
            connection.change(request, call).await?
        }
        _ => {
            let by_user = keyword != "hold";
            let request = HoldJobsRequest { job_ids, by_user, ..HoldJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.hold_jobs(request).await;
            connection.change(request, call).await?
        }
    })
}

/// Creates a partition, nodes or a reservation.
async fn create(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(creation) = entity::create(words)? else {
        let request = reservation::create(words, &TimeZone::system(), Timestamp::now())?;
        return reserve(session, request).await;
    };
    let connection = session.connection()?;
    match creation {
        Creation::Partition(request) => {
            let call = async |mut controller: Controller, request| controller.create_partition(request).await;
            connection.change(request, call).await.context("Error creating the partition")?;
        }
        Creation::Nodes(request) => {
            let call = async |mut controller: Controller, request| controller.create_nodes(request).await;
            connection.change(request, call).await.context("Error creating the node(s)")?;
        }
    }
    Ok(0)
}

/// Deletes a partition, nodes or a reservation.
async fn delete(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some(deletion) = entity::delete(words)? else {
        let request = reservation::delete(words)?;
        let call = async |mut controller: Controller, request| controller.delete_reservation(request).await;
        session.connection()?.change(request, call).await?;
        return Ok(0);
    };
    let connection = session.connection()?;
    match deletion {
        Deletion::Partition(request) => {
            let context = format!("delete_partition {}", request.name);
            let call = async |mut controller: Controller, request| controller.delete_partition(request).await;
            connection.change(request, call).await.context(context)?;
        }
        Deletion::Nodes(request) => {
            let context = format!("delete_node {}", request.nodes);
            let call = async |mut controller: Controller, request| controller.delete_nodes(request).await;
            connection.change(request, call).await.context(context)?;
        }
    }
    Ok(0)
}

/// Reserves nodes and says under which name.
async fn reserve(session: &mut Session, request: CreateReservationRequest) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.create_reservation(request).await;
    let made = session.connection()?.change(request, call).await?;
    writeln!(session.out, "Reservation created: {}", made.name)?;
    Ok(0)
}

async fn change_reservation(session: &mut Session, request: UpdateReservationRequest) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.update_reservation(request).await;
    session.connection()?.change(request, call).await?;
    writeln!(session.out, "Reservation updated.")?;
    Ok(0)
}

async fn change(session: &mut Session, update: Update) -> anyhow::Result<u8> {
    let connection = session.connection()?;
    match update {
        Update::Job(request) => {
            let call = async |mut controller: Controller, request| controller.update_job(request).await;
            let (mut code, changes) = (0, request.changes);
            for some in request.job_ids.chunks(JOBS_AT_ONCE) {
                let (job_ids, changes) = (some.to_vec(), changes.clone());
                let request = UpdateJobRequest { job_ids, changes, ..UpdateJobRequest::default() };
                let answer = session.connection()?.change(request, call).await?;
                code = code.max(report(session, answer));
            }
            return Ok(code);
        }
        Update::Nodes(request) => {
            let call = async |mut controller: Controller, request| controller.update_nodes(request).await;
            connection.change(request, call).await?;
        }
        Update::Partition(request) => {
            let call = async |mut controller: Controller, request| controller.update_partition(request).await;
            connection.change(request, call).await?;
        }
    }
    Ok(0)
}

/// Tells what became of jobs and gives the exit code.
fn report(session: &mut Session, answer: JobsChangedResponse) -> u8 {
    for warning in &answer.warnings {
        session.warn(warning);
    }
    for problem in &answer.problems {
        let message = problem.error.as_ref().map_or("Unspecified error", |error| error.message.as_str());
        session.error(&format!("{message} for job {}", problem.job_id));
    }
    if answer.problems.is_empty() { 0 } else { FAILURE }
}

/// `write batch_script JOB [FILE]`.
async fn write_script(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let [what, job, file @ ..] = words else {
        return Err(Failure::new("too few arguments for keyword:write").into());
    };
    if meant(what, &["batch_script"]).is_none() {
        return Err(
            Failure::new(format!("invalid entity:{what} for keyword:write; write batch_script")).into()
        );
    }
    if file.len() > 1 {
        return Err(Failure::new("too many arguments for keyword:write").into());
    }
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
            assert_eq!(meant(word, &KEYWORDS), wanted, "{word}");
        }
    }

    #[test]
    fn help_has_every_command() {
        for keyword in KEYWORDS {
            assert!(HELP.contains(&format!(" {keyword}")), "{keyword}");
        }
    }
}
