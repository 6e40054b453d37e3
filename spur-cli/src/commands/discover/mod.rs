//! The command `spur discover`: writes `[topology]` from the output of network discovery tools, or from the
//! nodes' own reports.
//!
//! The result is printed as TOML. Everything that is left out is listed in comments above it, with its cause.

mod apply;
mod diff;
mod fetch;
mod graph;
mod hosts;
mod ibnet;
mod nvlink;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use spur_core::model::config::Config;
use spur_core::model::topology::{DEFAULT_TOPOLOGY, TopologyConfig};
use spur_core::text::clique;
use spur_core::text::hostlist::HostList;
use spur_proto::client::CallError;
use spur_proto::v1::ListTopologyRequest;

use crate::commands::import::nodes::Nodes;
use crate::commands::import::rails;
use crate::commands::import::source::Notes;
use crate::commands::import::topology::{self, Topologies, Topology};
use crate::commands::import::tree::Switch;
use crate::commands::{called, query};
use crate::options::{CommandLine, Opt, sets};
use crate::place;
use crate::session::Session;
use diff::Shape;
use hosts::Wanted;
use nvlink::Cliques;
use reports::Reports;

/// Name of the topology of NVLink cliques that do not fit into the tree.
const SECOND: &str = "nvl";

/// Options of the command.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// Command to run; empty for the default.
    run: Option<String>,
    file: Option<String>,
    exclude: Vec<String>,
    diff: bool,
    apply: bool,
}

const OPTIONS: [Opt<Wish>; 5] = [
    Opt::<Wish>::value(
        "run",
        None,
        "COMMAND",
        "run COMMAND and read its output; without COMMAND, ibnetdiscover or nvidia-smi on this host",
        |wish, value| {
            wish.run = Some(value.to_owned());
            Ok(())
        },
    )
    .optional(),
    Opt::value(
        "exclude",
        Some('x'),
        "HOSTS",
        "leave these hosts out, such as fabric managers and storage",
        |wish, value| {
            let list: HostList = value.parse().map_err(|error| format!("{error}"))?;
            wish.exclude.extend(list.iter());
            Ok(())
        },
    ),
    Opt::value(
        "file",
        Some('f'),
        "FILE",
        "the spur.toml whose [[nodes]] are looked for; otherwise $SPUR_CONF, or /etc/spur/spur.toml if it is there",
        |wish, value| {
            wish.file = Some(value.to_owned());
            Ok(())
        },
    ),
    Opt::flag(
        "diff",
        None,
        "print what differs from the topology that the controller uses",
        sets!(Wish.diff),
    ),
    Opt::flag(
        "apply",
        None,
        "write the topology into the controller's spur.toml and have the controller read it, as scontrol reconfigure does",
        sets!(Wish.apply),
    ),
];

pub(super) const LINE: CommandLine<Wish> = CommandLine {
    name: "spur discover",
    synopsis: "ibnet FILE|--run | topograph FILE|URL | nvlink FILE|--run | reports …",
    about: "Prints the [topology] that comes of what discovery tools say. ibnet reads the output of ibnetdiscover, topograph \
            what topograph generates (topology.conf, topology.yaml, JSON of its engine graph, or its service at http://HOST:49021), \
            nvlink lines HOST: CLUSTER-UUID, CLIQUE-ID of nvidia-smi. reports are what the nodes report to the controller, which \
            [agent] report has them do. Leaves that serve the same hosts become one domain. With \
            nvlink beside another, NVLink cliques become the lowest layer, nvl. With ibnet beside reports, adapters without a host \
            name get the one of the node that reports their GUID. Comments name everything that is left out.",
    options: &OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Discovery tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Ibnet,
    Topograph,
    Nvlink,
    /// The nodes' own reports, from the controller.
    Reports,
}

