//! The output of Slurm's commands, loaded into a running controller: QOS, the policy tree, usage and history,
//! in this order, because each needs what is before it.
//!
//! Everything is sent in slices, each of which the controller takes as a whole. A slice sets values and adds
//! nothing to what is there, so the same import again continues after an interruption.

mod history;
mod policy;
mod table;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use spur_core::controller::{MOST_AT_ONCE, MOST_ROWS};
use spur_proto::client::Controller;
use spur_proto::v1::accounts_row::Row;
use spur_proto::v1::{AccountingRow, ChangeAccountsRequest, ImportHistoryRequest};

use crate::commands::sacctmgr::records;
use crate::session::Session;
use crate::zone;
use history::{History, Run};
use policy::{Associations, Lines};

/// Bytes of rows after which a slice of history ends.
const SLICE_BYTES: usize = 256 << 10;

/// The files to load.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The output of `sacctmgr show qos -P`.
    pub(super) qos: Option<PathBuf>,
    /// The file of `sacctmgr dump`.
    pub(super) accounts: Option<PathBuf>,
    /// The output of `sshare -l -a -m -P`.
    pub(super) usage: Option<PathBuf>,
    /// The output of `sacct -P`.
    pub(super) history: Option<PathBuf>,
}

impl Files {
    /// True if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        [&self.qos, &self.accounts, &self.usage, &self.history].into_iter().all(Option::is_none)
    }
}

/// Loads the files; with `dry_run` only reads them. Prints what was loaded, and what has no counterpart.
///
/// # Errors
/// A file that cannot be read, or a refusal of the controller. Slices before the refused one are loaded.
pub(super) async fn run(session: &mut Session, files: &Files, dry_run: bool) -> anyhow::Result<u8> {
    // All files are read first, so that a wrong file stops the import before anything is loaded.
    let read = |path: &Option<PathBuf>, reader: fn(&Path) -> anyhow::Result<Lines>| {
        path.as_deref().map(|path| Ok::<_, anyhow::Error>((path.to_owned(), reader(path)?))).transpose()
    };
    let (qos, tree) = (read(&files.qos, policy::qos)?, read(&files.accounts, policy::tree)?);
    if let Some(usage) = &files.usage {
        policy::usage(usage, None)?;
    }
    let zone = zone::local();
    let past = files.history.as_deref().map(|path| history::read(path, &zone)).transpose()?;
    let mut notes = Vec::new();
    for (file, what) in [(qos, "QOS"), (tree, "lines of the policy tree")] {
        let Some((path, read)) = file else { continue };
        let count = load(session, &path, &read, dry_run).await?;
        writeln!(session.out, "{}: {} {what}{count}", path.display(), read.lines.len())?;
        notes.extend(read.notes);
    }
    if let Some(path) = &files.usage {
        let known = if dry_run { None } else { Some(associations(session).await?) };
        let read = policy::usage(path, known.as_ref())?;
        load(session, path, &read, dry_run).await?;
        writeln!(session.out, "{}: usage of {} associations", path.display(), read.lines.len())?;
        notes.extend(read.notes);
    }
    if let (Some(path), Some(mut past)) = (&files.history, past) {
        notes.append(&mut past.notes);
        notes.extend(load_history(session, path, &past, dry_run).await?);
    }
    if dry_run {
        writeln!(session.out, "Nothing was loaded (--dry-run).")?;
    }
    if !notes.is_empty() {
        writeln!(session.out, "Without a counterpart:")?;
    }
    notes.iter().try_for_each(|note| writeln!(session.out, "  {note}"))?;
    Ok(0)
}

async fn associations(session: &mut Session) -> anyhow::Result<Associations> {
    let records = records(session, "association", &[]).await?;
    Ok(Associations::of(records.into_iter().filter_map(|record| match record {
        Row::Association(association) => Some(association),
        _ => None,
    })))
}

/// Sends lines in slices; returns a text with the number of changes that the controller made.
async fn load(session: &mut Session, path: &Path, read: &Lines, dry_run: bool) -> anyhow::Result<String> {
    let mut changes = 0;
    for lines in read.lines.chunks(MOST_AT_ONCE).filter(|_| !dry_run) {
        let request = ChangeAccountsRequest {
            verb: "load".to_owned(),
            lines: lines.to_vec(),
            ..ChangeAccountsRequest::default()
        };
        let call = async |mut controller: Controller, request| controller.change_accounts(request).await;
        let answer = session.connection()?.change(request, call).await;
        let answer = answer.with_context(|| {
            format!("{}: nothing of the lines from {} on was loaded", path.display(), lines[0].number)
        })?;
        changes += answer.lines.len();
    }
    Ok(if dry_run { String::new() } else { format!(", {changes} changes") })
}

