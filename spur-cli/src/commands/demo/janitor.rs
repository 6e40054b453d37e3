//! The janitor: a separate process that waits for the end of the demonstration and cleans up if it was
//! killed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::cluster::SPOOL;

/// Variable that makes `spur demo` the janitor of the directory it names.
pub(super) const DUTY: &str = "SPUR_DEMO_JANITOR";
/// The running program, even if its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The janitor, as a child of the demonstration.
pub(super) struct Janitor {
    process: Child,
}

impl Janitor {
    /// Starts a janitor for a directory. It has its own process group, so that a signal to the
    /// demonstration's group does not end it.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn hire(directory: &Path) -> io::Result<Janitor> {
        let mut command = Command::new(THIS_PROGRAM);
        // Only the demonstration has the other end of the pipe, which closes when the demonstration ends.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.arg("demo").env_clear().env(DUTY, directory).current_dir("/").process_group(0);
        Ok(Janitor { process: command.spawn()? })
    }

    /// Ends the janitor when nothing is left to clean up.
    pub(super) fn dismiss(mut self) {
        drop(self.process.stdin.take());
        // The janitor's exit code does not matter.
        let _ = self.process.wait();
    }
}

/// Waits until the standard input closes. Then kills all processes of the directory and removes it.
pub(super) fn clear_up(directory: &Path) {
    // The pipe carries no data.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if !directory.exists() {
        return;
    }
    // A killed process may have started others just before.
    loop {
        let found = inhabitants(directory);
        if found.is_empty() {
            break;
        }
        for process in found {
            let _ = kill_process(process, Signal::KILL);
        }
    }
    for group in control_groups(&directory.join(SPOOL)) {
        remove_group(&group);
    }
    let _ = fs::remove_dir_all(directory);
}

/// Returns the control groups of the nodes whose spools are in a directory. Their names end in the spool's
/// inode number.
fn control_groups(spools: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| Path::new(path).join("spurd"))
    });
    let Some(groups) = mount.and_then(|mount| fs::read_dir(mount).ok()) else { return Vec::new() };
    let names: Vec<(String, String)> = fs::read_dir(spools)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|spool| {
            let number = spool.metadata().ok()?.ino();
            Some((format!("{}_", spool.file_name().display()), format!("_{number}")))
        })
        .collect();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        names.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end))
    };
    groups.flatten().map(|group| group.path()).filter(is_ours).collect()
}

/// Removes a control group and those below it. Its files belong to the kernel and need not be removed.
fn remove_group(group: &Path) {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| remove_group(&entry.path()));
    let _ = fs::remove_dir(group);
}

/// Returns the processes that work in the directory or have it in their arguments or environment.
fn inhabitants(directory: &Path) -> Vec<Pid> {
    let own = std::process::id();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let inhabitant = |entry: io::Result<fs::DirEntry>| {
        let name: OsString = entry.ok()?.file_name();
        let number = name.to_str()?.parse::<i32>().ok()?;
        let place = Path::new("/proc").join(&name);
        let works_there = fs::read_link(place.join("cwd")).is_ok_and(|at| at.starts_with(directory));
        let told = |file| fs::read(place.join(file)).is_ok_and(|text| names(&text, directory));
        let is_one = works_there || told("cmdline") || told("environ");
        (is_one && u32::try_from(number) != Ok(own)).then(|| Pid::from_raw(number)).flatten()
    };
    processes.filter_map(inhabitant).collect()
}

/// True if a text contains the path of the directory, or of a file in it.
fn names(text: &[u8], directory: &Path) -> bool {
    let directory = directory.as_os_str().as_bytes();
    let mut places = text.windows(directory.len()).enumerate().filter(|(_, part)| *part == directory);
    places.any(|(at, _)| text.get(at + directory.len()).is_none_or(|next| !next.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_from_others() {
        let directory = Path::new("/tmp/spur-demo-12");
        for (text, expected) in [
            ("A=1\0SPUR_CONF=/tmp/spur-demo-12/spur.toml\0", true),
            ("PWD=/tmp/spur-demo-12\0", true),
            ("/tmp/spur-demo-12", true),
            ("PWD=/tmp/spur-demo-123\0", false),
            ("PWD=/tmp/spur-demo-1\0", false),
            ("", false),
        ] {
            assert_eq!(names(text.as_bytes(), directory), expected, "{text}");
        }
    }
}
