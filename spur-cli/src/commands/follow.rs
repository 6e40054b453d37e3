//! `--watch`: follows jobs and nodes by the controller's stream of changes, and prints a page after each
//! change.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use spur_proto::client::{CallError, Controller};
use spur_proto::v1::{Job, Node, WatchClusterRequest, WatchClusterResponse};
use tokio::time::Instant;
use tonic::Streaming;

use crate::session::Session;

/// The shortest time between two pages; all changes of this time are on the second page.
const BETWEEN_PAGES: Duration = Duration::from_secs(1);

/// The followed jobs and nodes in their last received state.
#[derive(Debug, Default)]
pub(super) struct Picture {
    /// Jobs by number.
    pub jobs: BTreeMap<u32, Job>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Number of times that the controller began with all records. Other data than jobs and nodes may have
    /// changed each time.
    pub begun: u64,
}

impl Picture {
    /// Applies a message. Returns true if the picture is complete up to an entry again.
    fn take(&mut self, message: WatchClusterResponse, request: &mut WatchClusterRequest) -> bool {
        if message.begins {
            (self.jobs, self.nodes) = (BTreeMap::new(), BTreeMap::new());
            self.begun += 1;
        }
        for job in message.gone_jobs {
            self.jobs.remove(&job);
        }
        self.jobs.extend(message.jobs.into_iter().map(|job| (job.id, job)));
        self.nodes.extend(message.nodes.into_iter().map(|node| (node.name.clone(), node)));
        if message.complete {
            (request.after_seq, request.history) = (message.seq, message.history);
        }
        message.complete
    }
}

/// Prints a page of the jobs and nodes that the request selects, and another page after each change, until
/// the program is interrupted. If the controller goes away, the command waits and asks its successor for
/// the changes since.
///
/// # Errors
/// Fails if the controller refuses, if a page cannot be made, or if the output cannot be written.
pub(super) async fn pages(
    session: &mut Session,
    mut request: WatchClusterRequest,
    mut page: impl AsyncFnMut(&mut Session, &Picture) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let (mut picture, mut shown) = (Picture::default(), None::<String>);
    let mut told = false;
    loop {
        let call = async |mut controller: Controller, request| controller.watch_cluster(request).await;
        let mut changes = session.connection()?.read(request.clone(), call).await?;
        let mut due = None::<Instant>;
        loop {
            let error = match next(session, &mut changes, due).await? {
                Next::Message(message) => {
                    if picture.take(*message, &mut request) {
                        due = due.or_else(|| Some(Instant::now()));
                    }
                    continue;
                }
                Next::Due => {
                    let text = page(session, &picture).await?;
                    if shown.as_ref() != Some(&text) {
                        write!(session.out, "{text}")?;
                        session.out.flush()?;
                        shown = Some(text);
                    }
                    due = None;
                    // Messages that arrive during the pause wait in the stream.
                    tokio::time::sleep(BETWEEN_PAGES).await;
                    continue;
                }
                Next::Broken(error) => error,
            };
            if !error.is_transient() {
                return Err(error.into());
            }
            if !std::mem::replace(&mut told, true) {
                session.warn(&format!("{error}; waiting for it"));
            }
            break;
        }
    }
}

/// The next event for the loop of pages.
enum Next {
    Message(Box<WatchClusterResponse>),
    /// A page is due, and no message waits.
    Due,
    Broken(CallError),
}

async fn next(
    session: &mut Session,
    changes: &mut Streaming<WatchClusterResponse>,
    due: Option<Instant>,
) -> anyhow::Result<Next> {
    let connection = session.connection()?;
    let rest = async {
        match due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        message = connection.next(changes) => Ok(match message {
            Ok(Some(message)) => Next::Message(Box::new(message)),
            Ok(None) => {
                let address = connection.address().to_owned();
                Next::Broken(CallError::Broken { address, detail: "the stream has ended".to_owned() })
            }
            Err(error) => Next::Broken(error),
        }),
        () = rest => Ok(Next::Due),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u32, state: &str) -> Job {
        Job { id, state: state.into(), ..Job::default() }
    }

    #[test]
    fn a_picture_follows_messages_and_says_where_it_is() {
        let (mut picture, mut request) = (Picture::default(), WatchClusterRequest::default());
        let message = WatchClusterResponse::default;
        let jobs = vec![job(1, "PENDING"), job(2, "RUNNING")];
        assert!(!picture.take(WatchClusterResponse { begins: true, ..message() }, &mut request));
        assert!(!picture.take(WatchClusterResponse { jobs, ..message() }, &mut request));
        let complete = |seq| WatchClusterResponse { complete: true, seq, history: "h".into(), ..message() };
        assert!(picture.take(complete(7), &mut request));
        assert_eq!((request.after_seq, &*request.history), (7, "h"));
        let changed =
            WatchClusterResponse { jobs: vec![job(1, "RUNNING")], gone_jobs: vec![2, 99], ..complete(9) };
        assert!(picture.take(changed, &mut request));
        assert_eq!(picture.jobs.values().map(|job| &*job.state).collect::<Vec<_>>(), ["RUNNING"]);
        picture.take(WatchClusterResponse { begins: true, ..message() }, &mut request);
        assert!(picture.jobs.is_empty());
        assert_eq!((picture.begun, request.after_seq), (2, 9));
    }
}
