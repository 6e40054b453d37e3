//! Meaning of a submission's options: the request to the controller, and the tasks of the command itself.

use std::collections::BTreeMap;
use std::time::Duration;

use spur_core::text::cpubind::CpuBinding;
use spur_core::text::dependency::Dependency;
use spur_core::text::gpubind::GpuBind;
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::membind::MemBinding;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::{Civil, CivilNow, Time, When};
use spur_proto::v1::{CoreAsk, JobSpec};

use super::defs::{SBATCH_LINE, SRUN_LINE};
use super::{CommandLine, Layer, OptionError, Origin, Said, Settled, directive, fold, het};

/// Options of a submission, folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// Request to the controller. [`Submission::into_spec`] adds the batch script, points in time and numbers
    /// of other jobs.
    pub spec: JobSpec,
    /// `--begin`: earliest start.
    pub begin: Option<When>,
    /// `--deadline`: latest end.
    pub deadline: Option<When>,
    /// `--dependency`: dependency on other jobs.
    pub dependency: Option<Dependency>,
    /// `--gather-with`: jobs whose nodes the job should be near.
    pub gather_with: Option<String>,
    /// Standard input, output and error of the job.
    pub files: Files,
    /// `--chdir`: working directory.
    pub chdir: Option<String>,
    /// `--export`: the caller's variables that the job gets.
    pub export: Export,
    /// `--get-user-env`, with its value.
    pub login_environment: Option<String>,
    /// `--export-file`: file with the environment.
    pub export_file: Option<String>,
    /// `--gpus-per-socket`: GPUs per socket, by type.
    pub gpus_per_socket: Option<String>,
    /// `--ntasks-per-gpu`: number of tasks per GPU.
    pub tasks_per_gpu: Option<u32>,
    /// `--overcommit` of a job.
    pub overcommit: bool,
    /// `--umask` of the job.
    pub umask: Option<u32>,
    /// `--clusters`: clusters to submit to.
    pub clusters: Option<String>,
    /// `--spread-job`: as many nodes as there are tasks, if so many are free.
    pub spread: bool,
    /// `--nodefile`, or a `--nodelist` that is the path of a file.
    pub nodefile: Option<String>,
    /// `--exclude`, if it is the path of a file.
    pub excludefile: Option<String>,
    /// `--uid`: user to submit for.
    pub uid: Option<String>,
    /// `--gid`: group to submit for.
    pub gid: Option<String>,
    /// `--acctg-freq`: seconds between two samples of the tasks' usage; 0 for no samples.
    pub sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: true if a step ends when one of its processes is killed for lack of memory.
    pub oom_kill_step: Option<bool>,
    /// Environment variables by which the job's steps inherit these options.
    pub advice: BTreeMap<&'static str, String>,
    /// Options that were given, by long name, each with its effective value.
    pub said: BTreeMap<&'static str, Option<String>>,
    /// True for a batch job.
    pub is_batch: bool,
    /// True for `srun`.
    pub is_srun: bool,
    /// One sentence for each option that was given and has no effect.
    pub notes: Vec<String>,
    /// `--ignore-pbs`: ignores `#PBS` lines of the script.
    pub ignore_pbs: bool,
    /// `--bell` or `--no-bell`.
    pub bell: Option<bool>,
    /// `--no-shell`: allocates nodes without running a command.
    pub no_shell: bool,
    /// `--kill-command`, with its value.
    pub kill_command: Option<String>,
    /// `--immediate`: maximum number of seconds to wait.
    pub immediate: Option<u32>,
    /// `--propagate`: the caller's resource limits that the job gets.
    pub propagate: Propagate,
    /// `--wrap`: command to run instead of a script.
    pub wrap: Option<String>,
    /// `--wait` of `sbatch`.
    pub wait: bool,
    /// `--parsable`: prints only the job's number.
    pub parsable: bool,
    /// `--test-only`: prints the expected start without submitting.
    pub test_only: bool,
    /// `--quiet`: suppresses informational messages.
    pub quiet: bool,
    /// Number of times that `--verbose` was given.
    pub verbose: u8,
    /// Options of steps only.
    pub step: StepWishes,
}

/// Standard input, output and error, as patterns of file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `--input`: pattern of the file for standard input.
    pub input: Option<String>,
    /// `--output`: pattern of the file for standard output.
    pub output: Option<String>,
    /// `--error`: pattern of the file for standard error.
    pub error: Option<String>,
    /// `--open-mode`: true to append to files; `None` leaves the choice to the node.
    pub append: Option<bool>,
}

