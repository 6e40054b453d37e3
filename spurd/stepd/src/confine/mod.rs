//! Containment of a step's processes: control groups, devices, private directories, memory.

pub(crate) mod bpf;
pub(crate) mod group;
pub(crate) mod meter;
pub(crate) mod namespace;
pub(crate) mod processes;
pub(crate) mod tree;
pub(crate) mod wait;
