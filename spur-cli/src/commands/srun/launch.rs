//! Launch requests to the nodes.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use spur_core::text::cpubind::{CpuBind, CpuBinding};
use spur_core::text::exit::ExitCode;
use spur_core::text::gpubind::GpuBind;
use spur_core::text::membind::MemBinding;
use spur_core::text::oom::OomKillStep;
use spur_core::text::sampling::SamplingIntervals;
use spur_proto::convert::step::ranks;
use spur_proto::v1::{CreateStepResponse, KeyValue, StepFiles, StepLaunch, StepNodeLayout, StepWindow};
use tokio::sync::mpsc;

use super::endings::Endings;
use super::input::Wanted;
use super::mpi::Mpi;
use super::node::{self, Event, Launch, Node};
use super::output::{Names, Outputs};
use super::states::States;
use super::{LaidOut, Run, bcast, programs, terminal, wish};
use crate::options::submission::{Export, Propagate, Submission};
use crate::options::values::resource_limits;
use crate::place;
use crate::session::{Session, whoami};

impl Run {
    /// Launches a step on its nodes. `all_tasks` is the number of tasks of all steps that run the program
    /// and may write the same files; `None` if there is only one step.
    pub(super) fn launch(
        session: &Session,
        laid_out: LaidOut,
        argv: &[String],
        (first, tell): (usize, mpsc::Sender<(usize, Event)>),
        wanted: Wanted,
        all_tasks: Option<u32>,
    ) -> anyhow::Result<Run> {
        let (first_task, tasks) = (laid_out.first_task(), laid_out.tasks());
        let LaidOut { job, mut wishes, step, world } = laid_out;
        let directory = place::directory(wishes.chdir.as_deref())?;
        let unbuffered = wishes.step.unbuffered && !wishes.step.pty;
        if wishes.step.pty {
            (wishes.step.unbuffered, wishes.step.label) = (true, false);
        }
        // As in Slurm, files that srun writes are relative to the directory of its call, and files that
        // tasks open to their working directory.
        let called_in = place::directory(None)?;
        let names = names(session, job, &step, PathBuf::from(&called_in));
        let array = names.array;
        let mut outputs = Outputs::new(&wishes.files, &wishes.step, names, all_tasks.unwrap_or(tasks))?;
        // On another node the same name may be another file.
        let here = |node: &StepNodeLayout| session.env("SLURMD_NODENAME").as_ref() == Some(&node.name);
        let is_alone = all_tasks.is_none() && matches!(&step.nodes[..], [only] if here(only));
        let given = match wishes.step.pty {
            true => StepFiles::default(),
            false => outputs.give_away(is_alone && called_in == directory),
        };
        let (array_job_id, array_task_id) = array.unzip();
        let files = StepFiles { stdin: wanted.pattern, array_job_id, array_task_id, ..given };
        outputs.open(first_task..first_task + tasks)?;
        let environment = task_environment(session, job, &wishes, &step)?;
        let window = wishes.step.pty.then(terminal::window);
        let umask = wishes.umask.unwrap_or_else(place::file_mask);
        let mpi = Mpi::chosen(&wishes.step.mpi, &step.mpi_default)?.name();
        let job_environment = environment_of_step(session, &wishes, &step, window.as_ref(), (umask, mpi));
        let own = match bcast::copies(job, &wishes, &step, argv)? {
            Some(own) => own,
            None => programs::of_tasks(&wishes, first_task..first_task + tasks, argv)?,
        };
        let found = |program: &Option<String>| programs::path(program.as_deref(), session, &directory);
        let propagate = propagated_limits(&wishes, &step)?;
        wishes.step.kill_on_bad_exit.get_or_insert(step.kill_on_bad_exit);
        let (bind, bound) = (&wishes.step.gpu_bind, &wishes.step.cpu_bind);
        let memory = &wishes.step.mem_bind;
        let sockets = wish::distributions(session, &wishes)?.sockets;
        let launch = StepLaunch {
            credential: step.credential.clone(),
            argv: argv.to_vec(),
            environment: place::packed(&environment)?.into(),
            job_environment,
            umask,
            limits: place::limits(&propagate),
            stdin_task: wanted.task,
            no_stdin: wanted.none,
            mpi: mpi.to_owned(),
            socket_distribution: sockets.map(|sockets| sockets.to_string()).unwrap_or_default(),
            unbound: bound.bind == CpuBind::None,
            cpu_bind: if *bound == CpuBinding::default() { String::new() } else { bound.to_string() },
            mem_bind: if *memory == MemBinding::default() { String::new() } else { memory.to_string() },
            time_limit: wishes.spec.time_limit.filter(|_| !step.ends_in_time),
            terminal: window,
            task_prolog: found(&wishes.step.task_prolog),
            task_epilog: found(&wishes.step.task_epilog),
            programs: own,
            gpu_bind: bind.as_ref().map(GpuBind::to_string).unwrap_or_default(),
            files: Some(files),
            work_dir: directory,
            unbuffered,
            sampling_seconds: wishes.sampling_seconds,
            oom_kill_step: wishes.oom_kill_step,
        };
        let plan = Arc::new(Launch { credential: step.credential, launch });
        let layouts = (first..).zip(step.nodes);
        let nodes: Vec<Node> =
            layouts.map(|(index, layout)| node::follow(index, layout, plan.clone(), tell.clone())).collect();
        let states = States::new(first_task, tasks);
        let open = nodes.len();
        Ok(Run { world, first, nodes, open, ..Run::new(job, step.step_id, wishes, outputs, states) })
    }

