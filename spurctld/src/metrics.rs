//! Numbers for whoever watches over the controller: `/metrics` in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::Duration;

use spur_core::cluster::Cluster;
use spur_proto::convert::node;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::replica::Replica;
use crate::stop::Stop;

/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request that is read.
const LONGEST_REQUEST: u64 = 8 << 10;

/// What there is to tell.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) replica: Replica,
    /// The controller's reign.
    pub(crate) epoch: u64,
}

impl Metrics {
    /// Answers until the controller stops.
    pub(crate) async fn serve(self, listener: TcpListener, stop: Stop) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.wished() => return,
            };
            let Ok((stream, _)) = accepted else { continue };
            let metrics = self.clone();
            tokio::spawn(async move {
                // A client that does not ask in time, or goes away, gets no answer.
                let _ = tokio::time::timeout(PATIENCE, metrics.answer(stream)).await;
            });
        }
    }

    async fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        let mut limited = (&mut stream).take(LONGEST_REQUEST);
        limited.read_line(&mut request).await?;
        let mut header = String::new();
        while limited.read_line(&mut header).await? > 2 {
            header.clear();
        }
        let (status, body) = match request.split_whitespace().collect::<Vec<_>>()[..] {
            ["GET", "/metrics", ..] => ("200 OK", self.text()),
            ["GET", ..] => ("404 Not Found", "there is /metrics\n".to_owned()),
            _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    }

    fn text(&self) -> String {
        let cluster = self.replica.read();
        let mut text = Text::default();
        text.gauge("spur_epoch", "Reign of this controller.", [("", self.epoch)]);
        text.gauge("spur_journal_seq", "Last entry of the journal that is durable.", [("", cluster.seq())]);
        let jobs = [("pending", cluster.jobs().pending_count()), ("active", cluster.jobs().active().count())];
        text.gauge("spur_jobs", "Jobs by what they do.", jobs.map(|(state, count)| (state, count)));
        text.gauge("spur_nodes", "Nodes by Slurm's state.", nodes(&cluster));
        let cpus = |count: fn(&spur_core::cluster::Node) -> u32| {
            cluster
                .nodes()
                .iter()
                .filter(|node| node.configured)
                .map(|node| u64::from(count(node)))
                .sum::<u64>()
        };
        let (all, free) = (cpus(|node| node.shape.cpus), cpus(|node| node.free_cpus().len()));
        let by_use = [("allocated", all.saturating_sub(free)), ("free", free)];
        text.gauge("spur_cpus", "CPUs of configured nodes by use.", by_use);
        text.0
    }
}

fn nodes(cluster: &Cluster) -> BTreeMap<&'static str, u64> {
    let mut states = BTreeMap::new();
    for found in cluster.nodes().iter().filter(|node| node.configured) {
        *states.entry(node::state(cluster, found, false)).or_default() += 1;
    }
    states
}

#[derive(Default)]
struct Text(String);

impl Text {
    /// A number for each state; one alone has no state.
    fn gauge<'a>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'a str, impl Display)>,
    ) {
        let text = &mut self.0;
        // Writing into a string cannot fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (state, value) in values {
            let _ = match state {
                "" => writeln!(text, "{name} {value}"),
                state => writeln!(text, "{name}{{state=\"{state}\"}} {value}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_prometheus() {
        let metrics = Metrics { replica: Replica::new(Cluster::default()), epoch: 7 };
        let text = metrics.text();
        assert!(text.contains("# TYPE spur_epoch gauge\nspur_epoch 7\n"), "{text}");
        assert!(text.contains("spur_jobs{state=\"pending\"} 0\n"), "{text}");
    }
}
