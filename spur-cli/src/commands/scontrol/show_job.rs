//! The command `scontrol show job`.

use spur_core::text::jobid::{JobPart, JobRef};
use spur_core::text::mail;
use spur_core::text::pattern::NO_INDEX;
use spur_core::text::time::TimeLimit;
use spur_proto::v1::Job;

use super::Settings;
use super::record::Record;
use crate::format::Show;
use crate::format::fields::job::{asked, asked_cores, devices, is_meant, spans, tasks};
use crate::format::value::{exit, flag, long_limit, memory, or, or_null, time};

/// Returns the jobs. If `wanted` is a single task, the record of its array's pending tasks is reduced to this
/// task.
pub fn alone(jobs: Vec<Job>, wanted: &JobRef) -> Vec<Job> {
    let JobPart::Tasks(tasks) = &wanted.part else { return jobs };
    let Some(task) = tasks.only() else { return jobs };
    let narrow = |mut job: Job| {
        if job.array_task_id.is_none() && is_meant(&job, wanted) {
            // Paths of pending tasks contain a placeholder for the index.
            let path = |path: &str| path.replace(&NO_INDEX.to_string(), &task.to_string());
            (job.stdout, job.stderr) = (path(&job.stdout), path(&job.stderr));
            job.array_task_id = Some(task);
        }
        job
    };
    jobs.into_iter().map(narrow).collect()
}

/// Returns the records of all jobs.
pub fn text(jobs: &[Job], settings: Settings, show: &Show) -> String {
    jobs.iter().map(|job| record(job, settings, show).text(settings.oneline)).collect()
}

fn record(job: &Job, settings: Settings, show: &Show) -> Record {
    let details = settings.details;
    let mut r = Record::default();
    identity(&mut r, job, show);
    r.line([
        ("JobState", job.state.clone()),
        ("Reason", or(&job.reason, "None").replace(' ', "_")),
        ("Dependency", or_null(&job.dependency)),
    ]);
    r.line([
        ("Requeue", flag(job.requeue)),
        ("Restarts", job.restarts.to_string()),
        ("BatchFlag", flag(job.batch)),
        ("Reboot", flag(job.reboot)),
        ("ExitCode", exit(job.exit_code, job.exit_signal)),
    ]);
    if details {
        r.line([("DerivedExitCode", exit(job.derived_exit_code, job.derived_exit_signal))]);
    }
    times(&mut r, job, show);
    place(&mut r, job);
    resources(&mut r, job, details, show);
    files(&mut r, job);
    fabric(&mut r, job);
    rest(&mut r, job);
    if settings.own {
        own(&mut r, job);
    }
    r
}

fn identity(r: &mut Record, job: &Job, show: &Show) {
    r.line([("JobId", job.id.to_string())]);
    if let Some(array) = job.array_job_id {
        r.more("ArrayJobId", &array.to_string());
        r.more("ArrayTaskId", &or(&tasks(job, show), "N/A"));
        if let Some(throttle) = job.array_throttle {
            r.more("ArrayTaskThrottle", &throttle.to_string());
        }
    }
    if let (Some(leader), Some(offset)) = (job.het_job_id, job.het_job_offset) {
        r.more("HetJobId", &leader.to_string());
        r.more("HetJobOffset", &offset.to_string());
    }
    r.more("JobName", &job.name);
    if !job.het_job_id_set.is_empty() {
        r.line([("HetJobIdSet", job.het_job_id_set.clone())]);
    }
    r.line([
        ("UserId", format!("{}({})", job.user, job.uid)),
        ("GroupId", format!("{}({})", job.group, job.gid)),
        ("MCS_label", "N/A".into()),
    ]);
    r.line([
        ("Priority", job.priority.to_string()),
        ("Nice", job.nice.to_string()),
        ("Account", or_null(&job.account)),
        ("QOS", or_null(&job.qos)),
    ]);
    if !job.wckey.is_empty() {
        r.more("WCKey", &job.wckey);
    }
}