    /// Returns a run of a step without nodes.
    fn new(job: u32, step: u32, wishes: Submission, outputs: Outputs, states: States) -> Run {
        Run {
            job,
            step,
            world: Vec::new(),
            endings: Endings::new(wishes.step.reduced_endings),
            wishes,
            open: 0,
            first: 0,
            nodes: Vec::new(),
            outputs,
            states,
            whereabouts: None,
            raw: None,
            exit: ExitCode::default(),
            rest_until: None,
            interrupted: None,
            kill_at: None,
            killed: false,
            cancelled: false,
            forced: false,
            deaf: None,
            never_launched: Vec::new(),
            out_of_reach: false,
        }
    }
}

/// Returns the user's variables. With ALL, in `srun` the environment overrides values in `--export`, unlike
/// in `sbatch`.
fn exported(session: &Session, export: &Export) -> place::Environment {
    let mut environment = place::exported(session.environment(), export);
    if matches!(export, Export::Some { all: true, .. }) {
        environment.extend(session.environment().clone());
    }
    environment
}

/// Returns the variables of the tasks, with the directory of the libraries that are sent to the nodes.
fn task_environment(
    session: &Session,
    job: u32,
    wishes: &Submission,
    step: &CreateStepResponse,
) -> anyhow::Result<place::Environment> {
    let mut environment = exported(session, &wishes.export);
    let own = environment.get(OsStr::new("LD_LIBRARY_PATH")).and_then(|own| own.to_str());
    if let Some(path) = bcast::library_path(job, wishes, step, own)? {
        environment.insert("LD_LIBRARY_PATH".into(), path.into());
    }
    Ok(environment)
}

/// Returns the resource limits that tasks inherit: those that the command names, else those of the site.
fn propagated_limits(wishes: &Submission, step: &CreateStepResponse) -> anyhow::Result<Propagate> {
    match step.propagated_limits.as_str() {
        "" => Ok(wishes.propagate.clone()),
        _ if wishes.said.contains_key("propagate") => Ok(wishes.propagate.clone()),
        site => resource_limits(site).map_err(anyhow::Error::msg),
    }
}

/// Variables that pass options of this `srun` on to its tasks.
const PASSED_ON: [&str; 5] = [
    SamplingIntervals::VARIABLE,
    OomKillStep::VARIABLE,
    "SLURM_THREADS_PER_CORE",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_SOCKET",
];

/// The variables that keep the caller's value with `--preserve-env`.
const PRESERVED: [&str; 5] =
    ["SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"];

