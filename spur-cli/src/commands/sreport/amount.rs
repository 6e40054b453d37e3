//! Amounts of resources multiplied by seconds, and their formats in `sreport`.

use spur_core::text::tres::{Tres, TresKind};
use spur_proto::v1::{AccountingRow, Node};

use crate::format::fields::node::effective_cpus;

/// Unit of amounts, optionally with their share of the total.
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
    /// Returns the unit that a word selects by its beginning, as in Slurm: `se`, `mi`, `h` or `p`. With
    /// `secper`, `minper` or `hourper`, the share of the total follows each amount. `None` for any other
    /// word.
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

    /// Returns the unit with the name of the resource, for the heading of a report.
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

    /// True if amounts have their share of the total beside them.
    pub(super) fn has_share(self) -> bool {
        matches!(self, Unit::SecondsPercent | Unit::MinutesPercent | Unit::HoursPercent)
    }

    /// Formats an amount in seconds out of a total, rounded down.
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

/// Formats a share in percent, rounded to two decimals; 0 without a total.
pub(super) fn share(part: u128, total: u128) -> String {
    let hundredths = (part * 20_000 + total).checked_div(total * 2).unwrap_or(0);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Returns the amount of a resource that a job held.
pub(super) fn held(row: &AccountingRow, kind: &TresKind) -> u64 {
    match kind {
        TresKind::Cpu => u64::from(row.alloc_cpus),
        _ => row.alloc_tres.parse::<Tres>().map_or(0, |tres| tres.get(kind)),
    }
}

/// Returns the capacity of nodes: the sum of their configured resources, with the CPUs that jobs can use, one
/// unit of billing for each of these CPUs, and the number of nodes.
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
