//! Reading of a configuration file into a [`Config`]: one module for each section. Conditions between
//! sections are checked last.

mod daemons;
mod nodes;
mod partitions;
mod policy;
mod qos;
mod section;
mod topology;

use super::{Config, ConfigError, Local};
use section::{Reader, Section};

/// Reads a whole file.
///
/// # Errors
/// Every mistake, in no particular order.
pub(super) fn config(text: &str) -> Result<Config, Vec<ConfigError>> {
    let reader = Reader::new(text);
    let table = reader.syntax()?;
    let mut top = Section::top(&reader, &table);
    let config = sections(&mut top);
    top.finish();
    reader.result(config)
}

fn sections(top: &mut Section<'_>) -> Config {
    let mut config = Config::default();
    let Config { policy, local } = &mut config;
    policy.cluster_name = policy::cluster_name(top).into();
    if let Some(mut section) = top.section("controller") {
        policy.jobs = policy::jobs(&mut section);
        local.controller = daemons::controller(&mut section);
        section.finish();
    }
    policy.preempt = top.section("preempt").map(policy::preempt).unwrap_or_default();
    policy.qos = qos::qos(top, &policy.preempt);
    let scheduler = top.section("scheduler");
    policy.scheduler = scheduler.map(|section| policy::scheduler(section, &policy.qos)).unwrap_or_default();
    policy.recovery = top.section("recovery").map(policy::recovery).unwrap_or_default();
    auth(top, local);
    local.log = top.section("log").map(daemons::log).unwrap_or_default();
    let nodes = nodes::nodes(top);
    local.devices = daemons::device_files(top, &nodes);
    policy.topologies = topology::topologies(top, &nodes);
    let are_all = nodes.are_all;
    (policy.nodes, local.node_addresses) = (nodes.known, nodes.addresses);
    policy.partitions = partitions::partitions(top, policy, are_all);
    policy.power = top.section("power").map(|section| policy::power(section, policy)).unwrap_or_default();
    policy.licenses = policy::licenses(top);
    config
}

/// Reads the sections about authentication, which determine where the nodes' daemons may listen.
fn auth(top: &mut Section<'_>, local: &mut Local) {
    if let Some(section) = top.section("auth") {
        local.auth = daemons::auth(section, &local.controller);
    }
    local.tls =
        top.section("tls").map(|section| daemons::tls(section, local.auth.method)).unwrap_or_default();
    local.agent = daemons::agent(top.section("agent"), local.auth.method);
    local.clusters = daemons::clusters(top, local.auth.method);
}

/// Every key that the reader of `text` knows.
#[cfg(test)]
pub(super) fn known_keys(text: &str) -> std::collections::BTreeSet<&'static str> {
    let reader = Reader::new(text);
    let table = reader.syntax().expect("the text is TOML");
    sections(&mut Section::top(&reader, &table));
    reader.asked.take()
}
