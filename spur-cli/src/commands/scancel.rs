//! The command `scancel`: ends or signals jobs and steps.

use std::io::Write;

use anyhow::Context;
use spur_core::text::hostlist::HostExpr;
use spur_core::text::jobid::JobRef;
use spur_core::text::signal::Signal;
use spur_proto::client::{Controller, JOBS_AT_ONCE};
use spur_proto::v1::{CancelJobsRequest, CancelJobsResponse, Job, JobFilter};

use super::clusters;
use super::query::{self, Asked};
use crate::error::{FAILURE, Failure};
use crate::options::{CommandLine, Opt, OptionError, Settled};
use crate::session::{Session, whoami};

const STATES: [(&str, &str); 3] = [("PENDING", "PD"), ("RUNNING", "R"), ("SUSPENDED", "S")];
const KILL: u32 = 9;
const DONE: &str = "ESLURM_ALREADY_DONE";
const INVALID_ID: &str = "ESLURM_INVALID_JOB_ID";

/// The jobs and steps to cancel or signal, and the options for doing so.
#[derive(Clone, Debug, Default)]
pub struct Order {
    filter: JobFilter,
    clusters: Vec<String>,
    steps: Vec<String>,
    signal: Option<u32>,
    /// True if `-s` names the signal.
    signal_named: bool,
    batch: bool,
    full: bool,
    interactive: bool,
    quiet: bool,
    verbose: bool,
}

type OrderOpt = Opt<Order>;

/// Command line of `scancel`.
pub const LINE: CommandLine<Order> = CommandLine {
    name: "scancel",
    synopsis: "[OPTIONS] [job_id[_array_id][.step_id]]",
    about: "Ends or signals jobs and steps: those that are named, or all that every option admits.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SCANCEL_", "SLURM_CLUSTERS"],
    permute: true,
};

