//! Options of `spur sim`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use spur_core::model::accounts::ask::Ask;
use spur_core::model::config::{AccountingEnforce, Backfill, Correct, Order, Policy, Predict};
use spur_core::sim::PassMode;
use spur_core::text::ParseError;
use spur_core::text::time::Seconds;

use crate::commands::sacctmgr::dump;
use crate::options::{CommandLine, Opt, sets};

/// Values of the options.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Args {
    pub(super) config: Option<PathBuf>,
    pub(super) workload: Option<PathBuf>,
    pub(super) swf: Option<PathBuf>,
    pub(super) generate: bool,
    /// `--procs`: number of processors of a flat machine.
    pub(super) procs: Option<u32>,
    pub(super) exclusive: bool,
    /// `--nodes`, `--jobs`, `--load`, `--seed`: parameters of a synthetic workload.
    pub(super) nodes: Option<u32>,
    pub(super) jobs: Option<u32>,
    pub(super) load: Option<f64>,
    pub(super) seed: Option<u64>,
    pub(super) scheduler: Overrides,
    /// `--policy`: the requests that create the policy tree.
    pub(super) accounts: Option<Vec<Ask>>,
    pub(super) pass: PassMode,
    pub(super) scale_arrivals: Option<f64>,
    pub(super) json: bool,
    pub(super) events: Option<PathBuf>,
    pub(super) no_pending: bool,
    pub(super) plot: Option<PathBuf>,
    pub(super) progress: bool,
}

/// Settings that override `[scheduler]`, in the first configuration and in those that a workload puts in
/// force later.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    backfill: Option<Backfill>,
    order: Option<Order>,
    predict: Option<Predict>,
    correct: Option<Correct>,
    depth: Option<u32>,
    max_wait: Option<Seconds>,
    /// `--policy`: limits are enforced, and QOS are those of the policy tree, whatever a configuration says.
    has_accounts: bool,
}

impl Overrides {
    pub(super) fn apply(&self, policy: &mut Policy) {
        if self.has_accounts {
            policy.qos.clear();
            let enforced = &mut policy.jobs.accounting_enforce;
            enforced.extend([AccountingEnforce::Associations, AccountingEnforce::Limits]);
            enforced.sort_unstable();
            enforced.dedup();
        }
        let scheduler = &mut policy.scheduler;
        scheduler.backfill = self.backfill.unwrap_or(scheduler.backfill);
        scheduler.order = self.order.unwrap_or(scheduler.order);
        scheduler.predict = self.predict.unwrap_or(scheduler.predict);
        scheduler.correct = self.correct.unwrap_or(scheduler.correct);
        scheduler.depth = self.depth.unwrap_or(scheduler.depth);
        scheduler.max_wait = self.max_wait.unwrap_or(scheduler.max_wait);
    }
}

type SimOpt = Opt<Args>;

