//! Mail, through the program that `[controller] mail_prog` names, called as Slurm calls its MailProg.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use spur_core::controller::environment::Variables;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Programs that may run at once.
const AT_ONCE: usize = 8;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends mail, and has nobody wait for it.
pub(crate) struct Post {
    program: Option<PathBuf>,
    runtime: Handle,
    permits: Arc<Semaphore>,
}

impl Post {
    /// With this program, or none, which sends nothing. It is made where the runtime is that is to run it.
    pub(crate) fn new(program: Option<PathBuf>) -> Self {
        Self { program, runtime: Handle::current(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Sends one. What goes wrong is logged.
    pub(crate) fn send(&self, to: String, subject: String, variables: Variables) {
        let Some(program) = self.program.clone() else {
            tracing::debug!(to, subject, "no mail_prog is set: mail is not sent");
            return;
        };
        let permits = Arc::clone(&self.permits);
        self.runtime.spawn(async move {
            // It is never closed.
            let _permit = permits.acquire_owned().await;
            let mut command = Command::new(&program);
            // What looks like an option is none: an address may be anything that a user writes.
            let to = to.trim_start_matches('-');
            command.arg("-s").arg(&subject).arg(to).envs(variables).kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            match timeout(PATIENCE, command.status()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => tracing::warn!(program = %program.display(), to, %status, "mail was not sent"),
                Ok(Err(error)) => tracing::warn!(program = %program.display(), to, %error, "mail was not sent"),
                Err(_) => tracing::warn!(program = %program.display(), to, "the mail program was killed: it took too long"),
            }
        });
    }
}
