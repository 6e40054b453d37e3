//! The command `scontrol show`: its arguments and requests.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Context;
use spur_core::model::config::Config;
use spur_core::text::hostlist::{HostExpr, HostList};
use spur_core::text::jobid::JobRef;
use spur_core::text::nearest::nearest;
use spur_proto::v1::JobFilter;

use super::controller::is_up;
use super::hostnames::Form;
use super::show_config::Page;
use super::slurm_keys::Known;
use super::{
    Settings, bare, hostnames, meant, ping, show_assoc, show_host, show_job, show_license, show_node,
    show_partition, show_reservation, show_step, show_topology, update,
};
use crate::commands::{gres, query};
use crate::error::{FAILURE, Failure};
use crate::format::fields::step;
use crate::format::value::time;
use crate::format::{Show, json};
use crate::session::Session;

pub(super) const ENTITIES: [&str; 20] = [
    "aliases",
    "assoc_mgr",
    "bbstat",
    "burstbuffer",
    "config",
    "daemons",
    "dwstat",
    "federation",
    "frontend",
    "hostlist",
    "hostlistsorted",
    "hostnames",
    "jobs",
    "licenses",
    "nodes",
    "partitions",
    "reservations",
    "slurmd",
    "steps",
    "topology",
];

/// Other names of entities, which `update` uses.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("jobid", "jobs"),
    ("nodename", "nodes"),
    ("partitionname", "partitions"),
    ("reservationname", "reservations"),
];

/// Text to print, and complaints.
#[derive(Default)]
struct Shown {
    text: String,
    /// Number of records found, for `--verbose`; `None` for entities without a number.
    records: Option<usize>,
    complaints: Vec<String>,
}

