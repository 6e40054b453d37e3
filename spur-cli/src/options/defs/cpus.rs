//! Options for tasks, CPUs and memory, and for the binding of tasks to CPUs.
//!
//! tidy: table

use spur_core::text::ParseError;
use spur_core::text::cpubind::CpuBinding;
use spur_core::text::gpubind::GpuBind;
use spur_core::text::membind::MemBinding;
use spur_core::text::memory::MemoryMb;
use spur_core::text::nodes::NodeCount;

use super::super::values::{count, distribution, extra_node_info, least, parsed, tres_per_task};
use super::{Def, JOB, SALLOC, SBATCH, SRUN, nothing};

/// Returns the minimum and maximum number of nodes of a range whose minimum is larger than its maximum.
/// `None` for any other value.
fn reversed(value: &str) -> Option<(u32, u32)> {
    let (least, most) = value.split_once('-')?;
    let (least, most) = (least.parse().ok()?, most.parse().ok()?);
    (least > most).then_some((least, most))
}

pub(super) const RESOURCES: &[Def] = &[
    Def::value("nodes", Some('N'), "N", "number of nodes on which to run (N = min[-max])", |s, v| {
        if let Some((least, most)) = reversed(v) {
            return Err(format!("Maximum node count {most} is less than minimum node count {least}: {{option}}={v}"));
        }
        let wrong = |error: ParseError| format!("\"{v}\" is not a valid node count for {{option}}: {}", error.problem);
        v.parse::<NodeCount>().map_err(wrong)?;
        s.spec.nodes = v.to_owned();
        Ok(())
    })
    .only(JOB)
    .env(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"]),
    Def::value("ntasks", Some('n'), "ntasks", "number of tasks to run", |s, v| {
        s.spec.tasks = Some(count(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SLURM_NPROCS", "SLURM_NTASKS"]),
    Def::value("ntasks-per-node", None, "n", "number of tasks to invoke on each node", |s, v| {
        s.spec.tasks_per_node = Some(count(v)?);
        Ok(())
    })
    .or(&["tasks-per-node"])
    .only(JOB)
    .env(&["SLURM_NTASKS_PER_NODE"]),
    Def::value("cpus-per-task", Some('c'), "ncpus", "number of cpus required per task", |s, v| {
        s.spec.cpus_per_task = Some(count(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SRUN_CPUS_PER_TASK"]),
    Def::value("mincpus", None, "n", "minimum number of logical processors per node", |s, v| {
        s.spec.min_cpus = count(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("mem", None, "MB", "amount of real memory on each node, e.g. 4G; 0 for all there is", |s, v| {
        s.memory(Some(parsed::<MemoryMb>(v)?.0), None, None);
        Ok(())
    })
    .only(JOB)
    .excluding(&["mem-per-cpu", "mem-per-gpu"])
    .env(&["SBATCH_MEM_PER_NODE", "SALLOC_MEM_PER_NODE", "SLURM_MEM_PER_NODE"]),
    Def::value("mem-per-cpu", None, "MB", "amount of real memory per allocated cpu, e.g. 2G", |s, v| {
        s.memory(None, Some(parsed::<MemoryMb>(v)?.0), None);
        Ok(())
    })
    .only(JOB)
    .excluding(&["mem", "mem-per-gpu"])
    .env(&["SBATCH_MEM_PER_CPU", "SALLOC_MEM_PER_CPU", "SLURM_MEM_PER_CPU"]),
    Def::value("tmp", None, "MB", "minimum amount of temporary disk on each node", |s, v| {
        s.spec.tmp_disk_mb = parsed::<MemoryMb>(v)?.0;
        Ok(())
    })
    .only(JOB),
    Def::flag("overcommit", Some('O'), "overcommit resources: those of one task on each node", |s, _| {
        s.overcommit = true;
        Ok(())
    })
    .only(SBATCH | SALLOC)
    .env(&["SBATCH_OVERCOMMIT", "SALLOC_OVERCOMMIT"]),
    Def::value("core-spec", Some('S'), "cores", "count of reserved cores", nothing)
        .only(JOB)
        .env(&["SBATCH_CORE_SPEC", "SALLOC_CORE_SPEC", "SLURM_CORE_SPEC"])
        .without_effect("as with Slurm where AllowSpecResourcesUsage is not set; administrators keep cores with core_spec_count"),
    Def::value("thread-spec", None, "threads", "count of reserved threads", nothing)
        .only(JOB)
        .env(&["SBATCH_THREAD_SPEC", "SALLOC_THREAD_SPEC", "SLURM_THREAD_SPEC"])
        .without_effect("as with Slurm where AllowSpecResourcesUsage is not set; administrators keep cores with core_spec_count"),
    Def::value("tres-per-task", None, "list", "CPUs and devices of each task, e.g. cpu:2,gres/gpu:1", |s, v| {
        let (cpus, gpus) = tres_per_task(v)?;
        s.spec.cpus_per_task = cpus.or(s.spec.cpus_per_task);
        if let Some(gpus) = gpus {
            s.spec.gpus_per_task = gpus;
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_TRES_PER_TASK", "SALLOC_TRES_PER_TASK", "SLURM_TRES_PER_TASK"]),
];

pub(super) const AFFINITY: &[Def] = &[
    Def::value(
        "extra-node-info",
        Some('B'),
        "S[:C[:T]]",
        "sockets, cores and threads that nodes must have",
        |s, v| {
            let [sockets, cores, threads] = extra_node_info(v)?;
            let ask = s.cores();
            (ask.sockets_per_node, ask.cores_per_socket) = (sockets, cores.or(ask.cores_per_socket));
            ask.threads_per_core = threads.or(ask.threads_per_core);
            Ok(())
        },
    )
    .only(JOB),
    Def::value("sockets-per-node", None, "S", "number of sockets per node to allocate", |s, v| {
        s.cores().sockets_per_node = least(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("cores-per-socket", None, "C", "number of cores per socket to allocate", |s, v| {
        s.cores().cores_per_socket = least(v)?;
        Ok(())
    })
    .only(JOB),
    Def::value("threads-per-core", None, "T", "number of threads per core to allocate", |s, v| {
        s.cores().threads_per_core = least(v)?;
        s.advise("SLURM_THREADS_PER_CORE", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_THREADS_PER_CORE", "SALLOC_THREADS_PER_CORE", "SLURM_THREADS_PER_CORE"]),
    Def::value("ntasks-per-core", None, "n", "number of tasks to invoke on each core", |s, v| {
        s.cores().tasks_per_core = least(v)?;
        s.advise("SLURM_NTASKS_PER_CORE", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NTASKS_PER_CORE", "SALLOC_NTASKS_PER_CORE", "SLURM_NTASKS_PER_CORE"]),
    Def::value("ntasks-per-socket", None, "n", "number of tasks to invoke on each socket", |s, v| {
        s.cores().tasks_per_socket = least(v)?;
        s.advise("SLURM_NTASKS_PER_SOCKET", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SLURM_NTASKS_PER_SOCKET"]),
    Def::value("hint", None, "type", "compute_bound, memory_bound or [no]multithread", |s, v| {
        for word in v.to_ascii_lowercase().split(',') {
            s.cores().threads_per_core = match word {
                "compute_bound" | "memory_bound" | "nomultithread" => Some(1),
                "multithread" => None,
                _ => {
                    return Err(format!(
                        "`{word}` is not known; say compute_bound, memory_bound, multithread or nomultithread"
                    ));
                }
            };
        }
        if s.cores().threads_per_core == Some(1) {
            s.advise("SLURM_THREADS_PER_CORE", "1");
        }
        s.advise("SLURM_HINT", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SLURM_HINT", "SBATCH_HINT", "SALLOC_HINT"]),
    Def::value("mem-bind", None, "type", "bind memory to locality domains", |s, v| {
        let binding =
            v.parse::<MemBinding>().map_err(|error| error.to_string().replace("--mem-bind", "{option}"))?;
        s.advise("SLURM_MEM_BIND", v);
        s.step.mem_bind = binding;
        Ok(())
    })
    .or(&["mem_bind"])
    .only(JOB)
    .env(&["SBATCH_MEM_BIND", "SALLOC_MEM_BIND", "SLURM_MEM_BIND"]),
    Def::value(
        "distribution",
        Some('m'),
        "type",
        "distribution method for processes to nodes (type = block|cyclic|arbitrary)",
        |s, v| {
            s.step.distribution = distribution(v)?;
            let (how, size) = v.split_once('=').unwrap_or((v, ""));
            s.advise("SLURM_DISTRIBUTION", &how.to_ascii_lowercase());
            if !size.is_empty() {
                s.advise("SLURM_DIST_PLANESIZE", size);
            }
            Ok(())
        },
    )
    .only(JOB)
    .env(&["SBATCH_DISTRIBUTION", "SALLOC_DISTRIBUTION", "SLURM_DISTRIBUTION"]),
    Def::value("cpu-freq", None, "min[-max[:gov]]", "requested cpu frequency (and governor)", |s, v| {
        s.advise("SLURM_CPU_FREQ_REQ", frequencies(v)?);
        Ok(())
    })
    .only(JOB)
    .env(&["SLURM_CPU_FREQ_REQ"])
    .without_effect("frequencies are the system's, as with Slurm where CpuFreqGovernors forbids it"),
    Def::value("cpu-bind", None, "type", "bind tasks to CPUs", |s, v| {
        s.step.cpu_bind = parsed::<CpuBinding>(v)?;
        Ok(())
    })
    .or(&["cpu_bind"])
    .only(SRUN)
    .env(&["SLURM_CPU_BIND"]),
    Def::value(
        "accel-bind",
        None,
        "options",
        "bind tasks to the devices nearest to them: g, n, v",
        |s, v| {
            if let Some(other) = v.chars().find(|letter| !"gnv".contains(*letter)) {
                return Err(format!("`{other}` is not known; known are g, n and v"));
            }
            if v.contains('g') {
                s.step.gpu_bind = Some(GpuBind::Closest);
            }
            if v.contains('n') {
                s.notes
                    .push("--accel-bind=n has no effect: tasks see all other devices than GPUs".to_owned());
            }
            Ok(())
        },
    )
    .only(SRUN),
];

/// Checks `--cpu-freq`, which must be `P1[-P2[:GOVERNOR]]` or a governor.
fn frequencies(value: &str) -> Result<&str, String> {
    const SPEEDS: [&str; 4] = ["low", "medium", "high", "highm1"];
    const GOVERNORS: [&str; 6] =
        ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];
    let is_one_of = |known: &[&str], word: &str| known.iter().any(|one| one.eq_ignore_ascii_case(word));
    let is_speed = |word: &str| word.parse::<u32>().is_ok() || is_one_of(&SPEEDS, word);
    let (speeds, governor) =
        value.split_once(':').map_or((value, None), |(speeds, last)| (speeds, Some(last)));
    let known = speeds.split('-').count() <= 2
        && speeds.split('-').all(is_speed)
        && governor.is_none_or(|governor| is_one_of(&GOVERNORS, governor));
    if known || is_one_of(&GOVERNORS, value) {
        return Ok(value);
    }
    Err(format!(
        "`{value}` is no P1[-P2[:GOVERNOR]]; speeds are kHz, {}; governors {}",
        SPEEDS.join(", "),
        GOVERNORS.join(", ")
    ))
}
