//! Weights of trackable resources: `CPU=1.0,Mem=0.25G,GRES/gpu=16`.

use std::fmt;
use std::str::FromStr;

use super::tres::{Tres, TresKind};
use super::{ParseError, serde_as_text};

const WHAT: &str = "list of TRES weights";
const HELP: &str =
    "write CPU=N, Mem=N[K|M|G|T|P], Node=N, GRES/NAME[:TYPE]=N or License/NAME=N, separated by commas";
/// Number of bits that a weight's fraction has.
pub const FRACTION_BITS: u32 = 32;
const LARGEST: f64 = 4_294_967_295.0;

/// Unit to which a weight applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Per {
    /// One kibibyte of memory.
    Kibi,
    /// One mebibyte of memory, or one unit of any other resource.
    #[default]
    One,
    /// One gibibyte of memory.
    Gibi,
    /// One tebibyte of memory.
    Tebi,
    /// One pebibyte of memory.
    Pebi,
}

impl Per {
    const ALL: [(Per, &str); 5] =
        [(Per::Kibi, "K"), (Per::One, "M"), (Per::Gibi, "G"), (Per::Tebi, "T"), (Per::Pebi, "P")];

    /// Letter after a number; empty for the unit of a bare number.
    fn letter(self) -> &'static str {
        let mut units = Self::ALL.iter().filter(|(per, _)| *per != Per::One);
        units.find(|(per, _)| *per == self).map_or("", |(_, letter)| letter)
    }
}

/// Weight of one kind of resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Kind of resource.
    pub kind: TresKind,
    /// Weight as written, from -(2^32 - 1) to 2^32 - 1.
    pub number: f64,
    /// Unit to which the weight applies.
    pub per: Per,
}

impl Weight {
    /// The weight of one unit of the resource; of memory, the weight of one MiB.
    #[must_use]
    pub fn of_one(&self) -> f64 {
        match self.per {
            Per::Kibi => self.number * 1024.0,
            Per::One => self.number,
            Per::Gibi => self.number / 1024.0,
            Per::Tebi => self.number / (1024.0 * 1024.0),
            Per::Pebi => self.number / (1024.0 * 1024.0 * 1024.0),
        }
    }

    /// Weighted count of a resource, in units of 2^-32, rounded down. A count of memory is in mebibytes.
    #[must_use]
    pub fn times(&self, count: u64) -> i128 {
        #[expect(clippy::cast_possible_truncation, reason = "a weight is below 2^32 in amount")]
        let weight = (self.number * f64::from(2.0_f32.powi(32))).round() as i128;
        let product = weight.saturating_mul(i128::from(count));
        match self.per {
            Per::Kibi => product.saturating_mul(1 << 10),
            Per::One => product,
            Per::Gibi => product >> 10,
            Per::Tebi => product >> 20,
            Per::Pebi => product >> 30,
        }
    }
}

/// Weights by kind of resource, each kind at most once, in the order of [`TresKind`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TresWeights(Vec<Weight>);

impl TresWeights {
    /// The weights, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Weight> {
        self.0.iter()
    }

    /// True if no kind has a weight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a weight is below 0.
    #[must_use]
    pub fn has_negative(&self) -> bool {
        self.0.iter().any(|weight| weight.number < 0.0)
    }

    /// Each kind that has a weight, with its weighted count in units of 2^-32.
    pub fn of<'a>(&'a self, tres: &'a Tres) -> impl Iterator<Item = (&'a TresKind, i128)> {
        self.0.iter().map(|weight| (&weight.kind, weight.times(tres.get(&weight.kind))))
    }
}

impl fmt::Display for TresWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Weight { kind, number, per }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let unit = if *kind == TresKind::Mem { per.letter() } else { "" };
            let name = match kind {
                TresKind::Cpu => "CPU".to_owned(),
                TresKind::Mem => "Mem".to_owned(),
                TresKind::Node => "Node".to_owned(),
                TresKind::Billing => "Billing".to_owned(),
                TresKind::Gres { .. } => kind.to_string().replacen("gres/", "GRES/", 1),
                TresKind::License(name) => format!("License/{name}"),
            };
            write!(f, "{comma}{name}={number}{unit}")?;
        }
        Ok(())
    }
}

impl FromStr for TresWeights {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let mut weights: Vec<Weight> = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) =
                item.split_once('=').ok_or_else(|| refuse(format!("`{item}` has no weight")))?;
            let name = match name.split_once('/') {
                Some((class, name)) => format!("{}/{name}", class.to_ascii_lowercase()),
                None => name.to_ascii_lowercase(),
            };
            let kind: TresKind = name
                .parse()
                .ok()
                .filter(|kind| *kind != TresKind::Billing)
                .ok_or_else(|| refuse(format!("there is no resource `{name}` to weigh")))?;
            let letter = value.chars().last().filter(|_| kind == TresKind::Mem);
            let unit = Per::ALL.iter().find(|(_, unit)| {
                letter.is_some_and(|letter| unit.eq_ignore_ascii_case(&letter.to_string()))
            });
            let (number, per) = match unit {
                Some((per, unit)) => (&value[..value.len() - unit.len()], *per),
                None => (value, Per::One),
            };
            let number = number.parse().ok().filter(|number| (-LARGEST..=LARGEST).contains(number));
            let number = number
                .ok_or_else(|| refuse(format!("`{value}` is not a weight from -{LARGEST} to {LARGEST}")))?;
            if weights.iter().any(|known| known.kind == kind) {
                return Err(refuse(format!("`{kind}` comes twice")));
            }
            weights.push(Weight { kind, number, per });
        }
        weights.sort_by(|one, other| one.kind.cmp(&other.kind));
        Ok(Self(weights))
    }
}

serde_as_text!(TresWeights);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_weighed_by_its_unit() {
        let weights: TresWeights = "GRES/gpu=2,mem=0.25g,CPU=1.5".parse().unwrap();
        assert_eq!(weights.to_string(), "CPU=1.5,Mem=0.25G,GRES/gpu=2");
        assert_eq!(weights.to_string().parse::<TresWeights>().unwrap(), weights);
        assert_eq!("mem=5M".parse::<TresWeights>().unwrap().to_string(), "Mem=5");
        let tres: Tres = "cpu=3,mem=6G,gres/gpu=1".parse().unwrap();
        let of: Vec<i128> = weights.of(&tres).map(|(_, weighted)| weighted).collect();
        assert_eq!(of, [9 << 31, 3 << 31, 2 << 32]);
        let by_kib: TresWeights = "Mem=1K".parse().unwrap();
        assert_eq!(by_kib.of(&"mem=1".parse().unwrap()).map(|(_, all)| all).sum::<i128>(), 1 << 42);
        assert!(!weights.has_negative());
        let discount: TresWeights = "CPU=1,Mem=-0.5G".parse().unwrap();
        assert_eq!((discount.to_string().as_str(), discount.has_negative()), ("CPU=1,Mem=-0.5G", true));
        assert_eq!(
            discount.of(&tres).map(|(_, weighted)| weighted).collect::<Vec<_>>(),
            [3 << 32, -(3 << 32)]
        );
    }

    #[test]
    fn a_weight_that_cannot_be_read_is_refused() {
        for text in
            ["CPU", "CPU=x", "foo=1", "CPU=1,cpu=2", "CPU=-4294967296", "CPU=1G", "billing=1", "CPU=nan"]
        {
            assert!(text.parse::<TresWeights>().is_err(), "{text}");
        }
    }
}
