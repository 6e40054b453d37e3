//! Memory binding of the tasks of a step: the `--mem-bind` option.

use std::fmt;
use std::str::FromStr;

use super::cpubind::{Bits, entries};

/// Rule by which the memory of a node is divided among the tasks of a step, in locality domains (NUMA nodes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemBind {
    /// Binds no task.
    #[default]
    None,
    /// Binds each task to the domains of its CPUs.
    Local,
    /// Binds each task to the domain at the task's place among the tasks of the node.
    Rank,
    /// Binds the tasks to the domains of these numbers in turn, beginning again after the last.
    Map(Vec<u32>),
    /// Binds the tasks to these sets of domains in turn, beginning again after the last.
    Mask(Vec<Bits>),
}

/// Complete value of `--mem-bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemBinding {
    /// True if each task reports its binding.
    pub verbose: bool,
    /// True if the first domain is preferred and the others may be used.
    pub prefer: bool,
    /// True if the kernel should sort its free pages first; `None` if neither `sort` nor `nosort` is given.
    pub sort: Option<bool>,
    /// Rule by which tasks are bound.
    pub bind: MemBind,
}

impl MemBinding {
    /// Slurm's name for the kind of binding, which verbose tasks print.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.bind {
            MemBind::None => "NONE",
            MemBind::Rank => "RANK",
            MemBind::Local => "LOC",
            MemBind::Map(_) => "MAP",
            MemBind::Mask(_) => "MASK",
        }
    }

    /// Parts of the binding as in the variables `SLURM_MEM_BIND_*`: the end of each variable's name and its
    /// value.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, String); 5] {
        let (kind, list) = match &self.bind {
            MemBind::None => ("none", String::new()),
            MemBind::Local => ("local", String::new()),
            MemBind::Rank => ("rank", String::new()),
            MemBind::Map(list) => ("map_mem:", joined(list)),
            MemBind::Mask(list) => ("mask_mem:", joined(list)),
        };
        let sort = self.sort.map_or("", |sort| if sort { "sort" } else { "nosort" });
        [
            ("_VERBOSE", if self.verbose { "verbose" } else { "quiet" }.to_owned()),
            ("_PREFER", if self.prefer { "prefer" } else { "" }.to_owned()),
            ("_SORT", sort.to_owned()),
            ("_TYPE", kind.to_owned()),
            ("_LIST", list),
        ]
    }
}

fn joined<T: fmt::Display>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// Error for a `--mem-bind` value, in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemBindError {
    /// The kind is unknown.
    #[error("unrecognized --mem-bind argument \"{0}\"")]
    Unknown(String),
    /// The kind needs a list and has none.
    #[error("missing list for \"--mem-bind={0}:<list>\"")]
    NoList(&'static str),
    /// The list contains an item that is neither a number nor a number with `*TIMES`.
    #[error("invalid list \"{1}\" for \"--mem-bind={0}:<list>\"")]
    NoNumbers(&'static str, String),
}

impl FromStr for MemBinding {
    type Err = MemBindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let mut binding = MemBinding::default();
        let mut words = lower.split(',').filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let (kind, first) =
                word.split_once([':', '=']).map_or((word, None), |(kind, list)| (kind, Some(list)));
            let mut list = || {
                let mut list = first.unwrap_or_default().to_owned();
                // A word that begins with a digit belongs to the list.
                while let Some(more) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                    list.push(',');
                    list.push_str(more);
                }
                list
            };
            match (kind, first) {
                ("v" | "verbose", None) => binding.verbose = true,
                ("q" | "quiet", None) => binding.verbose = false,
                ("p" | "prefer", None) => binding.prefer = true,
                ("sort", None) => binding.sort = Some(true),
                ("nosort", None) => binding.sort = Some(false),
                ("no" | "none", None) => binding.bind = MemBind::None,
                ("local", None) => binding.bind = MemBind::Local,
                ("rank", None) => binding.bind = MemBind::Rank,
                ("map_mem" | "mapmem", _) => {
                    binding.bind = MemBind::Map(numbers("map_mem", &list(), number)?)
                }
                ("mask_mem" | "maskmem", _) => {
                    binding.bind = MemBind::Mask(numbers("mask_mem", &list(), Bits::read)?);
                }
                _ => return Err(MemBindError::Unknown(word.to_owned())),
            }
        }
        Ok(binding)
    }
}

fn numbers<T: Clone>(
    kind: &'static str,
    list: &str,
    one: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, MemBindError> {
    if list.is_empty() {
        return Err(MemBindError::NoList(kind));
    }
    entries(list, one).ok_or_else(|| MemBindError::NoNumbers(kind, list.to_owned()))
}

/// Reads the number of a locality domain; `None` if it is no number or too large.
fn number(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| *number < Bits::MOST)
}

impl fmt::Display for MemBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [verbose, prefer, sort, kind, list] = self.parts().map(|(_, value)| value);
        let words = [verbose, prefer, sort, kind + &list];
        f.write_str(&words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_round_trip() {
        for (said, shown) in [
            ("", "quiet,none"),
            ("v,local", "verbose,local"),
            ("verbose,prefer,map_mem:0,0x1*2", "verbose,prefer,map_mem:0,1,1"),
            ("mask_mem:3,0x4,q", "quiet,mask_mem:0x3,0x4"),
            ("rank,sort", "quiet,sort,rank"),
            ("p,nosort,rank", "quiet,prefer,nosort,rank"),
            ("local,none", "quiet,none"),
        ] {
            let binding: MemBinding = said.parse().unwrap();
            assert_eq!(binding.to_string(), shown, "{said}");
            assert_eq!(shown.parse::<MemBinding>().unwrap(), binding, "{said}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_in_slurm() {
        for (said, why) in [
            ("near", "unrecognized --mem-bind argument \"near\""),
            ("local,near", "unrecognized --mem-bind argument \"near\""),
            ("rank:1", "unrecognized --mem-bind argument \"rank:1\""),
            ("map_mem", "missing list for \"--mem-bind=map_mem:<list>\""),
            ("map_mem:", "missing list for \"--mem-bind=map_mem:<list>\""),
            ("map_mem:x", "invalid list \"x\" for \"--mem-bind=map_mem:<list>\""),
            ("map_mem:1*0", "invalid list \"1*0\" for \"--mem-bind=map_mem:<list>\""),
            ("mask_mem:0", "invalid list \"0\" for \"--mem-bind=mask_mem:<list>\""),
        ] {
            assert_eq!(said.parse::<MemBinding>().map_err(|error| error.to_string()), Err(why.to_owned()));
        }
    }
}
