//! Steps: how a step on this node is started, watched, signalled and found again.
//!
//! Two processes share this room. spurd uses [`launcher`]; spurstepd, one small process per step, is [`shim`].
//! Between them stand the vocabulary of their control socket ([`message`], [`order`]) and the exit record on disk
//! ([`record`]). spurstepd needs nothing from spurd once it has its order: it outlives a restart of spurd and
//! leaves the real exit codes behind.

pub mod attempt;
pub mod launcher;
pub mod message;
mod nursery;
pub mod order;
pub mod record;
pub mod shim;

/// The name of the control socket in an attempt's directory.
pub const CONTROL_SOCKET: &str = "control";
/// The name of the batch script in an attempt's directory; `$0` ends with it, as under Slurm.
pub const SCRIPT_FILE: &str = "slurm_script";
/// Seals an attempt whose end nobody knows: a spurstepd that finds this refuses to run it.
pub const LOST_FILE: &str = "lost";