const OPTIONS: &[OrderOpt] = &[
    OrderOpt::value("account", Some('A'), "NAME", "only jobs of this account", |o, text| {
        o.filter.accounts = query::list(text);
        Ok(())
    })
    .env(&["SCANCEL_ACCOUNT"]),
    OrderOpt::flag("batch", Some('b'), "signal the batch script only; KILL by default", |o, _| {
        o.batch = true;
        Ok(())
    })
    .env(&["SCANCEL_BATCH"]),
    OrderOpt::flag("ctld", None, "ask the controller, as is always done", |_, _| Ok(()))
        .env(&["SCANCEL_CTLD"]),
    OrderOpt::value("clusters", Some('M'), "NAMES", "all, or names of clusters", |o, text| {
        o.clusters = super::query::list(text);
        Ok(())
    })
    .or(&["cluster"])
    .env(&["SLURM_CLUSTERS"]),
    OrderOpt::flag("cron", None, "confirm to cancel jobs of scrontab", |_, _| Ok(()))
        .without_effect("there are no such jobs"),
    OrderOpt::flag("hurry", Some('H'), "without staging out burst buffers", |_, _| Ok(()))
        .without_effect("there are no burst buffers"),
    OrderOpt::value("sibling", None, "CLUSTER", "on a sibling of the federation", |_, _| Ok(()))
        .without_effect("clusters form no federation"),
    OrderOpt::value("wckey", None, "NAME", "only jobs of this key", |o, text| {
        o.filter.wckeys = query::list(text);
        Ok(())
    })
    .env(&["SCANCEL_WCKEY"]),
    OrderOpt::flag("full", Some('f'), "signal the batch script and all steps", |o, _| {
        o.full = true;
        Ok(())
    })
    .env(&["SCANCEL_FULL"]),
    OrderOpt::flag("interactive", Some('i'), "ask before each job", |o, _| {
        o.interactive = true;
        Ok(())
    })
    .env(&["SCANCEL_INTERACTIVE"]),
    OrderOpt::flag("me", None, "only my own jobs", |o, _| {
        o.filter.users = vec![whoami().user];
        Ok(())
    }),
    OrderOpt::value("name", Some('n'), "NAME", "only jobs of this name", |o, text| {
        o.filter.names = query::list(text);
        Ok(())
    })
    .or(&["jobname"])
    .env(&["SCANCEL_NAME"]),
    OrderOpt::value(
        "nodelist",
        Some('w'),
        "NODES",
        "only jobs on these nodes; a file if it has a /",
        |o, text| {
            if text.contains('/') {
                let names = std::fs::read_to_string(text).map_err(|e| format!("cannot read {text}: {e}"))?;
                o.filter.nodelist = names.split_whitespace().collect::<Vec<_>>().join(",");
            } else {
                text.clone_into(&mut o.filter.nodelist);
            }
            o.filter.nodelist.parse::<HostExpr>().map(|_| ()).map_err(|e| e.to_string())
        },
    ),
    OrderOpt::value("partition", Some('p'), "NAME", "only jobs of this partition", |o, text| {
        o.filter.partitions = query::list(text);
        Ok(())
    })
    .env(&["SCANCEL_PARTITION"]),
    OrderOpt::value("qos", Some('q'), "NAME", "only jobs of this QOS", |o, text| {
        o.filter.qos = query::list(text);
        Ok(())
    })
    .env(&["SCANCEL_QOS"]),
    OrderOpt::flag("quiet", Some('Q'), "say nothing of jobs that have ended or are unknown", |o, _| {
        o.quiet = true;
        Ok(())
    }),
    OrderOpt::value("reservation", Some('R'), "NAME", "only jobs in this reservation", |o, text| {
        o.filter.reservations = query::list(text);
        Ok(())
    }),
    OrderOpt::value("signal", Some('s'), "SIGNAL", "send only this signal, by name or number", |o, text| {
        let signal: Signal = text.parse().map_err(|_| format!("Unknown job signal: {text}"))?;
        o.signal = Some(signal.number().into());
        o.signal_named = true;
        Ok(())
    }),
    OrderOpt::value("state", Some('t'), "STATE", "only jobs in this state", |o, text| {
        o.filter.states = states(text)?;
        Ok(())
    })
    .or(&["states"])
    .env(&["SCANCEL_STATE"]),
    OrderOpt::value("user", Some('u'), "USER", "only jobs of this user", |o, text| {
        o.filter.users = query::list(text);
        Ok(())
    })
    .env(&["SCANCEL_USER"]),
    OrderOpt::flag("verbose", Some('v'), "say what is done", |o, _| {
        o.verbose = true;
        Ok(())
    })
    .env(&["SCANCEL_VERBOSE"]),
];

fn states(text: &str) -> Result<Vec<String>, String> {
    let state = |word: String| {
        let is = |(long, short): &&(&str, &str)| {
            word.eq_ignore_ascii_case(long) || word.eq_ignore_ascii_case(short)
        };
        let known = STATES.iter().find(is).map(|(long, _)| (*long).to_owned());
        known.ok_or_else(|| {
            format!(
                "Invalid job state specified: {word}\nValid job states are PENDING, RUNNING, and SUSPENDED"
            )
        })
    };
    query::list(text).into_iter().map(state).collect()
}

