//! Memory, temporary disk and load of the node.

use std::path::Path;

use super::Kernel;

/// Memory of the node in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Installed memory in MiB.
    pub total_mb: u64,
    /// Memory available without swapping, in MiB.
    pub available_mb: u64,
}

impl Kernel {
    /// Reads the node's memory; 0 where the kernel does not say.
    pub fn memory(&self) -> Memory {
        let text = self.text("proc/meminfo").unwrap_or_default();
        let mb = |key: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib / 1024)
        };
        Memory {
            total_mb: mb("MemTotal:").unwrap_or(0),
            available_mb: mb("MemAvailable:").or_else(|| mb("MemFree:")).unwrap_or(0),
        }
    }

    /// Returns the load average over one minute, in hundredths.
    pub fn load_hundredths(&self) -> u32 {
        let text = self.line("proc/loadavg").unwrap_or_default();
        let load: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        (load * 100.0).round() as u32
    }
}

/// Returns the size of the file system that holds `directory`, in MiB; 0 if it cannot be read.
pub fn disk_mb(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(0, |disk| (disk.f_blocks.saturating_mul(disk.f_frsize)) >> 20)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn memory_and_load_are_read() {
        let meminfo = "MemTotal:       24684092 kB\nMemFree:  100 kB\nMemAvailable:   24243588 kB\n";
        let (_root, kernel) =
            tree(&[("proc/meminfo", meminfo), ("proc/loadavg", "1.375 0.5 0.1 1/200 999\n")]);
        assert_eq!(kernel.memory(), Memory { total_mb: 24_105, available_mb: 23_675 });
        assert_eq!(kernel.load_hundredths(), 138);
    }

    #[test]
    fn old_kernels_say_only_what_is_free() {
        let (_root, kernel) = tree(&[("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 2048 kB\n")]);
        assert_eq!(kernel.memory(), Memory { total_mb: 4, available_mb: 2 });
    }
}
