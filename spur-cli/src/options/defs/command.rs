//! Options of the command itself.

use std::time::Duration;

use super::super::values::{level, number, text};
use super::{Def, JOB, SALLOC, SBATCH, SRUN, nothing};

pub(super) const OPTIONS: &[Def] = &[
    Def::value("wrap", None, "command string", "wrap command string in a sh script and submit", |s, v| {
        s.wrap = Some(text(v)?);
        Ok(())
    })
    .only(SBATCH),
    Def::flag("wait", Some('W'), "wait for completion of submitted job", |s, _| {
        s.wait = true;
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_WAIT"]),
    Def::flag(
        "parsable",
        None,
        "output only the job id (and cluster name), delimited by semicolons",
        |s, _| {
            s.parsable = true;
            Ok(())
        },
    )
    .only(SBATCH)
    .env(&["SBATCH_PARSABLE"]),
    Def::flag("test-only", None, "validate, and tell when and where the job would start", |s, _| {
        s.test_only = true;
        Ok(())
    })
    .only(SBATCH | SRUN)
    .env(&["SBATCH_TEST_ONLY", "SLURM_TEST_ONLY"]),
    Def::flag("ignore-pbs", None, "ignore #PBS and #BSUB options in the batch script", |s, _| {
        s.ignore_pbs = true;
        Ok(())
    })
    .only(SBATCH)
    .env(&["SBATCH_IGNORE_PBS"]),
    Def::flag("quiet", Some('Q'), "quiet mode (suppress informational messages)", |s, _| {
        s.quiet = true;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_QUIET", "SALLOC_QUIET", "SLURM_QUIET"]),
    Def::flag("verbose", Some('v'), "verbose mode (multiple -v's increase verbosity)", |s, _| {
        s.verbose = s.verbose.saturating_add(1);
        Ok(())
    })
    .only(JOB),
    Def::variable("as many --verbose", |s, v| {
        s.verbose = level(v)?;
        Ok(())
    })
    .only(JOB)
    .env(&["SBATCH_DEBUG", "SALLOC_DEBUG", "SLURM_DEBUG"]),
    Def::variable("the exit code of errors of the command itself", nothing)
        .only(JOB)
        .env(&["SLURM_EXIT_ERROR"]),
    Def::variable("the exit code where --immediate fails", nothing)
        .only(SALLOC | SRUN)
        .env(&["SLURM_EXIT_IMMEDIATE"]),
    Def::variable("Slurm's configuration", nothing)
        .only(JOB)
        .env(&["SLURM_CONF"])
        .without_effect("SPUR_CONF names the configuration"),
    Def::variable("what is logged for developers", nothing)
        .only(JOB)
        .env(&["SLURM_DEBUG_FLAGS"])
        .without_effect("commands log nothing for developers"),
    Def::variable("the node that alone tells of signals", nothing)
        .only(SBATCH | SRUN)
        .env(&["SLURM_STEP_KILLED_MSG_NODE_ID"])
        .without_effect("nodes do not tell of signals one by one"),
    Def::flag("bell", None, "ring the terminal bell when the job is allocated", |s, _| {
        s.bell = Some(true);
        Ok(())
    })
    .only(SALLOC)
    .env(&["SALLOC_BELL"]),
    Def::flag("no-bell", None, "do NOT ring the terminal bell", |s, _| {
        s.bell = Some(false);
        Ok(())
    })
    .only(SALLOC)
    .env(&["SALLOC_NO_BELL"]),
    Def::flag("no-shell", None, "do not spawn shell", |s, _| {
        s.no_shell = true;
        Ok(())
    })
    .only(SALLOC)
    .env(&["SALLOC_NO_SHELL"]),
    Def::value("kill-command", Some('K'), "signal", "signal to send terminating job", |s, v| {
        s.kill_command = Some(v.to_owned());
        Ok(())
    })
    .optional()
    .only(SALLOC)
    .env(&["SALLOC_KILL_CMD"]),
    Def::value("x11", None, "all|first|last", "set up X11 forwarding", nothing)
        .optional()
        .only(JOB)
        .env(&["SBATCH_X11", "SALLOC_X11", "SLURM_X11"])
        .refused("X11 forwarding is not supported by Spur; use ssh -X to a node of the job"),
    Def::value(
        "wait",
        Some('W'),
        "sec",
        "seconds to wait after first task ends before killing job",
        |s, v| {
            s.step.wait = Some(number(v)?).filter(|&seconds| seconds > 0).map(Duration::from_secs);
            Ok(())
        },
    )
    .only(SRUN)
    .env(&["SLURM_WAIT"]),
];
