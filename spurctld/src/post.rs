//! Mail to users, through the program `[controller] mail_prog`, which is called as Slurm calls its MailProg.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spur_core::controller::environment::Variables;
use spur_proto::program::SiteProgram;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Mail programs that may run at once.
const AT_ONCE: usize = 8;
/// Longest run time of a mail program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends mail without making the caller wait.
pub(crate) struct Post {
    program: Option<PathBuf>,
    /// Path of the configuration file, by which commands that the program calls find this cluster.
    config: PathBuf,
    runtime: Handle,
    permits: Arc<Semaphore>,
}

impl Post {
    /// Returns a sender with this program; without one, mail is dropped. Has to be called inside the runtime
    /// that will run the program.
    pub(crate) fn new(program: Option<PathBuf>, config: PathBuf) -> Self {
        Self { program, config, runtime: Handle::current(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Sends one mail. Failures are logged.
    pub(crate) fn send(&self, to: String, subject: String, variables: Variables) {
        let Some(path) = self.program.clone() else {
            tracing::debug!(to, subject, "no mail_prog is set: mail is not sent");
            return;
        };
        let permits = Arc::clone(&self.permits);
        let daemon = vec![("SPUR_CONF".to_owned(), self.config.display().to_string())];
        self.runtime.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            // An address is free text of a user and must not be taken for an option.
            let address = to.trim_start_matches('-').to_owned();
            let program = SiteProgram {
                path,
                arguments: vec!["-s".to_owned(), subject, address],
                variables,
                daemon,
                limit: PATIENCE,
                outlives: false,
            };
            if let Err(why) = program.run().await {
                tracing::warn!(to, "mail was not sent: {why}");
            }
        });
    }
}
