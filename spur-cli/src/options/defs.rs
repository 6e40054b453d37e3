//! The options of those commands that ask for nodes, each defined once.
//!
//! A value is checked where it is said, by the parser of its own language, so that the error names the option and
//! the place. What a job asks for can only be judged by the controller, which knows the cluster.

use std::time::Duration;

use spur_core::model::idset::IdSet;
use spur_core::text::array::ArraySpec;
use spur_core::text::dependency::Dependency;
use spur_core::text::features::FeatureExpr;
use spur_core::text::gather::{Gather, HetGather, NetworkNeed, Placement, Switches};
use spur_core::text::gres::GresList;
use spur_core::text::hostlist::HostExpr;
use spur_core::text::memory::MemoryMb;
use spur_core::text::nodes::NodeCount;
use spur_core::text::pattern::FilePattern;
use spur_core::text::signal::WarnSignal;
use spur_core::text::time::{TimeLimit, When};
use spur_proto::v1::Sharing;

use super::submission::{Export, Propagate, Submission};
use super::values::{
    count, mail_types, number, on_off, parsed, parsed_or_none, resource_limits, text, yes_no,
};
use super::{CommandLine, Opt};

const SBATCH: u8 = 1;
const SALLOC: u8 = 2;
const SRUN: u8 = 4;
/// The commands that ask for an allocation.
const JOB: u8 = SBATCH | SALLOC;
/// The commands whose programs have files and an environment.
const PROGRAM: u8 = SBATCH | SRUN;

/// `sbatch`.
pub const SBATCH_LINE: CommandLine<Submission> = CommandLine {
    name: "sbatch",
    synopsis: "[OPTIONS] SCRIPT [ARGUMENTS]",
    about: "Submits SCRIPT, or standard input where no script is named, as a batch job. Lines of the script that \
            begin with #SBATCH hold options, too; those of the environment count more, and those of the command line \
            most.",
    options: SUBMISSION,
    mask: SBATCH,
    env_prefixes: &["SBATCH_"],
    permute: false,
};

/// `srun`.
pub const SRUN_LINE: CommandLine<Submission> = CommandLine {
    name: "srun",
    synopsis: "[OPTIONS] PROGRAM [ARGUMENTS]",
    about: "Runs PROGRAM as a step of the job it is called in, by default once for each of the job's tasks.",
    options: SUBMISSION,
    mask: SRUN,
    env_prefixes: &["SLURM_", "SRUN_"],
    permute: false,
};

type Def = Opt<Submission>;

