//! Reading of `[auth]`, `[agent]`, `[log]`, and the local keys of `[controller]`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::nodes::Nodes;
use super::policy::set;
use super::section::Section;
use crate::model::config::{
    AgentLocal, AuthLocal, AuthMethod, CgroupPlugin, ClusterLocal, ControllerLocal, DatabaseUrl, DeviceFiles,
    HealthState, LogFormat, LogLevel, LogLocal, PostgresState, Reported, State, TlsListener, TlsLocal,
};
use crate::model::idset::IdSet;
use crate::model::node::SHARD;
use crate::text::address::HostPort;
use crate::text::gres::GresSpec;
use crate::text::hostlist::HostList;

/// The name of the state file in a directory that `state` names.
const STATE_FILE: &str = "spur.db";

pub(super) fn controller(section: &mut Section<'_>) -> ControllerLocal {
    let mut local = ControllerLocal::default();
    set!(local.listen_addr => section.parsed("listen_addr"));
    local.addresses = addresses(section).unwrap_or_else(|| vec![local.listen_addr.clone()]);
    local.metrics_addr = section.parsed("metrics_addr");
    set!(local.shares.requests => section.integer("max_requests_per_user", 1..=1_000_000));
    set!(local.shares.lists => section.integer("max_lists_per_user", 1..=1_000_000));
    set!(local.shares.connections => section.integer("max_connections_per_user", 1..=1_000_000));
    set!(local.shares.lists_per_second => section.integer("lists_per_second", 1..=1_000_000));
    local.mail_prog = path(section, "mail_prog");
    set!(local.state => state(section));
    local
}

fn addresses(section: &mut Section<'_>) -> Option<Vec<HostPort>> {
    let text = section.name("addr")?;
    HostPort::parse_list(text).map_err(|e| section.refuse("addr", e)).ok()
}

/// Reads the location of the state; `None` if it is absent or refused. A refusal never repeats the text,
/// which may contain a password.
fn state(section: &mut Section<'_>) -> Option<State> {
    let password_file = path(section, "password_file");
    let lease = section.duration("lease", 1..=60);
    let texts: Vec<&str> = match section.is_string("state") || !section.has("state") {
        true => section.name("state").into_iter().collect(),
        false => section.strings("state").into_iter().map(|(_, text)| text).collect(),
    };
    let state = match texts[..] {
        [] => None,
        [text] if !text.starts_with("postgres") || !text.contains("://") => {
            Some(State::Sqlite(file(section, text)?))
        }
        _ => {
            let parsed: Result<_, _> = texts.iter().map(|text| DatabaseUrl::parse(text)).collect();
            let urls = parsed.map_err(|error| section.refuse("state", error)).ok()?;
            let lease = lease.unwrap_or(PostgresState::DEFAULT_LEASE);
            return Some(State::Postgres(PostgresState { urls, password_file, lease }));
        }
    };
    for (key, is_there) in [("password_file", password_file.is_some()), ("lease", lease.is_some())] {
        if is_there {
            section.refuse(key, "it has a meaning for a `postgres://` state only");
        }
    }
    state
}

/// The file of a state in SQLite; `None` if the text is refused.
fn file(section: &mut Section<'_>, text: &str) -> Option<PathBuf> {
    match text.split_once("://") {
        None => Some(PathBuf::from(text).join(STATE_FILE)),
        Some(("sqlite", path)) if !path.is_empty() => Some(PathBuf::from(path)),
        Some((scheme, _)) => {
            let help = "write `sqlite://FILE`, a plain directory, or `postgres://USER@HOST/DATABASE`";
            section.refuse("state", format_args!("`{scheme}://` is no place for the state; {help}"));
            None
        }
    }
}

/// Reads `[auth]`. Without authentication, the controller's addresses must be loopback ones.
pub(super) fn auth(mut section: Section<'_>, controller: &ControllerLocal) -> AuthLocal {
    let mut auth = AuthLocal::default();
    set!(
        auth.method => section.choice("method", &[
            ("key", AuthMethod::Key),
            ("none", AuthMethod::None),
        ]),
        auth.key_file => path(&mut section, "key_file"),
        auth.socket => path(&mut section, "socket"),
    );
    auth.user = section.name("user").map(str::to_owned);
    if auth.method == AuthMethod::None {
        if !controller.listen_addr.is_loopback() {
            section.refuse("method", loopback_only("controller", &controller.listen_addr));
        }
        // An address that was not written is the one on which the controller listens.
        let afar = |address: &&HostPort| !address.is_loopback() && **address != controller.listen_addr;
        if let Some(afar) = controller.addresses.iter().find(afar) {
            let text = format!("\"none\" is for loopback only, and [controller] addr is {afar}; use \"key\"");
            section.refuse("method", text);
        }
    }
    section.finish();
    auth
}

