//! Numbers with a unit: the arithmetic that sizes, counts, speeds and durations share.

/// Reason for refusing a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NumberError {
    /// The text does not begin with a digit.
    NoDigits,
    /// The unit is not one of the expected units.
    UnknownUnit(String),
    /// The number does not fit 64 bits.
    TooLarge,
    /// The number is not a multiple of the smallest unit, e.g. `0.5` of a count.
    Fraction,
}

impl std::fmt::Display for NumberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NumberError::NoDigits => f.write_str("a number is expected"),
            NumberError::UnknownUnit(unit) => write!(f, "unknown unit `{unit}`"),
            NumberError::TooLarge => f.write_str("the number is too large"),
            NumberError::Fraction => f.write_str("the number is not whole"),
        }
    }
}

/// Name of a unit and the number of base units it stands for.
pub(super) type Unit = (&'static str, u64);

/// Reads digits only, without sign, blanks or underscores.
pub(super) fn integer(text: &str) -> Result<u64, NumberError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberError::NoDigits);
    }
    text.parse().map_err(|_| NumberError::TooLarge)
}

/// Reads digits only, like [`integer`], as a number of 32 bits.
pub(super) fn integer32(text: &str) -> Result<u32, NumberError> {
    integer(text)?.try_into().map_err(|_| NumberError::TooLarge)
}

/// Reads `digits[.digits][unit]` exactly and returns it in the base unit.
///
/// Units are compared without regard to case. The entry with the empty name is the unit of a bare number.
pub(super) fn with_unit(text: &str, units: &[Unit]) -> Result<u64, NumberError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(NumberError::NoDigits),
        None => (number, ""),
    };
    let whole = integer(whole)?;
    let scale = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|&(_, scale)| scale)
        .ok_or_else(|| NumberError::UnknownUnit(unit.to_owned()))?;
    let whole = whole.checked_mul(scale).ok_or(NumberError::TooLarge)?;
    whole.checked_add(fraction_of(fraction, scale)?).ok_or(NumberError::TooLarge)
}

/// Returns `0.fraction` of `scale`, if the result is a whole number.
fn fraction_of(fraction: &str, scale: u64) -> Result<u64, NumberError> {
    if fraction.is_empty() {
        return Ok(0);
    }
    let digits = fraction.trim_end_matches('0');
    if digits.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(0);
    }
    let power = u32::try_from(digits.len()).ok().and_then(|n| 10_u128.checked_pow(n));
    let power = power.ok_or(NumberError::Fraction)?;
    let product = u128::from(integer(digits)?) * u128::from(scale);
    if product % power != 0 {
        return Err(NumberError::Fraction);
    }
    u64::try_from(product / power).map_err(|_| NumberError::TooLarge)
}

/// Returns the largest unit that divides `value`, with the quotient before it; a zero has the smallest unit.
/// `units` ascend and begin with a unit of 1.
pub(super) fn largest_unit(value: u64, units: &[Unit]) -> (u64, &'static str) {
    units
        .iter()
        .rev()
        .find(|(_, scale)| value != 0 && value.is_multiple_of(*scale))
        .or(units.first())
        .map_or((value, ""), |(name, scale)| (value / scale, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &[Unit] = &[("", 1), ("k", 1000), ("m", 1_000_000)];

    #[test]
    fn numbers_with_units() {
        for (text, value) in [("7", 7), ("7k", 7000), ("1.5K", 1500), ("0.25m", 250_000), ("2.0", 2)] {
            assert_eq!(with_unit(text, UNITS), Ok(value), "{text}");
        }
        for (text, error) in [
            ("", NumberError::NoDigits),
            ("k", NumberError::NoDigits),
            ("1.", NumberError::NoDigits),
            (".5k", NumberError::NoDigits),
            ("1.2.3k", NumberError::NoDigits),
            ("-1", NumberError::NoDigits),
            ("1q", NumberError::UnknownUnit("q".into())),
            ("0.5", NumberError::Fraction),
            ("1.00001k", NumberError::Fraction),
            ("18446744073709551616", NumberError::TooLarge),
            ("18446744073709551615k", NumberError::TooLarge),
        ] {
            assert_eq!(with_unit(text, UNITS), Err(error), "{text}");
        }
    }

    #[test]
    fn the_largest_unit_that_divides() {
        assert_eq!(largest_unit(0, UNITS), (0, ""));
        assert_eq!(largest_unit(999, UNITS), (999, ""));
        assert_eq!(largest_unit(2000, UNITS), (2, "k"));
        assert_eq!(largest_unit(2_000_000, UNITS), (2, "m"));
    }
}
