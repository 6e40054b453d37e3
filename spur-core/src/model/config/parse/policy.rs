//! Reading of `cluster_name`, `[scheduler]`, `[preempt]`, `[recovery]`, `[power]`, `[licenses]`, and the
//! policy keys of `[controller]`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::qos::{self, PREEMPT_MODES};
use super::section::Section;
use crate::model::config::{
    AccountingEnforce, Backfill, Billing, Correct, EnforcePartLimits, JobPolicy, MpiDefault, Order, Policy,
    PowerPolicy, Predict, PreemptBy, PreemptCost, PreemptPolicy, PriorityFlag, Private, QosConfig,
    RESOURCE_LIMITS, RecoveryPolicy, ResetPeriod, SchedulerPolicy, resource_limit,
};
use crate::text::gather::is_layer_name;
use crate::text::hostlist::HostList;
use crate::text::time::Seconds;

const DAY: u64 = 86_400;
const YEAR: u64 = 365 * DAY;
const ANY: RangeInclusive<u32> = 0..=u32::MAX;

/// The default of `cluster_name`.
const DEFAULT_NAME: &str = "cluster";

pub(super) fn cluster_name<'a>(top: &mut Section<'a>) -> &'a str {
    let name = top.name("cluster_name").unwrap_or(DEFAULT_NAME);
    if !is_layer_name(name) {
        top.refuse("cluster_name", format_args!("`{name}`: use letters, digits, `_`, `-` and `.`"));
    }
    name
}

/// Sets fields to values of the file; fields that the file does not set keep theirs.
macro_rules! set {
    ($($field:expr => $value:expr),+ $(,)?) => {$(
        if let Some(value) = $value {
            $field = value;
        }
    )+};
}
pub(super) use set;

pub(super) fn jobs(section: &mut Section<'_>) -> JobPolicy {
    let mut jobs = JobPolicy::default();
    set!(
        jobs.kill_wait => section.duration("kill_wait", 0..=DAY),
        jobs.min_job_age => section.duration("min_job_age", 0..=YEAR),
        jobs.max_job_count => section.integer("max_job_count", 1..=100_000_000),
        jobs.inactive_limit => section.duration("inactive_limit", 0..=YEAR),
        jobs.requeue => section.boolean("job_requeue"),
        jobs.max_array_size => section.integer("max_array_size", 1..=4_000_001),
        jobs.enforce_part_limits => section.choice("enforce_part_limits", &[
            ("NO", EnforcePartLimits::No),
            ("ANY", EnforcePartLimits::Any),
            ("ALL", EnforcePartLimits::All),
        ]),
        jobs.mpi_default => section.choice("mpi_default", &MpiDefault::ALL),
        jobs.max_batch_requeue => section.integer("max_batch_requeue", 1..=1_000_000),
        jobs.kill_on_bad_exit => section.boolean("kill_on_bad_exit"),
        jobs.use_interactive_step => section.boolean("use_interactive_step"),
        jobs.track_wckey => section.boolean("track_wckey"),
    );
    propagated(section, &mut jobs);
    jobs.private_data = private_data(section);
    jobs.accounting_enforce = accounting_enforce(section);
    jobs.purge_job_after = purge_age(section, "purge_job_after");
    jobs.purge_event_after = purge_age(section, "purge_event_after");
    jobs.time_zone = section.name("time_zone").map(Arc::from);
    jobs.prolog_slurmctld = section.name("prolog_slurmctld").map(Arc::from);
    jobs.epilog_slurmctld = section.name("epilog_slurmctld").map(Arc::from);
    let no_program = jobs.prolog_slurmctld.is_none() && jobs.epilog_slurmctld.is_none();
    if no_program && section.has("prolog_epilog_timeout") {
        section
            .refuse("prolog_epilog_timeout", "it has no effect without prolog_slurmctld or epilog_slurmctld");
    }
    set!(jobs.prolog_epilog_timeout => section.duration("prolog_epilog_timeout", 1..=DAY));
    jobs
}

/// `propagate_resource_limits`, of which `ALL` and `NONE` stand alone, or `propagate_resource_limits_except`.
fn propagated(section: &mut Section<'_>, jobs: &mut JobPolicy) {
    let (only, except) = ("propagate_resource_limits", "propagate_resource_limits_except");
    if section.has(only) && section.has(except) {
        section.refuse(except, format_args!("{only} names all that jobs get; leave one of them out"));
    }
    let words = section.strings(only);
    let is_alone = |word: &&&str| matches!(&words[..], [(_, only)] if only.eq_ignore_ascii_case(word));
    match ["ALL", "NONE"].iter().find(is_alone) {
        Some(word) => jobs.propagate_resource_limits = vec![Arc::from(*word)],
        None if words.is_empty() => {}
        None => jobs.propagate_resource_limits = limits(section, only, words),
    }
    let words = section.strings(except);
    jobs.propagate_resource_limits_except = limits(section, except, words);
}

