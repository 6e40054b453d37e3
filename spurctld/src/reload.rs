//! Puts the configuration file in force again while the controller runs.

use std::sync::Arc;

use spur_core::controller::{Command, Input, Reject};
use spur_core::model::caller::Caller;
use spur_core::model::config::{AuthMethod, Config, Local};
use spur_proto::keys::{ClusterKeys, Keyring};
use spur_proto::tls::Certificate;

use crate::answer::Answer;
use crate::config_file::ConfigFile;
use crate::inbox::{Inbox, NoAnswer, Refused};
use crate::owner;

/// Reads the configuration file on demand. Clones share everything.
#[derive(Clone)]
pub struct Reload {
    inbox: Inbox,
    file: ConfigFile,
    /// The settings of this host with which the controller was started.
    local: Arc<Local>,
    /// The keys in force; `None` without authentication.
    keyring: Option<Keyring>,
    /// The site's own certificate, if it has one.
    certificate: Option<Certificate>,
}

/// The reason why the previous policy stays in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The file cannot be read or holds mistakes, or the core refuses its policy.
    #[error(transparent)]
    Refused(#[from] Reject),
    /// The owner does not take requests at the moment.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl Reload {
    pub(crate) fn new(
        inbox: Inbox,
        file: ConfigFile,
        local: Arc<Local>,
        (keyring, certificate): (Option<Keyring>, Option<Certificate>),
    ) -> Self {
        Self { inbox, file, local, keyring, certificate }
    }

    /// Returns the settings of this host with which the controller was started.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Reads the file, puts its policy in force, and logs the changes.
    ///
    /// If the file cannot be honoured, the reason is logged and the previous policy stays in force.
    pub async fn now(&self) {
        match self.ordered_by(owner::daemon()).await {
            Ok(changes) if changes.is_empty() => tracing::info!("reconfigured: nothing has changed"),
            Ok(changes) => tracing::info!(changes = changes.join("; "), "reconfigured"),
            Err(error) => tracing::error!("not reconfigured, the old policy stays: {error}"),
        }
    }

    /// Reads the file for an operator and puts its policy in force; returns the changes, one sentence each.
    pub(crate) async fn ordered_by(&self, caller: Caller) -> Result<Vec<String>, ReloadError> {
        if !caller.is_operator() {
            return Err(Reject::AccessDenied.into());
        }
        let (file, key_file) = (self.file.clone(), self.local.auth.key_file.clone());
        let (wants_keys, certificate) = (self.keyring.is_some(), self.certificate.clone());
        let read = tokio::task::spawn_blocking(move || {
            let config = file.read()?;
            let keys = wants_keys && config.local.auth.method == AuthMethod::Key;
            let keys = keys.then(|| ClusterKeys::read(&key_file, &config.policy.cluster_name)).transpose()?;
            let renewed = certificate.map_or(Ok(false), |certificate| certificate.renew())?;
            anyhow::Ok((config, keys, renewed))
        });
        let read = read.await.map_err(|_| NoAnswer::Stopping)?;
        let (config, keys, renewed) = read.map_err(|error| Reject::InvalidPolicy(format!("{error:#}")))?;
        let Config { policy, local } = config;
        policy.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let command = Command::Reconfigure(policy.into());
        let input = Input::Command { caller, request: None, command };
        let mut changes = match self.inbox.insist(input).await?.answer {
            Ok(Answer::Reconfigured { changes }) => changes,
            Ok(_) => Vec::new(),
            Err(Refused::Rejected(rejected)) => return Err(rejected.into()),
            Err(Refused::Unsure | Refused::NoSpace(_) | Refused::Fault) => return Err(NoAnswer::Busy.into()),
        };
        changes.extend(needs_restart(&self.local, &local));
        if renewed {
            changes.push("[tls] cert_file: another certificate is shown".to_owned());
        }
        if let (Some(keyring), Some(keys)) = (&self.keyring, keys) {
            let count = keys.count();
            if keyring.replace(keys) {
                changes.push(match count {
                    1 => "[auth] key_file: another key is in use, and no other is believed".to_owned(),
                    _ => "[auth] key_file: a new key is in use, the old one is still believed".to_owned(),
                });
            }
        }
        Ok(changes)
    }
}

/// Returns the changed settings that only a restart puts in force.
fn needs_restart(old: &Local, new: &Local) -> Vec<String> {
    let (before, after) = (&old.controller, &new.controller);
    let sections = [
        ("[controller] listen_addr", before.listen_addr != after.listen_addr),
        ("[controller] addr", before.addresses != after.addresses),
        ("[controller] metrics_addr", before.metrics_addr != after.metrics_addr),
        ("[controller] state", before.state != after.state),
        ("[controller] limits of users", before.shares != after.shares),
        ("[controller] mail_prog", before.mail_prog != after.mail_prog),
        ("[auth]", old.auth != new.auth),
        ("[tls]", old.tls != new.tls),
        ("[log]", old.log != new.log),
        ("[[nodes]] addr and port", old.node_addresses != new.node_addresses),
        ("[agent] heartbeat_interval", old.agent.heartbeat_interval != new.agent.heartbeat_interval),
    ];
    let changed = sections.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(what, _)| format!("{what}: changed in the file; restart spurctld to use it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_once_is_named_when_it_changes() {
        let old = Local::default();
        assert!(needs_restart(&old, &old).is_empty());
        let mut new = Local::default();
        new.controller.listen_addr.port = 1;
        let said = needs_restart(&old, &new);
        assert!(said.len() == 1 && said[0].starts_with("[controller] listen_addr: "), "{said:?}");
    }
}
