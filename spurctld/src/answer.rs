//! The owner's answers, in the form in which the journal keeps them for clients that repeat a request.

use serde::{Deserialize, Deserializer, Serialize};
use spur_core::controller::Reply;
use spur_core::id::{Attempt, JobId};
use spur_core::model::step::Step;
use spur_core::text::jobid::JobRef;
use std::sync::Arc;

/// The answer to an accepted request. Fields follow the rules of events: added with defaults, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// A job was accepted.
    Submitted {
        /// The job's number.
        job: JobId,
        /// Warnings for the job's user.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// The request was carried out for some jobs and refused for others.
    Jobs {
        /// The refusals, one for each job or set of array tasks.
        #[serde(default)]
        problems: Vec<Problem>,
        /// Warnings for the caller.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// A step was created.
    Step {
        /// The attempt of the job in which the step runs.
        attempt: Attempt,
        /// The step with its layout.
        step: Arc<Step>,
    },
    /// The journal is an old copy, so the controller starts nothing.
    Doubted {
        /// The sentence that explains the doubt.
        why: Arc<str>,
    },
    /// A reservation was created.
    Reserved {
        /// The reservation's name.
        name: Arc<str>,
    },
    /// The policy tree was changed.
    AccountsChanged {
        /// The changes, in the words of `sacctmgr`.
        #[serde(default)]
        lines: Vec<String>,
    },
    /// Ended runs were added to accounting.
    HistoryImported {
        /// Numbers that jobs of this cluster have used; runs with these numbers were left out.
        #[serde(default)]
        own: Vec<JobId>,
    },
    /// The policy is in force.
    Reconfigured {
        /// The changes, one sentence each.
        #[serde(default)]
        changes: Vec<String>,
    },
}

/// The refusal of a request for one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The job, or tasks of it, in the notation of users (`7_3`).
    #[serde(deserialize_with = "name")]
    pub job: String,
    /// Slurm's name of the refusal.
    pub code: String,
    /// The sentence for the user.
    pub message: String,
}

/// Reads a job's name; answers of earlier releases hold its number instead.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Name {
        Number(u32),
        Text(String),
    }
    Ok(match Name::deserialize(from)? {
        Name::Number(number) => number.to_string(),
        Name::Text(text) => text,
    })
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Done => Answer::Done,
            Reply::Submitted { job, warnings } => Answer::Submitted { job, warnings },
            Reply::Jobs { problems, warnings } => {
                let problem = |(job, reject): (JobRef<JobId>, spur_core::controller::Reject)| Problem {
                    job: job.to_string(),
                    code: reject.code().to_owned(),
                    message: reject.to_string(),
                };
                Answer::Jobs { problems: problems.into_iter().map(problem).collect(), warnings }
            }
            Reply::Step { attempt, step } => Answer::Step { attempt, step },
            Reply::Doubted { why } => Answer::Doubted { why },
            Reply::Reserved { name } => Answer::Reserved { name },
            Reply::AccountsChanged { lines } => Answer::AccountsChanged { lines },
            Reply::HistoryImported { own } => Answer::HistoryImported { own },
            Reply::Reconfigured { changes } => Answer::Reconfigured { changes },
        }
    }
}
