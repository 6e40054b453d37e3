//! A site's own score of a domain: an arithmetic expression, parsed once and evaluated for each domain.
//!
//! ```text
//! expression = term { ("+" | "-") term }
//! term       = factor { ("*" | "/") factor }
//! factor     = number | name | "-" factor | "(" expression ")"
//! ```
//!
//! All values are millionths in 64 bits. Every operation saturates, and a division by 0 gives 0. So every
//! expression has a value for every domain, and the same value on every machine.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ParseError;
use super::nearest::nearest;

/// The number one, in millionths.
pub const ONE: i64 = 1_000_000;
const HELP: &str =
    "write numbers and names with + - * / and parentheses, e.g. `topology_alignment - layer / 10`";
/// The most bytes of an expression.
const MOST_BYTES: usize = 1_000;
/// The largest depth to which parentheses and signs may be nested.
const MOST_NESTED: usize = 32;
/// The most digits on each side of the point of a number.
const MOST_DIGITS: usize = 12;

/// The names that an expression may contain: facts about the domain that would hold a job, in the order of
/// [`Facts`].
pub const NAMES: [&str; 8] = [
    "resource_availability",
    "topology_alignment",
    "domain_utilisation",
    "past_performance",
    "free_nodes",
    "total_nodes",
    "free_slots",
    "layer",
];

/// The number of `domain_utilisation` among [`NAMES`].
const UTILISATION: usize = 2;

/// The value of each of [`NAMES`], in millionths.
pub type Facts = [i64; NAMES.len()];

