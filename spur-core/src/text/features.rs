//! Constraints on the features of nodes: `ib&(intel|amd)`, `[rack1|rack2]`, `[rack1*2&rack2*4]`.

use std::fmt;
use std::str::FromStr;

use nom::branch::alt;
use nom::bytes::complete::take_while1;
use nom::character::complete::{char, digit1, multispace0, one_of};
use nom::combinator::{all_consuming, cut, map, map_opt, opt, verify};
use nom::multi::many0;
use nom::sequence::{delimited, preceded};
use nom::{IResult, Parser};

use super::{ParseError, serde_as_text};

const WHAT: &str = "constraint";
const HELP: &str = "write features with `&`, `|`, parentheses, NAME*COUNT, and [a|b] for a choice that all \
                    nodes share, e.g. `ib&(intel|amd)`";
/// Most opening parentheses and brackets of an expression as written, and again in the form that is printed.
const MAX_DEPTH: usize = 32;
/// Most counts in one expression.
pub const MAX_COUNTS: usize = 8;
/// Most combinations of alternatives in one expression.
pub const MAX_CHOICES: usize = 64;

/// An expression over the features of nodes. `&` and `|` have the same precedence and group from left to
/// right, as in Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FeatureExpr {
    /// The node has the feature.
    Name(String),
    /// The node meets all members; at least two.
    And(Vec<FeatureExpr>),
    /// The node meets one of the members; at least two.
    Or(Vec<FeatureExpr>),
    /// At least this number of the job's nodes meet the expression, written `name*count`.
    Count(Box<FeatureExpr>, u32),
    /// An expression in brackets. With `[a|b]` all nodes of the job meet the same alternative; with
    /// `[a*2&b*4]` every count holds.
    Group(Box<FeatureExpr>),
}

impl FeatureExpr {
    /// Reads preferred features (`--prefer`), which may have no counts.
    ///
    /// # Errors
    /// [`ParseError`] for a text that is no expression, or that has a count.
    pub fn wish(text: &str) -> Result<FeatureExpr, ParseError> {
        let wish: FeatureExpr = text.parse()?;
        match wish.counts().is_empty() {
            true => Ok(wish),
            false => Err(ParseError::new("wish", text, "a count is no wish", "ask for it with --constraint")),
        }
    }

    /// True if a node with these features may be one of the job's nodes.
    ///
    /// A count outside brackets admits any node, because it leaves the other nodes free. Counts in brackets
    /// divide the job's nodes among them, so that a node must meet one of them.
    pub fn admits(&self, has: &dyn Fn(&str) -> bool) -> bool {
        match self {
            FeatureExpr::Name(name) => has(name),
            FeatureExpr::And(members) => members.iter().all(|m| m.admits(has)),
            FeatureExpr::Or(members) => members.iter().any(|m| m.admits(has)),
            FeatureExpr::Count(..) => true,
            FeatureExpr::Group(inner) => inner.admits_a_share(has),
        }
    }

    /// True if a node with these features meets a part of an expression in brackets.
    fn admits_a_share(&self, has: &dyn Fn(&str) -> bool) -> bool {
        match self {
            FeatureExpr::And(members) => {
                let (counts, rest): (Vec<_>, Vec<_>) =
                    members.iter().partition(|m| matches!(m, FeatureExpr::Count(..)));
                let served = counts.is_empty() || counts.iter().any(|m| m.admits_a_share(has));
                served && rest.iter().all(|m| m.admits_a_share(has))
            }
            FeatureExpr::Or(members) => members.iter().any(|m| m.admits_a_share(has)),
            FeatureExpr::Count(inner, _) | FeatureExpr::Group(inner) => inner.admits_a_share(has),
            FeatureExpr::Name(name) => has(name),
        }
    }

    /// Counts that the job as a whole must meet: at least this number of its nodes meet that expression.
    pub fn counts(&self) -> Vec<(&FeatureExpr, u32)> {
        match self {
            FeatureExpr::Name(_) | FeatureExpr::Or(_) => Vec::new(),
            FeatureExpr::And(members) => members.iter().flat_map(FeatureExpr::counts).collect(),
            FeatureExpr::Count(inner, count) => vec![(inner, *count)],
            FeatureExpr::Group(inner) => inner.counts(),
        }
    }

