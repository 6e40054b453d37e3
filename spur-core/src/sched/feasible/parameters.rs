//! The parameters of a request: what can be given in another amount, or left out.

use crate::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use crate::sched::place::gcd;
use crate::sched::request::{Request, Slot};
use crate::text::features::FeatureExpr;
use crate::text::gather::{GatherClause, NetworkNeed};
use crate::text::gres::GresSpec;
use crate::text::nodes::NodeCount;
use crate::text::time::TimeLimit;

/// One number of a request, or one part that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// The slots of the job: tasks, GPUs, or nodes.
    Slots,
    /// `-N`, where the job counts something else.
    Nodes,
    /// `-c`, CPUs of each task.
    Cpus,
    /// `--ntasks-per-node`, tasks on each node.
    OnEach,
    /// `--mincpus`, the least CPUs of a node.
    LeastCpus,
    /// `--mem` or `--mem-per-cpu` in MiB; `u64::MAX` for all memory.
    Memory,
    /// `--tmp` in MiB.
    Disk,
    /// An entry of devices.
    Devices(Of, usize),
    /// A count in `--constraint`.
    Counted(usize),
    /// The M of a clause `LAYER*M` of `--gather`.
    Multiple(usize),
    /// `--segment`, the nodes of a segment.
    Segment,
    /// `--switches`, the number of leaves.
    Switches,
    /// A `must` of `--gather`: 1 if present, 0 if left out.
    Must(usize),
    /// `--network=bw`: 1 if present, 0 if left out.
    Links,
    /// `--contiguous`: 1 if present, 0 if left out.
    Contiguous,
    /// `--exclusive=topo`: 1 if present, 0 if left out.
    WholeLeaves,
    /// `-w`: 1 if present, 0 if left out.
    Named,
    /// An entry of `--licenses`.
    License(usize),
    /// `-t`, or `--time-min` if given, in seconds; `u64::MAX` without a limit.
    Time,
}

/// The unit for which devices are asked, in the order in which the lists of devices are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Devices of each node.
    Node,
    /// Devices of the whole job.
    Job,
    /// Devices of each task.
    Task,
}

/// The direction in which the nearest amount is searched for, with the last amount that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchDirection {
    /// Below; if an amount works, every smaller one does.
    Down(u64),
    /// Above; if an amount works, every larger one does.
    Up(u64),
    /// Below; an amount may work where the next smaller one does not.
    Scan(u64),
    /// On both sides; any amount may work.
    Around(u64),
}

impl SearchDirection {
    /// The last amount that is possible.
    pub(super) fn end(self) -> u64 {
        let (Self::Down(end) | Self::Up(end) | Self::Scan(end) | Self::Around(end)) = self;
        end
    }
}

impl Parameter {
    /// All parameters of a request that could be reduced, the least expendable ones first.
    pub(super) fn all(spec: &JobSpec, request: Option<&Request>) -> Vec<Self> {
        let fabric = spec.fabric.as_deref();
        let mut all = vec![Self::Cpus, Self::LeastCpus, Self::Memory, Self::Disk];
        all.extend([Of::Task, Of::Node, Of::Job].into_iter().flat_map(|of| Self::devices(spec, of)));
        all.push(Self::OnEach);
        all.extend((0..counts(spec).len()).map(Self::Counted));
        all.extend((0..clauses(fabric).len()).map(Self::Must));
        all.extend([
            Self::Segment,
            Self::Switches,
            Self::Links,
            Self::Contiguous,
            Self::WholeLeaves,
            Self::Named,
        ]);
        all.extend((0..licenses(spec).len()).map(Self::License));
        all.extend([Self::Time, Self::Slots, Self::Nodes]);
        all.extend(Self::multiples(spec));
        all.retain(|parameter| parameter.asked(spec, request).is_some());
        all
    }

    /// All entries of one list of devices.
    pub(super) fn devices(spec: &JobSpec, of: Of) -> impl Iterator<Item = Self> {
        (0..devices(spec, of).len()).map(move |at| Self::Devices(of, at))
    }

    /// All clauses of `--gather` that may be multiples.
    pub(super) fn multiples(spec: &JobSpec) -> impl Iterator<Item = Self> {
        (0..clauses(spec.fabric.as_deref()).len()).map(Self::Multiple)
    }

