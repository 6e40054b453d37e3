//! The command `sacct`: lists jobs and steps from accounting, including ended ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spur_core::text::hostlist::HostExpr;
use spur_core::text::jobid::JobRef;
use spur_core::text::time::{TimeLimit, When};
use spur_proto::client::{CallError, Controller};
use spur_proto::v1::{AccountingRow, GetScriptRequest, GetScriptResponse, ListAccountingRequest};

use super::clusters;
use super::listing::{self, Common, Listing};
use super::moment::past_moment;
use super::qos;
use super::query::{self, Asked};
use super::squeue::states;
use crate::error::Failure;
use crate::format::Show;
use crate::format::json::{self, Wish};
use crate::format::report::{self, Layout, Report};
use crate::format::value::{UNITS, time};
use crate::options::{CommandLine, Opt, OptionError, Settled};
use crate::session::{Session, whoami};

const DEFAULT: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
const BRIEF: &str = "jobid,state,exitcode";
const COMPLETION: &str = "jobid,uid,jobname,partition,nnodes,nodelist,state,start,end,timelimit";
const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,\
                    maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,\
                    mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,\
                    reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,\
                    maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,\
                    reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,\
                    tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutmax,\
                    tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot";

/// Values of the options.
#[derive(Default)]
pub struct Query {
    request: ListAccountingRequest,
    /// Jobs as given, including steps.
    jobs: Vec<JobRef>,
    start: Option<When>,
    end: Option<When>,
    format: Option<String>,
    brief: bool,
    long: bool,
    no_header: bool,
    delimiter: Option<String>,
    /// Delimiter at the end of each line: true with `-p`, false with `-P`.
    parsable: Option<bool>,
    help_format: bool,
    raw_units: bool,
    unit: Option<char>,
    /// `-c`: true for the format of completed jobs.
    completion: bool,
    /// Texts of jobs that are printed instead of columns.
    texts: Texts,
    /// True to include earlier attempts of requeued jobs.
    duplicates: bool,
    common: Common,
    /// Conditions on jobs.
    wanted: Wanted,
    /// True to limit the printed times to the requested period.
    truncate: bool,
}

type QueryOpt = Opt<Query>;

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// Command line of `sacct`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "sacct",
    synopsis: "[<OPTION>]",
    about: "Shows jobs and steps from accounting: by default one's own since midnight. Lists that are given several\n\
            times are joined.\n\n\
            Note, valid start/end time formats are...\n\
            \x20    HH:MM[:SS] [AM|PM]\n\
            \x20    MMDD[YY] or MM/DD[/YY] or MM.DD[.YY]\n\
            \x20    MM/DD[/YY]-HH:MM[:SS]\n\
            \x20    YYYY-MM-DD[THH:MM[:SS]]\n\
            \x20    now[{+|-}count[seconds(default)|minutes|hours|days|weeks]]\n",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SACCT_", "SLURM_CLUSTERS"],
    permute: true,
};

