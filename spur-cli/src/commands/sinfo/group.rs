//! Grouping of nodes into lines of `sinfo`: all printed columns are equal for the nodes of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use spur_core::text::hostlist::compare_names;
use spur_proto::v1::{Node, Partition};

use crate::format::fields::node::{Groups, Row, groups};
use crate::format::{Column, Format, Show};

/// Returns the lines in the order of the partitions, and within each of their first nodes. A partition
/// without nodes gets its own line unless another line represents it. `exact` separates values that are
/// otherwise printed as `2+`; `single` prints a line for every node of every partition.
pub(super) fn rows(
    partitions: &[Rc<Partition>],
    nodes: &[Rc<Node>],
    format: &Format<Row>,
    exact: bool,
    single: bool,
    show: &Show,
) -> Vec<Row> {
    let members = members(nodes);
    let of_kind = |wanted: &[Groups]| -> Vec<&Column<Row>> {
        format.columns.iter().filter(|column| wanted.contains(&groups(column.field.name))).collect()
    };
    let of_partition = of_kind(&[Groups::Partition]);
    let of_node = of_kind(if exact { &[Groups::Node, Groups::Exact] } else { &[Groups::Node] });
    let key = |columns: &[&Column<Row>], row: &Row| -> Vec<String> {
        columns.iter().map(|column| (column.field.text)(row, show)).collect()
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<(Vec<String>, Vec<String>), usize> = BTreeMap::new();
    let mut shown = BTreeSet::new();
    let mut empty = Vec::new();
    for (position, partition) in partitions.iter().enumerate() {
        let row = |nodes| Row { partition: Rc::clone(partition), position, nodes };
        let partition_key = key(&of_partition, &row(Vec::new()));
        let nodes = members.get(partition.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        if nodes.is_empty() {
            empty.push((partition_key, row(Vec::new())));
            continue;
        }
        shown.insert(partition_key.clone());
        for node in nodes {
            let alone = row(vec![Rc::clone(node)]);
            if single {
                rows.push(alone);
                continue;
            }
            let place = places.entry((partition_key.clone(), key(&of_node, &alone))).or_insert(rows.len());
            match rows.get_mut(*place) {
                Some(row) => row.nodes.push(Rc::clone(node)),
                None => rows.push(alone),
            }
        }
    }
    for (key, row) in empty {
        // Without columns of partitions, a partition without nodes has nothing to print.
        if !of_partition.is_empty() && shown.insert(key) {
            rows.push(row);
        }
    }
    for row in &mut rows {
        row.nodes.sort_by(|a, b| compare_names(&a.name, &b.name));
        row.nodes.dedup_by(|a, b| a.name == b.name);
    }
    rows
}

/// Returns the nodes of each partition.
fn members(nodes: &[Rc<Node>]) -> BTreeMap<&str, Vec<Rc<Node>>> {
    let mut members: BTreeMap<&str, Vec<Rc<Node>>> = BTreeMap::new();
    for node in nodes {
        for partition in &node.partitions {
            members.entry(partition).or_default().push(Rc::clone(node));
        }
    }
    members
}
