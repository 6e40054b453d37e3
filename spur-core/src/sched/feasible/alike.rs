//! Requests that were found to fit: whoever asks for the same is not judged again.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::model::job::{FabricAsk, JobSpec, Shape};

/// How many are remembered.
const ALIKE: usize = 32;

/// The requests that were accepted last. It goes with what stands: when a node or the policy changes, all are judged anew.
#[derive(Debug, Default)]
pub(in crate::sched) struct Accepted(Mutex<VecDeque<Known>>);

/// All of a request that tells whether the idle nodes of a partition hold it, and what its user should know.
#[derive(Debug)]
struct Known {
    partition: usize,
    shape: Shape,
    fabric: Option<Box<FabricAsk>>,
    warnings: Vec<String>,
}

impl Known {
    fn is_like(&self, partition: usize, spec: &JobSpec) -> bool {
        self.partition == partition && self.shape == spec.shape && self.fabric == spec.fabric
    }
}

impl Accepted {
    /// What was said of a request like this one. While another thread looks, nothing is known.
    pub(super) fn warnings(&self, partition: usize, spec: &JobSpec) -> Option<Vec<String>> {
        let mut all = self.0.try_lock().ok()?;
        let at = all.iter().position(|known| known.is_like(partition, spec))?;
        let known = all.remove(at)?;
        let warnings = known.warnings.clone();
        all.push_front(known);
        Some(warnings)
    }

    /// Remembers what was said of a request.
    pub(super) fn note(&self, partition: usize, spec: &JobSpec, warnings: &[String]) {
        let Ok(mut all) = self.0.try_lock() else { return };
        let (shape, fabric) = (spec.shape.clone(), spec.fabric.clone());
        all.truncate(ALIKE - 1);
        all.push_front(Known { partition, shape, fabric, warnings: warnings.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::caller::Owner;

    #[test]
    fn what_is_known_goes_by_partition_shape_and_fabric() {
        let owner = Owner { uid: 1000, gid: 1000, user: "ann".into(), group: "users".into() };
        let spec = |tasks, fabric| {
            let shape = Shape { tasks: Some(tasks), ..Shape::default() };
            JobSpec { fabric, ..JobSpec::plain("job".into(), Arc::new(owner.clone()), shape) }
        };
        let warnings = vec!["slow".to_owned()];
        let accepted = Accepted::default();
        accepted.note(1, &spec(7, None), &warnings);
        let other_name = JobSpec { name: "other".into(), ..spec(7, None) };
        assert_eq!(accepted.warnings(1, &other_name), Some(warnings));
        let contiguous = FabricAsk { contiguous: true, ..FabricAsk::default() };
        for (partition, spec) in
            [(0, spec(7, None)), (1, spec(8, None)), (1, spec(7, Some(contiguous.into())))]
        {
            assert_eq!(accepted.warnings(partition, &spec), None);
        }
        (0..40).for_each(|tasks| accepted.note(1, &spec(100 + tasks, None), &[]));
        assert_eq!(accepted.warnings(1, &spec(7, None)), None, "others came since");
    }
}
