//! Options for devices.

use spur_core::text::gpubind::GpuBind;
use spur_core::text::gres::GresList;
use spur_core::text::memory::MemoryMb;

use super::super::values::{count, parsed};
use super::{Def, JOB};

/// Checks a count of GPUs.
fn gpus(value: &str) -> Result<(), String> {
    if value.is_empty() {
        Ok(())
    } else {
        GresList::parse_gpus(value).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Returns the binding of GPUs in `--tres-bind`; `None` if it names no GPUs. Other devices can only have the
/// binding `none`.
fn gpus_of_tres_bind(value: &str) -> Result<Option<GpuBind>, String> {
    let mut gpus = None;
    for item in value.split('+') {
        let (name, bind) = item.split_once(':').unwrap_or((item, ""));
        let bind = parsed::<GpuBind>(bind)?;
        match name.strip_prefix("gres/") {
            Some("gpu") => gpus = Some(bind),
            Some(_) if bind == GpuBind::None => {}
            Some(_) => return Err(format!("`{name}` cannot be bound to tasks; only gres/gpu can")),
            None => return Err(format!("`{item}` is not known; write gres/NAME:BINDING")),
        }
    }
    Ok(gpus)
}

pub(super) const OPTIONS: &[Def] = &[
    Def::value("gres", None, "list", "required generic resources on each node, e.g. gpu:2", |s, v| {
        let none = v.is_empty() || v.eq_ignore_ascii_case("none");
        s.spec.gres = if none { String::new() } else { parsed::<GresList>(v)?.to_string() };
        if none && s.is_srun {
            // The step does not use the GPUs requested for the job.
            for said in [&mut s.spec.gpus, &mut s.spec.gpus_per_node, &mut s.spec.gpus_per_task] {
                said.clear();
            }
        }
        s.step.gres = Some(s.spec.gres.clone());
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GRES", "SALLOC_GRES", "SLURM_GRES", "SLURM_STEP_GRES"]),
    Def::value("gres-flags", None, "opts", "flags related to GRES management", |s, v| {
        let flag = v.to_ascii_lowercase();
        s.spec.gres_anywhere = flag == "disable-binding";
        match flag.as_str() {
            "disable-binding" => {}
            "enforce-binding" => s.notes.push(format!(
                "--gres-flags={v} has no effect: devices near the CPUs come first, others serve as well"
            )),
            "allow-task-sharing" | "multiple-tasks-per-sharing" | "one-task-per-sharing" => {
                s.notes.push(format!("--gres-flags={v} has no effect: no device is shared"));
            }
            _ => return Err(format!("`{v}` is not known; ask disable-binding or enforce-binding")),
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GRES_FLAGS", "SALLOC_GRES_FLAGS", "SLURM_GRES_FLAGS"]),
    Def::value("gpus", Some('G'), "n", "count of GPUs required for the job", |s, v| {
        gpus(v)?;
        v.clone_into(&mut s.spec.gpus);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS", "SALLOC_GPUS", "SLURM_GPUS"]),
    Def::value("gpus-per-node", None, "n", "number of GPUs required per allocated node", |s, v| {
        gpus(v)?;
        v.clone_into(&mut s.spec.gpus_per_node);
        if !v.is_empty() {
            s.advise("SLURM_GPUS_PER_NODE", v);
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS_PER_NODE", "SALLOC_GPUS_PER_NODE", "SLURM_GPUS_PER_NODE"]),
    Def::value("gpus-per-task", None, "n", "number of GPUs required per spawned task", |s, v| {
        gpus(v)?;
        v.clone_into(&mut s.spec.gpus_per_task);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS_PER_TASK", "SALLOC_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"]),
    Def::value("gpus-per-socket", None, "n", "number of GPUs required per allocated socket", |s, v| {
        gpus(v)?;
        s.gpus_per_socket = (!v.is_empty()).then(|| v.to_owned());
        if !v.is_empty() {
            s.advise("SLURM_GPUS_PER_SOCKET", v);
        }
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPUS_PER_SOCKET", "SALLOC_GPUS_PER_SOCKET", "SLURM_GPUS_PER_SOCKET"]),
    Def::value("cpus-per-gpu", None, "n", "number of CPUs required per allocated GPU", |s, v| {
        s.cores().cpus_per_gpu = Some(count(v)?);
        s.advise("SLURM_CPUS_PER_GPU", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_CPUS_PER_GPU", "SALLOC_CPUS_PER_GPU", "SLURM_CPUS_PER_GPU"]),
    Def::value("mem-per-gpu", None, "size", "real memory required per allocated GPU", |s, v| {
        let amount = parsed::<MemoryMb>(v)?.0;
        s.memory(None, None, Some(amount));
        s.advise("SLURM_MEM_PER_GPU", &amount.to_string());
        Ok(())
    })
    .only(JOB)
    .excluding(&["mem", "mem-per-cpu"])
    .env(&["SBATCH_MEM_PER_GPU", "SALLOC_MEM_PER_GPU", "SLURM_MEM_PER_GPU"]),
    Def::value("ntasks-per-gpu", None, "n", "number of tasks to invoke for each GPU", |s, v| {
        s.tasks_per_gpu = Some(count(v)?);
        s.advise("SLURM_NTASKS_PER_GPU", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_NTASKS_PER_GPU", "SALLOC_NTASKS_PER_GPU", "SLURM_NTASKS_PER_GPU"]),
    Def::value("gpu-bind", None, "type", "task to gpu binding options", |s, v| {
        s.step.gpu_bind = Some(parsed::<GpuBind>(v)?);
        s.advise("SLURM_GPU_BIND", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPU_BIND", "SALLOC_GPU_BIND", "SLURM_GPU_BIND"]),
    Def::value("gpu-freq", None, "freqs", "frequency and voltage of GPUs", |s, v| {
        s.advise("SLURM_GPU_FREQ", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_GPU_FREQ", "SALLOC_GPU_FREQ", "SLURM_GPU_FREQ"])
    .without_effect("frequencies are the system's"),
    Def::value("tres-bind", None, "list", "task to tres binding options, e.g. gres/gpu:closest", |s, v| {
        s.step.gpu_bind = gpus_of_tres_bind(v)?.or(s.step.gpu_bind.take());
        s.advise("SLURM_TRES_BIND", v);
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_TRES_BIND", "SALLOC_TRES_BIND", "SLURM_TRES_BIND"]),
];