/// Reads `[tls]`. `listen_addr`, `cert_file` and `key_file` make a listener; `ca_file` and `controller_names`
/// make commands verify certificates.
pub(super) fn tls(mut section: Section<'_>, method: AuthMethod) -> TlsLocal {
    let names = section.strings("controller_names");
    let mut tls = TlsLocal {
        controller_names: names.into_iter().map(|(_, name)| name.to_owned()).collect(),
        ca_file: path(&mut section, "ca_file"),
        ..TlsLocal::default()
    };
    let listen: Option<HostPort> = section.parsed("listen_addr");
    let files = (path(&mut section, "cert_file"), path(&mut section, "key_file"));
    tls.addresses = addresses(&mut section).unwrap_or_else(|| listen.iter().cloned().collect());
    match (listen, files) {
        (Some(listen_addr), (Some(cert_file), Some(key_file))) => {
            tls.listener = Some(TlsListener { listen_addr, cert_file, key_file });
        }
        (None, (None, None)) => {}
        _ => section.refuse("listen_addr", "a listener needs all of listen_addr, cert_file and key_file"),
    }
    if tls.ca_file.is_some() && tls.controller_names.is_empty() {
        section.refuse("ca_file", "it makes nobody a controller without `controller_names`");
    }
    if tls.ca_file.is_none() && !tls.controller_names.is_empty() {
        section.refuse("controller_names", "names are believed of an authority only, which `ca_file` names");
    }
    if tls.ca_file.is_some() && tls.addresses.is_empty() {
        section.refuse("ca_file", "commands must know where the listener is: say so with `addr`");
    }
    if method == AuthMethod::None && tls != TlsLocal::default() {
        section.refuse("controller_names", "it has no place beside [auth] method = \"none\"");
    }
    section.finish();
    tls
}

/// Reads `[[clusters]]`. Each cluster has a unique name; `socket` or `ca_file` gives the controllers that
/// commands trust there.
pub(super) fn clusters(top: &mut Section<'_>, method: AuthMethod) -> Vec<ClusterLocal> {
    let mut all: Vec<ClusterLocal> = Vec::new();
    for mut section in top.sections("clusters") {
        let name = section.required_name("name").unwrap_or_default().to_owned();
        let names = section.strings("controller_names");
        let cluster = ClusterLocal {
            addresses: addresses(&mut section).unwrap_or_default(),
            socket: path(&mut section, "socket"),
            ca_file: path(&mut section, "ca_file"),
            controller_names: names.into_iter().map(|(_, name)| name.to_owned()).collect(),
            name,
        };
        if cluster.name == "all" || cluster.name.contains(',') {
            section.refuse("name", format_args!("-M could not name a cluster `{}`", cluster.name));
        }
        if all.iter().any(|other| other.name == cluster.name) {
            section.refuse("name", format_args!("there is another [[clusters]] named `{}`", cluster.name));
        }
        if cluster.addresses.is_empty() {
            section.refuse("addr", "say where its controller is, such as \"ctl.east.example:6817\"");
        }
        match (method, &cluster.socket, &cluster.ca_file) {
            (AuthMethod::None, None, None) => {
                if let Some(afar) = cluster.addresses.iter().find(|address| !address.is_loopback()) {
                    let text = format!("[auth] method = \"none\" is for loopback only, and addr is {afar}");
                    section.refuse("addr", text);
                }
            }
            (AuthMethod::Key, Some(_), None) | (AuthMethod::Key, None, Some(_)) => {}
            (AuthMethod::None, ..) => {
                section.refuse("addr", "socket and ca_file have no place beside [auth] method = \"none\"");
            }
            (AuthMethod::Key, ..) => {
                section
                    .refuse("socket", "say one of socket and ca_file: it tells whom commands believe there");
            }
        }
        if cluster.ca_file.is_some() == cluster.controller_names.is_empty() {
            section
                .refuse("controller_names", "ca_file and controller_names are said together or not at all");
        }
        section.finish();
        all.push(cluster);
    }
    all
}

fn loopback_only(who: &str, listens_on: &HostPort) -> String {
    format!(
        "\"none\" is for loopback only, and the {who} listens on {listens_on}; \
         use [auth] method = \"key\", or listen on 127.0.0.1"
    )
}

