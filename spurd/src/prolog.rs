//! The site's programs on this node, run as spurd's own user: prolog and epilog of a job, the health check, the program
//! that boots the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spur_core::id::Attempt;
use spur_proto::program::SiteProgram;

use crate::settings::Settings;

/// A program of the site that knows which node this is, and where its cluster is.
pub(crate) fn program(
    path: &Path,
    settings: &Settings,
    mut variables: Vec<(String, String)>,
    limit: Duration,
) -> SiteProgram {
    variables.push(("SLURMD_NODENAME".to_owned(), settings.name.clone()));
    let daemon = settings.of_cluster();
    SiteProgram { path: path.to_owned(), arguments: Vec::new(), variables, daemon, limit, outlives: false }
}

/// Runs programs one after another, until one fails.
///
/// # Errors
/// One sentence about the program that failed.
pub(crate) async fn run(
    paths: Result<Vec<PathBuf>, String>,
    settings: &Settings,
    variables: &[(String, String)],
    limit: Duration,
) -> Result<(), String> {
    for path in paths? {
        program(&path, settings, variables.to_vec(), limit).run().await?;
    }
    Ok(())
}

/// What the prolog or epilog of an attempt finds in its environment; `kept` is what the controller has said of the job.
pub(crate) fn variables(
    attempt: Attempt,
    kept: Vec<(String, String)>,
    context: &str,
) -> Vec<(String, String)> {
    let job = attempt.job.to_string();
    let context = format!("{context}_slurmd");
    let own = [("SLURM_JOB_ID", job.clone()), ("SLURM_JOBID", job), ("SLURM_SCRIPT_CONTEXT", context)];
    kept.into_iter().chain(own.map(|(name, value)| (name.to_owned(), value))).collect()
}
