//! A placement from the shares that a way of solving a problem has found.

use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Pos};
use crate::sched::place::answer::Placement;

use super::Problem;

impl Placement {
    /// A placement from its shares; `common` is where it is if it has none.
    pub(in crate::sched::place) fn new(
        problem: &Problem<'_>,
        shares: Vec<(Pos, u32)>,
        common: Option<DomainId>,
        exact: bool,
    ) -> Self {
        let positions: SmallVec<[Pos; 32]> = shares.iter().map(|&(pos, _)| pos).collect();
        let spans = problem.fabric.spans(&positions);
        let common = problem.fabric.deepest_common(&positions).or(common);
        let waste = common.map_or(0, |id| problem.slots(id).saturating_sub(problem.wanted_slots()));
        Self { shares, spans, common, waste, exact }
    }
}
