//! `scontrol show assoc_mgr`: users and associations, of which there are none, and QOS.

use std::fmt::Write;

use crate::commands::qos::Qos;
use crate::error::Failure;

/// Which records are shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    users: bool,
    associations: bool,
    qos: bool,
    /// Names of QOS; empty: all.
    names: Vec<String>,
}

/// Reads what stands behind `assoc_mgr`: `users=`, `accounts=`, `qos=`, `flags=`.
///
/// # Errors
/// Another word, or flag.
pub(super) fn wanted(words: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { users: true, associations: true, qos: true, names: Vec::new() };
    for word in words {
        let wrong = || {
            Failure::new(format!(
                "invalid option for assoc_mgr: {word}; write users=, accounts=, qos= or flags="
            ))
        };
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let items = value.split(',').filter(|item| !item.is_empty());
        match key.to_ascii_lowercase().as_str() {
            // There is nobody among whom to choose.
            "users" | "user" | "accounts" | "account" => {}
            "qos" => wanted.names.extend(items.map(str::to_owned)),
            "flags" | "flag" => {
                (wanted.users, wanted.associations, wanted.qos) = (false, false, false);
                for item in items {
                    match item.to_ascii_lowercase().as_str() {
                        "users" | "user" => wanted.users = true,
                        "assoc" | "associations" => wanted.associations = true,
                        "qos" => wanted.qos = true,
                        _ => {
                            return Err(Failure::new(format!(
                                "invalid flag '{item}'; there are users, assoc and qos"
                            )));
                        }
                    }
                }
            }
            _ => return Err(wrong()),
        }
    }
    Ok(wanted)
}

/// The page.
pub(super) fn text(wanted: &Wanted, all: &[Qos]) -> String {
    let mut text = "Current Association Manager state\n".to_owned();
    if wanted.users {
        text.push_str("\nNo users currently cached in Slurm.\n");
    }
    if wanted.associations {
        text.push_str("\nNo associations currently cached in Slurm.\n");
    }
    if !wanted.qos {
        return text;
    }
    let chosen: Vec<(usize, &Qos)> = (1..)
        .zip(all)
        .filter(|(_, qos)| wanted.names.is_empty() || wanted.names.contains(&qos.name))
        .collect();
    if chosen.is_empty() {
        text.push_str("\nNo QOS currently cached in Slurm.\n");
        return text;
    }
    text.push_str("\nQOS Records\n\n");
    for (number, qos) in chosen {
        let _ = write!(
            text,
            "QOS={}({number})\n    MaxWallPJ={}\n    Preempt={}\n    PreemptMode={}\n    Priority={}\n",
            qos.name, qos.max_wall, qos.preempt, qos.preempt_mode, qos.priority
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_what_is_wanted_is_shown() {
        let all = [
            Qos { name: "high".into(), priority: 7, ..Qos::default() },
            Qos { name: "low".into(), ..Qos::default() },
        ];
        let shown = |line: &str| text(&wanted(&words(line)).unwrap(), &all);
        assert!(shown("").contains("No users") && shown("").contains("QOS=low(2)"));
        let high = shown("flags=qos qos=high");
        assert!(
            high.contains("QOS=high(1)") && high.contains("Priority=7") && !high.contains("low"),
            "{high}"
        );
        assert!(shown("qos=other flags=QOS").contains("No QOS"));
        assert!(wanted(&words("flags=x")).is_err() && wanted(&words("x")).is_err());
    }
}
