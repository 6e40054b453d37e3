//! Topological requests of a job: `--gather`, `--het-gather`, `--switches`, `--placement` and `--network`,
//! with the link speeds and latencies that they are compared with.

use std::fmt;
use std::str::FromStr;

use super::nearest::nearest;
use super::number::{self, Unit};
use super::time::TimeLimit;
use super::{ParseError, serde_as_text};

const GATHER: &str = "gather list";
const GATHER_HELP: &str = "write a list of must:LAYER[@TIME], prefer:LAYER and LAYER*M, e.g. \
                           `must:spine,prefer:block,block*8`";
const HET_HELP: &str = "write a list of [must:|prefer:]LAYER, e.g. `must:spine,prefer:block`";

/// One clause of `--gather`. Layers are names; the fabric decides whether a layer exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GatherClause {
    /// Requires the whole job in one domain of the layer, written `must:LAYER[@TIME]`. With a time, the
    /// clause becomes a preference that long after the job became eligible.
    Must {
        /// Name of the layer.
        layer: String,
        /// Time after which the clause becomes a preference; `None` for never.
        until: Option<TimeLimit>,
    },
    /// Prefers as few domains of the layer as possible and never makes the job wait, written `prefer:LAYER`.
    Prefer {
        /// Name of the layer.
        layer: String,
    },
    /// Requires a multiple of M tasks or nodes in every domain of the layer that the job uses, written
    /// `LAYER*M`.
    Multiple {
        /// Name of the layer.
        layer: String,
        /// The multiple M, at least 1.
        multiple: u32,
    },
}

impl GatherClause {
    /// Name of the clause's layer.
    pub fn layer(&self) -> &str {
        match self {
            GatherClause::Must { layer, .. }
            | GatherClause::Prefer { layer }
            | GatherClause::Multiple { layer, .. } => layer,
        }
    }
}

impl fmt::Display for GatherClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatherClause::Must { layer, until: None } => write!(f, "must:{layer}"),
            GatherClause::Must { layer, until: Some(time) } => write!(f, "must:{layer}@{time}"),
            GatherClause::Prefer { layer } => write!(f, "prefer:{layer}"),
            GatherClause::Multiple { layer, multiple } => write!(f, "{layer}*{multiple}"),
        }
    }
}

impl FromStr for GatherClause {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GatherClause, ParseError> {
        let refuse = |problem: String| ParseError::new(GATHER, text, problem, GATHER_HELP);
        let layer = |name: &str| check_layer(name).map_err(refuse);
        match text.split_once(':') {
            Some(("must", rest)) => {
                let (name, until) = match rest.split_once('@') {
                    Some((name, time)) => (name, Some(time)),
                    None => (rest, None),
                };
                let until = until.map(|time| time.parse().map_err(time_problem)).transpose();
                Ok(GatherClause::Must { layer: layer(name)?, until: until.map_err(refuse)? })
            }
            Some(("prefer", rest)) if rest.contains('@') => {
                Err(refuse("a preference never waits, so it takes no time".to_owned()))
            }
            Some(("prefer", rest)) => Ok(GatherClause::Prefer { layer: layer(rest)? }),
            Some((word, rest)) => Err(refuse(match nearest(word, ["must", "prefer"]) {
                Some(known) => format!("there is no `{word}`; did you mean `{known}:{rest}`?"),
                None => format!("there is no `{word}`"),
            })),
            None => match text.split_once('*') {
                Some((name, multiple)) => {
                    let multiple = number::integer32(multiple).ok().filter(|&m| m > 0);
                    let multiple = multiple.ok_or_else(|| {
                        refuse(format!("the multiple M of `{text}` is missing or not a number above 0"))
                    })?;
                    Ok(GatherClause::Multiple { layer: layer(name)?, multiple })
                }
                None if text.is_empty() => Err(refuse("a clause is empty".to_owned())),
                None => Err(refuse(format!("`{text}` does not say how: write must:{text} or prefer:{text}"))),
            },
        }
    }
}

/// Value of `--gather`: at least one clause, all of which hold together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// Clauses in the order given, which is the order of preference.
    pub clauses: Vec<GatherClause>,
}

impl fmt::Display for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.clauses)
    }
}

impl FromStr for Gather {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Gather, ParseError> {
        if text.trim().is_empty() {
            return Err(ParseError::new(GATHER, text, "the list is empty", GATHER_HELP));
        }
        let clauses = text.split(',').map(|clause| clause.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Gather { clauses })
    }
}

/// One clause of `--het-gather`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HetClause {
    /// Layer of which one domain should hold all components.
    pub layer: String,
    /// True for a requirement, false for a preference.
    pub must: bool,
}

/// Value of `--het-gather`: layers in which the components of a het job should be together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HetGather {
    /// Clauses in the order given.
    pub clauses: Vec<HetClause>,
}

impl fmt::Display for HetClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.must { "must" } else { "prefer" }, self.layer)
    }
}

impl fmt::Display for HetGather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.clauses)
    }
}