impl Order {
    /// Parses the words after `scancel` and the environment.
    ///
    /// # Errors
    /// An invalid option or id, or a command line that selects no jobs.
    pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Asked<Order>> {
        let mut order = Order::default();
        let operands = match LINE.settle(words, env, &mut order)? {
            Settled::Show(text) => return Ok(Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        if order.quiet && order.verbose {
            return Err(OptionError::together("--quiet and --verbose exclude each other").into());
        }
        for word in &operands {
            let jobs = JobRef::<u32>::parse_list(word)
                .map_err(|e| Failure::new(format!("Invalid job id {word}: {}", e.problem)))?;
            for job in jobs {
                if job.job == 0 {
                    return Err(Failure::new(format!("Invalid job id {word}")).into());
                }
                let list = if job.step.is_some() { &mut order.steps } else { &mut order.filter.job_ids };
                list.push(job.to_string());
            }
        }
        if order.steps.is_empty() && order.filter == JobFilter::default() {
            return Err(Failure::new("No job identification provided").into());
        }
        if order.batch && order.signal.is_none() {
            order.signal = Some(KILL);
        }
        Ok(Asked::Run(order))
    }

    /// Returns the request. Without a filter, steps alone must not select every job.
    pub fn request(&self) -> CancelJobsRequest {
        let any_job = self.filter != JobFilter::default() && (self.steps.is_empty() || self.names_jobs());
        CancelJobsRequest {
            filter: Some(self.filter.clone()).filter(|_| any_job),
            signal: self.signal,
            batch_only: self.batch && !self.full,
            full: self.full,
            steps: self.steps.clone(),
            ..CancelJobsRequest::default()
        }
    }

    /// Returns the request, split so that each part names at most [`JOBS_AT_ONCE`] jobs or steps.
    pub fn requests(&self) -> Vec<CancelJobsRequest> {
        let whole = self.request();
        let ids = whole.filter.as_ref().map_or(&[][..], |filter| &filter.job_ids);
        if ids.len().max(whole.steps.len()) <= JOBS_AT_ONCE {
            return vec![whole];
        }
        let steps = whole.steps.chunks(JOBS_AT_ONCE).map(|some| {
            let (filter, steps) = (None, some.to_vec());
            CancelJobsRequest { filter, steps, ..whole.clone() }
        });
        let jobs = ids.chunks(JOBS_AT_ONCE).map(|some| {
            let filter = whole.filter.clone().unwrap_or_default();
            let filter = Some(JobFilter { job_ids: some.to_vec(), ..filter });
            CancelJobsRequest { filter, steps: Vec::new(), ..whole.clone() }
        });
        steps.chain(jobs).collect()
    }

    fn names_jobs(&self) -> bool {
        !self.filter.job_ids.is_empty()
    }

    /// Keeps the jobs and steps to which the user agrees, possibly none.
    async fn confirm(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let mut input = std::io::stdin().lines();
        let mut agrees = |session: &mut Session, what: String| -> anyhow::Result<bool> {
            write!(session.out, "{what} [y/n]? ")?;
            session.out.flush()?;
            let answer = input.next().transpose().context("cannot read the answer")?.unwrap_or_default();
            Ok(answer.trim_start().starts_with(['y', 'Y']))
        };
        let mut steps = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            if agrees(session, format!("Cancel step_id={step}"))? {
                steps.push(step);
            }
        }
        self.steps = steps;
        let Some(filter) = self.request().filter else {
            self.filter = JobFilter::default();
            return Ok(());
        };
        let jobs = query::jobs(session.connection()?, filter).await?;
        let mut job_ids = Vec::new();
        for job in jobs.iter().filter(|job| job.het_job_offset.unwrap_or(0) == 0) {
            let id = reference(job);
            let what = format!("Cancel job_id={id} name={} partition={}", job.name, job.partition);
            if agrees(session, what)? {
                job_ids.push(id);
            }
        }
        self.filter = JobFilter { job_ids, ..JobFilter::default() };
        Ok(())
    }

    /// Returns the line of `-v` for a job, or for a step if the name has a dot.
    fn act(&self, name: &str) -> String {
        let kind = match name.contains('.') {
            true => "step ",
            false if self.full => "full job ",
            false if self.batch => "batch job ",
            false => "job ",
        };
        match self.signal.filter(|_| self.signal_named) {
            Some(signal) => format!("Signal {signal} to {kind}{name}"),
            None => format!("Terminating {kind}{name}"),
        }
    }

    /// Returns the line of `-v` for filters that no job matches; empty without such filters.
    fn unmatched(&self) -> String {
        let filter = &self.filter;
        let given = [
            ("account", filter.accounts.join(",")),
            ("job_name", filter.names.join(",")),
            ("nodelist", filter.nodelist.clone()),
            ("partition", filter.partitions.join(",")),
            ("qos", filter.qos.join(",")),
            ("reservation", filter.reservations.join(",")),
            ("state", filter.states.join(",")),
            ("user_name", filter.users.join(",")),
            ("wckey", filter.wckeys.join(",")),
        ];
        let given = given.iter().filter(|(_, value)| !value.is_empty());
        let filters: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
        match &filters[..] {
            [] => String::new(),
            filters => format!("No active jobs match ALL job filters, including: {}", filters.join(" ")),
        }
    }

    /// Prints the results and returns the exit code.
    fn report(&self, session: &mut Session, answer: &CancelJobsResponse) -> u8 {
        if self.verbose {
            // Steps were announced with the request.
            for job in answer.names.iter().filter(|name| !name.contains('.')) {
                session.inform(&self.act(job));
            }
        }
        let mut code = 0;
        for problem in &answer.problems {
            let error = problem.error.clone().unwrap_or_default();
            // A job that has already ended is no error for a cancellation, but is one for a signal.
            let kills = self.signal.is_none_or(|signal| signal == KILL) && !self.batch;
            let done = error.code == DONE && kills;
            let unknown = error.code == INVALID_ID;
            if (done && !self.verbose) || (self.quiet && (done || unknown)) {
                continue;
            }
            let what = if problem.job_id.contains('.') { "job step id" } else { "job id" };
            if self.verbose && what == "job id" {
                session.inform(&self.act(&problem.job_id));
            }
            session.error(&format!("Kill job error on {what} {}: {}", problem.job_id, error.message));
            if !(done || (unknown && what == "job id" && kills)) {
                code = FAILURE;
            }
        }
        code
    }
}

/// Returns the name of a job: a task, the pending tasks of an array, or the job's number.
fn reference(job: &Job) -> String {
    let array = job.array_job_id.unwrap_or(job.id);
    match (job.array_task_id, job.array_tasks.split('%').next().unwrap_or_default()) {
        (Some(task), _) => format!("{array}_{task}"),
        // A het job is cancelled as a whole, under the number of its first component.
        (None, "") => job.het_job_id.unwrap_or(job.id).to_string(),
        (None, tasks) => format!("{array}_[{tasks}]"),
    }
}

/// Runs `scancel`.
///
/// # Errors
/// An invalid option, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let order = match Order::read(&words, &|name| session.env(name))? {
        Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Asked::Run(order) => order,
    };
    if order.clusters.is_empty() {
        return cancel(session, order).await;
    }
    let targets = clusters::targets(session, &order.clusters).await?;
    if order.interactive {
        // Clusters are processed one after another, because the command may ask the user.
        let mut codes = Vec::new();
        for clusters::Target { name, session: mut there } in targets {
            session.go_to(there.connection()?.clone());
            let code = cancel(session, order.clone()).await?;
            codes.push(clusters::Outcome { name, result: Some(code) });
        }
        return Ok(clusters::exit_code(&codes, codes.len()));
    }
    let count = targets.len();
    let cancel = async |session: &mut Session, _: &str| cancel(session, order.clone()).await;
    let outcomes = clusters::at_each(session, targets, cancel).await;
    Ok(clusters::exit_code(&outcomes, count))
}

