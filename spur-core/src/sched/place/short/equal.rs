//! Tasks on nodes that all take the same number of them are whole nodes in disguise.
//!
//! The fewest nodes are the last of the spans, so that a best placement of T tasks on nodes of s slots each uses ⌈T/s⌉ of
//! them, and every amount and every waste is that many nodes' worth, less a constant. The question about nodes has one
//! number less to come out right, and the common case of it needs no search.

use crate::sched::place::ask::{Ask, Mode, Strategy};
use crate::sched::place::explain::Placement;
use crate::sched::place::slots::{Slots, View};

/// A question about tasks as one about nodes.
pub(in crate::sched::place) struct Equal {
    /// Tasks that each node takes.
    each: u32,
    /// The open nodes, as whole ones.
    pub(in crate::sched::place) slots: Slots,
    /// The same ask for nodes.
    pub(in crate::sched::place) ask: Ask,
}

impl Equal {
    /// The question about nodes; `None` where nodes differ, or where the job says more about its tasks than how many.
    pub(in crate::sched::place) fn of(view: &View<'_>, ask: &Ask) -> Option<Self> {
        let tasks = ask.tasks.filter(|tasks| *tasks > 0)?;
        let plain = ask.tasks_per_node.is_none()
            && ask.strategy == Strategy::Tree
            && ask.mode == Mode::Consolidated
            && ask.multiples.is_empty()
            && ask.segment.is_none()
            && ask.required.is_empty()
            && ask.counts.is_empty()
            && ask.max_slots_per_leaf.is_none()
            && !ask.contiguous
            && ask.adjacent.is_none()
            && !ask.score.weights.any();
        if !plain || view.slots.are_whole() {
            return None;
        }
        let (_, each) = view.slots.iter().next()?;
        if ask.max_tasks_per_node.is_some_and(|most| each > most) || !are_all(view.slots, each) {
            return None;
        }
        let nodes = tasks.div_ceil(each);
        // Fewer nodes would not do; on more, tasks could be shared out in more than one way.
        if ask.nodes.is_some_and(|wanted| wanted != (nodes, nodes)) {
            return None;
        }
        let slots = view.slots.as_whole();
        let ask = Ask { nodes: Some((nodes, nodes)), tasks: None, max_tasks_per_node: None, ..ask.clone() };
        Some(Self { each, slots, ask })
    }

    /// The placement of nodes as one of tasks: earlier nodes are filled first.
    pub(in crate::sched::place) fn tasks(&self, placement: Placement, tasks: u32) -> Placement {
        let mut left = tasks;
        let fill = |(pos, _)| {
            let here = left.min(self.each);
            left -= here;
            (pos, here)
        };
        let unused = u64::from(self.each) * placement.shares.len() as u64 - u64::from(tasks);
        Placement {
            waste: placement.waste * u64::from(self.each) + unused,
            shares: placement.shares.into_iter().map(fill).collect(),
            ..placement
        }
    }
}

/// Whether every open node takes so many tasks.
fn are_all(slots: &Slots, each: u32) -> bool {
    match (slots.small_tasks(), u16::try_from(each)) {
        // Many at a time, without a look at each.
        (Some(small), Ok(each)) => small
            .chunks(1024)
            .all(|some| some.iter().fold(true, |alike, &slots| alike & (slots == each || slots == 0))),
        _ => slots.iter().all(|(_, slots)| slots == each),
    }
}
