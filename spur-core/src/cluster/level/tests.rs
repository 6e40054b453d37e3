use std::sync::Arc;

use super::super::Event;
use super::*;
use crate::id::{JobId, StepId};
use crate::model::config::{JobPolicy, PartitionConfig, Policy};
use crate::model::job::Shape;

fn needs(value: &impl Serialize) -> Option<&'static str> {
    Cluster::default().allows(value).err().map(|too_new| too_new.words)
}

#[test]
fn defaults_need_no_level() {
    assert_eq!(needs(&Shape::default()), None);
    assert_eq!(needs(&Policy { partitions: vec![PartitionConfig::default()], ..Policy::default() }), None);
}

#[test]
fn members_are_found_in_the_types_that_hold_them() {
    let shape = Shape { use_min_nodes: true, ..Shape::default() };
    assert_eq!(needs(&vec![Some(Arc::new(shape))]), Some("--use-min-nodes"));
    let jobs = JobPolicy { kill_on_bad_exit: true, ..JobPolicy::default() };
    let policy = Arc::new(Policy { jobs, ..Policy::default() });
    let event = Event::PolicyChanged { policy, keeps_edits: true };
    assert_eq!(needs(&event), Some("[controller] kill_on_bad_exit"));
    let event = Event::StepTimedOut { job: JobId(1), step: StepId(0) };
    assert_eq!(needs(&event), Some("a time limit of a step"));
    assert_eq!(needs(&Event::JobReleased { job: JobId(1) }), None);
}

#[test]
fn a_cluster_of_the_newest_level_allows_everything() {
    let event = Event::StepTimedOut { job: JobId(1), step: StepId(0) };
    assert_eq!(Cluster::of_newest_level().allows(&event), Ok(()));
}

#[test]
fn the_newest_level_has_added_something_and_none_above_has() {
    let levels: Vec<FeatureLevel> = ADDED.iter().map(|added| added.level).collect();
    assert!(levels.iter().all(|level| *level > FeatureLevel::OLDEST && *level <= FeatureLevel::NEWEST));
    assert!(levels.contains(&FeatureLevel::NEWEST));
}
