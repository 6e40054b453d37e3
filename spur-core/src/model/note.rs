//! The values that `sacctmgr modify job` sets of a job, whether the job waits, runs or has ended.

use serde::{Deserialize, Serialize};

use super::job::Job;
use crate::text::exit::ExitCode;

/// New values of a job; a value that is `None` does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobNote {
    /// The comment of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<Box<str>>,
    /// The comment of an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<Box<str>>,
    /// The highest exit code of the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived_exit: Option<ExitCode>,
}

impl JobNote {
    /// True if no value is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the values of a later note, which replace earlier ones.
    pub fn add(&mut self, later: &JobNote) {
        let JobNote { comment, admin_comment, derived_exit } = later.clone();
        self.comment = comment.or(self.comment.take());
        self.admin_comment = admin_comment.or(self.admin_comment.take());
        self.derived_exit = derived_exit.or(self.derived_exit);
    }

    /// Sets the values of a job's record.
    pub fn set(&self, job: &mut Job) {
        if self.comment.is_some() || self.admin_comment.is_some() {
            let spec = std::sync::Arc::make_mut(&mut job.spec);
            let extra = spec.extra.get_or_insert_default();
            let text = |new: &Option<Box<str>>, old: Option<Box<str>>| match new {
                Some(new) => Some(new.clone()).filter(|text| !text.is_empty()),
                None => old,
            };
            extra.comment = text(&self.comment, extra.comment.take());
            extra.admin_comment = text(&self.admin_comment, extra.admin_comment.take());
        }
        job.derived_exit = self.derived_exit.unwrap_or(job.derived_exit);
    }
}
