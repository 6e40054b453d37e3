//! The command `sstat`: prints the usage of running steps.

use std::fmt::Write as _;
use std::io::Write;

use spur_core::text::jobid::JobRef;
use spur_proto::client::Controller;
use spur_proto::v1::{AccountingRow, ListUsageRequest, LiveStep};

use super::listing::{self, Common, Listing};
use super::query::{self, Asked};
use crate::error::Failure;
use crate::format::Show;
use crate::format::report::{self, Layout, Report};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;

const DEFAULT: &str = "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,\
                       maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,\
                       avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,\
                       maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,\
                       maxdiskwritetask,avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,\
                       tresusageinmaxtask,tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,\
                       tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageouttot";
/// Columns of `--pidformat` with their widths.
const PIDS: [(&str, usize); 3] = [("JobID", 12), ("Nodelist", 20), ("Pids", 20)];

/// Values of the options.
#[derive(Default)]
pub struct Query {
    jobs: Vec<JobRef>,
    all_steps: bool,
    pids: bool,
    format: Option<String>,
    help_format: bool,
    no_header: bool,
    raw_units: bool,
    /// Delimiter at the end of each line: true with `-p`, false with `-P`.
    parsable: Option<bool>,
    common: Common,
}

type QueryOpt = Opt<Query>;

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// Command line of `sstat`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "sstat",
    synopsis: "[<OPTION>] -j <job(.stepid)>",
    about: "Shows what running steps use at this moment: of a job the first step, with -a all, of those that are named \
            (12.0, 12.batch) these.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

const OPTIONS: &[QueryOpt] = &[
    QueryOpt::flag("allsteps", Some('a'), "all running steps of the jobs", |q, _| {
        q.all_steps = true;
        Ok(())
    }),
    QueryOpt::flag("helpformat", Some('e'), "list the fields there are", |q, _| {
        q.help_format = true;
        Ok(())
    }),
    QueryOpt::flag("pidformat", Some('i'), "the processes of each step", |q, _| {
        q.pids = true;
        Ok(())
    }),
    QueryOpt::value("jobs", Some('j'), "IDS", "these jobs or steps: 12, 12.0, 12.batch", |q, text| {
        q.jobs.extend(JobRef::parse_list(text).map_err(|e| e.to_string())?);
        Ok(())
    }),
    QueryOpt::flag("noheader", Some('n'), "no header", |q, _| {
        q.no_header = true;
        Ok(())
    }),
    QueryOpt::flag("noconvert", None, "amounts in bytes", |q, _| {
        q.raw_units = true;
        Ok(())
    }),
    QueryOpt::value("format", Some('o'), "FIELDS", "columns as name[%[-]width],…", |q, text| {
        q.format = Some(text.to_owned());
        Ok(())
    })
    .or(&["fields"]),
    QueryOpt::flag("parsable", Some('p'), "values with | between and at the end", |q, _| {
        q.parsable = Some(true);
        Ok(())
    }),
    QueryOpt::flag("parsable2", Some('P'), "values with | between", |q, _| {
        q.parsable = Some(false);
        Ok(())
    }),
    listing::verbose_in_vain(),
];

impl Query {
    /// Parses the words after `sstat`.
    ///
    /// # Errors
    /// An invalid option.
    pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Asked<Query>> {
        let mut query = Query::default();
        let operands = match LINE.settle(words, env, &mut query)? {
            Settled::Show(text) => return Ok(Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        for operand in operands {
            query.jobs.extend(JobRef::parse_list(&operand).map_err(|e| Failure::new(e.to_string()))?);
        }
        if query.help_format {
            return Ok(Asked::Show(report::help()));
        }
        if query.jobs.is_empty() {
            return Err(Failure::new("No job ids were given: sstat -j JOBS").into());
        }
        Ok(Asked::Run(query))
    }

    fn layout(&self) -> Layout {
        let delimited = |closed| Layout::Delimited { delimiter: "|".to_owned(), closed };
        self.parsable.map_or(Layout::Columns, delimited)
    }

    /// Returns the text for these steps.
    ///
    /// # Errors
    /// A format with an unknown field.
    pub fn text(&self, steps: &[LiveStep], show: &Show) -> anyhow::Result<String> {
        if self.pids {
            return Ok(self.pid_lines(steps));
        }
        let report = Report::parse(self.format.as_deref().unwrap_or(DEFAULT))?;
        let rows: Vec<AccountingRow> = steps.iter().filter_map(|step| step.row.clone()).collect();
        let show = Show { convert: !self.raw_units, disks_in_bytes: true, ..show.clone() };
        Ok(report.render(&rows, &self.layout(), !self.no_header, &show))
    }

    fn pid_lines(&self, steps: &[LiveStep]) -> String {
        let mut text = String::new();
        let mut line = |cells: [String; 3]| {
            let cells = cells.into_iter().zip(PIDS);
            let written = match self.parsable {
                None => cells.map(|(cell, (_, width))| format!("{cell:>width$} ")).collect::<String>(),
                Some(closed) => {
                    let joined = cells.map(|(cell, _)| cell).collect::<Vec<_>>().join("|");
                    if closed { joined + "|" } else { joined }
                }
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{written}");
        };
        if !self.no_header {
            line(PIDS.map(|(name, _)| name.to_owned()));
            if self.parsable.is_none() {
                line(PIDS.map(|(_, width)| "-".repeat(width)));
            }
        }
        for step in steps {
            let Some(row) = &step.row else { continue };
            for on in &step.processes {
                let pids: Vec<String> = on.pids.iter().map(u32::to_string).collect();
                line([format!("{}.{}", row.job_id, row.step_id), on.node.clone(), pids.join(",")]);
            }
        }
        text
    }
}

/// Returns running steps of a job as its nodes report them: the named one, all, or the first. They are in
/// ascending order, with the batch step last.
///
/// # Errors
/// An unknown job, a job of another user, or no answer.
pub async fn live_steps(session: &mut Session, asked: &JobRef, all: bool) -> anyhow::Result<Vec<LiveStep>> {
    let job_ids = vec![JobRef { step: None, ..asked.clone() }.to_string()];
    let call = async |mut controller: Controller, request| controller.list_usage(request).await;
    let answer = session.connection()?.read(ListUsageRequest { job_ids }, call).await?;
    for node in &answer.silent {
        session.warn(&format!("node {node} has not answered: what its tasks use is not counted"));
    }
    let label = |step: &LiveStep| step.row.as_ref().map(|row| row.step_id.clone()).unwrap_or_default();
    let mut steps = answer.steps;
    steps.sort_by_key(|step| label(step).parse::<u32>().unwrap_or(u32::MAX));
    match &asked.step {
        Some(named) => steps.retain(|step| label(step) == named.to_string()),
        None if all => {}
        None => steps.truncate(1),
    }
    Ok(steps)
}

/// Runs `sstat`.
///
/// # Errors
/// An invalid option, an unknown job, a job of another user, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let query = match Query::read(&words, &|name| session.env(name))? {
        Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Asked::Run(query) => query,
    };
    let show = query::show(&|name| session.env(name))?;
    let (mut steps, mut failed) = (Vec::new(), false);
    for job in &query.jobs {
        let chosen = live_steps(session, job, query.all_steps).await?;
        if chosen.is_empty() {
            session.error(&format!("no steps running for job {job}"));
            failed = true;
        }
        steps.extend(chosen);
    }
    let text = query.text(&steps, &show)?;
    write!(session.out, "{text}")?;
    Ok(u8::from(failed))
}
