//! The command `sbatch`: submits a batch script.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use spur_proto::channel::MAX_SCRIPT;
use spur_proto::client::Controller;
use spur_proto::v1::{Batch, JobSpec, SubmitRequest, TestSubmitResponse};

use crate::commands::srun::read_hostfile;
use crate::commands::{clusters, gres, level, query, scontrol, verbose, watch};
use crate::error::{FAILURE, Failure};
use crate::options::Layer;
use crate::options::defs::SBATCH_LINE;
use crate::options::directive;
use crate::options::het::{self, Reading};
use crate::options::submission::{Export, Submission};
use crate::place::{self, Environment, Here};
use crate::session::Session;
use crate::zone;

/// Variable by which the node adds the user's login environment, as with Slurm.
const LOGIN_ENVIRONMENT: &str = "SLURM_GET_USER_ENV";

/// The submitted script.
struct Script {
    body: Vec<u8>,
    /// Absolute path of the script; empty if it is not a file.
    path: String,
    /// Default name of the job.
    name: String,
    args: Vec<String>,
}

/// Runs `sbatch`.
///
/// # Errors
/// A failure to submit the job.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let (components, operands) = match het::read(&SBATCH_LINE, &words)? {
        Reading::Run { components, operands } => (components, operands),
        Reading::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
    };
    if gres::help_is_said(&components) {
        return gres::help(session).await;
    }
    let script = Script::take(&components, operands, &|name| session.env(name))?;
    let text = String::from_utf8_lossy(&script.body);
    let wishes = Submission::settle(components, &|name| session.env(name), Some(&text))?;
    wishes.iter().for_each(|component| verbose::tell(session, component));
    let mut wishes = wishes.into_iter();
    let ours = text.lines().any(|line| line.starts_with("#SBATCH"));
    let foreign = directive::foreign(&text).filter(|_| !ours);
    let (mut first, rest) = (wishes.next().unwrap_or_default(), wishes);
    if let Some((line, mark)) = foreign.filter(|_| !first.ignore_pbs) {
        session.warn(&format!(
            "line {line} of the script: lines that begin with {mark} are not read; write #SBATCH, or say --ignore-pbs"
        ));
    }
    place::become_user(first.uid.as_deref(), first.gid.as_deref())?;
    place::read_hosts(&mut first)?;
    read_hostfile(session, &mut first)?;
    place::count_named(session, &mut first)?;
    let mut spec = compose(session, &first, script)?;
    spec.submit_line = [&["sbatch".to_owned()], &words[..]].concat().join(" ");
    for mut component in rest {
        place::read_hosts(&mut component)?;
        place::count_named(session, &mut component)?;
        let (name, submit_host) = (spec.name.clone(), spec.submit_host.clone());
        let own = component.into_spec(&Here)?;
        let name = if own.name.is_empty() { name } else { own.name.clone() };
        spec.components.push(JobSpec { name, submit_host, ..own });
    }
    let wishes = first;
    let request = SubmitRequest { job: Some(spec), ..SubmitRequest::default() };
    let cluster = match &wishes.clusters {
        Some(named) => Some(choose(session, &query::list(named), &request, &wishes).await?),
        None => None,
    };
    if wishes.test_only {
        return test(session, request, &wishes).await;
    }
    let job = submit(session, request, &wishes, cluster.as_deref()).await?;
    if wishes.wait {
        session.out.flush()?;
        let ended = watch::until_ended(session, vec![job]).await?;
        return Ok(watch::exit_code(&ended));
    }
    Ok(0)
}

/// Fails if `--clusters` is given and does not name this cluster, or if the controller does not answer.
pub(super) async fn check_cluster(session: &mut Session, named: Option<&str>) -> anyhow::Result<()> {
    let Some(named) = named else { return Ok(()) };
    let own = scontrol::ping(session).await?.cluster_name;
    if named.split(',').any(|name| name == "all" || name == own) {
        return Ok(());
    }
    let text = format!(
        "'{named}' can't be reached now, or it is an invalid entry for --cluster; this cluster is {own}"
    );
    Err(Failure::new(text).into())
}

