//! Three-way merge of a new configuration file with the changes that commands made, key by key.
//!
//! `was` is the previous file, `is` the state in force with the changes of commands, `says` the new file. A
//! key that is equal in both files keeps the value in force; any other key takes that of the new file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{NodeConfig, PartitionConfig};
use crate::model::node::NodeShape;

/// Merges all fields but the first, which is the name. `undone` gets the keys whose change by a command is
/// undone. The macro does not compile if a field is missing.
macro_rules! merge {
    ($kind:ident { $name:ident, $($field:ident),+ $(,)? }, $was:expr, $is:expr, $says:expr, $undone:expr) => {{
        let (was, is, says): (&$kind, &$kind, &$kind) = ($was, $is, $says);
        let $kind { $name: _, $($field: _),+ } = says;
        $kind {
            $name: says.$name.clone(),
            $($field: if was.$field == says.$field {
                is.$field.clone()
            } else {
                if is.$field != was.$field && is.$field != says.$field {
                    $undone.push(stringify!($field));
                }
                says.$field.clone()
            }),+
        }
    }};
}

/// The result of a merge.
#[derive(Debug, Default, PartialEq)]
pub struct Merged<T> {
    /// The merged items: those of the file, in its order, then those that commands have created.
    pub all: Vec<T>,
    /// Changes of commands that the new file undoes, one sentence each.
    pub undone: Vec<String>,
}

/// Merges the partitions with those of a file that says `says`.
#[must_use]
pub fn partitions<'a>(
    was: &[PartitionConfig],
    is: impl IntoIterator<Item = &'a PartitionConfig>,
    says: &[PartitionConfig],
) -> Merged<PartitionConfig> {
    let was: BTreeMap<&str, &PartitionConfig> = was.iter().map(|config| (&*config.name, config)).collect();
    let (mut now, mut created) = (BTreeMap::new(), Vec::new());
    for config in is {
        now.insert(&*config.name, config);
        let known = was.contains_key(&*config.name) || says.iter().any(|said| said.name == config.name);
        created.extend((!known).then(|| config.clone()));
    }
    let mut merged = Merged::default();
    for config in says {
        let name = &config.name;
        match (was.get(&**name), now.get(&**name)) {
            (Some(was), Some(is)) => {
                let mut undone = Vec::new();
                merged.all.push(partition(was, is, config, &mut undone));
                merged.undone.extend(undone.iter().map(|key| {
                    format!("partition {name}: {key} is what the file says; scontrol had changed it")
                }));
            }
            // A command deleted the partition, and the file has not changed it.
            (Some(was), None) if *was == config => {}
            (Some(_), None) => {
                merged.all.push(config.clone());
                merged.undone.push(format!("partition {name} is there again; scontrol had deleted it"));
            }
            (None, Some(_)) => {
                merged.all.push(config.clone());
                merged.undone.push(format!("partition {name} is the file's; scontrol had created another"));
            }
            (None, None) => merged.all.push(config.clone()),
        }
    }
    merged.all.extend(created);
    one_default(says, &mut merged);
    merged
}

/// Leaves at most one default partition: that of the file, if it names another one than a command has.
fn one_default(says: &[PartitionConfig], merged: &mut Merged<PartitionConfig>) {
    if merged.all.iter().filter(|config| config.default).count() < 2 {
        return;
    }
    let said = says.iter().find(|config| config.default).map(|config| Arc::clone(&config.name));
    for config in merged.all.iter_mut().filter(|config| config.default && said.as_ref() != Some(&config.name))
    {
        config.default = false;
        merged
            .undone
            .push(format!("partition {} is not the default; scontrol had made it that", config.name));
    }
}

fn partition(
    was: &PartitionConfig,
    is: &PartitionConfig,
    says: &PartitionConfig,
    undone: &mut Vec<&'static str>,
) -> PartitionConfig {
    let merged = merge!(
        PartitionConfig {
            name,
            nodes,
            all_nodes,
            default,
            max_time,
            default_time,
            min_nodes,
            max_nodes,
            priority_tier,
            priority_job_factor,
            state,
            topology,
            oversubscribe,
            placement,
            score,
            allow_groups,
            allow_accounts,
            deny_accounts,
            alloc_nodes,
            alternate,
            disable_root_jobs,
            hidden,
            req_resv,
            root_only,
            allow_qos,
            deny_qos,
            default_qos,
            qos,
            def_mem_per_cpu,
            max_mem_per_cpu,
            def_mem_per_node,
            max_mem_per_node,
            def_cpu_per_gpu,
            def_mem_per_gpu,
            max_cpus_per_node,
            max_cpus_per_socket,
            preempt_mode,
            grace_time,
            tres_billing_weights,
        },
        was,
        is,
        says,
        undone
    );
    // A partition of all nodes includes those that commands have created, whatever nodes the file lists.
    undone.retain(|key| *key != "nodes" || !merged.all_nodes);
    merged
}