fn times(r: &mut Record, job: &Job, show: &Show) {
    let unknown = |seconds| time(seconds, "Unknown", show);
    r.line([
        ("RunTime", long_limit(Some(job.run_time))),
        ("TimeLimit", long_limit(job.time_limit)),
        ("TimeMin", job.time_min.map_or_else(|| "N/A".into(), |least| long_limit(Some(least)))),
    ]);
    r.line([("SubmitTime", unknown(Some(job.submit_time))), ("EligibleTime", unknown(job.eligible_time))]);
    r.line([("AccrueTime", unknown(job.eligible_time.filter(|&eligible| eligible <= show.now)))]);
    r.line([
        ("StartTime", unknown(job.start_time)),
        ("EndTime", unknown(job.end_time)),
        ("Deadline", time(job.deadline, "N/A", show)),
    ]);
    if job.preempt_eligible_time.is_some() || job.preempt_time.is_some() {
        r.line([
            ("PreemptEligibleTime", unknown(job.preempt_eligible_time)),
            ("PreemptTime", time(job.preempt_time, "None", show)),
        ]);
    }
    if job.last_checkpoint.is_some() {
        r.line([("LastCheckpoint", unknown(job.last_checkpoint))]);
    }
    r.line([
        ("SuspendTime", time(job.suspend_time, "None", show)),
        ("SecsPreSuspend", job.pre_suspend_time.to_string()),
        ("LastSchedEval", unknown(job.last_sched_eval)),
        ("Scheduler", if job.backfilled { "Backfill" } else { "Main" }.into()),
    ]);
}

fn place(r: &mut Record, job: &Job) {
    r.line([
        ("Partition", job.partition.clone()),
        ("AllocNode:Sid", format!("{}:0", or(&job.submit_host, "N/A"))),
    ]);
    r.line([("ReqNodeList", or_null(&job.required_nodes)), ("ExcNodeList", or_null(&job.excluded_nodes))]);
    r.line([("NodeList", job.nodes.clone())]);
    if !job.planned_nodes.is_empty() {
        r.more("SchedNodeList", &job.planned_nodes);
    }
    r.line_if("BatchHost", &job.batch_host);
}

fn resources(r: &mut Record, job: &Job, details: bool, show: &Show) {
    let nodes = match job.state.as_str() {
        "PENDING" if job.max_nodes > 0 => format!("{}-{}", job.num_nodes, job.max_nodes),
        _ => job.num_nodes.to_string(),
    };
    let cores = asked_cores(job);
    let [threads, sockets, by_socket, by_core] =
        [cores.threads_per_core, cores.sockets_per_node, cores.tasks_per_socket, cores.tasks_per_core]
            .map(asked);
    r.line([
        ("NumNodes", nodes),
        ("NumCPUs", job.num_cpus.to_string()),
        ("NumTasks", if job.num_tasks == 0 { "N/A".into() } else { job.num_tasks.to_string() }),
        ("CPUs/Task", if job.cpus_per_task == 0 { "N/A".into() } else { job.cpus_per_task.to_string() }),
        ("ReqB:S:C:T", format!("0:0:{}:{threads}", asked(cores.cores_per_socket))),
    ]);
    r.line([("ReqTRES", or_null(&job.req_tres))]);
    r.line([("AllocTRES", or_null(&job.alloc_tres))]);
    r.line([
        ("Socks/Node", sockets),
        ("NtasksPerN:B:S:C", format!("{}:0:{by_socket}:{by_core}", job.tasks_per_node.unwrap_or(0))),
        ("CoreSpec", "*".into()),
    ]);
    if details && !job.allocated.is_empty() {
        r.line([("JOB_GRES", or_null(&held_devices(&job.alloc_tres)))]);
        for share in &job.allocated {
            r.line([
                ("  Nodes", share.nodes.clone()),
                ("CPU_IDs", or_null(&share.cpu_ids)),
                ("Mem", share.memory_mb.to_string()),
                ("GRES", share.gres.clone()),
            ]);
        }
    }
    let (key, least) = match job.min_memory_cpu {
        Some(least) => ("MinMemoryCPU", least),
        None => ("MinMemoryNode", job.min_memory_node.unwrap_or(0)),
    };
    r.line([
        ("MinCPUsNode", job.min_cpus_node.to_string()),
        (key, memory(least, show)),
        ("MinTmpDiskNode", memory(job.tmp_disk_mb, show)),
    ]);
    r.line([("Features", or_null(&job.features)), ("DelayBoot", "00:00:00".into())]);
    r.line_if("Prefer", &job.prefer);
    r.line_if("Reservation", &job.reservation);
    r.line([
        ("OverSubscribe", job.oversubscribe.clone()),
        ("Contiguous", flag(job.contiguous)),
        ("Licenses", or_null(&job.licenses)),
        ("Network", or_null(&job.network)),
    ]);
}

