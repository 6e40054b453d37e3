//! The command `squeue`: lists pending, running and recently ended jobs, and steps.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use spur_core::text::hostlist::HostList;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_core::text::nearest::nearest;
use spur_proto::v1::{Job, JobFilter, Step, WatchClusterRequest};

use super::clusters;
use super::follow;
use super::listing::{self, Common, Listing};
use super::query::{self, Asked};
use crate::error::Failure;
use crate::format::fields::{job, step};
use crate::format::json::{self, Wish};
use crate::format::{Columns, Format, Show, Sort, Table, table, value};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::{Session, whoami};

const DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// Long and short names of the job states.
pub(super) const STATES: [(&str, &str); 24] = [
    ("PENDING", "PD"),
    ("RUNNING", "R"),
    ("SUSPENDED", "S"),
    ("COMPLETED", "CD"),
    ("CANCELLED", "CA"),
    ("FAILED", "F"),
    ("TIMEOUT", "TO"),
    ("NODE_FAIL", "NF"),
    ("PREEMPTED", "PR"),
    ("BOOT_FAIL", "BF"),
    ("DEADLINE", "DL"),
    ("OUT_OF_MEMORY", "OOM"),
    ("COMPLETING", "CG"),
    ("CONFIGURING", "CF"),
    ("RESIZING", "RS"),
    ("RESV_DEL_HOLD", "RD"),
    ("REQUEUED", "RQ"),
    ("REQUEUE_FED", "RF"),
    ("REQUEUE_HOLD", "RH"),
    ("REVOKED", "RV"),
    ("SIGNALING", "SI"),
    ("SPECIAL_EXIT", "SE"),
    ("STAGE_OUT", "SO"),
    ("STOPPED", "ST"),
];

/// Range of the final states in [`STATES`].
const ENDED: std::ops::Range<usize> = 3..12;

/// Values of the options.
#[derive(Default)]
pub struct Query {
    columns: Option<Columns>,
    sort: Option<String>,
    filter: JobFilter,
    steps: Option<Vec<String>>,
    /// True for `-j` or `-s` without a value; the next word, if there is one, is then the list.
    open_jobs: bool,
    open_steps: bool,
    long: bool,
    no_header: bool,
    start: bool,
    per_task: bool,
    raw_units: bool,
    common: Common,
    licenses: Vec<String>,
    /// True to print jobs that are pending in several partitions once per partition.
    per_partition: bool,
    /// True to print only jobs of other users.
    not_mine: bool,
    iterate: Option<Duration>,
    /// True to print a page after each change (`--watch`).
    watch: bool,
}

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// Command line of `squeue`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "squeue",
    synopsis: "[OPTIONS]",
    about: "Shows jobs and job steps that wait or run.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SQUEUE_", "SLURM_CLUSTERS"],
    permute: true,
};

type QueryOpt = Opt<Query>;

