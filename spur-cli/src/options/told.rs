//! Output of `-v`: names and values of the given options, in the words of Slurm 22.05.

use spur_core::text::signal::WarnSignal;
use spur_core::text::time::{TimeLimit, When};

use super::submission::Submission;

/// Options that Slurm does not list.
const UNTOLD: [&str; 4] = ["export-file", "het-group", "umask", "x11"];
/// Events of `--mail-type=ALL`.
const ALL_MAIL: &str = "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT";

/// Context of the call that is needed to print values as Slurm does.
pub trait Place {
    /// Returns a point in time in the user's local time; `None` if it cannot be determined.
    fn stamp(&self, when: When) -> Option<String>;
    /// Returns the absolute path of a file.
    fn path(&self, file: &str) -> String;
}

/// Returns the lines that list the given options.
pub fn lines(wishes: &Submission, place: &dyn Place) -> Vec<String> {
    let rule = format!("{0} {0}", "-".repeat(20));
    let listed = wishes.said.iter().filter(|(name, _)| !UNTOLD.contains(name));
    let rows = listed.map(|(name, value)| {
        let value = spelled(name, value.as_deref().unwrap_or_default(), wishes, place);
        format!("{name:<20}: {value}")
    });
    let above = ["defined options".to_owned(), rule.clone()];
    above.into_iter().chain(rows).chain([rule, "end of defined options".to_owned()]).collect()
}

fn spelled(name: &str, value: &str, wishes: &Submission, place: &dyn Place) -> String {
    let stamp = |when: Option<When>| when.and_then(|when| place.stamp(when));
    let changed = match name {
        "requeue" | "no-requeue" | "oversubscribe" => Some(name.to_owned()),
        "bell" => Some("bell-always".to_owned()),
        "no-bell" => Some("bell-never".to_owned()),
        "verbose" => Some(wishes.verbose.to_string()),
        "begin" => stamp(wishes.begin),
        "deadline" => stamp(wishes.deadline),
        "time" | "time-min" | "delay-boot" => value.parse().ok().map(clock),
        "gres" => Some(value.split(',').map(|one| format!("gres:{one}")).collect::<Vec<_>>().join(",")),
        "mem" | "mem-per-cpu" | "mem-per-gpu" | "tmp" => megabytes(value),
        "mail-type" => Some(mail(value)),
        "signal" => wishes.spec.signal.parse().ok().map(warning),
        "switches" => value.split_once('@').and_then(|(count, time)| {
            let time: TimeLimit = time.parse().ok()?;
            Some(format!("{count}@{}", clock(time)))
        }),
        "input" | "output" | "error" if value == "none" => Some("/dev/null".to_owned()),
        "input" | "output" | "error" if wishes.is_batch => Some(place.path(value)),
        "open-mode" => value.get(..1).map(str::to_owned),
        "no-kill" if !value.is_empty() => Some("unset".to_owned()),
        "distribution" => Some(value.to_ascii_lowercase()),
        "kill-command" if !value.is_empty() => Some(value.to_ascii_uppercase()),
        _ => None,
    };
    changed.unwrap_or_else(|| if value.is_empty() { unsaid(name) } else { value }.to_owned())
}

/// Returns the text that Slurm prints for an omitted value.
fn unsaid(name: &str) -> &'static str {
    match name {
        "exclusive" => "exclusive",
        "nice" => "100",
        "immediate" | "kill-on-bad-exit" => "1",
        "propagate" => "ALL",
        "get-user-env" | "resv-ports" => "0",
        "kill-command" => "TERM",
        "compress" => "lz4",
        _ => "set",
    }
}

/// Formats `--signal` with the signal's name, and with the time only if it is not the default.
fn warning(warning: WarnSignal) -> String {
    let name = warning.signal.name().map_or_else(|| warning.signal.to_string(), str::to_owned);
    let flags = [(warning.overlap_reservation, "R"), (warning.batch_only, "B")];
    let flags: String = flags.into_iter().filter(|(said, _)| *said).map(|(_, flag)| flag).collect();
    let colon = if flags.is_empty() { "" } else { ":" };
    match warning.seconds {
        WarnSignal::DEFAULT_SECONDS => format!("{flags}{colon}{name}"),
        seconds => format!("{flags}{colon}{name}@{seconds}"),
    }
}

/// Formats a time limit as `[D-]HH:MM:SS`, rounded up to whole minutes; `UNLIMITED` for none.
fn clock(limit: TimeLimit) -> String {
    let Some(seconds) = limit.seconds().filter(|seconds| *seconds > 0) else { return "UNLIMITED".to_owned() };
    let minutes = seconds.div_ceil(60);
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    let day = if days > 0 { format!("{days}-") } else { String::new() };
    format!("{day}{hours:02}:{minutes:02}:00")
}

