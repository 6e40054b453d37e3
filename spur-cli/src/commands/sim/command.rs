//! Commands that a workload runs. The code of the real commands parses them and lays out their output; the
//! simulated controller replaces the real one.

use spur_core::sim::{Watch, World};

use super::{defrag, policy, scontrol, shown};

/// Output and exit code of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) status: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Returns error messages in the form in which a command prints them.
pub(super) fn complaints<'a>(name: &str, texts: impl IntoIterator<Item = &'a str>) -> String {
    let complaint = |text: &str| {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        lines.fold(format!("{name}: error: {first}\n"), |all, line| format!("{all}{line}\n"))
    };
    texts.into_iter().map(complaint).collect()
}

const KNOWN: &str = "a workload runs squeue, sinfo, spur defrag, sacctmgr, sshare, sprio, and of scontrol: create, update, delete, hold, uhold, release, requeue, \
                     requeuehold, suspend, resume and show job, node, partition, reservation or topology";

/// Runs a command.
pub(super) fn run<W: Watch>(world: &mut World<W>, argv: &[String]) -> Ran {
    let (name, words) = argv.split_first().map_or(("", argv), |(name, words)| (name.as_str(), words));
    let shown = |text: Result<String, String>| text.map(|stdout| Ran { stdout, ..Ran::default() });
    let ran = match (name, words.first().map(String::as_str)) {
        ("squeue", _) => shown(shown::squeue(world, words)),
        ("sinfo", _) => shown(shown::sinfo(world, words)),
        ("spur", Some("defrag")) => defrag::run(world, &words[1..]),
        ("sacctmgr", _) => shown(policy::sacctmgr(world, words)),
        ("sshare", _) => shown(policy::sshare(world, words)),
        ("sprio", _) => shown(policy::sprio(world, words)),
        ("scontrol", Some("show")) => shown::scontrol(world, &words[1..]),
        (
            "scontrol",
            Some(
                "create" | "update" | "delete" | "hold" | "uhold" | "release" | "requeue" | "requeuehold"
                | "suspend" | "resume",
            ),
        ) => scontrol::run(world, &words[0], &words[1..]),
        _ => Err(format!("{KNOWN}; not {}", argv.join(" "))),
    };
    ran.unwrap_or_else(|problem| Ran {
        status: 1,
        stderr: complaints(name, [problem.as_str()]),
        ..Ran::default()
    })
}
