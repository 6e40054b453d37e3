//! Options that a controller of the release before would leave out without a word.

use anyhow::bail;
use spur_proto::client::{Connection, Controller};
use spur_proto::v1::{JobSpec, PingRequest};

/// Fails if a job has an option that needs a higher feature level than its cluster has. The controller is
/// asked only if there is such an option.
///
/// # Errors
/// The option with its level, or no answer.
pub(super) async fn check(connection: &mut Connection, job: &JobSpec) -> anyhow::Result<()> {
    let Some((option, needs)) = needed(job) else { return Ok(()) };
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    // A controller that knows the oldest level only sends none.
    let has = connection.read(PingRequest::default(), call).await?.feature_level.max(1);
    if has < needs {
        bail!("{option} needs FeatureLevel={needs}; this cluster has FeatureLevel={has}");
    }
    Ok(())
}

/// The first option of a job or of its components that an older controller does not know, with its level.
fn needed(job: &JobSpec) -> Option<(&'static str, u32)> {
    let own = job.use_min_nodes.then_some(("--use-min-nodes", 2));
    own.or_else(|| job.components.iter().find_map(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_components_count() {
        let component = JobSpec { use_min_nodes: true, ..JobSpec::default() };
        let job = JobSpec { components: vec![JobSpec::default(), component], ..JobSpec::default() };
        assert_eq!(needed(&job), Some(("--use-min-nodes", 2)));
        assert_eq!(needed(&JobSpec::default()), None);
    }
}