/// `--export`: the caller's variables that a job gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// All variables.
    #[default]
    All,
    /// Only variables that Spur and Slurm define (`SLURM_`, `SPUR_`).
    None,
    /// Listed names and `NAME=VALUE`; `all` if the list contains `ALL`.
    Some {
        /// True if all other variables are included.
        all: bool,
        /// Pairs of a name and its new value; `None` keeps the caller's value.
        variables: Vec<(String, Option<String>)>,
    },
}

impl Export {
    /// The value of `SLURM_EXPORT_ENV`, from which a step's `srun` reads the same selection; `None` for all
    /// variables.
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

/// Quotes a value for `--export` if the value has a comma or a quote.
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
    /// All limits.
    #[default]
    All,
    /// No limit.
    None,
    /// Limits with these names, without `RLIMIT_`.
    Some(Vec<String>),
}

/// Options of steps only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepWishes {
    /// `--label`: prefixes each output line with its task's number.
    pub label: bool,
    /// `--unbuffered`: passes on the tasks' output at once instead of by lines.
    pub unbuffered: bool,
    /// `--kill-on-bad-exit`; `None` leaves it to the cluster.
    pub kill_on_bad_exit: Option<bool>,
    /// `--wait`: how long the others may go on when the first task has ended; `None` for ever.
    pub wait: Option<Duration>,
    /// `SLURM_SRUN_REDUCE_TASK_EXIT_MSG`: reports only the first of successive identical ends of tasks.
    pub reduced_endings: bool,
    /// `--overlap`: allows the step to share CPUs with other steps.
    pub overlap: bool,
    /// `--no-kill`: the step continues without a failed node.
    pub no_kill: bool,
    /// `--pty`: runs the first task in a pseudo terminal.
    pub pty: bool,
    /// `--jobid`: the job to run in, by the user's name for it.
    pub job: Option<String>,
    /// `--preserve-env`: tasks keep the numbers of nodes and tasks from the environment.
    pub preserve_environment: bool,
    /// `--disable-status`: the first interrupt is passed on to the tasks; a second one within a second kills
    /// them.
    pub disable_status: bool,
    /// `--quit-on-interrupt`: the first interrupt ends the step.
    pub quit_on_interrupt: bool,
    /// `--distribution`: distribution of tasks over nodes, sockets and cores.
    pub distribution: String,
    /// `--relative`: first node of the step within the allocation, counted from 0.
    pub relative: Option<u32>,
    /// `--het-group`: components of a het job to run in; empty for the job itself.
    pub het_group: Vec<u32>,
    /// `--mpi`; empty if not given.
    pub mpi: String,
    /// `--exact`, and `--exclusive` in a job.
    pub exact: bool,
    /// `--whole`: gives the step all CPUs of the job on its nodes.
    pub whole: bool,
    /// `--external-launcher`: external launcher.
    pub external: bool,
    /// `--overcommit`: allows more than one task per CPU.
    pub overcommit: bool,
    /// `--cpu-bind`: binding of tasks to CPUs.
    pub cpu_bind: CpuBinding,
    /// `--mem-bind`: binding of tasks to memory.
    pub mem_bind: MemBinding,
    /// `--gres`, if given.
    pub gres: Option<String>,
    /// `--gpu-bind`: binding of tasks to GPUs.
    pub gpu_bind: Option<GpuBind>,
    /// `--multi-prog`: reads programs and their ranks from a file.
    pub multi_prog: bool,
    /// `a : b`: number of tasks per program, in the order of their ranks; the last program gets the remaining
    /// tasks.
    pub components: Vec<(u32, Vec<String>)>,
    /// `--bcast`, with its value, which may be empty.
    pub bcast: Option<String>,
    /// `--send-libs`: also sends the shared objects of the program sent by `--bcast`.
    pub send_libs: bool,
    /// `--bcast-exclude`: directories whose shared objects are not sent; `None` for the system's directories.
    pub bcast_exclude: Option<Vec<String>>,
    /// `--compress`: compresses the files of `--bcast` for the transfer.
    pub compress: bool,
    /// `--prolog`: program that `srun` runs before the step.
    pub prolog: Option<String>,
    /// `--epilog`: program that `srun` runs after the step.
    pub epilog: Option<String>,
    /// `--task-prolog`: program that each task runs first.
    pub task_prolog: Option<String>,
    /// `--task-epilog`: program that runs after each task.
    pub task_epilog: Option<String>,
}

