//! The command `scontrol completing`: lists jobs that have ended and that some nodes have not released.

use spur_proto::v1::Job;

use crate::format::Show;
use crate::format::value::{long_limit, time};

/// Returns a line for each completing job, with the time since its end and its nodes.
pub(super) fn text(jobs: &[Job], show: &Show) -> String {
    let line = |job: &Job| {
        let ended = job.end_time.unwrap_or(show.now);
        let since = u64::try_from(show.now - ended).unwrap_or(0);
        format!(
            "JobId={} EndTime={} CompletingTime={} Nodes(COMPLETING)={} \n",
            job.id,
            time(job.end_time, "Unknown", show),
            long_limit(Some(since)),
            job.nodes,
        )
    };
    jobs.iter().map(line).collect()
}
