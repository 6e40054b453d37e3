//! CPU binding of the tasks of a step: the `--cpu-bind` option.

use std::fmt;
use std::str::FromStr;

use super::ParseError;

const WHAT: &str = "CPU binding";
const HELP: &str = "known are none, rank, threads, cores, sockets, ldoms, rank_ldom, and map_cpu, mask_cpu, map_ldom and \
                    mask_ldom with a list behind a colon, each perhaps after verbose,";
/// Most entries of a list, with repetitions counted.
const MOST: usize = 65_536;

/// A part of a machine that holds CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuDomain {
    /// The threads of a core.
    Core,
    /// The cores of a socket.
    Socket,
    /// The CPUs that are near the same memory (a NUMA node).
    Locality,
    /// All sockets, because a machine has one board.
    Board,
}

/// Rule by which the CPUs of a step on a node are divided among its tasks there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpuBind {
    /// Binds each task to its own share of the CPUs, if there are enough CPUs for all tasks.
    #[default]
    Share,
    /// Binds no task.
    None,
    /// Binds each task to the CPU at the task's place among the CPUs of the step.
    Rank,
    /// Binds each task to every CPU of the domains that its share touches.
    Whole(CpuDomain),
    /// Binds the tasks to the CPUs of these numbers in turn, beginning again after the last.
    Map(Vec<u32>),
    /// Binds the tasks to these sets of CPUs in turn, beginning again after the last.
    Mask(Vec<Bits>),
    /// Binds each task to the locality domain at the task's place.
    RankLocality,
    /// Binds the tasks to the locality domains of these numbers in turn, beginning again after the last.
    MapLocality(Vec<u32>),
    /// Binds the tasks to these sets of locality domains in turn, beginning again after the last.
    MaskLocality(Vec<Bits>),
}

/// Complete value of `--cpu-bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuBinding {
    /// True if each task reports its binding.
    pub verbose: bool,
    /// Rule by which tasks are bound.
    pub bind: CpuBind,
}

/// A set of small numbers, written as a hexadecimal mask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Vec<u32>);

impl Bits {
    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Exclusive upper bound on the numbers of locality domains.
    pub(super) const MOST: u32 = 1024;

    pub(super) fn read(text: &str) -> Option<Bits> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let mut numbers = Vec::new();
        for (place, digit) in (0_u32..).zip(digits.chars().rev()) {
            let digit = digit.to_digit(16)?;
            numbers.extend((0..4).filter(|bit| digit & (1 << bit) != 0).map(|bit| place * 4 + bit));
        }
        (!numbers.is_empty()).then_some(Bits(numbers))
    }
}

impl FromIterator<u32> for Bits {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Bits {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Bits(numbers)
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.last().map_or(0, |last| last / 4);
        f.write_str("0x")?;
        (0..=last).rev().try_for_each(|place| {
            let bits = self.0.iter().filter(|number| *number / 4 == place);
            write!(f, "{:x}", bits.fold(0, |digit, number| digit | 1 << (number % 4)))
        })
    }
}

/// The entry of a list for task number `at`, counted from 0 and beginning again after the last entry; `None`
/// if the list is empty.
#[must_use]
pub fn in_turn<T>(list: &[T], at: u32) -> Option<&T> {
    list.get(at as usize % list.len().max(1))
}

impl CpuBinding {
    /// [`kind`](CpuBinding::kind) of tasks that are not bound.
    pub const UNBOUND: &'static str = "=NONE";

    /// Slurm's name for the kind of binding, which verbose tasks print.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.bind {
            CpuBind::None => Self::UNBOUND,
            CpuBind::Whole(CpuDomain::Core) => "-cores=MASK",
            CpuBind::Whole(CpuDomain::Socket) => "-sockets=MASK",
            CpuBind::Whole(CpuDomain::Locality) => "-ldoms=MASK",
            CpuBind::Share | CpuBind::Mask(_) | CpuBind::Whole(CpuDomain::Board) => "=MASK",
            CpuBind::Rank => "=RANK",
            CpuBind::Map(_) => "=MAP ",
            CpuBind::RankLocality => "=LDRANK",
            CpuBind::MapLocality(_) => "=LDMAP ",
            CpuBind::MaskLocality(_) => "=LDMASK",
        }
    }
}