const OPTIONS: &[QueryOpt] = &[
    QueryOpt::value("account", Some('A'), "NAMES", "only jobs of these accounts", |q, text| {
        q.filter.accounts = query::list(text);
        Ok(())
    })
    .or(&["accounts"])
    .env(&["SQUEUE_ACCOUNT"]),
    listing::all(&["SQUEUE_ALL"]),
    QueryOpt::flag("array", Some('r'), "one line for each pending task of an array", |q, _| {
        q.per_task = true;
        Ok(())
    })
    .env(&["SQUEUE_ARRAY"]),
    QueryOpt::value("format", Some('o'), "FORMAT", "columns as %[.][width]X", |q, text| {
        q.columns = Some(Columns::Letters(text.to_owned()));
        Ok(())
    })
    .env(&["SQUEUE_FORMAT"]),
    QueryOpt::value("Format", Some('O'), "NAMES", "columns as name[:[.][width]],…", |q, text| {
        q.columns = Some(Columns::Names(text.to_owned()));
        Ok(())
    })
    .env(&["SQUEUE_FORMAT2"]),
    QueryOpt::flag("watch", None, listing::WATCH, |q, _| {
        q.watch = true;
        Ok(())
    }),
    QueryOpt::value("iterate", Some('i'), "SECONDS", "again and again, with a time stamp", |q, text| {
        q.iterate = Some(query::interval(text)?);
        Ok(())
    }),
    QueryOpt::value("jobs", Some('j'), "IDS", "only these jobs: 12, 12_3, 12_[1-4]", |q, text| {
        q.open_jobs = text.is_empty();
        q.filter.job_ids = query::job_ids(text)?;
        Ok(())
    })
    .optional(),
    QueryOpt::flag("array-unique", None, "the same as --array", |q, _| {
        q.per_task = true;
        Ok(())
    })
    .env(&["SQUEUE_ARRAY_UNIQUE"]),
    listing::clusters(),
    QueryOpt::flag("expand-patterns", None, "names of files with their patterns filled in", |_, _| Ok(()))
        .without_effect("they always are"),
    QueryOpt::flag("only-job-state", None, "nothing but the states of jobs", |_, _| Ok(()))
        .without_effect("it spares slurmctld work that is none here"),
    listing::federation(&["SQUEUE_FEDERATION"]),
    listing::hide(),
    QueryOpt::value(
        "licenses",
        Some('L'),
        "NAMES",
        "only jobs that want one of these licenses",
        |q, text| {
            q.licenses = query::list(text);
            Ok(())
        },
    )
    .env(&["SQUEUE_LICENSES"]),
    listing::local(&["SQUEUE_LOCAL"]),
    QueryOpt::flag("notme", None, "only jobs of others", |q, _| {
        q.not_mine = true;
        Ok(())
    }),
    QueryOpt::flag("priority", Some('P'), "jobs that wait in several partitions once for each", |q, _| {
        q.per_partition = true;
        Ok(())
    })
    .env(&["SQUEUE_PRIORITY"]),
    listing::sibling(&["SQUEUE_SIBLING"]),
    listing::verbose(),
    listing::json(),
    listing::yaml(),
    QueryOpt::flag("long", Some('l'), "more columns", |q, _| {
        q.long = true;
        Ok(())
    }),
    QueryOpt::flag("me", None, "only my own jobs", |q, _| {
        q.filter.users = vec![whoami().user];
        Ok(())
    }),
    QueryOpt::value("name", Some('n'), "NAMES", "only jobs of these names", |q, text| {
        q.filter.names = query::list(text);
        Ok(())
    })
    .env(&["SQUEUE_NAMES"]),
    QueryOpt::flag("noconvert", None, "amounts of memory in megabytes", |q, _| {
        q.raw_units = true;
        Ok(())
    }),
    QueryOpt::value("nodelist", Some('w'), "NODES", "only jobs on these nodes", |q, text| {
        text.clone_into(&mut q.filter.nodelist);
        Ok(())
    }),
    QueryOpt::flag("noheader", Some('h'), "no header", |q, _| {
        q.no_header = true;
        Ok(())
    }),
    QueryOpt::value("partition", Some('p'), "NAMES", "only jobs of these partitions", |q, text| {
        q.filter.partitions = query::list(text);
        Ok(())
    })
    .env(&["SQUEUE_PARTITION"]),
    QueryOpt::value("qos", Some('q'), "NAMES", "only jobs of these QOS", |q, text| {
        q.filter.qos = query::list(text);
        Ok(())
    })
    .env(&["SQUEUE_QOS"]),
    QueryOpt::value("reservation", Some('R'), "NAMES", "only jobs in these reservations", |q, text| {
        q.filter.reservations = query::list(text);
        Ok(())
    }),
    QueryOpt::value("sort", Some('S'), "LETTERS", "the order, e.g. P,t,-p", |q, text| {
        q.sort = Some(text.to_owned());
        Ok(())
    })
    .env(&["SQUEUE_SORT"]),
    QueryOpt::flag("start", None, "when and where pending jobs are expected to start", |q, _| {
        q.start = true;
        Ok(())
    }),
    QueryOpt::value("states", Some('t'), "STATES", "only jobs in these states, or all", |q, text| {
        q.filter.states = states(text)?;
        Ok(())
    })
    .env(&["SQUEUE_STATES"]),
    QueryOpt::value("steps", Some('s'), "STEPS", "steps instead of jobs; all, or JOB.STEP,…", |q, text| {
        q.open_steps = text.is_empty();
        q.steps(text)
    })
    .optional(),
    QueryOpt::value("user", Some('u'), "USERS", "only jobs of these users", |q, text| {
        q.filter.users = query::list(text);
        Ok(())
    })
    .or(&["users"])
    .env(&["SQUEUE_USERS"]),
];

