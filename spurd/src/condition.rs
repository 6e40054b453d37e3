//! Whether this node is fit for work, as far as its spool is concerned.
//!
//! Every refusal of the disk is noted where it is met. What is noted first stays the reason until it is over: until a
//! trial shows that there is room again, or, where the disk may have lost what it had taken, until spurd is started
//! again. While there is a reason the node launches nothing and says so to its controller.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Why not, for people; empty if it is.
    fault: Arc<str>,
    /// Whether a disk that takes a write again proves nothing.
    lasting: bool,
}

/// The fitness of the spool in a directory.
#[derive(Debug)]
pub(crate) struct Condition {
    root: PathBuf,
    state: watch::Sender<State>,
}

/// Who is told when it changes.
#[derive(Debug)]
pub(crate) struct News(watch::Receiver<State>);

impl News {
    /// Waits for a change, for ever if there will be none.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether there was a change that nobody has waited for; there is none then any more.
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

    /// What is wrong, for people; empty if nothing is.
    pub(crate) fn fault(&self) -> Arc<str> {
        Arc::clone(&self.state.borrow().fault)
    }

    pub(crate) fn news(&self) -> News {
        News(self.state.subscribe())
    }

    /// Notes what went wrong, unless something has already.
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

    /// Notes an error of the disk, and passes it on.
    pub(crate) fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            self.note(&error.to_string(), may_have_lost(error));
        }
        result
    }

    /// The disk has taken a write.
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

/// Whether an error says more than that the disk did not take this.
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
