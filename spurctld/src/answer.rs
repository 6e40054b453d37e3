//! What the owner answers, in the form in which it is kept beside the journal for those who ask again.

use serde::{Deserialize, Deserializer, Serialize};
use spur_core::controller::Reply;
use spur_core::id::{Attempt, JobId};
use spur_core::model::step::Step;
use spur_core::text::jobid::JobRef;
use std::sync::Arc;

/// The answer to a request that was not refused. Fields follow the rules of events: added with defaults, never
/// renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Done, nothing to say.
    Done,
    /// A job was accepted.
    Submitted {
        /// Its number.
        job: JobId,
        /// What its user should know.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// What was asked was done to some jobs and not to others.
    Jobs {
        /// To these it was not done, and why.
        #[serde(default)]
        problems: Vec<Problem>,
        /// What the caller should know.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// A step was laid out.
    Step {
        /// The job's attempt.
        attempt: Attempt,
        /// The step.
        step: Arc<Step>,
    },
    /// The journal is an old copy.
    Doubted {
        /// Why, for people.
        why: Arc<str>,
    },
    /// Nodes were reserved.
    Reserved {
        /// Under which name.
        name: Arc<str>,
    },
    /// The policy tree was changed.
    AccountsChanged {
        /// What was done, in the words of `sacctmgr`.
        #[serde(default)]
        lines: Vec<String>,
    },
    /// The policy is in force.
    Reconfigured {
        /// What has changed, one sentence each.
        #[serde(default)]
        changes: Vec<String>,
    },
}

/// Why something was not done to one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The job, or tasks of it, as people name them.
    #[serde(deserialize_with = "name")]
    pub job: String,
    /// Slurm's name of the refusal.
    pub code: String,
    /// The sentence for people.
    pub message: String,
}

/// Answers of earlier releases have the job's number.
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
            Reply::Reconfigured { changes } => Answer::Reconfigured { changes },
        }
    }
}
