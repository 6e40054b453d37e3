//! The command `sprio`: lists the factors of the priorities of pending jobs.

use std::io::Write;

use spur_proto::v1::{JobFilter, PriorityFactors};

use super::clusters;
use super::listing::{self, Common, Listing};
use super::query::{self, Asked};
use crate::error::Failure;
use crate::format::fields::priority::{Row, TABLE, Weights};
use crate::format::json::{self, Wish};
use crate::format::{Columns, Format, Show, Sort, table};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;

/// Values of the options.
#[derive(Default)]
pub struct Query {
    columns: Option<Columns>,
    sort: Option<String>,
    filter: JobFilter,
    /// True for `-j` without a value; the next word, if there is one, is then the list.
    open_jobs: bool,
    long: bool,
    norm: bool,
    no_header: bool,
    weights: bool,
    common: Common,
}

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// Command line of `sprio`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "sprio",
    synopsis: "[OPTIONS]",
    about: "Shows what makes up the priorities of jobs that wait for room.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SPRIO_", "SLURM_CLUSTERS"],
    permute: true,
};

type QueryOpt = Opt<Query>;

const OPTIONS: &[QueryOpt] = &[
    QueryOpt::value("format", Some('o'), "FORMAT", "columns as %[.][width]X", |q, text| {
        q.columns = Some(Columns::Letters(text.to_owned()));
        Ok(())
    })
    .env(&["SPRIO_FORMAT"]),
    QueryOpt::value("jobs", Some('j'), "IDS", "only these jobs", |q, text| {
        q.open_jobs = text.is_empty();
        q.filter.job_ids = query::job_ids(text)?;
        Ok(())
    })
    .optional(),
    listing::clusters(),
    listing::federation(&["SPRIO_FEDERATION"]),
    listing::local(&["SPRIO_LOCAL"]),
    listing::sibling(&["SPRIO_SIBLING"]),
    listing::verbose_in_vain(),
    listing::json(),
    listing::yaml(),
    QueryOpt::flag("long", Some('l'), "more columns", |q, _| {
        q.long = true;
        Ok(())
    }),
    QueryOpt::flag("noheader", Some('h'), "no header", |q, _| {
        q.no_header = true;
        Ok(())
    }),
    QueryOpt::flag("norm", Some('n'), "factors from 0 to 1, before they are weighed", |q, _| {
        q.norm = true;
        Ok(())
    }),
    QueryOpt::value("partition", Some('p'), "NAMES", "only jobs of these partitions", |q, text| {
        q.filter.partitions = query::list(text);
        Ok(())
    }),
    QueryOpt::value("sort", Some('S'), "LETTERS", "the order, e.g. r,-y", |q, text| {
        q.sort = Some(text.to_owned());
        Ok(())
    }),
    QueryOpt::value("user", Some('u'), "USERS", "only jobs of these users", |q, text| {
        q.filter.users = query::list(text);
        Ok(())
    })
    .or(&["users"]),
    QueryOpt::flag("weights", Some('w'), "what the factors are multiplied by", |q, _| {
        q.weights = true;
        Ok(())
    }),
];