/// A list of resource limits.
fn limits(section: &mut Section<'_>, key: &'static str, words: Vec<(u32, &str)>) -> Vec<Arc<str>> {
    let mut limits = BTreeSet::new();
    for (line, word) in words {
        match resource_limit(word) {
            Some(name) => drop(limits.insert(name)),
            None => {
                let known = RESOURCE_LIMITS.join(", ");
                section.refuse_at(line, key, format!("there is no limit `{word}`; known are {known}"));
            }
        }
    }
    limits.into_iter().map(Arc::from).collect()
}

/// The age at which records are purged: a duration, or Slurm's `12months`, `365days`, `8760hours`. A month
/// has 31 days, so that nothing is deleted earlier than Slurm deletes it.
fn purge_age(section: &mut Section<'_>, key: &'static str) -> Option<Seconds> {
    const UNITS: [(&str, u64); 3] = [("month", 31 * DAY), ("day", DAY), ("hour", 3600)];
    let text = section.name(key)?;
    let word = text.to_ascii_lowercase();
    let word = word.strip_suffix('s').unwrap_or(&word);
    let of_slurm = UNITS.iter().find_map(|(unit, seconds)| {
        word.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?.checked_mul(*seconds)
    });
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    let age = of_slurm.map(Seconds).or_else(|| text.parse().ok().filter(|_| has_unit));
    if age.is_none_or(|age| age.0 == 0) {
        section
            .refuse(key, format_args!("`{text}`: write a time such as \"12months\", \"365days\" or \"12h\""));
    }
    age
}

/// The words that `private_data` may contain.
const PRIVATE: [(&str, Private); 9] = [
    ("accounts", Private::Accounts),
    ("cloud", Private::Cloud),
    ("events", Private::Events),
    ("jobs", Private::Jobs),
    ("nodes", Private::Nodes),
    ("partitions", Private::Partitions),
    ("reservations", Private::Reservations),
    ("usage", Private::Usage),
    ("users", Private::Users),
];

/// Reads `priority_flags`.
fn priority_flags(section: &mut Section<'_>) -> Vec<PriorityFlag> {
    let key = "priority_flags";
    let mut flags = BTreeSet::new();
    for (line, word) in section.strings(key) {
        match PriorityFlag::named(word) {
            Some(flag) => drop(flags.insert(flag)),
            None => {
                let known: Vec<&str> = PriorityFlag::ALL.iter().map(|(name, _)| *name).collect();
                let problem = format!("there is no flag `{word}`; known are {}", known.join(", "));
                section.refuse_at(line, key, problem);
            }
        }
    }
    flags.into_iter().collect()
}

fn private_data(section: &mut Section<'_>) -> Vec<Private> {
    let key = "private_data";
    let mut hidden = BTreeSet::new();
    for (line, word) in section.strings(key) {
        match PRIVATE.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            Some((_, private)) => {
                hidden.insert(*private);
            }
            None => {
                let known: Vec<&str> = PRIVATE.iter().map(|(name, _)| *name).collect();
                let problem = format!("there is no `{word}` here; known are {}", known.join(", "));
                section.refuse_at(line, key, problem);
            }
        }
    }
    hidden.into_iter().collect()
}

/// The words that `accounting_storage_enforce` may contain.
const ENFORCED: [(&str, &[AccountingEnforce]); 8] = [
    ("associations", &[AccountingEnforce::Associations]),
    ("limits", &[AccountingEnforce::Limits]),
    ("qos", &[AccountingEnforce::Qos]),
    ("safe", &[AccountingEnforce::Safe]),
    ("wckeys", &[AccountingEnforce::Wckeys]),
    ("nosteps", &[AccountingEnforce::NoSteps]),
    ("nojobs", &[AccountingEnforce::NoJobs]),
    // As in Slurm, `all` keeps all records.
    (
        "all",
        &[
            AccountingEnforce::Associations,
            AccountingEnforce::Limits,
            AccountingEnforce::Qos,
            AccountingEnforce::Safe,
            AccountingEnforce::Wckeys,
        ],
    ),
];

