//! The node's place in the network, as far as `[agent] report` asks for it: the NVLink clique of its GPUs,
//! its LLDP neighbours, and its InfiniBand ports.
//!
//! Tools and files are read when spurd starts, when its configuration changes, and once per [`EVERY`]. A
//! reading that fails leaves the previous one in force.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use spur_core::model::config::Reported;
use spur_core::model::fabric_report::{FabricReport, IbPort, MAX_NEIGHBOURS, MAX_PORTS, MAX_TEXT, Neighbour};
use spur_core::text::clique;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::watch;

use super::inventory::Kernel;
use crate::settings::Settings;

/// Time between two readings, in which lldpd hears of a new neighbour and drivers join their fabric.
const EVERY: Duration = Duration::from_secs(300);
/// Longest run time of a tool. `nvidia-smi` initializes the driver first, if no other process uses it.
const LIMIT: Duration = Duration::from_secs(20);
/// Largest output of a tool, in bytes.
const OUTPUT: u64 = 1 << 20;
/// The command that prints the neighbours; its format `json0` has a list at each level, however many entries
/// there are.
const LLDP: [&str; 5] = ["lldpcli", "-f", "json0", "show", "neighbors"];

/// Reads the node's place, then repeats that in the background for as long as there are settings.
pub(crate) async fn follow(
    mut settings: watch::Receiver<Arc<Settings>>,
    kernel: Kernel,
) -> watch::Receiver<FabricReport> {
    let mut reader = Reader { kernel, said: BTreeMap::new() };
    let now = Arc::clone(&settings.borrow_and_update());
    let first = reader.read(&now.agent.report, &FabricReport::default()).await;
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        let mut now = now;
        loop {
            tokio::select! {
                changed = settings.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(EVERY), if !now.agent.report.is_empty() => {}
            }
            now = Arc::clone(&settings.borrow_and_update());
            let before = sender.borrow().clone();
            let read = reader.read(&now.agent.report, &before).await;
            sender.send_if_modified(|report| {
                let is_new = *report != read;
                *report = read;
                is_new
            });
        }
    });
    receiver
}

struct Reader {
    kernel: Kernel,
    /// The last problem logged for each part, so that a lasting one is logged once.
    said: BTreeMap<Reported, String>,
}

impl Reader {
    /// Reads the parts that are asked for. A part that cannot be read stays as it was.
    async fn read(&mut self, asked: &[Reported], before: &FabricReport) -> FabricReport {
        let mut report = FabricReport::default();
        for part in asked {
            let problem = match part {
                Reported::Nvlink => {
                    match output(&clique::COMMAND).await.and_then(|text| clique::of_node(&text)) {
                        Ok(clique) => {
                            report.clique = clique.unwrap_or_default().into();
                            None
                        }
                        Err(problem) => {
                            report.clique = Arc::clone(&before.clique);
                            Some(problem)
                        }
                    }
                }
                Reported::Lldp => match output(&LLDP).await.and_then(|text| neighbours(&text)) {
                    Ok(neighbours) => {
                        report.neighbours = neighbours;
                        None
                    }
                    Err(problem) => {
                        report.neighbours.clone_from(&before.neighbours);
                        Some(problem)
                    }
                },
                Reported::Ib => {
                    report.ports = self.kernel.ib_ports();
                    None
                }
            };
            self.log(*part, problem);
        }
        let (neighbours, ports) = (report.neighbours.len(), report.ports.len());
        if neighbours > MAX_NEIGHBOURS || ports > MAX_PORTS {
            tracing::warn!(
                neighbours,
                ports,
                "only {MAX_NEIGHBOURS} neighbours and {MAX_PORTS} ports are reported"
            );
            report.neighbours.truncate(MAX_NEIGHBOURS);
            report.ports.truncate(MAX_PORTS);
        }
        report
    }

    fn log(&mut self, part: Reported, problem: Option<String>) {
        match problem {
            None => drop(self.said.remove(&part)),
            Some(problem) => {
                if self.said.get(&part) != Some(&problem) {
                    tracing::warn!("[agent] report = \"{}\": {problem}", part.name());
                }
                self.said.insert(part, problem);
            }
        }
    }
}

