//! Options for owner, time and dependencies of a job, its mail and its behaviour after failures.
//!
//! tidy: table

use spur_core::text::array::ArraySpec;
use spur_core::text::dependency::Dependency;
use spur_core::text::mail;
use spur_core::text::oom::OomKillStep;
use spur_core::text::sampling::SamplingIntervals;
use spur_core::text::signal::WarnSignal;
use spur_core::text::time::{TimeLimit, When};

use super::super::values::{number, number_or, on_off, parsed, parsed_or_none, text, yes_no};
use super::{Def, JOB, SALLOC, SBATCH, SRUN, nothing};

pub(super) const OPTIONS: &[Def] = &[
    Def::value("array", Some('a'), "indexes", "job array index values, e.g. 0-15:4%2", |s, v| {
        parsed_or_none::<ArraySpec>(v)?;
        s.spec.array = v.to_owned();
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_ARRAY_INX"]),
    Def::value("account", Some('A'), "name", "charge job to specified account", |s, v| {
        v.clone_into(&mut s.spec.account);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_ACCOUNT", "SALLOC_ACCOUNT", "SLURM_ACCOUNT"]),
    Def::value("begin", Some('b'), "time", "defer job until HH:MM MM/DD/YY, now+1hour", |s, v| {
        s.begin = Some(parsed::<When>(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value(
        "clusters",
        Some('M'),
        "names",
        "clusters to submit to: the one that starts the job first",
        |s, v| {
            s.clusters = Some(text(v)?);
            Ok(())
        },
    )
    .or(&["cluster"])
    .only(JOB)
    .env(&["SBATCH_CLUSTERS", "SALLOC_CLUSTERS", "SLURM_CLUSTERS"]),
    Def::value("comment", None, "name", "arbitrary comment", |s, v| {
        v.clone_into(&mut s.spec.comment);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_COMMENT", "SALLOC_COMMENT", "SLURM_COMMENT"]),
    Def::value("cluster-constraint", None, "list", "features of clusters to submit to", nothing)
        .only(JOB)
        .env(&["SBATCH_CLUSTER_CONSTRAINT"])
        .without_effect("clusters form no federation"),
    Def::value(
        "deadline",
        None,
        "time",
        "remove the job if no ending possible before this deadline",
        |s, v| {
            s.deadline = Some(parsed::<When>(v)?);
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_DEADLINE", "SALLOC_DEADLINE"]),
    Def::value("delay-boot", None, "mins", "delay boot for desired node features", nothing)
        .only(JOB)
        .env(&["SBATCH_DELAY_BOOT", "SALLOC_DELAY_BOOT", "SLURM_DELAY_BOOT"])
        .without_effect("nodes are never booted for the sake of a feature"),
    Def::value(
        "dependency",
        Some('d'),
        "type:jobid[:time]",
        "defer job until condition on jobid is satisfied",
        |s, v| {
            s.dependency = parsed_or_none::<Dependency>(v)?;
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SLURM_DEPENDENCY"]),
    Def::value("gid", None, "group_id", "group ID to run job as (user root only)", |s, v| {
        s.gid = Some(text(v)?);
        Ok(())
    })
    .only(JOB),
    Def::value("uid", None, "user_id", "user ID to run job as (user root only)", |s, v| {
        s.uid = Some(text(v)?);
        Ok(())
    })
    .only(JOB),
    Def::flag("hold", Some('H'), "submit job in held state", |s, _| {
        s.spec.hold = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_HOLD", "SALLOC_HOLD", "SLURM_HOLD"]),
    Def::value("job-name", Some('J'), "jobname", "name of job", |s, v| {
        v.clone_into(&mut s.spec.name);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_JOB_NAME", "SALLOC_JOB_NAME", "SLURM_JOB_NAME"]),
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
    .only(SBATCH)
    .env(&["SBATCH_KILL_INVALID_DEP"]),
    Def::value("licenses", Some('L'), "names", "required license, comma separated", |s, v| {
        v.clone_into(&mut s.spec.licenses);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_LICENSES", "SALLOC_LICENSES", "SLURM_LICENSES"]),
    Def::value("mail-type", None, "type", "notify on state change: BEGIN, END, FAIL or ALL", |s, v| {
        let (known, unknown) = mail::types(v);
        // Repeated options add up, as with Slurm.
        let new = known.split(',').filter(|event| !event.is_empty() && !mail::has(&s.spec.mail_type, event));
        let all = s.spec.mail_type.split(',').filter(|event| !event.is_empty()).chain(new);
        s.spec.mail_type = all.collect::<Vec<_>>().join(",");
        let told =
            |word| format!("--mail-type={word} has no effect: it is none of {}", mail::TYPES.join(", "));
        s.notes.extend(unknown.into_iter().map(told));
        Ok(())
    })
    .only(JOB),
    Def::value("mail-user", None, "user", "who to send email notification for job state changes", |s, v| {
        v.clone_into(&mut s.spec.mail_user);
        Ok(())
    })
    .only(JOB),
    Def::value("mcs-label", None, "mcs", "mcs label if mcs plugin mcs/group is used", nothing)
        .only(JOB)
        .without_effect("there is no MCS plugin, and without one Slurm ignores labels, too"),
    Def::value("nice", None, "value", "decrease scheduling priority by value", |s, v| {
        s.spec.nice = if v.is_empty() { 100 } else { number(v)? };
        Ok(())
    })
    .optional()
    .only(JOB)
    .env(&["SBATCH_NICE", "SALLOC_NICE", "SLURM_NICE"]),
    Def::value("partition", Some('p'), "partition", "partition requested", |s, v| {
        s.spec.partition = text(v)?;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_PARTITION", "SALLOC_PARTITION", "SLURM_PARTITION"]),
    Def::value("power", None, "flags", "power management options", nothing)
        .only(JOB)
        .env(&["SBATCH_POWER", "SALLOC_POWER", "SLURM_POWER"])
        .without_effect("power caps are not managed; newer Slurm has dropped them, too"),
    Def::value("priority", None, "value", "set the priority of the job to value", |s, v| {
        s.spec.priority = if v.eq_ignore_ascii_case("top") { Some(u32::MAX - 1) } else { Some(number(v)?) };
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_PRIORITY", "SALLOC_PRIORITY", "SLURM_PRIORITY"]),
    Def::value("qos", Some('q'), "qos", "quality of service", |s, v| {
        v.clone_into(&mut s.spec.qos);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_QOS", "SALLOC_QOS", "SLURM_QOS"]),
    Def::flag("requeue", None, "if set, permit the job to be requeued", |s, _| {
        s.spec.requeue = Some(true);
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_REQUEUE"]),
    Def::flag("no-requeue", None, "if set, do not permit job to be requeued", |s, _| {
        s.spec.requeue = Some(false);
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_NO_REQUEUE"]),
    Def::flag("no-preempt", None, "never make way for other jobs", |s, _| {
        s.spec.no_preempt = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NO_PREEMPT", "SALLOC_NO_PREEMPT"]),
    Def::value("no-kill", Some('k'), "off", "do not kill job on node failure", |s, v| {
        s.spec.no_kill = on_off(v)?;
        s.step.no_kill = s.spec.no_kill;
        Ok(())
    })
    .optional()
    .only(JOB)
    .env(&["SBATCH_NO_KILL", "SALLOC_NO_KILL", "SLURM_NO_KILL"]),
    Def::value("reservation", None, "name", "allocate resources from named reservation", |s, v| {
        v.clone_into(&mut s.spec.reservation);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_RESERVATION", "SALLOC_RESERVATION", "SLURM_RESERVATION"]),
    Def::value(
        "signal",
        None,
        "[[R][B]:]num[@time]",
        "send signal when time limit within time seconds",
        |s, v| {
            s.spec.signal = parsed::<WarnSignal>(v)?.to_string();
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_SIGNAL", "SALLOC_SIGNAL", "SLURM_SIGNAL"]),
    Def::value(
        "time",
        Some('t'),
        "minutes",
        "time limit: MIN, MIN:SEC, H:MIN:SEC, D-H, UNLIMITED",
        |s, v| {
            let seconds = parsed::<TimeLimit>(v)?.seconds().filter(|&seconds| seconds > 0);
            s.spec.time_limit = seconds;
            s.spec.unlimited_time = seconds.is_none();
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_TIMELIMIT", "SALLOC_TIMELIMIT", "SLURM_TIMELIMIT"]),
    Def::value("time-min", None, "minutes", "minimum time limit (if distinct)", |s, v| {
        s.spec.time_min = parsed::<TimeLimit>(v)?.seconds().filter(|&seconds| seconds > 0);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_TIME_MIN", "SALLOC_TIME_MIN", "SLURM_TIME_MIN"]),
    Def::value("wckey", None, "wckey", "wckey to run job under", |s, v| {
        v.clone_into(&mut s.spec.wckey);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_WCKEY", "SALLOC_WCKEY", "SLURM_WCKEY"]),
    // No effect is needed: a job starts only when all its nodes are ready.
    Def::value("wait-all-nodes", None, "0|1", "wait for all nodes to be booted and ready", |_, v| {
        number::<u8>(v).map(|_| ())
    })
    .only(SBATCH | SALLOC)
    .env(&["SBATCH_WAIT_ALL_NODES", "SALLOC_WAIT_ALL_NODES"]),
    Def::value("immediate", Some('I'), "secs", "exit if resources not available in \"secs\"", |s, v| {
        s.immediate = Some(number_or(v, 1)?);
        Ok(())
    })
    .optional()
    .only(SALLOC | SRUN)
    .env(&["SALLOC_IMMEDIATE", "SLURM_IMMEDIATE"]),
    Def::value(
        "acctg-freq",
        None,
        "<datatype>=<interval>",
        "accounting and profiling sampling intervals",
        |s, v| {
            s.sampling_seconds = parsed::<SamplingIntervals>(v)?.tasks;
            s.advise(SamplingIntervals::VARIABLE, v);
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_ACCTG_FREQ", "SALLOC_ACCTG_FREQ", "SLURM_ACCTG_FREQ"]),
    Def::value("profile", None, "value", "enable acct_gather_profile for detailed data", |s, v| {
        s.advise("SLURM_PROFILE", known_profiles(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_PROFILE", "SALLOC_PROFILE", "SLURM_PROFILE"])
    .without_effect("there is no plugin that profiles"),
    Def::flag("reboot", None, "reboot compute nodes before starting job", |s, _| {
        s.spec.reboot = true;
        Ok(())
    })
    .only(JOB),
    Def::value("bb", None, "spec", "burst buffer specifications", nothing)
        .only(JOB)
        .env(&["SALLOC_BURST_BUFFER", "SLURM_BURST_BUFFER"])
        .refused("burst buffers are not supported by Spur"),
    Def::value("bbf", None, "file", "burst buffer specification file", nothing)
        .only(JOB)
        .refused("burst buffers are not supported by Spur"),
    Def::value("container", None, "path", "path to OCI container bundle", nothing)
        .only(JOB)
        .env(&["SBATCH_CONTAINER", "SALLOC_CONTAINER", "SLURM_CONTAINER", "SRUN_CONTAINER"])
        .refused("containers are not supported by Spur; start them from the script"),
    Def::value("container-id", None, "id", "OCI container ID", nothing)
        .only(JOB)
        .env(&["SBATCH_CONTAINER_ID", "SALLOC_CONTAINER_ID", "SLURM_CONTAINER_ID", "SRUN_CONTAINER_ID"])
        .refused("containers are not supported by Spur; start them from the script"),
    Def::value("batch", None, "list", "features that the first node must have", nothing)
        .only(SBATCH)
        .env(&["SBATCH_BATCH"])
        .refused("the first node is not chosen by features; say --constraint"),
    Def::value(
        "oom-kill-step",
        None,
        "0|1",
        "kill the whole step where one task is out of memory",
        |s, v| {
            let all = parsed::<OomKillStep>(v)?.0;
            s.oom_kill_step = Some(all);
            s.advise(OomKillStep::VARIABLE, if all { "1" } else { "0" });
            Ok(())
        },
    )
    .optional()
    .only(JOB)
    .env(&["SLURM_OOM_KILL_STEP", "SLURM_OOMKILLSTEP"]),
    Def::flag("stepmgr", None, "enable slurmstepd to handle steps", nothing)
        .only(JOB)
        .without_effect("steps are created by the controller, which answers in a moment"),
    Def::value("extra", None, "text", "text to be kept with the job", |s, v| {
        s.spec.extra = text(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("context", None, "name", "SELinux context", nothing)
        .only(SBATCH)
        .refused("SELinux contexts are not supported by Spur"),
];

/// Checks the kinds of data that `--profile` names.
fn known_profiles(value: &str) -> Result<&str, String> {
    const KNOWN: [&str; 7] = ["none", "all", "energy", "task", "lustre", "filesystem", "network"];
    match value.split(',').find(|kind| !KNOWN.iter().any(|known| known.eq_ignore_ascii_case(kind))) {
        Some(kind) => Err(format!("`{kind}` is none of {}", KNOWN.join(", "))),
        None => Ok(value),
    }
}
