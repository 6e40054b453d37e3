//! The jobs that users of the simulation submit.

use std::sync::Arc;

use spur_core::controller::command::Submission;
use spur_core::id::BlobId;
use spur_core::model::job::{Batch as Script, Extra, FabricAsk, JobSpec, Shape};
use spur_core::text::array::ArraySpec;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::TimeLimit;

use super::{World, owner};

impl World {
    pub(super) fn submission(&mut self, request: u64) -> Submission {
        let nodes = self.chance.between(1, 2.min(self.nodes.len() as u64));
        let limit = self.chance.between(20, 120);
        let urgent = self.preempts && self.chance.percent(40);
        let partitions = if urgent { Box::from([Arc::from("urgent")]) } else { Box::default() };
        let qos = (urgent && !self.policy.qos.is_empty()).then(|| Arc::from("high"));
        let qos = qos.or_else(|| self.qos_of_limits());
        let firm = self.preempts && self.chance.percent(10);
        let extra = firm.then(|| Box::new(Extra { no_preempt: true, ..Extra::default() }));
        let extra = self.with_licenses(extra);
        let script =
            Script { command: "job".into(), ..Script::plain(BlobId(request * 2), BlobId(request * 2 + 1)) };
        let near = self.moves && self.chance.percent(70);
        let near = near.then(|| FabricAsk { gather: "must:leaf".parse().ok(), ..FabricAsk::default() });
        let most = self.policy.partitions[0].max_cpus_per_node.filter(|_| !urgent);
        let cpus = u32::try_from(self.chance.between(1, 4)).expect("small").min(most.unwrap_or(u32::MAX));
        let shape = self.with_memory_and_gpus(Shape {
            nodes: Some(NodeCount::exactly(u32::try_from(nodes).expect("small"))),
            cpus_per_task: Some(cpus),
            ..Shape::default()
        });
        let spec = JobSpec {
            partitions,
            account: self.limited.then(|| self.account()),
            qos,
            array: self.array().map(Box::new),
            requeue: true,
            batch: Some(Box::new(script)),
            extra,
            fabric: near.map(Box::new),
            ..JobSpec::plain(format!("job{request}").into(), owner(1000), shape)
        };
        Submission {
            spec,
            time_limit: Some(TimeLimit::Seconds(limit)),
            requeue: Some(true),
            rest: Vec::new(),
        }
    }

    /// The tasks of an array for half of the jobs, where there are arrays; otherwise `None`.
    fn array(&mut self) -> Option<ArraySpec> {
        if !self.arrays || self.chance.percent(50) {
            return None;
        }
        let last = u32::try_from(self.chance.between(0, 7)).expect("small");
        let step = if self.chance.percent(30) { 2 } else { 1 };
        let limit = u32::try_from(self.chance.below(4)).expect("small");
        let tasks = (0..=last).step_by(step).collect();
        Some(ArraySpec { tasks, limit: Some(limit).filter(|limit| *limit > 0) })
    }
}