fn files(r: &mut Record, job: &Job) {
    r.line([("Command", or_null(&job.command))]);
    r.line([("WorkDir", or_null(&job.work_dir))]);
    r.line_if("AdminComment", &job.admin_comment);
    r.line_if("Comment", &job.comment);
    r.line_if("Extra", &job.extra);
    if !job.stdout.is_empty() {
        r.line([("StdErr", job.stderr.clone())]);
        r.line([("StdIn", job.stdin.clone())]);
        r.line([("StdOut", job.stdout.clone())]);
    }
}

/// Returns the devices among allocated resources, by type where types are known: `gpu:a100:2,nic:1`.
fn held_devices(tres: &str) -> String {
    let devices = tres.split(',').filter_map(|item| item.strip_prefix("gres/")?.split_once('='));
    let devices: Vec<(&str, &str)> = devices.collect();
    let typed = |name: &str| {
        devices.iter().any(|(other, _)| other.split_once(':').is_some_and(|(other, _)| other == name))
    };
    let shown = devices.iter().filter(|(name, _)| !typed(name));
    shown.map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(",")
}

/// Adds the job's requests on the fabric.
fn fabric(r: &mut Record, job: &Job) {
    if let Some(segment) = job.segment {
        r.line([("SegmentSize", segment.to_string())]);
        if job.spread_segments {
            r.more("SpreadSegments", "Yes");
        }
        if job.consolidate_segments {
            r.more("ConsolidateSegments", "Yes");
        }
    }
    r.line_if("Switches", &switches(&job.switches));
}

/// Adds the keys that Slurm prints at the end if they were requested: devices and mail.
fn rest(r: &mut Record, job: &Job) {
    if job.gres_anywhere {
        r.line([("GresEnforceBind", "No".into())]);
    }
    if let Some(kill) = job.kill_on_invalid_dep {
        r.line([("KillOInInvalidDependent", if kill { "Yes" } else { "No" }.into())]);
    }
    let cores = asked_cores(job);
    if let Some(cpus) = cores.cpus_per_gpu {
        r.line([("CpusPerTres", format!("gres/gpu:{cpus}"))]);
    }
    if let Some(memory) = cores.memory_per_gpu_mb {
        r.line([("MemPerTres", format!("gres/gpu:{memory}"))]);
    }
    r.line_if("TresPerJob", &devices(&job.gpus));
    r.line_if("TresPerNode", &devices(&job.gres));
    r.line_if("TresPerTask", &devices(&job.gpus_per_task));
    let events = mail::shown(&job.mail_type);
    if !events.is_empty() {
        r.line([("MailUser", job.mail_user.clone()), ("MailType", events)]);
    }
}

/// Adds the keys that only Spur has: requests on the fabric, the placement and the reasons.
fn own(r: &mut Record, job: &Job) {
    r.line_if("Topology", &job.topology);
    r.line_if("Gather", &job.gather);
    r.line_if("Placement", &job.placement);
    r.line_if("Span", &spans(&job.spans));
    r.line_if("Relaxed", &job.relaxed.join(","));
    if job.exact == Some(false) {
        r.line([("Exact", "No".into())]);
    }
    r.line_if("Why", &job.why);
    r.line_if("ReasonDetail", &job.reason_detail);
}

/// Formats `1@5:00` with the time as `scontrol` prints times: `1@00:05:00`.
fn switches(written: &str) -> String {
    match written.split_once('@').map(|(count, wait)| (count, wait.parse::<TimeLimit>())) {
        Some((count, Ok(wait))) => format!("{count}@{}", wait.long()),
        _ => written.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_devices_have_their_types() {
        assert_eq!(held_devices("cpu=4,gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1"), "gpu:a100:2,gpu:v100:1");
        assert_eq!(held_devices("cpu=4,node=1,gres/gpu=3,gres/nic=1"), "gpu:3,nic:1");
        assert_eq!(held_devices("cpu=4"), "");
    }
}