/// The table.
pub const SUBMISSION: &[Opt<Submission>] = &[
    // Who and what.
    Def::value("job-name", Some('J'), "NAME", "name of the job or step", |s, v| {
        s.spec.name = text(v)?;
        Ok(())
    })
    .only(JOB | SRUN)
    .env(&["SBATCH_JOB_NAME", "SALLOC_JOB_NAME"]),
    Def::value("account", Some('A'), "NAME", "account to charge", |s, v| {
        v.clone_into(&mut s.spec.account);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_ACCOUNT", "SALLOC_ACCOUNT"]),
    Def::value("qos", Some('q'), "NAME", "quality of service", |s, v| {
        v.clone_into(&mut s.spec.qos);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_QOS", "SALLOC_QOS"]),
    Def::value(
        "partition",
        Some('p'),
        "NAMES",
        "partitions the job may run in, separated by commas",
        |s, v| {
            s.spec.partition = text(v)?;
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_PARTITION", "SALLOC_PARTITION"]),
    Def::value("reservation", None, "NAME", "reservation to run in", |s, v| {
        v.clone_into(&mut s.spec.reservation);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_RESERVATION", "SALLOC_RESERVATION"]),
    Def::value("wckey", None, "KEY", "workload characterization key, for accounting", |s, v| {
        v.clone_into(&mut s.spec.wckey);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_WCKEY", "SALLOC_WCKEY"]),
    Def::value("comment", None, "TEXT", "a comment that is kept with the job", |s, v| {
        s.spec.comment = v.to_owned();
        Ok(())
    })
    .only(JOB),
    // How much of what.
    Def::value("nodes", Some('N'), "N[-M[:STEP]]", "number of nodes, or the smallest and largest", |s, v| {
        parsed::<NodeCount>(v)?;
        s.spec.nodes = v.to_owned();
        Ok(())
    })
    .only(JOB | SRUN),
    Def::value("ntasks", Some('n'), "N", "number of tasks", |s, v| {
        s.spec.tasks = Some(count(v)?);
        Ok(())
    })
    .only(JOB | SRUN),
    Def::value("ntasks-per-node", None, "N", "tasks on each node", |s, v| {
        s.spec.tasks_per_node = Some(count(v)?);
        Ok(())
    })
    .or(&["tasks-per-node"])
    .only(JOB | SRUN),
    Def::value("cpus-per-task", Some('c'), "N", "CPUs of each task", |s, v| {
        s.spec.cpus_per_task = Some(count(v)?);
        Ok(())
    })
    .only(JOB | SRUN)
    .env(&["SRUN_CPUS_PER_TASK"]),
    Def::value("mem", None, "SIZE", "memory on each node, e.g. 4G; 0 for all there is", |s, v| {
        s.spec.memory_per_node_mb = Some(parsed::<MemoryMb>(v)?.0);
        s.spec.memory_per_cpu_mb = None;
        Ok(())
    })
    .only(JOB)
    .excluding(&["mem-per-cpu"])
    .env(&["SBATCH_MEM_PER_NODE", "SALLOC_MEM_PER_NODE"]),
    Def::value("mem-per-cpu", None, "SIZE", "memory for each CPU, e.g. 2G", |s, v| {
        s.spec.memory_per_cpu_mb = Some(parsed::<MemoryMb>(v)?.0);
        s.spec.memory_per_node_mb = None;
        Ok(())
    })
    .only(JOB)
    .excluding(&["mem"])
    .env(&["SBATCH_MEM_PER_CPU", "SALLOC_MEM_PER_CPU"]),
    Def::value("tmp", None, "SIZE", "temporary disk space that nodes must have", |s, v| {
        s.spec.tmp_disk_mb = parsed::<MemoryMb>(v)?.0;
        Ok(())
    })
    .only(JOB),
    Def::value("mincpus", None, "N", "CPUs that nodes must have", |s, v| {
        s.spec.min_cpus = count(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("gres", None, "LIST", "generic resources on each node, e.g. gpu:2", |s, v| {
        s.spec.gres = parsed::<GresList>(v)?.to_string();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GRES", "SALLOC_GRES"]),
    Def::value("gpus", Some('G'), "[TYPE:]N", "GPUs of the whole job", |s, v| {
        GresList::parse_gpus(v).map_err(|error| error.to_string())?;
        s.spec.gpus = v.to_owned();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS", "SALLOC_GPUS"]),
    Def::value("gpus-per-node", None, "[TYPE:]N", "GPUs on each node", |s, v| {
        GresList::parse_gpus(v).map_err(|error| error.to_string())?;
        s.spec.gpus_per_node = v.to_owned();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS_PER_NODE", "SALLOC_GPUS_PER_NODE"]),
    Def::value("gpus-per-task", None, "[TYPE:]N", "GPUs of each task", |s, v| {
        GresList::parse_gpus(v).map_err(|error| error.to_string())?;
        s.spec.gpus_per_task = v.to_owned();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS_PER_TASK", "SALLOC_GPUS_PER_TASK"]),
    Def::value("licenses", Some('L'), "LIST", "licenses, e.g. matlab:2", |s, v| {
        v.clone_into(&mut s.spec.licenses);
        Ok(())
    })
    .only(JOB),
    // Which nodes.
    Def::value(
        "constraint",
        Some('C'),
        "FEATURES",
        "features that nodes must have, e.g. ib&(a|b)",
        |s, v| {
            parsed_or_none::<FeatureExpr>(v)?;
            s.spec.features = v.to_owned();
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_CONSTRAINT", "SALLOC_CONSTRAINT"]),
    Def::value(
        "nodelist",
        Some('w'),
        "HOSTLIST",
        "nodes that must be among those of the job or step",
        |s, v| {
            parsed::<HostExpr>(v)?;
            s.spec.nodelist = v.to_owned();
            Ok(())
        },
    )
    .only(JOB | SRUN),
    Def::value("exclude", Some('x'), "HOSTLIST", "nodes that must not be among them", |s, v| {
        parsed::<HostExpr>(v)?;
        s.spec.exclude = v.to_owned();
        Ok(())
    })
    .only(JOB | SRUN),
    Def::value(
        "exclusive",
        None,
        "topo",
        "whole nodes for this job alone; topo: whole leaves or blocks",
        |s, v| {
            s.spec.sharing = match v {
                "" => Sharing::Exclusive,
                "topo" => Sharing::Topo,
                "user" | "mcs" => {
                    return Err(format!("sharing by {v} is not offered; leave the value out, or say topo"));
                }
                other => return Err(format!("`{other}` is not known; leave the value out, or say topo")),
            }
            .into();
            Ok(())
        },
    )
    .optional()
    .only(JOB)
    .excluding(&["oversubscribe"])
    .env(&["SBATCH_EXCLUSIVE", "SALLOC_EXCLUSIVE"]),
    Def::flag("oversubscribe", Some('s'), "share nodes with other jobs, by cores", |s, _| {
        s.spec.sharing = Sharing::Shared.into();
        Ok(())
    })
    .or(&["share"])
    .only(JOB)
    .excluding(&["exclusive"]),
    // Where in the fabric.
    Def::value(
        "topology",
        None,
        "tree|block|none|NAME",
        "rule, or topology, by which nodes are chosen",
        |s, v| {
            s.spec.topology = text(v)?;
            Ok(())
        },
    )
    .only(JOB),
    Def::value(
        "gather",
        None,
        "LIST",
        "must:LAYER[@TIME], prefer:LAYER, LAYER*M, separated by commas",
        |s, v| {
            s.spec.gather = parsed::<Gather>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB),
    Def::value("gather-with", None, "JOB", "prefer the domains in which that job runs", |s, v| {
        s.gather_with = Some(text(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value(
        "het-gather",
        None,
        "LIST",
        "[must:|prefer:]LAYER that holds all components of a het job",
        |s, v| {
            s.spec.het_gather = parsed::<HetGather>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB),
    Def::value(
        "switches",
        None,
        "N[@TIME]",
        "at most N leaf switches, for at most so long a wait",
        |s, v| {
            s.spec.switches = parsed::<Switches>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_REQ_SWITCH", "SALLOC_REQ_SWITCH"]),
    Def::variable("the TIME of --switches", |s, v| {
        let wait = Some(parsed::<TimeLimit>(v)?);
        if let Ok(switches) = s.spec.switches.parse::<Switches>() {
            s.spec.switches = Switches { wait, ..switches }.to_string();
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_WAIT4SWITCH", "SALLOC_WAIT4SWITCH"]),
    Def::value("segment", None, "N", "place the job in segments of N nodes, each in one block", |s, v| {
        s.spec.segment = Some(count(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_SEGMENT_SIZE", "SALLOC_SEGMENT_SIZE"]),
    Def::flag("spread-segments", None, "no two segments in one block", |s, _| {
        s.spec.spread_segments = true;
        Ok(())
    })
    .only(JOB),
    Def::flag("consolidate-segments", None, "all segments in one aggregate of blocks", |s, _| {
        s.spec.consolidate_segments = true;
        Ok(())
    })
    .only(JOB),
    Def::flag("contiguous", None, "nodes next to each other in the fabric", |s, _| {
        s.spec.contiguous = true;
        Ok(())
    })
    .only(JOB),
    Def::value("placement", None, "KIND", "consolidated, balanced or distributed", |s, v| {
        s.spec.placement = parsed::<Placement>(v)?.to_string();
        Ok(())
    })
    .only(JOB),
    Def::value(
        "prefer",
        None,
        "DOMAIN",
        "prefer this switch or block, if it can hold the whole job",
        |s, v| {
            s.spec.prefer = text(v)?;
            Ok(())
        },
    )
    .only(JOB),
    Def::value("network", None, "NEED", "bw=SPEED and latency: what the links must offer", |s, v| {
        s.spec.network = parsed::<NetworkNeed>(v)?.to_string();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NETWORK", "SALLOC_NETWORK"]),
    // When and for how long.
    Def::value("time", Some('t'), "LIMIT", "time limit: MIN, MIN:SEC, H:MIN:SEC, D-H, UNLIMITED", |s, v| {
        let seconds = parsed::<TimeLimit>(v)?.seconds().filter(|&seconds| seconds > 0);
        s.spec.time_limit = seconds;
        s.spec.unlimited_time = seconds.is_none();
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_TIMELIMIT", "SALLOC_TIMELIMIT"]),
    Def::value(
        "time-min",
        None,
        "LIMIT",
        "limit down to which --time may be cut for an earlier start",
        |s, v| {
            let seconds = parsed::<TimeLimit>(v)?.seconds().filter(|&seconds| seconds > 0);
            s.spec.time_min = Some(seconds.ok_or("it must be a limit above zero")?);
            Ok(())
        },
    )
    .only(JOB),
    Def::value("begin", Some('b'), "TIME", "not before: now+1hour, 16:00, 2030-01-20T12:34:00", |s, v| {
        s.begin = Some(parsed::<When>(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value("deadline", None, "TIME", "end the job if it cannot end before this time", |s, v| {
        s.deadline = Some(parsed::<When>(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value(
        "dependency",
        Some('d'),
        "LIST",
        "start after other jobs: afterok:ID[:ID], singleton",
        |s, v| {
            s.dependency = parsed_or_none::<Dependency>(v)?;
            Ok(())
        },
    )
    .only(JOB),
    Def::value(
        "kill-on-invalid-dep",
        None,
        "yes|no",
        "cancel the job when its dependency cannot come true",
        |s, v| {
            s.spec.kill_on_invalid_dep = Some(yes_no(v)?);
            Ok(())
        },
    )
    .only(SBATCH),
    Def::flag("hold", Some('H'), "do not start before the job is released", |s, _| {
        s.spec.hold = true;
        Ok(())
    })
    .only(JOB),
    Def::value("nice", None, "N", "lower the priority by N, 100 if left out", |s, v| {
        s.spec.nice = if v.is_empty() { 100 } else { number(v)? };
        Ok(())
    })
    .optional()
    .only(JOB),
    Def::value("priority", None, "N", "set the priority; for operators", |s, v| {
        s.spec.priority = Some(number(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value("array", Some('a'), "INDICES", "submit an array of tasks, e.g. 0-15:4%2", |s, v| {
        parsed_or_none::<ArraySpec>(v)?;
        s.spec.array = v.to_owned();
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_ARRAY_INX"]),
    // What becomes of it.
    Def::flag("requeue", None, "let the job be queued again, e.g. when a node fails", |s, _| {
        s.spec.requeue = Some(true);
        Ok(())
    })
    .only(SBATCH)
    .excluding(&["no-requeue"])
    .env(&["SBATCH_REQUEUE"]),
    Def::flag("no-requeue", None, "never queue the job again", |s, _| {
        s.spec.requeue = Some(false);
        Ok(())
    })
    .only(SBATCH)
    .excluding(&["requeue"])
    .env(&["SBATCH_NO_REQUEUE"]),
    Def::flag("no-preempt", None, "never make way for other jobs", |s, _| {
        s.spec.no_preempt = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NO_PREEMPT", "SALLOC_NO_PREEMPT"]),
    Def::value("no-kill", Some('k'), "off", "let the job go on when one of its nodes fails", |s, v| {
        s.spec.no_kill = on_off(v)?;
        s.step.no_kill = s.spec.no_kill;
        Ok(())
    })
    .optional()
    .only(JOB | SRUN)
    .env(&["SBATCH_NO_KILL", "SALLOC_NO_KILL", "SLURM_NO_KILL"]),
    Def::value(
        "signal",
        None,
        "[R|B:]SIG[@SEC]",
        "signal some time before the end of the time limit",
        |s, v| {
            s.spec.signal = parsed::<WarnSignal>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_SIGNAL", "SALLOC_SIGNAL"]),
    Def::value("mail-type", None, "EVENTS", "when to mail: BEGIN, END, FAIL, ALL and others", |s, v| {
        s.spec.mail_type = mail_types(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("mail-user", None, "USER", "to whom", |s, v| {
        s.spec.mail_user = text(v)?;
        Ok(())
    })
    .only(JOB),
    // Files and surroundings.
    Def::value("input", Some('i'), "FILE", "standard input; for srun also all, none or a task", |s, v| {
        parsed::<FilePattern>(v)?;
        s.files.input = Some(text(v)?);
        Ok(())
    })
    .only(PROGRAM)
    .env(&["SBATCH_INPUT", "SLURM_STDINMODE"]),
    Def::value("output", Some('o'), "FILE", "standard output, with patterns such as %j and %x", |s, v| {
        parsed_or_none::<FilePattern>(v)?;
        s.files.output = (!v.is_empty()).then(|| v.to_owned());
        Ok(())
    })
    .only(PROGRAM)
    .env(&["SBATCH_OUTPUT", "SLURM_STDOUTMODE"]),
    Def::value(
        "error",
        Some('e'),
        "FILE",
        "standard error; without it, where standard output goes",
        |s, v| {
            parsed_or_none::<FilePattern>(v)?;
            s.files.error = (!v.is_empty()).then(|| v.to_owned());
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_ERROR", "SLURM_STDERRMODE"]),
    Def::value(
        "open-mode",
        None,
        "append|truncate",
        "what becomes of files that are there already",
        |s, v| {
            s.files.append = Some(match v {
                "append" | "a" => true,
                "truncate" | "t" => false,
                other => return Err(format!("`{other}` is not known; say append or truncate")),
            });
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_OPEN_MODE", "SLURM_OPEN_MODE"]),
    Def::value("chdir", Some('D'), "DIR", "directory in which to run", |s, v| {
        s.chdir = Some(text(v)?);
        Ok(())
    })
    .or(&["workdir"])
    .only(PROGRAM)
    .env(&["SLURM_WORKING_DIR"]),
    Def::value("export", None, "NAMES", "variables to pass on: ALL, NONE, NAME, NAME=VALUE", |s, v| {
        s.export = v.parse::<Export>()?;
        Ok(())
    })
    .only(PROGRAM)
    .env(&["SBATCH_EXPORT", "SLURM_EXPORT_ENV"]),
    Def::value(
        "export-file",
        None,
        "FILE|FD",
        "only the variables in a file, each followed by a zero byte",
        |s, v| {
            s.export_file = Some(text(v)?);
            Ok(())
        },
    )
    .only(SBATCH),
    Def::value("propagate", None, "LIMITS", "resource limits to pass on: ALL, NONE or names", |s, v| {
        s.propagate = if v.is_empty() { Propagate::All } else { resource_limits(v)? };
        Ok(())
    })
    .optional()
    .only(PROGRAM)
    .env(&["SLURM_PROPAGATE"]),
    // What the command itself does.
    Def::value("wrap", None, "COMMAND", "run this command in a shell instead of a script", |s, v| {
        s.wrap = Some(text(v)?);
        Ok(())
    })
    .only(SBATCH),
    Def::flag("wait", Some('W'), "wait until the job has ended, and end as it did", |s, _| {
        s.wait = true;
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_WAIT"]),
    Def::flag("parsable", None, "print only the number of the job", |s, _| {
        s.parsable = true;
        Ok(())
    })
    .only(SBATCH),
    Def::flag("test-only", None, "tell when and where the job would start, and submit nothing", |s, _| {
        s.test_only = true;
        Ok(())
    })
    .only(SBATCH),
    Def::flag("quiet", Some('Q'), "print errors only", |s, _| {
        s.quiet = true;
        Ok(())
    })
    .only(PROGRAM),
    Def::flag("verbose", Some('v'), "tell more", |s, _| {
        s.verbose = s.verbose.saturating_add(1);
        Ok(())
    })
    .only(PROGRAM)
    .env(&["SBATCH_DEBUG", "SLURM_DEBUG"]),
    // Steps only.
    Def::value("cpu-bind", None, "quiet", "say nothing of how tasks are bound to CPUs, as is so always", |_, v| {
        match v {
            "q" | "quiet" => Ok(()),
            other => Err(format!(
                "`{other}` cannot be honoured: each task is bound to the CPUs that it is given; say quiet, or nothing"
            )),
        }
    })
    .only(SRUN),
    Def::flag("label", Some('l'), "begin every line with the number of its task", |s, _| {
        s.step.label = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_LABELIO"]),
    Def::flag("unbuffered", Some('u'), "pass output on at once, not line by line", |s, _| {
        s.step.unbuffered = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_UNBUFFEREDIO"]),
    Def::value("kill-on-bad-exit", Some('K'), "0|1", "end the step when a task fails", |s, v| {
        s.step.kill_on_bad_exit = match v {
            "" | "1" => true,
            "0" => false,
            other => return Err(format!("`{other}` is not known; say 0 or 1")),
        };
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_KILL_BAD_EXIT"]),
    Def::value(
        "wait",
        Some('W'),
        "SECONDS",
        "end the step so long after its first task; 0 for never",
        |s, v| {
            s.step.wait = Some(number(v)?).filter(|&seconds| seconds > 0).map(Duration::from_secs);
            Ok(())
        },
    )
    .only(SRUN)
    .env(&["SLURM_WAIT"]),
    Def::flag("overlap", None, "share the CPUs of the job with its other steps", |s, _| {
        s.step.overlap = true;
        Ok(())
    })
    .only(SRUN)
    .excluding(&["exact"])
    .env(&["SLURM_OVERLAP"]),
    Def::flag("exact", None, "only the CPUs asked for, and no other step's: the default", |s, _| {
        s.step.overlap = false;
        Ok(())
    })
    .or(&["exclusive"])
    .only(SRUN)
    .excluding(&["overlap"])
    .env(&["SLURM_EXACT", "SLURM_EXCLUSIVE"]),
    Def::value("immediate", Some('I'), "SECONDS", "fail rather than wait for CPUs of the job", |s, v| {
        if !v.is_empty() {
            number::<u32>(v)?;
        }
        s.step.immediate = true;
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_IMMEDIATE"]),
    Def::value("het-group", None, "LIST", "run in these components of a het job, e.g. 0,2-3", |s, v| {
        let groups: IdSet = parsed(v)?;
        s.step.het_group = groups.iter().collect();
        if s.step.het_group.is_empty() { Err("the list is empty".to_owned()) } else { Ok(()) }
    })
    .or(&["pack-group"])
    .only(SRUN),
    Def::value("relative", Some('r'), "N", "begin at the job's node N, counted from 0", |s, v| {
        s.step.relative = Some(number(v)?);
        Ok(())
    })
    .only(SRUN),
];