impl FromStr for HetGather {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<HetGather, ParseError> {
        let refuse = |problem: String| ParseError::new("het gather list", text, problem, HET_HELP);
        if text.trim().is_empty() {
            return Err(refuse("the list is empty".to_owned()));
        }
        let clause = |item: &str| {
            let (must, name) = match item.split_once(':') {
                Some(("must", name)) => (true, name),
                Some(("prefer", name)) => (false, name),
                Some((word, _)) => return Err(refuse(format!("there is no `{word}`"))),
                None => (true, item),
            };
            Ok(HetClause { layer: check_layer(name).map_err(refuse)?, must })
        };
        let clauses = text.split(',').map(|item| clause(item.trim())).collect::<Result<_, _>>()?;
        Ok(HetGather { clauses })
    }
}

/// Value of `--switches=N[@TIME]`: most leaf switches of the job, for ever or until that long after the job
/// became eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switches {
    /// Most leaf switches, at least 1.
    pub count: u32,
    /// Time after which the limit is dropped; `None` for never.
    pub wait: Option<TimeLimit>,
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Some(wait) => write!(f, "{}@{wait}", self.count),
            None => write!(f, "{}", self.count),
        }
    }
}

impl FromStr for Switches {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Switches, ParseError> {
        const HELP: &str = "write N[@TIME] with N at least 1, e.g. `1@30`";
        let refuse = |problem: String| ParseError::new("switch count", text, problem, HELP);
        let (count, wait) = match text.split_once('@') {
            Some((count, wait)) => (count, Some(wait)),
            None => (text, None),
        };
        let count = number::integer32(count).map_err(|e| refuse(e.to_string()))?;
        if count == 0 {
            return Err(refuse("a job uses at least one leaf".to_owned()));
        }
        let wait = wait.map(|time| time.parse().map_err(time_problem)).transpose().map_err(refuse)?;
        Ok(Switches { count, wait })
    }
}

/// Rule that spreads a job's nodes over the domains it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Uses the fewest domains, and fills them completely first.
    #[default]
    Consolidated,
    /// Uses the fewest domains, and fills them evenly.
    Balanced,
    /// Uses the most domains, and fills them evenly.
    Distributed,
}

impl Placement {
    /// All placements, in the order of declaration.
    pub const ALL: [Placement; 3] = [Placement::Consolidated, Placement::Balanced, Placement::Distributed];

    /// The placement's name, e.g. `balanced`.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Consolidated => "consolidated",
            Placement::Balanced => "balanced",
            Placement::Distributed => "distributed",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Placement, ParseError> {
        let found = Placement::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let help = "write consolidated, balanced or distributed";
            ParseError::new("placement", text, "there is no such placement", help)
        })
    }
}

/// Value of `--network`, e.g. `bw=200G,latency`: requirements on the links of the domains used. At least one
/// of the two is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetworkNeed {
    /// Lowest speed that every link must have; `None` for any.
    pub bandwidth: Option<LinkSpeed>,
    /// True if domains whose links have the lowest latency are preferred.
    pub latency: bool,
}

impl fmt::Display for NetworkNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bandwidth, self.latency) {
            (Some(speed), true) => write!(f, "bw={speed},latency"),
            (Some(speed), false) => write!(f, "bw={speed}"),
            (None, true) => f.write_str("latency"),
            (None, false) => Ok(()),
        }
    }
}

impl FromStr for NetworkNeed {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<NetworkNeed, ParseError> {
        const HELP: &str = "write bw=SPEED, latency or both with a comma, e.g. `bw=200G,latency`";
        let refuse = |problem: String| ParseError::new("network need", text, problem, HELP);
        let mut need = NetworkNeed { bandwidth: None, latency: false };
        for item in text.split(',') {
            match item.split_once('=') {
                Some(("bw", speed)) => {
                    need.bandwidth = Some(speed.parse().map_err(|e: ParseError| refuse(e.problem))?);
                }
                None if item == "latency" => need.latency = true,
                _ => return Err(refuse(format!("there is no `{item}`"))),
            }
        }
        Ok(need)
    }
}

const SPEED_UNITS: &[Unit] = &[
    ("bps", 1),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("Tbps", 1_000_000_000_000),
];
const LATENCY_UNITS: &[Unit] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Speed of a link in bits per second. It reads `400G`, `1.6T` and `100Mbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed(pub u64);

/// Latency of a link in nanoseconds. It reads `2us`, `1.5us` and `800ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Latency(pub u64);

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = number::largest_unit(self.0, &SPEED_UNITS[..5]);
        f.pad(&format!("{count}{unit}"))
    }
}

impl FromStr for LinkSpeed {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<LinkSpeed, ParseError> {
        number::with_unit(text, SPEED_UNITS).map(LinkSpeed).map_err(|e| {
            let help = "write a number with K, M, G or T for bits per second, e.g. `400G`";
            ParseError::new("link speed", text, e.to_string(), help)
        })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = number::largest_unit(self.0, LATENCY_UNITS);
        f.pad(&format!("{count}{unit}"))
    }
}

