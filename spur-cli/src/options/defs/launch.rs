//! Options of `srun` only: how a step is launched and observed.
//!
//! tidy: table

use spur_core::model::idset::IdSet;

use super::super::values::{compresses, directories, number, parsed, text, yes_no};
use super::{Def, SRUN, nothing};

const PMI1: &str = "it is for PMI 1 of MPICH2 and MVAPICH2, whose messages srun does not carry";

/// Returns a program that `srun` runs before or after the step; `None` for `none`.
fn program(value: &str) -> Option<String> {
    Some(value.to_owned()).filter(|value| !value.is_empty() && !value.eq_ignore_ascii_case("none"))
}

pub(super) const OPTIONS: &[Def] = &[
    Def::flag("label", Some('l'), "prepend task number to lines of stdout/err", |s, _| {
        s.step.label = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_LABELIO"]),
    Def::flag("unbuffered", Some('u'), "do not line-buffer stdout/err", |s, _| {
        s.step.unbuffered = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_UNBUFFEREDIO"]),
    Def::value(
        "kill-on-bad-exit",
        Some('K'),
        "0|1",
        "kill the step if any task terminates with a non-zero exit code",
        |s, v| {
            s.step.kill_on_bad_exit = Some(match v {
                "" => true,
                number => {
                    number.parse::<u32>().map_err(|_| format!("`{number}` is no number; say 0 or 1"))? > 0
                }
            });
            Ok(())
        },
    )
    .optional()
    .only(SRUN)
    .env(&["SLURM_KILL_BAD_EXIT"]),
    Def::flag("overlap", None, "share the CPUs of the job with its other steps", |s, _| {
        s.step.overlap = true;
        Ok(())
    })
    .only(SRUN)
    .excluding(&["exclusive"])
    .env(&["SLURM_OVERLAP"]),
    Def::flag("exact", None, "use only the resources requested for the step", |s, _| {
        s.step.exact = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_EXACT"]),
    Def::flag("whole", None, "give the step all CPUs of its nodes", |s, _| {
        s.step.whole = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_WHOLE"]),
    Def::flag(
        "external-launcher",
        None,
        "run a launcher that uses nothing and may see everything",
        |s, _| {
            s.step.external = true;
            Ok(())
        },
    )
    .only(SRUN),
    Def::flag("overcommit", Some('O'), "overcommit resources", |s, _| {
        s.step.overcommit = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_OVERCOMMIT"]),
    Def::value("het-group", None, "value", "components of a het job to run in, e.g. 0,2-3", |s, v| {
        let groups: IdSet = parsed(v)?;
        s.step.het_group = groups.iter().collect();
        if s.step.het_group.is_empty() { Err("the list is empty".to_owned()) } else { Ok(()) }
    })
    .or(&["pack-group"])
    .only(SRUN),
    Def::value("relative", Some('r'), "n", "run job step relative to node n of allocation", |s, v| {
        s.step.relative = Some(number(v)?);
        Ok(())
    })
    .only(SRUN),
    Def::value("jobid", None, "id", "run under already allocated job", |s, v| {
        s.step.job = Some(text(v)?);
        Ok(())
    })
    .only(SRUN),
    Def::flag("multi-prog", None, "the program names a file that says what each task runs", |s, _| {
        s.step.multi_prog = true;
        Ok(())
    })
    .only(SRUN),
    Def::flag("pty", None, "run task zero in pseudo terminal", |s, _| {
        s.step.pty = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_PTY"]),
    Def::value("mpi", None, "type", "type of MPI being used; list shows them", |s, v| {
        // Slurm used this name for releases of Open MPI that need no service from `srun`.
        s.step.mpi = if v == "openmpi" { "none".to_owned() } else { text(v)? };
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_MPI_TYPE"]),
    Def::flag("interactive", None, "the step that salloc runs its shell in", |s, _| {
        // One task on the first node, which needs no resources and may use all resources of the job.
        s.step.external = true;
        "1".clone_into(&mut s.spec.nodes);
        s.spec.tasks = Some(1);
        Ok(())
    })
    .only(SRUN),
    Def::value("bcast", None, "dest", "copy executable file to compute nodes", |s, v| {
        s.step.bcast = Some(v.to_owned());
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_BCAST"]),
    Def::value(
        "bcast-exclude",
        None,
        "paths",
        "directories whose shared objects --bcast leaves out",
        |s, v| {
            s.step.bcast_exclude = Some(directories(v)?);
            Ok(())
        },
    )
    .only(SRUN)
    .env(&["SLURM_BCAST_EXCLUDE"]),
    Def::value("compress", None, "library", "compress what --bcast sends", |s, v| {
        s.step.compress = compresses(v)?;
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_COMPRESS"]),
    Def::value("send-libs", None, "yes|no", "send shared objects along with --bcast", |s, v| {
        s.step.send_libs = v.is_empty() || yes_no(v)?;
        Ok(())
    })
    .optional()
    .only(SRUN)
    .env(&["SLURM_SEND_LIBS"]),
    Def::value("prolog", None, "program", "run \"program\" before launching job step", |s, v| {
        s.step.prolog = program(v);
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_PROLOG"]),
    Def::value("epilog", None, "program", "run \"program\" after launching job step", |s, v| {
        s.step.epilog = program(v);
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_EPILOG"]),
    Def::value("task-prolog", None, "program", "run \"program\" before launching task", |s, v| {
        s.step.task_prolog = program(v);
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_TASK_PROLOG"]),
    Def::value("task-epilog", None, "program", "run \"program\" after task has ended", |s, v| {
        s.step.task_epilog = program(v);
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_TASK_EPILOG"]),
    Def::flag("disable-status", Some('X'), "disable Ctrl-C status feature", |s, _| {
        s.step.disable_status = true;
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_DISABLE_STATUS"]),
    Def::flag("quit-on-interrupt", None, "quit on single Ctrl-C", |s, _| {
        s.step.quit_on_interrupt = true;
        Ok(())
    })
    .only(SRUN),
    Def::flag(
        "preserve-env",
        Some('E'),
        "env vars for node and task counts override command-line flags",
        |s, _| {
            s.step.preserve_environment = true;
            Ok(())
        },
    )
    .only(SRUN),
    Def::flag("no-allocate", Some('Z'), "do not allocate nodes (must supply -w)", nothing)
        .only(SRUN)
        .refused("nothing runs on nodes that are not allocated"),
    Def::value("resv-ports", None, "count", "reserve communication ports", nothing)
        .optional()
        .only(SRUN)
        .env(&["SLURM_RESV_PORTS"])
        .without_effect("no range of ports is kept for MPI (Slurm: MpiParams), so that none is reserved"),
    Def::value("msg-timeout", None, "secs", "time to wait for a message", nothing)
        .only(SRUN)
        .without_effect("a node that is silent is found out by its connection"),
    Def::value("threads", Some('T'), "threads", "set srun launch fanout", nothing)
        .only(SRUN)
        .env(&["SLURM_THREADS"])
        .without_effect("all nodes are told at once"),
    Def::value("treewidth", None, "width", "set fanout of launch messages", nothing)
        .only(SRUN)
        .env(&["SLURM_TREE_WIDTH"])
        .without_effect("all nodes are told at once"),
    Def::value("slurmd-debug", None, "level", "slurmd debug level", nothing)
        .only(SRUN)
        .env(&["SLURMD_DEBUG"])
        .without_effect("what a node logs is set in its configuration"),
    Def::value("debugger-test", None, "", "for developers of debuggers", nothing)
        .optional()
        .only(SRUN)
        .refused("it is for tests of Slurm itself"),
    Def::variable("whether the program is looked for here first", nothing)
        .only(SRUN)
        .env(&["SLURM_TEST_EXEC"])
        .without_effect("the node on which a program is missing says so"),
    Def::variable("whether equal messages of tasks are printed once", |s, v| {
        s.step.reduced_endings = v.trim().parse::<i64>().is_ok_and(|number| number != 0);
        Ok(())
    })
    .only(SRUN)
    .env(&["SLURM_SRUN_REDUCE_TASK_EXIT_MSG"]),
    Def::variable("the size of a plane", nothing).only(SRUN).env(&["SLURM_DIST_PLANESIZE"]),
    Def::variable("the job to run in", nothing).only(SRUN).env(&["SLURM_JOB_ID"]),
    Def::variable("messages of PMI 1", nothing)
        .only(SRUN)
        .env(&["SLURM_PMI_KVS_NO_DUP_KEYS", "PMI_FANOUT", "PMI_FANOUT_OFF_HOST", "PMI_TIME"])
        .without_effect(PMI1),
];
