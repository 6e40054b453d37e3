//! The command `spur sim`: simulates the effect of a workload on a cluster.
//!
//! All decisions are made in [`spur_core::sim`] and the modules below it; this module has files, options,
//! plots and clocks. The exit code is 0 if the workload was read to its end, 1 for an invalid configuration
//! or workload, and 2 for invalid options.

pub(super) mod args;
mod command;
mod deed;
mod defrag;
mod follow;
mod input;
mod lublin;
pub mod plan;
mod plot;
mod policy;
pub(super) mod request;
mod scontrol;
mod shown;
mod summary;
mod swf;
mod workload;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use spur_core::model::config::Policy;
use spur_core::sim::{Watch, World};
use spur_core::text::time::Time;

use crate::error::Failure;
use crate::options::{OptionError, Origin, Settled};
use crate::out::Out;
use crate::session::Session;
use crate::terminal;
use args::Args;
use deed::{Ask, Deed, Machine, What, Workload};
use follow::Follower;

/// Exit code for invalid options.
const USAGE: u8 = 2;
/// Default number of generated jobs.
const JOBS: u32 = 10_000;

/// Runs `spur sim`.
///
/// # Errors
/// Invalid options, a configuration or workload that cannot be read, or results that cannot be written.
pub fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let begun = Instant::now();
    let mut args = Args::default();
    let coded = |error: OptionError| anyhow::Error::from(error).context(Failure::coded(USAGE));
    let usage = |problem: &str| coded(OptionError::usage(Origin::Together, problem));
    let settled = args::LINE.settle(words, &|_| None, &mut args).map_err(coded)?;
    match settled {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Settled::Run(operands) => {
            if let Some(word) = operands.first() {
                return Err(usage(&format!("`{word}` is no option")));
            }
        }
    }
    if let Some(problem) = args.contradiction() {
        return Err(usage(problem));
    }
    let (policy, workload) = prepare(&args)?;
    let (out, mut said) = session.streams();
    // Events on the standard output are not mixed with other output.
    let streams = args.streams_events();
    let events = events(&args, &mut *out)?;
    let mut world = simulate(&args, policy, &workload, events)?;
    let (passes, pass_us) = world.watch().passes();
    let numbers = world.summary();
    if let (Some(directory), Some(trail)) = (&args.plot, world.watch().trail.take()) {
        plot::draw(&trail, directory)?;
    }
    let (wall, peak_rss_bytes) = (begun.elapsed(), summary::peak_rss_bytes());
    let cost = summary::Cost { passes, pass_us, wall, peak_rss_bytes };
    let skipped = workload.skipped;
    drop(world);
    let text = match args.json {
        true => format!("{}\n", summary::json(&numbers, skipped, &cost)),
        false => summary::text(&numbers, skipped, &cost),
    };
    match streams {
        true => write!(said, "{text}")?,
        false => write!(out, "{text}")?,
    }
    Ok(0)
}

/// Opens the destination of events, if they are requested.
fn events<'a>(args: &Args, out: &'a mut Out) -> Result<Option<Box<dyn Write + 'a>>, Failure> {
    match &args.events {
        None => Ok(None),
        Some(_) if args.streams_events() => Ok(Some(Box::new(out))),
        Some(path) => match File::create(path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) => Err(Failure::new(format!("cannot write {}: {error}", path.display()))),
        },
    }
}

/// Reads the cluster and the workload.
fn prepare(args: &Args) -> Result<(Policy, Workload), Failure> {
    let configured = args.config.as_ref().map(|path| input::policy(path, &args.scheduler)).transpose()?;
    let flat = |procs| (input::flat(procs, &args.scheduler), Machine::Flat);
    let on = |policy: Policy| {
        let machine = Machine::of(&policy, args.exclusive);
        (policy, machine)
    };
    let (policy, mut workload) = if let Some(path) = &args.swf {
        let text = input::read(path)?;
        let source = path.display().to_string();
        let unsized_machine = || {
            Failure::new(format!("{source} does not say how large its machine was; give --procs or --config"))
        };
        let (policy, machine) = match (configured, args.procs) {
            (Some(policy), _) => on(policy),
            (None, Some(procs)) => flat(procs),
            (None, None) => flat(swf::machine_size(&text).ok_or_else(unsized_machine)?),
        };
        let workload = swf::read(&text, &source, machine)?;
        (policy, workload)
    } else {
        let policy = configured.unwrap_or_else(|| input::flat(args.procs.unwrap_or(1), &args.scheduler));
        let workload = match &args.workload {
            Some(path) => {
                let directory = path.parent().unwrap_or(Path::new("."));
                let text = input::read(path)?;
                workload::read(&text, &path.display().to_string(), directory, &args.scheduler)?
            }
            None => made_up(args, &policy),
        };
        (policy, workload)
    };
    workload.sort(args.scale_arrivals);
    Ok((policy, workload))
}

