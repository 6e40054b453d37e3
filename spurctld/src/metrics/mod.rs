//! Metrics for Prometheus, over HTTP, on the address of `[controller] metrics_addr`.
//!
//! A page is made when it is requested, from counts that the replica and the planner keep, and one read of
//! the nodes. No page reads every job. Pages are made one at a time, so that scrapes cost the controller at
//! most one processor. The replica is locked for a few nodes at a time, so that no reply waits for a page.

mod cluster;
mod fabric;
mod meters;
mod nodes;
mod page;
mod process;
mod slurm;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use spur_core::model::config::Private;
use spur_proto::v1::GetStatisticsResponse;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

use crate::agents::Agents;
use crate::clock;
use crate::holders::Holders;
use crate::inbox::Inbox;
use crate::planner::Overlay;
use crate::replica::Replica;
use crate::statistics::Statistics;
use crate::stop::Stop;
use crate::watchers::Watchers;

use cluster::{ClusterPage, DomainsPage};
pub(crate) use meters::{Decision, Meters, PassKind, strategy_of};
use process::Process;
use slurm::{JobsPage, NodesPage, PartitionsPage, SchedulerPage, UsersPage};

/// Longest time for the headers of a request, and for an idle connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit of concurrent connections; more wait until one of these ends.
const CONNECTIONS: usize = 64;

/// Everything that metrics are read from. Clones share it.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) replica: Replica,
    pub(crate) overlay: Overlay,
    pub(crate) agents: Agents,
    pub(crate) inbox: Inbox,
    pub(crate) watchers: Watchers,
    pub(crate) holders: Holders,
    pub(crate) statistics: Statistics,
    /// The controller's epoch.
    pub(crate) epoch: u64,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Sources {
    /// Returns the figures of `sdiag`; with `reset` they begin again.
    pub(crate) fn figures(&self, reset: bool) -> GetStatisticsResponse {
        let mut figures = self.statistics.figures(reset, clock::wall());
        let nodes = self.agents.figures();
        (figures.agent_queue_size, figures.agent_count) = (nodes.queued, nodes.busy);
        figures.queued = u32::try_from(self.inbox.waiting()).unwrap_or(u32::MAX);
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let seq = self.replica.read().seq();
        figures.accounting_queue_size = self.statistics.unaccounted(seq);
        let tally = self.replica.tally();
        figures.jobs_pending = count(tally.total().of(crate::tally::State::Pending));
        figures.jobs_running = count(tally.total().of(crate::tally::State::Running));
        figures
    }
}

/// One page.
struct Page {
    path: &'static str,
    registry: Registry,
    /// Kinds of private data that make the page unavailable, because a scrape has no caller.
    private: &'static [Private],
}

/// All pages.
pub(crate) struct Metrics {
    replica: Replica,
    pages: Vec<Page>,
    /// Held while a page is made.
    turn: Mutex<()>,
}

impl Metrics {
    /// Returns the pages of a controller that started at `started`, in seconds since the Unix epoch.
    pub(crate) fn new(sources: &Sources, started: i64) -> Self {
        let mut own = registry(ClusterPage(sources.clone()));
        sources.statistics.meters.register(&mut own);
        own.register_collector(Box::new(Process { started }));
        let page = |path, registry, private| Page { path, registry, private };
        let users: &[Private] = &[Private::Users, Private::Accounts, Private::Jobs, Private::Usage];
        let pages = vec![
            page("/metrics", own, &[]),
            page("/metrics/domains", registry(DomainsPage(sources.clone())), &[Private::Nodes]),
            page("/metrics/jobs", registry(JobsPage(sources.clone())), &[]),
            page("/metrics/nodes", registry(NodesPage(sources.clone())), &[Private::Nodes]),
            page("/metrics/partitions", registry(PartitionsPage(sources.clone())), &[Private::Partitions]),
            page("/metrics/scheduler", registry(SchedulerPage(sources.clone())), &[]),
            page("/metrics/jobs-users-accts", registry(UsersPage(sources.clone())), users),
        ];
        Self { replica: sources.replica.clone(), pages, turn: Mutex::default() }
    }

    /// Serves pages until the controller stops.
    pub(crate) async fn serve(self, listener: TcpListener, stop: Stop) {
        let (metrics, room) = (Arc::new(self), Arc::new(Semaphore::new(CONNECTIONS)));
        loop {
            let accepted = async {
                let room = Arc::clone(&room).acquire_owned().await;
                (listener.accept().await, room)
            };
            let (accepted, place) = tokio::select! {
                accepted = accepted => accepted,
                () = stop.wished() => return,
            };
            let Ok((stream, _)) = accepted else { continue };
            let (metrics, stop) = (Arc::clone(&metrics), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = metrics.connection(stream) => {}
                    () = stop.wished() => {}
                }
                drop(place);
            });
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let service = service_fn(|request| {
            let metrics = Arc::clone(&self);
            async move { Ok::<_, Infallible>(metrics.answer(&request).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a connection for metrics has failed");
        }
    }

    async fn answer(self: Arc<Self>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().trim_end_matches('/');
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n".to_owned());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let Some(index) = self.pages.iter().position(|page| page.path == path) else {
            let paths: Vec<_> = self.pages.iter().map(|page| page.path).collect();
            return plain(StatusCode::NOT_FOUND, format!("no page {path}; there are {}\n", paths.join(", ")));
        };
        let hidden = self.pages[index].private.iter().find(|what| self.is_private(**what));
        if let Some(what) = hidden {
            let word = format!("{what:?}").to_lowercase();
            let text = format!("{path} is not served while [controller] private_data has \"{word}\"\n");
            return plain(StatusCode::FORBIDDEN, text);
        }
        let _turn = self.turn.lock().await;
        let metrics = Arc::clone(&self);
        let made = tokio::task::spawn_blocking(move || metrics.pages[index].text()).await;
        match made {
            Ok(Ok(text)) => plain(StatusCode::OK, text),
            Ok(Err(fmt::Error)) | Err(_) => {
                tracing::error!(path, "a page of metrics could not be made");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made\n".to_owned())
            }
        }
    }

    fn is_private(&self, what: Private) -> bool {
        self.replica.read().policy().jobs.private_data.contains(&what)
    }
}

impl Page {
    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn registry(collector: impl Collector) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    registry
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(prometheus_text::CONTENT_TYPE));
    response
}
