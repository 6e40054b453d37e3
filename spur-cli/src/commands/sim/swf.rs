//! The Standard Workload Format of the Parallel Workloads Archive: one job per line, with eighteen numbers.
//!
//! The reader uses the job's number, submit time, run time, processors, requested time and user. Processors
//! are those requested, or those allocated if none were requested.

use std::sync::Arc;

use super::deed::{Arrival, Ask, Deed, Machine, Users, What, Workload};
use super::workload::LAST;
use crate::error::Failure;

const JOB: usize = 0;
const SUBMIT: usize = 1;
const RUN: usize = 3;
const ALLOCATED: usize = 4;
const REQUESTED: usize = 7;
const REQUESTED_TIME: usize = 8;
const USER: usize = 11;
const FIELDS: usize = 18;

/// Returns the number of processors, or else of nodes, in the header of a trace; `None` without either.
pub(super) fn machine_size(text: &str) -> Option<u32> {
    let named = |key: &str| {
        let lines = text.lines().map_while(|line| line.trim_start().strip_prefix(';'));
        let mut values = lines.filter_map(|line| line.trim_start().strip_prefix(key));
        values.find_map(|value| value.trim().parse().ok()).filter(|count| *count > 0)
    };
    named("MaxProcs:").or_else(|| named("MaxNodes:"))
}

/// Reads a trace. Jobs without processors or run time are skipped and counted.
///
/// # Errors
/// The first line that does not belong to a trace.
pub(super) fn read(text: &str, source: &str, machine: Machine) -> Result<Workload, Failure> {
    let mut workload = Workload { source: source.to_owned(), ..Workload::default() };
    let mut users = Users::default();
    let mut skipped = 0;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(';') {
            continue;
        }
        let line = index + 1;
        let fields =
            numbers(trimmed).map_err(|problem| Failure::new(format!("{source}:{line}: {problem}")))?;
        let processors = [fields[REQUESTED], fields[ALLOCATED]].into_iter().find(|count| *count > 0);
        let (Some(processors), true) = (processors, fields[RUN] > 0) else {
            skipped += 1;
            continue;
        };
        let limit = u64::try_from(fields[REQUESTED_TIME]).ok().filter(|limit| *limit > 0);
        let run = u64::try_from(fields[RUN]).unwrap_or(0);
        let arrival = Arrival {
            name: Arc::from(fields[JOB].to_string()),
            owner: users.owner(&fields[USER].to_string()),
            run_time: Some(limit.map_or(run, |limit| run.min(limit))),
            ask: Ask::Shape(machine.shape(u32::try_from(processors).unwrap_or(u32::MAX)), limit),
        };
        let at = u64::try_from(fields[SUBMIT]).unwrap_or(0);
        if at > LAST {
            let problem = format!("{at} is too late, field {} of a trace; at most {LAST}", SUBMIT + 1);
            return Err(Failure::new(format!("{source}:{line}: {problem}")));
        }
        workload.deeds.push(Deed { at, line, what: What::Submit(Box::new(arrival)) });
    }
    workload.skipped = Some(skipped);
    Ok(workload)
}

/// Parses the numbers of one line. Fractions, which some traces have, are truncated.
fn numbers(line: &str) -> Result<[i64; FIELDS], String> {
    let mut numbers = [-1; FIELDS];
    let mut count = 0;
    for (slot, word) in numbers.iter_mut().zip(line.split_ascii_whitespace()) {
        let number = word.parse().ok().or_else(|| without_fraction(word));
        *slot = number.ok_or_else(|| format!("`{word}` is no number, field {} of a trace", count + 1))?;
        count += 1;
    }
    if count < FIELDS {
        return Err(format!("a line of a trace has {FIELDS} numbers, this one {count}"));
    }
    Ok(numbers)
}

/// Parses a number with a fraction, which is truncated; `None` for any other word.
fn without_fraction(word: &str) -> Option<i64> {
    let (whole, fraction) = word.split_once('.')?;
    let is_number = !fraction.is_empty() && fraction.bytes().all(|digit| digit.is_ascii_digit());
    whole.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_of_a_line() {
        let text = "; MaxNodes: 4\n;   MaxProcs: 8\n\
                    7 100 -1 50 4 -1 -1 -1 40 -1 1 3 -1 -1 -1 -1 -1 -1\n\
                    8 101 -1 50 4 -1 -1 2 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n\
                    9 102 -1 0 4 -1 -1 2 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n\
                    10 103 -1 9 -1 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n";
        assert_eq!(machine_size(text), Some(8));
        let workload = read(text, "t", Machine::Flat).unwrap();
        assert_eq!(workload.skipped, Some(2));
        let seen: Vec<_> = workload
            .deeds
            .iter()
            .map(|deed| match &deed.what {
                What::Submit(job) => match &job.ask {
                    Ask::Shape(shape, limit) => {
                        (deed.at, deed.line, job.name.to_string(), job.run_time, shape.cpus_per_task, *limit)
                    }
                    Ask::Options(_) => panic!("a trace has no options"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            seen,
            [
                (100, 3, "7".to_owned(), Some(40), Some(4), Some(40)),
                (101, 4, "8".to_owned(), Some(50), Some(2), None)
            ]
        );
    }

    #[test]
    fn what_is_no_trace_is_told_by_its_line() {
        let late = "1 253402300800 -1 50 4 -1 -1 -1 40 -1 1 3 -1 -1 -1 -1 -1 -1";
        for (line, says) in [
            ("1 2 3", "this one 3"),
            ("1 x", "`x` is no number, field 2"),
            ("1 2.x", "`2.x` is no number, field 2"),
            ("1 2 -1.", "`-1.` is no number, field 3"),
            (late, "253402300800 is too late, field 2"),
        ] {
            let error = read(&format!(";\n{line}\n"), "t.swf", Machine::Flat).unwrap_err().to_string();
            assert!(error.starts_with("t.swf:2: ") && error.contains(says), "{error}");
        }
    }
}
