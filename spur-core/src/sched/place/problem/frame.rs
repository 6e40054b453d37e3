//! What the rule of a topology adds to a question.

use crate::model::fabric::Layer;
use crate::sched::place::ask::{Ask, BlockRule, Strategy};
use crate::sched::place::slots::View;

use super::Frame;

/// The lowest layer that has to hold the job, and the limit that the block rule sets on the layer below.
pub(crate) fn frame(view: &View<'_>, ask: &Ask, nodes: Option<u32>) -> Frame {
    if ask.strategy != Strategy::Block {
        return Frame { within: ask.must, ..Frame::default() };
    }
    let slots = if nodes.is_some() { 0 } else { u64::from(ask.tasks.unwrap_or(0)) };
    let rule = BlockRule::new(view.fabric, view.idle).containment(nodes.unwrap_or(0), slots);
    Frame { within: lower(rule.within, ask.must), touch: rule.touch, ..Frame::default() }
}

/// The lower of two layers that have to hold a job.
pub(crate) fn lower(a: Option<Layer>, b: Option<Layer>) -> Option<Layer> {
    a.into_iter().chain(b).min()
}