impl Tool {
    const ALL: [(&'static str, Tool); 4] = [
        ("ibnet", Tool::Ibnet),
        ("topograph", Tool::Topograph),
        ("nvlink", Tool::Nvlink),
        ("reports", Tool::Reports),
    ];

    fn of_word(word: &str) -> Option<Tool> {
        Tool::ALL.iter().find(|(name, _)| *name == word).map(|(_, tool)| *tool)
    }
}

/// A tool and the file or address of its output; without one, the tool is run.
type Source = (Tool, Option<String>);

/// The node table and its file.
#[derive(Debug, Default)]
struct Table {
    path: String,
    nodes: Option<BTreeSet<String>>,
}

/// Runs `spur discover`.
///
/// # Errors
/// A source that cannot be read or names no host. With `--diff` and `--apply`, no answer of the controller or
/// a refusal.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut wish = Wish::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut wish)? else {
        return Ok(0);
    };
    let sources = sources(&operands, &wish)?;
    let table = Table::load(session, &wish)?;
    if let Some(file) = &wish.file {
        session.set_env([("SPUR_CONF".to_owned(), file.clone())]);
    }
    if wish.apply && table.nodes.is_none() {
        bail!(
            "--apply changes the controller's spur.toml: there is no {}; say with -f where it is",
            table.path
        );
    }
    let wanted = Wanted { nodes: table.nodes.as_ref(), exclude: wish.exclude.iter().cloned().collect() };
    let mut found = Found::default();
    if sources.iter().any(|(tool, _)| *tool == Tool::Reports) {
        let nodes = query::reports(session.connection()?).await?;
        found.take(Reports::read(&nodes, &wanted), &sources, &wanted);
    }
    for (tool, from) in sources.iter().filter(|(tool, _)| *tool != Tool::Reports) {
        let text = text(*tool, from.as_deref(), &wish).await?;
        let name = from.as_deref().unwrap_or("the output of the command");
        found.read(*tool, &text, from.as_deref(), &wanted).with_context(|| name.to_owned())?;
    }
    let (text, summary) = found.written(&wanted)?;
    if !wish.diff && !wish.apply {
        write!(session.out, "{text}")?;
        session.inform(&summary);
        return Ok(0);
    }
    for topology in written(&text)? {
        let differences =
            diff::differences(&running(session, &topology.name).await?, &Shape::written(&topology));
        for difference in &differences {
            writeln!(session.out, "topology {}: {difference}", topology.name)?;
        }
        if differences.is_empty() {
            session.inform(&format!("topology {} is the one that the controller uses", topology.name));
        }
    }
    session.inform(&summary);
    if wish.apply {
        session.out.flush()?;
        apply::apply(session, &table.path, &text).await?;
    }
    Ok(0)
}

/// Returns the named tools, each with the word after it.
fn sources(operands: &[String], wish: &Wish) -> anyhow::Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for word in operands {
        if let Some(tool) = Tool::of_word(word) {
            if sources.iter().any(|(other, _)| *other == tool) {
                bail!("{word} is named twice");
            }
            sources.push((tool, None));
        } else if let Some((tool, from @ None)) = sources.last_mut()
            && *tool != Tool::Reports
        {
            *from = Some(word.clone());
        } else {
            bail!(
                "`{word}` is none of ibnet, topograph, nvlink and reports: spur discover {}",
                LINE.synopsis
            );
        }
    }
    let has = |tool| sources.iter().any(|(other, _)| *other == tool);
    if sources.is_empty() {
        bail!("say what to read: spur discover {}", LINE.synopsis);
    }
    if has(Tool::Ibnet) && has(Tool::Topograph) {
        bail!("ibnet and topograph both say what the tree is: name one of them");
    }
    if has(Tool::Nvlink) && has(Tool::Reports) {
        bail!("nvlink and reports both say what the cliques are: name one of them");
    }
    let without = sources.iter().filter(|(tool, from)| from.is_none() && *tool != Tool::Reports);
    let without: Vec<Tool> = without.map(|(tool, _)| *tool).collect();
    match (&without[..], &wish.run) {
        ([], None) => {}
        ([], Some(_)) => bail!("--run is for ibnet or nvlink without a file: every one has a file"),
        (tools, _) if tools.contains(&Tool::Topograph) => {
            bail!("topograph needs a file or the address of its service, http://HOST:49021")
        }
        (_, None) => bail!("name a file behind ibnet and nvlink, or say --run to run the tool"),
        ([_, _, ..], Some(command)) if !command.is_empty() => {
            bail!("--run={command}: name a file behind ibnet or nvlink, so that the command is one tool's")
        }
        _ => {}
    }
    Ok(sources)
}

impl Table {
    /// Reads the node table, if there is one.
    fn load(session: &Session, wish: &Wish) -> anyhow::Result<Table> {
        let named = wish.file.clone().or_else(|| session.env("SPUR_CONF").filter(|path| !path.is_empty()));
        let path = named.clone().unwrap_or_else(|| Config::DEFAULT_FILE.to_owned());
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Table { path, nodes: None });
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        };
        let config = Config::parse(&text, &path)?;
        let names: BTreeSet<String> = config.policy.nodes.iter().map(|node| node.name.to_string()).collect();
        Ok(Table { path, nodes: Some(names).filter(|names| !names.is_empty()) })
    }
}

/// Returns the output of a tool.
async fn text(tool: Tool, from: Option<&str>, wish: &Wish) -> anyhow::Result<String> {
    match from {
        Some(url) if tool == Tool::Topograph && url.contains("://") => fetch::topograph(url).await,
        Some(path) => fetch::file(path),
        None => {
            let usual =
                if tool == Tool::Ibnet { "ibnetdiscover".to_owned() } else { clique::COMMAND.join(" ") };
            let command = wish.run.as_deref().filter(|command| !command.is_empty());
            fetch::output(command.unwrap_or(&usual))
        }
    }
}