const OPTIONS: &[QueryOpt] = &[
    QueryOpt::value("accounts", Some('A'), "NAMES", "only jobs of these accounts", |q, text| {
        q.request.accounts.extend(query::list(text));
        Ok(())
    }),
    QueryOpt::flag("allocations", Some('X'), "jobs without their steps", |q, _| {
        q.request.allocations_only = true;
        Ok(())
    }),
    QueryOpt::flag("allusers", Some('a'), "jobs of all users", |q, _| {
        q.request.all_users = true;
        Ok(())
    }),
    QueryOpt::flag("brief", Some('b'), "id, state and exit code only", |q, _| {
        q.brief = true;
        Ok(())
    }),
    listing::clusters(),
    QueryOpt::value("delimiter", None, "TEXT", "what stands between values with -p and -P", |q, text| {
        q.delimiter = Some(text.to_owned());
        Ok(())
    }),
    QueryOpt::flag("duplicates", Some('D'), "earlier attempts of requeued jobs as well", |q, _| {
        q.duplicates = true;
        Ok(())
    }),
    QueryOpt::value("endtime", Some('E'), "TIME", "only jobs that were there before it", |q, text| {
        q.end = Some(text.parse().map_err(|e: spur_core::text::ParseError| e.to_string())?);
        Ok(())
    }),
    QueryOpt::value("format", Some('o'), "FIELDS", "columns as name[%[-]width],…", |q, text| {
        q.format = Some(text.to_owned());
        Ok(())
    })
    .env(&["SACCT_FORMAT"]),
    QueryOpt::flag("helpformat", Some('e'), "list the fields there are", |q, _| {
        q.help_format = true;
        Ok(())
    }),
    QueryOpt::value("jobs", Some('j'), "IDS", "only these jobs or steps: 12, 12_3, 12.batch", |q, text| {
        q.jobs.extend(JobRef::parse_list(text).map_err(|e| e.to_string())?);
        Ok(())
    }),
    QueryOpt::flag("allclusters", Some('L'), "jobs of all clusters", |_, _| Ok(()))
        .without_effect("-M all asks the clusters of the configuration"),
    QueryOpt::value(
        "associations",
        Some('x'),
        "IDS",
        "only jobs of these associations: 0 is none",
        |q, text| {
            q.wanted.associations = query::list(text);
            Ok(())
        },
    ),
    QueryOpt::flag("batch-script", Some('B'), "the script of a job", |q, _| {
        q.texts.script = true;
        Ok(())
    }),
    QueryOpt::flag("completion", Some('c'), "jobs that have ended, without their steps", |q, _| {
        q.completion = true;
        q.request.allocations_only = true;
        Ok(())
    }),
    QueryOpt::value(
        "constraints",
        Some('C'),
        "NAMES",
        "only jobs that ask for one of these features",
        |q, text| {
            q.wanted.constraints = query::list(text);
            Ok(())
        },
    ),
    QueryOpt::flag("env-vars", None, "the environment of a job", |q, _| {
        q.texts.environment = true;
        Ok(())
    }),
    QueryOpt::flag("expand-patterns", None, "names of files with their patterns filled in", |_, _| Ok(()))
        .without_effect("they always are"),
    listing::federation(&["SACCT_FEDERATION"]),
    QueryOpt::value("file", Some('f'), "FILE", "from a file", |_, _| Ok(()))
        .refused("not supported by Spur: accounting is a database"),
    QueryOpt::value("flags", Some('F'), "FLAGS", "only jobs with these flags", |_, _| Ok(()))
        .refused("not supported by Spur: accounting has no flags of jobs"),
    QueryOpt::value("gid", Some('g'), "GROUPS", "only jobs of these groups", |q, text| {
        q.wanted.groups = query::list(text);
        Ok(())
    })
    .or(&["group"]),
    listing::local(&["SACCT_LOCAL"]),
    QueryOpt::value("ncpus", Some('I'), "N[-M]", "only jobs of so many CPUs", |q, text| {
        q.wanted.cpus = Some(range(text)?);
        Ok(())
    }),
    QueryOpt::value("nnodes", Some('i'), "N[-M]", "only jobs of so many nodes", |q, text| {
        q.wanted.nodes = Some(range(text)?);
        Ok(())
    }),
    QueryOpt::value("reason", Some('R'), "REASONS", "only jobs with these reasons", |q, text| {
        q.wanted.reasons = query::list(text);
        Ok(())
    }),
    QueryOpt::value("timelimit-max", Some('K'), "TIME", "only jobs of up to this limit", |q, text| {
        q.wanted.longest = Some(seconds(text)?);
        Ok(())
    }),
    QueryOpt::value("timelimit-min", Some('k'), "TIME", "only jobs of at least this limit", |q, text| {
        q.wanted.shortest = Some(seconds(text)?);
        Ok(())
    }),
    QueryOpt::flag("truncate", Some('T'), "times outside of -S and -E as these", |q, _| {
        q.truncate = true;
        Ok(())
    }),
    QueryOpt::value("units", None, "K|M|G|T|P", "the unit of amounts of memory", |q, text| {
        let unit = text.to_ascii_uppercase().chars().next().filter(|unit| UNITS.contains(*unit));
        q.unit = Some(unit.filter(|_| text.len() == 1).ok_or_else(|| format!("Invalid units type: {text}"))?);
        Ok(())
    }),
    QueryOpt::flag("use-local-uid", None, "names of users as this host has them", |_, _| Ok(()))
        .without_effect("names are those under which jobs were submitted"),
    QueryOpt::flag("verbose", Some('v'), "print the period of the listed jobs", |q, _| {
        q.common.verbose = true;
        Ok(())
    }),
    QueryOpt::value("wckeys", Some('W'), "NAMES", "only jobs of these keys", |q, text| {
        q.wanted.wckeys = query::list(text);
        Ok(())
    }),
    QueryOpt::value("whole-hetjob", None, "yes|no", "all components of het jobs", |_, _| Ok(()))
        .optional()
        .without_effect("the number of a het job means all its components, that of a component this one"),
    listing::json(),
    listing::yaml(),
    QueryOpt::flag("long", Some('l'), "more columns", |q, _| {
        q.long = true;
        Ok(())
    }),
    QueryOpt::value("name", None, "NAMES", "only jobs of these names", |q, text| {
        q.request.names.extend(query::list(text));
        Ok(())
    }),
    QueryOpt::flag("noconvert", None, "amounts of memory in megabytes", |q, _| {
        q.raw_units = true;
        Ok(())
    }),
    QueryOpt::value("nodelist", Some('N'), "NODES", "only jobs that ran on any of these nodes", |q, text| {
        text.parse::<HostExpr>().map_err(|e| e.to_string())?;
        text.clone_into(&mut q.request.nodelist);
        Ok(())
    }),
    QueryOpt::flag("noheader", Some('n'), "no header", |q, _| {
        q.no_header = true;
        Ok(())
    }),
    QueryOpt::flag("parsable", Some('p'), "values with | between and at the end", |q, _| {
        q.parsable = Some(true);
        Ok(())
    }),
    QueryOpt::flag("parsable2", Some('P'), "values with | between", |q, _| {
        q.parsable = Some(false);
        Ok(())
    }),
    QueryOpt::value("partition", Some('r'), "NAMES", "only jobs of these partitions", |q, text| {
        q.request.partitions.extend(query::list(text));
        Ok(())
    }),
    QueryOpt::value("qos", Some('q'), "NAMES", "only jobs of these QOS", |q, text| {
        q.request.qos.extend(query::list(text));
        Ok(())
    }),
    QueryOpt::value("starttime", Some('S'), "TIME", "only jobs that were there after it", |q, text| {
        q.start = Some(text.parse().map_err(|e: spur_core::text::ParseError| e.to_string())?);
        Ok(())
    }),
    QueryOpt::value("state", Some('s'), "STATES", "only jobs that were in these states", |q, text| {
        q.request.states.extend(states(text)?);
        Ok(())
    }),
    QueryOpt::value("user", Some('u'), "USERS", "only jobs of these users", |q, text| {
        q.request.users.extend(query::list(text));
        Ok(())
    })
    .or(&["uid"]),
];