/// Generates a workload, in whole nodes for a cluster or in processors for a flat machine.
fn made_up(args: &Args, policy: &Policy) -> Workload {
    let machine = args.procs.unwrap_or_else(|| u32::try_from(policy.nodes.len()).unwrap_or(u32::MAX));
    lublin::workload(&lublin::Wish {
        jobs: args.jobs.unwrap_or(JOBS),
        largest: args.nodes.unwrap_or(machine).max(1),
        seed: args.seed.unwrap_or(1),
        load: args.load,
        machine,
        whole_nodes: args.procs.is_none(),
    })
}

/// Runs a workload until no event is left.
fn simulate<'a>(
    args: &Args,
    policy: Policy,
    workload: &Workload,
    events: Option<Box<dyn Write + 'a>>,
) -> anyhow::Result<World<Follower<'a>>> {
    let submits = workload.deeds.iter().filter(|deed| matches!(deed.what, What::Submit(_)));
    let progress = (args.progress && terminal::shows_progress()).then(|| submits.count());
    let trail = args.plot.as_ref().map(|_| plot::Trail::default());
    let reasons = workload.deeds.iter().any(|deed| matches!(deed.what, What::Command(_)));
    let follower = Follower::new(events, !args.no_pending, progress, trail, reasons);
    let world = World::new(Arc::new(policy), args.pass, follower);
    let mut world = world.map_err(|reject| Failure::new(reject.to_string()))?;
    if let Some(asks) = &args.accounts {
        let begun = world.begin_accounts(asks.clone());
        begun.map_err(|reject| Failure::new(format!("--policy:{reject}")))?;
    }
    if workload.names_no_jobs() {
        world.forget_finished();
    }
    play(&mut world, workload, None)?;
    world.watch().finish().context("cannot write events")?;
    Ok(world)
}

/// Runs a workload up to a time, or until no event is left.
fn play<W: Watch>(world: &mut World<W>, workload: &Workload, until: Option<Time>) -> Result<(), Failure> {
    let mut deeds = workload.deeds.iter().peekable();
    loop {
        let told = deeds.peek().map(|deed| time(deed.at));
        let next = [told, world.next()].into_iter().flatten().min();
        let Some(now) = next.filter(|next| until.is_none_or(|until| *next <= until)) else { return Ok(()) };
        world.advance(now);
        while let Some(deed) = deeds.next_if(|deed| time(deed.at) == now) {
            apply(world, deed).map_err(|problem| {
                let (source, line) = (&workload.source, deed.line);
                Failure::new(format!("{source}:{line}: {problem}"))
            })?;
        }
        world.settle();
    }
}

fn time(at: u64) -> Time {
    Time(i64::try_from(at).unwrap_or(i64::MAX))
}

/// Performs one action of a workload.
fn apply<W: Watch>(world: &mut World<W>, deed: &Deed) -> Result<(), String> {
    match &deed.what {
        What::Submit(arrival) => {
            let (name, owner) = (Arc::clone(&arrival.name), Arc::clone(&arrival.owner));
            match &arrival.ask {
                Ask::Shape(shape, limit) => {
                    let submission = deed::plain(arrival, shape.clone(), *limit);
                    world.submit(name, owner, submission, arrival.run_time);
                }
                Ask::Options(options) => match request::submission(world, options) {
                    Ok((submission, true)) => world.test(name, owner, submission),
                    Ok((submission, false)) => world.submit(name, owner, submission, arrival.run_time),
                    Err(error) => world.refuse(name, error),
                },
            }
            Ok(())
        }
        What::Cancel(job) => {
            let cancelled = match scontrol::reference(world, job) {
                Ok(named) => world.cancel(named).map_err(|reject| reject.to_string()),
                Err(_) => Err("Invalid job id specified: it was not submitted".to_owned()),
            };
            if let Err(problem) = cancelled {
                let argv = vec!["scancel".to_owned(), job.to_string()];
                let stderr = format!("scancel: error: Kill job error on job id {job}: {problem}\n");
                world.commanded(argv, 1, String::new(), stderr);
            }
            Ok(())
        }
        What::Nodes { names, state } => {
            world.set_nodes(names, *state).map_err(|reject| format!("node: {reject}"))
        }
        What::Reconfigure(policy) => {
            world.reconfigure(Arc::clone(policy)).map_err(|reject| format!("reconfigure: {reject}"))
        }
        What::Command(argv) => {
            let ran = command::run(world, argv);
            world.commanded(argv.clone(), ran.status, ran.stdout, ran.stderr);
            Ok(())
        }
    }
}