/// Directs the session to that cluster of `--clusters` which would start the job first; the first named
/// one if several are equal. Returns the name of the cluster.
///
/// # Errors
/// Fails if no name is that of a cluster, or if no cluster accepts the job.
async fn choose(
    session: &mut Session,
    named: &[String],
    request: &SubmitRequest,
    wishes: &Submission,
) -> anyhow::Result<String> {
    let targets = clusters::targets(session, named).await?;
    let starts: Vec<(Option<i64>, String)> = if let [target] = &targets[..] {
        vec![(Some(0), target.name.clone())]
    } else {
        let outcomes = clusters::at_each(session, targets, async |session: &mut Session, _: &str| {
            let request = SubmitRequest { request_id: Default::default(), ..request.clone() };
            let call = async |mut controller: Controller, r| controller.test_submit(r).await;
            let answer = session.connection()?.read(request, call).await?;
            // A cluster that predicts no start is the last choice.
            Ok(answer.start_time.unwrap_or(i64::MAX))
        });
        outcomes.await.into_iter().map(|outcome| (outcome.result, outcome.name)).collect()
    };
    let known = starts.into_iter().filter_map(|(start, name)| Some((start?, name)));
    let Some((_, name)) = known.min_by_key(|(start, _)| *start) else {
        return Err(Failure::new("Batch job submission failed: no cluster takes the job").into());
    };
    if wishes.verbose > 0 {
        session.inform(&format!("the job goes to cluster {name}"));
    }
    clusters::only(session, std::slice::from_ref(&name)).await?;
    Ok(name)
}

/// Submits the job and prints its number, with the name of the cluster if `--clusters` is given.
async fn submit(
    session: &mut Session,
    request: SubmitRequest,
    wishes: &Submission,
    cluster: Option<&str>,
) -> anyhow::Result<u32> {
    let connection = session.connection()?;
    let job = request.job.as_ref().expect("the job was composed");
    level::check(connection, job).await.context("Batch job submission failed")?;
    let answer = connection.change(request, async |mut controller, r| controller.submit(r).await).await;
    let answer = answer.context("Batch job submission failed")?;
    tell(session, &answer.warnings, wishes);
    if wishes.parsable {
        let cluster = cluster.map(|name| format!(";{name}")).unwrap_or_default();
        writeln!(session.out, "{}{cluster}", answer.job_id)?;
    } else if !wishes.quiet {
        let cluster = cluster.map(|name| format!(" on cluster {name}")).unwrap_or_default();
        writeln!(session.out, "Submitted batch job {}{cluster}", answer.job_id)?;
    }
    Ok(answer.job_id)
}

/// Requests the expected start and nodes of the job, and prints them.
///
/// # Errors
/// A refusal by the controller.
pub(super) async fn test(
    session: &mut Session,
    request: SubmitRequest,
    wishes: &Submission,
) -> anyhow::Result<u8> {
    let connection = session.connection()?;
    let job = request.job.as_ref().expect("the job was composed");
    level::check(connection, job).await.context("allocation failure")?;
    let answer = connection.read(request, async |mut controller, r| controller.test_submit(r).await).await;
    let answer = answer.context("allocation failure")?;
    tell(session, &answer.warnings, wishes);
    match answer.start_time {
        Some(start) => {
            session.inform(&forecast(&answer, start));
            Ok(0)
        }
        None => {
            let why = if answer.detail.is_empty() { &answer.reason } else { &answer.detail };
            session.error(&format!("allocation failure: {why}"));
            Ok(FAILURE)
        }
    }
}

