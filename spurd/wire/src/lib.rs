//! The interface between spurd and spurstepd: messages, the exit record, and names on the node that both use.
//!
//! spurd starts one spurstepd for each step and sends it an [`order`]. Over the control socket the two
//! exchange [`message`]s. The exit [`record`] on disk tells a later spurd how the step ended. A spurstepd of
//! an older release may run beside a newer spurd, so fields and kinds of messages are only added, with
//! defaults.

pub mod attempt;
pub mod group;
pub mod message;
pub mod notice;
pub mod order;
pub mod process;
pub mod record;

/// Messages generated from `proto/peer.proto`, which documents them.
#[expect(missing_docs, reason = "generated code")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/spur.step.rs"));
}

/// The name of the control socket in an attempt's directory.
pub const CONTROL_SOCKET: &str = "control";
/// The name of the batch script in an attempt's directory; `$0` ends with it, as under Slurm.
pub const SCRIPT_FILE: &str = "slurm_script";
/// The name of the file that marks an attempt whose end is unknown; a spurstepd that finds it does not run
/// the attempt.
pub const LOST_FILE: &str = "lost";
