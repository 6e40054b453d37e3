//! The arithmetic of usage: amounts and their decay.
//!
//! Usage is counted in integers, so that every replica of a cluster has the same. An [`Amount`] has 32
//! fractional bits; each product is rounded down to a multiple of 2^-32.

use serde::{Deserialize, Serialize};

use crate::text::time::Seconds;

/// Number of fractional bits of an amount.
const FRACTION_BITS: u32 = 32;

/// An amount of usage: resources times seconds, in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub u128);

impl Amount {
    /// The amount without any usage.
    pub const ZERO: Amount = Amount(0);

    /// The usage of `rate` for `seconds` seconds.
    #[must_use]
    pub fn of(rate: Rate, seconds: u64) -> Amount {
        Amount(rate.0.saturating_mul(u128::from(seconds)))
    }

    /// The sum of two amounts; saturates.
    #[must_use]
    pub fn plus(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }

    /// The difference of two amounts; zero if `other` is larger.
    #[must_use]
    pub fn minus(self, other: Amount) -> Amount {
        Amount(self.0.saturating_sub(other.0))
    }

    /// The amount after a decay.
    #[must_use]
    pub fn decayed(self, ratio: Ratio) -> Amount {
        match ratio.0 {
            None => self,
            Some(ratio) => Amount(scaled(self.0, ratio)),
        }
    }

