//! Effects that the shell carries out once the entries that caused them are durable. Carrying out an effect
//! twice has the effect of once, and a lost one is repeated when the node registers.

use super::environment::Variables;
use crate::id::{Attempt, JobId, NodeId, StepId};
use crate::text::signal::Signal;
use crate::text::time::Seconds;

/// A program of the site that the controller runs for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The prolog, run before anything of the job is launched.
    Prolog,
    /// The epilog, run when the end of the job is decided.
    Epilog,
}

impl Program {
    /// Slurm's name of the program in `SLURM_SCRIPT_CONTEXT`.
    #[must_use]
    pub fn context(self) -> &'static str {
        match self {
            Program::Prolog => "prolog_slurmctld",
            Program::Epilog => "epilog_slurmctld",
        }
    }
}

/// A program of the site that the controller runs for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerProgram {
    /// Called for nodes that have not powered up in time.
    ResumeFail,
    /// Program that powers nodes down.
    Suspend,
    /// Program that powers nodes up.
    Resume,
}

/// An effect outside the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Opens a node's new connection for orders, once the registration is decided; orders on older
    /// connections are void. Earlier orders that still apply follow, in an order that is safe for the
    /// attempts on the node.
    Open {
        /// The node that registered.
        node: NodeId,
        /// The shell's number of the connection.
        connection: u64,
    },
    /// Runs the job's batch script on its first node.
    Launch {
        /// The node that runs the script.
        node: NodeId,
        /// The attempt to launch.
        attempt: Attempt,
    },
    /// Ends all processes of an attempt on a node.
    Terminate {
        /// The node with the processes.
        node: NodeId,
        /// The attempt to end.
        attempt: Attempt,
        /// True for SIGKILL, false for SIGTERM.
        kill: bool,
    },
    /// Suspends or resumes all processes of an attempt on a node.
    Suspend {
        /// The node with the processes.
        node: NodeId,
        /// The attempt to suspend or resume.
        attempt: Attempt,
        /// True to suspend, false to resume.
        stop: bool,
    },
    /// End one step of an attempt on a node because its time is over.
    EndStep {
        /// The node on which the step ends.
        node: NodeId,
        /// The attempt of the job.
        attempt: Attempt,
        /// Number of the step.
        step: StepId,
        /// Seconds from SIGTERM to SIGKILL.
        kill_wait: Seconds,
    },
    /// Send a signal.
    Signal {
        /// The node with the processes.
        node: NodeId,
        /// The attempt to signal.
        attempt: Attempt,
        /// The step to signal; `None` for the whole attempt.
        step: Option<StepId>,
        /// The signal to send.
        signal: Signal,
        /// True if the batch script gets the signal.
        batch: bool,
        /// True if the steps get the signal.
        steps: bool,
    },
    /// Sends a message to a job's user, on the node of the batch script or through the command that holds the
    /// allocation.
    Tell {
        /// The attempt whose user gets the message.
        attempt: Attempt,
        /// The node of the batch script; `None` for an allocation without one.
        node: Option<NodeId>,
        /// The text of the message.
        message: String,
    },
    /// Runs a power program of the site.
    Power {
        /// The program to run.
        program: PowerProgram,
        /// The nodes whose hosts are concerned.
        nodes: Vec<NodeId>,
    },
    /// Reboots the host of a node.
    Reboot {
        /// The node to reboot.
        node: NodeId,
    },
    /// Acknowledges to a node that its report is durable.
    Acknowledge {
        /// The node that sent the report.
        node: NodeId,
        /// The number of the report.
        report: u64,
    },
    /// Allows a node to drop its records of an attempt.
    Forget {
        /// The node with the records.
        node: NodeId,
        /// The attempt to forget.
        attempt: Attempt,
    },
    /// Sends mail once; nothing waits for it.
    Mail {
        /// Mail address or login name of the recipient.
        to: String,
        /// The subject line; the mail has no other text.
        subject: String,
        /// Environment variables of the mail program.
        variables: Variables,
    },
    /// Runs the controller's prolog or epilog of an attempt, whose end comes back as an input. Programs of
    /// one job run one after another.
    Program {
        /// The attempt that the program is run for.
        attempt: Attempt,
        /// The program to run.
        program: Program,
    },
    /// Retries step requests that wait, because CPUs of a job's steps became free or the job is ending.
    StepsChanged {
        /// The job whose step requests are retried.
        job: JobId,
    },
}
