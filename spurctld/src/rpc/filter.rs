//! Selection of jobs, nodes and names by requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::cluster::sight::Sight;
use spur_core::controller::Reject;
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::Caller;
use spur_core::model::fabric::FunctionNodes;
use spur_core::model::job::Job;
use spur_core::model::phase::{EndState, Phase};
use spur_core::text::hostlist::{Function, FunctionKind, HostExpr, HostList, MAX_WRITTEN};
use spur_core::text::jobid::{JobPart, JobRef};
use spur_core::text::length;
use spur_proto::convert::{BadField, reject};
use spur_proto::v1;
use tonic::Status;

/// A [`v1::JobFilter`], parsed.
pub(super) struct Filter {
    /// Records, in ascending order; `None` for all.
    pub(super) ids: Option<BTreeSet<JobId>>,
    /// Owners of all records that the filter can select, if it names few users.
    owners: Option<Vec<(u32, Arc<str>)>>,
    sight: Sight,
    users: Names,
    partitions: Names,
    states: States,
    names: Names,
    accounts: Names,
    qos: Names,
    nodes: Option<BTreeSet<NodeId>>,
    reservations: Names,
    /// Partitions that the list leaves out; empty if it leaves out none.
    hidden: BTreeSet<Arc<str>>,
    wckeys: Names,
}

/// Names of which one has to fit; none for all.
struct Names(BTreeSet<String>);

impl Names {
    fn new(names: &[String]) -> Self {
        Self(names.iter().cloned().collect())
    }

    fn admit(&self, name: Option<&str>) -> bool {
        self.admit_any(name)
    }

    fn admit_any<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.0.is_empty() || names.into_iter().any(|name| self.0.contains(name))
    }

    /// True if an owner's login name or uid fits.
    fn admit_owner(&self, uid: u32, user: &str) -> bool {
        self.0.is_empty() || self.0.contains(user) || self.0.contains(&uid.to_string())
    }
}

/// Largest number of users of a filter whose jobs are looked up by owner.
const FEW_USERS: usize = 16;

enum States {
    All,
    NotEnded,
    These(BTreeSet<&'static str>),
}

/// Slurm's further states, with their short names. A filter may name any of them, although no job enters some
/// of them.
const NEVER_ENTERED: [(&str, &str); 17] = [
    ("BOOT_FAIL", "BF"),
    ("CONFIGURING", "CF"),
    ("EXPEDITING", "EX"),
    ("LAUNCH_FAILED", "LF"),
    ("POWER_UP_NODE", "PO"),
    ("RECONFIG_FAIL", "RE"),
    ("REQUEUED", "RQ"),
    ("REQUEUE_FED", "RF"),
    ("REQUEUE_HOLD", "RH"),
    ("RESIZING", "RS"),
    ("RESV_DEL_HOLD", "RD"),
    ("REVOKED", "RV"),
    ("SIGNALING", "SI"),
    ("SPECIAL_EXIT", "SE"),
    ("STAGE_OUT", "SO"),
    ("STOPPED", "ST"),
    ("SUSPENDED", "S"),
];

/// Returns long and short names of the common states.
fn entered() -> impl Iterator<Item = (&'static str, &'static str)> {
    let open = [("PENDING", "PD"), ("RUNNING", "R"), ("COMPLETING", "CG")];
    open.into_iter().chain(EndState::ALL.into_iter().map(|end| (end.name(), end.code())))
}

/// Returns a state's long name, by either of its names.
fn state_named(name: &str) -> Result<&'static str, BadField> {
    let same =
        |(long, short): &(&str, &str)| long.eq_ignore_ascii_case(name) || short.eq_ignore_ascii_case(name);
    let found = entered().chain(NEVER_ENTERED).find(same).map(|(long, _)| long);
    found.ok_or_else(|| {
        let known: Vec<&str> = entered().map(|(long, _)| long).collect();
        BadField::new("state", format!("there is no `{name}`; states are {}, or all", known.join(", ")))
    })
}

/// Parses a job, an array or tasks of one as users write them.
///
/// # Errors
/// Fails if the text is malformed, or if there is no such component of a het job.
pub(super) fn reference(cluster: &Cluster, written: &str) -> Result<JobRef<JobId>, Reject> {
    let reference: JobRef<JobId> = written.parse().map_err(|_| Reject::InvalidJobId)?;
    match reference.part {
        JobPart::Whole | JobPart::Tasks(_) => Ok(JobRef { step: None, ..reference }),
        JobPart::Component(offset) => {
            let component = cluster.jobs().component(reference.job, offset);
            component.map(JobRef::whole).ok_or(Reject::InvalidJobId)
        }
    }
}