    /// Alternatives of each `[a|b]`, of which all nodes of the job must meet the same one.
    fn shared_choices(&self) -> Vec<&[FeatureExpr]> {
        match self {
            FeatureExpr::And(members) => members.iter().flat_map(FeatureExpr::shared_choices).collect(),
            FeatureExpr::Group(inner) => match &**inner {
                FeatureExpr::Or(members) => vec![members],
                _ => Vec::new(),
            },
            FeatureExpr::Name(_) | FeatureExpr::Or(_) | FeatureExpr::Count(..) => Vec::new(),
        }
    }

    /// Every way to choose one alternative of each `[a|b]` for all nodes of the job, in the order of the
    /// text.
    ///
    /// A single empty choice is returned if there is nothing to choose.
    #[must_use]
    pub fn shared(&self) -> Vec<Vec<&FeatureExpr>> {
        let mut ways = vec![Vec::new()];
        for choice in self.shared_choices() {
            let with = |way: &Vec<_>, one| way.iter().copied().chain([one]).collect::<Vec<_>>();
            ways = ways.iter().flat_map(|way| choice.iter().map(|one| with(way, one))).collect();
        }
        ways
    }

    /// The reason to refuse the expression; `None` if there is none. Every count and every bracket must hold
    /// for the job as a whole.
    fn nonsense(&self) -> Option<String> {
        let choices = self.shared_choices().iter().map(|choice| choice.len()).product::<usize>();
        let counts = self.counts().len();
        if self.is_misplaced(Place::Top) {
            return Some("a count or a bracket stands where it cannot hold for the whole job".to_owned());
        }
        if counts > MAX_COUNTS {
            return Some(format!("there are {counts} counts, more than {MAX_COUNTS}"));
        }
        (choices > MAX_CHOICES)
            .then(|| format!("there are {choices} combinations of alternatives, more than {MAX_CHOICES}"))
    }

    /// True if a count or a bracket is below a part that need not hold for a node.
    fn is_misplaced(&self, place: Place) -> bool {
        match self {
            FeatureExpr::Name(_) => false,
            FeatureExpr::And(members) => members.iter().any(|member| member.is_misplaced(place)),
            FeatureExpr::Or(members) => members.iter().any(|member| member.is_misplaced(Place::Below)),
            FeatureExpr::Count(inner, _) => place == Place::Below || inner.is_misplaced(Place::Below),
            FeatureExpr::Group(inner) => place != Place::Top || inner.is_misplaced(Place::Brackets),
        }
    }

    /// All features that the expression names, in the order of the text.
    pub fn names(&self) -> Vec<&str> {
        match self {
            FeatureExpr::Name(name) => vec![name],
            FeatureExpr::And(members) | FeatureExpr::Or(members) => {
                members.iter().flat_map(FeatureExpr::names).collect()
            }
            FeatureExpr::Count(inner, _) | FeatureExpr::Group(inner) => inner.names(),
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, FeatureExpr::And(_) | FeatureExpr::Or(_))
    }
}

/// Position of a part in the expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The part must hold.
    Top,
    /// The part must hold and is in brackets.
    Brackets,
    /// The part need not hold.
    Below,
}

impl fmt::Display for FeatureExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (members, operator) = match self {
            FeatureExpr::Name(name) => return f.write_str(name),
            FeatureExpr::Count(inner, count) if inner.is_list() => return write!(f, "({inner})*{count}"),
            FeatureExpr::Count(inner, count) => return write!(f, "{inner}*{count}"),
            FeatureExpr::Group(inner) => return write!(f, "[{inner}]"),
            FeatureExpr::And(members) => (members, '&'),
            FeatureExpr::Or(members) => (members, '|'),
        };
        for (i, member) in members.iter().enumerate() {
            if i > 0 {
                write!(f, "{operator}")?;
            }
            if member.is_list() { write!(f, "({member})")? } else { write!(f, "{member}")? }
        }
        Ok(())
    }
}

impl FromStr for FeatureExpr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<FeatureExpr, ParseError> {
        let refuse = |problem: &str| ParseError::new(WHAT, text, problem, HELP);
        let is_too_deep = |text: &str| text.chars().filter(|c| "([".contains(*c)).count() > MAX_DEPTH;
        if is_too_deep(text) {
            return Err(refuse("there are too many parentheses"));
        }
        let parsed = all_consuming(delimited(multispace0, expression, multispace0)).parse(text);
        let expr = parsed.map(|(_, expr)| expr).map_err(|error| {
            let rest = match error {
                nom::Err::Error(e) | nom::Err::Failure(e) => e.input,
                nom::Err::Incomplete(_) => "",
            };
            match (text.trim().is_empty(), rest.is_empty()) {
                (true, _) => refuse("it is empty"),
                (_, true) => refuse("it ends too early"),
                _ => refuse(&format!("it goes wrong at `{rest}`")),
            }
        })?;
        // Each change from one operator to the other is a pair of parentheses when the expression is written
        // again, as in the journal.
        if is_too_deep(&expr.to_string()) {
            return Err(refuse("`&` and `|` take turns too often"));
        }
        expr.nonsense().map_or(Ok(expr), |problem| Err(refuse(&problem)))
    }
}