    /// The amount that a request asks for; `None` if it asks for none.
    pub(super) fn asked(self, spec: &JobSpec, request: Option<&Request>) -> Option<u64> {
        let (shape, fabric) = (&spec.shape, spec.fabric.as_deref());
        let by_gpus = request.is_some_and(|request| matches!(request.need.slot, Slot::Gpu { .. }));
        let asked = match self {
            // Tasks are what is asked for, however many share GPUs.
            Self::Slots => match request.filter(|request| !request.need.slot.counts_tasks()) {
                Some(request) => request.min_slots(),
                None => shape.tasks.or(request.map(|_| 1))?.into(),
            },
            // Where nodes are the slots, their number is asked for already.
            Self::Nodes if request.is_some_and(|request| request.slots.is_none()) => 0,
            Self::Nodes => shape.nodes.as_ref()?.min.into(),
            Self::Cpus => shape.cpus_per_task?.into(),
            Self::OnEach => shape.tasks_per_node?.into(),
            Self::LeastCpus => shape.min_cpus.into(),
            Self::Memory => match shape.memory? {
                MemoryNeed::PerNode(0) => u64::MAX,
                MemoryNeed::PerNode(memory) | MemoryNeed::PerCpu(memory) => memory,
            },
            Self::Disk => shape.tmp_disk_mb,
            Self::Devices(Of::Job, 0) if by_gpus => 0,
            Self::Devices(of, at) => devices(spec, of).get(at)?.count,
            Self::Counted(at) => counts(spec).get(at)?.1.into(),
            Self::Multiple(at) => match clauses(fabric).get(at)? {
                GatherClause::Multiple { multiple, .. } => u64::from(*multiple),
                GatherClause::Must { .. } | GatherClause::Prefer { .. } => 0,
            },
            Self::Must(at) => u64::from(matches!(clauses(fabric).get(at)?, GatherClause::Must { .. })),
            Self::Segment => fabric?.segment?.into(),
            Self::Switches => fabric?.switches?.count.into(),
            Self::Links => u64::from(fabric?.network?.bandwidth.is_some()),
            Self::Contiguous => u64::from(fabric?.contiguous),
            Self::WholeLeaves => u64::from(shape.sharing == Sharing::Topo),
            Self::Named => u64::from(shape.nodelist.is_some()),
            Self::License(at) => licenses(spec).get(at)?.1.into(),
            Self::Time => seconds(spec.least_time()),
        };
        (asked > 0).then_some(asked)
    }

    /// The direction in which another amount may work.
    pub(super) fn way(self, spec: &JobSpec, request: Option<&Request>) -> SearchDirection {
        let by_slots = request.filter(|request| request.slots.is_some());
        match self {
            // No fewer tasks than nodes, unless the original has too few.
            Self::Slots => {
                let nodes = by_slots.and(spec.shape.nodes.as_ref()).map(|nodes| nodes.min);
                let enough = nodes.filter(|least| spec.shape.tasks.is_none_or(|tasks| *least <= tasks));
                SearchDirection::Scan(enough.map_or(1, u64::from))
            }
            Self::Nodes | Self::Devices(Of::Job, _) => SearchDirection::Around(1),
            // Where the tasks follow from the nodes, fewer on each node are fewer tasks; otherwise more on
            // each node need fewer nodes.
            Self::OnEach if spec.shape.tasks.is_some() && !by_nodes(request) => {
                SearchDirection::Up(spec.shape.tasks.unwrap_or(0).into())
            }
            Self::Switches => SearchDirection::Up(u32::MAX.into()),
            Self::Multiple(_) | Self::Segment => SearchDirection::Scan(1),
            Self::Cpus | Self::OnEach | Self::Memory | Self::Counted(_) => SearchDirection::Down(1),
            Self::Time => SearchDirection::Down(60),
            _ => SearchDirection::Down(0),
        }
    }

    /// The number that every possible amount is a multiple of.
    pub(super) fn step(self, spec: &JobSpec) -> u64 {
        if self != Self::Slots {
            return 1;
        }
        let fabric = spec.fabric.as_deref();
        let multiples = clauses(fabric).iter().filter_map(|clause| match clause {
            GatherClause::Multiple { multiple, .. } => Some(u64::from(*multiple)),
            GatherClause::Must { .. } | GatherClause::Prefer { .. } => None,
        });
        let step = |step: u64, by: u64| step.checked_mul(by / gcd(step, by)).unwrap_or(step);
        multiples.filter(|by| *by > 0).fold(1, step)
    }

