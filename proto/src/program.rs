//! Programs of the site that a daemon runs as its own user.
//!
//! Their environment is built from nothing ([`spur_core::model::program`]). They have no descriptor of the
//! daemon, and the out-of-memory score of any other process.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use spur_core::model::program::environment;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};

/// Largest number of characters of a failed program's standard error in messages.
const COMPLAINT: usize = 400;
/// Bytes of standard error that are kept while a program runs.
const KEPT: usize = 4096;

/// A shell script that resets the out-of-memory score and executes the program. A service manager may give a
/// daemon a low score, which processes inherit and only they themselves can raise.
const BECOME: &str = r#"{ echo 0 >/proc/self/oom_score_adj; } 2>/dev/null; exec "$0" "$@""#;

/// A program of the site.
#[derive(Clone, Debug)]
pub struct SiteProgram {
    /// Path of the program.
    pub path: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Variables of the job or the node; names that jobs may not set are left out.
    pub variables: Vec<(String, String)>,
    /// Variables that the daemon's own environment lacks, such as `SPUR_CONF`.
    pub daemon: Vec<(String, String)>,
    /// Time after which the program is killed.
    pub limit: Duration,
    /// True if the program goes on when the daemon ends.
    pub outlives: bool,
}

impl SiteProgram {
    /// Runs the program to its end; after the time limit it is killed with all processes of its group.
    ///
    /// # Errors
    /// One sentence with the program, the kind of failure and the end of its standard error.
    pub async fn run(self) -> Result<(), String> {
        let path = self.path.display().to_string();
        let failed = |how: &str| format!("{path}: {how}");
        // The shell that executes the program would say less about a missing file.
        if self.path.is_absolute() {
            std::fs::metadata(&self.path).map_err(|error| failed(&error.to_string()))?;
        }
        let mut child = self.command().spawn().map_err(|error| failed(&error.to_string()))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let stderr = child.stderr.take().expect("it is a pipe");
        let Ok(ended) = tokio::time::timeout(self.limit, wait(&mut child, stderr)).await else {
            if let Some(group) = group {
                // The program may have ended by itself at this moment.
                let _ = kill_process_group(group, Signal::KILL);
            }
            // Without this, a program that may outlive the daemon would also outlive this function.
            let _ = child.kill().await;
            return Err(failed(&format!("not over after {} s, killed", self.limit.as_secs())));
        };
        let (status, said) = ended.map_err(|error| failed(&error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let said = said.trim();
        let end = said.char_indices().rev().take(COMPLAINT).last().map_or(0, |(at, _)| at);
        let separator = if said.is_empty() { "" } else { ": " };
        Err(failed(&format!("{status}{separator}{}", &said[end..])))
    }

    fn command(&self) -> Command {
        let own = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(BECOME).arg(&self.path).args(&self.arguments);
        command
            .env_clear()
            .envs(environment(own.chain(self.daemon.iter().cloned()), self.variables.iter().cloned()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own, so that the program's children end with it.
        command.process_group(0).kill_on_drop(!self.outlives).current_dir("/");
        command
    }
}

/// Waits for the end of a program, and returns its status with the end of its standard error.
///
/// Background processes of the program may keep standard error open, and are not waited for.
async fn wait(child: &mut Child, mut stderr: ChildStderr) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut said = Vec::new();
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            read = stderr.read_buf(&mut said) => {
                if read? == 0 {
                    break child.wait().await?;
                }
                said.drain(..said.len().saturating_sub(KEPT));
            }
        }
    };
    let rest = stderr.into_owned_fd()?;
    rustix::io::ioctl_fionbio(&rest, true)?;
    // Reading ends with an error if a process keeps the pipe open, after everything there has been read.
    let _ = File::from(rest).read_to_end(&mut said);
    Ok((status, said))
}

/// Returns the programs that paths and patterns (glob(7)) name, path by path; those of one pattern in reverse
/// alphabetical order, as Slurm runs them. A path without a pattern is returned whether or not it exists.
///
/// # Errors
/// One sentence about a malformed pattern.
pub fn matching(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for path in paths {
        let text = path.to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            all.push(path.clone());
            continue;
        }
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        let found = glob::glob_with(&text, options).map_err(|error| format!("{text}: {error}"))?;
        // A directory that cannot be read counts as empty.
        let mut found: Vec<PathBuf> = found.flatten().filter(|path| path.is_file()).collect();
        found.sort_unstable();
        all.extend(found.into_iter().rev());
    }
    Ok(all)
}

/// Keeps every descriptor above standard error from the programs that this process starts.
///
/// A start script may have left a file open that only root may read. Has to be called before any file is
/// opened; descriptors that the daemon opens itself are closed on exec anyway.
pub fn keep_descriptors_private() {
    close_fds::set_fds_cloexec(3, &[]);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn run(script: &str, limit: Duration) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        spur_tests::write_program(&path, script);
        let variables = vec![("SLURM_JOB_ID".to_owned(), "42".to_owned())];
        let arguments = vec!["a b".to_owned()];
        SiteProgram {
            path,
            arguments,
            variables,
            daemon: vec![("SPUR_CONF".to_owned(), "/c".to_owned())],
            limit,
            outlives: false,
        }
        .run()
        .await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_exit_code_decides() {
        assert_eq!(run("[ \"$SLURM_JOB_ID $1 $SPUR_CONF\" = '42 a b /c' ]", LONG).await, Ok(()));
        let failed = run("echo disk is full >&2; exit 3", LONG).await.unwrap_err();
        assert!(failed.ends_with("/program: exit status: 3: disk is full"), "{failed}");
        let failed = run("exit 3", LONG).await.unwrap_err();
        assert!(failed.ends_with("/program: exit status: 3"), "{failed}");
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_run_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent");
        let program = SiteProgram {
            path: path.clone(),
            arguments: Vec::new(),
            variables: Vec::new(),
            daemon: Vec::new(),
            limit: LONG,
            outlives: false,
        };
        let failed = program.clone().run().await.unwrap_err();
        assert!(failed.ends_with("/absent: No such file or directory (os error 2)"), "{failed}");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let failed = program.run().await.unwrap_err();
        assert!(
            failed.contains("/absent: exit status: 126: ") && failed.contains("Permission denied"),
            "{failed}"
        );
    }

    #[tokio::test]
    async fn what_a_program_leaves_in_the_background_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        // The background process ends when the directory is gone.
        let there = directory.path().display();
        let script = format!("while [ -e {there} ]; do sleep 0.05; done & echo {{1..9}} bad >&2; exit 1");
        let failed = run(&script, LONG).await.unwrap_err();
        assert!(failed.ends_with("bad"), "{failed}");
    }

    #[test]
    fn a_pattern_names_programs_in_reverse_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["10-a", "20-b", "30-c", ".hidden"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("40-d")).unwrap();
        let found = matching(&[path("absent"), path("*"), path("none-*"), path("[1]*")]).unwrap();
        assert_eq!(found, ["absent", "30-c", "20-b", "10-a", "10-a"].map(path));
        assert!(matching(&[path("***")]).is_err());
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed() {
        let failed = run("sleep 1000 & sleep 1000", Duration::from_millis(50)).await.unwrap_err();
        assert!(failed.contains("killed"), "{failed}");
    }
}