fn accounting_enforce(section: &mut Section<'_>) -> Vec<AccountingEnforce> {
    let key = "accounting_storage_enforce";
    let mut enforced = BTreeSet::new();
    for (line, word) in section.strings(key) {
        match ENFORCED.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            Some((_, parts)) => enforced.extend(*parts),
            None => {
                let known: Vec<&str> = ENFORCED.iter().map(|(name, _)| *name).collect();
                let problem = format!("there is no `{word}` here; known are {}", known.join(", "));
                section.refuse_at(line, key, problem);
            }
        }
    }
    enforced.into_iter().collect()
}

pub(super) fn scheduler(mut section: Section<'_>, known: &[QosConfig]) -> SchedulerPolicy {
    let mut policy = SchedulerPolicy::default();
    set!(
        policy.backfill => section.choice("backfill", &[
            ("easy", Backfill::Easy),
            ("conservative", Backfill::Conservative),
            ("none", Backfill::None),
        ]),
        policy.order => section.choice("order", &[
            ("multifactor", Order::Multifactor),
            ("fcfs", Order::Fcfs),
            ("sjf", Order::Sjf),
            ("saf", Order::Saf),
            ("wfp3", Order::Wfp3),
            ("unicep", Order::Unicep),
            ("f1", Order::F1),
            ("f4", Order::F4),
        ]),
        policy.predict => section.choice("predict", &[
            ("requested", Predict::Requested),
            ("actual", Predict::Actual),
            ("recent2", Predict::Recent2),
            ("similar", Predict::Similar),
        ]),
        policy.correct => section.choice("correct", &[
            ("request", Correct::Request),
            ("incremental", Correct::Incremental),
        ]),
        policy.depth => section.integer("depth", 0..=100_000_000),
        policy.depth_per_user => section.integer("depth_per_user", 0..=100_000_000),
        policy.depth_per_partition => section.integer("depth_per_partition", 0..=100_000_000),
        policy.max_wait => section.duration("max_wait", 0..=100 * YEAR),
        policy.priority_max_age => section.duration("priority_max_age", 1..=100 * YEAR),
        policy.priority_decay_half_life => section.duration("priority_decay_half_life", 0..=100 * YEAR),
        policy.priority_weight_age => section.integer("priority_weight_age", ANY),
        policy.priority_weight_assoc => section.integer("priority_weight_assoc", ANY),
        policy.priority_weight_fairshare => section.integer("priority_weight_fairshare", ANY),
        policy.priority_weight_job_size => section.integer("priority_weight_job_size", ANY),
        policy.priority_weight_partition => section.integer("priority_weight_partition", ANY),
        policy.priority_weight_qos => section.integer("priority_weight_qos", ANY),
        policy.priority_favor_small => section.boolean("priority_favor_small"),
        policy.priority_weight_tres => section.parsed("priority_weight_tres"),
        policy.fair_share_dampening_factor => section.integer("fair_share_dampening_factor", 1..=65_535),
        policy.priority_calc_period => section.duration("priority_calc_period", 1..=86_400),
        policy.priority_usage_reset_period => section.choice("priority_usage_reset_period", &[
            ("NONE", ResetPeriod::None),
            ("DAILY", ResetPeriod::Daily),
            ("WEEKLY", ResetPeriod::Weekly),
            ("MONTHLY", ResetPeriod::Monthly),
            ("QUARTERLY", ResetPeriod::Quarterly),
            ("YEARLY", ResetPeriod::Yearly),
        ]),
        policy.billing => section.choice("billing", &[("share", Billing::Share), ("cpu", Billing::Cpu)]),
    );
    policy.priority_flags = priority_flags(&mut section);
    policy.default_qos = qos::one(&mut section, "default_qos", known);
    section.finish();
    policy
}

pub(super) fn preempt(mut section: Section<'_>) -> PreemptPolicy {
    let mut policy = PreemptPolicy::default();
    set!(
        policy.by => section.choice("by", &[
            ("none", PreemptBy::None),
            ("partition", PreemptBy::Partition),
            ("qos", PreemptBy::Qos),
        ]),
        policy.mode => section.choice("mode", PREEMPT_MODES),
        policy.topology => section.boolean("topology"),
        policy.grace_time => section.duration("grace_time", 0..=YEAR),
        policy.exempt_time => section.duration("exempt_time", 0..=YEAR),
        policy.cost => section.choice("cost", &[
            ("priority", PreemptCost::Priority),
            ("jobs", PreemptCost::Jobs),
            ("work", PreemptCost::Work),
        ]),
        policy.jobs_may_forbid => section.boolean("jobs_may_forbid"),
    );
    section.finish();
    policy
}