/// Facts outside the command line that determine the meaning of a time or of a job's name.
pub trait Surroundings {
    /// Returns the present time and the user's civil time.
    fn now(&self) -> CivilNow;
    /// Returns the point in time of a civil time in the user's zone; `None` if the civil time does not exist.
    fn to_epoch(&self, civil: Civil) -> Option<Time>;
    /// Returns the number of a job by the user's name for it; `None` for an unknown job.
    fn job_number(&self, name: &str) -> Option<u32> {
        name.parse().ok()
    }
}

/// Pairs of options that Slurm refuses in one place, each with Slurm's message. Variables are exempt.
const EXCLUSIVE: [(&str, &str, &str); 4] = [
    (
        "cpus-per-gpu",
        "cpus-per-task",
        "--cpus-per-gpu is mutually exclusive with --cpus-per-task; give one of them",
    ),
    (
        "gpus-per-task",
        "ntasks-per-gpu",
        "--gpus-per-task is mutually exclusive with --ntasks-per-gpu; give one of them",
    ),
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
    /// Parses the arguments of `sbatch` without the script's name and arguments. Returns the components of
    /// the job, usually one. Reads and writes no files, so that a simulator can use it.
    ///
    /// # Errors
    /// The invalid option, with its origin.
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

    /// Parses the command line of a command without a script, on top of the environment.
    ///
    /// # Errors
    /// The invalid option, with its origin.
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

    /// Applies layers, the weakest first, and records the given options and the notes on options without
    /// effect.
    ///
    /// # Errors
    /// The first value that is not accepted, with its origin.
    pub fn take<const N: usize>(&mut self, layers: [Layer<Submission>; N]) -> Result<(), OptionError> {
        let named = layers.iter().flatten().filter(|said| !said.option.long.is_empty());
        self.said = named.map(|said| (said.option.long, said.value.clone())).collect();
        layers.iter().try_for_each(exclusive)?;
        let notes = fold(layers, self)?;
        self.notes.extend(notes);
        self.gpus_of_sockets()?;
        self.check_types()?;
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

    /// Turns the job into one with `--overcommit`, which needs on each node only the resources of one task.
    /// Its steps still run all tasks.
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
            self.gpus_of_overcommit(tasks);
        }
    }

    /// Requests the GPUs of all tasks of a job with `--overcommit`, which does not count its tasks.
    fn gpus_of_overcommit(&mut self, tasks: u32) {
        if self.spec.gpus_per_task.is_empty() || !self.spec.gpus.is_empty() || self.gpus_of_node() > 0 {
            return;
        }
        let each = std::mem::take(&mut self.spec.gpus_per_task);
        self.spec.gpus = times(&each, tasks);
        self.advise("SLURM_GPUS_PER_TASK", &each);
    }

    /// Sets a variable by which steps of the job inherit an option.
    pub(super) fn advise(&mut self, variable: &'static str, value: &str) {
        self.advice.insert(variable, value.to_owned());
    }

    /// Sets the single amount of memory of the job, in MiB: per node, CPU or GPU.
    pub(super) fn memory(&mut self, node: Option<u64>, cpu: Option<u64>, gpu: Option<u64>) {
        // Zero per CPU or GPU means all memory of the node, as zero per node does.
        self.spec.memory_per_node_mb = node.or(cpu.or(gpu).filter(|&none| none == 0));
        self.spec.memory_per_cpu_mb = cpu.filter(|&some| some > 0);
        let gpu = gpu.filter(|&some| some > 0);
        if gpu.is_some() || self.spec.cores.is_some() {
            self.cores().memory_per_gpu_mb = gpu;
        }
    }

    /// Returns the constraints on sockets, cores and threads and per GPU, to be changed.
    pub(super) fn cores(&mut self) -> &mut CoreAsk {
        self.spec.cores.get_or_insert_default()
    }

    /// Derives the GPUs per node from those per socket.
    fn gpus_of_sockets(&mut self) -> Result<(), OptionError> {
        if let Some(each) = &self.gpus_per_socket {
            let sockets = self.spec.cores.as_ref().and_then(|cores| cores.sockets_per_node);
            let sockets = sockets.ok_or_else(|| {
                OptionError::together("--gpus-per-socket option requires --sockets-per-node specification")
            })?;
            self.spec.gpus_per_node = times(each, sockets);
        }
        Ok(())
    }

    /// Refuses a resource that is asked for of each node both with and without a type, as Slurm does.
    fn check_types(&self) -> Result<(), OptionError> {
        let gpus = GresList::parse_gpus(&self.spec.gpus_per_node).unwrap_or_default();
        let GresList(gres) = self.spec.gres.parse().unwrap_or_default();
        let all: Vec<GresSpec> = gres.into_iter().chain(gpus.0).collect();
        let mixed = |one: &GresSpec| {
            one.kind.is_none() && all.iter().any(|other| other.name == one.name && other.kind.is_some())
        };
        match all.iter().find(|one| mixed(one)) {
            Some(GresSpec { name, .. }) => Err(OptionError::together(format!(
                "Invalid GRES specification (with and without type identification): {name}; give a type in each place or in none"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the number of GPUs that the job requests on each node.
    fn gpus_of_node(&self) -> u32 {
        let devices = self.spec.gres.split(',').filter(|item| item.split(':').next() == Some("gpu"));
        number_of_gpus(&self.spec.gpus_per_node).max(number_of_gpus(&devices.collect::<Vec<_>>().join(",")))
    }

    /// Derives the number of nodes from the job's GPUs and those per node, as Slurm does. The GPUs per node
    /// then suffice.
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

    /// Refuses GPUs per task without a number of tasks or against it, as Slurm does.
    fn check_gpus_of_tasks(&self) -> Result<(), OptionError> {
        let each = number_of_gpus(&self.spec.gpus_per_task);
        if each == 0 {
            return Ok(());
        }
        let (all, on_node) = (number_of_gpus(&self.spec.gpus), self.gpus_of_node());
        let says_tasks = self.spec.tasks.is_some() || self.spec.tasks_per_node.is_some();
        let problem = if all == 0 && !says_tasks && self.spec.nodes.is_empty() {
            "--gpus-per-task used without either --gpus or -n/--ntasks is not allowed".to_owned()
        } else if all > 0 && !all.is_multiple_of(each) {
            format!("--gpus not multiple of --gpus-per-task: {all} are wanted, {each} for each task")
        } else if all > 0 && self.spec.tasks.is_some_and(|tasks| tasks != all / each) {
            format!(
                "Based on --gpus and --gpus-per-task number of requested tasks differ from -n/--ntasks: {all} GPUs are for {} tasks",
                all / each
            )
        } else if let Some(tasks) = self.spec.tasks_per_node
            && on_node > 0
            && tasks.saturating_mul(each) != on_node
        {
            format!(
                "Based on --gres=gpu/--gpus-per-node and --gpus-per-task requested number of tasks per node differ from --ntasks-per-node: {on_node} GPUs are for {} tasks",
                on_node / each
            )
        } else {
            return Ok(());
        };
        Err(OptionError::together(format!("Failed to validate job spec. {problem}")))
    }

    /// Returns the number of tasks of a job that requests only sockets, cores or threads, as with Slurm: the
    /// number of nodes multiplied by the requested numbers of these. `None` without a fixed number of nodes.
    /// For `srun`, sockets, cores and threads must all be given.
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

    /// True if the number of tasks must be derived from other options.
    fn names_no_tasks(&self) -> bool {
        self.spec.tasks.is_none() && self.spec.tasks_per_node.is_none() && !self.overcommit
    }

    /// Returns the number of tasks that follows from the GPUs of the job and those per task; `None` unless
    /// both are given and the division has no remainder.
    fn tasks_of_gpus(&self) -> Option<u32> {
        let (all, each) = (number_of_gpus(&self.spec.gpus), number_of_gpus(&self.spec.gpus_per_task));
        (all > 0 && each > 0 && all.is_multiple_of(each)).then(|| all / each)
    }

    /// Works out what follows from several options together: tasks from GPUs or GPUs from tasks
    /// (`--ntasks-per-gpu`), and the node count of `--use-min-nodes` without tasks and of `--spread-job`.
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

    /// Folds the layers of a batch job, component by component: script, environment, command line.
    /// `components` holds the command line's options of each component.
    ///
    /// # Errors
    /// The invalid option, with its origin.
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

    /// Returns the request, complete except for the batch script.
    ///
    /// # Errors
    /// A time that does not exist, or an unknown job.
    pub fn into_spec(mut self, world: &dyn Surroundings) -> Result<JobSpec, OptionError> {
        self.check_gpus_of_tasks()?;
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

/// Variables that describe the job inside a job. A step ignores them, and the controller supplies the job's
/// values where the step gives none. Memory and devices count only if the step requests them.
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

/// Returns the number of GPUs in a list of devices or of GPUs.
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

/// Multiplies each number in a list of GPUs.
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