/// Parses names of states, long or short.
///
/// # Errors
/// A message with the first unknown name and all known ones.
pub(super) fn states(text: &str) -> Result<Vec<String>, String> {
    let mut chosen = Vec::new();
    for word in query::list(text) {
        if word.eq_ignore_ascii_case("all") {
            return Ok(vec!["all".to_owned()]);
        }
        let known = STATES
            .iter()
            .find(|(long, short)| word.eq_ignore_ascii_case(long) || word.eq_ignore_ascii_case(short));
        let (long, _) = known.ok_or_else(|| {
            let names: Vec<&str> = STATES.iter().map(|(long, _)| *long).collect();
            let hint = nearest(&word.to_uppercase(), names.iter().copied());
            let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            format!(
                "Invalid job state specified: {word}{hint}\nValid job states include: {}",
                names.join(",")
            )
        })?;
        chosen.push((*long).to_owned());
    }
    Ok(chosen)
}

impl Query {
    /// Parses the words after `squeue` and the environment.
    ///
    /// # Errors
    /// An invalid option.
    pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Asked<Query>> {
        let mut query = Query::default();
        let operands = match LINE.settle(words, env, &mut query)? {
            Settled::Show(text) => return Ok(Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        let mut operands = operands.into_iter();
        if query.open_jobs
            && let Some(list) = operands.next()
        {
            query.filter.job_ids = query::job_ids(&list).map_err(Failure::new)?;
        }
        if query.open_steps
            && let Some(list) = operands.next()
        {
            query.steps(&list).map_err(Failure::new)?;
        }
        query::no_operands(operands)?;
        if query.common.wish.is_some_and(|wish| wish.list) {
            return Ok(Asked::Show(Wish::list()));
        }
        Ok(Asked::Run(query))
    }

    fn steps(&mut self, text: &str) -> Result<(), String> {
        let steps = query::list(text);
        for step in &steps {
            let read: Result<JobRef, _> = step.parse();
            read.map_err(|_| format!("Invalid job id: {step}"))?;
        }
        self.steps = Some(steps);
        Ok(())
    }

    /// True if steps are printed instead of jobs.
    pub fn shows_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns the request. A single job is requested in all states, so that an unknown job is reported.
    fn request(&self) -> JobFilter {
        let mut filter = self.filter.clone();
        if self.start && filter.states.is_empty() {
            filter.states = vec!["PENDING".to_owned()];
        }
        filter.only_visible = !self.common.all && !self.alone();
        if self.alone() {
            filter.states = vec!["all".to_owned()];
        }
        filter
    }

    /// Selects the requested jobs among those that no controller has filtered: by number, user, partition,
    /// name, account, QOS, node, reservation and wckey.
    ///
    /// # Errors
    /// An invalid hostlist.
    pub fn chosen(&self, jobs: Vec<Job>) -> anyhow::Result<Vec<Job>> {
        let filter = &self.filter;
        let refs: Vec<JobRef> = filter.job_ids.iter().filter_map(|id| id.parse().ok()).collect();
        let nodes: HostList = filter.nodelist.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let nodes: BTreeSet<String> = nodes.iter().collect();
        let is_on = |job: &Job| {
            let ended = STATES[ENDED].iter().any(|(long, _)| job.state == *long);
            let held = job.nodes.parse::<HostList>().ok().filter(|_| !ended);
            held.is_some_and(|held| held.iter().any(|node| nodes.contains(&node)))
        };
        let fits = |wanted: &[String], name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
        let is_meant = |job: &Job| {
            let (users, partitions) = (&filter.users, &filter.partitions);
            (refs.is_empty() || refs.iter().any(|wanted| job::is_meant(job, wanted)))
                && (fits(users, &job.user) || fits(users, &job.uid.to_string()))
                && (partitions.is_empty() || job.partition.split(',').any(|name| fits(partitions, name)))
                && fits(&filter.names, &job.name)
                && fits(&filter.accounts, &job.account)
                && fits(&filter.qos, &job.qos)
                && fits(&filter.reservations, &job.reservation)
                && fits(&filter.wckeys, &job.wckey)
                && (nodes.is_empty() || is_on(job))
        };
        Ok(jobs.into_iter().filter(is_meant).collect())
    }

    fn alone(&self) -> bool {
        self.filter.job_ids.len() == 1 && self.steps.is_none()
    }

    fn admits(&self, job: &Job) -> bool {
        let wanted = |name: &String| {
            job.licenses.split(',').any(|license| license.split([':', '@']).next() == Some(name))
        };
        if !self.licenses.is_empty() && !self.licenses.iter().any(wanted)
            || self.not_mine && job.user == whoami().user
        {
            return false;
        }
        let states = &self.filter.states;
        let ended = STATES[ENDED].iter().any(|(long, _)| job.state == *long);
        match states.first() {
            _ if self.start && states.is_empty() => job.state == "PENDING",
            None => !ended,
            Some(first) => first == "all" || states.contains(&job.state),
        }
    }

    fn format<R>(&self, default: &str, table: &'static Table<R>) -> Format<R> {
        match &self.columns {
            Some(columns) => columns.read(table),
            None => Format::letters(default, table),
        }
    }

    /// Returns complaints about unknown columns.
    fn complaints(&self) -> Vec<String> {
        match &self.columns {
            None => Vec::new(),
            Some(columns) if self.shows_steps() => columns.read(&step::TABLE).complaints,
            Some(columns) => columns.read(&job::TABLE).complaints,
        }
    }

    /// True if the output contains the name of the cluster.
    fn names_cluster(&self) -> bool {
        let shown = |columns: &Columns| columns.read(&job::TABLE).shows("Cluster");
        self.common.wish.is_some() || self.columns.as_ref().is_some_and(shown)
    }

    /// Splits the record of pending tasks into the tasks that are requested by number. Any other job is
    /// returned unchanged.
    fn named_tasks(&self, job: Job) -> Vec<Job> {
        let refs = self.filter.job_ids.iter().filter_map(|id| id.parse::<JobRef>().ok());
        let refs: Vec<JobRef> = refs.filter(|wanted| job::is_meant(&job, wanted)).collect();
        if refs.is_empty() || refs.iter().any(|wanted| !matches!(wanted.part, JobPart::Tasks(_))) {
            return vec![job];
        }
        let mut tasks = job::one_per_task(job);
        tasks.retain(|task| refs.iter().any(|wanted| job::is_meant(task, wanted)));
        tasks
    }

    fn surroundings(&self, show: &Show) -> Show {
        Show { convert: !self.raw_units, ..show.clone() }
    }

    /// Returns the text for these jobs.
    ///
    /// # Errors
    /// A format or an order with an unknown field.
    pub fn jobs_text(&self, jobs: Vec<Job>, show: &Show) -> anyhow::Result<String> {
        let admitted = jobs.into_iter().filter(|job| self.admits(job));
        let mut jobs: Vec<Job> = admitted.map(job::as_pending_tasks).collect();
        if !self.filter.job_ids.is_empty() {
            jobs = jobs.into_iter().flat_map(|job| self.named_tasks(job)).collect();
        }
        if self.per_task {
            jobs = jobs.into_iter().flat_map(job::one_per_task).collect();
        }
        if self.per_partition {
            jobs = jobs.into_iter().flat_map(job::one_per_partition).collect();
        }
        let show = self.surroundings(show);
        let sort = self.sort.as_deref().unwrap_or(if self.start { "S" } else { "P,t,-p" });
        Sort::parse(sort, &job::TABLE, None).map_err(Failure::new)?.apply(&mut jobs, &show);
        if let Some(wish) = self.common.wish {
            let slurm = jobs.iter().map(|found| json::job::job(found, &show));
            return Ok(wish.listing(&show, "jobs", &jobs, slurm));
        }
        let default = match self {
            Query { start: true, .. } => START,
            Query { long: true, .. } => LONG,
            _ => DEFAULT,
        };
        let format = self.format(default, &job::TABLE);
        Ok(self.dated(table::render(&format, &jobs, !self.no_header, &show), &show))
    }

    /// Returns the text for these steps.
    ///
    /// # Errors
    /// A format or an order with an unknown field.
    pub fn steps_text(&self, steps: Vec<Step>, show: &Show) -> anyhow::Result<String> {
        let mut steps: Vec<Step> = steps.into_iter().filter(|step| self.admits_step(step)).collect();
        let sort = self.sort.as_deref().unwrap_or("P,i");
        Sort::parse(sort, &step::TABLE, None).map_err(Failure::new)?.apply(&mut steps, show);
        if let Some(wish) = self.common.wish {
            let slurm = steps.iter().map(|found| json::step::step(found, show));
            return Ok(wish.listing(show, "steps", &steps, slurm));
        }
        let format = self.format(STEPS, &step::TABLE);
        Ok(self.dated(table::render(&format, &steps, !self.no_header, show), show))
    }

    fn admits_step(&self, step: &Step) -> bool {
        let wanted = self.steps.as_deref().unwrap_or_default();
        let named = |text: &String| text.parse::<JobRef>().is_ok_and(|wanted| step::is_meant(step, &wanted));
        wanted.is_empty() || wanted.iter().any(named)
    }

    fn dated(&self, text: String, show: &Show) -> String {
        let dated = !self.no_header && (self.long || self.iterate.is_some());
        let end = if self.iterate.is_some() || self.watch { "\n" } else { "" };
        if dated { format!("{}\n{text}{end}", value::date_line(show)) } else { text + end }
    }

    async fn page(&self, session: &mut Session) -> anyhow::Result<String> {
        let named = &self.common.clusters;
        if named.is_empty() {
            return self.page_of_one(session).await;
        }
        let headed = !self.no_header && self.common.wish.is_none();
        // Without headers, each row names the cluster of its job.
        let marked = self.no_header && self.columns.is_none() && (named.len() > 1 || named[0] == "all");
        clusters::pages(session, named, headed, async |session: &mut Session, name: &str| {
            let page = self.page_of_one(session).await?;
            let row = |line: &str| format!("{name:<10.10} {line}\n");
            Ok(if marked { page.lines().map(row).collect() } else { page })
        })
        .await
    }

    async fn page_of_one(&self, session: &mut Session) -> anyhow::Result<String> {
        let mut show = query::show(&|name| session.env(name))?;
        if self.names_cluster() {
            query::identify(session, &mut show).await?;
        }
        let connection = session.connection()?;
        if let Some(wanted) = &self.steps {
            let mut filter = self.filter.clone();
            let jobs = wanted.iter().filter_map(|step| step.parse::<JobRef>().ok());
            filter.job_ids.extend(jobs.map(|job| job.job.to_string()));
            return self.steps_text(query::steps(connection, filter).await?, &show);
        }
        let answer = match self.start {
            true => query::jobs_with_starts(connection, self.request()).await,
            false => query::jobs_with(connection, self.request(), self.common.wish.is_some()).await,
        };
        let jobs = match answer {
            Err(error) if error.code() == Some("ESLURM_INVALID_JOB_ID") && self.alone() => {
                session.say("slurm_load_jobs error: Invalid job id specified");
                return Err(Failure::new("").into());
            }
            // All of several jobs may be unknown, which is no error.
            Err(error) if error.code() == Some("ESLURM_INVALID_JOB_ID") => Vec::new(),
            answer => answer?,
        };
        Ok(format!("{}{}", self.told(jobs.len(), &show), self.jobs_text(jobs, &show)?))
    }

    /// Prints a page, and another one after each change, until interrupted.
    async fn watch(&self, session: &mut Session) -> anyhow::Result<()> {
        clusters::only(session, &self.common.clusters).await?;
        if self.steps.is_some() || self.start {
            return Err(
                Failure::new("--watch follows jobs, neither --steps nor --start; give --iterate").into()
            );
        }
        let filter = Some(self.request());
        let request = WatchClusterRequest { filter, ..WatchClusterRequest::default() };
        let page = async |session: &mut Session, picture: &follow::Picture| {
            let mut show = query::show(&|name| session.env(name))?;
            if self.names_cluster() {
                query::identify(session, &mut show).await?;
            }
            self.jobs_text(picture.jobs.values().cloned().collect(), &show)
        };
        follow::pages(session, request, page).await
    }

    /// Lines that `--verbose` prints before the jobs: the options, the time and the number of jobs that
    /// the controller sent.
    fn told(&self, records: usize, show: &Show) -> String {
        if !self.common.verbose || self.common.wish.is_some() {
            return String::new();
        }
        let filter = &self.filter;
        let list = |names: &[String]| names.join(",");
        let settings = [
            ("all", self.common.all.to_string()),
            ("array", self.per_task.to_string()),
            ("format", self.columns.as_ref().map_or_else(String::new, |columns| columns.text().to_owned())),
            ("iterate", self.iterate.map_or(0, |every| every.as_secs()).to_string()),
            ("jobs", list(&filter.job_ids)),
            ("licenses", list(&self.licenses)),
            ("names", list(&filter.names)),
            ("nodes", filter.nodelist.clone()),
            ("partitions", list(&filter.partitions)),
            ("priority", self.per_partition.to_string()),
            ("reservation", list(&filter.reservations)),
            ("sort", self.sort.clone().unwrap_or_default()),
            ("start_flag", u8::from(self.start).to_string()),
            ("states", list(&filter.states)),
            ("users", list(&filter.users)),
            ("verbose", "1".to_owned()),
        ];
        let (asked, date) = (listing::asked(&settings), value::date_line(show));
        format!("{asked}{date}\nlast_update_time={} records={records}\n", show.now)
    }
}

/// Runs `squeue`.
///
/// # Errors
/// An invalid option, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let query = match Query::read(&words, &|name| session.env(name))? {
        Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Asked::Run(query) => query,
    };
    session.asks(if query.steps.is_some() { "slurm_get_job_steps error" } else { "slurm_load_jobs error" });
    for complaint in query.complaints() {
        session.error(&complaint);
    }
    let users = if query.common.clusters.is_empty() { &query.filter.users[..] } else { &[] };
    for user in query::unknown_users(session, users).await? {
        session.error(&format!("Invalid user: {user}\n"));
    }
    if query.watch {
        query.watch(session).await?;
        return Ok(0);
    }
    query::pages(session, query.iterate, async |session: &mut Session| query.page(session).await).await?;
    Ok(0)
}
