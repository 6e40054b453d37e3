//! Answers leave a controller within its lease only: beyond it, another controller may have acknowledged what this one does
//! not know.
//!
//! While the database is away, changes are refused at once, and commands that find no leader may have an old answer, which
//! says of what time it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use spur_proto::refusal;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use crate::clock;
use crate::store::{Condition, Journal};

/// Beginnings of the names of methods that change nothing.
const READS: [&str; 7] = ["List", "Show", "Get", "Ping", "Explain", "TestSubmit", "Watch"];

/// The service of commands, as far as the lease allows it.
#[derive(Clone)]
pub(crate) struct Leased<S> {
    pub(crate) inner: S,
    pub(crate) journal: Journal,
}

impl<S: NamedService> NamedService for Leased<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Leased<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let reads = READS.iter().any(|read| method.starts_with(read));
        let takes_old = reads && request.headers().contains_key(refusal::STALE_KEY);
        let condition = self.journal.condition();
        if !reads && let Condition::Away { .. } = condition {
            return Box::pin(async move { Ok(refuse(&condition)) });
        }
        let answer = self.inner.call(request);
        let journal = self.journal.clone();
        Box::pin(async move {
            let mut answer = answer.await?;
            if journal.may_answer() {
                return Ok(answer);
            }
            let condition = journal.condition();
            match condition {
                Condition::Away { since, .. } if takes_old => {
                    answer.headers_mut().insert(refusal::STALE_KEY, since.0.into());
                    Ok(answer)
                }
                condition => Ok(refuse(&condition)),
            }
        })
    }
}

fn refuse(condition: &Condition) -> http::Response<Body> {
    let status = match condition {
        Condition::Away { since, why } => {
            let seconds = clock::wall().0.saturating_sub(since.0);
            refusal::away(&format!("the database of the controller is away since {seconds} s ({why})"))
        }
        Condition::Well => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            refusal::standby(&host, "", None)
        }
    };
    status.into_http()
}
