//! What the options of a submission mean: the request as it goes to the controller, and what the command itself
//! has to do.

use std::collections::BTreeMap;
use std::time::Duration;

use spur_core::text::cpubind::CpuBinding;
use spur_core::text::dependency::Dependency;
use spur_core::text::gpubind::GpuBind;
use spur_core::text::membind::MemBinding;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::{Civil, CivilNow, Time, When};
use spur_proto::v1::{CoreAsk, JobSpec};

use super::defs::{SBATCH_LINE, SRUN_LINE};
use super::{CommandLine, Layer, OptionError, Origin, Said, Settled, directive, fold, het};

/// What the options say, folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// What goes to the controller as it stands. Batch script, points in time and numbers of other jobs are not in
    /// it yet; see [`Submission::into_spec`].
    pub spec: JobSpec,
    /// `--begin`.
    pub begin: Option<When>,
    /// `--deadline`.
    pub deadline: Option<When>,
    /// `--dependency`.
    pub dependency: Option<Dependency>,
    /// `--gather-with`.
    pub gather_with: Option<String>,
    /// What the job reads and writes.
    pub files: Files,
    /// `--chdir`.
    pub chdir: Option<String>,
    /// `--export`.
    pub export: Export,
    /// `--get-user-env`, with its value.
    pub login_environment: Option<String>,
    /// `--export-file`.
    pub export_file: Option<String>,
    /// `--gpus-per-socket`.
    pub gpus_per_socket: Option<String>,
    /// `--ntasks-per-gpu`.
    pub tasks_per_gpu: Option<u32>,
    /// `--overcommit` of a job.
    pub overcommit: bool,
    /// `--umask`.
    pub umask: Option<u32>,
    /// `--clusters`.
    pub clusters: Option<String>,
    /// `--spread-job`: as many nodes as there are tasks, if so many are free.
    pub spread: bool,
    /// `--nodefile`, or a `--nodelist` that is the path of a file.
    pub nodefile: Option<String>,
    /// An `--exclude` that is the path of a file.
    pub excludefile: Option<String>,
    /// `--uid`.
    pub uid: Option<String>,
    /// `--gid`.
    pub gid: Option<String>,
    /// `--acctg-freq`: seconds between two looks at what tasks use; 0: nobody looks.
    pub sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: whether a step ends when one of its processes was killed for lack of memory.
    pub oom_kill_step: Option<bool>,
    /// What steps of the job find in their environment of what was said here, by the names of the variables.
    pub advice: BTreeMap<&'static str, String>,
    /// What was said, by the long names of the options, the value that counts of each.
    pub said: BTreeMap<&'static str, Option<String>>,
    /// Whether it is of a batch job.
    pub is_batch: bool,
    /// Whether it is `srun`'s.
    pub is_srun: bool,
    /// What was said and has no effect, each in a sentence.
    pub notes: Vec<String>,
    /// `--ignore-pbs`.
    pub ignore_pbs: bool,
    /// `--bell` or `--no-bell`.
    pub bell: Option<bool>,
    /// `--no-shell`.
    pub no_shell: bool,
    /// `--kill-command`, with its value.
    pub kill_command: Option<String>,
    /// `--immediate`: how many seconds at most may be waited.
    pub immediate: Option<u32>,
    /// `--propagate`.
    pub propagate: Propagate,
    /// `--wrap`.
    pub wrap: Option<String>,
    /// `--wait` of `sbatch`.
    pub wait: bool,
    /// `--parsable`.
    pub parsable: bool,
    /// `--test-only`.
    pub test_only: bool,
    /// `--quiet`.
    pub quiet: bool,
    /// How often `--verbose` was given.
    pub verbose: u8,
    /// What only a step has.
    pub step: StepWishes,
}

/// Standard input, output and error, as patterns of file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `--input`.
    pub input: Option<String>,
    /// `--output`.
    pub output: Option<String>,
    /// `--error`.
    pub error: Option<String>,
    /// `--open-mode`: whether files are added to; unset, as the node sees fit.
    pub append: Option<bool>,
}

