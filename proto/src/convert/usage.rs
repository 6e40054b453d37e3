//! The usage of tasks.

use spur_core::model::usage::{Extreme, Spread, Usage};

use crate::v1;

/// Encodes the usage of tasks.
pub fn wire_usage(usage: &Usage) -> v1::Usage {
    v1::Usage {
        tasks: usage.tasks,
        user_us: usage.user_us,
        system_us: usage.system_us,
        cpu: wire_spread(&usage.cpu),
        memory: wire_spread(&usage.memory),
        virtual_memory: wire_spread(&usage.virtual_memory),
        pages: wire_spread(&usage.pages),
        read: wire_spread(&usage.read),
        written: wire_spread(&usage.written),
    }
}

fn wire_spread(spread: &Spread) -> Option<v1::Spread> {
    Some(v1::Spread {
        total: spread.total,
        max: spread.max.value,
        max_task: spread.max.task,
        max_node: spread.max.node.to_string(),
        min: spread.min.value,
        min_task: spread.min.task,
        min_node: spread.min.node.to_string(),
    })
}

/// Decodes the usage of tasks.
pub fn usage(wire: v1::Usage) -> Usage {
    Usage {
        tasks: wire.tasks,
        user_us: wire.user_us,
        system_us: wire.system_us,
        cpu: spread(wire.cpu),
        memory: spread(wire.memory),
        virtual_memory: spread(wire.virtual_memory),
        pages: spread(wire.pages),
        read: spread(wire.read),
        written: spread(wire.written),
    }
}

fn spread(wire: Option<v1::Spread>) -> Spread {
    let wire = wire.unwrap_or_default();
    Spread {
        total: wire.total,
        max: Extreme { value: wire.max, task: wire.max_task, node: wire.max_node.into() },
        min: Extreme { value: wire.min, task: wire.min_task, node: wire.min_node.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spur_core::model::usage::TaskUsage;

    use super::*;

    #[test]
    fn what_was_used_crosses_the_wire() {
        let used = |task, memory| {
            let figures = TaskUsage { user_us: 9_000, memory, read: 5, written: 6, ..TaskUsage::default() };
            Usage::of_task(task, figures).on(&Arc::from(format!("n{task}")))
        };
        let mut all = used(0, 1 << 20);
        all.add(used(7, 1 << 30));
        assert_eq!(usage(wire_usage(&all)), all);
    }
}
