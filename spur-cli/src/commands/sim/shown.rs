//! Commands that print: `squeue`, `sinfo` and `scontrol show`. Times are those of the simulation, in UTC.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use spur_core::cluster::Cluster;
use spur_core::id::{JobId, NodeId};
use spur_core::model::fabric::Fabric;
use spur_core::sched::plan::Waiting;
use spur_core::sim::{Watch, World};
use spur_core::text::hostlist::HostList;
use spur_core::text::jobid::JobRef;
use spur_proto::convert::{job, node, partition, reservation, topology};
use spur_proto::v1::{Domain, Job, ListTopologyRequest, Node, Partition, Reservation, Topology};

use super::command::{Ran, complaints};
use super::scontrol::numbers;
use crate::commands::query::Asked;
use crate::commands::scontrol::{
    Settings, show_job, show_node, show_partition, show_reservation, show_topology, update,
};
use crate::commands::{query, sinfo, squeue};
use crate::format::Show;
use crate::format::fields::job::is_meant;

pub(super) fn show<W: Watch>(world: &World<W>) -> Show {
    Show::new(TimeZone::UTC, world.now().0)
}

/// Returns all jobs that the controller still knows.
fn jobs<W: Watch>(world: &World<W>) -> Vec<Job> {
    let waiting: BTreeMap<JobId, &Waiting> =
        world.waiting().iter().map(|waiting| (waiting.job, waiting)).collect();
    let render = |found: &spur_core::model::job::Job| {
        let outlook = job::Outlook { waiting: waiting.get(&found.id).copied(), evaluated: Some(world.now()) };
        job::render(world.cluster(), found, outlook, world.now())
    };
    world.cluster().jobs().iter().filter(|job| !job.is_withdrawn()).map(render).collect()
}

fn nodes<W: Watch>(world: &World<W>) -> Vec<Node> {
    let planned: BTreeSet<NodeId> =
        world.waiting().iter().flat_map(|waiting| waiting.nodes.iter().copied()).collect();
    let configured = world.cluster().nodes().iter().filter(|node| node.configured);
    let pulse = node::Pulse::default();
    let is_planned = |found: &spur_core::cluster::Node| planned.contains(&found.id);
    let render = |found: &spur_core::cluster::Node| {
        let mut shown = node::render(world.cluster(), found, pulse, is_planned(found), world.now());
        node::show_absent_gres(&mut shown, world.cluster().gres_names());
        shown
    };
    configured.map(render).collect()
}

fn partitions<W: Watch>(world: &World<W>) -> Vec<Partition> {
    world.cluster().partitions().iter().map(|found| partition::render(world.cluster(), found)).collect()
}

fn reservations<W: Watch>(world: &World<W>) -> Vec<Reservation> {
    let render = |found| reservation::render(world.cluster(), found, world.now());
    world.cluster().reservations().map(|found| render(found)).collect()
}

/// Runs `squeue`.
///
/// # Errors
/// Unknown options.
pub(super) fn squeue<W: Watch>(world: &World<W>, words: &[String]) -> Result<String, String> {
    let told = |error: anyhow::Error| error.to_string();
    match squeue::Query::read(&numbered(world, words), &|_| None).map_err(told)? {
        Asked::Show(text) => Ok(text),
        Asked::Run(query) if query.shows_steps() => query.steps_text(Vec::new(), &show(world)).map_err(told),
        Asked::Run(query) => {
            let found = query.chosen(jobs(world)).map_err(told)?;
            query.jobs_text(found, &show(world)).map_err(told)
        }
    }
}

/// The words of `squeue` with the numbers of jobs that the workload names in the place of their names.
pub(super) fn numbered<W: Watch>(world: &World<W>, words: &[String]) -> Vec<String> {
    let number = |name: &str| {
        let (base, part) = name.split_at(name.find(['_', '+']).unwrap_or(name.len()));
        let known = world.number(name).map(|job| job.to_string());
        known.or_else(|| Some(format!("{}{part}", world.number(base)?))).unwrap_or_else(|| name.to_owned())
    };
    let list = |names: &str| names.split(',').map(number).collect::<Vec<String>>().join(",");
    let mut is_list = false;
    let words = words.iter().map(|word| {
        if std::mem::take(&mut is_list) {
            return list(word);
        }
        is_list = ["-j", "--job", "--jobs"].contains(&&**word);
        let mut options = ["--jobs=", "--job=", "-j"].into_iter().filter(|_| !is_list);
        let glued = options.find_map(|option| Some((option, word.strip_prefix(option)?)));
        glued.map_or_else(|| word.clone(), |(option, names)| format!("{option}{}", list(names)))
    });
    words.collect()
}

/// Runs `sinfo`.
///
/// # Errors
/// Unknown options, or an unknown topology.
pub(super) fn sinfo<W: Watch>(world: &World<W>, words: &[String]) -> Result<String, String> {
    let told = |error: anyhow::Error| error.to_string();
    let query = match sinfo::Query::read(words, &|_| None).map_err(told)? {
        Asked::Show(text) => return Ok(text),
        Asked::Run(query) => query,
    };
    if query.shows_reservations() {
        return Ok(query.reservations_text(&reservations(world), &show(world)));
    }
    if let Some(name) = query.topology() {
        let request = ListTopologyRequest { name: name.to_owned(), ..ListTopologyRequest::default() };
        let found = topologies(world.cluster(), &request)?.into_iter().next();
        let found = found.ok_or_else(|| format!("there is no topology {name}"))?;
        return Ok(query.topology_text(&found));
    }
    let wanted = query.nodes().map(str::parse::<HostList>).transpose().map_err(|error| error.to_string())?;
    query.text(partitions(world), nodes(world), wanted.as_ref(), &show(world)).map_err(told)
}

