//! The condition of the node's spool: the reason, if any, why the node takes no work.
//!
//! Every refusal of the disk is recorded. The first reason stays until a trial shows that the disk takes
//! writes again. An I/O error stays until spurd is restarted, because the disk may have lost earlier writes.
//! While there is a reason, the node launches nothing and reports the reason to its controller.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

/// The reason why the spool cannot be used, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// The reason, for users; empty if the spool is usable.
    fault: Arc<str>,
    /// True if the reason stays although the disk takes writes again.
    lasting: bool,
}

/// The condition of the spool in a directory.
#[derive(Debug)]
pub(crate) struct Condition {
    root: PathBuf,
    state: watch::Sender<State>,
}

/// Wakes one task when the condition changes.
#[derive(Debug)]
pub(crate) struct News(watch::Receiver<State>);

impl News {
    /// Waits for a change; never returns if the condition is gone.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if the condition has changed since the last call or wait.
    pub(crate) fn take(&mut self) -> bool {
        let changed = self.0.has_changed().unwrap_or(false);
        self.0.mark_unchanged();
        changed
    }
}

impl Condition {
    pub(crate) fn new(root: PathBuf) -> Condition {
        Condition { root, state: watch::Sender::default() }
    }

    /// Returns the reason why the spool cannot be used; empty if it can.
    pub(crate) fn fault(&self) -> Arc<str> {
        Arc::clone(&self.state.borrow().fault)
    }

    pub(crate) fn news(&self) -> News {
        News(self.state.subscribe())
    }

    /// Records a reason, unless there is one already; a lasting reason replaces one that is not.
    pub(crate) fn note(&self, what: &str, lasting: bool) {
        let advice = if lasting { "; start spurd again when its disk is mended" } else { "" };
        let fault = format!("spool {}: {what}{advice}", self.root.display());
        let news = self.state.send_if_modified(|state| {
            let worse = state.fault.is_empty() || lasting && !state.lasting;
            if worse {
                *state = State { fault: fault.as_str().into(), lasting };
            }
            worse
        });
        if news {
            tracing::error!("this node takes no work: {fault}");
        }
    }

    /// Records an error of the disk, and returns the result unchanged.
    pub(crate) fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            self.note(&error.to_string(), may_have_lost(error));
        }
        result
    }

    /// Clears a reason that does not last, after the disk has taken a write.
    pub(crate) fn written(&self) {
        let mended = self.state.send_if_modified(|state| {
            let over = !state.fault.is_empty() && !state.lasting;
            if over {
                *state = State::default();
            }
            over
        });
        if mended {
            tracing::info!("the spool can be written again");
        }
    }
}

/// True if the error may mean that earlier writes were lost.
fn may_have_lost(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_until_it_is_over() {
        let condition = Condition::new("/spool".into());
        let mut news = condition.news();
        assert!(condition.fault().is_empty() && !news.take());
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert!(condition.noted::<()>(Err(full())).is_err());
        assert!(news.take());
        let first = condition.fault();
        assert!(first.starts_with("spool /spool: no storage space"), "{first}");
        condition.note("another", false);
        assert!(!news.take() && condition.fault() == first);
        condition.written();
        assert!(news.take() && condition.fault().is_empty());
        let known = io::Error::from(io::ErrorKind::AlreadyExists);
        assert!(condition.noted::<()>(Err(known)).is_err() && condition.fault().is_empty());
    }

    #[test]
    fn a_disk_that_may_have_lost_something_is_not_trusted_again() {
        let condition = Condition::new("/spool".into());
        condition.note("full", false);
        let broken = io::Error::from(rustix::io::Errno::IO);
        assert!(condition.noted::<()>(Err(broken)).is_err());
        condition.written();
        assert!(condition.fault().contains("start spurd again"), "{}", condition.fault());
    }
}