    /// Whole resource-seconds, rounded down.
    #[must_use]
    pub fn units(self) -> u64 {
        u64::try_from(self.0 >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// The next whole units: seconds times resources.
    #[must_use]
    pub fn units_up(self) -> u64 {
        u64::try_from(self.0.div_ceil(1 << FRACTION_BITS)).unwrap_or(u64::MAX)
    }

    /// The amount as a real number of seconds times resources.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people and factors; amounts themselves are compared")]
    pub fn real(self) -> f64 {
        self.0 as f64 / (1_u64 << FRACTION_BITS) as f64
    }
}

/// Usage per second: a number of resources in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u128);

impl Rate {
    /// The rate of one resource.
    pub const ONE: Rate = Rate(1 << FRACTION_BITS);

    /// The rate of a whole number of resources.
    #[must_use]
    pub fn whole(count: u64) -> Rate {
        Rate(u128::from(count) << FRACTION_BITS)
    }

    /// The rate times a factor, which must not be negative; rounded down.
    #[must_use]
    pub fn times(self, factor: f64) -> Rate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "conversions of real numbers to integers stop at the bounds"
        )]
        let factor = (factor * (1_u64 << FRACTION_BITS) as f64).round() as u64;
        Rate(self.0.saturating_mul(u128::from(factor)) >> FRACTION_BITS)
    }

    /// The whole number of resources, rounded down.
    #[must_use]
    pub fn count(self) -> u64 {
        u64::try_from(self.0 >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// The rate rounded up to a whole number.
    #[must_use]
    pub fn rounded_up(self) -> Rate {
        let below = (1 << FRACTION_BITS) - 1;
        Rate((self.0.saturating_add(below) >> FRACTION_BITS) << FRACTION_BITS)
    }
}

/// The fraction left after a decay, in units of 2^-64; `None` for all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(pub Option<u64>);

/// `whole` times `ratio`, where `ratio` is in units of 2^-64; rounded down.
fn scaled(whole: u128, ratio: u64) -> u128 {
    let (high, low) = (whole >> 64, whole & u128::from(u64::MAX));
    high * u128::from(ratio) + ((low * u128::from(ratio)) >> 64)
}

/// Decay of usage with a half-life: the ratios for 1, 2, 4, 8 … seconds.
///
/// As in Slurm, usage is multiplied by `1 - 0.693 / half-life` each second. Each ratio of the table is the
/// square of the one before, rounded down to 2^-64.
#[derive(Clone, Debug)]
pub struct Decay([u64; 40]);

impl Decay {
    /// The decay with this half-life; `None` for 0, which means no decay.
    #[must_use]
    pub fn new(half_life: Seconds) -> Option<Decay> {
        if half_life.0 == 0 {
            return None;
        }
        let lost = (693_u128 << 64) / (1_000 * u128::from(half_life.0));
        let mut ratio = u64::try_from((1_u128 << 64) - lost.max(1)).unwrap_or(u64::MAX);
        Some(Decay(std::array::from_fn(|_| {
            let own = ratio;
            ratio = square(ratio);
            own
        })))
    }

    /// The ratio for this number of seconds.
    #[must_use]
    pub fn ratio(&self, seconds: u64) -> Ratio {
        let powers = self.0.iter().enumerate().filter(|(bit, _)| seconds >> bit & 1 == 1);
        let product = powers.map(|(_, ratio)| *ratio).reduce(product);
        match seconds >> self.0.len() {
            0 => Ratio(product),
            _ => Ratio(Some(0)),
        }
    }
}

fn square(ratio: u64) -> u64 {
    product(ratio, ratio)
}

/// The product of two ratios in units of 2^-64, rounded down.
fn product(one: u64, other: u64) -> u64 {
    u64::try_from((u128::from(one) * u128::from(other)) >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEEK: u64 = 7 * 86_400;

    fn after(amount: Amount, half_life: u64, seconds: u64) -> f64 {
        amount.decayed(Decay::new(Seconds(half_life)).unwrap().ratio(seconds)).real()
    }

    #[test]
    fn half_is_left_after_a_half_life() {
        let amount = Amount::of(Rate::whole(1_000), 1_000_000);
        let left = after(amount, WEEK, WEEK) / amount.real();
        assert!((left - 0.500_073).abs() < 1e-6, "{left}: e^-0.693 is left");
        assert_eq!(Decay::new(Seconds(0)).map(|_| ()), None);
        let decay = Decay::new(Seconds(WEEK)).unwrap();
        assert_eq!(amount.decayed(decay.ratio(0)), amount);
        assert_eq!(amount.decayed(decay.ratio(1 << 41)), Amount::ZERO);
    }

    #[test]
    fn small_usage_and_long_half_lives_do_not_vanish() {
        let one = Amount::of(Rate::ONE, 1);
        let ratio = Decay::new(Seconds(100 * 365 * 86_400)).unwrap().ratio(300);
        // Ten years of periods.
        let left = (0..10 * 365 * 288).fold(one, |left, _| left.decayed(ratio)).real();
        assert!((left - (-0.0693_f64).exp()).abs() < 1e-3, "{left}");
    }

    proptest! {
        #[test]
        fn decay_is_that_of_real_numbers(half_life in 60_u64..100_000_000, seconds in 0_u64..10_000_000, amount: u64) {
            let amount = Amount(u128::from(amount) << 20);
            let exact = amount.real() * (1.0 - 0.693 / half_life as f64).powf(seconds as f64);
            let left = after(amount, half_life, seconds);
            // A ratio is a multiple of 2^-64.
            let step = amount.real() * 2.0_f64.powi(-63);
            prop_assert!((left - exact).abs() <= exact * 1e-6 + step + 1e-6, "{left} is not {exact}");
        }

        #[test]
        fn a_product_is_exact(whole: u128, ratio: u64) {
            // Schoolbook multiplication with 32-bit digits.
            let digits: Vec<u128> = (0..4).map(|at| whole >> (32 * at) & 0xffff_ffff).collect();
            let factors = [u128::from(ratio & 0xffff_ffff), u128::from(ratio >> 32)];
            let mut sums = [0_u128; 7];
            for (at, digit) in digits.iter().enumerate() {
                for (by, factor) in factors.iter().enumerate() {
                    sums[at + by] += digit * factor;
                }
            }
            for at in 0..6 {
                let carry = sums[at] >> 32;
                sums[at] &= 0xffff_ffff;
                sums[at + 1] += carry;
            }
            let expected = (0..4).fold(0, |all, at| all | sums[at + 2] << (32 * at));
            prop_assert_eq!(scaled(whole, ratio), expected);
        }

        #[test]
        fn factors_scale_rates(count in 0_u64..1_000_000, factor in 0.0_f64..10.0) {
            let rate = Rate::whole(count).times(factor);
            prop_assert!((rate.0 as f64 / 2_f64.powi(32) - count as f64 * factor).abs() < 1e-3);
        }
    }
}
