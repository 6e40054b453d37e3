//! The command `sinfo`: lists partitions and nodes, and with `--topology` the free nodes in each domain of
//! the fabric.

mod fabric;
mod group;

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use spur_core::text::hostlist::{HostExpr, HostList};
use spur_proto::v1::{ListTopologyRequest, Node, Partition, Reservation, Topology, WatchClusterRequest};

use super::clusters;
use super::follow;
use super::listing::{self, Common, Listing};
use super::query::{self, Asked};
use super::scontrol::show_reservation;
use crate::error::Failure;
use crate::format::fields::node::{self, in_use, starred};
use crate::format::json::{self, Wish};
use crate::format::{Columns, Format, Show, Sort, table, value};
use crate::options::{CommandLine, Opt, Settled};
use crate::session::Session;

/// Minimum width of columns of names.
const NAME_WIDTH: usize = 9;

/// States of the option `-t`, with both of their names.
const STATES: [&str; 40] = [
    "alloc",
    "allocated",
    "blocked",
    "boot",
    "boot^",
    "cloud",
    "comp",
    "completing",
    "down",
    "drain",
    "drained",
    "draining",
    "drng",
    "fail",
    "failg",
    "failing",
    "futr",
    "future",
    "idle",
    "maint",
    "mix",
    "mixed",
    "no_respond",
    "perfctrs",
    "power_down",
    "power_up",
    "powered_down",
    "powering_down",
    "powering_up",
    "reboot",
    "reboot^",
    "reboot_issued",
    "reboot_requested",
    "inval",
    "planned",
    "plnd",
    "reserved",
    "resv",
    "unk",
    "unknown",
];

/// Values of the options.
#[derive(Default)]
pub struct Query {
    columns: Option<Columns>,
    sort: Option<String>,
    partitions: Vec<String>,
    nodes: Option<String>,
    /// Alternative combinations of states.
    states: Vec<Vec<Wanted>>,
    /// States as given.
    written_states: String,
    /// `--helpstate`: true to print only the names of states.
    help_states: bool,
    dead: bool,
    responding: bool,
    exact: bool,
    long: bool,
    by_node: bool,
    summary: bool,
    reasons: bool,
    topology: Option<String>,
    reservations: bool,
    no_header: bool,
    common: Common,
    iterate: Option<Duration>,
    /// True to print a page after each change (`--watch`).
    watch: bool,
}

impl Listing for Query {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// Command line of `sinfo`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "sinfo",
    synopsis: "[OPTIONS]",
    about: "Shows partitions and nodes.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &["SINFO_", "SLURM_CLUSTERS"],
    permute: true,
};

type QueryOpt = Opt<Query>;