/// Merges one node; commands change only its weight, features and devices. Also returns the keys whose
/// changes are undone.
#[must_use]
pub fn node(was: &NodeConfig, is: &NodeConfig, says: &NodeConfig) -> (NodeConfig, Vec<&'static str>) {
    let mut undone = Vec::new();
    let shape = merge!(
        NodeShape {
            sockets,
            cores_per_socket,
            threads_per_core,
            cpus,
            memory_mb,
            tmp_disk_mb,
            gres,
            features,
            places,
            shared_gpus
        },
        &was.shape,
        &is.shape,
        &says.shape,
        undone
    );
    let outside = merge!(
        NodeConfig { name, shape, weight, core_spec_count, cpu_spec_list, mem_spec_limit },
        was,
        is,
        says,
        undone
    );
    undone.retain(|key| *key != "shape");
    (NodeConfig { shape, ..outside }, undone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::PartitionState;
    use crate::text::time::TimeLimit;

    fn named(name: &str) -> PartitionConfig {
        PartitionConfig { name: name.into(), ..PartitionConfig::default() }
    }

    #[test]
    fn a_change_holds_until_the_file_says_something_else_of_that_key() {
        let was = [named("a"), named("b")];
        let changed = PartitionConfig { state: PartitionState::Down, min_nodes: 3, ..named("a") };
        let is = [changed.clone(), named("b")];
        assert_eq!(partitions(&was, &is, &was), Merged { all: is.to_vec(), undone: Vec::new() });
        let says =
            [PartitionConfig { max_time: TimeLimit::Seconds(60), min_nodes: 1, ..named("a") }, named("b")];
        let merged = partitions(&was, &is, &says);
        let wanted = PartitionConfig { state: PartitionState::Down, ..says[0].clone() };
        assert_eq!(merged.all[0], wanted);
        assert_eq!(merged.undone, ["partition a: min_nodes is what the file says; scontrol had changed it"]);
    }

    #[test]
    fn a_partition_of_all_nodes_goes_on_having_all() {
        let all = |nodes: &str| PartitionConfig {
            nodes: nodes.split(' ').map(Arc::from).collect(),
            all_nodes: true,
            ..named("a")
        };
        let merged = partitions(&[all("n1")], &[all("n1 created")], &[all("n1 n2")]);
        assert_eq!(merged, Merged { all: vec![all("n1 n2")], undone: Vec::new() });
    }

    #[test]
    fn what_was_created_stays_and_what_was_deleted_stays_away() {
        let was = [named("a"), named("b")];
        let is = [named("a"), named("c")];
        let merged = partitions(&was, &is, &was);
        assert_eq!(merged, Merged { all: is.to_vec(), undone: Vec::new() });
        let says = [PartitionConfig { min_nodes: 1, ..named("b") }, named("c")];
        let merged = partitions(&was, &is, &says);
        assert_eq!(merged.all, says);
        assert_eq!(merged.undone.len(), 2, "{:?}", merged.undone);
    }

    #[test]
    fn there_is_one_default() {
        let default = |name: &str| PartitionConfig { default: true, ..named(name) };
        let was = [default("a"), named("b"), named("c")];
        let is = [named("a"), default("b"), named("c")];
        assert_eq!(partitions(&was, &is, &was).all, is);
        let says = [named("a"), named("b"), default("c")];
        let merged = partitions(&was, &is, &says);
        assert_eq!(merged.all, says);
        assert_eq!(merged.undone.len(), 1, "{:?}", merged.undone);
    }

    #[test]
    fn nodes_keep_what_commands_have_made_of_them() {
        let was = NodeConfig { name: "n".into(), weight: 1, ..NodeConfig::default() };
        let mut is = NodeConfig { weight: 7, ..was.clone() };
        is.shape.features = vec!["slow".into()];
        let mut says = was.clone();
        says.shape.cpus = 8;
        let (merged, undone) = node(&was, &is, &says);
        assert_eq!((merged.weight, merged.shape.cpus, undone.len()), (7, 8, 0));
        assert_eq!(merged.shape.features, is.shape.features);
        says.weight = 2;
        let (merged, undone) = node(&was, &is, &says);
        assert_eq!((merged.weight, undone), (2, vec!["weight"]));
    }
}