/// The word of `suspend_exc_states` for a drained node.
const DRAIN: &str = "DRAIN";

pub(super) fn power(mut section: Section<'_>, known: &Policy) -> PowerPolicy {
    let mut program = |key| section.name(key).map(Arc::from);
    let (reboot_program, suspend_program) = (program("reboot_program"), program("suspend_program"));
    let (resume_program, resume_fail_program) = (program("resume_program"), program("resume_fail_program"));
    let mut power = PowerPolicy {
        reboot_program,
        suspend_program,
        resume_program,
        resume_fail_program,
        ..PowerPolicy::default()
    };
    match (&power.suspend_program, &power.resume_program) {
        (Some(_), None) => section.refuse("suspend_program", "it needs a resume_program beside it"),
        (None, Some(_)) => section.refuse("resume_program", "it needs a suspend_program beside it"),
        _ => {}
    }
    if power.reboot_program.is_none() && power.resume_program.is_none() && section.has("resume_timeout") {
        section.refuse("resume_timeout", "it has no effect without reboot_program or resume_program");
    }
    let keys = [
        "resume_fail_program",
        "suspend_time",
        "suspend_timeout",
        "suspend_rate",
        "resume_rate",
        "suspend_exc_nodes",
        "suspend_exc_parts",
        "suspend_exc_states",
    ];
    for key in keys.into_iter().filter(|_| power.suspend_program.is_none()) {
        if section.has(key) {
            section.refuse(key, "it has no effect without suspend_program");
        }
    }
    set!(
        power.resume_timeout => section.duration("resume_timeout", 1..=DAY),
        power.suspend_timeout => section.duration("suspend_timeout", 0..=DAY),
        power.suspend_rate => section.integer("suspend_rate", ANY),
        power.resume_rate => section.integer("resume_rate", ANY),
    );
    power.suspend_time = section.duration("suspend_time", 1..=100 * YEAR);
    let nodes: Option<HostList> = section.parsed("suspend_exc_nodes");
    power.suspend_exc_nodes = nodes.iter().flat_map(HostList::iter).map(Arc::from).collect();
    power.suspend_exc_parts = section.names("suspend_exc_parts");
    power.suspend_exc_states = section.names("suspend_exc_states");
    if let Some(other) = power.suspend_exc_states.iter().find(|state| !state.eq_ignore_ascii_case(DRAIN)) {
        section.refuse(
            "suspend_exc_states",
            format_args!("`{other}`: nodes are switched off that are idle or drained, so {DRAIN} is all that can be said"),
        );
    }
    let is_node = |name: &&Arc<str>| known.nodes.iter().any(|node| node.name == **name);
    if let Some(stray) =
        power.suspend_exc_nodes.iter().find(|name| !is_node(name)).filter(|_| !known.nodes.is_empty())
    {
        section.refuse("suspend_exc_nodes", format_args!("there is no node {stray} in [[nodes]]"));
    }
    let is_partition = |name: &&Arc<str>| known.partitions.iter().any(|one| one.name == **name);
    if let Some(stray) = power.suspend_exc_parts.iter().find(|name| !is_partition(name)) {
        section.refuse("suspend_exc_parts", format_args!("there is no partition {stray}"));
    }
    section.finish();
    power
}

pub(super) fn recovery(mut section: Section<'_>) -> RecoveryPolicy {
    let mut policy = RecoveryPolicy::default();
    set!(
        policy.node_timeout => section.duration("node_timeout", 1..=YEAR),
        policy.overlap => section.boolean("overlap"),
        policy.requeue_delay => section.duration("requeue_delay", 0..=YEAR),
    );
    section.finish();
    policy
}

pub(super) fn licenses(top: &mut Section<'_>) -> Vec<(Arc<str>, u32)> {
    let Some(section) = top.section("licenses") else { return Vec::new() };
    let mut licenses = Vec::new();
    for name in section.keys() {
        let (license, server) = name.split_once('@').unwrap_or((name, name));
        if !is_layer_name(license) || !is_layer_name(server) {
            let words = "letters, digits, `_`, `-` and `.`";
            section.refuse(
                name,
                format!("the name of a licence consists of {words}, perhaps with `@` and that of a server behind it"),
            );
        }
        licenses.extend(section.count_of(name).map(|count| (name.into(), count)));
    }
    licenses
}
