//! The nouns of the cluster and small questions about them.

pub mod fabric;
pub mod topology;
