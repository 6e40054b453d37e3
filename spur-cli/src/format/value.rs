//! Slurm's formats of single values.

use jiff::fmt::strtime;
use jiff::{Timestamp, Unit, Zoned};
use spur_core::text::memory::MemoryMb;
use spur_core::text::time::{Elapsed, TimeLimit};

use super::field::{Show, Times};

/// Returns the text, or `(null)` if it is empty.
pub fn or_null(text: &str) -> String {
    or(text, "(null)")
}

/// Returns the text, or `absent` if it is empty.
pub fn or(text: &str, absent: &str) -> String {
    if text.is_empty() { absent.to_owned() } else { text.to_owned() }
}

/// Escapes control characters. Text of one user is shown on another user's terminal and parsed by programs.
pub fn printable(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let escaped = text.chars().map(|c| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    escaped.collect()
}

/// Formats a point in time as `show` specifies; returns `absent` for `None`.
pub fn time(seconds: Option<i64>, absent: &str, show: &Show) -> String {
    let Some(Ok(time)) = seconds.map(Timestamp::from_second) else { return absent.to_owned() };
    let time = time.to_zoned(show.zone.clone());
    let format = match &show.times {
        Times::Standard => return time.strftime(STANDARD).to_string(),
        Times::Relative => relative(&time, show),
        Times::Format(format) => format,
    };
    strtime::format(format, &time).unwrap_or_else(|_| time.strftime(STANDARD).to_string())
}

/// Returns a text of the controller with its times in UTC (`2026-11-20T10:00:00Z`) converted to the user's
/// zone.
pub fn local_times(text: &str, show: &Show) -> String {
    const LENGTH: usize = "2026-11-20T10:00:00Z".len();
    let mut local = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let written = rest.get(..LENGTH).filter(|written| written.ends_with('Z'));
        let moment = written.and_then(|written| written.parse::<Timestamp>().ok());
        let taken = match moment {
            Some(moment) => {
                local.push_str(&time(Some(moment.as_second()), "not known", show));
                LENGTH
            }
            None => {
                local.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    local
}

/// Slurm's default format of a time.
const STANDARD: &str = "%Y-%m-%dT%H:%M:%S";

/// Returns a format that is shorter for near times. Today has the time only, yesterday and tomorrow a name,
/// and other days within a week the name of the weekday.
fn relative(time: &Zoned, show: &Show) -> &'static str {
    let Ok(now) = Timestamp::from_second(show.now) else { return STANDARD };
    let now = now.to_zoned(show.zone.clone());
    let days = time.date().since((Unit::Day, now.date())).map_or(i32::MAX, |span| span.get_days());
    match days {
        0 => "%H:%M:%S",
        -1 => "Ystday %H:%M",
        1 => "Tomorr %H:%M",
        -6..=6 => "%a %H:%M",
        _ if time.year() == now.year() => "%-d %b %H:%M",
        _ => "%-d %b %Y",
    }
}

/// Returns the first line of `-l` and `-i` output: `Fri Nov 20 12:11:37 2026`.
pub fn date_line(show: &Show) -> String {
    let time = Timestamp::from_second(show.now).unwrap_or_default();
    time.to_zoned(show.zone.clone()).strftime("%a %b %d %H:%M:%S %Y").to_string()
}

/// Formats a limit in seconds as `squeue` does: `0:05`, or `unlimited`.
pub fn limit(seconds: Option<u64>, unlimited: &str) -> String {
    seconds.map_or_else(|| unlimited.to_owned(), |seconds| Elapsed(seconds).to_string())
}

/// Formats a limit in seconds as `scontrol` does: `00:00:05`, `UNLIMITED`.
pub fn long_limit(seconds: Option<u64>) -> String {
    seconds.map_or(TimeLimit::Unlimited, TimeLimit::Seconds).long()
}

/// Formats a requested amount of memory in MiB: `0`, `200M`, `4G`.
pub fn memory(megabytes: u64, show: &Show) -> String {
    match (megabytes, show.unit) {
        (0, _) => "0".to_owned(),
        (_, Some(unit)) => in_unit(megabytes.saturating_mul(1 << 20), unit),
        _ if show.convert => MemoryMb(megabytes).to_string(),
        _ => format!("{megabytes}M"),
    }
}

/// Units of memory, each 1024 times the previous one.
pub const UNITS: &str = "KMGTP";

/// Formats bytes in a unit: as a whole number, or with two decimals.
#[expect(clippy::cast_precision_loss, reason = "two decimals are printed")]
pub fn in_unit(bytes: u64, unit: char) -> String {
    let size = 1_u64 << (10 * (UNITS.find(unit).unwrap_or(1) + 1));
    match bytes % size {
        0 => format!("{}{unit}", bytes / size),
        _ => format!("{:.2}{unit}", bytes as f64 / size as f64),
    }
}

/// Formats exit code and signal as `code:signal`.
pub fn exit(code: u32, signal: u32) -> String {
    format!("{code}:{signal}")
}

/// Formats the load of a node, given in hundredths: `0.43`, or `N/A`.
pub fn load(hundredths: Option<u32>) -> String {
    hundredths.map_or_else(|| "N/A".to_owned(), |load| format!("{}.{:02}", load / 100, load % 100))
}

/// Returns `1` or `0`.
pub fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn values_are_written_as_slurm_writes_them() {
        let show = Show::new(TimeZone::UTC, 1_795_176_697);
        assert_eq!(time(Some(show.now), "N/A", &show), "2026-11-20T12:11:37");
        assert_eq!(time(None, "N/A", &show), "N/A");
        let shown = |seconds, times| time(Some(seconds), "", &Show { times, ..show.clone() });
        let days = [0, -86_400, 86_400, 3 * 86_400, -30 * 86_400, 400 * 86_400];
        assert_eq!(
            days.map(|days| shown(show.now + days, Times::Relative)),
            ["12:11:37", "Ystday 12:11", "Tomorr 12:11", "Mon 12:11", "21 Oct 12:11", "25 Dec 2027"]
        );
        assert_eq!(shown(show.now, Times::Format("%s %H".into())), "1795176697 12");
        assert_eq!(shown(show.now, Times::Format("%!".into())), "2026-11-20T12:11:37");
        assert_eq!(date_line(&show), "Fri Nov 20 12:11:37 2026");
        assert_eq!(limit(Some(183_900), "UNLIMITED"), "2-03:05:00");
        assert_eq!(long_limit(Some(300)), "00:05:00");
        assert_eq!(long_limit(None), "UNLIMITED");
        assert_eq!([0, 200, 2000, 4096].map(|m| memory(m, &show)), ["0", "200M", "2000M", "4G"]);
        let unit = |unit| memory(4096, &Show { unit: Some(unit), ..show.clone() });
        assert_eq!(['K', 'M', 'G', 'T'].map(unit), ["4194304K", "4096M", "4G", "0.00T"]);
        assert_eq!(memory(1536, &Show { unit: Some('G'), ..show.clone() }), "1.50G");
        assert_eq!(memory(4096, &Show { convert: false, ..show }), "4096M");
        assert_eq!([load(Some(43)), load(Some(105)), load(None)], ["0.43", "1.05", "N/A"]);
    }
}
