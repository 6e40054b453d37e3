//! The environment of a program that a daemon runs as its own user: prolog, epilog, health check, power,
//! mail.
//!
//! Such a program often runs as root, and a variable such as `LD_PRELOAD` or `BASH_ENV` could change what it
//! runs. So its environment is built from nothing: some variables of the daemon, and those of a job whose
//! names belong to the batch system. The values of these come from the controller, never from a client.

use std::collections::BTreeMap;

use crate::text::exit::ExitCode;

/// The search path of programs if the daemon has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Largest size in bytes of `NAME=VALUE` with its NUL that the kernel accepts (`MAX_ARG_STRLEN`).
const LONGEST: usize = 128 << 10;

/// Largest size in bytes of all variables of a job. The kernel gives a program's arguments and environment a
/// quarter of the stack limit, which is 2 MiB by default.
const MOST: usize = 1 << 20;

/// Variables of a daemon that its programs get: the cluster, the language of messages, and proxies, which
/// programs that boot nodes of a cloud need.
const OF_DAEMON: [&str; 15] = [
    "SPUR_CONF",
    "SPUR_CONTROLLER",
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Variables of a job without a prefix of the batch system: the GPUs that it holds.
const OF_GPUS: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];

/// Variables that select the cluster of commands. A job never sets them for a program of the site.
const OF_CLUSTER: [&str; 3] = ["SPUR_CONF", "SPUR_CONTROLLER", "SLURM_CONF"];

/// The environment of a program: variables of the daemon, overridden by those of the job or node
/// ([`of_job`]).
pub fn environment(
    daemon: impl IntoIterator<Item = (String, String)>,
    job: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
    let own = daemon.into_iter().filter(|(name, _)| is_of_daemon(name));
    all.extend(own.filter(|variable| length(variable).is_some()));
    all.extend(of_job(job));
    all
}

/// The variables of a job that a program gets; of two with the same name the later counts.
///
/// Variables with other names, and those that the kernel would refuse (a NUL, more than 128 KiB), are left
/// out. If all together exceed 1 MiB, the longest are left out.
pub fn of_job(job: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let job: BTreeMap<String, String> = job.into_iter().filter(|(name, _)| is_of_job(name)).collect();
    let mut by_length: Vec<_> =
        job.into_iter().filter_map(|variable| Some((length(&variable)?, variable))).collect();
    by_length.sort_unstable();
    let mut taken = 0;
    let fits = |(length, variable): (usize, (String, String))| {
        taken += length;
        (taken <= MOST).then_some(variable)
    };
    by_length.into_iter().map_while(fits).collect()
}

/// Variables about the end of a job: its exit as wait(2) encodes it (`SLURM_JOB_EXIT_CODE`) and in Slurm's
/// form (`SLURM_JOB_EXIT_CODE2`). `derived` is the highest exit code of its steps.
#[must_use]
pub fn of_end(exit: ExitCode, derived: ExitCode) -> Vec<(String, String)> {
    let status = |exit: ExitCode| u32::from(exit.code) << 8 | u32::from(exit.signal);
    vec![
        ("SLURM_JOB_EXIT_CODE".to_owned(), status(exit).to_string()),
        ("SLURM_JOB_EXIT_CODE2".to_owned(), exit.to_string()),
        ("SLURM_JOB_DERIVED_EC".to_owned(), status(derived).to_string()),
    ]
}

/// The variables of [`of_end`] once one more step of a job has ended, for a node that has all of the job's
/// steps. `known` are the previous ones; a batch script counts as the job itself.
#[must_use]
pub fn of_end_after(known: &[(String, String)], is_batch: bool, exit: ExitCode) -> Vec<(String, String)> {
    let before = |name: &str| {
        let status = known.iter().rfind(|(known, _)| known == name)?.1.parse::<u16>().ok()?;
        let [code, signal] = status.to_be_bytes();
        Some(ExitCode { code, signal })
    };
    let job = before("SLURM_JOB_EXIT_CODE").unwrap_or_default();
    let derived = before("SLURM_JOB_DERIVED_EC").unwrap_or_default();
    match is_batch {
        true => of_end(exit, derived),
        false => of_end(job, if exit.rank() > derived.rank() { exit } else { derived }),
    }
}

fn is_of_daemon(name: &str) -> bool {
    OF_DAEMON.contains(&name) || name.starts_with("LC_")
}

fn is_of_job(name: &str) -> bool {
    let prefixed = ["SLURM_", "SLURMD_", "SPUR_"].iter().any(|prefix| name.starts_with(prefix));
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (prefixed && plain && !OF_CLUSTER.contains(&name)) || OF_GPUS.contains(&name)
}

/// Size of a variable in bytes; `None` if the kernel refuses it.
fn length((name, value): &(String, String)) -> Option<usize> {
    let length = name.len() + value.len() + 2;
    (length <= LONGEST && !name.contains('\0') && !value.contains('\0')).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_job(name: &str, value: &str) -> Option<String> {
        environment([], [(name.to_owned(), value.to_owned())]).remove(name)
    }

    #[test]
    fn of_a_job_only_the_names_of_the_batch_system_pass() {
        for name in
            ["SLURM_JOB_ID", "SLURMD_NODENAME", "SPUR_X", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
        {
            assert_eq!(of_job(name, "1").as_deref(), Some("1"), "{name}");
        }
        let refused = [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "IFS",
            "PYTHONPATH",
            "PERL5LIB",
            "HOME",
            "LC_ALL",
            "http_proxy",
            "SPUR_CONF",
            "SPUR_CONTROLLER",
            "SLURM_CONF",
            "slurm_job_id",
            "XSLURM_A",
            "",
            "SLURM_A=B",
            "SLURM_%n",
            "BASH_FUNC_SLURM_x%%",
        ];
        for name in refused {
            assert_eq!(of_job(name, "1"), None, "{name}");
        }
        assert_eq!(of_job("PATH", "/tmp/evil").as_deref(), Some(DEFAULT_PATH));
    }

    #[test]
    fn of_a_daemon_only_what_programs_need_passes() {
        let own = ["PATH", "HOME", "LC_TIME", "https_proxy", "SPUR_CONF", "LD_PRELOAD", "NOTIFY_SOCKET"];
        let all = environment(own.map(|name| (name.to_owned(), "x".to_owned())), []);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "LC_TIME", "PATH", "SPUR_CONF", "https_proxy"]);
    }

    #[test]
    fn what_the_kernel_refuses_is_left_out() {
        assert_eq!(of_job("SLURM_A", "x\0y"), None);
        let longest = "x".repeat(LONGEST - "SLURM_A=\0".len());
        assert!(of_job("SLURM_A", &longest).is_some());
        assert_eq!(of_job("SLURM_A", &format!("{longest}x")), None);
        let many = (0..20).map(|number| (format!("SLURM_{number:02}"), "x".repeat(100_000)));
        let all = environment([], many.chain([("SLURM_JOB_ID".to_owned(), "7".to_owned())]));
        assert_eq!(
            (all.len(), all["SLURM_JOB_ID"].as_str()),
            (12, "7"),
            "ten long ones, the short one and PATH"
        );
    }
}
