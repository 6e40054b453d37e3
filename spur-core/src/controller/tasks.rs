//! Splitting of array tasks that can no longer wait in one record, because their counterparts in another
//! array (`--dependency=aftercorr`) have ended differently.

use super::Ctx;
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::text::array::TaskSet;

/// Splits a record until all counterparts of each part have the same state. Returns the new records. With
/// `array`, only counterparts in that array count.
pub(super) fn part_ways(ctx: &mut Ctx<'_>, id: JobId, array: Option<JobId>) -> Vec<JobId> {
    let (mut open, mut made) = (vec![id], Vec::new());
    while let Some(from) = open.pop() {
        let Some(tasks) = ahead(ctx.cluster(), from, array) else { continue };
        let job = ctx.cluster().next_job();
        ctx.emit(Event::TasksSplit { job, from, tasks });
        open.extend([from, job]);
        made.push(job);
    }
    made
}

/// Some, but not all, tasks of a record whose counterparts have ended in the same way; `None` if there is no
/// such part.
fn ahead(cluster: &Cluster, id: JobId, array: Option<JobId>) -> Option<TaskSet> {
    let job = cluster.job(id)?;
    let part = job.array.as_ref().filter(|part| part.tasks.only().is_none())?;
    let terms = job.waits_for.as_ref()?.counterparts(array);
    let others = terms.filter_map(|wait| cluster.jobs().array(wait.job)).map(|array| array.ended());
    let ended = others.flat_map(|ended| [&ended.completed, &ended.failed]);
    ended.map(|ended| part.tasks.common(ended)).find(|some| !some.is_empty() && *some != part.tasks)
}