/// Texts of jobs to print.
#[derive(Default)]
struct Texts {
    script: bool,
    environment: bool,
}

/// Conditions on jobs; unset ones always hold.
#[derive(Default)]
struct Wanted {
    /// Ids of associations. Jobs have none, so only 0 matches.
    associations: Vec<String>,
    constraints: Vec<String>,
    groups: Vec<String>,
    wckeys: Vec<String>,
    reasons: Vec<String>,
    nodes: Option<(u32, u32)>,
    cpus: Option<(u32, u32)>,
    shortest: Option<u64>,
    longest: Option<u64>,
}

impl Wanted {
    fn admits(&self, job: &AccountingRow) -> bool {
        let among = |names: &[String], text: &str| names.is_empty() || names.iter().any(|name| name == text);
        let within = |range: Option<(u32, u32)>, count: u32| {
            range.is_none_or(|(least, most)| (least..=most).contains(&count))
        };
        let asked =
            |name: &String| job.constraints.split(['&', '|', ',', '*', '[', ']']).any(|word| word == name);
        let limit = job.time_limit.unwrap_or(u64::MAX);
        (self.constraints.is_empty() || self.constraints.iter().any(asked))
            && among(&self.associations, "0")
            && (among(&self.groups, &job.group) || among(&self.groups, &job.gid.to_string()))
            && among(&self.wckeys, &job.wckey)
            && among(&self.reasons, &job.reason)
            && within(self.nodes, job.nodes)
            && within(self.cpus, job.alloc_cpus.max(job.req_cpus))
            && self.shortest.is_none_or(|shortest| limit >= shortest)
            && self.longest.is_none_or(|longest| limit <= longest)
    }
}

