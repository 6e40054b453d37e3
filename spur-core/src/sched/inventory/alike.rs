//! Remembered findings about requests, so that equal requests are not judged again.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::model::job::{FabricAsk, JobSpec, Shape};

/// The last `MANY` requests for which something was found that follows from nodes and policy. When a node or
/// the policy changes, all are judged anew.
#[derive(Debug, Default)]
pub(crate) struct Alike<T, const MANY: usize>(Mutex<VecDeque<Known<T>>>);

/// The requests that were accepted last, and the warnings for their users.
pub(crate) type Accepted = Alike<Vec<String>, 32>;

/// Requests that would fit if every node in service were idle. A pass asks for the first hundred waiting
/// jobs.
pub(crate) type FitUp = Alike<(), 128>;

/// The parts of a request that decide whether the idle nodes of a partition hold it.
#[derive(Debug)]
struct Known<T> {
    partition: usize,
    shape: Shape,
    fabric: Option<Box<FabricAsk>>,
    what: T,
}

impl<T: Clone, const MANY: usize> Alike<T, MANY> {
    /// The finding about an equal request; `None` if there is none or another thread holds the lock.
    pub(crate) fn find(&self, partition: usize, spec: &JobSpec) -> Option<T> {
        let mut all = self.0.try_lock().ok()?;
        let at = all.iter().position(|known| {
            (known.partition, &known.shape, &known.fabric) == (partition, &spec.shape, &spec.fabric)
        })?;
        let known = all.remove(at)?;
        let what = known.what.clone();
        all.push_front(known);
        Some(what)
    }

    /// Remembers a finding about a request.
    pub(crate) fn note(&self, partition: usize, spec: &JobSpec, what: T) {
        let Ok(mut all) = self.0.try_lock() else { return };
        let (shape, fabric) = (spec.shape.clone(), spec.fabric.clone());
        all.truncate(MANY - 1);
        all.push_front(Known { partition, shape, fabric, what });
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
        accepted.note(1, &spec(7, None), warnings.clone());
        let other_name = JobSpec { name: "other".into(), ..spec(7, None) };
        assert_eq!(accepted.find(1, &other_name), Some(warnings));
        let contiguous = FabricAsk { contiguous: true, ..FabricAsk::default() };
        let others = [(0, spec(7, None)), (1, spec(8, None)), (1, spec(7, Some(contiguous.into())))];
        for (partition, spec) in others {
            assert_eq!(accepted.find(partition, &spec), None);
        }
        (0..40).for_each(|tasks| accepted.note(1, &spec(100 + tasks, None), Vec::new()));
        assert_eq!(accepted.find(1, &spec(7, None)), None, "others came since");
    }
}