const OPTIONS: &[QueryOpt] = &[
    listing::all(&["SINFO_ALL"]),
    QueryOpt::flag("dead", Some('d'), "only nodes that do not respond", |q, _| {
        q.dead = true;
        Ok(())
    }),
    QueryOpt::flag("exact", Some('e'), "a line for each configuration of nodes", |q, _| {
        q.exact = true;
        Ok(())
    }),
    QueryOpt::value("format", Some('o'), "FORMAT", "columns as %[.][width]X", |q, text| {
        q.columns = Some(Columns::Letters(text.to_owned()));
        Ok(())
    })
    .env(&["SINFO_FORMAT"]),
    QueryOpt::value("Format", Some('O'), "NAMES", "columns as name[:[.][width]],…", |q, text| {
        q.columns = Some(Columns::Names(text.to_owned()));
        Ok(())
    }),
    QueryOpt::flag("watch", None, listing::WATCH, |q, _| {
        q.watch = true;
        Ok(())
    }),
    QueryOpt::value("iterate", Some('i'), "SECONDS", "again and again, with a time stamp", |q, text| {
        q.iterate = Some(query::interval(text)?);
        Ok(())
    }),
    listing::clusters(),
    listing::federation(&["SINFO_FEDERATION"]),
    listing::hide(),
    listing::local(&["SINFO_LOCAL"]),
    // Memory is in megabytes in any case.
    QueryOpt::flag("noconvert", None, "amounts of memory in megabytes", |_, _| Ok(())),
    listing::verbose(),
    listing::json(),
    listing::yaml(),
    QueryOpt::flag("list-reasons", Some('R'), "why nodes are down or drained", |q, _| {
        q.reasons = true;
        Ok(())
    }),
    QueryOpt::flag("long", Some('l'), "more columns", |q, _| {
        q.long = true;
        Ok(())
    }),
    QueryOpt::flag("Node", Some('N'), "a line for each node", |q, _| {
        q.by_node = true;
        Ok(())
    }),
    QueryOpt::value("nodes", Some('n'), "NODES", "only these nodes", |q, text| {
        text.parse::<HostExpr>().map_err(|e| e.to_string())?;
        q.nodes = Some(text.to_owned());
        Ok(())
    }),
    QueryOpt::flag("noheader", Some('h'), "no header", |q, _| {
        q.no_header = true;
        Ok(())
    }),
    QueryOpt::value("partition", Some('p'), "NAMES", "only these partitions", |q, text| {
        q.partitions = query::list(text);
        Ok(())
    })
    .env(&["SINFO_PARTITION"]),
    QueryOpt::flag("responding", Some('r'), "only nodes that respond", |q, _| {
        q.responding = true;
        Ok(())
    }),
    QueryOpt::value("sort", Some('S'), "LETTERS", "the order, e.g. #P,-t", |q, text| {
        q.sort = Some(text.to_owned());
        Ok(())
    })
    .env(&["SINFO_SORT"]),
    QueryOpt::value("states", Some('t'), "STATES", "only nodes in one of these states", |q, text| {
        q.states = states(text)?;
        text.clone_into(&mut q.written_states);
        Ok(())
    }),
    QueryOpt::flag("helpstate", None, "list the states that --states takes", |q, _| {
        q.help_states = true;
        Ok(())
    }),
    QueryOpt::flag("future", Some('F'), "nodes in the state FUTURE, too", |_, _| Ok(()))
        .without_effect("a node is known or it is not; none is in that state"),
    QueryOpt::flag("summarize", Some('s'), "a line for each partition", |q, _| {
        q.summary = true;
        Ok(())
    }),
    QueryOpt::flag("reservation", Some('T'), "reservations of nodes and time", |q, _| {
        q.reservations = true;
        Ok(())
    }),
    QueryOpt::value("topology", None, "NAME", "what is free in each domain of the fabric", |q, text| {
        q.topology = Some(text.to_owned());
        Ok(())
    })
    .optional(),
];

/// A state that a node must have or must not have.
struct Wanted {
    state: String,
    holds: bool,
}

/// Parses `idle,drain&~no_respond`. `,` and `|` separate alternatives, `&` and `+` join states, and `~` and
/// `!` negate a state.
fn states(text: &str) -> Result<Vec<Vec<Wanted>>, String> {
    let alternatives = query::list(&text.replace('|', ","));
    if alternatives.iter().any(|word| word.eq_ignore_ascii_case("all")) {
        return Ok(Vec::new());
    }
    let all_of = |alternative: &String| {
        let states = alternative.split(['&', '+']).map(|word| {
            let state = word.trim();
            let name = state.trim_start_matches(['~', '!']);
            let holds = (state.len() - name.len()) % 2 == 0;
            let state = name.trim().to_lowercase();
            if STATES.contains(&state.as_str()) {
                return Ok(Wanted { state, holds });
            }
            Err(format!("Bad state string: \"{word}\"\nvalid states: {}", STATES.join(",")))
        });
        states.collect()
    };
    alternatives.iter().map(all_of).collect()
}

/// States that hide the state by allocation.
const BESIDE: [&str; 2] = ["drained", "drain"];

