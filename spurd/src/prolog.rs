//! The site's programs on this node, run as spurd's own user: prolog and epilog of jobs, the health check,
//! and the program that reboots the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spur_core::id::Attempt;
use spur_proto::program::SiteProgram;

use crate::settings::Settings;

/// Returns a program of the site with variables that name the node and the configuration.
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
/// Describes the program that failed, in one sentence.
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

/// Returns the variables for the prolog or epilog of an attempt; `kept` are those of the job that the spool
/// has kept.
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