    /// The request with another amount of the parameter; 0 removes it.
    pub(super) fn set(self, spec: &JobSpec, request: Option<&Request>, amount: u64) -> JobSpec {
        let few = u32::try_from(amount).unwrap_or(u32::MAX);
        match self {
            Self::Slots => return sized(spec, request, few),
            Self::Nodes => return with_nodes(spec, request, few),
            _ => {}
        }
        let mut spec = spec.clone();
        let shape = &mut spec.shape;
        match self {
            Self::Cpus => shape.cpus_per_task = Some(few),
            Self::OnEach => {
                shape.tasks_per_node = Some(few);
                if let (true, Some(nodes), Some(_)) = (by_nodes(request), &shape.nodes, shape.tasks) {
                    shape.tasks = nodes.min.checked_mul(few);
                }
            }
            Self::LeastCpus => shape.min_cpus = few,
            Self::Disk => shape.tmp_disk_mb = amount,
            Self::Memory => {
                if let Some(MemoryNeed::PerNode(memory) | MemoryNeed::PerCpu(memory)) = &mut shape.memory {
                    *memory = amount;
                }
            }
            Self::Devices(of, at) => {
                let gres = devices_mut(shape)[of as usize].get_mut(at);
                gres.into_iter().for_each(|gres| gres.count = amount);
            }
            Self::Counted(at) => {
                let mut at = Some(at);
                if let Some(features) = shape.features.as_deref_mut() {
                    set_count(features, &mut at, few);
                }
            }
            Self::WholeLeaves => shape.sharing = Sharing::Partition,
            Self::Named => shape.nodelist = None,
            Self::License(at) => {
                let license = spec.extra.as_mut().and_then(|extra| extra.licenses.get_mut(at));
                if let Some((_, count)) = license {
                    *count = few;
                }
            }
            Self::Time => {
                let limit = TimeLimit::Seconds(amount);
                let least = spec.time_min.as_mut().unwrap_or(&mut spec.time_limit);
                *least = limit.min(*least);
            }
            _ => self.set_fabric(spec.fabric.get_or_insert_default(), few),
        }
        spec
    }

    fn set_fabric(self, fabric: &mut FabricAsk, amount: u32) {
        match self {
            Self::Multiple(at) | Self::Must(at) => {
                match fabric.gather.as_mut().and_then(|gather| gather.clauses.get_mut(at)) {
                    Some(GatherClause::Multiple { multiple, .. }) => *multiple = amount,
                    // A must becomes a preference, which delays nothing, and keeps its place.
                    Some(clause) => *clause = GatherClause::Prefer { layer: clause.layer().to_owned() },
                    None => {}
                }
            }
            Self::Segment => fabric.segment = Some(amount),
            Self::Switches => fabric.switches.iter_mut().for_each(|switches| switches.count = amount),
            Self::Links => {
                let need = fabric.network.filter(|need| need.latency);
                fabric.network = need.map(|need| NetworkNeed { bandwidth: None, ..need });
            }
            Self::Contiguous => fabric.contiguous = false,
            _ => {}
        }
    }

    /// The option that a user would write for the request's amount.
    pub(super) fn words(self, spec: &JobSpec, request: Option<&Request>) -> String {
        let amount = || self.asked(spec, request).unwrap_or(0);
        match self {
            Self::Slots => {
                let by_gpus = request.is_some_and(|request| matches!(request.need.slot, Slot::Gpu { .. }));
                let by_tasks = request.is_none_or(|request| request.slots.is_some());
                match (&spec.shape.gpus[..], &spec.shape.nodes) {
                    ([gpus, ..], _) if by_gpus => format!("--gpus={}", plain(gpus)),
                    (_, Some(nodes)) if !by_tasks => format!("-N {nodes}"),
                    _ => format!("-n {}", spec.shape.tasks.unwrap_or(1)),
                }
            }
            Self::Nodes => spec.shape.nodes.as_ref().map_or_else(String::new, |nodes| format!("-N {nodes}")),
            Self::Cpus => format!("-c {}", amount()),
            Self::OnEach => format!("--ntasks-per-node={}", amount()),
            Self::LeastCpus if amount() == 0 => "leave out --mincpus".to_owned(),
            Self::LeastCpus => format!("--mincpus={}", amount()),
            Self::Memory => match spec.shape.memory {
                Some(MemoryNeed::PerCpu(memory)) => format!("--mem-per-cpu={memory}M"),
                _ => format!("--mem={}M", amount()),
            },
            Self::Disk if amount() == 0 => "leave out --tmp".to_owned(),
            Self::Disk => format!("--tmp={}M", amount()),
            Self::Devices(of, _) => {
                let word = |gres: &GresSpec| if of == Of::Node { gres.to_string() } else { plain(gres) };
                let left = devices(spec, of).iter().filter(|gres| gres.count > 0).map(word);
                let (option, left) = (of.option(), left.collect::<Vec<_>>().join(","));
                if left.is_empty() { format!("leave out {option}") } else { format!("{option}={left}") }
            }
            Self::Counted(_) => spec.shape.features.iter().map(|wanted| format!("-C '{wanted}'")).collect(),
            Self::Multiple(_) | Self::Must(_) => {
                let gather = spec.fabric.iter().flat_map(|fabric| &fabric.gather);
                gather.map(|gather| format!("--gather={gather}")).collect()
            }
            Self::Segment => format!("--segment={}", amount()),
            Self::Switches => format!("--switches={}", amount()),
            Self::Links => "leave out --network=bw".to_owned(),
            Self::Contiguous => "leave out --contiguous".to_owned(),
            Self::WholeLeaves => "leave out --exclusive=topo".to_owned(),
            Self::Named => "leave out -w".to_owned(),
            Self::License(at) => match &licenses(spec)[at] {
                (name, 0) => format!("leave out license {name}"),
                (name, count) => format!("--licenses={name}:{count}"),
            },
            Self::Time => format!("{} {}", spec.least_time_option(), spec.least_time()),
        }
    }
}

