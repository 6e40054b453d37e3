//! Tasks on nodes that all take the same number of them are whole nodes in disguise.
//!
//! The fewest nodes are the last of the spans, so that a best placement of T tasks, s on a node, uses ⌈T/s⌉ nodes, and
//! every amount and every waste is that many nodes' worth, less a constant. A multiple of s tasks is one of nodes, and so is a
//! cap. The question about nodes has one number less to come out right, and the common case of it needs no search.

use crate::model::fabric::Layer;
use crate::sched::place::ask::{Ask, Mode, Strategy};
use crate::sched::place::explain::Placement;
use crate::sched::place::slots::{Slots, View};

/// A question about tasks as one about nodes.
pub(in crate::sched::place) struct Equal {
    /// Tasks that there is room for on each node, and that each is given.
    room: u32,
    each: u32,
    /// The open nodes, as whole ones.
    pub(in crate::sched::place) slots: Slots,
    /// The same ask for nodes.
    pub(in crate::sched::place) ask: Ask,
}

impl Equal {
    /// The question about nodes; `None` where nodes differ, or where the job says more about its tasks than nodes can.
    pub(in crate::sched::place) fn of(view: &View<'_>, ask: &Ask) -> Option<Self> {
        let tasks = ask.tasks.filter(|tasks| *tasks > 0)?;
        let plain = ask.strategy == Strategy::Tree
            && ask.mode == Mode::Consolidated
            && ask.segment.is_none()
            && ask.required.is_empty()
            && ask.counts.is_empty()
            && !ask.contiguous
            && ask.adjacent.is_none();
        if !plain || view.slots.are_whole() {
            return None;
        }
        let (_, room) = view.slots.iter().next()?;
        let each = match ask.tasks_per_node {
            Some(each) => each,
            None => ask.max_tasks_per_node.map_or(room, |most| most.min(room)),
        };
        if each == 0 || each > room || !are_all(view.slots, room) {
            return None;
        }
        let is_even = tasks.is_multiple_of(each);
        let nodes = tasks.div_ceil(each);
        // Fewer nodes would not do; on more, tasks could be shared out in more than one way.
        if ask.tasks_per_node.is_some() && !is_even
            || ask.nodes.is_some_and(|wanted| wanted != (nodes, nodes))
        {
            return None;
        }
        // The score knows the share of slots that the job fills.
        if ask.score.weights.any() && !(each == room && is_even) {
            return None;
        }
        let multiples =
            in_nodes(ask, room).filter(|multiples| multiples.is_empty() || each == room && is_even)?;
        let nodes_cap = match ask.max_slots_per_leaf {
            Some(cap) if ask.tasks_per_node.is_none() && !cap.is_multiple_of(each) => return None,
            cap => cap.map(|cap| cap / each),
        };
        let slots = view.slots.as_whole();
        let ask = Ask {
            nodes: Some((nodes, nodes)),
            tasks: None,
            tasks_per_node: None,
            max_tasks_per_node: None,
            multiples,
            max_nodes_per_leaf: ask.max_nodes_per_leaf.into_iter().chain(nodes_cap).min(),
            max_slots_per_leaf: None,
            ..ask.clone()
        };
        Some(Self { room, each, slots, ask })
    }

    /// The placement of nodes as one of tasks: earlier nodes are filled first.
    pub(in crate::sched::place) fn tasks(&self, placement: Placement, tasks: u32) -> Placement {
        let mut left = tasks;
        let fill = |(pos, _)| {
            let here = left.min(self.each);
            left -= here;
            (pos, here)
        };
        let held = placement.waste + placement.shares.len() as u64;
        Placement {
            waste: held * u64::from(self.room) - u64::from(tasks),
            shares: placement.shares.into_iter().map(fill).collect(),
            ..placement
        }
    }
}

/// The multiples of tasks as multiples of nodes that take so many; `None` where a domain could hold a part of a node.
fn in_nodes(ask: &Ask, room: u32) -> Option<Vec<(Layer, u32)>> {
    let of_nodes = |&(layer, by): &(Layer, u32)| {
        (layer > Layer::NODE && by.is_multiple_of(room)).then_some((layer, by / room))
    };
    ask.multiples.iter().map(of_nodes).collect()
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