fn forecast(answer: &TestSubmitResponse, start: i64) -> String {
    let start = jiff::Timestamp::from_second(start).map_or_else(
        |_| start.to_string(),
        |start| start.to_zoned(zone::local()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
    );
    // The lowest layer consists of the nodes, which are named; higher layers show their places.
    let places = answer.spans.iter().filter(|span| span.layer != "node");
    let spans: Vec<String> = places.map(|span| format!("{} {}", span.count, span.layer)).collect();
    let spans = if spans.is_empty() { String::new() } else { format!(" ({})", spans.join(", ")) };
    format!(
        "Job {} to start at {start} using {} processors on nodes {} in partition {}{spans}",
        answer.job_id, answer.num_cpus, answer.nodes, answer.partition
    )
}

fn tell(session: &mut Session, warnings: &[String], wishes: &Submission) {
    for warning in warnings.iter().filter(|_| !wishes.quiet) {
        session.warn(warning);
    }
}

/// Returns the file of a standard stream; empty for the default.
fn file(said: Option<String>) -> String {
    if said.as_deref() == Some("none") { "/dev/null".to_owned() } else { said.unwrap_or_default() }
}

/// Returns the complete request.
fn compose(session: &mut Session, wishes: &Submission, script: Script) -> anyhow::Result<JobSpec> {
    let mut spec = wishes.clone().into_spec(&Here)?;
    if spec.name.is_empty() {
        spec.name = script.name;
    }
    spec.submit_host = place::hostname();
    let environment = environment(session, wishes, &spec)?;
    if wishes.verbose > 2 {
        session.inform(&format!("debug2: {} variables of the environment come along", environment.len()));
    }
    let files = wishes.files.clone();
    spec.batch = Some(Batch {
        script: script.body.into(),
        environment: place::packed(&environment)?.into(),
        args: script.args,
        command: script.path,
        work_dir: place::directory(wishes.chdir.as_deref())?,
        stdin: file(files.input),
        stdout: file(files.output),
        stderr: file(files.error),
        append: files.append,
        umask: wishes.umask.unwrap_or_else(place::file_mask),
        limits: place::limits(&wishes.propagate),
        sampling_seconds: wishes.sampling_seconds,
        oom_kill_step: wishes.oom_kill_step,
        limits_named: wishes.said.contains_key("propagate"),
    });
    Ok(spec)
}

/// Returns the environment of the script, without the variables that the controller and the node add.
fn environment(session: &Session, wishes: &Submission, spec: &JobSpec) -> anyhow::Result<Environment> {
    let mut environment = match &wishes.export_file {
        None => place::exported(session.environment(), &wishes.export),
        Some(file) => {
            let mut environment = place::exported(session.environment(), &Export::None);
            environment.extend(place::read_variables(file)?);
            environment
        }
    };
    environment.retain(|name, _| !place::is_of_het_job(name));
    environment.insert("SLURM_PRIO_PROCESS".into(), place::niceness().to_string().into());
    environment.insert("SLURM_SUBMIT_DIR".into(), place::directory(None)?.into());
    environment.insert("SLURM_SUBMIT_HOST".into(), spec.submit_host.clone().into());
    // The inherited value belongs to the job from which this one is submitted.
    if let Some(cpus) = environment.get_mut(OsStr::new("SLURM_CPUS_PER_TASK"))
        && spec.cpus_per_task.is_none()
    {
        *cpus = "1".into();
    }
    // The script inherits the mask itself. In `srun` the variable would override a mask that the script sets.
    environment.remove(OsStr::new("SLURM_UMASK"));
    let login = wishes.login_environment.is_some() || wishes.export != Export::All;
    if login && wishes.export_file.is_none() {
        environment.insert(LOGIN_ENVIRONMENT.into(), "1".into());
    }
    environment.extend(wishes.advice.iter().map(|(&name, value)| (name.into(), value.into())));
    if let Some(export) = wishes.export.spelled() {
        environment.insert("SLURM_EXPORT_ENV".into(), export.into());
    }
    Ok(environment)
}

impl Script {
    /// Reads the script from the named file, the wrapped command or the standard input.
    fn take(
        components: &[Layer<Submission>],
        operands: Vec<String>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Script> {
        let wrap = components
            .iter()
            .flatten()
            .rev()
            .find(|said| said.option.long == "wrap")
            .and_then(|said| said.value.clone());
        let mut operands = operands.into_iter();
        let script = match (wrap, operands.next()) {
            (Some(_), Some(word)) => bail!("Script arguments not permitted with --wrap option: `{word}`"),
            (Some(command), None) => Script {
                body: format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n")
                    .into_bytes(),
                path: String::new(),
                name: "wrap".to_owned(),
                args: Vec::new(),
            },
            (None, Some(path)) => Script::from_file(&path, operands.collect(), env)?,
            (None, None) => Script {
                body: read_all(io::stdin(), "standard input")?,
                path: String::new(),
                name: "sbatch".to_owned(),
                args: Vec::new(),
            },
        };
        script.check()?;
        Ok(script)
    }

    fn from_file(
        word: &str,
        args: Vec<String>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Script> {
        let path = find(word, env("PATH").as_deref());
        let file = fs::File::open(&path).with_context(|| format!("Unable to open file {word}"))?;
        let whole = std::path::absolute(&path).unwrap_or(path);
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let body = read_all(file, word)?;
        Ok(Script { body, path: whole.to_string_lossy().into_owned(), name, args })
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.body.is_empty() {
            bail!("Batch script is empty!");
        }
        if self.body.iter().all(u8::is_ascii_whitespace) {
            bail!("Batch script contains only whitespace!");
        }
        if self.body.contains(&0) {
            bail!("the batch script contains a NUL character, which no script may");
        }
        if !self.body.starts_with(b"#!") {
            bail!(
                "This does not look like a batch script.  The first\nline must start with #! followed by the path \
                 to an interpreter.\nFor instance: #!/bin/sh"
            );
        }
        if self.body.windows(2).any(|pair| pair == b"\r\n") {
            bail!(
                "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n); convert \
                 it, e.g. with `sed -i 's/\\r$//' SCRIPT`."
            );
        }
        Ok(())
    }
}

/// Returns the path of a script. A name without a slash is searched in the current directory and then in
/// PATH.
fn find(word: &str, path: Option<&str>) -> PathBuf {
    let here = PathBuf::from(word);
    if word.contains('/') || here.exists() {
        return here;
    }
    let executable = |candidate: &PathBuf| {
        let status = fs::metadata(candidate);
        status.is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
    };
    let directories = path.unwrap_or_default().split(':').filter(|directory| !directory.is_empty());
    directories.map(|directory| Path::new(directory).join(word)).find(executable).unwrap_or(here)
}

fn read_all(source: impl Read, what: &str) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    let limit = MAX_SCRIPT as u64 + 1;
    source.take(limit).read_to_end(&mut body).with_context(|| format!("cannot read {what}"))?;
    if body.len() > MAX_SCRIPT {
        bail!("{what} is larger than the {} MiB that a batch script may have", MAX_SCRIPT >> 20);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use spur_proto::v1::Span;

    use super::*;

    #[test]
    fn a_forecast_says_where_only_above_the_nodes() {
        let span = |layer: &str, count| Span { layer: layer.to_owned(), count };
        let answer = |spans| TestSubmitResponse {
            num_cpus: 4,
            nodes: "n[1-4]".to_owned(),
            partition: "main".to_owned(),
            spans,
            ..TestSubmitResponse::default()
        };
        let rest = |spans| {
            let text = forecast(&answer(spans), 0);
            text.split_once(" using ").expect("a time stands first").1.to_owned()
        };
        assert_eq!(rest(vec![span("node", 4)]), "4 processors on nodes n[1-4] in partition main");
        assert_eq!(
            rest(vec![span("node", 4), span("leaf", 2), span("spine", 1)]),
            "4 processors on nodes n[1-4] in partition main (2 leaf, 1 spine)"
        );
    }
}
