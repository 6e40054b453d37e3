//! Hostlists with functions: `switch{s1},n[1-4]`.

use std::fmt;
use std::str::FromStr;

use super::parse::{self, HELP, WHAT};
use super::{HostList, MAX_WRITTEN};
use crate::text::nearest::nearest;
use crate::text::{ParseError, serde_as_text};

/// Kind of lookup that a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// `switch{S}`: the nodes below switch S.
    Switch,
    /// `switchwith{node}`: the nodes of the named node's leaf switch.
    SwitchWith,
    /// `block{B}`: the nodes of block B.
    Block,
    /// `blockwith{node}`: the nodes of the named node's block.
    BlockWith,
    /// `feature{F}`: the nodes that have feature F.
    Feature,
}

impl FunctionKind {
    const ALL: [FunctionKind; 5] = [
        FunctionKind::Switch,
        FunctionKind::SwitchWith,
        FunctionKind::Block,
        FunctionKind::BlockWith,
        FunctionKind::Feature,
    ];

    /// The function's name, e.g. `switch`.
    pub fn name(self) -> &'static str {
        match self {
            FunctionKind::Switch => "switch",
            FunctionKind::SwitchWith => "switchwith",
            FunctionKind::Block => "block",
            FunctionKind::BlockWith => "blockwith",
            FunctionKind::Feature => "feature",
        }
    }
}

/// A function with its argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Kind of lookup that the function does.
    pub kind: FunctionKind,
    /// Names between the braces, at least one.
    pub names: HostList,
}

/// One item of a [`HostExpr`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostTerm {
    /// Plain host names.
    Hosts(HostList),
    /// A function whose result is host names.
    Function(Function),
}

/// A hostlist that may contain functions, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostExpr {
    /// Items of the list; neighbouring plain names are one item.
    pub terms: Vec<HostTerm>,
}

impl HostExpr {
    /// Returns the names that the expression stands for, in order.
    ///
    /// `resolve` returns the names for a function, or the reason for refusing it. It is called for each
    /// function in order, and may leave out names that an earlier function has given.
    ///
    /// # Errors
    /// [`ParseError`] for the first function that `resolve` refuses, with its reason.
    pub fn expand(
        &self,
        resolve: &mut dyn FnMut(&Function) -> Result<Vec<String>, String>,
    ) -> Result<HostList, ParseError> {
        let mut list = HostList::new();
        for term in &self.terms {
            match term {
                HostTerm::Hosts(hosts) => list.extend(hosts),
                HostTerm::Function(function) => {
                    let names = resolve(function).map_err(|reason| {
                        ParseError::new(WHAT, &self.to_string(), format!("{function}: {reason}"), HELP)
                    })?;
                    names.iter().for_each(|name| list.push(name));
                }
            }
        }
        Ok(list)
    }

    /// Number of names written in the expression, with duplicates and the names in functions counted.
    pub fn written(&self) -> usize {
        let written = |term: &HostTerm| match term {
            HostTerm::Hosts(hosts) => hosts.len(),
            HostTerm::Function(function) => function.names.len(),
        };
        self.terms.iter().map(written).sum()
    }

    /// True if the expression contains no function.
    pub fn is_plain(&self) -> bool {
        !self.terms.iter().any(|term| matches!(term, HostTerm::Function(_)))
    }

    /// The names as a list; `None` if the expression contains a function.
    pub fn as_plain(&self) -> Option<HostList> {
        if !self.is_plain() { None } else { self.expand(&mut |_| Ok(Vec::new())).ok() }
    }
}

impl From<HostList> for HostExpr {
    fn from(hosts: HostList) -> HostExpr {
        HostExpr { terms: if hosts.is_empty() { Vec::new() } else { vec![HostTerm::Hosts(hosts)] } }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}}}", self.kind.name(), self.names)
    }
}