/// An expression, with the text that it was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Score {
    text: Arc<str>,
    /// In the order of evaluation: operands before their operator.
    steps: Arc<[Step]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Number(i64),
    Fact(usize),
    Negate,
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Score {
    /// The value for a domain, in millionths.
    #[must_use]
    pub fn value(&self, facts: &Facts) -> i64 {
        let mut stack: Vec<i64> = Vec::with_capacity(self.steps.len());
        for step in &*self.steps {
            let value = match step {
                Step::Number(number) => *number,
                Step::Fact(fact) => facts[*fact],
                Step::Negate => stack.pop().unwrap_or(0).saturating_neg(),
                Step::Add | Step::Subtract | Step::Multiply | Step::Divide => {
                    let (right, left) = (stack.pop().unwrap_or(0), stack.pop().unwrap_or(0));
                    match step {
                        Step::Add => left.saturating_add(right),
                        Step::Subtract => left.saturating_sub(right),
                        Step::Multiply => narrow(i128::from(left) * i128::from(right) / i128::from(ONE)),
                        _ => (i128::from(left) * i128::from(ONE)).checked_div(right.into()).map_or(0, narrow),
                    }
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(0)
    }

    /// True if the value depends on which nodes of a domain run something.
    #[must_use]
    pub fn minds_others(&self) -> bool {
        self.steps.contains(&Step::Fact(UTILISATION))
    }
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl Display for Score {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Score> for String {
    fn from(score: Score) -> String {
        score.text.to_string()
    }
}

impl TryFrom<String> for Score {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl FromStr for Score {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = |problem: String| ParseError::new("score", text, problem, HELP);
        if text.len() > MOST_BYTES {
            return Err(wrong(format!("it is {} bytes long; at most {MOST_BYTES} are read", text.len())));
        }
        let mut reader = Reader { text, at: 0, steps: Vec::new() };
        reader.expression(0).map_err(wrong)?;
        reader.skip_blanks();
        match reader.rest().chars().next() {
            None => Ok(Self { text: text.into(), steps: reader.steps.into() }),
            Some(other) => Err(wrong(format!("`{other}` stands where an operator or the end is expected"))),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    steps: Vec<Step>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Consumes the next character after blanks if it is one of `signs`; `None` otherwise.
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        self.skip_blanks();
        let next = self.rest().chars().next().filter(|next| signs.contains(next))?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Consumes the characters up to the first that does not belong to a word.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|next| !belongs(next)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn expression(&mut self, depth: usize) -> Result<(), String> {
        self.term(depth)?;
        while let Some(sign) = self.sign(&['+', '-']) {
            self.term(depth)?;
            self.steps.push(if sign == '+' { Step::Add } else { Step::Subtract });
        }
        Ok(())
    }

    fn term(&mut self, depth: usize) -> Result<(), String> {
        self.factor(depth)?;
        while let Some(sign) = self.sign(&['*', '/']) {
            self.factor(depth)?;
            self.steps.push(if sign == '*' { Step::Multiply } else { Step::Divide });
        }
        Ok(())
    }

    fn factor(&mut self, depth: usize) -> Result<(), String> {
        if depth > MOST_NESTED {
            return Err(format!("parentheses and signs are nested more than {MOST_NESTED} deep"));
        }
        match self.sign(&['-', '(']) {
            Some('-') => {
                self.factor(depth + 1)?;
                self.steps.push(Step::Negate);
                return Ok(());
            }
            Some(_) => {
                self.expression(depth + 1)?;
                return self.sign(&[')']).map(|_| ()).ok_or_else(|| "a `)` is missing".to_owned());
            }
            None => {}
        }
        match self.rest().chars().next() {
            None => Err("a number or a name is missing at the end".to_owned()),
            Some(next) if next.is_ascii_digit() => {
                let word = self.word(|next| next.is_ascii_digit() || next == '.');
                self.steps.push(Step::Number(number(word)?));
                Ok(())
            }
            Some(next) if next.is_ascii_alphabetic() => {
                let word = self.word(|next| next.is_ascii_alphanumeric() || next == '_');
                self.steps.push(Step::Fact(fact(word)?));
                Ok(())
            }
            Some(other) => Err(format!("`{other}` stands where a number, a name or `(` is expected")),
        }
    }
}

/// A decimal number in millionths; digits after the sixth decimal are dropped.
fn number(word: &str) -> Result<i64, String> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let is_number = whole.len() <= MOST_DIGITS && fraction.len() <= MOST_DIGITS && !fraction.contains('.');
    let whole = whole.parse::<i64>().ok().filter(|_| is_number && !word.ends_with('.'));
    let whole = whole.ok_or_else(|| {
        format!("`{word}` is no number; write digits, and a point if need be, {MOST_DIGITS} digits at most")
    })?;
    let millionths = format!("{fraction:0<6.6}").parse::<i64>().unwrap_or(0);
    Ok(whole.saturating_mul(ONE).saturating_add(millionths))
}

fn fact(word: &str) -> Result<usize, String> {
    NAMES.iter().position(|name| *name == word).ok_or_else(|| {
        let hint = nearest(word, NAMES).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("there is no `{word}`{hint}; names are {}", NAMES.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FACTS: Facts = [500_000, 250_000, 0, 1_000_000, 3_000_000, 4_000_000, 7_000_000, 2_000_000];

    fn value(text: &str) -> i64 {
        text.parse::<Score>().unwrap().value(&FACTS)
    }

    #[test]
    fn expressions_have_the_usual_precedence() {
        for (text, wanted) in [
            ("1", 1_000_000),
            ("1 + 2 * 3", 7_000_000),
            ("(1 + 2) * 3", 9_000_000),
            ("8 / 4 / 2", 1_000_000),
            ("5 - 2 - 1", 2_000_000),
            ("-layer", -2_000_000),
            ("--1.5", 1_500_000),
            ("2 * -0.25", -500_000),
            ("0.1234567", 123_456),
            ("free_nodes / total_nodes", 750_000),
            ("resource_availability + topology_alignment", 750_000),
            ("1 / 0", 0),
            ("free_slots / domain_utilisation", 0),
            ("1 / 3", 333_333),
            ("-1 / 3", -333_333),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn operations_saturate() {
        assert_eq!(value("999999999999 * 999999999999"), i64::MAX);
        assert_eq!(value("-999999999999 * 999999999999"), i64::MIN);
        assert_eq!(value("-(-999999999999 * 999999999999)"), i64::MAX);
        assert_eq!(value("999999999999 * 999999999999 + 1"), i64::MAX);
    }

    #[test]
    fn what_is_none_is_refused_with_what_is_wrong() {
        let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
        for (text, part) in [
            ("", "missing at the end"),
            ("1 +", "missing at the end"),
            ("(1", "`)` is missing"),
            ("1)", "`)` stands where an operator"),
            ("1 2", "`2` stands where an operator"),
            ("1.", "is no number"),
            ("1.2.3", "is no number"),
            ("1000000000000000000000", "is no number"),
            ("free_node", "did you mean free_nodes?"),
            ("speed", "names are resource_availability"),
            ("2 ^ 3", "`^` stands"),
            (&deep, "nested more than"),
            (&"1+".repeat(600), "at most 1000"),
        ] {
            let refused = text.parse::<Score>().unwrap_err().to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn an_expression_survives_the_journal_as_it_was_written() {
        let score: Score = " 2*free_nodes - layer ".parse().unwrap();
        let json = serde_json::to_string(&score).unwrap();
        assert_eq!(json, "\" 2*free_nodes - layer \"");
        assert_eq!(serde_json::from_str::<Score>(&json).unwrap(), score);
        assert!(!score.minds_others());
        assert!("domain_utilisation".parse::<Score>().unwrap().minds_others());
    }

    /// An expression as text, and its value in exact arithmetic of millionths with saturation.
    fn expression() -> impl Strategy<Value = (String, i64)> {
        let leaf = prop_oneof![
            (0_i64..2_000_000).prop_map(|n| (format!("{}.{:06}", n / ONE, n % ONE), n)),
            (0..NAMES.len()).prop_map(|at| (NAMES[at].to_owned(), FACTS[at])),
        ];
        leaf.prop_recursive(6, 40, 2, |inner| {
            (inner.clone(), inner, 0_u8..5).prop_map(|((left, a), (right, b), operator)| match operator {
                0 => (format!("({left}+{right})"), a.saturating_add(b)),
                1 => (format!("({left} - {right})"), a.saturating_sub(b)),
                2 => (format!("({left} *{right})"), narrow(i128::from(a) * i128::from(b) / 1_000_000)),
                3 if b == 0 => (format!("({left}/ {right})"), 0),
                3 => (format!("({left}/ {right})"), narrow(i128::from(a) * 1_000_000 / i128::from(b))),
                _ => (format!("-({left})"), a.saturating_neg()),
            })
        })
    }

    proptest! {
        #[test]
        fn any_expression_has_its_value((text, wanted) in expression()) {
            match text.parse::<Score>() {
                Ok(score) => prop_assert_eq!(score.value(&FACTS), wanted, "{}", text),
                Err(error) => prop_assert!(error.to_string().contains("nested") || text.len() > MOST_BYTES),
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+*/(). a-z_0-9é]{0,60}") {
            if let Ok(score) = text.parse::<Score>() {
                let _ = score.value(&[i64::MIN; NAMES.len()]);
                let _ = score.value(&[i64::MAX; NAMES.len()]);
            }
        }
    }
}
