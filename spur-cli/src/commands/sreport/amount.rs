//! Amounts of resources times seconds, and how `sreport` writes them.

use spur_core::text::tres::{Tres, TresKind};
use spur_proto::v1::{AccountingRow, Node};

use crate::format::fields::node::effective_cpus;

/// The unit of amounts, and whether their share of the total stands beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    #[default]
    Minutes,
    Hours,
    Percent,
    SecondsPercent,
    MinutesPercent,
    HoursPercent,
}

impl Unit {
    /// The unit that Slurm means by a word: its beginning of two letters, or of four behind which `per` begins.
    pub(super) fn named(word: &str) -> Option<Unit> {
        let word = word.to_ascii_lowercase();
        let begins = |start: &str| word.starts_with(start);
        [
            ("secper", Unit::SecondsPercent),
            ("minper", Unit::MinutesPercent),
            ("hourper", Unit::HoursPercent),
            ("se", Unit::Seconds),
            ("mi", Unit::Minutes),
            ("h", Unit::Hours),
            ("p", Unit::Percent),
        ]
        .into_iter()
        .find(|(start, _)| begins(start))
        .map(|(_, unit)| unit)
    }

    /// The unit behind the name of what is counted, as it stands above a report.
    pub(super) fn heading(self, counted: &str) -> String {
        match self {
            Unit::Seconds => format!("{counted}Seconds"),
            Unit::Minutes => format!("{counted}Minutes"),
            Unit::Hours => format!("{counted}Hours"),
            Unit::Percent => "Percentage of Total".to_owned(),
            Unit::SecondsPercent => format!("{counted}Seconds/Percentage of Total"),
            Unit::MinutesPercent => format!("{counted}Minutes/Percentage of Total"),
            Unit::HoursPercent => format!("{counted}Hours/Percentage of Total"),
        }
    }

    /// Whether the share of the total stands beside amounts.
    pub(super) fn has_share(self) -> bool {
        matches!(self, Unit::SecondsPercent | Unit::MinutesPercent | Unit::HoursPercent)
    }

    /// An amount in seconds out of a total, rounded down.
    pub(super) fn text(self, seconds: u128, total: u128) -> String {
        match self {
            Unit::Seconds => seconds.to_string(),
            Unit::Minutes => (seconds / 60).to_string(),
            Unit::Hours => (seconds / 3600).to_string(),
            Unit::Percent => share(seconds, total),
            Unit::SecondsPercent => format!("{seconds}({})", share(seconds, total)),
            Unit::MinutesPercent => format!("{}({})", seconds / 60, share(seconds, total)),
            Unit::HoursPercent => format!("{}({})", seconds / 3600, share(seconds, total)),
        }
    }
}

/// A share in percent with two decimals, rounded; zero where there is no total.
pub(super) fn share(part: u128, total: u128) -> String {
    let hundredths = (part * 20_000 + total).checked_div(total * 2).unwrap_or(0);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// The count of a resource that a job held.
pub(super) fn held(row: &AccountingRow, kind: &TresKind) -> u64 {
    match kind {
        TresKind::Cpu => u64::from(row.alloc_cpus),
        _ => row.alloc_tres.parse::<Tres>().map_or(0, |tres| tres.get(kind)),
    }
}

/// The resources of nodes; what they are billed at most is one for each CPU.
pub(super) fn all(nodes: &[Node]) -> Tres {
    let mut all = Tres::default();
    for node in nodes {
        let mut tres: Tres = node.configured_tres.parse().unwrap_or_default();
        tres.set(TresKind::Cpu, u64::from(effective_cpus(node)));
        tres.set(TresKind::Node, 1);
        all.add(&tres);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_for_a_unit_is_known() {
        for (word, unit) in [
            ("Seconds", Some(Unit::Seconds)),
            ("min", Some(Unit::Minutes)),
            ("Hours", Some(Unit::Hours)),
            ("Percent", Some(Unit::Percent)),
            ("SecPer", Some(Unit::SecondsPercent)),
            ("minper", Some(Unit::MinutesPercent)),
            ("HourPercent", Some(Unit::HoursPercent)),
            ("foo", None),
        ] {
            assert_eq!(Unit::named(word), unit, "{word}");
        }
    }

    #[test]
    fn amounts_stand_beside_their_shares() {
        assert_eq!(Unit::MinutesPercent.text(180, 8860), "3(2.03%)");
        assert_eq!(Unit::Percent.text(0, 0), "0.00%");
        assert_eq!(Unit::HoursPercent.heading("CPU "), "CPU Hours/Percentage of Total");
    }
}
