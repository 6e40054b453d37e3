//! Shared objects that a program needs: `srun --bcast --send-libs`.

use std::process::Command;

use anyhow::Context;

/// Directories whose shared objects are on the nodes, as in Slurm's default for `BcastExclude`.
const SYSTEM: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// Returns the shared objects of a program outside the `excluded` directories, as the dynamic linker of this
/// host finds them.
pub(super) fn shared_objects(program: &str, excluded: Option<&[String]>) -> anyhow::Result<Vec<String>> {
    let told = Command::new("ldd").arg(program).output().context("--send-libs: ldd cannot be run")?;
    let excluded: Vec<&str> = match excluded {
        Some(excluded) => excluded.iter().map(String::as_str).collect(),
        None => SYSTEM.to_vec(),
    };
    Ok(named_by_ldd(&String::from_utf8_lossy(&told.stdout), &excluded))
}

/// Returns the paths in the output of `ldd`, `NAME => PATH (ADDRESS)`. The dynamic linker has no name there;
/// the program contains its path.
fn named_by_ldd(told: &str, excluded: &[&str]) -> Vec<String> {
    let is_within =
        |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    let path = |line: &str| {
        let path = line.split_once(" => ")?.1.split(" (").next()?.trim();
        let sent = path.starts_with('/') && !excluded.iter().any(|directory| is_within(path, directory));
        sent.then(|| path.to_owned())
    };
    told.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_outside_excluded_directories_are_sent() {
        let told = "\tlinux-vdso.so.1 (0x00007ffc)\n\tliba.so => /opt/x/liba.so (0x0000)\n\tlibc.so.6 => /lib/x/libc.so.6 \
                    (0x0000)\n\tlibb.so => /libs/libb.so (0x0000)\n\tlibmissing.so => not found\n\t/lib64/ld-linux.so.2 (0x0)\n";
        assert_eq!(named_by_ldd(told, &SYSTEM), ["/opt/x/liba.so", "/libs/libb.so"]);
        assert_eq!(named_by_ldd(told, &["/opt"]), ["/lib/x/libc.so.6", "/libs/libb.so"]);
        assert_eq!(named_by_ldd("\tnot a dynamic executable\n", &[]), Vec::<String>::new());
    }
}