/// Reads `[agent]`. Without authentication the nodes' daemons must listen on loopback.
pub(super) fn agent(section: Option<Section<'_>>, method: AuthMethod) -> AgentLocal {
    let mut agent = AgentLocal::default();
    if method == AuthMethod::None {
        agent.listen_addr.host = "127.0.0.1".to_owned();
    }
    let Some(mut section) = section else { return agent };
    set!(
        agent.listen_addr => section.parsed("listen_addr"),
        agent.spool_dir => section.name("spool_dir").map(str::to_owned),
        agent.heartbeat_interval => section.duration("heartbeat_interval", 1..=3600),
        agent.prolog_timeout => section.duration("prolog_timeout", 1..=86_400),
        agent.output_wait => section.duration("output_wait", 0..=3600),
        agent.job_acct_gather_frequency => section.duration("job_acct_gather_frequency", 0..=86_400),
        agent.cgroup_plugin => section.choice("cgroup_plugin", &CgroupPlugin::ALL),
    );
    set!(agent.constrain_devices => section.boolean("constrain_devices"));
    if method == AuthMethod::None && !agent.listen_addr.is_loopback() {
        section.refuse("listen_addr", loopback_only("daemon of a node", &agent.listen_addr));
    }
    agent.prolog = paths(&mut section, "prolog");
    agent.epilog = paths(&mut section, "epilog");
    agent.health_check_program = path(&mut section, "health_check_program");
    set!(agent.health_check_interval => section.duration("health_check_interval", 1..=86_400));
    if agent.health_check_program.is_none() && section.has("health_check_interval") {
        section.refuse("health_check_interval", "it has no effect without health_check_program");
    }
    agent.health_check_node_state = health_states(&mut section);
    if agent.health_check_program.is_none() && section.has("health_check_node_state") {
        section.refuse("health_check_node_state", "it has no effect without health_check_program");
    }
    agent.task_prolog = path(&mut section, "task_prolog");
    agent.task_epilog = path(&mut section, "task_epilog");
    job_container(&mut section, &mut agent);
    agent.report = reported(&mut section);
    section.finish();
    agent
}

/// Reads `report`: the facts that a node reports, each once, in the order of the table of their names.
fn reported(section: &mut Section<'_>) -> Vec<Reported> {
    let key = "report";
    let mut asked = BTreeSet::new();
    for (line, word) in section.strings(key) {
        match Reported::ALL.iter().find(|(name, _)| *name == word) {
            Some((_, fact)) => drop(asked.insert(*fact)),
            None => {
                let known = Reported::ALL.map(|(name, _)| name).join(", ");
                section.refuse_at(line, key, format!("there is no `{word}` here; known are {known}"));
            }
        }
    }
    asked.into_iter().collect()
}

/// Reads `job_container_base_path` and `job_container_dirs`: directories that are private to each job.
fn job_container(section: &mut Section<'_>, agent: &mut AgentLocal) {
    let is_whole = |path: &str| path.starts_with('/') && path.split('/').all(|part| part != "..");
    let (base, dirs) = ("job_container_base_path", "job_container_dirs");
    if section.has(dirs) {
        agent.job_container_dirs.clear();
        for (line, word) in section.strings(dirs) {
            if is_whole(word) && !word.trim_matches('/').is_empty() {
                agent.job_container_dirs.push(word.into());
            } else {
                section.refuse_at(line, dirs, format!("`{word}` is no absolute path of a directory below /"));
            }
        }
    }
    agent.job_container_base_path = path(section, base);
    match &agent.job_container_base_path {
        None if section.has(dirs) => section.refuse(dirs, format!("it has no effect without {base}")),
        None => {}
        Some(path) if !path.to_str().is_some_and(is_whole) => section.refuse(base, "it is no absolute path"),
        Some(path) => {
            if let Some(hidden) = agent.job_container_dirs.iter().find(|dir| path.starts_with(dir)) {
                let problem =
                    format!("jobs do not see what is below {}; choose another directory", hidden.display());
                section.refuse(base, problem);
            }
        }
    }
}

/// Reads `health_check_node_state`; empty for `ANY`.
fn health_states(section: &mut Section<'_>) -> Vec<HealthState> {
    let key = "health_check_node_state";
    let (mut states, mut any) = (Vec::new(), false);
    for (line, word) in section.strings(key) {
        match HealthState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(word)) {
            Some(state) => states.push(state),
            None if word.eq_ignore_ascii_case("ANY") => any = true,
            None => {
                let known: Vec<&str> = HealthState::ALL.into_iter().map(HealthState::name).collect();
                let problem = format!("there is no `{word}` here; known are ANY, {}", known.join(", "));
                section.refuse_at(line, key, problem);
            }
        }
    }
    if any { Vec::new() } else { states }
}