/// The variables of the step, which count more than those of the user.
fn environment_of_step(
    session: &Session,
    wishes: &Submission,
    step: &CreateStepResponse,
    window: Option<&StepWindow>,
    (umask, mpi): (u32, &str),
) -> Vec<KeyValue> {
    let mut environment = step.environment.clone();
    const DISTRIBUTION: &str = "SLURM_DISTRIBUTION";
    // The controller has set the variable for planes and lists of hosts.
    let is_dealt = environment.iter().any(|pair| pair.key == DISTRIBUTION);
    let mut set = |key: &str, value| environment.push(KeyValue { key: key.to_owned(), value });
    if let Some(&StepWindow { rows, columns }) = window {
        set("SLURM_PTY_WIN_ROW", rows.to_string());
        set("SLURM_PTY_WIN_COL", columns.to_string());
    }
    for (key, value) in of_srun(step, umask, mpi) {
        set(key, value);
    }
    if let Some(said) = wishes.advice.get(DISTRIBUTION).filter(|_| !is_dealt) {
        set(DISTRIBUTION, said.clone());
    }
    if wishes.step.overcommit {
        set("SLURM_OVERCOMMIT", "1".to_owned());
    }
    if !wishes.spec.name.is_empty() {
        set("SLURM_JOB_NAME", wishes.spec.name.clone());
    }
    let debug = if wishes.quiet { 2 } else { u32::from(wishes.verbose) + 3 };
    set("SRUN_DEBUG", debug.to_string());
    for variable in PASSED_ON {
        if let Some(said) = wishes.advice.get(variable) {
            set(variable, said.clone());
        }
    }
    if let Some(each) = wishes.spec.tasks_per_node {
        set("SLURM_NTASKS_PER_NODE", each.to_string());
    }
    // As in Slurm, tasks get no variables of memory; a batch script has them in its environment.
    environment.retain(|pair| !pair.key.starts_with("SLURM_MEM_PER_"));
    // The directory of this command's own environment takes precedence.
    environment.retain(|pair| pair.key != "SLURM_SUBMIT_DIR" || session.env(&pair.key).is_none());
    if wishes.step.preserve_environment {
        let kept = |pair: &KeyValue| PRESERVED.contains(&&*pair.key);
        environment.retain(|pair| !kept(pair) || session.env(&pair.key).is_none());
    }
    environment
}

/// Returns the variables that describe this command to the tasks.
fn of_srun(step: &CreateStepResponse, umask: u32, mpi: &str) -> Vec<(&'static str, String)> {
    let mut variables =
        vec![("SLURM_UMASK", format!("{umask:04o}")), ("SLURM_PRIO_PROCESS", place::niceness().to_string())];
    if mpi != "none" {
        variables.push(("SLURM_MPI_TYPE", mpi.to_owned()));
    }
    // The address of this host as the first node reaches it.
    if let Some(own) = step.nodes.first().and_then(|node| own_address(&node.address)) {
        variables.push(("SLURM_LAUNCH_NODE_IPADDR", own.clone()));
        variables.push(("SLURM_SRUN_COMM_HOST", own));
    }
    variables
}

/// Returns this host's address on the route to a node. No packet is sent. `None` if the address cannot be
/// determined.
fn own_address(node: &str) -> Option<String> {
    let node = node.to_socket_addrs().ok()?.next()?;
    let any: IpAddr =
        if node.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(node).ok()?;
    socket.local_addr().ok().map(|own| own.ip().to_string())
}

/// Returns the values of placeholders in the names of a step's files.
pub(super) fn names(session: &Session, job: u32, step: &CreateStepResponse, directory: PathBuf) -> Names {
    let number = |name: &str| session.env(name).and_then(|text| text.parse::<u32>().ok());
    Names {
        job,
        array: number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID")),
        step: step.step_id,
        user: whoami().user,
        job_name: session.env("SLURM_JOB_NAME").unwrap_or_default(),
        restarts: number("SLURM_RESTART_COUNT").unwrap_or(0),
        nodes: step.nodes.iter().map(|node| (node.name.clone(), ranks(node))).collect(),
        directory,
    }
}
