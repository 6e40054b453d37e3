//! Options of the commands that request nodes.
//!
//! A value is checked where it is given, by the parser of its type, so that the error names the option and
//! its origin. Only the controller, which knows the cluster, can judge the request.
//!
//! The table has every option of Slurm's `sbatch`, `salloc` and `srun`, with the corresponding environment
//! variables. An option works, has no effect, or is refused; the latter two give the reason.

mod command;
mod cpus;
mod files;
mod gpus;
mod launch;
mod nodes;
mod parallel;

use super::submission::Submission;
use super::{CommandLine, Opt};

const SBATCH: u8 = 1;
const SALLOC: u8 = 2;
const SRUN: u8 = 4;
/// Commands that request an allocation; `srun` does so outside a job.
const JOB: u8 = SBATCH | SALLOC | SRUN;
/// Commands whose programs have files and an environment.
const PROGRAM: u8 = SBATCH | SRUN;

/// Command line of `sbatch`.
pub const SBATCH_LINE: CommandLine<Submission> = CommandLine {
    name: "sbatch",
    synopsis: "[OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]",
    about: "Submits a script, or standard input where no script is named, as a batch job. Lines of the script that \
            begin with #SBATCH hold options, too; those of the environment count more, and those of the command line \
            most.",
    options: SUBMISSION,
    mask: SBATCH,
    env_prefixes: &[
        "SBATCH_",
        "SLURM_CLUSTERS",
        "SLURM_HINT",
        "SLURM_UMASK",
        "SLURM_CONF",
        "SLURM_DEBUG_FLAGS",
        "SLURM_EXIT_ERROR",
        "SLURM_STEP_KILLED_MSG_NODE_ID",
    ],
    permute: false,
};

/// Command line of `salloc`.
pub const SALLOC_LINE: CommandLine<Submission> = CommandLine {
    name: "salloc",
    synopsis: "[OPTIONS(0)...] [ : [OPTIONS(N)...]] [command(0) [args(0)...]]",
    about: "Gets nodes, runs a command, or a shell where none is named, and gives the nodes back when it ends.",
    options: SUBMISSION,
    mask: SALLOC,
    env_prefixes: &[
        "SALLOC_",
        "SLURM_CLUSTERS",
        "SLURM_HINT",
        "SLURM_CONF",
        "SLURM_DEBUG_FLAGS",
        "SLURM_EXIT_ERROR",
        "SLURM_EXIT_IMMEDIATE",
    ],
    permute: false,
};

/// Command line of `srun`.
pub const SRUN_LINE: CommandLine<Submission> = CommandLine {
    name: "srun",
    synopsis: "[OPTIONS(0)...] [ : [OPTIONS(N)...]] executable(0) [args(0)...]",
    about: "Runs a program as a step of the job it is called in, by default once for each of the job's tasks. Outside of \
            jobs it asks for an allocation of its own, which ends with the step.",
    options: SUBMISSION,
    mask: SRUN,
    env_prefixes: &["SLURM_", "SRUN_", "SLURMD_DEBUG", "PMI_"],
    permute: false,
};

type Def = Opt<Submission>;

/// Parts of the table, each with its title in `--help`.
const PARTS: [(&str, &[Def]); 9] = [
    ("Parallel run options", parallel::OPTIONS),
    ("Program options", files::OPTIONS),
    ("Command options", command::OPTIONS),
    ("Constraint options", nodes::OPTIONS),
    ("Fabric options", nodes::FABRIC),
    ("Consumable resources related options", cpus::RESOURCES),
    ("Affinity/Multi-core options", cpus::AFFINITY),
    ("GPU scheduling options", gpus::OPTIONS),
    ("Launch options", launch::OPTIONS),
];

const LENGTH: usize = {
    let (mut length, mut at) = (0, 0);
    while at < PARTS.len() {
        length += PARTS[at].1.len();
        at += 1;
    }
    length
};

static ALL: [Def; LENGTH] = {
    let mut all = [PARTS[0].1[0]; LENGTH];
    let (mut part, mut filled) = (0, 0);
    while part < PARTS.len() {
        let (group, options) = PARTS[part];
        let mut at = 0;
        while at < options.len() {
            all[filled] = Opt { group, ..options[at] };
            filled += 1;
            at += 1;
        }
        part += 1;
    }
    all
};

/// All options of `sbatch`, `salloc` and `srun`.
pub const SUBMISSION: &[Opt<Submission>] = &ALL;

/// Does nothing, for options without effect and refused ones.
fn nothing(_: &mut Submission, _: &str) -> Result<(), String> {
    Ok(())
}
