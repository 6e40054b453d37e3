//! Versions that commands print: Slurm's, which programs parse, and Spur's own.

/// Version of Slurm whose behaviour Spur's commands follow.
pub const SLURM: &str = "24.05.0";

/// Returns the line of `--version` in Slurm's words, which programs for Slurm parse.
pub fn line() -> String {
    format!("slurm {SLURM}\n")
}

/// Returns Spur's own version, which `spur --version` prints.
pub fn own() -> String {
    format!("spur {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the version of Slurm shown for a node; empty if the node has never registered.
pub fn of_node(own: &str) -> &'static str {
    if own.is_empty() { "" } else { SLURM }
}
