//! The command `scontrol show licenses`.

use spur_proto::v1::License;

/// Returns the records of licenses, none of which is remote.
pub fn text(licenses: &[License], oneline: bool) -> String {
    let gap = if oneline { " " } else { "\n    " };
    let record = |License { name, total, used, reserved }: &License| {
        let free = total.saturating_sub(*used);
        let counts = format!("Total={total} Used={used} Free={free} Reserved={reserved} Remote=no");
        format!("LicenseName={name}{gap}{counts}\n")
    };
    licenses.iter().map(record).collect()
}