/// Formats an amount of memory in the largest unit in which it is a whole number; megabytes have no unit.
/// `None` for an invalid amount.
fn megabytes(value: &str) -> Option<String> {
    let amount = value.parse::<spur_core::text::memory::MemoryMb>().ok()?.0;
    let units = [(1 << 20, "T"), (1 << 10, "G")];
    let unit = units.into_iter().find(|(size, _)| amount > 0 && amount % size == 0);
    Some(unit.map_or_else(|| amount.to_string(), |(size, name)| format!("{}{name}", amount / size)))
}

fn mail(value: &str) -> String {
    let value = value.to_ascii_uppercase();
    let words = value.split(',').map(|word| if word == "ALL" { ALL_MAIL } else { word });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Settled;
    use crate::options::defs::{SALLOC_LINE, SBATCH_LINE, SRUN_LINE};

    struct Anywhere;

    impl Place for Anywhere {
        fn stamp(&self, _when: When) -> Option<String> {
            Some("2026-11-25T10:55:26".to_owned())
        }

        fn path(&self, file: &str) -> String {
            format!("/home/alice/{file}")
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn rows(lines: &[String]) -> String {
        assert_eq!(lines[0], "defined options");
        assert_eq!(lines[1], "-------------------- --------------------");
        assert_eq!(lines[lines.len() - 2..], [lines[1].clone(), "end of defined options".to_owned()]);
        lines[2..lines.len() - 2].join("\n")
    }

    /// Compared with the output of Slurm 22.05 for the same options, word for word.
    #[test]
    fn what_was_said_is_listed_as_slurm_lists_it() {
        let argv = words(
            "-v -J abc -p main --mem=4G -c2 -n4 --gres=gpu:2 --begin=now+1hour -w n1 --dependency=afterok:12 \
             -o x%j.out -C ib --signal=B:USR1@60 --hint=nomultithread --umask=077",
        );
        let script = "#!/bin/sh\n#SBATCH -N2 -t 10 --mail-type=ALL\n#SBATCH --export=NONE\n";
        let said = Submission::parse(&argv, &|_| None, Some(script)).unwrap();
        let expected = "\
begin               : 2026-11-25T10:55:26
constraint          : ib
cpus-per-task       : 2
dependency          : afterok:12
export              : NONE
gres                : gres:gpu:2
hint                : nomultithread
job-name            : abc
mail-type           : INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT
mem                 : 4G
nodelist            : n1
nodes               : 2
ntasks              : 4
output              : /home/alice/x%j.out
partition           : main
signal              : B:USR1
time                : 00:10:00
verbose             : 1";
        assert_eq!(rows(&lines(&said[0], &Anywhere)), expected);
    }

    #[test]
    fn values_are_spelled_as_slurm_spells_them() {
        for (line, said, row) in [
            (&SRUN_LINE, "-l", "label               : set"),
            (&SRUN_LINE, "--exclusive", "exclusive           : exclusive"),
            (&SRUN_LINE, "-K", "kill-on-bad-exit    : 1"),
            (&SRUN_LINE, "-I5", "immediate           : 5"),
            (&SRUN_LINE, "-I", "immediate           : 1"),
            (&SRUN_LINE, "-inone", "input               : /dev/null"),
            (&SRUN_LINE, "-oout", "output              : out"),
            (&SRUN_LINE, "-t1-2", "time                : 1-02:00:00"),
            (&SRUN_LINE, "-t90:30", "time                : 01:31:00"),
            (&SRUN_LINE, "-t0", "time                : UNLIMITED"),
            (&SRUN_LINE, "--mem-per-cpu=500", "mem-per-cpu         : 500"),
            (&SRUN_LINE, "--switches=2@10", "switches            : 2@00:10:00"),
            (&SRUN_LINE, "--signal=R:9@10", "signal              : R:KILL@10"),
            (&SRUN_LINE, "-s", "oversubscribe       : oversubscribe"),
            (&SRUN_LINE, "--no-kill=off", "no-kill             : unset"),
            (&SALLOC_LINE, "--bell", "bell                : bell-always"),
            (&SALLOC_LINE, "-Kint", "kill-command        : INT"),
            (&SALLOC_LINE, "-K", "kill-command        : TERM"),
            (&SBATCH_LINE, "--nice", "nice                : 100"),
            (&SBATCH_LINE, "--open-mode=append", "open-mode           : a"),
            (&SBATCH_LINE, "-vv", "verbose             : 2"),
            (&SBATCH_LINE, "--distribution=block:cyclic,Pack", "distribution        : block:cyclic,pack"),
        ] {
            let mut wishes = Submission::default();
            assert!(
                matches!(wishes.settle_line(line, &words(said), &|_| None), Ok(Settled::Run(_))),
                "{said}"
            );
            assert_eq!(rows(&lines(&wishes, &Anywhere)), row, "{said}");
        }
    }
}