/// Settings that print records with all information.
const ALL: Settings =
    Settings { all: true, own: true, verbose: false, oneline: false, details: false, wish: None };

/// Runs `scontrol show` with the words after it.
///
/// # Errors
/// An unknown entity.
pub(super) fn scontrol<W: Watch>(world: &World<W>, words: &[String]) -> Result<Ran, String> {
    let (what, names) = words.split_first().map_or(("", words), |(what, names)| (what.as_str(), names));
    if names.len() > 1 && what != "topology" {
        return Err("too many arguments for keyword:show".to_owned());
    }
    let name = names.first().map_or("", String::as_str);
    let listed = query::list(name);
    match what {
        "job" | "jobs" => {
            let (found, unknown) = named_jobs(world, name)?;
            Ok(ran(&found, &unknown, |found| show_job::text(found, ALL, &show(world))))
        }
        "node" | "nodes" => {
            let wanted: HostList = name.parse().map_err(|error| format!("{error}"))?;
            let wanted: Vec<String> = wanted.iter().collect();
            let (found, unknown) = query::named(nodes(world), &wanted, "Node", |found| &found.name);
            Ok(ran(&found, &unknown, |found| show_node::text(found, ALL, &show(world))))
        }
        "partition" | "partitions" => {
            let all = partitions(world);
            let (found, unknown) = query::named(all, &listed, "Partition", |found| &found.name);
            Ok(ran(&found, &unknown, |found| show_partition::text(found, ALL)))
        }
        "reservation" | "reservations" => {
            let all = reservations(world);
            let (found, unknown) = query::named(all, &listed, "Reservation", |found| &found.name);
            Ok(ran(&found, &unknown, |found| show_reservation::text(found, false, &show(world))))
        }
        "topology" => {
            let request = show_topology::request(names).map_err(|failure| failure.text)?;
            let found = topologies(world.cluster(), &request)?;
            let stdout: String = found.iter().map(|topology| show_topology::text(topology, None)).collect();
            if stdout.is_empty() {
                return Err(show_topology::nothing(&request));
            }
            Ok(Ran { stdout, ..Ran::default() })
        }
        other => Err(format!(
            "invalid entity:{other} for keyword:show; a workload shows job, node, partition, reservation or topology"
        )),
    }
}

/// Returns the jobs of a list of names or numbers, or all jobs for an empty list, and complaints about
/// unknown ones.
fn named_jobs<W: Watch>(world: &World<W>, names: &str) -> Result<(Vec<Job>, Vec<String>), String> {
    let mut found = jobs(world);
    if names.is_empty() {
        return Ok((found, Vec::new()));
    }
    let wanted = update::job_ids(&numbers(world, names)?).map_err(|failure| failure.text)?;
    let unknown = query::unknown_jobs(&found, &wanted).map_err(|error| error.to_string())?;
    let refs = wanted.iter().map(|id| id.parse()).collect::<Result<Vec<JobRef>, _>>();
    let refs = refs.map_err(|error| error.to_string())?;
    found.retain(|found| refs.iter().any(|wanted| is_meant(found, wanted)));
    Ok((found, unknown))
}

/// Returns the printed records, and complaints about unknown ones.
fn ran<T>(found: &[T], unknown: &[String], print: impl FnOnce(&[T]) -> String) -> Ran {
    Ran {
        status: u8::from(!unknown.is_empty()),
        stdout: if found.is_empty() && !unknown.is_empty() { String::new() } else { print(found) },
        stderr: complaints("scontrol", unknown.iter().map(String::as_str)),
    }
}

/// Returns topologies with the domains that a request selects.
fn topologies(cluster: &Cluster, request: &ListTopologyRequest) -> Result<Vec<Topology>, String> {
    let nodes: HostList = match request.nodes.as_str() {
        "" => HostList::new(),
        written => written.parse().map_err(|error| format!("{error}"))?,
    };
    let wanted = cluster.topologies().iter();
    let wanted = wanted.filter(|found| request.name.is_empty() || *found.name == *request.name);
    Ok(wanted
        .map(|found| Topology {
            domains: domains(cluster, &found.fabric, request, &nodes),
            ..topology::head(found)
        })
        .collect())
}

/// Returns the domains of a fabric that a request selects.
fn domains(
    cluster: &Cluster,
    fabric: &Fabric,
    request: &ListTopologyRequest,
    nodes: &HostList,
) -> Vec<Domain> {
    let facts = fabric.facts();
    let named =
        |name: &str, path: &str| [name, path].contains(&request.unit.as_str()) || request.unit.is_empty();
    let holds = |held: &[String]| nodes.is_empty() || nodes.iter().any(|node| held.contains(&node));
    let wanted = facts
        .iter()
        .filter(|facts| named(&facts.name, fabric.domain(facts.id).full_name()) && holds(&facts.nodes));
    wanted.map(|facts| topology::domain(cluster, fabric, facts)).collect()
}