/// `--export`: which of the caller's variables a job gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// All, and some set anew.
    #[default]
    All,
    /// Only those that Spur and Slurm know by their names (`SLURM_`, `SPUR_`), and some set anew.
    None,
    /// A list of names, and of `NAME=VALUE`; `all` if `ALL` is among them.
    Some {
        /// Whether all others come along.
        all: bool,
        /// A name, and the value it is set to; without one, the caller's.
        variables: Vec<(String, Option<String>)>,
    },
}

impl Export {
    /// The value of `SLURM_EXPORT_ENV`, from which a step's `srun` reads the same selection; `None` for all variables.
    pub fn spelled(&self) -> Option<String> {
        match self {
            Export::All => None,
            Export::None => Some("NONE".to_owned()),
            Export::Some { all, variables } => {
                let all = all.then(|| "ALL".to_owned());
                let one = |(name, value): &(String, Option<String>)| match value {
                    Some(value) => format!("{name}={}", quoted(value)),
                    None => name.clone(),
                };
                Some(all.into_iter().chain(variables.iter().map(one)).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A value of `--export` as that option reads it: quoted if it holds a comma or a quote.
fn quoted(value: &str) -> String {
    let part = |part: &str| match (part.contains(','), part.contains('\'')) {
        (_, true) => format!("\"{part}\""),
        (true, false) => format!("'{part}'"),
        (false, false) => part.to_owned(),
    };
    // Between double quotes stands all but a double quote, which stands between single quotes.
    value.split('"').map(part).collect::<Vec<_>>().join("'\"'")
}

/// `--propagate`: which of the caller's resource limits a job gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Propagate {
    /// All of them.
    #[default]
    All,
    /// None of them.
    None,
    /// Those named, without `RLIMIT_`.
    Some(Vec<String>),
}

/// What only a step has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepWishes {
    /// `--label`.
    pub label: bool,
    /// `--unbuffered`: what tasks write is passed on at once, not line by line.
    pub unbuffered: bool,
    /// `--kill-on-bad-exit`; `None` leaves it to the cluster.
    pub kill_on_bad_exit: Option<bool>,
    /// `--wait`: how long the others may go on when the first task has ended; `None` for ever.
    pub wait: Option<Duration>,
    /// `SLURM_SRUN_REDUCE_TASK_EXIT_MSG`: of ends that are alike, one after the other, the first is told of.
    pub reduced_endings: bool,
    /// `--overlap`.
    pub overlap: bool,
    /// `--no-kill`: it goes on without a node that fails.
    pub no_kill: bool,
    /// `--pty`.
    pub pty: bool,
    /// `--jobid`: the job to run in, as its user names it.
    pub job: Option<String>,
    /// `--preserve-env`: tasks see the numbers of nodes and tasks that stand in the environment.
    pub preserve_environment: bool,
    /// `--disable-status`: the first interrupt is passed on to the tasks, and a second one within a second kills them.
    pub disable_status: bool,
    /// `--quit-on-interrupt`: the first interrupt ends the step.
    pub quit_on_interrupt: bool,
    /// `--distribution`.
    pub distribution: String,
    /// `--relative`.
    pub relative: Option<u32>,
    /// `--het-group`: the components of a het job to run in; none for the job itself.
    pub het_group: Vec<u32>,
    /// `--mpi`; empty where nothing was said.
    pub mpi: String,
    /// `--exact`, and `--exclusive` in a job.
    pub exact: bool,
    /// `--whole`.
    pub whole: bool,
    /// `--external-launcher`.
    pub external: bool,
    /// `--overcommit`.
    pub overcommit: bool,
    /// `--cpu-bind`.
    pub cpu_bind: CpuBinding,
    /// `--mem-bind`.
    pub mem_bind: MemBinding,
    /// `--gres`, if something was said.
    pub gres: Option<String>,
    /// `--gpu-bind`.
    pub gpu_bind: Option<GpuBind>,
    /// `--multi-prog`.
    pub multi_prog: bool,
    /// `a : b`: how many tasks run each program, in the order of their ranks; the last has all that are left.
    pub components: Vec<(u32, Vec<String>)>,
    /// `--bcast`, with its value, which may be empty.
    pub bcast: Option<String>,
    /// `--send-libs`: the shared objects of what `--bcast` sends go along.
    pub send_libs: bool,
    /// `--bcast-exclude`: the directories whose shared objects stay here; `None`: the system's.
    pub bcast_exclude: Option<Vec<String>>,
    /// `--compress`: what `--bcast` sends is compressed on the way.
    pub compress: bool,
    /// `--prolog`: run here before the step.
    pub prolog: Option<String>,
    /// `--epilog`: run here after it.
    pub epilog: Option<String>,
    /// `--task-prolog`.
    pub task_prolog: Option<String>,
    /// `--task-epilog`.
    pub task_epilog: Option<String>,
}

/// What must be known of the world to know what a time, or the number of a job, means.
pub trait Surroundings {
    /// The present, and what the user's clock shows.
    fn now(&self) -> CivilNow;
    /// The point in time of a civil time in the user's zone; `None` if there is none.
    fn to_epoch(&self, civil: Civil) -> Option<Time>;
    /// The number of a job by the name that the user has for it.
    fn job_number(&self, name: &str) -> Option<u32> {
        name.parse().ok()
    }
}

/// Pairs of options that Slurm refuses in one place, each with Slurm's words; in variables they may stand together.
const EXCLUSIVE: [(&str, &str, &str); 2] = [
    ("core-spec", "thread-spec", "-S/--core-spec and --thread-spec options are mutually exclusive"),
    ("hint", "threads-per-core", "Following options are mutually exclusive with --hint: --threads-per-core"),
];

/// Refuses options of one place that exclude each other.
fn exclusive(layer: &Layer<Submission>) -> Result<(), OptionError> {
    let said = |name: &str| {
        let is_named = |said: &&Said<Submission>| said.option.long == name;
        layer.iter().filter(is_named).any(|said| !matches!(said.origin, Origin::Variable(_)))
    };
    match EXCLUSIVE.iter().find(|(one, other, _)| said(one) && said(other)) {
        Some((.., words)) => Err(OptionError::together(*words)),
        None => Ok(()),
    }
}

impl Submission {
    /// Reads what a user would type after `sbatch`, script and its arguments left out: the components of the job, of which
    /// most have one. Nothing is read or written, so that a simulator can use it.
    ///
    /// # Errors
    /// What is wrong, with the place where it was said.
    pub fn parse(
        argv: &[String],
        env: &dyn Fn(&str) -> Option<String>,
        script: Option<&str>,
    ) -> Result<Vec<Submission>, OptionError> {
        match het::read(&SBATCH_LINE, argv)? {
            het::Reading::Show(_) => {
                Err(OptionError::together("--help, --usage and --version have no place here"))
            }
            het::Reading::Run { components, operands } => match operands.first() {
                None => Submission::settle(components, env, script),
                Some(word) => Err(OptionError::together(format!("`{word}` is no option"))),
            },
        }
    }

    /// Reads the command line of a command without a script, over what the environment says.
    ///
    /// # Errors
    /// What is wrong, with the place where it was said.
    pub fn settle_line(
        &mut self,
        line: &CommandLine<Submission>,
        words: &[String],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Settled, OptionError> {
        match line.read(words)? {
            super::Reading::Show(text) => Ok(Settled::Show(text)),
            super::Reading::Run { args, operands } => {
                let in_job = env("SLURM_JOB_ID").is_some();
                let env = |name: &str| env(name).filter(|_| !in_job || !OF_JOB.contains(&name));
                self.is_batch = line.name == SBATCH_LINE.name;
                self.is_srun = line.name == SRUN_LINE.name;
                self.take([line.read_env(&env), args])?;
                Ok(Settled::Run(operands))
            }
        }
    }

    /// Lets layers act, the weakest first, and remembers what was said and what has no effect.
    ///
    /// # Errors
    /// The first value that is not accepted, with where it was said.
    pub fn take<const N: usize>(&mut self, layers: [Layer<Submission>; N]) -> Result<(), OptionError> {
        let named = layers.iter().flatten().filter(|said| !said.option.long.is_empty());
        self.said = named.map(|said| (said.option.long, said.value.clone())).collect();
        layers.iter().try_for_each(exclusive)?;
        let notes = fold(layers, self)?;
        self.notes.extend(notes);
        self.gpus_of_sockets()?;
        self.nodes_of_gpus()?;
        if self.overcommit {
            self.apply_overcommit();
        }
        if let Some(each) = self.tasks_per_gpu
            && !["gpu-bind", "tres-bind"].iter().any(|option| self.said.contains_key(option))
        {
            self.step.gpu_bind = Some(GpuBind::Single(each));
        }
        if self.verbose > 0 {
            self.said.insert("verbose", None);
        }
        Ok(())
    }

    /// Makes of it a job as with `--overcommit`, which has of each node what one task needs. Its steps have all its tasks
    /// there nevertheless.
    pub(crate) fn apply_overcommit(&mut self) {
        let nodes =
            self.spec.nodes.split(['-', ',']).next().and_then(|least| least.parse().ok()).unwrap_or(1_u32);
        let each = self.spec.tasks_per_node.take();
        if let Some(each) = each {
            self.advise("SLURM_NTASKS_PER_NODE", &each.to_string());
        }
        let tasks = self.spec.tasks.take().or(each.map(|each| each.saturating_mul(nodes)));
        if self.spec.nodes.is_empty() && self.spec.nodelist.is_empty() {
            "1".clone_into(&mut self.spec.nodes);
        }
        if let Some(cores) = &mut self.spec.cores {
            (cores.tasks_per_core, cores.tasks_per_socket) = (None, None);
        }
        self.spec.overcommit_tasks = tasks;
        self.advise("SLURM_OVERCOMMIT", "1");
        if let Some(tasks) = tasks {
            for name in ["SLURM_NTASKS", "SLURM_NPROCS"] {
                self.advise(name, &tasks.to_string());
            }
        }
    }

    /// Sets a variable that steps of the job read as what they are to do.
    pub(super) fn advise(&mut self, variable: &'static str, value: &str) {
        self.advice.insert(variable, value.to_owned());
    }

    /// Sets the one amount of memory that was asked for, MiB: of each node, CPU or GPU.
    pub(super) fn memory(&mut self, node: Option<u64>, cpu: Option<u64>, gpu: Option<u64>) {
        // None of a CPU or GPU is all of the node, as none of the node is.
        self.spec.memory_per_node_mb = node.or(cpu.or(gpu).filter(|&none| none == 0));
        self.spec.memory_per_cpu_mb = cpu.filter(|&some| some > 0);
        let gpu = gpu.filter(|&some| some > 0);
        if gpu.is_some() || self.spec.cores.is_some() {
            self.cores().memory_per_gpu_mb = gpu;
        }
    }

    /// What is asked of sockets, cores and threads, and for each GPU.
    pub(super) fn cores(&mut self) -> &mut CoreAsk {
        self.spec.cores.get_or_insert_default()
    }

    /// The GPUs of each node that follow from those of its sockets.
    fn gpus_of_sockets(&mut self) -> Result<(), OptionError> {
        if let Some(each) = &self.gpus_per_socket {
            let sockets = self.spec.cores.as_ref().and_then(|cores| cores.sockets_per_node);
            let sockets = sockets.ok_or_else(|| {
                OptionError::together("--gpus-per-socket option requires --sockets-per-node")
            })?;
            self.spec.gpus_per_node = times(each, sockets);
        }
        Ok(())
    }

    /// How many GPUs the job is to have of each of its nodes.
    fn gpus_of_node(&self) -> u32 {
        let devices = self.spec.gres.split(',').filter(|item| item.split(':').next() == Some("gpu"));
        number_of_gpus(&self.spec.gpus_per_node).max(number_of_gpus(&devices.collect::<Vec<_>>().join(",")))
    }

    /// The number of nodes that follows from the GPUs of the job and of each node, as with Slurm. With it those of each node
    /// say all there is to say.
    fn nodes_of_gpus(&mut self) -> Result<(), OptionError> {
        let (all, each) = (number_of_gpus(&self.spec.gpus), self.gpus_of_node());
        if all == 0 || each == 0 {
            return Ok(());
        }
        if !all.is_multiple_of(each) {
            return Err(OptionError::together(format!(
                "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node: {all} are wanted, {each} of each node"
            )));
        }
        let count = all / each;
        if let Ok(NodeCount { min, max, .. }) = self.spec.nodes.parse()
            && !(min..=max.unwrap_or(u32::MAX)).contains(&count)
        {
            return Err(OptionError::together(format!(
                "Failed to validate job spec. Based on --gpus and --gres=gpu/--gpus-per-node required nodes ({count}) \
                 doesn't fall between the nodes that -N allows ({})",
                self.spec.nodes
            )));
        }
        if !self.is_srun && self.names_no_tasks() {
            self.spec.tasks = self.tasks_of_gpus();
        }
        self.spec.nodes = count.to_string();
        let gpus = std::mem::take(&mut self.spec.gpus);
        if let (Some((kind, _)), true) =
            (gpus.split_once(':'), self.spec.gpus_per_node.parse::<u32>().is_ok())
        {
            self.spec.gpus_per_node = format!("{kind}:{each}");
        }
        self.advise("SLURM_GPUS", &gpus);
        Ok(())
    }

    /// The tasks of a job that gives none, but says what its nodes are to have of sockets, cores and threads: one for each, as
    /// with Slurm; `srun` counts so only where all three are said.
    pub(crate) fn tasks_of_cores(&self) -> Option<u32> {
        let cores = self.spec.cores.as_ref()?;
        let nodes = self.spec.nodes.as_str();
        let nodes = match nodes.split_once('-').unwrap_or((nodes, nodes)) {
            ("", "") if self.spec.nodelist.is_empty() && self.said.contains_key("extra-node-info") => 1,
            (least, most) if least == most => least.parse().ok()?,
            _ => return None,
        };
        let said = [cores.sockets_per_node, cores.cores_per_socket, cores.threads_per_core];
        let counts = said.iter().flatten();
        let is_counted = counts.clone().count() >= if self.is_srun { said.len() } else { 1 };
        is_counted.then(|| counts.fold(nodes, |tasks: u32, count| tasks.saturating_mul(*count)))
    }

    /// Whether its tasks are to be counted from what else it says.
    fn names_no_tasks(&self) -> bool {
        self.spec.tasks.is_none() && self.spec.tasks_per_node.is_none() && !self.overcommit
    }

    /// The tasks of a job that says how many GPUs it has and how many each task.
    fn tasks_of_gpus(&self) -> Option<u32> {
        let (all, each) = (number_of_gpus(&self.spec.gpus), number_of_gpus(&self.spec.gpus_per_task));
        (all > 0 && each > 0 && all.is_multiple_of(each)).then(|| all / each)
    }

    /// Works out what follows from several options together: tasks from GPUs or GPUs from tasks (`--ntasks-per-gpu`), and the
    /// node count of `--use-min-nodes` without tasks and of `--spread-job`.
    pub(crate) fn derive(&mut self) -> Result<(), OptionError> {
        if let Some(each) = self.tasks_per_gpu {
            let on_node = self.gpus_of_node();
            let spec = &mut self.spec;
            let of_job = number_of_gpus(&spec.gpus);
            match spec.tasks {
                Some(tasks) if of_job == 0 && on_node == 0 => spec.gpus = tasks.div_ceil(each).to_string(),
                Some(_) => {}
                None if of_job > 0 => spec.tasks = Some(of_job.saturating_mul(each)),
                None if on_node > 0 => spec.tasks_per_node = Some(on_node.saturating_mul(each)),
                None => {
                    return Err(OptionError::together("--ntasks-per-gpu needs --ntasks or a number of GPUs"));
                }
            }
        }
        if self.names_no_tasks() {
            self.spec.tasks = self.tasks_of_gpus().or_else(|| self.tasks_of_cores());
        }
        if self.spec.use_min_nodes
            && self.spec.tasks.is_none()
            && let Some((least, _)) = self.spec.nodes.split_once('-')
        {
            self.spec.nodes = least.to_owned();
        }
        if self.spread
            && self.spec.nodes.is_empty()
            && let Some(tasks) = self.spec.tasks.filter(|tasks| *tasks > 1)
        {
            self.spec.nodes = format!("1-{tasks}");
        }
        Ok(())
    }

    /// Folds the layers of a batch job, component by component: script, environment, command line. `components` is what the
    /// command line says of each.
    ///
    /// # Errors
    /// What is wrong, with the place where it was said.
    pub fn settle(
        components: Vec<Layer<Submission>>,
        env: &dyn Fn(&str) -> Option<String>,
        script: Option<&str>,
    ) -> Result<Vec<Submission>, OptionError> {
        let script = script.map_or(Ok(Vec::new()), |script| directive::from_script(&SBATCH_LINE, script))?;
        let count = components.len().max(script.len());
        let (script, args) = (het::inherit(script, count), het::inherit(components, count));
        let mut submissions = Vec::with_capacity(count);
        for (script, args) in script.into_iter().zip(args) {
            let mut submission = Submission { is_batch: true, ..Submission::default() };
            let [(inherited_script, script), (inherited, args)] = [script, args];
            let env = SBATCH_LINE.read_env(env);
            submission.take([inherited_script, script, env, inherited, args])?;
            submissions.push(submission);
        }
        Ok(submissions)
    }

    /// The request, with everything resolved but the batch script.
    ///
    /// # Errors
    /// A time that does not exist, a job that is none.
    pub fn into_spec(mut self, world: &dyn Surroundings) -> Result<JobSpec, OptionError> {
        self.derive()?;
        let mut spec = self.spec;
        let refuse = |option: &str, problem: String| OptionError {
            origin: Origin::Argument(option.to_owned()),
            problem,
            usage: false,
        };
        let resolve = |when: Option<When>, option| {
            let point = |when: When| when.resolve(world.now(), &|civil| world.to_epoch(civil));
            when.map(point).transpose().map_err(|error| refuse(option, error.to_string()))
        };
        let job = |name: &str, option| {
            let unknown = || refuse(option, format!("`{name}` is no job; give the number of one"));
            world.job_number(name).ok_or_else(unknown)
        };
        spec.begin = resolve(self.begin, "--begin")?.map(|time| time.0);
        spec.deadline = resolve(self.deadline, "--deadline")?.map(|time| time.0);
        if let Some(dependency) = self.dependency {
            let dependency = dependency.map_jobs(|name: String| job(&name, "--dependency"))?;
            spec.dependency = dependency.to_string();
        }
        spec.gather_with = self.gather_with.map(|name| job(&name, "--gather-with")).transpose()?;
        Ok(spec)
    }
}

/// Variables that inside a job say what the job has. A step has its own name, and so much of the rest as it says; the
/// controller gives it what the job has where it says nothing, and counts memory and devices only where a step asks.
const OF_JOB: [&str; 12] = [
    "SLURM_JOB_NAME",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
];

/// How many GPUs a list of devices, or of GPUs, names.
fn number_of_gpus(list: &str) -> u32 {
    let count = |item: &str| {
        let rest = item.strip_prefix("gpu:").unwrap_or(item);
        match item.split(':').next() {
            Some("gpu") if rest == item => Some(1),
            _ => rest.rsplit(':').next().and_then(|count| count.parse().ok()),
        }
    };
    list.split(',').filter(|item| !item.is_empty()).filter_map(count).fold(0, u32::saturating_add)
}

/// A list of GPUs, each number multiplied.
fn times(list: &str, factor: u32) -> String {
    let one = |item: &str| match item.rsplit_once(':') {
        Some((kind, count)) => {
            format!("{kind}:{}", count.parse::<u32>().unwrap_or(1).saturating_mul(factor))
        }
        None => item
            .parse::<u32>()
            .map_or_else(|_| format!("{item}:{factor}"), |count| count.saturating_mul(factor).to_string()),
    };
    list.split(',').map(one).collect::<Vec<_>>().join(",")
}