/// Results read so far.
#[derive(Default)]
struct Found {
    topologies: Vec<Topology>,
    cliques: Option<Cliques>,
    /// The node with each InfiniBand adapter, as nodes report them by GUID.
    guids: BTreeMap<u64, String>,
    /// Sentences about everything that is left out.
    left_out: Vec<String>,
    /// Names of the tools, for the first line of the text.
    tools: Vec<&'static str>,
}

impl Found {
    /// Takes the reports of the nodes. Their links to switches make a tree unless another source does.
    fn take(&mut self, reports: Reports, sources: &[Source], wanted: &Wanted<'_>) {
        self.tools.push("reports");
        self.left_out.extend(reports.left_out);
        self.guids = reports.guids;
        if sources.iter().any(|(tool, _)| matches!(tool, Tool::Ibnet | Tool::Topograph)) {
            let ports = reports.cabling.ports.len();
            if ports > 0 {
                self.left_out.push(format!("{ports} links to switches from LLDP, beside another tree"));
            }
        } else if !reports.cabling.ports.is_empty() {
            self.tree(reports.cabling, wanted);
            self.add_root();
        }
        self.cliques = Some(reports.cliques);
    }

    /// Puts all units of the last tree below one root, since LLDP on hosts tells nothing of links between
    /// switches.
    fn add_root(&mut self) {
        let Some(tree) = self.topologies.last_mut() else { return };
        let below: BTreeSet<&String> = tree.switches.iter().flat_map(|switch| &switch.children).collect();
        let units = tree.switches.iter().map(|switch| &switch.name).filter(|name| !below.contains(name));
        let children: Vec<String> = units.cloned().collect();
        if children.len() > 1 {
            tree.switches.push(Switch { name: rails::ROOT.to_owned(), children, ..Switch::default() });
            let said = format!(
                "hosts do not see the links between switches, so all units are below {}",
                rails::ROOT
            );
            self.left_out.push(said);
        }
    }

    /// Reads the output of a tool. Without `from`, the output is that of a command on this host.
    fn read(
        &mut self,
        tool: Tool,
        text: &str,
        from: Option<&str>,
        wanted: &Wanted<'_>,
    ) -> anyhow::Result<()> {
        self.tools.extend(Tool::ALL.iter().find(|(_, other)| *other == tool).map(|(name, _)| *name));
        match tool {
            Tool::Reports => {}
            Tool::Ibnet => {
                let fabric = ibnet::read(text).map_err(|problem| anyhow!(problem))?;
                let (cabling, said) = hosts::cabling(&fabric, wanted, &self.guids);
                self.left_out.extend(said);
                self.tree(cabling, wanted);
            }
            Tool::Topograph if text.trim_start().starts_with('{') && text.contains("\"instances\"") => {
                let (cabling, cliques, said) =
                    graph::read(text, wanted).map_err(|problem| anyhow!(problem))?;
                self.left_out.extend(said);
                self.tree(cabling, wanted);
                if !cliques.is_empty() && self.cliques.is_none() {
                    self.cliques = Some(cliques);
                }
            }
            Tool::Topograph => self.topograph(text, from.unwrap_or_default(), wanted)?,
            Tool::Nvlink => {
                let host = place::hostname();
                let host = host.split('.').next().unwrap_or(&host);
                let local = from.is_none().then_some(host);
                let mut cliques = nvlink::read(text, local).map_err(|problem| anyhow!(problem))?;
                cliques.keep(|host| wanted.refusal(host));
                self.cliques = Some(cliques);
            }
        }
        Ok(())
    }

    /// Adds the tree of a cabling.
    fn tree(&mut self, cabling: rails::Cabling, wanted: &Wanted<'_>) {
        let joined = rails::joined(cabling);
        self.left_out.extend(joined.left_out);
        if wanted.nodes.is_none() {
            let doubtful = joined.doubtful.into_iter();
            let help = "if it is no compute node, leave it out with --exclude";
            self.left_out.extend(
                doubtful.map(|(host, where_it_is)| format!("{host} is doubtful, {where_it_is}; {help}")),
            );
        }
        let mut topology = Topology::named(DEFAULT_TOPOLOGY);
        topology.switches = joined.switches;
        self.topologies.push(topology);
    }

