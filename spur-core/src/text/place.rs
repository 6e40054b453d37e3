//! Place of a node in the network, e.g. `default:spine0:leaf3,ib:b7`. `scontrol show node` prints it, and
//! `scontrol update NodeName=… Topology=` reads it.

use std::fmt;
use std::str::FromStr;

use super::ParseError;

const WHAT: &str = "place in a topology";
const HELP: &str =
    "write TOPOLOGY:LEAF or TOPOLOGY:SWITCH:…:LEAF, with commas between topologies, e.g. `default:s1`";

/// A leaf or base block of one topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the topology.
    pub topology: String,
    /// Domains that contain the leaf, from the top down, each within the previous one. Domains at the front
    /// may be omitted.
    pub above: Vec<String>,
    /// Name of the leaf switch or base block.
    pub leaf: String,
}

/// Places of a node, at most one in each topology; empty for a node in no topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(pub Vec<Place>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.topology)?;
        self.above.iter().try_for_each(|domain| write!(f, "{domain}:"))?;
        f.write_str(&self.leaf)
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in self.0.iter().enumerate() {
            write!(f, "{}{place}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Places {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Places, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let mut places: Vec<Place> = Vec::new();
        if text.is_empty() {
            return Ok(Places(places));
        }
        for item in split(text, ',') {
            let mut parts = split(item, ':').map(str::to_owned);
            let topology = parts.next().unwrap_or_default();
            let mut above: Vec<String> = parts.collect();
            let Some(leaf) = above.pop() else {
                return Err(refuse(format!("`{item}` names no leaf or block of a topology")));
            };
            if topology.is_empty() || leaf.is_empty() || above.iter().any(String::is_empty) {
                return Err(refuse(format!("`{item}` has an empty part")));
            }
            if places.iter().any(|place| place.topology == topology) {
                return Err(refuse(format!("topology {topology} is named twice")));
            }
            places.push(Place { topology, above, leaf });
        }
        Ok(Places(places))
    }
}

/// Splits a text at a character outside brackets, because aggregates of blocks are named by hostlists.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c: char| {
        inside = (inside || c == '[') && c != ']';
        c == at && !inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_printed() {
        for text in ["", "default:s1", "default:top:s1,ib:b[1-2,4]:b1", "x:pod-a/r1"] {
            assert_eq!(text.parse::<Places>().map(|places| places.to_string()), Ok(text.to_owned()));
        }
        for text in ["s1", "default:", ":s1", "default:s1,", "a:s1,a:s2", "a::s1"] {
            assert!(text.parse::<Places>().is_err(), "{text}");
        }
    }
}
