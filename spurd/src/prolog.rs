//! The site's programs on this node, prolog and epilog of a job among them, run as spurd's own user.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// A program of the site.
#[derive(Clone, Debug)]
pub struct SiteProgram {
    /// `prolog`, `epilog` or `health_check_program`, for messages.
    pub what: &'static str,
    /// The program; without one there is nothing to do, which succeeds.
    pub path: Option<PathBuf>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// How long it may take.
    pub limit: Duration,
    /// Whether it goes on when spurd ends meanwhile.
    pub outlives: bool,
}

/// How much of what a failed program said is passed on.
const COMPLAINT: usize = 400;

impl SiteProgram {
    /// Runs the program to its end.
    ///
    /// # Errors
    /// One sentence with the program, how it failed and the end of what it wrote to standard error.
    pub async fn run(self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |how: String| format!("{} {}: {how}", self.what, path.display());
        let mut command = Command::new(path);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own, so that what the program starts is ended with it.
        command.process_group(0).kill_on_drop(!self.outlives).current_dir("/");
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let group = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let output = match tokio::time::timeout(self.limit, child.wait_with_output()).await {
            Ok(output) => output.map_err(|error| failed(error.to_string()))?,
            Err(_) => {
                if let Some(group) = group {
                    // The program is dropped and thereby killed; this ends what it had started.
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                return Err(failed(format!("not over after {} s, killed", self.limit.as_secs())));
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let end = said.trim().char_indices().rev().take(COMPLAINT).last().map_or(0, |(at, _)| at);
        Err(failed(format!("{}: {}", output.status, &said.trim()[end..])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str, limit: Duration) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        spur_tests::write_program(&path, script);
        let environment = vec![("SLURM_JOB_ID".to_owned(), "42".to_owned())];
        SiteProgram { what: "prolog", path: Some(path), environment, limit, outlives: false }.run().await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn its_end_is_what_counts() {
        assert_eq!(run("[ $SLURM_JOB_ID = 42 ]", LONG).await, Ok(()));
        let failed = run("echo disk is full >&2; exit 3", LONG).await.unwrap_err();
        assert!(failed.ends_with("exit status: 3: disk is full"), "{failed}");
        let none =
            SiteProgram { what: "epilog", path: None, environment: vec![], limit: LONG, outlives: false };
        assert_eq!(none.run().await, Ok(()));
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed() {
        let failed = run("sleep 1000 & sleep 1000", Duration::from_millis(50)).await.unwrap_err();
        assert!(failed.contains("killed"), "{failed}");
    }
}