/// Parses a number or a range: `4`, `4-8`.
fn range(text: &str) -> Result<(u32, u32), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.trim().parse(), most.trim().parse()) {
        (Ok(least), Ok(most)) => Ok((least, most)),
        _ => Err(format!("`{text}` is no number; write N or N-M")),
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let limit: TimeLimit = text.parse().map_err(|error: spur_core::text::ParseError| error.to_string())?;
    Ok(limit.seconds().unwrap_or(u64::MAX))
}

/// Removes the rows of attempts that were followed by another.
fn keep_last_attempts(rows: &mut Vec<AccountingRow>) {
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for row in rows.iter() {
        let restarts = last.entry(row.job_id).or_default();
        *restarts = row.restarts.max(*restarts);
    }
    rows.retain(|row| last.get(&row.job_id) == Some(&row.restarts));
}

impl Query {
    /// Parses the words after `sacct` and the environment.
    ///
    /// # Errors
    /// An invalid option.
    pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Asked<Query>> {
        let mut query = Query::default();
        let operands = match LINE.settle(words, env, &mut query)? {
            Settled::Show(text) => return Ok(Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        query::no_operands(operands.into_iter())?;
        if query.common.wish.is_some_and(|wish| wish.list) {
            return Ok(Asked::Show(Wish::list()));
        }
        if query.help_format {
            return Ok(Asked::Show(report::help()));
        }
        if query.delimiter.is_some() && query.parsable.is_none() {
            return Err(OptionError::together("--delimiter needs -p or -P").into());
        }
        Ok(Asked::Run(query))
    }

    /// Returns the request of `user` at time `now`. Root sees all jobs; others see their own by default.
    ///
    /// # Errors
    /// A date or time of day that does not exist in this zone.
    pub fn request(
        &self,
        zone: &TimeZone,
        now: Timestamp,
        (uid, user): (u32, &str),
    ) -> anyhow::Result<ListAccountingRequest> {
        let mut request = self.request.clone();
        request.job_ids =
            self.jobs.iter().map(|job| JobRef { step: None, ..job.clone() }.to_string()).collect();
        request.job_ids.dedup();
        let widely = !request.job_ids.is_empty() || !request.nodelist.is_empty();
        match request.users.is_empty() {
            true if widely || uid == 0 => request.all_users = true,
            true if !request.all_users => request.users = vec![user.to_owned()],
            _ => {}
        }
        let point = |when: &When| past_moment(*when, zone, now).map_err(Failure::new);
        request.end = self.end.as_ref().map(point).transpose()?;
        request.start = match &self.start {
            Some(when) => {
                let start = point(when)?;
                // As with Slurm, states without an end time refer to a single moment.
                if !request.states.is_empty() {
                    request.end = request.end.or(Some(start));
                }
                Some(start)
            }
            None if !request.job_ids.is_empty() => None,
            // As in Slurm. An end in the past is refused below.
            None if !request.states.is_empty() => {
                request.end = request.end.or(Some(now.as_second()));
                Some(now.as_second())
            }
            None => Some(point(&"midnight".parse()?)?),
        };
        request.states.retain(|state| state != "all");
        let last = request.end.unwrap_or(now.as_second());
        if let Some(start) = request.start.filter(|start| *start > last) {
            let shown = |at| time(Some(at), "", &Show::new(zone.clone(), now.as_second()));
            let text =
                format!("Start time ({}) requested is after end time ({}).", shown(start), shown(last));
            return Err(Failure::new(text).into());
        }
        Ok(request)
    }

    /// Keeps the requested rows.
    fn choose(&self, rows: &mut Vec<AccountingRow>) {
        let is_meant = |row: &&AccountingRow| {
            row.step_id.is_empty() && self.wanted.admits(row) && (!self.completion || row.end_time.is_some())
        };
        let jobs = rows.iter().filter(is_meant);
        let jobs: BTreeSet<(u32, u32)> = jobs.map(|row| (row.job_id, row.restarts)).collect();
        rows.retain(|row| jobs.contains(&(row.job_id, row.restarts)) && self.admits(row));
        if !self.duplicates {
            keep_last_attempts(rows);
        }
    }

    /// Returns the printed text of these rows.
    ///
    /// # Errors
    /// A format with an unknown field.
    pub fn text(&self, mut rows: Vec<AccountingRow>, show: &Show) -> anyhow::Result<String> {
        self.choose(&mut rows);
        if let Some(wish) = self.common.wish {
            return Ok(match wish.spur {
                true => wish.own([("jobs", json::to_value(&rows))]),
                false => {
                    wish.slurm(show, [("jobs", json::Part::records(json::accounting::jobs(&rows, show)))])
                }
            });
        }
        let format = self.format.as_deref();
        let report = Report::parse(match self {
            Query { brief: true, .. } => BRIEF,
            Query { long: true, .. } => LONG,
            _ => format.unwrap_or(if self.completion { COMPLETION } else { DEFAULT }),
        })?;
        let layout = match self.parsable {
            None => Layout::Columns,
            Some(closed) => {
                let delimiter = self.delimiter.clone().unwrap_or_else(|| "|".to_owned());
                Layout::Delimited { delimiter, closed }
            }
        };
        let show = Show { convert: !self.raw_units, unit: self.unit, ..show.clone() };
        Ok(report.render(&rows, &layout, !self.no_header, &show))
    }

    /// True if these rows may lack jobs that were purged: all selected jobs have rows only if each is named.
    fn lacks_jobs(&self, rows: &[AccountingRow]) -> bool {
        self.jobs.is_empty() || !self.jobs.iter().all(|job| rows.iter().any(|row| is_of(job, row)))
    }

    /// Number of lines above the rows.
    fn header_lines(&self) -> usize {
        let is_table = self.common.wish.is_none() && !self.texts.script && !self.texts.environment;
        match self.parsable {
            _ if self.no_header || !is_table => 0,
            None => 2,
            Some(_) => 1,
        }
    }

    /// True if the name of the cluster is printed, so that the command has to ask for this name.
    fn names_cluster(&self) -> bool {
        let format = self.format.as_deref().unwrap_or_default().to_lowercase();
        self.common.wish.is_some()
            || format.split([',', '%']).any(|name| name == "all" || name.starts_with("clu"))
    }

    /// True if a row is requested: a job without a step selects all its rows, a step only its own.
    fn admits(&self, row: &AccountingRow) -> bool {
        let of_job: Vec<&JobRef> = self.jobs.iter().filter(|job| is_of(job, row)).collect();
        let named = |job: &&JobRef| match job.step {
            None => true,
            Some(step) => step.to_string() == row.step_id,
        };
        (self.jobs.is_empty() || of_job.iter().any(named))
            && (row.step_id.is_empty() || !self.request.allocations_only)
    }
}

fn is_of(job: &JobRef, row: &AccountingRow) -> bool {
    use spur_core::text::array::TaskSet;
    use spur_core::text::jobid::JobPart;
    match &job.part {
        JobPart::Tasks(tasks) => {
            let together = row.array_tasks.split('%').next().unwrap_or_default().parse::<TaskSet>();
            let named = |mine: TaskSet| !mine.common(tasks).is_empty();
            row.array_job_id == Some(job.job)
                && (row.array_task_id.is_some_and(|task| tasks.contains(task)) || together.is_ok_and(named))
        }
        JobPart::Component(component) => {
            (row.het_job_id, row.het_job_offset) == (Some(job.job), Some(*component))
        }
        JobPart::Whole => [Some(row.job_id), row.array_job_id, row.het_job_id].contains(&Some(job.job)),
    }
}

/// Refuses unknown users and QOS.
async fn check_names(session: &mut Session, request: &ListAccountingRequest) -> anyhow::Result<()> {
    let by_name = request.users.iter().filter(|user| user.parse::<u32>().is_err()).cloned();
    let users: Vec<String> = by_name.filter(|user| !session.knows_user(user)).collect();
    for user in users {
        let of_user = ListAccountingRequest {
            users: vec![user.clone()],
            allocations_only: true,
            ..ListAccountingRequest::default()
        };
        if query::accounting(session.connection()?, of_user).await?.is_empty() {
            return Err(Failure::new(format!("Invalid user id: {user}")).into());
        }
    }
    if request.qos.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = qos::all(session).await?.into_iter().map(|qos| qos.name).collect();
    match request.qos.iter().find(|name| !known.contains(name)) {
        Some(name) => {
            let text = format!("You gave a bad qos '{name}'.  Valid QOS's are {}", known.join(","));
            Err(Failure::new(text).into())
        }
        None => Ok(()),
    }
}

/// Runs `sacct`.
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
    let named = &query.common.clusters;
    if named.is_empty() {
        return rows_of(session, &query).await;
    }
    let targets = clusters::targets(session, named).await?;
    let (count, mut first) = (targets.len(), true);
    let outcomes = clusters::at_each(session, targets, async |session: &mut Session, _: &str| {
        let code = rows_of(session, &query).await?;
        Ok((code, session.out.take_text()))
    });
    let mut codes = Vec::with_capacity(count);
    for clusters::Outcome { name, result } in outcomes.await {
        let (code, text) = result.unzip();
        codes.push(clusters::Outcome { name, result: code });
        // The rows of several clusters have one common header.
        let lines = text.iter().flat_map(|text| text.split_inclusive('\n'));
        let header = if first { 0 } else { query.header_lines() };
        lines.skip(header).try_for_each(|line| write!(session.out, "{line}"))?;
        first &= text.is_none();
    }
    Ok(clusters::exit_code(&codes, count))
}

/// Prints the rows of one cluster.
async fn rows_of(session: &mut Session, query: &Query) -> anyhow::Result<u8> {
    let mut show = query::show(&|name| session.env(name))?;
    if query.names_cluster() || !query.common.clusters.is_empty() {
        query::identify(session, &mut show).await?;
    }
    let user = whoami();
    let now = Timestamp::from_second(show.now)?;
    let request = query.request(&show.zone, now, (user.uid, &user.user))?;
    if query.common.verbose {
        session.inform(&window(&request, &show));
    }
    check_names(session, &request).await?;
    let (from, until) = (request.start, request.end);
    let query::Records { mut rows, complete_from } = query::records(session.connection()?, request).await?;
    if query.lacks_jobs(&rows) {
        query::warn_of_purge(session, complete_from, &show);
    }
    if query.truncate {
        for row in &mut rows {
            row.start_time = row.start_time.map(|start| start.max(from.unwrap_or(start)));
            row.end_time = row.end_time.map(|end| end.min(until.unwrap_or(end)));
        }
    }
    if query.texts.script || query.texts.environment {
        query.choose(&mut rows);
        return tell_texts(session, &query.texts, &rows).await;
    }
    let text = query.text(rows, &show)?;
    write!(session.out, "{text}")?;
    Ok(0)
}

/// Returns the line of `--verbose`: the states and the period of a request.
fn window(request: &ListAccountingRequest, show: &Show) -> String {
    let shown = |at: i64| match Timestamp::from_second(at) {
        Ok(at) => at.to_zoned(show.zone.clone()).strftime("%a %b %e %H:%M:%S %Y").to_string(),
        Err(_) => at.to_string(),
    };
    let from = request.start.map_or_else(|| "Epoch 0".to_owned(), shown);
    let states = if request.states.is_empty() { "Eligible".to_owned() } else { request.states.join(",") };
    format!("Jobs {states} in the time window from {from} to {}", shown(request.end.unwrap_or(show.now)))
}

/// Prints scripts and environments of jobs that the controller still has.
async fn tell_texts(session: &mut Session, texts: &Texts, rows: &[AccountingRow]) -> anyhow::Result<u8> {
    let line = "-".repeat(80);
    for row in rows.iter().filter(|row| row.step_id.is_empty()) {
        let request = GetScriptRequest { job_id: row.job_id.to_string() };
        let call = async |mut controller: Controller, request| controller.get_script(request).await;
        let found = match session.connection()?.read(request, call).await {
            Ok(found) => found,
            Err(CallError::Refused { .. }) => GetScriptResponse::default(),
            Err(error) => return Err(error.into()),
        };
        let id = row.array_job_id.zip(row.array_task_id);
        let id = id.map_or_else(|| row.job_id.to_string(), |(array, task)| format!("{array}_{task}"));
        if texts.script {
            writeln!(session.out, "Batch Script for {id}\n{line}")?;
            session.out.write_all(if found.script.is_empty() { b"NONE" } else { &found.script })?;
            writeln!(session.out)?;
        }
        if texts.environment {
            writeln!(session.out, "Environment used for {id} (must be batch to display)\n{line}")?;
            let variables = found.environment.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
            for variable in variables {
                session.out.write_all(variable)?;
                writeln!(session.out)?;
            }
            if found.environment.is_empty() {
                writeln!(session.out, "NONE")?;
            }
            writeln!(session.out)?;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T12:11:37 UTC.
    const NOW: i64 = 1_795_176_697;
    const MIDNIGHT: i64 = NOW - (12 * 3600 + 11 * 60 + 37);

    fn request(text: &str, uid: u32) -> Result<ListAccountingRequest, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let asked = Query::read(&words, &|_| None).map_err(|e| e.to_string())?;
        let Asked::Run(query) = asked else { panic!("{text} shows a text") };
        let now = Timestamp::from_second(NOW).unwrap();
        query.request(&TimeZone::UTC, now, (uid, "alice")).map_err(|e| e.to_string())
    }

    #[test]
    fn the_window_depends_on_what_is_asked_for() {
        for (text, start, end) in [
            ("", Some(MIDNIGHT), None),
            ("-j 12", None, None),
            ("-s R", Some(NOW), Some(NOW)),
            ("-s F -S now-1hour", Some(NOW - 3600), Some(NOW - 3600)),
            ("-s R -E now+1hour", Some(NOW), Some(NOW + 3600)),
            ("-s R -j 12", None, None),
            ("-S now-1hour -E now", Some(NOW - 3600), Some(NOW)),
            ("-S 2026-11-19 -j 12", Some(MIDNIGHT - 86400), None),
        ] {
            let request = request(text, 1000).unwrap();
            assert_eq!((request.start, request.end), (start, end), "{text}");
        }
        // As with Slurm, the time of states is that of the command, unless -S is given.
        for text in ["-S now -E now-1", "-S now+1", "-s R -E 10:00"] {
            assert!(request(text, 0).unwrap_err().contains("requested is after end time"), "{text}");
        }
        let show = Show::new(TimeZone::UTC, NOW);
        assert_eq!(
            window(&request("-s R,F -S 2026-11-19 -E 2026-11-20", 0).unwrap(), &show),
            "Jobs RUNNING,FAILED in the time window from Thu Nov 19 00:00:00 2026 to Fri Nov 20 00:00:00 2026"
        );
    }

    #[test]
    fn whose_jobs_depends_on_who_asks() {
        for (text, uid, users, all) in [
            ("", 1000, "alice", false),
            ("", 0, "", true),
            ("-a", 1000, "", true),
            ("-u bob,carol", 1000, "bob,carol", false),
            ("-u bob", 0, "bob", false),
            ("-j 12.batch,12.0,13", 1000, "", true),
            ("-N n1", 1000, "", true),
        ] {
            let request = request(text, uid).unwrap();
            assert_eq!((request.users.join(",").as_str(), request.all_users), (users, all), "{text}");
        }
        assert_eq!(request("-j 12.batch,12.0,13", 0).unwrap().job_ids, ["12", "13"]);
        let joined = request("-j 12 -u bob -j 13 -s F -u carol,dan -s CA", 0).unwrap();
        assert_eq!(
            (joined.job_ids, joined.states),
            (vec!["12".into(), "13".into()], vec!["FAILED".into(), "CANCELLED".into()])
        );
        assert_eq!(joined.users, ["bob", "carol", "dan"]);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (text, part) in [
            ("foo", "Unrecognized option: foo"),
            ("-j x", "x"),
            ("-s running,nope", "nope"),
            ("--delimiter=;", "needs -p or -P"),
            ("-S yesteryear", "yesteryear"),
        ] {
            let error = request(text, 0).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn only_the_last_attempt_of_a_requeued_job_is_kept() {
        let row = |job_id, restarts, step: &str| AccountingRow {
            job_id,
            restarts,
            step_id: step.to_owned(),
            ..AccountingRow::default()
        };
        let mut rows =
            vec![row(1, 0, ""), row(1, 0, "batch"), row(1, 1, ""), row(1, 1, "batch"), row(2, 0, "")];
        keep_last_attempts(&mut rows);
        let kept: Vec<(u32, u32, &str)> =
            rows.iter().map(|row| (row.job_id, row.restarts, row.step_id.as_str())).collect();
        assert_eq!(kept, [(1, 1, ""), (1, 1, "batch"), (2, 0, "")]);
    }
}
