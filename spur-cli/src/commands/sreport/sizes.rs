//! Reports of jobs by size.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use spur_proto::v1::AccountingRow;

use super::amount::share;
use super::{Facts, Settings, heading};
use crate::format::report::Layout;

/// Slurm's default lower bounds of groups.
pub(super) const GROUPS: [u64; 4] = [50, 250, 500, 1000];

/// Grouping of jobs before their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The account whose line includes the job's account.
    Account,
    /// The workload characterization key.
    WcKey,
    /// The account and the key.
    AccountAndWcKey,
}

/// A report of sizes.
pub(super) struct Sizes<'a> {
    pub(super) by: By,
    /// Lower bounds of groups, ascending.
    pub(super) groups: &'a [u64],
    /// True to count jobs instead of their time.
    pub(super) counts: bool,
    /// Account whose line includes each account; `None` if each has its own line. Other accounts count for
    /// `root` if it is one of these, and are omitted otherwise.
    pub(super) tops: Option<BTreeMap<String, String>>,
}

impl Sizes<'_> {
    /// Returns the text of the report.
    pub(super) fn text(&self, facts: &Facts, settings: &Settings, rows: &[AccountingRow]) -> String {
        let unit = settings.unit;
        let names: Vec<String> = self.names();
        let mut sums: BTreeMap<String, Vec<u128>> = BTreeMap::new();
        let mut seconds: BTreeMap<String, u128> = BTreeMap::new();
        for row in rows {
            let span = u128::from(facts.span(row));
            let Some(key) = self.key(row).filter(|_| span > 0) else { continue };
            let cpus = u64::from(row.alloc_cpus);
            let group = self.groups.iter().filter(|least| **least <= cpus).count();
            let used = span * u128::from(cpus);
            let sum = sums.entry(key.clone()).or_insert_with(|| vec![0; names.len()]);
            sum[group] += if self.counts { 1 } else { used };
            *seconds.entry(key).or_default() += used;
        }
        let total: u128 = seconds.values().sum();
        let mut table = vec![];
        for (key, sums) in &sums {
            let mut line = vec![facts.cluster.clone(), key.clone()];
            line.extend(sums.iter().map(|sum| match self.counts {
                true => sum.to_string(),
                false => unit.text(*sum, total),
            }));
            line.push(share(seconds[key], total));
            table.push(line);
        }
        let mut text = String::new();
        if !settings.no_header {
            let title = if self.by == By::WcKey { "Job Sizes by Wckey" } else { "Job Sizes" };
            let counted = match self.counts {
                true => "Units are in number of jobs ran".to_owned(),
                false => format!("Time reported in {}", unit.heading("")),
            };
            text = heading(title, facts, true, &counted);
        }
        text + &self.lines(settings, &names, &table)
    }

    fn key(&self, row: &AccountingRow) -> Option<String> {
        let account = match &self.tops {
            None => &row.account,
            Some(tops) => tops.get(&row.account).or_else(|| tops.get("root"))?,
        };
        Some(match self.by {
            By::Account => account.clone(),
            By::WcKey => row.wckey.clone(),
            By::AccountAndWcKey => format!("{account}:{}", row.wckey),
        })
    }

    /// Returns the headers of the groups.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.groups.len() + 1);
        let mut from = 0;
        for next in self.groups {
            names.push(format!("{from}-{} CPUs", next - 1));
            from = *next;
        }
        names.push(format!(">= {from} CPUs"));
        names
    }

    /// Returns the table, with columns for the cluster, the key, each group and the share.
    fn lines(&self, settings: &Settings, names: &[String], table: &[Vec<String>]) -> String {
        let key = match self.by {
            By::Account => ("Account", 9),
            By::WcKey => ("Wckey", 9),
            By::AccountAndWcKey => ("Account", -20),
        };
        let mut columns: Vec<(&str, isize)> = vec![("Cluster", 9), key];
        let width = if settings.unit.has_share() { 20 } else { 13 };
        columns.extend(names.iter().map(|name| (name.as_str(), width)));
        columns.push(("% of cluster", 12));
        let mut text = String::new();
        let mut line = |values: &[&str]| {
            match &settings.layout() {
                Layout::Columns => {
                    for (value, (_, width)) in values.iter().zip(&columns) {
                        let places = width.unsigned_abs();
                        let _ = match width {
                            ..0 => write!(text, "{value:<places$.places$} "),
                            _ => write!(text, "{value:>places$.places$} "),
                        };
                    }
                }
                Layout::Delimited { delimiter, closed } => {
                    text.push_str(&values.join(delimiter));
                    text.push_str(if *closed { delimiter } else { "" });
                }
            }
            text.push('\n');
        };
        if !settings.no_header {
            line(&columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            if settings.layout() == Layout::Columns {
                let rules: Vec<String> =
                    columns.iter().map(|(_, width)| "-".repeat(width.unsigned_abs())).collect();
                line(&rules.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
        for row in table {
            line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        text
    }
}
