//! Rows of reports and their columns.

use super::amount::Unit;
use crate::format::Show;
use crate::format::report::Column;

/// Usage of a user in an account or with a wckey, in seconds of one resource; without a user, usage of the
/// account or the wckey.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub(super) cluster: String,
    pub(super) account: String,
    pub(super) wckey: String,
    pub(super) login: String,
    pub(super) proper: String,
    pub(super) tres: String,
    pub(super) seconds: u128,
    /// Printed amount, and energy, which is never known.
    pub(super) shown: String,
    pub(super) energy: String,
}

/// The names of a line: user, account and wckey.
pub(super) type UserAndGroup = (String, String, String);

impl Used {
    /// Returns the names of the line.
    pub(super) fn user_and_group(&self) -> UserAndGroup {
        (self.login.clone(), self.account.clone(), self.wckey.clone())
    }
}

/// Utilization of one resource of the cluster, as printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Utilization {
    pub(super) cluster: String,
    pub(super) tres: String,
    pub(super) allocated: String,
    pub(super) none: String,
    pub(super) idle: String,
    pub(super) reported: String,
}

/// Utilization of one resource of a reservation, as printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) start: String,
    pub(super) end: String,
    pub(super) tres: String,
    pub(super) allocated: String,
    pub(super) idle: String,
}

/// Defines a column of amounts.
const fn amounts<R>(name: &'static str, header: &'static str, text: fn(&R, &Show) -> String) -> Column<R> {
    Column { name, header, width: AMOUNT, text }
}

/// Width of a column of amounts, without and with shares.
const AMOUNT: isize = 8;
const WITH_SHARE: isize = 17;

pub(super) const UTILIZATION: [Column<Utilization>; 9] = [
    Column { name: "Cluster", header: "Cluster", width: 9, text: |row, _| row.cluster.clone() },
    Column { name: "TRESName", header: "TRES Name", width: 14, text: |row, _| row.tres.clone() },
    amounts("Allocated", "Allocated", |row, _| row.allocated.clone()),
    amounts("Down", "Down", |row, _| row.none.clone()),
    amounts("PlannedDown", "PLND Down", |row, _| row.none.clone()),
    amounts("Idle", "Idle", |row, _| row.idle.clone()),
    amounts("Planned", "Planned", |row, _| row.none.clone()),
    amounts("Reserved", "Planned", |row, _| row.none.clone()),
    amounts("Reported", "Reported", |row, _| row.reported.clone()),
];

pub(super) const USED: [Column<Used>; 8] = [
    Column { name: "Cluster", header: "Cluster", width: 9, text: |row, _| row.cluster.clone() },
    Column { name: "Account", header: "Account", width: 15, text: |row, _| row.account.clone() },
    Column { name: "Login", header: "Login", width: 9, text: |row, _| row.login.clone() },
    Column { name: "Proper", header: "Proper Name", width: 15, text: |row, _| row.proper.clone() },
    Column { name: "WCKey", header: "WCKey", width: 15, text: |row, _| row.wckey.clone() },
    Column { name: "TRESName", header: "TRES Name", width: 14, text: |row, _| row.tres.clone() },
    amounts("Used", "Used", |row, _| row.shown.clone()),
    amounts("Energy", "Energy", |row, _| row.energy.clone()),
];

pub(super) const RESERVED: [Column<Reserved>; 7] = [
    Column { name: "Cluster", header: "Cluster", width: 9, text: |row, _| row.cluster.clone() },
    Column { name: "Name", header: "Name", width: 9, text: |row, _| row.name.clone() },
    Column { name: "Start", header: "Start", width: 19, text: |row, _| row.start.clone() },
    Column { name: "End", header: "End", width: 19, text: |row, _| row.end.clone() },
    Column { name: "TRESName", header: "TRES Name", width: 14, text: |row, _| row.tres.clone() },
    Column { name: "Allocated", header: "Allocated", width: 20, text: |row, _| row.allocated.clone() },
    Column { name: "Idle", header: "Idle", width: 20, text: |row, _| row.idle.clone() },
];

/// Returns the columns with enough width for shares.
pub(super) fn widened<R>(columns: &[Column<R>], unit: Unit) -> Vec<Column<R>> {
    let width = |width: isize| match width {
        AMOUNT if unit.has_share() => WITH_SHARE,
        20 if unit.has_share() => 29,
        width => width,
    };
    columns.iter().map(|column| Column { width: width(column.width), ..*column }).collect()
}
