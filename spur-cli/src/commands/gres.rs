//! The option `--gres=help`: lists the devices that can be requested.

use std::collections::BTreeSet;
use std::io::Write;

use spur_proto::v1::Node;

use super::query;
use crate::options::Layer;
use crate::options::submission::Submission;
use crate::session::Session;

/// True if any component has `--gres=help`.
pub(super) fn help_is_said(components: &[Layer<Submission>]) -> bool {
    let mut said = components.iter().flatten().filter(|said| said.option.long == "gres");
    said.any(|said| is_help(said.value.as_deref()))
}

/// True if a value of `--gres` requests the list of devices.
pub(super) fn is_help(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("help"))
}

/// Prints the names of the cluster's devices, as Slurm does.
///
/// # Errors
/// An error of the controller's list of nodes.
pub(super) async fn help(session: &mut Session) -> anyhow::Result<u8> {
    let nodes = query::nodes(session.connection()?, "").await?;
    writeln!(session.out, "Valid gres options are:")?;
    for name in names(&nodes) {
        writeln!(session.out, "{name}[[:type]:count]")?;
    }
    Ok(0)
}

/// Returns the names of the devices of some nodes.
pub(super) fn names(nodes: &[Node]) -> BTreeSet<&str> {
    let names = nodes.iter().flat_map(|node| node.gres.split(','));
    names.filter_map(|gres| gres.split(':').next()).filter(|name| !name.is_empty()).collect()
}
