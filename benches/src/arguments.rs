//! The command line of `spur-load`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::beside::What;

/// Makes load for a running controller and prints how it went.
///
/// The controller is $SPUR_CONTROLLER, or 127.0.0.1:6817. Every job has its own script of 1 KB and
/// environment of 4 KB.
#[derive(Parser)]
pub(crate) struct Arguments {
    /// The work to do.
    pub(crate) verb: Verb,
    /// Number of clients that submit at once.
    #[arg(long, default_value = "1", value_parser = positive)]
    pub(crate) clients: usize,
    /// Number of jobs, of all clients together.
    #[arg(long, default_value = "1000")]
    pub(crate) jobs: usize,
    /// Hold the jobs.
    #[arg(long)]
    pub(crate) hold: bool,
    /// The cluster's key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The names of the nodes.
    #[arg(long, default_value = "n[0-15]")]
    pub(crate) names: String,
    /// Number of nodes of each job.
    #[arg(long, default_value = "1")]
    pub(crate) nodes: u32,
    /// Number of submissions of a stream that wait for their answers.
    #[arg(long, default_value = "256", value_parser = positive)]
    pub(crate) window: usize,
    /// One job in N may start at once, for half of the time, the others are held; 0 for none.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) free: usize,
    /// Nodes never end what they run.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Nodes end a job after about so many seconds, instead of at once.
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    pub(crate) last: u64,
    /// Duration of the load, or of each part of the comparison of watchers, in seconds.
    #[arg(long, default_value = "120")]
    pub(crate) seconds: u64,
    /// Submissions per second of the load.
    #[arg(long, default_value = "1000")]
    pub(crate) rate: u32,
    /// The directory of the controller's database, whose size is printed.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state: Option<PathBuf>,
    /// Nodes that lose the controller come back, and print how long it took.
    #[arg(long)]
    pub(crate) again: bool,
    /// Report separately the calls that were answered while a snapshot was written (snapshot:DIRECTORY), or
    /// the planner worked (plan:PID).
    #[arg(long, value_name = "WHAT")]
    pub(crate) beside: Option<What>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Verb {
    /// One job a call; each client waits for its answer.
    Submit,
    /// Submissions over streams.
    Stream,
    /// Nodes that end every job at once, or never, until killed.
    Nodes,
    /// Users of a whole site for some minutes, at fixed rates: submissions, squeue, sinfo, sacct and srun.
    Load,
    /// The processor time of the controller for clients that watch all jobs, and for as many that list them.
    Watchers,
    /// The heaviest requests of one user, one kind after another, and what they cost another user.
    Heaviest,
    /// Waits until this many jobs have left the queue.
    Ended,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "not a number above 0".to_owned())
}