serde_as_text!(FeatureExpr);

fn expression(input: &str) -> IResult<&str, FeatureExpr> {
    let (rest, first) = counted(input)?;
    let operator = delimited(multispace0, one_of("&|,"), multispace0);
    map(many0((operator, cut(counted))), move |more| {
        more.into_iter().fold(first.clone(), |left, (operator, right)| {
            combine(left, if operator == ',' { '&' } else { operator }, right)
        })
    })
    .parse(rest)
}

/// Returns `left operator right`, as one list while the operator stays the same.
fn combine(left: FeatureExpr, operator: char, right: FeatureExpr) -> FeatureExpr {
    match (left, operator) {
        (FeatureExpr::And(mut members), '&') => {
            members.push(right);
            FeatureExpr::And(members)
        }
        (FeatureExpr::Or(mut members), '|') => {
            members.push(right);
            FeatureExpr::Or(members)
        }
        (left, '&') => FeatureExpr::And(vec![left, right]),
        (left, _) => FeatureExpr::Or(vec![left, right]),
    }
}

fn counted(input: &str) -> IResult<&str, FeatureExpr> {
    let count = map_opt(digit1, |digits: &str| digits.parse::<u32>().ok());
    let count = opt(preceded(char('*'), cut(verify(count, |&n| n > 0))));
    map((atom, count), |(atom, count)| match count {
        Some(count) => FeatureExpr::Count(Box::new(atom), count),
        None => atom,
    })
    .parse(input)
}