/// Runs a tool and returns its standard output.
///
/// # Errors
/// A sentence with the name of the tool.
async fn output(words: &[&str]) -> Result<String, String> {
    let failed = |why: String| format!("{}: {why}", words[0]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdout = child.stdout.take().expect("it is a pipe");
    let mut text = Vec::new();
    let run = async {
        stdout.take(OUTPUT).read_to_end(&mut text).await?;
        child.wait().await
    };
    match tokio::time::timeout(LIMIT, run).await {
        Err(_) => Err(failed(format!("not over after {} s, killed", LIMIT.as_secs()))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Ok(Ok(status)) if !status.success() => Err(failed(status.to_string())),
        Ok(Ok(_)) => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// The output of `lldpcli -f json0 show neighbors`.
#[derive(Deserialize)]
struct Output {
    lldp: Vec<Interfaces>,
}

#[derive(Deserialize)]
struct Interfaces {
    #[serde(default)]
    interface: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    name: String,
    #[serde(default)]
    chassis: Vec<Chassis>,
    #[serde(default)]
    port: Vec<Port>,
}

#[derive(Deserialize)]
struct Chassis {
    #[serde(default)]
    id: Vec<Value>,
    #[serde(default)]
    name: Vec<Value>,
    #[serde(default)]
    capability: Vec<Capability>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    id: Vec<Value>,
    #[serde(default)]
    descr: Vec<Value>,
}

#[derive(Deserialize)]
struct Value {
    #[serde(default, rename = "type")]
    kind: String,
    value: String,
}

#[derive(Deserialize)]
struct Capability {
    #[serde(rename = "type")]
    kind: String,
    enabled: bool,
}

/// Reads the switches among the neighbours. A neighbour that neither bridges nor routes is no switch, unless
/// it names no capability at all.
///
/// # Errors
/// A sentence about a text in another format.
fn neighbours(text: &str) -> Result<Vec<Neighbour>, String> {
    let output: Output = serde_json::from_str(text).map_err(|error| format!("{}: {error}", LLDP[0]))?;
    let mut found = Vec::new();
    for interface in output.lldp.into_iter().flat_map(|list| list.interface) {
        for chassis in &interface.chassis {
            let forwards = |of: &Capability| of.enabled && matches!(&*of.kind, "Bridge" | "Router");
            let is_switch = chassis.capability.is_empty() || chassis.capability.iter().any(forwards);
            let Some(name) = chassis.name.first().or(chassis.id.first()).filter(|_| is_switch) else {
                continue;
            };
            let port = interface.port.first().and_then(|port| {
                let named = port.id.first().filter(|id| id.kind != "mac");
                named.or(port.descr.first()).or(port.id.first())
            });
            found.push(Neighbour {
                switch: clean(&name.value),
                port: port.map(|port| clean(&port.value)).unwrap_or_default(),
                interface: clean(&interface.name),
            });
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// A text without control characters, of at most the length that reports may have.
fn clean(text: &str) -> Arc<str> {
    let mut clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.truncate(clean.floor_char_boundary(MAX_TEXT));
    clean.into()
}

impl Kernel {
    /// Returns the ports of the node's InfiniBand adapters, by name and number. Ports of another link layer,
    /// such as Ethernet, have no GUID.
    pub(crate) fn ib_ports(&self) -> Vec<IbPort> {
        let base = "sys/class/infiniband";
        let mut found = Vec::new();
        for device in self.names(base) {
            let node_guid = self.line(format!("{base}/{device}/node_guid")).and_then(|guid| guid_of(&guid));
            for number in self.names(format!("{base}/{device}/ports")) {
                let port = format!("{base}/{device}/ports/{number}");
                let layer = self.line(format!("{port}/link_layer"));
                // The lower half of the first GID is the GUID of the port.
                let gid = self.line(format!("{port}/gids/0")).and_then(|gid| gid.parse::<Ipv6Addr>().ok());
                let (Ok(number), Some(gid)) = (number.parse(), gid) else { continue };
                if layer.is_none_or(|layer| layer == "InfiniBand") {
                    let guid = u64::try_from(gid.to_bits() & u128::from(u64::MAX)).unwrap_or_default();
                    let (device, node_guid) = (clean(&device), node_guid.unwrap_or_default());
                    found.push(IbPort { device, number, node_guid, guid });
                }
            }
        }
        found.sort();
        found
    }
}

/// Reads a GUID such as `b859:9f03:00d4:2fa2`.
fn guid_of(text: &str) -> Option<u64> {
    u64::from_str_radix(&text.replace(':', ""), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::inventory::tests::tree;
    use super::*;

    #[test]
    fn neighbours_that_forward_are_switches() {
        let text = include_str!("../../../tests/data/lldp/bridge.json");
        let one = Neighbour { switch: "hostB".into(), port: "vB".into(), interface: "vA".into() };
        assert_eq!(neighbours(text), Ok(vec![one.clone()]));
        for (text, expected) in [
            (text.replace("\"enabled\": true", "\"enabled\": false"), vec![]),
            (text.replace("\"capability\"", "\"other\""), vec![one.clone()]),
            (
                text.replace("\"name\": [", "\"nickname\": ["),
                vec![Neighbour { switch: "fa:83:fc:4c:22:1e".into(), ..one.clone() }],
            ),
            (text.replace("hostB", "host\\u0007B"), vec![Neighbour { switch: "host B".into(), ..one }]),
            (r#"{"lldp": [{}]}"#.to_owned(), vec![]),
        ] {
            assert_eq!(neighbours(&text), Ok(expected), "{text}");
        }
        assert!(neighbours("no lldpd").unwrap_err().starts_with("lldpcli: "));
    }

    #[test]
    fn infiniband_ports_have_guids() {
        let (_root, kernel) = tree(&[
            ("sys/class/infiniband/mlx5_1/node_guid", "b859:9f03:00d4:2fa2\n"),
            ("sys/class/infiniband/mlx5_1/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00d4:2fa3\n"),
            ("sys/class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand\n"),
            ("sys/class/infiniband/mlx5_0/node_guid", "b859:9f03:00d4:2fa0\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ]);
        let (node_guid, guid) = (0xb859_9f03_00d4_2fa2, 0xb859_9f03_00d4_2fa3);
        assert_eq!(kernel.ib_ports(), [IbPort { device: "mlx5_1".into(), number: 1, node_guid, guid }]);
        assert_eq!(tree(&[]).1.ib_ports(), []);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(clean(&"é".repeat(200)).len(), MAX_TEXT - 1);
    }
}