impl Of {
    fn option(self) -> &'static str {
        ["--gres", "--gpus", "--gpus-per-task"][self as usize]
    }
}

/// Devices as written in options about GPUs only.
fn plain(gres: &GresSpec) -> String {
    gres.kind.as_ref().map_or_else(|| gres.count.to_string(), |kind| format!("{kind}:{}", gres.count))
}

fn devices(spec: &JobSpec, of: Of) -> &[GresSpec] {
    let shape = &spec.shape;
    [&shape.gres, &shape.gpus, &shape.gpus_per_task][of as usize]
}

/// All lists of devices, in the order of [`Of`].
fn devices_mut(shape: &mut Shape) -> [&mut Vec<GresSpec>; 3] {
    [&mut shape.gres, &mut shape.gpus, &mut shape.gpus_per_task]
}

/// Removes entries with a count of 0.
pub(super) fn without_zeros(mut spec: JobSpec) -> JobSpec {
    devices_mut(&mut spec.shape).into_iter().for_each(|all| all.retain(|gres| gres.count > 0));
    if let Some(extra) = &mut spec.extra {
        extra.licenses.retain(|(_, count)| *count > 0);
    }
    spec
}

fn counts(spec: &JobSpec) -> Vec<(&FeatureExpr, u32)> {
    spec.shape.features.as_ref().map_or_else(Vec::new, |features| features.counts())
}

/// Sets the count with an index, in the order of [`FeatureExpr::counts`].
fn set_count(features: &mut FeatureExpr, at: &mut Option<usize>, count: u32) {
    match features {
        FeatureExpr::And(members) => members.iter_mut().for_each(|member| set_count(member, at, count)),
        FeatureExpr::Group(inner) => set_count(inner, at, count),
        FeatureExpr::Count(_, own) => {
            if *at == Some(0) {
                *own = count;
            }
            *at = at.and_then(|at| at.checked_sub(1));
        }
        FeatureExpr::Name(_) | FeatureExpr::Or(_) => {}
    }
}

fn clauses(fabric: Option<&FabricAsk>) -> &[GatherClause] {
    fabric.and_then(|fabric| fabric.gather.as_ref()).map_or(&[], |gather| &gather.clauses)
}

fn licenses(spec: &JobSpec) -> &[(Box<str>, u32)] {
    spec.extra.as_ref().map_or(&[], |extra| &extra.licenses)
}

fn seconds(limit: TimeLimit) -> u64 {
    limit.seconds().unwrap_or(u64::MAX)
}

/// The request with another number of slots.
fn sized(spec: &JobSpec, request: Option<&Request>, size: u32) -> JobSpec {
    let slot = request.map(|request| (request.need.slot, request.slots.is_some()));
    match slot {
        Some((Slot::Gpu { .. }, true)) => Parameter::Devices(Of::Job, 0).set(spec, request, size.into()),
        None | Some((Slot::Tasks { .. }, true)) if spec.shape.tasks.is_some() || slot.is_some() => {
            let mut spec = spec.clone();
            spec.shape.tasks = Some(size);
            spec
        }
        _ => with_nodes(spec, request, size),
    }
}

/// The request with another number of nodes, and of tasks if these follow from the nodes.
pub(super) fn with_nodes(spec: &JobSpec, request: Option<&Request>, nodes: u32) -> JobSpec {
    let mut spec = spec.clone();
    spec.shape.nodes = Some(NodeCount::exactly(nodes));
    if let Some(Slot::Node { tasks }) = request.map(|request| request.need.slot)
        && spec.shape.tasks.is_some()
    {
        spec.shape.tasks = nodes.checked_mul(spec.shape.tasks_per_node.unwrap_or(tasks));
    }
    spec
}

/// True if a job counts nodes, and its tasks follow from these.
fn by_nodes(request: Option<&Request>) -> bool {
    request.is_some_and(|request| matches!(request.need.slot, Slot::Node { .. }))
}
