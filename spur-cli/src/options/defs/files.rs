//! Options for files, working directory, environment and limits of the program.

use spur_core::text::pattern::FilePattern;

use super::super::submission::{Export, Propagate};
use super::super::values::{octal, parsed, parsed_or_none, resource_limits, text};
use super::{Def, JOB, PROGRAM, SALLOC, SBATCH, SRUN};

pub(super) const OPTIONS: &[Def] = &[
    Def::value("chdir", Some('D'), "path", "change working directory", |s, v| {
        s.chdir = (!v.is_empty()).then(|| v.to_owned());
        Ok(())
    })
    .or(&["workdir"])
    .only(JOB)
    .env(&["SBATCH_WORKDIR", "SLURM_REMOTE_CWD", "SLURM_WORKING_DIR"]),
    Def::value("input", Some('i'), "file", "location of stdin redirection", |s, v| {
        if !v.is_empty() {
            parsed::<FilePattern>(v)?;
        }
        s.files.input = (!v.is_empty()).then(|| v.to_owned());
        Ok(())
    })
    .only(PROGRAM)
    .env(&["SBATCH_INPUT", "SLURM_STDINMODE", "SRUN_INPUT"]),
    Def::value(
        "output",
        Some('o'),
        "file",
        "location of stdout redirection, with patterns such as %j",
        |s, v| {
            parsed_or_none::<FilePattern>(v)?;
            s.files.output = (!v.is_empty()).then(|| v.to_owned());
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_OUTPUT", "SLURM_STDOUTMODE", "SRUN_OUTPUT"]),
    Def::value(
        "error",
        Some('e'),
        "file",
        "location of stderr redirection; stdout's, if not given",
        |s, v| {
            parsed_or_none::<FilePattern>(v)?;
            s.files.error = (!v.is_empty()).then(|| v.to_owned());
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_ERROR", "SLURM_STDERRMODE", "SRUN_ERROR"]),
    Def::value(
        "open-mode",
        None,
        "append|truncate",
        "what becomes of output files that are there already",
        |s, v| {
            s.files.append = Some(match v.to_ascii_lowercase().bytes().next() {
                Some(b'a') => true,
                Some(b't') => false,
                _ => return Err(format!("`{v}` is not known; say append or truncate")),
            });
            s.advise("SLURM_OPEN_MODE", &v[..1]);
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_OPEN_MODE", "SLURM_OPEN_MODE"]),
    Def::value(
        "export",
        None,
        "names",
        "environment variables to pass on: ALL, NONE, NAME, NAME=VALUE",
        |s, v| {
            s.export = v.parse::<Export>()?;
            Ok(())
        },
    )
    .only(PROGRAM)
    .env(&["SBATCH_EXPORT", "SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"]),
    Def::value(
        "export-file",
        None,
        "file|fd",
        "only the variables in a file, each followed by a zero byte",
        |s, v| {
            s.export_file = Some(text(v)?);
            Ok(())
        },
    )
    .only(SBATCH),
    Def::value("get-user-env", None, "timeout[mode]", "load the user's login environment", |s, v| {
        s.login_environment = Some(v.to_owned());
        Ok(())
    })
    .optional()
    .only(SBATCH | SALLOC)
    .env(&["SBATCH_GET_USER_ENV"]),
    Def::value("propagate", None, "rlimits", "resource limits to pass on: ALL, NONE or names", |s, v| {
        s.propagate = if v.is_empty() { Propagate::All } else { resource_limits(v)? };
        Ok(())
    })
    .optional()
    .only(PROGRAM)
    .env(&["SLURM_PROPAGATE"]),
    Def::value("umask", None, "mask", "file mode creation mask", |s, v| {
        s.umask = Some(octal(v)?);
        Ok(())
    })
    .only(SBATCH | SRUN)
    .env(&["SBATCH_UMASK", "SLURM_UMASK"]),
];
