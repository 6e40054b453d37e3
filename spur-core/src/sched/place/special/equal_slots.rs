//! Treats nodes that all have the same number of slots as whole nodes.
//!
//! A job that counts shared nodes takes one slot of each, and every waste is a fixed multiple of that of
//! whole nodes.
//!
//! A best placement of T tasks, at most s on a node, uses ⌈T/s⌉ nodes, because the number of nodes is the
//! last of the spans. Every amount and every waste is that of the nodes times s, less a constant. A multiple
//! of s tasks is a multiple of nodes, and a cap likewise. The question about nodes has one exact number less,
//! and its common case needs no search.

use crate::model::fabric::Layer;
use crate::sched::place::answer::{Lost, LostWhy, Placement};
use crate::sched::place::ask::{Ask, Mode, Strategy};
use crate::sched::place::slots::{Slots, View};

/// A question about slots, as a question about whole nodes.
pub(crate) struct Equal {
    /// Number of slots of each node.
    room: u32,
    /// The most slots that the job takes of one node.
    most: u32,
    /// Number of tasks of the whole job; `None` where the job counts nodes.
    tasks: Option<u32>,
    /// The open nodes, as whole nodes.
    pub(crate) whole: Slots,
    /// The ask, as one for whole nodes.
    pub(crate) ask: Ask,
}

impl Equal {
    /// The question about whole nodes; `None` where nodes have unequal slots, or where the ask depends on
    /// slots in a way that nodes cannot express.
    pub(crate) fn of(view: &View<'_>, ask: &Ask) -> Option<Self> {
        if view.slots.are_whole() {
            return None;
        }
        let (_, room) = view.slots.iter().next()?;
        if !are_all(view.slots, room) {
            return None;
        }
        match ask.tasks {
            Some(tasks) => Self::of_tasks(view, ask, (room, tasks)),
            None => Self::of_nodes(view, ask, room),
        }
    }

    /// The question of a job that takes one slot of each node.
    fn of_nodes(view: &View<'_>, ask: &Ask, room: u32) -> Option<Self> {
        // The score knows the share of slots that the job fills.
        let is_known = room == 1 || !ask.score.any();
        is_known.then(|| Self {
            room,
            most: 1,
            tasks: None,
            whole: view.slots.as_whole(),
            ask: Ask {
                max_nodes_per_leaf: ask.max_nodes_per_leaf.into_iter().chain(ask.max_slots_per_leaf).min(),
                max_slots_per_leaf: None,
                ..ask.clone()
            },
        })
    }

    /// The question of a job that counts tasks.
    fn of_tasks(view: &View<'_>, ask: &Ask, (room, tasks): (u32, u32)) -> Option<Self> {
        let plain = tasks > 0
            && ask.strategy == Strategy::Tree
            && ask.mode == Mode::Consolidated
            && ask.segment.is_none()
            && ask.required.is_empty()
            && ask.counts.is_empty()
            && !ask.contiguous
            && ask.adjacent.is_none();
        let most = ask.max_tasks_per_node.map_or(room, |cap| cap.min(room));
        if !plain || most == 0 {
            return None;
        }
        let is_even = tasks.is_multiple_of(most);
        let nodes = tasks.div_ceil(most);
        // Fewer nodes cannot hold the tasks; on more nodes the tasks could be shared out in several ways.
        if ask.nodes.is_some_and(|wanted| wanted != (nodes, nodes)) {
            return None;
        }
        // The weights use only the share of slots that the job fills. An expression may also use their
        // number.
        let counts = ask.score.expression.is_some() && room > 1;
        if ask.score.any() && !(most == room && is_even) || counts {
            return None;
        }
        // No domain may hold a fraction of a node.
        let of_nodes = |&(layer, by): &(Layer, u32)| {
            let fits = layer > Layer::NODE && by.is_multiple_of(room) && most == room && is_even;
            fits.then_some((layer, by / room))
        };
        let multiples = ask.multiples.iter().map(of_nodes).collect::<Option<Vec<_>>>()?;
        let nodes_cap = match ask.max_slots_per_leaf {
            Some(cap) if !cap.is_multiple_of(most) => return None,
            cap => cap.map(|cap| cap / most),
        };
        let ask = Ask {
            nodes: Some((nodes, nodes)),
            tasks: None,
            max_tasks_per_node: None,
            multiples,
            max_nodes_per_leaf: ask.max_nodes_per_leaf.into_iter().chain(nodes_cap).min(),
            max_slots_per_leaf: None,
            ..ask.clone()
        };
        Some(Self { room, most, tasks: Some(tasks), whole: view.slots.as_whole(), ask })
    }

    /// Turns a placement of whole nodes into one of slots: earlier nodes are filled first.
    pub(crate) fn slots(&self, placement: Placement) -> Placement {
        let nodes = u32::try_from(placement.shares.len()).unwrap_or(u32::MAX);
        let taken = self.tasks.unwrap_or(nodes);
        let mut left = taken;
        let fill = |(pos, _)| {
            let here = left.min(self.most);
            left -= here;
            (pos, here)
        };
        let held = placement.waste + placement.shares.len() as u64;
        Placement {
            waste: held * u64::from(self.room) - u64::from(taken),
            shares: placement.shares.into_iter().map(fill).collect(),
            ..placement
        }
    }

    /// Turns domains that lost with whole nodes into the same with slots.
    pub(crate) fn lost(&self, lost: Vec<Lost>) -> Vec<Lost> {
        let room = u64::from(self.room);
        let why = |why| match why {
            LostWhy::Waste { layer, had, best } => {
                LostWhy::Waste { layer, had: had * room, best: best * room }
            }
            why => why,
        };
        lost.into_iter().map(|lost| Lost { why: why(lost.why), ..lost }).collect()
    }
}

/// True if every open node has `each` slots.
fn are_all(slots: &Slots, each: u32) -> bool {
    match (slots.small_tasks(), u16::try_from(each)) {
        // Chunks without an early exit inside let the compiler vectorise the comparison.
        (Some(small), Ok(each)) => small
            .chunks(1024)
            .all(|some| some.iter().fold(true, |alike, &slots| alike & (slots == each || slots == 0))),
        _ => slots.iter().all(|(_, slots)| slots == each),
    }
}
