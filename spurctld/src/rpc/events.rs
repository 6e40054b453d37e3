//! Lists of the times during which nodes were out of service, page by page.

use std::collections::BTreeSet;

use spur_core::controller::Reject;
use spur_core::model::caller::Caller;
use spur_core::model::config::Private;
use spur_proto::convert::reject;
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Desk, Listing};
use crate::store::StoreError;
use crate::store::accounting::{EventQuery, NodeEvent, Query};

/// Pages made ahead of a slow reader.
const AHEAD: usize = 2;

type Pages = mpsc::Sender<Result<v1::ListNodeEventsResponse, Status>>;

impl Desk {
    /// Lists the events that a request selects. Where `private_data` hides events, only operators see them.
    pub(super) fn node_events(
        &self,
        caller: &Caller,
        request: v1::ListNodeEventsRequest,
    ) -> Result<Listing<v1::ListNodeEventsResponse>, Status> {
        let seen = {
            let cluster = self.replica.read();
            if cluster.policy().jobs.hides(Private::Events, caller) {
                return Err(reject::status(&Reject::AccessDenied));
            }
            cluster.seq()
        };
        let nodes = match request.nodelist.as_str() {
            "" => None,
            list => Some(super::filter::expand(&self.replica.read(), list)?.iter().collect::<BTreeSet<_>>()),
        };
        let query =
            EventQuery { not_before: request.start, before: request.end, open: request.open, after: None };
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let desk = self.clone();
        tokio::spawn(async move {
            desk.accounts.reach(seen).await;
            if let Err(error) = desk.send_events(query, nodes.as_ref(), &pages).await {
                // A reader that is gone needs no answer.
                let _ = pages.send(Err(Status::internal(error.to_string()))).await;
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    /// Sends all pages, as long as they are read.
    async fn send_events(
        &self,
        mut query: EventQuery,
        nodes: Option<&BTreeSet<String>>,
        pages: &Pages,
    ) -> Result<(), StoreError> {
        loop {
            let events = self.accounting.node_events(&query).await?;
            let is_last = events.len() < Query::PAGE as usize;
            query.after = events.last().map(|last| (last.started, last.node.clone(), last.state.clone()));
            let wanted = |event: &NodeEvent| nodes.is_none_or(|nodes| nodes.contains(&event.node));
            let events: Vec<v1::NodeEvent> = events.into_iter().filter(wanted).map(wire).collect();
            if pages.send(Ok(v1::ListNodeEventsResponse { events })).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

fn wire(event: NodeEvent) -> v1::NodeEvent {
    let NodeEvent { node, started, ended, state, reason, user } = event;
    v1::NodeEvent { node, start: started, end: ended, state, reason, user }
}
