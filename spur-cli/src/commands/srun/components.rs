//! Command lines `srun a : b`: different programs for the first tasks, the next ones, and so on.
//!
//! In a het job each component runs its program in a separate step. In any other job they form a single step
//! with consecutive ranks, so that MPI programs can communicate.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use spur_core::text::nodes::NodeCount;

use super::group;
use crate::error::Bare;
use crate::options::defs::SRUN_LINE;
use crate::options::submission::Submission;
use crate::options::{Reading, Settled, het};
use crate::session::Session;

/// Separator of components.
const COLON: &str = ":";

/// A component: its words with the inherited options before them, the options parsed from them, and its
/// program.
struct Component {
    words: Vec<String>,
    wishes: Submission,
    argv: Vec<String>,
}

/// Jobs to run a step in, each with its options, and the program of those without their own.
pub(super) type Parts = (Vec<(u32, Submission)>, Vec<String>);

/// True if the command line has several components.
pub(super) fn are_in(argv: &[String]) -> bool {
    argv.iter().any(|word| word == COLON)
}

/// Combines several components into one step: the total number of tasks, and the program of each.
///
/// # Errors
/// Components that differ in options that a step has only once.
pub(super) fn merged(
    session: &Session,
    first: Submission,
    words: &[String],
    argv: &[String],
) -> anyhow::Result<(Submission, Vec<String>)> {
    let mut all = taken_apart(session, first, words, argv)?;
    let plain = |wishes: &Submission| {
        let mut spec = wishes.spec.clone();
        (spec.tasks, spec.nodes) = (None, String::new());
        spec
    };
    let mut layout = Vec::new();
    for (number, component) in all.iter().enumerate() {
        if plain(&component.wishes) != plain(&all[0].wishes) {
            bail!(
                "component {number}: the components of one step may differ in --ntasks, --nodes and program; others are \
                 those of a het job (sbatch a : b)"
            );
        }
        layout.push(tasks_and_nodes(&component.wishes)?);
    }
    let (tasks, nodes) = layout.iter().fold((0_u32, 0_u32), |(tasks, nodes), (own, on)| {
        (tasks.saturating_add(*own), nodes.saturating_add(on.unwrap_or(0)))
    });
    let each = tasks.checked_div(nodes);
    let even =
        |(own, on): &(u32, Option<u32>)| each.is_none_or(|each| *own == each.saturating_mul(on.unwrap_or(0)));
    if !layout.iter().all(even) {
        bail!(
            "--nodes: the components of one step have as many tasks on each of their nodes, all of them or none"
        );
    }
    let programs =
        all.iter().zip(&layout).map(|(component, (tasks, _))| (*tasks, component.argv.clone())).collect();
    let Component { mut wishes, argv, .. } = all.swap_remove(0);
    wishes.spec.tasks = Some(tasks);
    wishes.spec.tasks_per_node = each.or(wishes.spec.tasks_per_node);
    wishes.spec.nodes = if nodes > 0 { nodes.to_string() } else { String::new() };
    wishes.step.components = programs;
    Ok((wishes, argv))
}

/// Assigns each component of the command line to components of the het job: those that it names, or the one
/// at its position.
///
/// # Errors
/// A component that the job does not have, or that the command line names twice.
pub(super) fn of_het_job(
    session: &Session,
    first: Submission,
    words: &[String],
    argv: &[String],
) -> anyhow::Result<Parts> {
    let (mut parts, mut program) = (Vec::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for (number, component) in (0..).zip(taken_apart(session, first, words, argv)?) {
        let Component { words, mut wishes, argv } = component;
        if wishes.step.het_group.is_empty() {
            wishes.step.het_group = vec![number];
        }
        if !wishes.step.het_group.iter().all(|&group| taken.insert(group)) {
            // Two programs in one component would wait for each other's CPUs.
            let text = "srun: fatal: Duplicate het groups in single srun not supported";
            return Err(Bare(text.to_owned()).into());
        }
        for (job, mut own) in group::parts(session, wishes, &words)? {
            own.step.components = vec![(0, argv.clone())];
            parts.push((job, own));
        }
        if program.is_empty() {
            program = argv;
        }
    }
    Ok((parts, program))
}

fn taken_apart(
    session: &Session,
    first: Submission,
    words: &[String],
    argv: &[String],
) -> anyhow::Result<Vec<Component>> {
    let own = argv.split(|word| word == COLON).next().unwrap_or_default();
    let mut said = words.split(|word| word == COLON);
    let words = said.next().unwrap_or_default().to_vec();
    let mut all = vec![Component { words, wishes: first, argv: own.to_vec() }];
    for words in said {
        let before = all.last().map_or_else(|| Ok(Vec::new()), |before| passed_on(&before.words))?;
        let words = [&before[..], words].concat();
        let mut wishes = Submission::default();
        match wishes.settle_line(&SRUN_LINE, &words, &|name| session.env(name))? {
            Settled::Run(argv) => all.push(Component { words, wishes, argv }),
            Settled::Show(_) => bail!("--help and --version stand alone"),
        }
    }
    match all.iter().position(|component| component.argv.is_empty()) {
        Some(number) => bail!("No command given to execute in component {number}."),
        None => Ok(all),
    }
}

/// Returns the options among these words that the next component inherits.
fn passed_on(words: &[String]) -> anyhow::Result<Vec<String>> {
    match SRUN_LINE.read(words)? {
        Reading::Run { args, .. } => Ok(het::passed_on(&args)),
        Reading::Show(_) => Ok(Vec::new()),
    }
}

/// Number of tasks of a component, and its smallest number of nodes; `None` without `--nodes`.
fn tasks_and_nodes(wishes: &Submission) -> anyhow::Result<(u32, Option<u32>)> {
    let said = wishes.spec.nodes.as_str();
    let nodes = match said {
        "" => None,
        text => Some(text.parse::<NodeCount>().with_context(|| format!("--nodes={text}"))?.min),
    };
    Ok((wishes.spec.tasks.or(nodes).unwrap_or(1), nodes))
}
