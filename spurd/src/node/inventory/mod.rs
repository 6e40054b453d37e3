//! The node's resources as the kernel shows them: CPUs, memory, temporary disk, devices, and load.
//!
//! All files are read below a root directory: `/`, or a fixture tree in tests. A missing file means that the
//! node lacks the resource; reading never fails.

pub mod cpu;
pub mod device;
pub mod gpu;
pub mod memory;

use std::fs;
use std::path::{Path, PathBuf};

use self::cpu::Cpus;
use self::device::Device;

/// The files in which the kernel describes the node, below a root directory.
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel { root: PathBuf::from("/") }
    }
}

/// The detected resources of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Sockets, cores and threads that this process may use.
    pub cpus: Cpus,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Size of the file system of temporary files, in MiB.
    pub tmp_disk_mb: u64,
    /// GPUs in the order of their index.
    pub gpus: Vec<Device>,
}

impl Kernel {
    /// Returns the files below another root.
    pub fn below(root: impl Into<PathBuf>) -> Kernel {
        Kernel { root: root.into() }
    }

    /// Detects the node's resources; `tmp` is the directory of the jobs' temporary files.
    pub fn take_stock(&self, tmp: &Path) -> Inventory {
        let cpus = self.cpus(&cpu::usable());
        Inventory {
            gpus: self.gpus(&cpus),
            cpus,
            memory_mb: self.memory().total_mb,
            tmp_disk_mb: memory::disk_mb(tmp),
        }
    }

    /// Returns the kernel's boot id, new with every boot; empty if there is none.
    pub fn boot_id(&self) -> String {
        self.line("proc/sys/kernel/random/boot_id").unwrap_or_default()
    }

    /// Returns the time of the boot, in seconds since the Unix epoch; `None` if the kernel does not say.
    pub fn booted_at(&self) -> Option<i64> {
        let stat = self.text("proc/stat")?;
        stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Returns the first line of a file, without its end; `None` if there is no such file.
    pub(super) fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.text(path)?.lines().next().unwrap_or_default().trim().to_owned())
    }

    /// Returns the names in a directory, sorted; empty if there is no such directory.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort_unstable();
        names
    }
}

/// Returns the number after a prefix: 0 for `card0` after `card`, `None` for `card0-DP-1`.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a directory with these files and their contents.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let kernel = Kernel::below(root.path());
        (root, kernel)
    }

    #[test]
    fn boot_facts_are_read() {
        let (_root, kernel) = tree(&[
            ("proc/sys/kernel/random/boot_id", "aa-bb\n"),
            ("proc/stat", "cpu 1 2\nbtime 1700000000\nprocesses 3\n"),
        ]);
        assert_eq!((kernel.boot_id().as_str(), kernel.booted_at()), ("aa-bb", Some(1_700_000_000)));
    }

    #[test]
    fn a_bare_system_has_nothing_and_that_is_no_error() {
        let (_root, kernel) = tree(&[]);
        let stock = kernel.take_stock(Path::new("/nonexistent"));
        assert_eq!((stock.memory_mb, stock.tmp_disk_mb, stock.gpus), (0, 0, vec![]));
        assert_eq!((kernel.boot_id().as_str(), kernel.booted_at()), ("", None));
    }

    #[test]
    fn this_system_has_cpus_and_memory() {
        let stock = Kernel::default().take_stock(Path::new("/tmp"));
        assert!(!stock.cpus.threads.is_empty() && stock.memory_mb > 0 && stock.tmp_disk_mb > 0, "{stock:?}");
    }
}
