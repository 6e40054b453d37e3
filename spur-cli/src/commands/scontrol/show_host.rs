//! The commands `scontrol show aliases`, `daemons` and `slurmd`, about nodes and daemons on a host.

use std::fmt::Write;

use spur_proto::v1::{JobFilter, Node};

use super::{bare, ping};
use crate::commands::query;
use crate::format::Show;
use crate::format::value::time;
use crate::session::Session;
use crate::version;

/// Returns the name of this host without its domain.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    short(&name).to_owned()
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn is_on(node: &Node, host: &str) -> bool {
    short(&node.hostname) == short(host)
}

/// Returns the names of the nodes whose daemons run on this host.
pub(super) async fn nodes_here(session: &mut Session) -> anyhow::Result<Vec<String>> {
    let own = host_name();
    let nodes = query::nodes(session.connection()?, "").await?;
    Ok(nodes.into_iter().filter(|node| is_on(node, &own)).map(|node| node.name).collect())
}

/// Returns a line with the nodes whose daemons run on a host.
pub(super) async fn aliases(session: &mut Session, host: &str) -> anyhow::Result<String> {
    if host.is_empty() {
        return Ok(String::new());
    }
    let nodes = query::nodes(session.connection()?, "").await?;
    let names: Vec<&str> =
        nodes.iter().filter(|node| is_on(node, host)).map(|node| node.name.as_str()).collect();
    Ok(if names.is_empty() { String::new() } else { format!("{}\n", names.join(" ")) })
}

/// Returns Slurm's names of the daemons that run on this host.
pub(super) async fn daemons(session: &mut Session) -> anyhow::Result<String> {
    let (own, controller) = (host_name(), ping(session).await?.hostname);
    let nodes = query::nodes(session.connection()?, "").await?;
    let all =
        [("slurmctld", short(&controller) == own), ("slurmd", nodes.iter().any(|node| is_on(node, &own)))];
    let names: Vec<&str> = all.iter().filter(|(_, here)| *here).map(|(name, _)| *name).collect();
    Ok(format!("{}\n", names.join(" ")))
}

/// Describes the daemon of the named node, or of the first node on this host.
pub(super) async fn slurmd(session: &mut Session, name: &str, show: &Show) -> anyhow::Result<String> {
    let own = host_name();
    let named =
        if name.is_empty() { session.env("SLURMD_NODENAME").unwrap_or_default() } else { name.to_owned() };
    let mut nodes = query::nodes(session.connection()?, &named).await?;
    nodes.retain(|node| !node.not_responding && (!named.is_empty() || is_on(node, &own)));
    let Some(node) = nodes.first() else {
        return Err(bare("slurm_load_slurmd_status: Connection refused").into());
    };
    let filter = JobFilter { nodelist: node.name.clone(), ..JobFilter::default() };
    let steps = query::steps(session.connection()?, filter).await?;
    let steps: Vec<String> = steps.iter().map(|step| format!("{}.{}", step.job_id, step.step_id)).collect();
    Ok(text(node, &steps, show))
}

fn text(node: &Node, steps: &[String], show: &Show) -> String {
    let mut text = String::new();
    let active = if steps.is_empty() { "NONE".to_owned() } else { steps.join(" ") };
    for (key, value) in [
        ("Active Steps", active),
        ("Actual CPUs", node.cpus.to_string()),
        ("Actual Boards", "1".to_owned()),
        ("Actual sockets", node.sockets.to_string()),
        ("Actual cores", node.cores_per_socket.to_string()),
        ("Actual threads per core", node.threads_per_core.to_string()),
        ("Actual real memory", format!("{} MB", node.memory_mb)),
        ("Actual temp disk space", format!("{} MB", node.tmp_disk_mb)),
        ("Boot time", time(node.started_time, "Unknown", show)),
        ("Hostname", node.name.clone()),
        ("Version", version::of_node(&node.version).to_owned()),
        ("Spur version", node.version.clone()),
    ] {
        let _ = writeln!(text, "{key:<24} = {value}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn the_page_has_slurms_keys() {
        let node = Node { name: "n1".into(), cpus: 4, memory_mb: 100, ..Node::default() };
        let page = text(&node, &["7.batch".into()], &Show::new(TimeZone::UTC, 0));
        for line in [
            "Active Steps             = 7.batch",
            "Actual CPUs              = 4",
            "Actual real memory       = 100 MB",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