impl Query {
    /// Parses the words after `sprio` and the environment.
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
        query::no_operands(operands)?;
        if query.common.wish.is_some_and(|wish| wish.list) {
            return Ok(Asked::Show(Wish::list()));
        }
        Ok(Asked::Run(query))
    }

    /// True if the options select this job, by user and by job id.
    pub(crate) fn admits(&self, job: &PriorityFactors) -> bool {
        let JobFilter { users, job_ids, .. } = &self.filter;
        let any = |names: &[String], own: [String; 2]| {
            names.is_empty() || names.iter().any(|name| own.contains(name))
        };
        any(users, [job.user.clone(), job.uid.to_string()])
            && any(job_ids, [job.job_id.to_string(), String::new()])
    }

    /// Returns the filter that is sent to the controller: that of the options, for pending jobs. With
    /// `CALCULATE_RUNNING` among the flags of priority it is also for running and suspended jobs.
    fn request(&self, flags: &str) -> JobFilter {
        let started = flags.split(',').any(|flag| flag == "CALCULATE_RUNNING");
        let states: &[&str] = if started { &["PENDING", "RUNNING", "SUSPENDED"] } else { &["PENDING"] };
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        JobFilter { states, ..self.filter.clone() }
    }

    /// Returns the columns, by default those of factors that have a weight.
    fn format(&self, weights: &Weights) -> Format<Row> {
        if let Some(columns) = &self.columns {
            return columns.read(&TABLE);
        }
        let weighed = [
            (weights.age, 'A'),
            (weights.assoc, 'B'),
            (weights.fairshare, 'F'),
            (weights.job_size, 'J'),
            (weights.partition, 'P'),
            (weights.qos, 'Q'),
        ];
        let shown = |start: &str, width: &str, letter: fn(char) -> char| {
            let letters = weighed.iter().filter(|(weight, _)| *weight > 0).map(|(_, own)| letter(*own));
            letters.fold(start.to_owned(), |text, letter| format!("{text} {width}{letter}"))
        };
        let weighs_tres = !weights.tres.is_empty();
        let text = match (self.norm, self.long) {
            (false, true) => {
                "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T".to_owned()
            }
            (true, true) => "%.15i %9r %.8u %10y %10a %10b %10f %10j %10p %10q %20t".to_owned(),
            // Columns of normalized factors are left-aligned.
            (true, false) => {
                let text = shown("%.15i %9r %10y", "%10", |letter| letter.to_ascii_lowercase());
                if weighs_tres { text + " %20t" } else { text }
            }
            (false, false) => {
                let text = shown("%.15i %9r %.10Y %.10S", "%.10", |letter| letter);
                if weighs_tres { text + " %.20T" } else { text }
            }
        };
        Format::letters(&text, &TABLE)
    }

    /// Returns the text for these jobs.
    ///
    /// # Errors
    /// A format or an order with an unknown field.
    pub fn text(&self, jobs: Vec<PriorityFactors>, weights: Weights, show: &Show) -> anyhow::Result<String> {
        let named = &self.filter.partitions;
        let meant = |job: &PriorityFactors| named.is_empty() || named.contains(&job.partition);
        let jobs = jobs.into_iter().filter(meant);
        let mut rows: Vec<Row> = match self.weights {
            true => vec![Row { job: None, weights: weights.clone() }],
            false => jobs.map(|job| Row { job: Some(job), weights: weights.clone() }).collect(),
        };
        let sort = self.sort.as_deref().unwrap_or("i");
        Sort::parse(sort, &TABLE, None).map_err(Failure::new)?.apply(&mut rows, show);
        if let Some(wish) = self.common.wish {
            // Slurm has no JSON shape for priorities.
            let jobs: Vec<PriorityFactors> = rows.into_iter().filter_map(|row| row.job).collect();
            return Ok(match self.weights {
                true => wish.own([("weights", json::to_value([weights]))]),
                false => wish.own([("priorities", json::to_value(&jobs))]),
            });
        }
        if rows.is_empty() && !(self.filter.job_ids.is_empty() && self.filter.users.is_empty()) {
            return Ok("Unable to find jobs matching user/id(s) specified\n".to_owned());
        }
        Ok(table::render(&self.format(&weights), &rows, !self.no_header, show))
    }
}

/// Runs `sprio`.
///
/// # Errors
/// An invalid option, an order of priority without factors, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    session.asks("Couldn't get priority factors from controller");
    let query = match Query::read(&words, &|name| session.env(name))? {
        Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Asked::Run(query) => query,
    };
    let complaints = query.columns.as_ref().map(|columns| columns.read(&TABLE).complaints);
    for complaint in complaints.unwrap_or_default() {
        session.error(&complaint);
    }
    let named = &query.common.clusters;
    let text = if named.is_empty() {
        page(session, &query).await?
    } else {
        let page = async |session: &mut Session, _: &str| page(session, &query).await;
        clusters::pages(session, named, !query.no_header, page).await?
    };
    write!(session.out, "{text}")?;
    Ok(0)
}

/// Returns the output for one cluster.
async fn page(session: &mut Session, query: &Query) -> anyhow::Result<String> {
    for user in query::unknown_users(session, &query.filter.users).await? {
        session.error(&format!("Invalid user: {user}\n"));
    }
    let mut show = query::show(&|name| session.env(name))?;
    if query.columns.is_some() {
        show.cluster = query::cluster_name(session).await?;
    }
    let connection = session.connection()?;
    let settings = query::settings(connection).await?;
    let order = settings.iter().find(|setting| setting.key == "scheduler.order");
    if let Some(order) = order.filter(|order| order.value != "multifactor") {
        let text = format!(
            "You are not running a supported priority plugin\n(order = \"{}\").\nOnly \"multifactor\" has factors; \
             spur why JOBID says why a job waits.",
            order.value
        );
        return Err(Failure::new(text).into());
    }
    let jobs = match query.weights {
        true => Vec::new(),
        false => {
            let flags = settings.iter().find(|setting| setting.key == "scheduler.priority_flags");
            let flags = flags.map_or("", |setting| &setting.value);
            query::priorities(connection, query.request(flags)).await?
        }
    };
    query.text(jobs, Weights::of(&settings), &show)
}