    /// Adds topologies in topograph's output for Slurm.
    fn topograph(&mut self, text: &str, name: &str, wanted: &Wanted<'_>) -> anyhow::Result<()> {
        let mut topologies = topology::of_text(text, name).map_err(|problem| anyhow!(problem))?;
        for topology in &mut topologies {
            if topology.is_default {
                DEFAULT_TOPOLOGY.clone_into(&mut topology.name);
            }
            topology.rename(text);
            self.left_out.extend(topology.keep(|node| wanted.refusal(node)));
            topology.settle();
        }
        self.topologies.extend(topologies);
        Ok(())
    }

    /// Combines trees and cliques; returns the TOML text and a sentence about its size.
    fn written(mut self, wanted: &Wanted<'_>) -> anyhow::Result<(String, String)> {
        if let Some(cliques) = self.cliques.take() {
            self.join(cliques);
        }
        let topologies = Topologies::new(self.topologies);
        let names = topologies.nodes();
        if names.is_empty() {
            let help = match wanted.nodes {
                Some(nodes) => format!(
                    "no node of [[nodes]] is in the network that was read; [[nodes]] begins with {}",
                    nodes.first().map_or("", |name| name)
                ),
                None => "no host is in the network that was read".to_owned(),
            };
            let said = self.left_out.iter().take(3).map(|text| format!("; {text}")).collect::<String>();
            bail!("{help}{said}");
        }
        let placed: BTreeSet<&String> = names.iter().collect();
        let missing = wanted
            .nodes
            .into_iter()
            .flatten()
            .filter(|name| !placed.contains(name) && !wanted.exclude.contains(*name));
        let missing = HostList::from_names(missing).sorted();
        if !missing.is_empty() {
            self.left_out.push(format!("nodes that were not found, and are in no domain: {missing}"));
        }
        if wanted.nodes.is_none() {
            self.left_out.push(
                "without a node table every name of a host counts as a node; -f names a spur.toml".to_owned(),
            );
        }
        let mut notes = Notes::default();
        let mut text = format!("# Found by `spur discover {}`.\n", self.tools.join(" "));
        for sentence in self.left_out.drain(..).filter_map(|text| notes.sentence(text)) {
            let sentence: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(text, "# {sentence}");
        }
        let sections = topologies.sections(&Nodes::of_names(names.clone()), &mut notes);
        for section in sections.iter().filter(|section| !section.is_empty()) {
            let _ = write!(text, "\n{section}");
        }
        let leaves: usize = written(&text)?.iter().map(|topology| Shape::written(topology).leaves()).sum();
        let summary = format!(
            "{} nodes in {leaves} lowest domains; comments name {} things",
            names.len(),
            notes.count()
        );
        Ok((text, summary))
    }

    /// Places cliques below the units of the tree, or into a separate topology.
    fn join(&mut self, mut cliques: Cliques) {
        let is_alone = self.topologies.is_empty();
        let name = match self.topologies.iter_mut().find(|topology| topology.is_tree()) {
            Some(tree) => {
                let crossing = cliques.crossing(&tree.switches);
                if crossing.is_empty() && !cliques.is_empty() {
                    cliques.nest(&mut tree.switches);
                    tree.layers = nvlink::layers(&tree.switches);
                    self.left_out.append(&mut cliques.left_out);
                    return;
                }
                self.left_out.extend(crossing);
                SECOND
            }
            None if is_alone => DEFAULT_TOPOLOGY,
            None => SECOND,
        };
        self.left_out.append(&mut cliques.left_out);
        if cliques.is_empty() {
            return;
        }
        let mut topology = Topology::named(name);
        (topology.blocks, topology.is_block) = (cliques.blocks(), true);
        if name == SECOND {
            let text = format!(
                "A job uses the cliques with --topology={SECOND}, and the other topology then means nothing to it"
            );
            topology.remarks.push(text);
        }
        self.topologies.push(topology);
    }
}

/// Parses the topologies of a text.
///
/// # Errors
/// A text that is not TOML, or has unknown keys.
fn written(text: &str) -> anyhow::Result<Vec<TopologyConfig>> {
    #[derive(Deserialize)]
    struct File {
        topology: Option<TopologyConfig>,
        #[serde(default)]
        topologies: Vec<TopologyConfig>,
    }
    let File { topology, topologies } = toml::from_str(text)?;
    Ok(topology.into_iter().chain(topologies).collect())
}

/// Returns the shape of the controller's topology with this name; empty if there is none.
async fn running(session: &mut Session, name: &str) -> anyhow::Result<Shape> {
    let request = ListTopologyRequest { name: name.to_owned(), ..ListTopologyRequest::default() };
    match query::topology(session.connection()?, request).await {
        Ok(topology) => Ok(Shape::running(&topology)),
        Err(CallError::Refused { .. }) => Ok(Shape::default()),
        Err(error) => Err(error.into()),
    }
}
