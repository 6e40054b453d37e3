//! Mail, through the program that `[controller] mail_prog` names, called as Slurm calls its MailProg.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spur_core::controller::environment::Variables;
use spur_proto::program::SiteProgram;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Programs that may run at once.
const AT_ONCE: usize = 8;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends mail, and has nobody wait for it.
pub(crate) struct Post {
    program: Option<PathBuf>,
    /// The configuration file, so that the commands that the program calls know this cluster.
    config: PathBuf,
    runtime: Handle,
    permits: Arc<Semaphore>,
}

impl Post {
    /// With this program, or none, which sends nothing. It is made where the runtime is that is to run it.
    pub(crate) fn new(program: Option<PathBuf>, config: PathBuf) -> Self {
        Self { program, config, runtime: Handle::current(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Sends one. What goes wrong is logged.
    pub(crate) fn send(&self, to: String, subject: String, variables: Variables) {
        let Some(path) = self.program.clone() else {
            tracing::debug!(to, subject, "no mail_prog is set: mail is not sent");
            return;
        };
        let permits = Arc::clone(&self.permits);
        let daemon = vec![("SPUR_CONF".to_owned(), self.config.display().to_string())];
        self.runtime.spawn(async move {
            // It is never closed.
            let _permit = permits.acquire_owned().await;
            // What looks like an option is none: an address may be anything that a user writes.
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