/// Parses the number of a job that may have left memory; its row in accounting shows if it has that
/// component or task.
pub(super) fn numbered(written: &str) -> Result<u32, Reject> {
    let reference: JobRef = written.parse().map_err(|_| Reject::InvalidJobId)?;
    match reference.part {
        JobPart::Whole | JobPart::Tasks(_) => Ok(reference.job),
        JobPart::Component(offset) => Ok(reference.job.saturating_add(offset)),
    }
}

/// Returns the records that a user names; the number of a het job stands for all its components.
pub(super) fn meant(cluster: &Cluster, written: &str) -> BTreeSet<JobId> {
    let Ok(named) = reference(cluster, written) else { return BTreeSet::new() };
    let whole = written.parse::<JobRef>().is_ok_and(|written| written.part == JobPart::Whole);
    let job = cluster.job(named.job).filter(|_| whole);
    match job.is_some_and(|job| job.spec.het.is_some() && !job.spec.is_follower()) {
        true => cluster.jobs().components(named.job).into_iter().collect(),
        false => cluster.jobs().meant(&named),
    }
}

impl Filter {
    /// Parses a filter; `ids` are the records that it names, if it names any.
    pub(super) fn read(
        cluster: &Cluster,
        caller: &Caller,
        wire: &v1::JobFilter,
        ids: Option<BTreeSet<JobId>>,
    ) -> Result<Self, Status> {
        let states = match &wire.states[..] {
            [] => States::NotEnded,
            several if several.iter().any(|state| state.eq_ignore_ascii_case("all")) => States::All,
            several => {
                let named = several.iter().map(|state| state_named(state)).collect::<Result<_, _>>();
                States::These(named.map_err(|bad| reject::bad_field(&bad))?)
            }
        };
        let nodes = match wire.nodelist.as_str() {
            "" => None,
            list => Some(node_ids(cluster, list)?.into_iter().collect()),
        };
        let users = Names::new(&wire.users);
        let owners = (1..=FEW_USERS).contains(&users.0.len()).then(|| {
            let owners = cluster.jobs().owners();
            owners.filter(|(uid, user)| users.admit_owner(*uid, user)).cloned().collect()
        });
        Ok(Self {
            ids,
            owners,
            sight: Sight::of(cluster, caller),
            users,
            partitions: Names::new(&wire.partitions),
            states,
            names: Names::new(&wire.names),
            accounts: Names(wire.accounts.iter().map(|name| name.to_lowercase()).collect()),
            qos: Names::new(&wire.qos),
            nodes,
            reservations: Names::new(&wire.reservations),
            hidden: match wire.only_visible {
                true => hidden(cluster),
                false => BTreeSet::new(),
            },
            wckeys: Names::new(&wire.wckeys),
        })
    }

    /// The records from number `first` on among which those are that the filter selects, in order. The
    /// iterator may end after `count` records.
    pub(super) fn candidates<'a>(
        &'a self,
        cluster: &'a Cluster,
        first: JobId,
        count: usize,
    ) -> Box<dyn Iterator<Item = &'a Job> + 'a> {
        let jobs = cluster.jobs();
        match (&self.ids, &self.owners) {
            (Some(ids), _) => Box::new(ids.range(first..).filter_map(|id| jobs.get(*id))),
            (None, Some(owners)) => {
                let own = owners.iter().flat_map(|owner| jobs.owned(owner, first).take(count));
                let ids: BTreeSet<JobId> = own.collect();
                Box::new(ids.into_iter().take(count).filter_map(|id| jobs.get(id)))
            }
            (None, None) => Box::new(jobs.range(first)),
        }
    }

    /// True if the filter selects a job.
    pub(super) fn admits(&self, job: &Job) -> bool {
        let spec = &*job.spec;
        let user = || self.users.admit_owner(spec.owner.uid, &spec.owner.user);
        let partition = || {
            let started = job.phase.alloc().map(|alloc| &alloc.partition);
            let own = started.map_or(&spec.partitions[..], std::slice::from_ref);
            self.partitions.admit_any(own.iter().map(|name| &**name))
        };
        let reservation = spec.extra.as_ref().and_then(|extra| extra.reservation.as_deref());
        self.ids.as_ref().is_none_or(|ids| ids.contains(&job.id))
            && self.sight.job(&job.spec)
            && self.admits_state(job)
            && user()
            && partition()
            && self.names.admit(Some(&spec.name))
            && self.accounts.admit(spec.account.as_deref())
            && self.qos.admit(spec.qos.as_deref())
            && self.reservations.admit(reservation)
            && (self.hidden.is_empty() || spec.partitions.iter().any(|name| !self.hidden.contains(name)))
            && self.wckeys.admit(spec.extra.as_ref().and_then(|extra| extra.wckey.as_deref()))
            && self.nodes.as_ref().is_none_or(|nodes| holds_any(job, nodes))
    }

    fn admits_state(&self, job: &Job) -> bool {
        match &self.states {
            States::All => true,
            States::NotEnded => !matches!(job.phase, Phase::Ended(_)),
            States::These(names) => names.contains(job.state_names().0),
        }
    }
}