/// Entries of a list, each of which may be repeated with `*TIMES`. `None` if one cannot be read or there are
/// more than [`MOST`].
pub(super) fn entries<T: Clone>(text: &str, one: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for item in text.split(',') {
        let (item, times) = match item.split_once('*') {
            Some((item, times)) => (item, times.parse::<usize>().ok().filter(|times| *times > 0)?),
            None => (item, 1),
        };
        if all.len() + times > MOST {
            return None;
        }
        all.extend(std::iter::repeat_n(one(item)?, times));
    }
    Some(all)
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for CpuBinding {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseError::new(WHAT, text, "it is not known", HELP);
        let lower = text.to_ascii_lowercase();
        let mut verbose = false;
        // Slurm accepts these words before and after the kind.
        let is_kind = |word: &&str| {
            verbose = match *word {
                "v" | "verbose" => true,
                "q" | "quiet" => false,
                word => return !word.is_empty(),
            };
            false
        };
        let rest = lower.split(',').filter(is_kind).collect::<Vec<_>>().join(",");
        let (kind, value) = rest.split_once([':', '=']).unwrap_or((&rest, ""));
        let bind = match (kind, value) {
            ("" | "threads" | "thread", "") => Some(CpuBind::Share),
            ("none" | "no", "") => Some(CpuBind::None),
            ("rank", "") => Some(CpuBind::Rank),
            ("cores" | "core", "") => Some(CpuBind::Whole(CpuDomain::Core)),
            ("sockets" | "socket", "") => Some(CpuBind::Whole(CpuDomain::Socket)),
            ("ldoms" | "ldom", "") => Some(CpuBind::Whole(CpuDomain::Locality)),
            ("boards" | "board", "") => Some(CpuBind::Whole(CpuDomain::Board)),
            ("rank_ldom", "") => Some(CpuBind::RankLocality),
            ("map_cpu" | "mapcpu", list_of) => entries(list_of, number).map(CpuBind::Map),
            ("mask_cpu" | "maskcpu", list_of) => entries(list_of, Bits::read).map(CpuBind::Mask),
            ("map_ldom" | "mapldom", list_of) => entries(list_of, number).map(CpuBind::MapLocality),
            ("mask_ldom" | "maskldom", list_of) => entries(list_of, Bits::read).map(CpuBind::MaskLocality),
            _ => None,
        };
        Ok(CpuBinding { verbose, bind: bind.ok_or_else(wrong)? })
    }
}

impl fmt::Display for CpuBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn joined<T: fmt::Display>(list: &[T]) -> String {
            list.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        f.write_str(if self.verbose { "verbose," } else { "quiet," })?;
        match &self.bind {
            CpuBind::Share => f.write_str("threads"),
            CpuBind::None => f.write_str("none"),
            CpuBind::Rank => f.write_str("rank"),
            CpuBind::Whole(CpuDomain::Core) => f.write_str("cores"),
            CpuBind::Whole(CpuDomain::Socket) => f.write_str("sockets"),
            CpuBind::Whole(CpuDomain::Locality) => f.write_str("ldoms"),
            CpuBind::Whole(CpuDomain::Board) => f.write_str("boards"),
            CpuBind::Map(list) => write!(f, "map_cpu:{}", joined(list)),
            CpuBind::Mask(list) => write!(f, "mask_cpu:{}", joined(list)),
            CpuBind::RankLocality => f.write_str("rank_ldom"),
            CpuBind::MapLocality(list) => write!(f, "map_ldom:{}", joined(list)),
            CpuBind::MaskLocality(list) => write!(f, "mask_ldom:{}", joined(list)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_round_trip() {
        for (said, shown) in [
            ("", "quiet,threads"),
            ("verbose", "verbose,threads"),
            ("v,NONE", "verbose,none"),
            ("q,v,rank", "verbose,rank"),
            ("cores,verbose", "verbose,cores"),
            ("map_cpu:3,0x1*2", "quiet,map_cpu:3,1,1"),
            ("mask_cpu:f0,0x3", "quiet,mask_cpu:0xf0,0x3"),
            ("mask_cpu:100000000000000000001", "quiet,mask_cpu:0x100000000000000000001"),
            ("sockets", "quiet,sockets"),
            ("verbose,mask_ldom:3", "verbose,mask_ldom:0x3"),
        ] {
            let binding: CpuBinding = said.parse().unwrap();
            assert_eq!(binding.to_string(), shown, "{said}");
            assert_eq!(shown.parse::<CpuBinding>().unwrap(), binding, "{said}");
        }
        for wrong in
            ["map_cpu", "map_cpu:", "map_cpu:x", "mask_cpu:0", "map_cpu:1*0", "near", "cores:1", "v,q,floors"]
        {
            assert!(wrong.parse::<CpuBinding>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_used_over_and_over() {
        assert_eq!([0, 1, 2].map(|at| in_turn(&[7, 8], at).copied()), [Some(7), Some(8), Some(7)]);
        assert_eq!(in_turn::<u32>(&[], 0), None);
        assert_eq!("0x5".parse::<u8>().ok(), None);
        assert_eq!(Bits::from_iter([2, 0]).to_string(), "0x5");
    }
}
