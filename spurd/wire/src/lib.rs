//! What spurd and spurstepd exchange, and what both must name alike on a node.
//!
//! spurd starts one spurstepd for each step and hands it an [`order`]. Over the control socket the two exchange
//! [`message`]s. The exit [`record`] on disk tells a later spurd how the step ended. A spurstepd that an older release
//! started speaks to the spurd of this one, so fields and kinds of messages are only added, with defaults.

pub mod attempt;
pub mod group;
pub mod message;
pub mod notice;
pub mod order;
pub mod process;
pub mod record;

/// Generated from `proto/peer.proto`; documented there.
#[expect(missing_docs, reason = "generated code")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/spur.step.rs"));
}

/// The name of the control socket in an attempt's directory.
pub const CONTROL_SOCKET: &str = "control";
/// The name of the batch script in an attempt's directory; `$0` ends with it, as under Slurm.
pub const SCRIPT_FILE: &str = "slurm_script";
/// The file that marks an attempt whose end nobody knows: a spurstepd that finds this file does not run the attempt.
pub const LOST_FILE: &str = "lost";