/// True if a node is in a state of the option `-t`.
fn is_in(node: &Node, state: &str) -> bool {
    match state {
        // The state by allocation also counts: `idle&drain`.
        "idle" => node.state == "idle" || (BESIDE.contains(&node.state.as_str()) && in_use(node) == "IDLE"),
        "no_respond" => node.not_responding,
        "power_down" | "powered_down" | "powering_down" | "powering_up" => {
            node.power.eq_ignore_ascii_case(state)
        }
        "boot" | "reboot" | "reboot_requested" => node.power == "REBOOT_REQUESTED",
        "boot^" | "reboot^" | "reboot_issued" => node.power == "REBOOT_ISSUED",
        "drain" => node.state.starts_with("drain"),
        // As with Slurm, this includes partly allocated and draining nodes.
        "alloc" | "allocated" => matches!(node.state.as_str(), "allocated" | "mixed" | "draining"),
        "comp" => node.state == "completing",
        "mix" | "mixed" => node.state == "mixed",
        "drng" => node.state == "draining",
        "failg" => node.state == "failing",
        "futr" => node.state == "future",
        "plnd" => node.state == "planned",
        "resv" | "reserved" => {
            node.state == "reserved" || (!node.reservation.is_empty() && !node.maintenance)
        }
        "maint" => node.maintenance,
        "unk" => node.state == "unknown",
        _ => node.state == state,
    }
}

impl Query {
    /// Parses the words after `sinfo` and the environment.
    ///
    /// # Errors
    /// An invalid option.
    pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Asked<Query>> {
        let mut query = Query::default();
        let operands = match LINE.settle(words, env, &mut query)? {
            Settled::Show(text) => return Ok(Asked::Show(text)),
            Settled::Run(operands) => operands,
        };
        query::no_operands(operands.into_iter())?;
        if query.common.wish.is_some_and(|wish| wish.list) {
            return Ok(Asked::Show(Wish::list()));
        }
        if query.help_states {
            return Ok(Asked::Show(STATES.map(|state| format!("{}\n", state.to_uppercase())).concat()));
        }
        if query.dead && query.responding {
            return Err(Failure::new("--dead and --responding exclude each other; give one of them").into());
        }
        Ok(Asked::Run(query))
    }

    /// Returns the name of the topology to print instead of nodes; empty for the default one; `None` to print
    /// nodes.
    pub fn topology(&self) -> Option<&str> {
        self.topology.as_deref()
    }

    /// True if reservations are printed instead of nodes.
    pub fn shows_reservations(&self) -> bool {
        self.reservations
    }

    /// Returns the text for reservations.
    pub fn reservations_text(&self, reservations: &[Reservation], show: &Show) -> String {
        match self.common.wish {
            Some(wish) => wish.listing(
                show,
                "reservations",
                reservations,
                reservations.iter().map(json::other::reservation),
            ),
            None => show_reservation::table(reservations, !self.no_header, show),
        }
    }

    /// Returns the nodes given by `-n`; `None` without the option.
    pub fn nodes(&self) -> Option<&str> {
        self.nodes.as_deref()
    }

    /// Returns the text for a topology.
    pub fn topology_text(&self, topology: &Topology) -> String {
        fabric::text(topology, self.common.wish, !self.no_header)
    }

