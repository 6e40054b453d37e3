//! Generic resources: `gpu:mi300x:8`, `gpu:2`, `gpu`, and the short form of the `--gpus` options.

use std::fmt;
use std::str::FromStr;

use super::number::{self, NumberError, Unit};
use super::{ParseError, serde_as_text};

const WHAT: &str = "generic resource";
const HELP: &str = "write NAME[:TYPE][:COUNT], e.g. `gpu:2` or `gpu:mi300x:8`";
const GPUS_WHAT: &str = "GPU count";
const GPUS_HELP: &str = "write [TYPE:]COUNT, e.g. `2` or `mi300x:4`";
const COUNT: &[Unit] = &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];

/// Largest count of a generic resource, more than any node has or job requests. Sums over nodes and types
/// then fit 64 bits.
const MOST: u64 = 1 << 44;

/// One generic resource with its count, of a node or of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GresSpec {
    /// Name of the resource, e.g. `gpu`.
    pub name: String,
    /// Type of the resource, e.g. `mi300x`; `None` for any type.
    pub kind: Option<String>,
    /// Number of units of the resource.
    pub count: u64,
}

impl GresSpec {
    /// Builds a resource from its parts.
    pub fn new(name: impl Into<String>, kind: Option<&str>, count: u64) -> GresSpec {
        GresSpec { name: name.into(), kind: kind.map(str::to_owned), count }
    }

    /// True if the two can be the same resource: equal names, and equal types where both have one.
    #[must_use]
    pub fn may_be(&self, other: &GresSpec) -> bool {
        self.name == other.name && (self.kind == other.kind || self.kind.is_none() || other.kind.is_none())
    }
}

/// Returns the count, or an error if it is above [`MOST`].
fn bounded(count: u64) -> Result<u64, NumberError> {
    if count <= MOST { Ok(count) } else { Err(NumberError::TooLarge) }
}

impl fmt::Display for GresSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(kind) = &self.kind {
            write!(f, ":{kind}")?;
        }
        write!(f, ":{}", self.count)
    }
}

impl FromStr for GresSpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GresSpec, ParseError> {
        let refuse = |problem: &str| ParseError::new(WHAT, text, problem, HELP);
        let plain = text.strip_prefix("gres/").unwrap_or(text);
        let parts: Vec<&str> = plain.split([':', '=']).collect();
        let (kind, count) = match parts[1..] {
            [] => (None, Ok(1)),
            [last] if starts_with_digit(last) => (None, number::with_unit(last, COUNT)),
            [kind] => (Some(kind), Ok(1)),
            [kind, count] => (Some(kind), number::with_unit(count, COUNT)),
            _ => return Err(refuse("there are more than three parts")),
        };
        let count = count.and_then(bounded).map_err(|e| refuse(&e.to_string()))?;
        if !is_word(parts[0]) || kind.is_some_and(|kind| !is_word(kind)) {
            return Err(refuse("names begin with a letter or digit and go on with these, `_`, `-` and `.`"));
        }
        Ok(GresSpec::new(parts[0], kind, count))
    }
}

/// Generic resources in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GresList(pub Vec<GresSpec>);

impl GresList {
    /// Reads the short form of `--gpus` and `--gpus-per-node`: `4`, `mi300x:4`, `mi300x:2,h100:1`.
    ///
    /// # Errors
    /// [`ParseError`] for an item without a valid count.
    pub fn parse_gpus(text: &str) -> Result<GresList, ParseError> {
        let one = |item: &str| {
            let (kind, count) = match item.split_once(':') {
                Some((kind, count)) => (Some(kind), count),
                None if !starts_with_digit(item) && is_word(item) => (Some(item), "1"),
                None => (None, item),
            };
            let count = number::with_unit(count, COUNT).and_then(bounded)?;
            let named = kind.is_none_or(is_word);
            named.then(|| GresSpec::new("gpu", kind, count)).ok_or(NumberError::NoDigits)
        };
        let list = text.split(',').map(one).collect::<Result<Vec<_>, _>>();
        list.map(GresList).map_err(|e| ParseError::new(GPUS_WHAT, text, e.to_string(), GPUS_HELP))
    }

    /// Total count of the resources called `name`, over all types.
    pub fn count(&self, name: &str) -> u64 {
        self.0.iter().filter(|spec| spec.name == name).map(|spec| spec.count).sum()
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for GresList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, spec) in self.0.iter().enumerate() {
            write!(f, "{}{spec}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for GresList {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GresList, ParseError> {
        if text.is_empty() || text.eq_ignore_ascii_case("none") {
            return Ok(GresList::default());
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(GresList)
    }
}

serde_as_text!(GresSpec, GresList);

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && number::with_unit(text, COUNT).is_ok()
}

/// True if `text` can be the name or the type of a resource.
pub(super) fn is_word(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(inside)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, name, kind, count) in [
            ("gpu", "gpu", None, 1),
            ("gpu:2", "gpu", None, 2),
            ("gpu:0", "gpu", None, 0),
            ("gpu:mi300x", "gpu", Some("mi300x"), 1),
            ("gpu:mi300x:8", "gpu", Some("mi300x"), 8),
            ("gpu:1g.10gb:7", "gpu", Some("1g.10gb"), 7),
            ("bandwidth:lustre:4g", "bandwidth", Some("lustre"), 4 << 30),
            ("shard:2K", "shard", None, 2048),
            ("gres/gpu=2", "gpu", None, 2),
        ] {
            assert_eq!(text.parse(), Ok(GresSpec::new(name, kind, count)), "{text}");
        }
        for text in ["", ":2", "gpu:", "gpu:a:b", "gpu:a:1:2", "gpu:-1", "g pu", "gpu::2"] {
            assert!(text.parse::<GresSpec>().is_err(), "{text}");
        }
        assert_eq!("none".parse(), Ok(GresList::default()));
        let list: GresList = "gpu:mi300x:2,gpu:h100:1,shard:3".parse().unwrap();
        assert_eq!((list.count("gpu"), list.count("shard"), list.count("x")), (3, 3, 0));
        assert!("gpu:2,,".parse::<GresList>().is_err());
    }

    #[test]
    fn the_short_form_of_gpus() {
        let shown = |text| GresList::parse_gpus(text).map(|list| list.to_string());
        assert_eq!(shown("4").unwrap(), "gpu:4");
        assert_eq!(shown("mi300x:4,h100").unwrap(), "gpu:mi300x:4,gpu:h100:1");
        for text in ["", "mi300x:", ":4", "a:b:4", "-1"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(specs in prop::collection::vec(
            ("[a-z][a-z0-9_]{0,6}", prop::option::of("[a-z][a-z0-9._-]{0,6}"), 0..=MOST), 0..4))
        {
            let specs = specs.into_iter().map(|(name, kind, count)| GresSpec { name, kind, count });
            let list = GresList(specs.collect());
            prop_assume!(list.to_string() != "none");
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }
    }
}