/// Returns the hidden partitions.
fn hidden(cluster: &Cluster) -> BTreeSet<Arc<str>> {
    let hidden = cluster.partitions().iter().filter(|partition| partition.config.hidden);
    hidden.map(|partition| Arc::clone(partition.name())).collect()
}

fn holds_any(job: &Job, nodes: &BTreeSet<NodeId>) -> bool {
    let alloc = match &job.phase {
        Phase::Running { alloc, .. } => Some(alloc),
        Phase::Suspended(suspended) => Some(&suspended.alloc),
        Phase::Completing(completing) => Some(&completing.alloc),
        Phase::Pending(_) | Phase::Ended(_) => None,
    };
    alloc.is_some_and(|alloc| alloc.nodes.iter().any(|part| nodes.contains(&part.node)))
}

/// Expands a hostlist with functions; `ALL` stands for all nodes. The names need not exist.
///
/// # Errors
/// Fails if the list is too long or malformed, or names more nodes than any cluster has.
pub(super) fn expand(cluster: &Cluster, written: &str) -> Result<HostList, Status> {
    let problem = |problem: String| reject::bad_field(&BadField::new("nodes", problem));
    length::check(written, length::NODES).map_err(|error| problem(error.to_string()))?;
    if written.eq_ignore_ascii_case("all") {
        let configured = cluster.nodes().iter().filter(|node| node.configured);
        return Ok(HostList::from_names(configured.map(|node| node.name())));
    }
    // As in Slurm, domains are those of the first topology.
    let mut in_domains = cluster.topologies().first().map(|topology| FunctionNodes::new(&topology.fabric));
    let mut with_features = None;
    let mut resolve = |function: &Function| match (function.kind, &mut in_domains) {
        (FunctionKind::Feature, _) => {
            let known = with_features.get_or_insert_with(|| nodes_by_feature(cluster));
            let names = function.names.iter().flat_map(|name| known.remove(&*name).unwrap_or_default());
            Ok(names.map(str::to_owned).collect())
        }
        (_, None) => Err("this cluster has no topology".to_owned()),
        (_, Some(known)) => known.add(function).map_err(|error| error.to_string()),
    };
    let expanded = written.parse::<HostExpr>().and_then(|list| list.expand(&mut resolve));
    match expanded.map_err(|error| problem(error.to_string()))? {
        list if list.len() > MAX_WRITTEN => {
            Err(problem(format!("the list names {} nodes; at most {MAX_WRITTEN} can be named", list.len())))
        }
        list => Ok(list),
    }
}

/// Returns the names of the nodes that have each feature.
fn nodes_by_feature(cluster: &Cluster) -> BTreeMap<&str, Vec<&str>> {
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in cluster.nodes().iter().filter(|node| node.configured) {
        for feature in &node.shape.features {
            known.entry(feature).or_default().push(node.name());
        }
    }
    known
}

/// Returns the nodes that a hostlist names.
///
/// # Errors
/// Fails if the list is malformed or names an unknown node.
pub(super) fn node_ids(cluster: &Cluster, written: &str) -> Result<Vec<NodeId>, Status> {
    let find = |name: String| {
        let node = cluster.node_named(&name).map(|node| node.id);
        node.ok_or_else(|| reject::status(&Reject::InvalidNodeName(name)))
    };
    expand(cluster, written)?.iter().map(find).collect()
}

/// Returns the node names in a hostlist.
///
/// # Errors
/// Fails if the list is malformed.
pub(super) fn node_names(cluster: &Cluster, written: &str) -> Result<Vec<Arc<str>>, Status> {
    Ok(expand(cluster, written)?.iter().map(Arc::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_two_names() {
        for (written, state) in [("pd", "PENDING"), ("Running", "RUNNING"), ("OOM", "OUT_OF_MEMORY")] {
            assert_eq!(state_named(written).ok(), Some(state));
        }
        // Slurm's further states are known, too.
        for (written, state) in [("S", "SUSPENDED"), ("cf", "CONFIGURING"), ("Requeue_Hold", "REQUEUE_HOLD")]
        {
            assert_eq!(state_named(written).ok(), Some(state));
        }
        assert!(state_named("RUNING").unwrap_err().to_string().contains("states are PENDING"));
    }

    #[test]
    fn jobs_and_tasks_are_named_by_number() {
        let cluster = Cluster::default();
        for written in ["12", "12_3", "12_[3-5]"] {
            assert_eq!(reference(&cluster, written).map(|named| named.to_string()), Ok(written.to_owned()));
        }
        for written in ["", "x", "12_x", "12+1"] {
            assert_eq!(reference(&cluster, written), Err(Reject::InvalidJobId), "{written}");
        }
    }
}
