//! Settings of QOS in a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ListChange, QosSet, Sign, Word, bad_value};
use crate::model::accounts::limits::LimitKind;
use crate::model::accounts::qos::QosFlag;
use crate::model::config::PreemptMode;
use crate::text::time::{Seconds, TimeLimit};

/// Reads settings of QOS.
///
/// # Errors
/// Slurm's message about an unknown key or a bad value.
pub fn qos_set(words: &[Word]) -> Result<QosSet, String> {
    let mut set = QosSet::default();
    for word in words {
        let invalid = |name: &str| bad_value(&format!("Invalid value for {name} ({})", word.value), word);
        let clears = word.value == "-1";
        match () {
            () if word.is("Description", 1) => set.description = Some(word.value.as_str().into()),
            () if word.is("Priority", 3) => {
                let priority = if clears { Ok(0) } else { word.value.parse() };
                set.priority = Some(priority.map_err(|_| invalid("Priority"))?);
            }
            () if word.is("Preempt", 3) && word.key.len() <= 7 => set.preempt = Some(word.list()),
            () if word.is("PreemptMode", 8) => {
                set.preempt_mode = Some(preempt_mode(&word.value).ok_or_else(|| invalid("PreemptMode"))?);
            }
            () if word.is("PreemptExemptTime", 8) => {
                set.exempt_time = Some(span(&word.value, true).ok_or_else(|| invalid("PreemptExemptTime"))?);
            }
            () if word.is("GraceTime", 3) => {
                set.grace_time = Some(span(&word.value, false).ok_or_else(|| invalid("GraceTime"))?);
            }
            () if word.is("Flags", 2) => set.flags = Some(flags(word)?),
            () if word.is("UsageFactor", 6) => {
                let factor = if clears { Some(1.0) } else { factor(&word.value) };
                set.usage_factor = Some(factor.ok_or_else(|| invalid("UsageFactor"))?);
            }
            () if word.is("UsageThreshold", 6) => {
                set.usage_threshold = Some(optional(&word.value).ok_or_else(|| invalid("UsageThreshold"))?);
            }
            () if word.is("LimitFactor", 6) => {
                set.limit_factor = Some(optional(&word.value).ok_or_else(|| invalid("LimitFactor"))?);
            }
            () if word.is("AllowGroups", 6) => set.allow_groups = Some(word.list_as_is()),
            () if word.is("AllowAccounts", 6) => set.allow_accounts = Some(word.list()),
            () if word.is("RawUsage", 3) => set.clears_usage = word.is_zero()?,
            () => word.add_limit(LimitKind::is_of_qos, &mut set.limits)?,
        }
    }
    Ok(set)
}

impl Word {
    /// Reads a list of names in their own case.
    fn list_as_is(&self) -> ListChange {
        ListChange { sign: self.sign, names: self.names().map(Arc::from).collect() }
    }
}

/// Reads a finite number that is not negative; `None` for any other text.
fn factor(text: &str) -> Option<f64> {
    text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor >= 0.0)
}

fn optional(text: &str) -> Option<Option<f64>> {
    if text == "-1" { Some(None) } else { factor(text).map(Some) }
}

fn preempt_mode(text: &str) -> Option<Option<PreemptMode>> {
    Some(match text.to_ascii_lowercase().as_str() {
        "cluster" | "-1" => None,
        "off" => Some(PreemptMode::Off),
        "cancel" => Some(PreemptMode::Cancel),
        "requeue" => Some(PreemptMode::Requeue),
        "suspend" => Some(PreemptMode::Suspend),
        _ => return None,
    })
}

/// Reads a duration in Slurm's format: a plain number is seconds, or minutes if `minutes` is set.
fn span(text: &str, minutes: bool) -> Option<Option<Seconds>> {
    if text == "-1" {
        return Some(None);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(Some(Seconds(if minutes { number.checked_mul(60)? } else { number })));
    }
    let limit: TimeLimit = text.parse().ok()?;
    limit.seconds().map(|seconds| Some(Seconds(seconds)))
}

fn flags(word: &Word) -> Result<(Sign, BTreeSet<QosFlag>), String> {
    if word.value == "-1" {
        return Ok((Sign::Is, BTreeSet::new()));
    }
    let flag = |name: &str| QosFlag::read(name).ok_or_else(|| unknown_flag(name));
    Ok((word.sign, word.names().map(flag).collect::<Result<_, _>>()?))
}

fn unknown_flag(name: &str) -> String {
    let known: Vec<String> = QosFlag::ALL.iter().map(ToString::to_string).collect();
    let known = known.join(",");
    format!(" Unknown QOS flag used in:\n  '{name}'\n Valid QOS flags are\n  '{known}'")
}
