//! `propagate_resource_limits` and `propagate_resource_limits_except`: the resource limits of the submitting
//! process that jobs get, unless `--propagate` names others.

use std::sync::Arc;

use super::JobPolicy;

/// The limits that jobs may get, without `RLIMIT_`.
pub const RESOURCE_LIMITS: [&str; 10] =
    ["AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"];

/// The name of a limit, written with or without `RLIMIT_` and in any letter case; `None` if there is no such
/// limit.
#[must_use]
pub fn resource_limit(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_uppercase();
    let word = word.strip_prefix("RLIMIT_").unwrap_or(&word);
    RESOURCE_LIMITS.into_iter().find(|name| *name == word)
}

impl JobPolicy {
    /// True if a job that does not name its limits gets the user's limit of this name.
    #[must_use]
    pub fn propagates(&self, name: &str) -> bool {
        let names = |list: &[Arc<str>], name: &str| list.iter().any(|known| **known == *name);
        match names(&self.propagate_resource_limits, "ALL") {
            true => !names(&self.propagate_resource_limits_except, name),
            false => names(&self.propagate_resource_limits, name),
        }
    }

    /// The limits that a job gets if it names none, as `--propagate` names them: `ALL`, `NONE` or a list.
    #[must_use]
    pub fn propagated(&self) -> String {
        let names: Vec<&str> = RESOURCE_LIMITS.into_iter().filter(|name| self.propagates(name)).collect();
        match names.len() {
            0 => "NONE".to_owned(),
            count if count == RESOURCE_LIMITS.len() => "ALL".to_owned(),
            _ => names.join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_propagated_as_the_site_says() {
        let list = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>();
        let policy = |only: &[&str], except: &[&str]| JobPolicy {
            propagate_resource_limits: list(only),
            propagate_resource_limits_except: list(except),
            ..JobPolicy::default()
        };
        assert_eq!(JobPolicy::default().propagated(), "ALL");
        assert_eq!(policy(&["NONE"], &[]).propagated(), "NONE");
        assert_eq!(policy(&["CORE", "STACK"], &[]).propagated(), "CORE,STACK");
        let but_memlock = policy(&["ALL"], &["MEMLOCK"]);
        assert_eq!(but_memlock.propagated(), "AS,CORE,CPU,DATA,FSIZE,NOFILE,NPROC,RSS,STACK");
        assert!(but_memlock.propagates("CORE") && !but_memlock.propagates("MEMLOCK"));
        assert_eq!(
            [resource_limit("rlimit_memlock"), resource_limit("Core"), resource_limit("NICE")],
            [Some("MEMLOCK"), Some("CORE"), None]
        );
    }
}
