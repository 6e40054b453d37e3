//! `scontrol show licenses`.

use spur_proto::v1::License;

/// The records of licenses. None are reserved, and none belong to others.
pub fn text(licenses: &[License], oneline: bool) -> String {
    let gap = if oneline { " " } else { "\n    " };
    let record = |License { name, total, used }: &License| {
        let free = total.saturating_sub(*used);
        format!("LicenseName={name}{gap}Total={total} Used={used} Free={free} Reserved=0 Remote=no\n")
    };
    licenses.iter().map(record).collect()
}