const OPTIONS: &[SimOpt] = &[
    SimOpt::value("config", Some('c'), "FILE", "the cluster, as in spur.toml", |args, value| {
        args.config = Some(path(value)?);
        Ok(())
    }),
    SimOpt::value(
        "workload",
        Some('w'),
        "FILE",
        "what happens, one JSON object a line; - is standard input",
        |args, value| {
            args.workload = Some(path(value)?);
            Ok(())
        },
    ),
    SimOpt::value(
        "swf",
        None,
        "FILE",
        "jobs in the Standard Workload Format; - is standard input",
        |args, value| {
            args.swf = Some(path(value)?);
            Ok(())
        },
    ),
    SimOpt::value("generate", None, "MODEL", "jobs made up by a model: lublin", |args, value| {
        if value != "lublin" {
            return Err(format!("`{value}` is no model known here; say lublin"));
        }
        args.generate = true;
        Ok(())
    }),
    SimOpt::value(
        "procs",
        None,
        "N",
        "a machine of N identical processors instead of a cluster",
        |args, value| {
            args.procs = Some(positive(value)?);
            Ok(())
        },
    ),
    SimOpt::flag("exclusive", None, "jobs of a trace get whole nodes", sets!(Args.exclusive)),
    SimOpt::value(
        "nodes",
        None,
        "N",
        "largest size the model makes up, in nodes; the cluster's without",
        |args, value| {
            args.nodes = Some(positive(value)?);
            Ok(())
        },
    ),
    SimOpt::value("jobs", None, "N", "how many jobs the model makes up; 10000 without", |args, value| {
        args.jobs = Some(positive(value)?);
        Ok(())
    }),
    SimOpt::value(
        "load",
        None,
        "F",
        "scale made-up arrivals to this offered load, 1 being all the machine can do",
        |args, value| {
            args.load = Some(factor(value)?);
            Ok(())
        },
    ),
    SimOpt::value("seed", None, "N", "what the model draws from; 1 without", |args, value| {
        args.seed = Some(parsed(value)?);
        Ok(())
    }),
    SimOpt::value(
        "policy",
        None,
        "FILE",
        "accounts, users and QOS, from a file of sacctmgr dump withqos; limits are enforced",
        |args, value| {
            let text = std::fs::read_to_string(value);
            let text = text.map_err(|error| format!("cannot read {value}: {error}"))?;
            args.accounts = Some(dump::asks(&text).map_err(|problem| format!("{value}:{problem}"))?);
            args.scheduler.has_accounts = true;
            Ok(())
        },
    ),
    SimOpt::value("backfill", None, "MODE", "easy, conservative or none", |args, value| {
        args.scheduler.backfill = Some(word(value, "easy, conservative, none")?);
        Ok(())
    }),
    SimOpt::value(
        "order",
        None,
        "ORDER",
        "fcfs, sjf, saf, wfp3, unicep, f1, f4 or multifactor",
        |args, value| {
            args.scheduler.order = Some(word(value, "fcfs, sjf, saf, wfp3, unicep, f1, f4, multifactor")?);
            Ok(())
        },
    ),
    SimOpt::value(
        "predict",
        None,
        "HOW",
        "planned run time: requested, actual, recent2 or similar",
        |args, value| {
            args.scheduler.predict = Some(word(value, "requested, actual, recent2, similar")?);
            Ok(())
        },
    ),
    SimOpt::value(
        "correct",
        None,
        "HOW",
        "when a prediction is exceeded: request or incremental",
        |args, value| {
            args.scheduler.correct = Some(word(value, "request, incremental")?);
            Ok(())
        },
    ),
    SimOpt::value("depth", None, "N", "pending jobs considered in one pass; 0 for all", |args, value| {
        args.scheduler.depth = Some(parsed(value)?);
        Ok(())
    }),
    SimOpt::value(
        "max-wait",
        None,
        "TIME",
        "who has waited so long goes first, by arrival; 0 for never",
        |args, value| {
            args.scheduler.max_wait = Some(value.parse().map_err(said)?);
            Ok(())
        },
    ),
    SimOpt::value("pass", None, "WHEN", "a pass after every event, or once a timestamp", |args, value| {
        args.pass = match value {
            "event" => PassMode::Event,
            "timestamp" => PassMode::Timestamp,
            _ => return Err(format!("`{value}` is not known; say event or timestamp")),
        };
        Ok(())
    }),
    SimOpt::value("scale-arrivals", None, "F", "multiply submit times by F", |args, value| {
        args.scale_arrivals = Some(factor(value)?);
        Ok(())
    }),
    SimOpt::flag("json", None, "print the summary as one JSON object", sets!(Args.json)),
    SimOpt::value(
        "events",
        None,
        "FILE",
        "write every event as a JSON line; - is standard output, and the summary goes to standard error",
        |args, value| {
            args.events = Some(path(value)?);
            Ok(())
        },
    ),
    SimOpt::flag(
        "no-pending",
        None,
        "leave out of the events why jobs wait, which takes long",
        sets!(Args.no_pending),
    ),
    SimOpt::value("plot", None, "DIR", "draw pictures, as SVG", |args, value| {
        args.plot = Some(path(value)?);
        Ok(())
    }),
    SimOpt::flag(
        "progress",
        None,
        "show how far it is, where standard error is a terminal",
        sets!(Args.progress),
    ),
];

/// Command line of `spur sim`.
pub(in crate::commands) const LINE: CommandLine<Args> = CommandLine {
    name: "spur sim",
    synopsis: "(--config FILE | --procs N) (--workload FILE | --swf FILE | --generate lublin) [OPTIONS]",
    about: "Simulates a workload on a cluster, with the controller and the scheduler of spurctld, and prints the results. \
            The simulation does not wait for a clock: months take seconds.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

impl Args {
    /// True if events are written to the standard output.
    pub(super) fn streams_events(&self) -> bool {
        self.events.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Returns the contradiction between options, if any.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let sources = [self.workload.is_some(), self.swf.is_some(), self.generate];
        let made_up =
            self.nodes.is_some() || self.jobs.is_some() || self.load.is_some() || self.seed.is_some();
        match sources.iter().filter(|given| **given).count() {
            0 => return Some("nothing to run: give --workload, --swf or --generate"),
            1 => {}
            _ => return Some("give one of --workload, --swf and --generate"),
        }
        if self.config.is_some() && self.procs.is_some() {
            return Some("give one of --config and --procs");
        }
        if self.config.is_none() && self.procs.is_none() && self.swf.is_none() {
            return Some("no machine to run on: give --config or --procs");
        }
        if made_up && !self.generate {
            return Some("--nodes, --jobs, --load and --seed are for --generate");
        }
        if self.no_pending && self.events.is_none() {
            return Some("--no-pending is for --events");
        }
        if self.exclusive && (self.config.is_none() || self.workload.is_some()) {
            return Some("--exclusive is for --swf or --generate on a cluster from --config");
        }
        None
    }
}

fn path(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err("the value is empty".to_owned()) } else { Ok(value.into()) }
}

fn said(error: ParseError) -> String {
    error.to_string()
}

fn parsed<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is no whole number that fits here"))
}

fn positive(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(0) | Err(_) => Err(format!("`{value}` is no whole number from 1 to {}", u32::MAX)),
        Ok(number) => Ok(number),
    }
}

fn factor(value: &str) -> Result<f64, String> {
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{value}` is no number above 0"))
}

/// Parses one of the words that the configuration file has for a setting.
fn word<T: DeserializeOwned>(value: &str, known: &str) -> Result<T, String> {
    let read = serde_json::from_value(serde_json::Value::String(value.to_owned()));
    read.map_err(|_| format!("`{value}` is not known; say one of {known}"))
}
