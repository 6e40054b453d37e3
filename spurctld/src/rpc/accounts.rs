//! Changes of the policy tree, and lists of the parts that a caller may see.

use std::sync::Arc;

use spur_core::controller::{self, Command, Reject};
use spur_core::model::caller::Caller;
use spur_proto::convert::{accounts, policy_tree, reject};
use spur_proto::v1;
use tonic::Status;

use super::lists::parts;
use super::{Desk, Listing, Name, odd};
use crate::answer::Answer;
use crate::clock;

impl Desk {
    /// Changes the tree, or describes the effect of a change.
    pub(super) async fn change_policy_tree(
        &self,
        caller: Caller,
        request: v1::ChangeAccountsRequest,
    ) -> Result<v1::ChangeAccountsResponse, Status> {
        if request.verb == "modify" && request.entity == "job" {
            return self.annotate(caller, request).await;
        }
        let cluster_name = Arc::clone(&self.replica.read().policy().cluster_name);
        let ask = accounts::read(&cluster_name, &request);
        let ask = ask.map_err(|text| reject::status(&Reject::Accounts(text)))?;
        if request.preview {
            let lines = controller::preview(&self.replica.read(), &caller, &ask);
            let lines = lines.map_err(|refused| reject::status(&refused))?;
            return Ok(v1::ChangeAccountsResponse { lines });
        }
        let name = Name::read(&request.request_id, request.retry)?;
        let shown = request.shown.map(|shown| shown.lines);
        match self.command(caller, name, Command::ChangeAccounts { ask: Box::new(ask), shown }).await? {
            Answer::AccountsChanged { lines } => Ok(v1::ChangeAccountsResponse { lines }),
            other => Err(odd(&other)),
        }
    }

    /// Lists the requested part of the tree, as far as the caller may see it.
    pub(super) fn policy_tree(
        &self,
        caller: &Caller,
        request: &v1::ListAccountsRequest,
    ) -> Result<Listing<v1::ListAccountsResponse>, Status> {
        let rows = {
            let cluster = self.replica.read();
            policy_tree::rows(&cluster, caller, clock::now(&cluster), request)
        };
        let rows = rows.map_err(|text| reject::status(&Reject::Accounts(text)))?;
        let rows: Vec<v1::AccountsRow> =
            rows.into_iter().map(|row| v1::AccountsRow { row: Some(row) }).collect();
        let pages: Vec<_> = parts(rows).map(|rows| Ok(v1::ListAccountsResponse { rows })).collect();
        Ok(Box::pin(tokio_stream::iter(pages)))
    }
}
