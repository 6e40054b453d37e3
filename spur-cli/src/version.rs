//! What `--version` prints.

/// The version of Slurm whose commands these are like: programs written for Slurm read it.
pub const SLURM: &str = "24.05.0";

/// Slurm's line first, which programs read, and then Spur's own.
pub fn version() -> String {
    format!("slurm {SLURM}\n{}\n", own())
}

/// Spur's own version.
pub fn own() -> String {
    format!("spur {}", env!("CARGO_PKG_VERSION"))
}
