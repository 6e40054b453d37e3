//! `scontrol show config`.

use spur_proto::v1::KeyValue;

use crate::format::Show;
use crate::format::value::time;

/// Every setting on a line.
pub fn text(settings: &[KeyValue], show: &Show) -> String {
    let mut out = format!("Configuration data as of {}\n", time(Some(show.now), "Unknown", show));
    for setting in settings {
        out.push_str(&format!("{:<23} = {}\n", setting.key, setting.value));
    }
    out
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn keys_stand_in_a_column_that_long_ones_leave() {
        let setting = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
        let settings = [setting("ClusterName", "ref"), setting("AccountingStorageBackupHost", "(null)")];
        let expected = "Configuration data as of 2026-11-20T12:17:16\n\
                        ClusterName             = ref\n\
                        AccountingStorageBackupHost = (null)\n";
        assert_eq!(text(&settings, &Show::new(TimeZone::UTC, 1_795_177_036)), expected);
    }
}