/// Cancels or signals the selected jobs and steps of one cluster.
async fn cancel(session: &mut Session, mut order: Order) -> anyhow::Result<u8> {
    if let Some(user) = query::unknown_users(session, &order.filter.users).await?.first() {
        return Err(Failure::new(format!("Invalid user name: {user}")).into());
    }
    if order.interactive {
        order.confirm(session).await?;
        if order.steps.is_empty() && order.filter == JobFilter::default() {
            return Ok(0);
        }
    }
    let call = async |mut controller: Controller, request| controller.cancel_jobs(request).await;
    let mut code = 0;
    let mut found = false;
    for mut request in order.requests() {
        if order.verbose {
            // An answer need not name steps.
            request.steps.iter().for_each(|step| session.inform(&order.act(step)));
        }
        loop {
            let answer = session.connection()?.change(request.clone(), call).await?;
            found |= !answer.names.is_empty() || !answer.problems.is_empty() || !request.steps.is_empty();
            code = code.max(order.report(session, &answer));
            if answer.next_job_id == 0 {
                break;
            }
            request.after_job_id = answer.next_job_id;
        }
    }
    if order.verbose && !found && !order.names_jobs() {
        let unmatched = order.unmatched();
        if !unmatched.is_empty() {
            session.error(&unmatched);
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spur_proto::v1::{Error, JobProblem};

    use super::*;

    fn order(text: &str) -> Result<Order, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match Order::read(&words, &|_| None) {
            Ok(Asked::Run(order)) => Ok(order),
            Ok(Asked::Show(text)) => Err(text),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn ids_name_jobs_tasks_and_steps() {
        for (text, jobs, steps) in [
            ("1 2.0 3_[1-4]", "1 3_[1-4]", "2.0"),
            ("3_7", "3_7", ""),
            ("4.batch", "", "4.batch"),
            ("5,6_1,7.2", "5 6_1", "7.2"),
        ] {
            let request = order(text).unwrap().request();
            let filter = request.filter.clone().unwrap_or_default();
            assert_eq!((filter.job_ids.join(" ").as_str(), request.steps.join(" ").as_str()), (jobs, steps));
            assert_eq!(request.filter.is_none(), jobs.is_empty(), "{text}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (text, part) in [
            ("", "No job identification provided"),
            ("foo", "Invalid job id foo"),
            ("1.0.0", "Invalid job id 1.0.0"),
            ("-s FOO 1", "Unknown job signal: FOO"),
            ("-t foo", "Invalid job state specified: foo"),
            ("-t completed", "Valid job states are PENDING, RUNNING, and SUSPENDED"),
            ("-Q -v 1", "exclude"),
            ("-w n[1", "n[1"),
        ] {
            let error = order(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn signals_go_to_the_script_or_to_all() {
        let shape = |text| {
            let request = order(text).unwrap().request();
            (request.signal, request.batch_only, request.full)
        };
        assert_eq!(shape("1"), (None, false, false));
        assert_eq!(shape("-s USR1 1"), (Some(10), false, false));
        assert_eq!(shape("-b 1"), (Some(9), true, false));
        assert_eq!(shape("-b -f -s 15 1"), (Some(15), false, true));
    }

    #[test]
    fn filters_act_on_all_that_match() {
        let filter =
            order("-u alice -p main -t pd,R -n x -A y -q z -w n[1-2]").unwrap().request().filter.unwrap();
        assert_eq!(filter.users, ["alice"]);
        assert_eq!(filter.states, ["PENDING", "RUNNING"]);
        assert_eq!(filter.nodelist, "n[1-2]");
        assert!(filter.job_ids.is_empty());
    }

    #[test]
    fn problems_are_told_as_slurm_tells_them() {
        let problem = |id: &str, code: &str, message: &str| JobProblem {
            job_id: id.into(),
            error: Some(Error { code: code.into(), message: message.into() }),
        };
        let answer = CancelJobsResponse {
            cancelled: vec![1],
            names: vec!["1".into()],
            problems: vec![
                problem("99", INVALID_ID, "Invalid job id specified"),
                problem("7", DONE, "Job/step already completing or completed"),
                problem("1.9", INVALID_ID, "Invalid job id specified"),
            ],
            next_job_id: 0,
        };
        let told = |text: &str| {
            let mut session = Session::in_memory("scancel", BTreeMap::new(), None);
            let code = order(text).unwrap().report(&mut session, &answer);
            (code, session.take_complaints())
        };
        let unknown = "scancel: error: Kill job error on job id 99: Invalid job id specified\n";
        let step = "scancel: error: Kill job error on job step id 1.9: Invalid job id specified\n";
        assert_eq!(told("1"), (1, format!("{unknown}{step}")));
        assert_eq!(told("-Q 1"), (0, String::new()));
        let (code, verbose) = told("-v 1");
        assert_eq!(code, 1);
        assert!(verbose.starts_with("scancel: Terminating job 1\n"), "{verbose}");
        assert!(verbose.contains("job id 7: Job/step already completing or completed\n"), "{verbose}");
    }

    #[test]
    fn a_job_is_named_so_that_only_it_is_meant() {
        let job = Job { id: 9, ..Job::default() };
        assert_eq!(reference(&job), "9");
        let task = Job { array_job_id: Some(6), array_task_id: Some(3), ..job.clone() };
        assert_eq!(reference(&task), "6_3");
        let rest = Job { array_job_id: Some(6), array_tasks: "4-7,9%2".into(), ..job };
        assert_eq!(reference(&rest), "6_[4-7,9]");
    }
}