impl fmt::Display for HostExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match term {
                HostTerm::Hosts(hosts) => hosts.fmt(f)?,
                HostTerm::Function(function) => function.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl FromStr for HostExpr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<HostExpr, ParseError> {
        terms(text)
            .map(|terms| HostExpr { terms })
            .map_err(|problem| ParseError::new(WHAT, text, problem, HELP))
    }
}

fn terms(text: &str) -> Result<Vec<HostTerm>, String> {
    let (mut terms, mut named): (Vec<HostTerm>, _) = (Vec::new(), 0);
    for item in parse::items(text)? {
        match item.strip_suffix('}').and_then(|item| item.split_once('{')) {
            Some((name, argument)) => {
                let function = function(name, argument, named)?;
                named += function.names.len();
                terms.push(HostTerm::Function(function));
            }
            None => {
                if !matches!(terms.last(), Some(HostTerm::Hosts(_))) {
                    terms.push(HostTerm::Hosts(HostList::new()));
                }
                if let Some(HostTerm::Hosts(hosts)) = terms.last_mut() {
                    named += parse::push_item(hosts, item, named, MAX_WRITTEN)?;
                }
            }
        }
    }
    Ok(terms)
}

/// Reads a function with its argument. `before` counts the names written so far.
fn function(name: &str, argument: &str, before: usize) -> Result<Function, String> {
    let kind = FunctionKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let meant = nearest(name, FunctionKind::ALL.map(FunctionKind::name));
        let meant = meant.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
        format!("there is no function `{name}`{meant}")
    })?;
    let names = parse::plain(argument, before, MAX_WRITTEN);
    let names = names.map_err(|problem| format!("{name}{{{argument}}}: {problem}"))?;
    if names.is_empty() {
        return Err(format!("{name}{{}} names nothing"));
    }
    Ok(Function { kind, names })
}

serde_as_text!(HostExpr);

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(function: &Function) -> Result<Vec<String>, String> {
        match (function.kind, function.names.to_string().as_str()) {
            (FunctionKind::Switch, "s[1-2]") => Ok(vec!["n5".into(), "n6".into()]),
            (kind, names) => Err(format!("there is no {} {names}", kind.name())),
        }
    }

    #[test]
    fn functions_expand_in_place() {
        let expr: HostExpr = "n[1-4],switch{s[1,2]},n7,x".parse().unwrap();
        assert_eq!(expr.to_string(), "n[1-4],switch{s[1-2]},n7,x");
        assert_eq!(expr.expand(&mut resolve).unwrap().to_string(), "n[1-7],x");
        assert_eq!(expr.as_plain(), None);
        assert_eq!(expr.to_string().parse(), Ok(expr));
    }

    #[test]
    fn a_plain_list_is_an_expression() {
        let list: HostList = "n[1-4],m".parse().unwrap();
        assert_eq!(HostExpr::from(list.clone()).as_plain(), Some(list.clone()));
        assert_eq!("n[1-4],m".parse(), Ok(HostExpr::from(list)));
        assert_eq!("".parse(), Ok(HostExpr::default()));
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("switc{s1}", "there is no function `switc`; did you mean `switch`?"),
            ("rack{s1}", "there is no function `rack`"),
            ("switch{}", "switch{} names nothing"),
            ("switch{s[2-1]}", "switch{s[2-1]}: the range 2-1 runs backwards"),
            ("n[0-65536]", "there are more than 65536 names"),
            ("n[1-40000]r1,switch{s},n[1-40000]r1", "there are more than 65536 names"),
            ("n[1-40000],switch{s[1-40000]}", "switch{s[1-40000]}: there are more than 65536 names"),
            ("switch{s1", "a `{` is not closed"),
            ("switch{s1]", "a `]` closes nothing"),
        ] {
            assert_eq!(text.parse::<HostExpr>().unwrap_err().problem, problem, "{text}");
        }
        let expr: HostExpr = "block{b1}".parse().unwrap();
        assert_eq!(expr.expand(&mut resolve).unwrap_err().problem, "block{b1}: there is no block b1");
    }
}