/// Reads the sections `[[gres]]`.
pub(super) fn device_files(top: &mut Section<'_>, known: &Nodes) -> Vec<DeviceFiles> {
    let mut all: Vec<DeviceFiles> = Vec::new();
    for mut section in top.sections("gres") {
        let name = section.required_name("name").unwrap_or_default().to_owned();
        let kind = section.name("type").unwrap_or_default().to_owned();
        let whole = if kind.is_empty() { name.clone() } else { format!("{name}:{kind}") };
        if let Err(error) = format!("{whole}:1").parse::<GresSpec>() {
            section.refuse("name", error);
        }
        let nodes: Option<HostList> = section.parsed("nodes");
        let is_known = |name: &String| known.known.iter().any(|node| *node.name == **name);
        if let Some(stray) = nodes.as_ref().and_then(|nodes| nodes.iter().find(|name| !is_known(name)))
            && known.are_all
        {
            section.refuse("nodes", format_args!("there is no node {stray} in [[nodes]]"));
        }
        if name == SHARD {
            if !section.has("count") {
                section.refuse("count", "say how many shards the GPUs of a node have together");
            }
            let shards = section.integer("count", 1..=1_000_000).unwrap_or(0);
            section.finish();
            let (files, cores, links) = (Vec::new(), IdSet::default(), Vec::new());
            all.push(DeviceFiles { nodes, name, kind, files, cores, shards, links });
            continue;
        }
        let files = files_of_devices(&mut section);
        let cores = section.parsed("cores").unwrap_or_default();
        let links = links(&mut section, files.len());
        section.finish();
        all.push(DeviceFiles { nodes, name, kind, files, cores, shards: 0, links });
    }
    all
}

/// Reads `file` or `multiple_files`: the files of each device.
fn files_of_devices(section: &mut Section<'_>) -> Vec<Vec<PathBuf>> {
    let together = section.name("multiple_files").is_some();
    let key = if together { "multiple_files" } else { "file" };
    if together && section.name("file").is_some() {
        section.refuse(
            "file",
            "file names one file for each device, multiple_files all files of one: say one of them",
        );
    }
    let listed = section.required_name(key).and_then(|_| section.parsed::<HostList>(key));
    let files: Vec<PathBuf> = listed.iter().flat_map(HostList::iter).map(PathBuf::from).collect();
    if let Some(bad) = files.iter().find(|file| !file.is_absolute()) {
        section.refuse(key, format_args!("{} is no absolute path", bad.display()));
    }
    if together { vec![files] } else { files.into_iter().map(|file| vec![file]).collect() }
}

/// Reads `links = "-1,4,4"` of one device.
fn links(section: &mut Section<'_>, files: usize) -> Vec<Option<u32>> {
    let Some(text) = section.name("links") else { return Vec::new() };
    let one = |word: &str| match word.trim() {
        "-1" => Some(None),
        word => word.parse().ok().map(Some),
    };
    let links: Option<Vec<Option<u32>>> = text.split(',').map(one).collect();
    let links = links.filter(|links| links.iter().filter(|link| link.is_none()).count() == 1);
    let help =
        "write one number for each device of that name, and -1 for the device itself, e.g. \"-1,4,4,0\"";
    match links {
        None => section.refuse("links", format_args!("`{text}` is no list of links; {help}")),
        Some(_) if files != 1 => {
            section.refuse(
                "links",
                format_args!("{files} devices cannot have the same; give each its own [[gres]]"),
            );
        }
        Some(links) => return links,
    }
    Vec::new()
}

pub(super) fn log(mut section: Section<'_>) -> LogLocal {
    let mut log = LogLocal::default();
    set!(
        log.level => section.choice("level", &[
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("info", LogLevel::Info),
            ("debug", LogLevel::Debug),
            ("trace", LogLevel::Trace),
        ]),
        log.format => section.choice("format", &[("plain", LogFormat::Plain), ("json", LogFormat::Json)]),
    );
    log.file = section.name("file").map(str::to_owned);
    section.finish();
    log
}

/// Reads one path or a list of paths.
fn paths(section: &mut Section<'_>, key: &'static str) -> Vec<PathBuf> {
    if section.is_string(key) {
        return path(section, key).into_iter().collect();
    }
    let words = section.strings(key);
    let (empty, named): (Vec<_>, Vec<_>) = words.into_iter().partition(|(_, word)| word.is_empty());
    for (line, _) in empty {
        section.refuse_at(line, key, "a path must not be empty");
    }
    named.into_iter().map(|(_, word)| word.into()).collect()
}

fn path(section: &mut Section<'_>, key: &'static str) -> Option<PathBuf> {
    section.name(key).map(PathBuf::from)
}
