//! The control group hierarchies that a host has mounted.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The control group hierarchies of a host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// Mount point of the version 2 hierarchy.
    pub(super) unified: Option<PathBuf>,
    /// Mount points of the version 1 hierarchies, by controller.
    pub(super) legacy: BTreeMap<String, PathBuf>,
}

impl Host {
    /// Reads the lines of `/proc/self/mounts`; the first of several mount points of a hierarchy counts.
    pub(super) fn read(mounts: &str) -> Host {
        let mut host = Host::default();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, path, kind, options, ..] = fields[..] else { continue };
            match kind {
                "cgroup2" => {
                    host.unified.get_or_insert_with(|| path.into());
                }
                "cgroup" => {
                    for option in options.split(',') {
                        host.legacy.entry(option.to_owned()).or_insert_with(|| path.into());
                    }
                }
                _ => {}
            }
        }
        host
    }
}

/// Returns the largest number of processes that this host can have at a time.
pub(super) fn max_processes() -> u64 {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().parse().unwrap_or(32_768)
    };
    std::cmp::min(limit("pid_max"), limit("threads-max"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_by_what_is_mounted() {
        let mixed = "tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0\n\
                     cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                     cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
                     cgroup2 /mnt/again cgroup2 rw 0 0\n";
        let host = Host::read(mixed);
        assert_eq!(host.unified, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(host.legacy.get("cpuacct"), Some(&"/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(host.legacy.get("memory"), Some(&"/sys/fs/cgroup/memory".into()));
        assert_eq!(host.legacy.get("pids"), None);
        assert_eq!(Host::read("proc /proc proc rw 0 0\nbroken\n"), Host::default());
        assert!(max_processes() > 100);
    }
}