impl FromStr for Latency {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Latency, ParseError> {
        number::with_unit(text, LATENCY_UNITS).map(Latency).map_err(|e| {
            let help = "write a number with ns, us, ms or s, e.g. `2us`";
            ParseError::new("latency", text, e.to_string(), help)
        })
    }
}

serde_as_text!(GatherClause, Gather, HetGather, Switches, Placement, NetworkNeed, LinkSpeed, Latency);

/// True if `name` can be the name of a layer: letters, digits, `_`, `-` and `.`.
pub fn is_layer_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn check_layer(name: &str) -> Result<String, String> {
    match name {
        "" => Err("the name of the layer is missing".to_owned()),
        _ if is_layer_name(name) => Ok(name.to_owned()),
        _ => Err(format!("`{name}` cannot be the name of a layer")),
    }
}

fn time_problem(error: ParseError) -> String {
    format!("`{}` is no time: {}", error.input, error.problem)
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem<T: FromStr<Err = ParseError> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().problem
    }

    #[test]
    fn gather_lists() {
        let gather: Gather = "must:spine@30,prefer:block,block*8".parse().unwrap();
        assert_eq!(gather.to_string(), "must:spine@30:00,prefer:block,block*8");
        assert_eq!(
            gather.clauses[0],
            GatherClause::Must { layer: "spine".into(), until: Some(TimeLimit::Seconds(1800)) }
        );
        assert_eq!(gather.clauses[2].layer(), "block");
    }

    #[test]
    fn gather_refusals() {
        for (text, expected) in [
            ("", "the list is empty"),
            ("must:spine,", "a clause is empty"),
            ("must:", "the name of the layer is missing"),
            ("spine", "`spine` does not say how: write must:spine or prefer:spine"),
            ("block*", "the multiple M of `block*` is missing or not a number above 0"),
            ("block*0", "the multiple M of `block*0` is missing or not a number above 0"),
            ("mst:leaf", "there is no `mst`; did you mean `must:leaf`?"),
            ("should:leaf", "there is no `should`"),
            ("prefer:leaf@5", "a preference never waits, so it takes no time"),
            ("must:leaf@soon", "`soon` is no time: a number is expected"),
            ("must:a b", "`a b` cannot be the name of a layer"),
            ("must:block*8", "`block*8` cannot be the name of a layer"),
        ] {
            assert_eq!(problem::<Gather>(text), expected, "{text}");
        }
    }

    #[test]
    fn het_gather_takes_bare_layers() {
        let het: HetGather = "spine,prefer:leaf".parse().unwrap();
        assert_eq!(het.to_string(), "must:spine,prefer:leaf");
        assert_eq!(problem::<HetGather>("any:leaf"), "there is no `any`");
        assert_eq!(problem::<HetGather>(" "), "the list is empty");
    }

    #[test]
    fn switches() {
        for (text, shown) in
            [("1", "1"), ("2@30", "2@30:00"), ("3@1-0", "3@1-00:00:00"), ("1@-1", "1@UNLIMITED")]
        {
            assert_eq!(text.parse::<Switches>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "0", "-1", "1@", "@5", "1@x", "4294967296"] {
            assert!(text.parse::<Switches>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_and_links() {
        for text in ["bw=200G", "latency", "bw=1600G,latency"] {
            assert_eq!(text.parse::<NetworkNeed>().unwrap().to_string(), text);
        }
        assert_eq!("1.6T".parse(), Ok(LinkSpeed(1_600_000_000_000)));
        assert_eq!("400Gbps".parse::<LinkSpeed>().unwrap().to_string(), "400G");
        assert_eq!("1.5us".parse(), Ok(Latency(1500)));
        for text in ["", "bw", "bw=", "bw=200", "speed=1G", "latency=1us"] {
            assert!(text.parse::<NetworkNeed>().is_err(), "{text}");
        }
    }

    #[test]
    fn placements() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        assert!("packed".parse::<Placement>().is_err());
    }

    fn clause() -> impl Strategy<Value = GatherClause> {
        let layer = || "[a-z][a-z0-9_.-]{0,8}";
        let until = prop::option::of((0_u64..1_000_000).prop_map(TimeLimit::Seconds));
        prop_oneof![
            (layer(), until).prop_map(|(layer, until)| GatherClause::Must { layer, until }),
            layer().prop_map(|layer| GatherClause::Prefer { layer }),
            (layer(), 1_u32..).prop_map(|(layer, multiple)| GatherClause::Multiple { layer, multiple }),
        ]
    }

    proptest! {
        #[test]
        fn gather_round_trip(clauses in prop::collection::vec(clause(), 1..5)) {
            let gather = Gather { clauses };
            prop_assert_eq!(gather.to_string().parse(), Ok(gather));
        }

        #[test]
        fn links_round_trip(speed: u64, latency: u64) {
            prop_assert_eq!(LinkSpeed(speed).to_string().parse(), Ok(LinkSpeed(speed)));
            prop_assert_eq!(Latency(latency).to_string().parse(), Ok(Latency(latency)));
        }
    }
}
