//! Number of nodes that a job requests: the `--nodes` option, e.g. `4`, `4-8`, `4-24:4`, `4,8,16`.

use std::fmt;
use std::str::FromStr;

use super::number::{self, Unit};
use super::{ParseError, serde_as_text};

const WHAT: &str = "node count";
const HELP: &str = "write N, MIN-MAX, MIN-MAX:STEP or a list of sizes, e.g. `4`, `4-8`, `4-24:4` or `4,8,16`";
const COUNT: &[Unit] = &[("", 1), ("k", 1 << 10), ("m", 1 << 20)];
/// Most different sizes that one request may name.
const MAX_SIZES: usize = 65_536;

/// Numbers of nodes that a job accepts. A single number is both bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeCount {
    /// Fewest nodes, at least 1.
    pub min: u32,
    /// Most nodes; `None` if no upper bound was given.
    pub max: Option<u32>,
    /// Accepted sizes, ascending, from `min` to `max`; `None` if all sizes between the bounds are accepted.
    pub sizes: Option<Vec<u32>>,
}

impl NodeCount {
    /// Builds a request for exactly `count` nodes.
    pub fn exactly(count: u32) -> NodeCount {
        NodeCount { min: count, max: Some(count), sizes: None }
    }

    /// Builds a request for at least `count` nodes.
    pub fn at_least(count: u32) -> NodeCount {
        NodeCount { min: count, max: None, sizes: None }
    }

    /// True if the request accepts `count` nodes.
    pub fn admits(&self, count: u32) -> bool {
        match &self.sizes {
            Some(sizes) => sizes.binary_search(&count).is_ok(),
            None => count >= self.min && self.max.is_none_or(|max| count <= max),
        }
    }

    /// Builds a request from an ascending list of sizes without duplicates; `None` if the list is empty.
    fn from_sizes(sizes: Vec<u32>) -> Option<NodeCount> {
        let (&min, &max) = (sizes.first()?, sizes.last()?);
        let every = sizes.len() == (max - min) as usize + 1;
        Some(NodeCount { min, max: Some(max), sizes: (!every).then_some(sizes) })
    }
}

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeCount { min, max, sizes } = self;
        let Some(sizes) = sizes else {
            return match max {
                Some(max) if max == min => write!(f, "{min}"),
                Some(max) => write!(f, "{min}-{max}"),
                None => write!(f, "{min}-"),
            };
        };
        let mut steps = sizes.windows(2).map(|pair| pair[1] - pair[0]);
        let step = steps.next().unwrap_or(1);
        if sizes.len() > 2 && steps.all(|other| other == step) {
            return write!(f, "{min}-{}:{step}", sizes[sizes.len() - 1]);
        }
        for (i, size) in sizes.iter().enumerate() {
            write!(f, "{}{size}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for NodeCount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<NodeCount, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let ranges = text.split(',').map(range).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
        if let [(min, max, 1)] = ranges[..] {
            return Ok(NodeCount { min, max, sizes: None });
        }
        let mut sizes = Vec::new();
        for (first, last, step) in ranges {
            let last = last.ok_or_else(|| refuse("a range in a list needs its end".to_owned()))?;
            if sizes.len() + ((last - first) / step) as usize >= MAX_SIZES {
                return Err(refuse(format!("there are more than {MAX_SIZES} sizes")));
            }
            sizes.extend((first..=last).step_by(step as usize));
        }
        sizes.sort_unstable();
        sizes.dedup();
        NodeCount::from_sizes(sizes).ok_or_else(|| refuse("no size is given".to_owned()))
    }
}

/// Reads `N`, `N-`, `N-M` or `N-M:STEP` as fewest, most and step.
fn range(item: &str) -> Result<(u32, Option<u32>, u32), String> {
    let number = |text: &str| {
        let count = number::with_unit(text, COUNT).map_err(|e| format!("`{item}`: {e}"))?;
        u32::try_from(count).map_err(|_| format!("`{item}`: the number is too large"))
    };
    let (bounds, step) = match item.split_once(':') {
        Some((bounds, step)) if bounds.contains('-') => (bounds, number(step)?),
        Some(_) => return Err(format!("`{item}`: a step needs a range")),
        None => (item, 1),
    };
    let (min, max) = match bounds.split_once('-') {
        None => (number(bounds)?, Some(number(bounds)?)),
        Some((min, "")) if step == 1 => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
    };
    if min == 0 || step == 0 {
        return Err(format!("`{item}`: it must be at least 1"));
    }
    if max.is_some_and(|max| max < min) {
        return Err(format!("`{item}`: the range runs backwards"));
    }
    Ok((min, max, step))
}

serde_as_text!(NodeCount);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, shown, sizes) in [
            ("4", "4", vec![4]),
            ("4-8", "4-8", vec![8, 7, 6, 5, 4]),
            ("4-24:4", "4-24:4", vec![24, 20, 16, 12, 8, 4]),
            ("4-10:4", "4,8", vec![8, 4]),
            ("16,4,8", "4,8,16", vec![16, 8, 4]),
            ("4,5,6", "4-6", vec![6, 5, 4]),
            ("1k", "1024", vec![]),
            ("30-", "30-", (30..=100).rev().collect()),
        ] {
            let count: NodeCount = text.parse().unwrap();
            assert_eq!(count.to_string(), shown);
            let admitted: Vec<u32> = (0..=100).rev().filter(|&size| count.admits(size)).collect();
            assert_eq!(admitted, sizes, "{text}");
        }
        assert!(!"4-24:4".parse::<NodeCount>().unwrap().admits(6));
        assert_eq!("8-".parse(), Ok(NodeCount::at_least(8)));
        assert_eq!("8".parse(), Ok(NodeCount::exactly(8)));
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("", "``: a number is expected"),
            ("0", "`0`: it must be at least 1"),
            ("8-4", "`8-4`: the range runs backwards"),
            ("4:2", "`4:2`: a step needs a range"),
            ("4-8:0", "`4-8:0`: it must be at least 1"),
            ("4,", "``: a number is expected"),
            ("4,8-", "a range in a list needs its end"),
            ("4096m", "`4096m`: the number is too large"),
            ("1-4000000:2", "there are more than 65536 sizes"),
            ("two", "`two`: a number is expected"),
        ] {
            assert_eq!(text.parse::<NodeCount>().unwrap_err().problem, problem, "{text}");
        }
    }

    proptest! {
        #[test]
        fn ranges_round_trip(min in 1_u32..1000, more in prop::option::of(0_u32..1000)) {
            let count = NodeCount { min, max: more.map(|more| min + more), sizes: None };
            prop_assert_eq!(count.to_string().parse(), Ok(count));
        }

        #[test]
        fn lists_round_trip(sizes in prop::collection::btree_set(1_u32..40, 1..10)) {
            let count = NodeCount::from_sizes(sizes.into_iter().collect()).unwrap();
            prop_assert_eq!(count.to_string().parse(), Ok(count));
        }
    }
}