/// Sends runs in slices; returns sentences about runs that were left out, because this cluster has used their
/// numbers.
async fn load_history(
    session: &mut Session,
    path: &Path,
    past: &History,
    dry_run: bool,
) -> anyhow::Result<Vec<String>> {
    let shown = path.display();
    let mut own_jobs: BTreeSet<u32> = BTreeSet::new();
    for slice in slices(&past.runs).into_iter().filter(|_| !dry_run) {
        let Slice { line, rows } = slice;
        let request =
            ImportHistoryRequest { rows, last_job: past.last_job, ..ImportHistoryRequest::default() };
        let call = async |mut controller: Controller, request| controller.import_history(request).await;
        let answer = session.connection()?.change(request, call).await;
        let answer =
            answer.with_context(|| format!("{shown}: nothing of the lines from {line} on was loaded"))?;
        own_jobs.extend(answer.own_jobs);
    }
    let is_own = |run: &&Run| own_jobs.contains(&run.rows[0].job_id);
    let (own, taken): (Vec<&Run>, Vec<&Run>) = past.runs.iter().partition(is_own);
    let steps: usize = taken.iter().map(|run| run.rows.len() - 1).sum();
    let (runs, last) = (taken.len(), past.last_job);
    writeln!(session.out, "{shown}: {runs} runs and {steps} steps of jobs up to {last}")?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let note = |run: &Run| {
        let (line, job) = (run.line, run.rows[0].job_id);
        format!("{name}:{line}: job {job} is left out: this cluster has a job {job} of its own")
    };
    Ok(own.into_iter().map(note).collect())
}

/// The rows of one request.
struct Slice {
    /// The line of the first run.
    line: usize,
    rows: Vec<AccountingRow>,
}

/// Cuts runs into slices of at most [`MOST_ROWS`] rows and about [`SLICE_BYTES`] bytes. The row of a run
/// comes before the steps of the run in each slice that has some of them.
fn slices(runs: &[Run]) -> Vec<Slice> {
    let (mut slices, mut bytes): (Vec<Slice>, usize) = (Vec::new(), 0);
    for run in runs {
        let Some((head, steps)) = run.rows.split_first() else { continue };
        let (first, rest) = steps.split_at(steps.len().min(MOST_ROWS - 1));
        let parts = std::iter::once(first).chain(rest.chunks(MOST_ROWS - 1));
        for steps in parts {
            let more = std::iter::once(head).chain(steps).map(size).sum::<usize>();
            match slices.last_mut() {
                Some(last) if last.rows.len() + steps.len() < MOST_ROWS && bytes + more <= SLICE_BYTES => {
                    last.rows.push(head.clone());
                    last.rows.extend_from_slice(steps);
                    bytes += more;
                }
                _ => {
                    let rows = std::iter::once(head).chain(steps).cloned().collect();
                    slices.push(Slice { line: run.line, rows });
                    bytes = more;
                }
            }
        }
    }
    slices
}

/// Returns about the number of bytes that a row takes in a request.
fn size(row: &AccountingRow) -> usize {
    let texts = [&row.submit_line, &row.work_dir, &row.comment, &row.nodelist, &row.admin_comment, &row.name];
    512 + texts.iter().map(|text| text.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: usize, steps: usize) -> Run {
        let row = |step_id| AccountingRow { job_id: 7, step_id, ..AccountingRow::default() };
        Run {
            line,
            rows: (0..=steps)
                .map(|step| row(if step == 0 { String::new() } else { step.to_string() }))
                .collect(),
        }
    }

    #[test]
    fn slices_hold_all_rows_and_are_bounded() {
        for counts in
            [vec![0, 0], vec![3; 600], vec![2 * MOST_ROWS + 5, 1], vec![MOST_ROWS - 1, 0], Vec::new()]
        {
            let runs: Vec<Run> = counts.iter().enumerate().map(|(line, steps)| run(line, *steps)).collect();
            let slices = slices(&runs);
            assert!(slices.iter().all(|slice| slice.rows.len() <= MOST_ROWS), "{counts:?}");
            assert!(slices.iter().all(|slice| slice.rows[0].step_id.is_empty()), "{counts:?}");
            let steps = slices.iter().flat_map(|slice| &slice.rows).filter(|row| !row.step_id.is_empty());
            assert_eq!(steps.count(), counts.iter().sum::<usize>(), "{counts:?}");
        }
    }
}
