//! The versions that commands print: that of Slurm, which programs read, and Spur's own.

/// The version of Slurm whose commands Spur's commands are like.
pub const SLURM: &str = "24.05.0";

/// The line that `--version` prints, in Slurm's words: programs that are written for Slurm read it.
pub fn line() -> String {
    format!("slurm {SLURM}\n")
}

/// Spur's own version, which `spur --version` prints.
pub fn own() -> String {
    format!("spur {}", env!("CARGO_PKG_VERSION"))
}

/// The version of Slurm that a node is shown with; empty if the node has never registered.
pub fn of_node(own: &str) -> &'static str {
    if own.is_empty() { "" } else { SLURM }
}