fn atom(input: &str) -> IResult<&str, FeatureExpr> {
    let name = take_while1(|c: char| !"&|()[]*,".contains(c) && !c.is_whitespace());
    let inner = |input| delimited(multispace0, cut(expression), multispace0).parse(input);
    alt((
        map(name, |name: &str| FeatureExpr::Name(name.to_owned())),
        delimited(char('('), inner, cut(char(')'))),
        map(delimited(char('['), inner, cut(char(']'))), |inner| FeatureExpr::Group(Box::new(inner))),
    ))
    .parse(input)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_taken_can_be_read_again() {
        let turns = |count: usize| format!("a{}", "&b|a".repeat(count));
        for count in 1..=16 {
            let expr: FeatureExpr = turns(count).parse().unwrap();
            assert_eq!(expr.to_string().parse::<FeatureExpr>().unwrap(), expr);
        }
        let refused = turns(17).parse::<FeatureExpr>().unwrap_err();
        assert!(refused.to_string().contains("take turns too often"), "{refused}");
    }

    #[test]
    fn spellings() {
        for (text, shown) in [
            ("ib", "ib"),
            ("a & b", "a&b"),
            ("a, b,(c|d)", "a&b&(c|d)"),
            ("a&b|c", "(a&b)|c"),
            ("a|b&c", "(a|b)&c"),
            ("a&(b|c)", "a&(b|c)"),
            ("((a))", "a"),
            ("(a&b)&c", "a&b&c"),
            ("[rack1|rack2]", "[rack1|rack2]"),
            ("[rack1*2&rack2*4]", "[rack1*2&rack2*4]"),
            ("[(knl&snc4)*4&haswell*1]&ib", "[(knl&snc4)*4&haswell*1]&ib"),
            ("pod-a/r1", "pod-a/r1"),
        ] {
            let expr: FeatureExpr = text.parse().unwrap();
            assert_eq!(expr.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(expr));
        }
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("", "it is empty"),
            ("a&", "it ends too early"),
            ("(a", "it ends too early"),
            ("a)", "it goes wrong at `)`"),
            ("&a", "it goes wrong at `&a`"),
            ("a*0", "it goes wrong at `0`"),
            ("a*b", "it goes wrong at `b`"),
            ("a b", "it goes wrong at `b`"),
            ("a*2|b", "a count or a bracket stands where it cannot hold for the whole job"),
            ("[a*2|b*3]", "a count or a bracket stands where it cannot hold for the whole job"),
            ("(a*2&b)*3", "a count or a bracket stands where it cannot hold for the whole job"),
            ("[a|b]|c", "a count or a bracket stands where it cannot hold for the whole job"),
            ("[a|b]*2", "a count or a bracket stands where it cannot hold for the whole job"),
            ("[a&[b|c]]", "a count or a bracket stands where it cannot hold for the whole job"),
            ("a*1&b*1&c*1&d*1&e*1&f*1&g*1&h*1&i*1", "there are 9 counts, more than 8"),
            (
                "[a|b]&[a|b]&[a|b]&[a|b]&[a|b]&[a|b]&[a|b]",
                "there are 128 combinations of alternatives, more than 64",
            ),
        ] {
            assert_eq!(text.parse::<FeatureExpr>().unwrap_err().problem, problem, "{text}");
        }
        assert!("(".repeat(1000).parse::<FeatureExpr>().is_err());
    }

    #[test]
    fn nodes_are_admitted() {
        for (text, features, expected) in [
            ("ib", "ib", true),
            ("ib", "", false),
            ("ib&gpu", "ib", false),
            ("ib&(intel|amd)", "ib amd", true),
            ("[rack1|rack2]", "rack2", true),
            ("[rack1*2&rack2*4]", "rack2", true),
            ("[rack1*2&rack2*4]", "rack3", false),
            ("ib*2&amd", "ib", false),
            ("ib*2&amd", "amd", true),
            ("graphics*4", "", true),
            ("[(rack1|rack2)*1&rack3*2]", "rack2", true),
            ("[(rack1|rack2)*1&rack3*2]&ib", "rack3", false),
            ("[rack1*2&rack2*4&ib]", "rack2", false),
            ("[rack1*2&rack2*4&ib]", "rack2 ib", true),
        ] {
            let has = |name: &str| features.split(' ').any(|feature| feature == name);
            assert_eq!(text.parse::<FeatureExpr>().unwrap().admits(&has), expected, "{text}");
        }
    }

    #[test]
    fn counts_and_choices() {
        let expr: FeatureExpr = "[rack1*2&(a|b)*4]&ib".parse().unwrap();
        let counts: Vec<_> = expr.counts().iter().map(|(e, n)| format!("{e}={n}")).collect();
        assert_eq!(counts, ["rack1=2", "a|b=4"]);
        assert_eq!(expr.names(), ["rack1", "a", "b", "ib"]);
        let shared = |expr: &FeatureExpr| -> Vec<String> {
            let shown = |way: Vec<&FeatureExpr>| way.iter().map(ToString::to_string).collect::<Vec<_>>();
            expr.shared().into_iter().map(|way| shown(way).join("+")).collect()
        };
        assert_eq!(shared(&expr), [""]);
        assert_eq!(shared(&"[r1|r2|r3]&ib".parse().unwrap()), ["r1", "r2", "r3"]);
        assert_eq!(shared(&"[a|b]&ib&[c|(d&e)]".parse().unwrap()), ["a+c", "a+d&e", "b+c", "b+d&e"]);
    }

    fn expr() -> impl Strategy<Value = FeatureExpr> {
        "[a-z][a-z0-9_/-]{0,4}"
            .prop_map(FeatureExpr::Name)
            .prop_recursive(3, 16, 4, |inner| {
                let members = |wrong: fn(&FeatureExpr) -> bool, inner: BoxedStrategy<FeatureExpr>| {
                    prop::collection::vec(inner.prop_filter("flat", move |m| !wrong(m)), 2..4)
                };
                let inner = inner.boxed();
                let uncounted = |e: &FeatureExpr| !matches!(e, FeatureExpr::Count(..));
                prop_oneof![
                    members(|m| matches!(m, FeatureExpr::And(_)), inner.clone()).prop_map(FeatureExpr::And),
                    members(|m| matches!(m, FeatureExpr::Or(_)), inner.clone()).prop_map(FeatureExpr::Or),
                    (inner.clone().prop_filter("once", uncounted), 1_u32..)
                        .prop_map(|(e, n)| FeatureExpr::Count(Box::new(e), n)),
                    inner.prop_map(|e| FeatureExpr::Group(Box::new(e))),
                ]
            })
            .prop_filter("it makes sense", |expr| expr.nonsense().is_none())
    }

    proptest! {
        #[test]
        fn round_trip(expr in expr()) {
            prop_assert_eq!(expr.to_string().parse(), Ok(expr));
        }
    }
}
