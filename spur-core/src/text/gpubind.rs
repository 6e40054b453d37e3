//! GPUs of a node that each task of a step can use: the `--gpu-bind` option.

use std::fmt;
use std::str::FromStr;

use super::ParseError;

const WHAT: &str = "GPU binding";
const HELP: &str = "known are none, closest, single:TASKS, per_task:GPUS, map_gpu:LIST and mask_gpu:LIST, each perhaps \
                    after verbose,";

/// Rule by which the GPUs of a step on a node are divided among its tasks there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GpuBind {
    /// Gives every task all GPUs.
    #[default]
    None,
    /// Gives each task the GPUs nearest to its CPUs.
    Closest,
    /// Gives one GPU to this number of consecutive tasks.
    Single(u32),
    /// Gives each task this number of GPUs.
    PerTask(u32),
    /// Gives the tasks the GPUs at these places in turn, beginning again after the last.
    Map(Vec<u32>),
    /// Gives the tasks these sets of places in turn, beginning again after the last.
    Mask(Vec<u64>),
}

impl GpuBind {
    /// Places of the GPUs for task number `local` of a node that has `count` GPUs; `None` for all GPUs.
    #[must_use]
    pub fn places(&self, local: u32, count: u32) -> Option<Vec<u32>> {
        let at = local as usize;
        let places: Vec<u32> = match self {
            GpuBind::None | GpuBind::Closest => return None,
            GpuBind::Single(tasks) => vec![(local / (*tasks).max(1)) % count.max(1)],
            GpuBind::PerTask(each) => {
                (0..*each).map(|own| local.saturating_mul(*each).saturating_add(own)).collect()
            }
            GpuBind::Map(list) => list.iter().cycle().nth(at).copied().into_iter().collect(),
            GpuBind::Mask(list) => {
                let mask = list.iter().cycle().nth(at).copied().unwrap_or(0);
                (0..u64::BITS).filter(|bit| mask & (1 << bit) != 0).collect()
            }
        };
        Some(places.into_iter().filter(|place| *place < count).collect())
    }
}

impl FromStr for GpuBind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseError::new(WHAT, text, "it is not known", HELP);
        let lower = text.to_ascii_lowercase();
        let said = ["verbose,", "v,"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
        let (kind, value) = said.split_once(':').unwrap_or((said, ""));
        let number = || value.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        // `PLACE*TIMES` repeats an entry for this number of tasks.
        let list = |one: fn(&str) -> Option<u64>| {
            let mut items = Vec::new();
            for item in value.split(',') {
                let (place, times) = item.split_once('*').unwrap_or((item, "1"));
                let times = times.parse::<u16>().map_err(|_| wrong())?;
                items.extend(std::iter::repeat_n(one(place).ok_or_else(wrong)?, times.into()));
            }
            if items.is_empty() { Err(wrong()) } else { Ok(items) }
        };
        let any = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        Ok(match kind {
            "" | "none" if value.is_empty() => GpuBind::None,
            "closest" if value.is_empty() => GpuBind::Closest,
            "single" => GpuBind::Single(number()?),
            "per_task" => GpuBind::PerTask(number()?),
            "map_gpu" | "map" => {
                let places = list(any)?.into_iter().map(u32::try_from);
                GpuBind::Map(places.collect::<Result<_, _>>().map_err(|_| wrong())?)
            }
            "mask_gpu" | "mask" => GpuBind::Mask(list(any)?),
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for GpuBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuBind::None => f.write_str("none"),
            GpuBind::Closest => f.write_str("closest"),
            GpuBind::Single(tasks) => write!(f, "single:{tasks}"),
            GpuBind::PerTask(each) => write!(f, "per_task:{each}"),
            GpuBind::Map(list) => {
                let list: Vec<String> = list.iter().map(u32::to_string).collect();
                write!(f, "map_gpu:{}", list.join(","))
            }
            GpuBind::Mask(list) => {
                let list: Vec<String> = list.iter().map(|mask| format!("0x{mask:x}")).collect();
                write!(f, "mask_gpu:{}", list.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_see_their_gpus() {
        let seen = |said: &str, count| -> Vec<String> {
            let bind: GpuBind = said.parse().unwrap();
            let shown =
                |places: Option<Vec<u32>>| places.map_or("all".to_owned(), |places| format!("{places:?}"));
            (0..4).map(|local| shown(bind.places(local, count))).collect()
        };
        assert_eq!(seen("none", 4), ["all"; 4]);
        assert_eq!(seen("single:1", 2), ["[0]", "[1]", "[0]", "[1]"]);
        assert_eq!(seen("verbose,single:2", 2), ["[0]", "[0]", "[1]", "[1]"]);
        assert_eq!(seen("per_task:2", 8), ["[0, 1]", "[2, 3]", "[4, 5]", "[6, 7]"]);
        assert_eq!(seen("map_gpu:3,0x1", 4), ["[3]", "[1]", "[3]", "[1]"]);
        assert_eq!(seen("map_gpu:0*2,1*2", 4), ["[0]", "[0]", "[1]", "[1]"]);
        assert_eq!(seen("mask_gpu:0x3,4", 4), ["[0, 1]", "[2]", "[0, 1]", "[2]"]);
    }

    #[test]
    fn bindings_round_trip() {
        for text in ["none", "closest", "single:2", "per_task:1", "map_gpu:0,3", "mask_gpu:0x3,0x4"] {
            assert_eq!(text.parse::<GpuBind>().unwrap().to_string(), text);
        }
        for text in ["single", "single:0", "per_task:x", "map_gpu:", "mask_gpu:z", "near", "none:1"] {
            assert!(text.parse::<GpuBind>().is_err(), "{text}");
        }
    }
}
