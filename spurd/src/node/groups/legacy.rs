//! The node's own groups in hierarchies of version 1.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use step_wire::group::legacy::create;
use step_wire::group::set;

use super::held;

/// Creates and locks the node's group.
pub(super) fn open(controller: &str, mount: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let shared = mount.join("spurd");
    create(controller, &shared)?;
    // Older kernels count the memory of groups below only with `use_hierarchy`.
    if controller == "memory"
        && fs::read_to_string(shared.join("memory.use_hierarchy")).is_ok_and(|now| now.trim() == "0")
    {
        set(&shared.join("memory.use_hierarchy"), "1")?;
    }
    let node = shared.join(name);
    let held = held::hold(&node, || create(controller, &node))?;
    Ok((node, held))
}
