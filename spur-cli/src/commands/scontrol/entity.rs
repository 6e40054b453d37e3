//! Requests of `scontrol create` and `delete` for partitions and nodes. Module
//! [`reservation`](super::reservation) has those for reservations.

use spur_core::text::hostlist::HostExpr;
use spur_proto::v1::{
    CreateNodesRequest, CreatePartitionRequest, DeleteNodesRequest, DeletePartitionRequest, KeyValue,
};

use crate::error::Failure;

/// Request to create an entity.
#[derive(Debug, PartialEq)]
pub(super) enum Creation {
    /// A partition.
    Partition(CreatePartitionRequest),
    /// Nodes with the same properties.
    Nodes(CreateNodesRequest),
}

/// Request to delete an entity.
#[derive(Debug, PartialEq)]
pub(super) enum Deletion {
    /// A partition.
    Partition(DeletePartitionRequest),
    /// One or more nodes.
    Nodes(DeleteNodesRequest),
}

/// True if a word of at least three letters is a prefix of `whole`.
fn begins(word: &str, whole: &str) -> bool {
    word.len() >= 3 && whole.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Splits a word into key and value; the value is empty without `=`.
fn split(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap_or((word, ""))
}

/// Parses the words after `create`: `PartitionName=p …`, `partition p …` and similar ones for nodes. `None`
/// for other entities.
///
/// # Errors
/// A missing name, a word that is not `KEY=VALUE`, or invalid names of nodes.
pub(super) fn create(words: &[String]) -> Result<Option<Creation>, Failure> {
    let key = |word: &String| split(word).0.to_owned();
    if words.iter().any(|word| begins(&key(word), "ReservationName")) {
        return Ok(None);
    }
    let Some(first) = words.first() else { return Ok(None) };
    let (word, value) = split(first);
    let is_partition = begins(word, "PartitionName");
    if !is_partition && !begins(word, "NodeName") {
        return Ok(None);
    }
    let (name, rest) = match (value, words.get(1)) {
        // Both `create partition p …` and `create partition PartitionName=p …` are valid.
        ("", Some(next)) if !first.contains('=') => {
            (next.rsplit('=').next().unwrap_or_default(), &words[2..])
        }
        (name, _) => (name, &words[1..]),
    };
    if name.is_empty() {
        return Err(Failure::new(format!("{first}: the name is missing; write {word}=NAME KEY=VALUE …")));
    }
    let settings = rest.iter().map(|word| match word.split_once('=') {
        Some((key, value)) => Ok(KeyValue { key: key.to_owned(), value: value.to_owned() }),
        None => {
            Err(Failure::new(format!("Update of this parameter is not supported: {word}; write KEY=VALUE")))
        }
    });
    let settings = settings.collect::<Result<Vec<_>, _>>()?;
    if is_partition {
        let name = name.to_owned();
        return Ok(Some(Creation::Partition(CreatePartitionRequest {
            name,
            settings,
            ..CreatePartitionRequest::default()
        })));
    }
    let there = settings.iter().any(|setting| setting.key.eq_ignore_ascii_case("State"));
    if !there {
        let text = "Only State=FUTURE and State=CLOUD allowed for nodes created by scontrol";
        return Err(Failure::new(text));
    }
    Ok(Some(Creation::Nodes(CreateNodesRequest {
        nodes: nodes(name)?,
        settings,
        ..CreateNodesRequest::default()
    })))
}

/// Parses the words after `delete`; `None` for entities other than a partition or nodes.
///
/// # Errors
/// A missing name, or invalid names of nodes.
pub(super) fn delete(words: &[String]) -> Result<Option<Deletion>, Failure> {
    let (word, name) = match words {
        [pair] => split(pair),
        [word, name] if !word.contains('=') => (word.as_str(), name.rsplit('=').next().unwrap_or_default()),
        _ => return Ok(None),
    };
    let is_partition = begins(word, "PartitionName");
    if !is_partition && !begins(word, "NodeName") {
        return Ok(None);
    }
    if name.is_empty() {
        return Err(Failure::new(format!("Invalid deletion entity: {word}; the name is missing")));
    }
    Ok(Some(match is_partition {
        true => Deletion::Partition(DeletePartitionRequest {
            name: name.to_owned(),
            ..DeletePartitionRequest::default()
        }),
        false => Deletion::Nodes(DeleteNodesRequest { nodes: nodes(name)?, ..DeleteNodesRequest::default() }),
    }))
}

fn nodes(written: &str) -> Result<String, Failure> {
    written.parse::<HostExpr>().map_err(|error| Failure::new(error.to_string()))?;
    Ok(written.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn partitions_and_nodes_are_told_apart_from_reservations() {
        let request = CreatePartitionRequest {
            name: "p".into(),
            settings: vec![KeyValue { key: "Nodes".into(), value: "n1".into() }],
            ..CreatePartitionRequest::default()
        };
        for line in ["PartitionName=p Nodes=n1", "partition p Nodes=n1", "part=p Nodes=n1"] {
            assert_eq!(create(&words(line)).unwrap(), Some(Creation::Partition(request.clone())), "{line}");
        }
        for line in ["reservation PartitionName=p", "ReservationName=r Nodes=n1", "Nodes=n1", "foo=1"] {
            assert_eq!(create(&words(line)).unwrap(), None, "{line}");
        }
        assert!(matches!(
            create(&words("NodeName=d[1-2] CPUs=2 State=CLOUD")).unwrap(),
            Some(Creation::Nodes(request)) if request.nodes == "d[1-2]" && request.settings.len() == 2
        ));
        assert!(matches!(delete(&words("node=d1")).unwrap(), Some(Deletion::Nodes(_))));
        assert!(matches!(delete(&words("partition p")).unwrap(), Some(Deletion::Partition(_))));
        assert_eq!(delete(&words("ReservationName=r")).unwrap(), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        for (line, part) in [
            ("PartitionName=", "the name is missing"),
            ("PartitionName=p tidy", "not supported: tidy"),
            ("NodeName=d1", "Only State=FUTURE and State=CLOUD"),
            ("NodeName=d[1 State=CLOUD", "d[1"),
        ] {
            let error = create(&words(line)).unwrap_err().text;
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