    /// Returns the text for these partitions and nodes; `wanted` are the nodes given by `-n`.
    ///
    /// # Errors
    /// A format or an order with an unknown field.
    pub fn text(
        &self,
        partitions: Vec<Partition>,
        nodes: Vec<Node>,
        wanted: Option<&HostList>,
        show: &Show,
    ) -> anyhow::Result<String> {
        let names = wanted.map(|list| list.iter().collect::<std::collections::BTreeSet<_>>());
        let chosen = |partition: &String| self.partitions.is_empty() || self.partitions.contains(partition);
        let admitted = |node: &Node| {
            names.as_ref().is_none_or(|names| names.contains(&node.name))
                && node.partitions.iter().any(chosen)
                && self.admits(node)
        };
        let nodes: Vec<Rc<Node>> = nodes.into_iter().filter(admitted).map(Rc::new).collect();
        let partitions: Vec<Rc<Partition>> =
            partitions.into_iter().filter(|p| chosen(&p.name)).map(Rc::new).collect();
        if let Some(wish) = self.common.wish.filter(|wish| wish.spur) {
            let nodes: Vec<&Node> = nodes.iter().map(Rc::as_ref).collect();
            let partitions: Vec<&Partition> = partitions.iter().map(Rc::as_ref).collect();
            let kinds = [("nodes", json::to_value(nodes)), ("partitions", json::to_value(partitions))];
            return Ok(wish.own_as_of(show.stale, kinds));
        }
        let format = match &self.columns {
            Some(columns) => columns.read(&node::TABLE),
            None => Format::letters(&self.default_format(&partitions, &nodes), &node::TABLE),
        };
        let single = self.by_node;
        let mut rows = group::rows(&partitions, &nodes, &format, self.exact, single, show);
        if single || self.reasons {
            rows.retain(|row| !row.nodes.is_empty());
        }
        let sort = self.sort.as_deref().unwrap_or(if single { "N" } else { "#P,-t" });
        let sort = Sort::parse(sort, &node::TABLE, Some(node::CONFIGURED)).map_err(Failure::new)?;
        sort.apply(&mut rows, show);
        if let Some(wish) = self.common.wish {
            let rows = json::Part::records(rows.iter().map(|row| json::node::row(row, show)));
            return Ok(wish.slurm(show, [("sinfo", rows)]));
        }
        let text = table::render(&format, &rows, !self.no_header, show);
        let dated = self.iterate.is_some() || (self.long && !self.no_header);
        let end = if self.iterate.is_some() || self.watch { "\n" } else { "" };
        Ok(if dated { format!("{}\n{text}{end}", value::date_line(show)) } else { text })
    }

    fn admits(&self, node: &Node) -> bool {
        let in_state =
            |all_of: &Vec<Wanted>| all_of.iter().all(|wanted| is_in(node, &wanted.state) == wanted.holds);
        let gone = ["down", "drain", "fail"].iter().any(|state| node.state.starts_with(state));
        (self.states.is_empty() || self.states.iter().any(in_state))
            && (!self.dead || node.not_responding)
            && (!self.responding || !node.not_responding)
            && (!self.reasons || (!node.reason.is_empty() && (gone || !self.states.is_empty())))
    }

