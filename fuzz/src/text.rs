//! Targets for the notations of `spur_core::text`: host lists, times, and others.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::sync::Arc;

use spur_core::model::change::JobChange;
use spur_core::model::distribution::Distributions;
use spur_core::model::idset::IdSet;
use spur_core::text::score::{NAMES, Score};
use spur_core::text::address::HostPort;
use spur_core::text::array::{ArraySpec, TaskSet};
use spur_core::text::cpubind::CpuBinding;
use spur_core::text::dependency::Dependency;
use spur_core::text::exit::ExitCode;
use spur_core::text::features::FeatureExpr;
use spur_core::text::gather::{
    Gather, GatherClause, HetGather, Latency, LinkSpeed, NetworkNeed, Placement, Switches,
};
use spur_core::text::gpubind::GpuBind;
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::hostlist::{HostExpr, HostList};
use spur_core::text::jobid::{JobRef, StepRef};
use spur_core::text::license::LicenseList;
use spur_core::text::membind::MemBinding;
use spur_core::text::memory::MemoryMb;
use spur_core::text::multiprog::MultiProg;
use spur_core::text::nodes::NodeCount;
use spur_core::text::pattern::FilePattern;
use spur_core::text::place::Places;
use spur_core::text::sampling::SamplingIntervals;
use spur_core::text::signal::{Signal, WarnSignal};
use spur_core::text::time::{Seconds, TimeLimit, When};
use spur_core::text::tres::Tres;

use crate::text_of;
use crate::world::Afternoon;

/// Asserts that a parsed value is equal after it was written and parsed again, and that a refusal has a
/// message.
fn again<T>(text: &str)
where
    T: FromStr + Display + PartialEq + Debug,
    T::Err: Display,
{
    match text.parse::<T>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(value) => {
            let written = value.to_string();
            let read = written.parse::<T>();
            let read = read.unwrap_or_else(|error| panic!("{written:?}, which {text:?} means: {error}"));
            assert_eq!(read, value, "{written:?}, from {text:?}");
        }
    }
}

/// Parses host lists and the host expressions of requests.
pub fn hostlist(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    again::<HostList>(text);
    again::<HostExpr>(text);
}

/// Parses time limits, durations and points in time.
pub fn times(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    again::<TimeLimit>(text);
    again::<Seconds>(text);
    again::<When>(text);
    match text.parse::<When>() {
        Ok(when) => drop(when.resolve(Afternoon::now(), &Afternoon::to_epoch)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses all other notations.
pub fn words(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    again::<ArraySpec>(text);
    again::<TaskSet>(text);
    again::<CpuBinding>(text);
    again::<Dependency<u32>>(text);
    again::<Dependency<String>>(text);
    again::<Distributions>(text);
    again::<ExitCode>(text);
    again::<FeatureExpr>(text);
    again::<FilePattern>(text);
    again::<Gather>(text);
    again::<GatherClause>(text);
    again::<GpuBind>(text);
    again::<GresList>(text);
    again::<GresSpec>(text);
    again::<HetGather>(text);
    if let Ok(score) = text.parse::<Score>() {
        let _ = [i64::MIN, 0, i64::MAX].map(|fact| score.value(&[fact; NAMES.len()]));
    }
    again::<HostPort>(text);
    again::<IdSet>(text);
    again::<JobRef>(text);
    again::<Latency>(text);
    again::<LicenseList>(text);
    again::<LinkSpeed>(text);
    again::<MemBinding>(text);
    again::<MemoryMb>(text);
    again::<NetworkNeed>(text);
    again::<NodeCount>(text);
    again::<Placement>(text);
    again::<Places>(text);
    if let Err(error) = text.parse::<SamplingIntervals>() {
        assert!(!error.to_string().is_empty());
    }
    again::<Signal>(text);
    again::<StepRef>(text);
    again::<Switches>(text);
    again::<Tres>(text);
    again::<WarnSignal>(text);
    match MultiProg::parse(text) {
        Ok(table) => drop(table.programs(table.tasks().unwrap_or(1).min(64), &[])),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses `Key=Value` lines of `scontrol update` for jobs, partitions and nodes.
pub fn changes(bytes: &[u8]) {
    use spur_core::model::config::{NodeConfig, PartitionConfig, edit};

    let Some(text) = text_of(bytes) else { return };
    let names = ["n1", "n2", "main"].map(Arc::from);
    let known = edit::Known { nodes: &names[..2], partitions: &names[2..], topologies: &[], qos: &[] };
    let (mut node, mut partition) = (NodeConfig::default(), PartitionConfig::default());
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        if let Err(error) = JobChange::parse(key, value) {
            assert!(!error.to_string().is_empty());
        }
        let _ = edit::node(&mut node, key, value);
        let _ = edit::partition(&mut partition, key, value, &known);
    }
    let _ = edit::complete(&mut node);
}
