//! Link speeds and latencies as people write them.

/// Bits per second from `400G`, `400Gb/s`, `100 Gbps`, `800M` or a plain number of bits.
pub(super) fn parse_speed(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let bare = ["bit/s", "bits", "b/s", "bps", "b"].iter().find_map(|unit| lower.strip_suffix(unit));
    let (number, scale) = split_unit(bare.unwrap_or(&lower))?;
    let scale = match scale {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        _ => return None,
    };
    number.checked_mul(scale)?.checked_div(MILLI)
}

/// Nanoseconds from `500ns`, `1.5us`, `2ms` or `1s`.
pub(super) fn parse_latency(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let (number, scale) = split_unit(&lower)?;
    let scale = match scale {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(scale)?.checked_div(MILLI)
}

/// Numbers are read in thousandths, so that `1.5us` is exact.
const MILLI: u64 = 1000;

/// The number, in thousandths, and the unit behind it.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if part.is_empty() || part.len() > 3 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    Some((whole.checked_mul(MILLI)?.checked_add(part)?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_latencies() {
        let speeds = [
            ("400G", Some(400_000_000_000)),
            ("400Gb/s", Some(400_000_000_000)),
            ("100 Gbps", Some(100_000_000_000)),
            ("1.5T", Some(1_500_000_000_000)),
            ("12", Some(12)),
            ("fast", None),
            ("4X", None),
            ("", None),
        ];
        for (text, want) in speeds {
            assert_eq!(parse_speed(text), want, "{text}");
        }
        for (text, want) in [("2us", Some(2000)), ("1.5us", Some(1500)), ("500ns", Some(500)), ("2", None)] {
            assert_eq!(parse_latency(text), want, "{text}");
        }
    }
}