    fn default_format(&self, partitions: &[Rc<Partition>], nodes: &[Rc<Node>]) -> String {
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).max(NAME_WIDTH);
        let p = longest(&mut partitions.iter().map(|partition| starred(partition).chars().count()));
        let n = longest(&mut nodes.iter().map(|node| node.name.chars().count()));
        match self {
            Query { reasons: true, long: true, .. } => "%20E %12U %19H %6t %N".to_owned(),
            Query { reasons: true, .. } => "%20E %9u %19H %N".to_owned(),
            Query { summary: true, .. } => format!("%{p}P %.5a %.10l %.16F %N"),
            Query { by_node: true, long: true, .. } => {
                format!("%{n}N %.6D %.{p}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E")
            }
            Query { by_node: true, .. } => format!("%{n}N %.6D %.{p}P %6t"),
            Query { long: true, .. } => {
                format!("%{p}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N")
            }
            _ => format!("%{p}P %.5a %.10l %.6D %.6t %N"),
        }
    }

    async fn page(&self, session: &mut Session) -> anyhow::Result<String> {
        let named = &self.common.clusters;
        if named.is_empty() {
            return self.page_of_one(session).await;
        }
        let headed = !self.no_header && self.common.wish.is_none();
        clusters::pages(session, named, headed, async |session: &mut Session, _: &str| {
            self.page_of_one(session).await
        })
        .await
    }

    async fn page_of_one(&self, session: &mut Session) -> anyhow::Result<String> {
        let mut show = query::show(&|name| session.env(name))?;
        let named = |columns: &Columns| columns.read(&node::TABLE).shows("Cluster");
        if self.common.wish.is_some() || self.columns.as_ref().is_some_and(named) {
            query::identify(session, &mut show).await?;
        }
        if let Some(name) = &self.topology {
            let request = ListTopologyRequest { name: name.clone(), ..ListTopologyRequest::default() };
            let topology = query::topology(session.connection()?, request).await?;
            if topology.domains.is_empty() && self.common.wish.is_none() {
                return Err(
                    Failure::new("There is no topology; [topology] in spur.toml describes one").into()
                );
            }
            return Ok(self.topology_text(&topology));
        }
        if self.reservations {
            let found = query::reservations(session.connection()?).await?;
            return Ok(self.reservations_text(&found, &show));
        }
        let wanted = match &self.nodes {
            Some(text) => Some(query::expand(session, &text.parse()?).await?),
            None => None,
        };
        let connection = session.connection()?;
        // A named partition is printed even if it is hidden.
        let only_visible = !self.common.all && self.partitions.is_empty();
        let partitions = query::partitions(connection, only_visible).await?;
        let nodes = query::nodes(connection, "").await?;
        let told = self.told(&show);
        Ok(format!("{told}{}", self.text(partitions, nodes, wanted.as_ref(), &show)?))
    }

    /// Prints a page, and another one after each change, until interrupted.
    async fn watch(&self, session: &mut Session) -> anyhow::Result<()> {
        clusters::only(session, &self.common.clusters).await?;
        if self.topology.is_some() || self.reservations {
            let text = "--watch follows nodes, neither --topology nor --reservation; give --iterate";
            return Err(Failure::new(text).into());
        }
        let wanted = match &self.nodes {
            Some(text) => Some(query::expand(session, &text.parse()?).await?),
            None => None,
        };
        let only_visible = !self.common.all && self.partitions.is_empty();
        let request = WatchClusterRequest { nodes: "ALL".to_owned(), ..WatchClusterRequest::default() };
        let (mut partitions, mut begun) = (Vec::new(), 0);
        let page = async |session: &mut Session, picture: &follow::Picture| {
            let mut show = query::show(&|name| session.env(name))?;
            if self.common.wish.is_some() {
                query::identify(session, &mut show).await?;
            }
            if begun != picture.begun {
                partitions = query::partitions(session.connection()?, only_visible).await?;
                begun = picture.begun;
            }
            self.text(partitions.clone(), picture.nodes.values().cloned().collect(), wanted.as_ref(), &show)
        };
        follow::pages(session, request, page).await
    }

    /// Lines that `--verbose` prints before the nodes: the options and the time.
    fn told(&self, show: &Show) -> String {
        if !self.common.verbose || self.common.wish.is_some() {
            return String::new();
        }
        let settings = [
            ("dead", self.dead.to_string()),
            ("exact", u8::from(self.exact).to_string()),
            ("format", self.columns.as_ref().map_or_else(String::new, |columns| columns.text().to_owned())),
            ("iterate", self.iterate.map_or(0, |every| every.as_secs()).to_string()),
            ("long", self.long.to_string()),
            ("no_header", self.no_header.to_string()),
            ("node_format", self.by_node.to_string()),
            ("nodes", self.nodes.clone().unwrap_or_else(|| "n/a".to_owned())),
            (
                "partition",
                if self.partitions.is_empty() { "n/a".to_owned() } else { self.partitions.join(",") },
            ),
            ("responding", self.responding.to_string()),
            ("states", self.written_states.clone()),
            ("sort", self.sort.clone().unwrap_or_default()),
            ("summarize", self.summary.to_string()),
            ("verbose", "1".to_owned()),
        ];
        format!("{}{}\n", listing::asked(&settings), value::date_line(show))
    }
}

/// Runs `sinfo`.
///
/// # Errors
/// An invalid option, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    session.asks("slurm_load_partitions");
    let query = match Query::read(&words, &|name| session.env(name))? {
        Asked::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
        Asked::Run(query) => query,
    };
    let complaints = query.columns.as_ref().map(|columns| columns.read(&node::TABLE).complaints);
    for complaint in complaints.unwrap_or_default() {
        session.error(&complaint);
    }
    if query.watch {
        query.watch(session).await?;
        return Ok(0);
    }
    query::pages(session, query.iterate, async |session: &mut Session| query.page(session).await).await?;
    Ok(0)
}