impl Shown {
    /// Returns the text of a list and its complaints. Nothing is printed if no requested record exists.
    fn listed<T>((found, complaints): (Vec<T>, Vec<String>), print: impl FnOnce(&[T]) -> String) -> Shown {
        let none = found.is_empty() && !complaints.is_empty();
        let text = if none { String::new() } else { print(&found) };
        Shown { text, records: Some(found.len()), complaints }
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Shown {
        Shown { text, records: None, complaints: Vec::new() }
    }
}

/// Prints the entities that `words` select.
///
/// # Errors
/// An unknown entity, records that do not exist (after the others are printed), or no answer.
pub(super) async fn run(session: &mut Session, settings: Settings, words: &[String]) -> anyhow::Result<u8> {
    let (first, names) = words.split_first().map_or(("", words), |(word, names)| (word.as_str(), names));
    // `show job=12` is the same as `show job 12`.
    let (word, joined) =
        first.split_once('=').map_or((first, None), |(word, name)| (word, Some([name.to_owned()])));
    let names = joined.as_ref().filter(|_| names.is_empty()).map_or(names, |joined| joined.as_slice());
    let other = OTHER_NAMES.iter().find(|(other, _)| word.eq_ignore_ascii_case(other));
    let Some(entity) = other.map(|(_, entity)| *entity).or_else(|| meant(word, &ENTITIES)) else {
        let hint = nearest(word, ENTITIES).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        return Err(bare(format!("invalid entity:{word} for keyword:show{hint}")).into());
    };
    if names.len() > 1 && !matches!(entity, "topology" | "assoc_mgr" | "bbstat" | "dwstat") {
        return Err(bare("too many arguments for keyword:show").into());
    }
    let name = names.first().map_or("", String::as_str);
    session.asks(match entity {
        "config" => Some("slurm_load_ctl_conf error"),
        "jobs" => Some("slurm_load_jobs error"),
        "licenses" => Some("slurm_load_license error"),
        "nodes" => Some("slurm_load_node error"),
        "partitions" => Some("slurm_load_partitions error"),
        "reservations" => Some("slurm_load_reservations error"),
        "steps" => Some("slurm_get_job_steps error"),
        "topology" => Some("slurm_load_topo error"),
        _ => None,
    });
    let Shown { text, records, complaints } = match entity {
        "config" => config(session, settings, name).await?.into(),
        "jobs" => jobs(session, settings, name).await?,
        "licenses" => licenses(session, settings, name).await?.into(),
        "nodes" => nodes(session, settings, name).await?,
        "partitions" => partitions(session, settings, name).await?,
        "reservations" => reservations(session, settings, name).await?,
        "steps" => steps(session, settings, name).await?.into(),
        "topology" => topology(session, settings, names).await?.into(),
        "aliases" => show_host::aliases(session, name).await?.into(),
        "assoc_mgr" => {
            let wanted = show_assoc::wanted(names)?;
            show_assoc::page(session, &wanted).await?.into()
        }
        // Spur never has any of these, for which Slurm prints nothing.
        "bbstat" | "burstbuffer" | "dwstat" | "federation" => Shown::default(),
        "frontend" => "No nodes in the system\n".to_owned().into(),
        "daemons" => show_host::daemons(session).await?.into(),
        "slurmd" => {
            let show = surroundings(session, settings).await?;
            show_host::slurmd(session, name, &show).await?.into()
        }
        "hostlist" => hosts(session, name, Form::List).await?.into(),
        "hostlistsorted" => hosts(session, name, Form::Sorted).await?.into(),
        _ => hosts(session, name, Form::Names).await?.into(),
    };
    if let Some(records) = records.filter(|_| settings.verbose && settings.wish.is_none()) {
        let show = query::show(&|name| session.env(name))?;
        let now = time(Some(show.now), "Unknown", &show);
        writeln!(session.out, "last_update_time={now}, records={records}")?;
    }
    write!(session.out, "{text}")?;
    // As with Slurm, complaints about names are part of the output, and those about numbers are errors.
    let bare = if complaints.len() == 1 && text.is_empty() { "slurm_load_jobs error: " } else { "" };
    for complaint in &complaints {
        match entity {
            "jobs" => {
                session.out.flush()?;
                session.say(&format!("{bare}{complaint}"));
            }
            _ => writeln!(session.out, "{complaint}")?,
        }
    }
    Ok(if complaints.is_empty() { 0 } else { FAILURE })
}

/// Returns the printing context; for JSON it includes the cluster and the caller.
async fn surroundings(session: &mut Session, settings: Settings) -> anyhow::Result<Show> {
    let mut show = query::show(&|name| session.env(name))?;
    if settings.wish.is_some() {
        query::identify(session, &mut show).await?;
    }
    Ok(show)
}

async fn jobs(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<Shown> {
    let show = surroundings(session, settings).await?;
    let job_ids = if name.is_empty() { Ok(Vec::new()) } else { update::job_ids(name) };
    let job_ids = job_ids.map_err(|_| bare("scontrol_print_job error: Invalid job id specified"))?;
    let filter = JobFilter { job_ids: job_ids.clone(), states: vec!["all".into()], ..JobFilter::default() };
    let details = settings.details || settings.wish.is_some();
    let mut jobs = match query::jobs_with(session.connection()?, filter, details).await {
        // Unknown jobs are reported below.
        Err(error) if error.code() == Some("ESLURM_INVALID_JOB_ID") => Vec::new(),
        answer => answer?,
    };
    let unknown = query::unknown_jobs(&jobs, &job_ids)?;
    for written in &job_ids {
        jobs = show_job::alone(jobs, &written.parse()?);
    }
    Ok(Shown::listed((jobs, unknown), |jobs| match (settings.wish, jobs.is_empty()) {
        (Some(wish), _) => {
            wish.listing(&show, "jobs", jobs, jobs.iter().map(|found| json::job::job(found, &show)))
        }
        (None, true) => "No jobs in the system\n".to_owned(),
        (None, false) => show_job::text(jobs, settings, &show),
    }))
}

async fn nodes(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<Shown> {
    let show = surroundings(session, settings).await?;
    let wanted = match name {
        "" => None,
        _ => Some(query::expand(session, &name.parse::<HostExpr>()?).await?),
    };
    let asked = wanted.as_ref().map(HostList::to_string).unwrap_or_default();
    let nodes = query::nodes(session.connection()?, &asked).await?;
    let wanted: Vec<String> = wanted.iter().flat_map(HostList::iter).collect();
    Ok(Shown::listed(query::named(nodes, &wanted, "Node", |node| &node.name), |nodes| {
        match (settings.wish, nodes.is_empty()) {
            (Some(wish), _) => {
                wish.listing(&show, "nodes", nodes, nodes.iter().map(|found| json::node::node(found, &show)))
            }
            (None, true) => "No nodes in the system\n".to_owned(),
            (None, false) => show_node::text(nodes, settings, &show),
        }
    }))
}

async fn reservations(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<Shown> {
    let show = surroundings(session, settings).await?;
    let names = query::list(name);
    let all = query::reservations(session.connection()?).await?;
    Ok(Shown::listed(query::named(all, &names, "Reservation", |found| &found.name), |chosen| match settings
        .wish
    {
        Some(wish) => {
            wish.listing(&show, "reservations", chosen, chosen.iter().map(json::other::reservation))
        }
        None => show_reservation::text(chosen, settings.oneline, &show),
    }))
}

/// Returns all licenses, or the named one; empty for an unknown license, as with Slurm.
async fn licenses(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<String> {
    let mut licenses = query::licenses(session.connection()?).await?;
    if licenses.is_empty() && settings.wish.is_none() {
        return Ok("No licenses configured in Slurm.\n".to_owned());
    }
    licenses.retain(|license| name.is_empty() || license.name == name);
    let show = surroundings(session, settings).await?;
    Ok(match settings.wish {
        Some(wish) => wish.listing(&show, "licenses", &licenses, licenses.iter().map(json::other::license)),
        None => show_license::text(&licenses, settings.oneline),
    })
}

async fn partitions(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<Shown> {
    let show = surroundings(session, settings).await?;
    let names = query::list(name);
    let all = query::partitions(session.connection()?, !settings.all && name.is_empty()).await?;
    Ok(Shown::listed(query::named(all, &names, "Partition", |partition| &partition.name), |chosen| {
        match settings.wish {
            Some(wish) => wish.listing(
                &show,
                "partitions",
                chosen,
                chosen.iter().map(|found| json::node::partition(found, &show)),
            ),
            None => show_partition::text(chosen, settings),
        }
    }))
}

async fn steps(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<String> {
    let show = surroundings(session, settings).await?;
    let mut filter = JobFilter::default();
    let wanted = match name {
        "" => None,
        _ => Some(name.parse::<JobRef>()?),
    };
    filter.job_ids.extend(wanted.iter().map(|wanted| wanted.job.to_string()));
    let steps = query::steps(session.connection()?, filter).await;
    let mut steps = steps.context(bare("slurm_get_job_steps error"))?;
    if let Some(wanted) = &wanted {
        steps.retain(|step| step::is_meant(step, wanted));
    }
    if steps.is_empty() && wanted.is_some() && settings.wish.is_none() {
        return Err(Failure::new(format!("Job step {name} not found")).into());
    }
    Ok(match (settings.wish, steps.is_empty()) {
        (Some(wish), _) => {
            wish.listing(&show, "steps", &steps, steps.iter().map(|found| json::step::step(found, &show)))
        }
        (None, true) => "No job steps in the system\n".to_owned(),
        (None, false) => show_step::text(&steps, settings.oneline, &show),
    })
}

async fn topology(session: &mut Session, settings: Settings, words: &[String]) -> anyhow::Result<String> {
    let width = session.env("SLURM_TOPO_LEN").map(|text| {
        text.parse().map_err(|_| Failure::new(format!("SLURM_TOPO_LEN: `{text}` is not a number")))
    });
    let request = show_topology::request(words)?;
    let mut topology = query::topology(session.connection()?, request.clone()).await;
    for meant in show_topology::meant(&request) {
        if topology.is_ok() {
            break;
        }
        // The name may be a switch, a block or a node, which older releases of Slurm expect here.
        let found = query::topology(session.connection()?, meant).await.ok();
        topology = found.filter(|found| !found.domains.is_empty()).map_or(topology, Ok);
    }
    let topology = topology?;
    if let Some(wish) = settings.wish.filter(|wish| wish.spur) {
        return Ok(wish.own([("topology", json::to_value(&topology))]));
    }
    if topology.domains.is_empty() {
        return Err(Failure::new(show_topology::nothing(&request)).into());
    }
    Ok(show_topology::text(&topology, width.transpose()?))
}

async fn config(session: &mut Session, settings: Settings, name: &str) -> anyhow::Result<String> {
    let show = query::show(&|name| session.env(name))?;
    let all = query::settings(session.connection()?).await?;
    if let Some(wish) = settings.wish.filter(|wish| wish.spur) {
        let all: serde_json::Map<_, _> =
            all.into_iter().map(|setting| (setting.key, setting.value.into())).collect();
        return Ok(wish.own([("config", all.into())]));
    }
    let controller = ping(session).await?;
    let nodes = query::nodes(session.connection()?, "").await?;
    let gres: Vec<&str> = gres::names(&nodes).into_iter().collect();
    let file = session.env("SPUR_CONF").filter(|file| !file.is_empty());
    let hosts: BTreeSet<&str> = nodes.iter().map(|node| node.hostname.as_str()).collect();
    let containment = nodes.iter().map(|node| node.containment.as_str());
    let registered = nodes.iter().filter(|node| !node.hostname.is_empty()).count();
    let known = Known {
        controller: &controller,
        address: session.connection()?.address(),
        file: file.as_deref().unwrap_or(Config::DEFAULT_FILE),
        gres: &gres.join(","),
        nodes: nodes.len(),
        containment: containment.filter(|text| !text.is_empty()).collect(),
        shared_hosts: hosts.iter().filter(|host| !host.is_empty()).count() < registered,
    };
    let Some(page) = Page::of(all, &known, &show).named(name) else {
        let text = format!("there is no setting {name}; `scontrol show config` lists all");
        return Err(Failure::new(text).into());
    };
    Ok(format!("{}\n{}\n", page.text(&show), is_up(&controller)))
}

async fn hosts(session: &mut Session, name: &str, form: Form) -> anyhow::Result<String> {
    let variable = session.env("SLURM_JOB_NODELIST").or_else(|| session.env("SLURM_NODELIST"));
    let written = match (name, variable) {
        ("", Some(nodes)) => nodes,
        ("", None) => {
            let text = "no hostlist given, and SLURM_JOB_NODELIST is not set: this is not inside a job";
            return Err(Failure::new(text).into());
        }
        (name, _) => name.to_owned(),
    };
    let names = query::expand(session, &hostnames::read(&written)?).await?;
    Ok(hostnames::text(&names, form))
}
