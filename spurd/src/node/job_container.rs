//! Private directories for each job, as Slurm's plugin `job_container/tmpfs` makes them. No other job sees a
//! job's files in `/tmp`, which are removed with the job.
//!
//! The directories are below the base path, one for each attempt; each step of the attempt has them mounted
//! over the host's. `/dev/shm` is in memory: each job has a tmpfs of its own for it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use spur_core::id::Attempt;
use spur_core::model::config::AgentLocal;
use step_wire::attempt::file_name;
use step_wire::order::{Identity, PrivateDirectory};

/// The directory that is kept in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Creates and removes the private directories of jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobContainers {
    /// Directory that holds those of this node's jobs.
    base: PathBuf,
    /// Paths over which a job's private directories are mounted.
    targets: Arc<[PathBuf]>,
    /// Held while directories are created: steps of a job may start at the same time.
    making: Arc<Mutex<()>>,
}

impl JobContainers {
    /// Prepares the directories that `[agent]` configures; `None` if it configures none.
    ///
    /// # Errors
    /// Explains why jobs cannot have private directories, for users.
    pub(crate) fn open(agent: &AgentLocal, node: &str, spool: &Path) -> anyhow::Result<Option<Self>> {
        let Some(path) = &agent.job_container_base_path else { return Ok(None) };
        if !rustix::process::geteuid().is_root() {
            bail!("[agent] job_container_base_path: only root can give jobs directories of their own");
        }
        let spool = std::path::absolute(spool).unwrap_or_else(|_| spool.to_owned());
        if let Some(hidden) = agent.job_container_dirs.iter().find(|dir| spool.starts_with(dir)) {
            bail!(
                "[agent] job_container_dirs: steps need the spool {}, and do not see what is below {}",
                spool.display(),
                hidden.display()
            );
        }
        let base = path.join(node);
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&base);
        made.with_context(|| format!("[agent] job_container_base_path: cannot make {}", base.display()))?;
        let targets = agent.job_container_dirs.clone().into();
        Ok(Some(Self { base, targets, making: Arc::default() }))
    }

    /// Creates a job's private directories, unless an earlier step of the job has.
    ///
    /// # Errors
    /// Names the directory that could not be created, with the system's error.
    pub(crate) fn prepare(&self, attempt: Attempt, user: &Identity) -> io::Result<Vec<PrivateDirectory>> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let job = self.base.join(file_name(attempt));
        let directory = |(place, target): (usize, &PathBuf)| {
            let source = job.join(place.to_string());
            self.make(&source, target, user)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.display())))?;
            Ok(PrivateDirectory { source, target: target.clone() })
        };
        self.targets.iter().enumerate().map(directory).collect()
    }

    fn make(&self, source: &Path, target: &Path, user: &Identity) -> io::Result<()> {
        let job = source.parent().unwrap_or(&self.base);
        DirBuilder::new().recursive(true).mode(0o711).create(job)?;
        match DirBuilder::new().mode(0o700).create(source) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let in_memory = target == Path::new(SHARED_MEMORY);
        if in_memory && fs::metadata(source)?.dev() == fs::metadata(job)?.dev() {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(Some("tmpfs"), source, Some("tmpfs"), flags, Some("mode=0700"))?;
        }
        chown(source, Some(user.uid), Some(user.gid))
    }

    /// Removes a job's directories in the background, since they may hold very many files.
    pub(crate) fn remove(&self, attempt: Attempt) {
        let job = self.base.join(file_name(attempt));
        if job.exists() {
            tokio::task::spawn_blocking(move || remove(&job));
        }
    }

    /// Removes the directories of all attempts but these: an earlier daemon may have missed the end of their
    /// jobs.
    pub(crate) fn keep_only(&self, attempts: impl Iterator<Item = Attempt>) {
        let kept: BTreeSet<String> = attempts.map(file_name).collect();
        let entries = fs::read_dir(&self.base).into_iter().flatten().filter_map(Result::ok);
        let left = entries.filter(|entry| entry.file_name().to_str().is_none_or(|name| !kept.contains(name)));
        let left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
        if !left.is_empty() {
            tokio::task::spawn_blocking(move || left.iter().for_each(|job| remove(job)));
        }
    }
}

/// Removes the directories of a job without following symbolic links.
fn remove(job: &Path) {
    let parts = fs::read_dir(job).into_iter().flatten().filter_map(Result::ok);
    for part in parts {
        // Only the tmpfs directories are mounted; the others refuse.
        let _ = umount2(&part.path(), MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
    if let Err(error) = fs::remove_dir_all(job) {
        tracing::error!(%error, directory = %job.display(), "what a job has left cannot be removed");
    }
}
