//! The next reset of usage: a midnight in the cluster's time zone, which the core does not know.

use std::sync::Arc;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use spur_core::cluster::Cluster;
use spur_core::controller::Input;
use spur_core::model::config::ResetPeriod;
use spur_core::text::time::Time;

/// Returns the input that corrects the core's next reset; `None` if the core knows it. `wall` is the wall's
/// time.
pub(crate) fn plan(cluster: &Cluster, wall: Time) -> Option<Input> {
    let usage = cluster.usage();
    let period = cluster.policy().scheduler.priority_usage_reset_period;
    let configured = cluster.policy().jobs.time_zone.as_ref();
    if period == ResetPeriod::None {
        let zone = Arc::clone(usage.zone());
        return usage.next_reset().is_some().then_some(Input::NextReset { at: None, zone });
    }
    let zone = configured.cloned().unwrap_or_else(|| match usage.zone().is_empty() {
        true => TimeZone::system().iana_name().unwrap_or("UTC").into(),
        false => Arc::clone(usage.zone()),
    });
    let known = usage.next_reset().map(|at| cluster.clock().wall(at));
    // A reset that is due, or that a step of the wall's clock went past, is made once, now.
    let next = match known {
        Some(known) if known <= wall => known,
        _ => next(period, &zone, wall.max(usage.last_reset().unwrap_or(wall)))?,
    };
    let at = Some(cluster.clock().own(next));
    (usage.next_reset() != at || *usage.zone() != zone).then_some(Input::NextReset { at, zone })
}

/// Returns the first beginning of a period after `after`, in the wall's time; `None` if the zone is unknown.
fn next(period: ResetPeriod, zone: &str, after: Time) -> Option<Time> {
    let zone = TimeZone::get(zone).ok()?;
    let today = Timestamp::from_second(after.0).ok()?.to_zoned(zone.clone()).date();
    let begins = match period {
        ResetPeriod::None => return None,
        ResetPeriod::Daily => today.tomorrow().ok()?,
        ResetPeriod::Weekly => today.nth_weekday(1, Weekday::Sunday).ok()?,
        ResetPeriod::Monthly => first_of_month(today, 1)?,
        ResetPeriod::Quarterly => first_of_month(today, 3 - (today.month() - 1) % 3)?,
        ResetPeriod::Yearly => first_of_month(today, 13 - today.month())?,
    };
    Some(Time(begins.to_zoned(zone).ok()?.timestamp().as_second()))
}

/// Returns the first day of the month that lies `months` months after a day's month; `None` beyond the
/// calendar's range.
fn first_of_month(day: Date, months: i8) -> Option<Date> {
    day.first_of_month().checked_add(months.months()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_at_midnight_of_the_zone() {
        let at = |text: &str| Time(text.parse::<Timestamp>().unwrap().as_second());
        // Saturday evening in UTC is Sunday in Berlin.
        let now = at("2026-11-28T23:30:00Z");
        for (period, zone, expected) in [
            (ResetPeriod::Daily, "UTC", "2026-11-29T00:00:00Z"),
            (ResetPeriod::Daily, "Europe/Berlin", "2026-11-29T23:00:00Z"),
            (ResetPeriod::Weekly, "UTC", "2026-11-29T00:00:00Z"),
            (ResetPeriod::Weekly, "Europe/Berlin", "2026-12-05T23:00:00Z"),
            (ResetPeriod::Monthly, "UTC", "2026-12-01T00:00:00Z"),
            (ResetPeriod::Quarterly, "UTC", "2027-01-01T00:00:00Z"),
            (ResetPeriod::Yearly, "UTC", "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(next(period, zone, now), Some(at(expected)), "{period:?} in {zone}");
        }
        assert_eq!(next(ResetPeriod::Daily, "Mars/Olympus", now), None);
    }
}
