//! What the shell must do once the entries that caused it are durable. Doing one twice is the same as once, and one
//! that is lost is said again when the node registers.

use super::environment::Variables;
use crate::id::{Attempt, JobId, NodeId, StepId};
use crate::text::signal::Signal;
use crate::text::time::Seconds;

/// A program of the site that the controller runs for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Before anything of the job is launched.
    Prolog,
    /// When the end of the job is decided.
    Epilog,
}

impl Program {
    /// What Slurm calls it in `SLURM_SCRIPT_CONTEXT`.
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
    /// Is told that they have not come up.
    ResumeFail,
    /// Switches them off.
    Suspend,
    /// Switches them on.
    Resume,
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A node's registration is decided: its new connection takes orders from here on, and none from before. What was
    /// decided before and still counts follows, in an order that is safe for what the node holds.
    Open {
        /// Which node.
        node: NodeId,
        /// The shell's number of the connection.
        connection: u64,
    },
    /// Run the job's batch script on its first node.
    Launch {
        /// Where.
        node: NodeId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// End everything of an attempt on a node.
    Terminate {
        /// Where.
        node: NodeId,
        /// Which attempt.
        attempt: Attempt,
        /// With KILL rather than TERM.
        kill: bool,
    },
    /// Stop everything of an attempt on a node, or let it go on.
    Suspend {
        /// Where.
        node: NodeId,
        /// Which attempt.
        attempt: Attempt,
        /// Whether to stop it.
        stop: bool,
    },
    /// End one step of an attempt on a node because its time is over.
    EndStep {
        /// Where.
        node: NodeId,
        /// Which attempt.
        attempt: Attempt,
        /// Which step.
        step: StepId,
        /// From TERM to KILL.
        kill_wait: Seconds,
    },
    /// Send a signal.
    Signal {
        /// Where.
        node: NodeId,
        /// To which attempt.
        attempt: Attempt,
        /// To this step only.
        step: Option<StepId>,
        /// What.
        signal: Signal,
        /// To the batch script.
        batch: bool,
        /// To the steps.
        steps: bool,
    },
    /// Say something to the user of a job, on the node where its batch script runs, or by the command that holds it.
    Tell {
        /// Whom.
        attempt: Attempt,
        /// Where the batch script runs.
        node: Option<NodeId>,
        /// What.
        message: String,
    },
    /// Run the site's program that switches hosts of nodes off or on.
    Power {
        /// Which of the two.
        program: PowerProgram,
        /// Whose hosts.
        nodes: Vec<NodeId>,
    },
    /// Boot the host of a node again.
    Reboot {
        /// Which node.
        node: NodeId,
    },
    /// Tell a node that its report is durable.
    Acknowledge {
        /// Which node.
        node: NodeId,
        /// The report's number.
        report: u64,
    },
    /// Tell a node that it may drop its records of an attempt.
    Forget {
        /// Which node.
        node: NodeId,
        /// The attempt.
        attempt: Attempt,
    },
    /// Send mail, once; nobody waits for it.
    Mail {
        /// To whom.
        to: String,
        /// What it says.
        subject: String,
        /// What the program that sends it finds in its environment.
        variables: Variables,
    },
    /// Run the controller's prolog or epilog of an attempt, and say when it has ended. Those of one job run one after
    /// another.
    Program {
        /// Which attempt.
        attempt: Attempt,
        /// Which of the two.
        program: Program,
    },
    /// CPUs of a job's steps became free, or the job is ending: step requests that wait should be tried again.
    StepsChanged {
        /// Which job.
        job: JobId,
    },
}
