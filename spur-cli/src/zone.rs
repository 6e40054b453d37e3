//! The time zone of this host.

use std::path::Path;
use std::sync::LazyLock;

use jiff::tz::TimeZone;

/// File of the host's time zone.
const LOCALTIME: &str = "/etc/localtime";

/// Returns the zone in which times are read and printed: that of `TZ`, or the host's.
///
/// [`TimeZone::system`] determines the name of the host's zone by listing all zones. This takes some hundred
/// system calls, and no command needs the name.
pub fn local() -> TimeZone {
    static LOCAL: LazyLock<TimeZone> = LazyLock::new(|| {
        let named = std::env::var_os("TZ").is_some();
        if named { None } else { of_file(Path::new(LOCALTIME)) }.unwrap_or_else(TimeZone::system)
    });
    LOCAL.clone()
}

fn of_file(path: &Path) -> Option<TimeZone> {
    TimeZone::tzif("", &std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_zone_without_its_name_has_the_same_times() {
        let zones = Path::new("/usr/share/zoneinfo");
        for name in ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"] {
            let Ok(named) = TimeZone::get(name) else { continue };
            let read = of_file(&zones.join(name)).unwrap();
            for second in (0..200).map(|n| n * 10_000_000) {
                let time = Timestamp::from_second(second).unwrap();
                assert_eq!(read.to_offset(time), named.to_offset(time), "{name} at {time}");
            }
        }
        assert!(of_file(&zones.join("zone.tab")).is_none());
    }

    #[test]
    fn the_zone_of_this_host_is_the_one_that_the_system_knows() {
        let now = Timestamp::now();
        assert_eq!(local().to_offset(now), TimeZone::system().to_offset(now));
    }
}
