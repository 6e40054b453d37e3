//! The script that a login shell runs to print its user's variables, and the parser of its output.

use std::collections::BTreeMap;

/// Script that the shell runs.
///
/// The variables are between two marks, because a shell may print other text and leave programs behind that
/// keep its output open.
pub const SCRIPT: &str = "echo spur-login-environment; /usr/bin/env -0; echo spur-login-environment";
const MARK: &str = "spur-login-environment";
/// Variables of the shell itself, or of the host on which the user logged in.
const OWN: [&str; 7] = ["DISPLAY", "ENVIRONMENT", "HOSTNAME", "OLDPWD", "PWD", "SHLVL", "_"];

/// True if the output is complete, even if more text may follow later.
#[must_use]
pub fn is_whole(told: &[u8]) -> bool {
    told.ends_with(format!("\0{MARK}\n").as_bytes())
}

/// Names and values of the variables between the marks; `None` if the marks are missing.
#[must_use]
pub fn variables(told: &[u8]) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let (begin, end) = (format!("{MARK}\n"), format!("\0{MARK}\n"));
    let rest = told.strip_suffix(end.as_bytes())?;
    let start = rest.windows(begin.len()).position(|part| part == begin.as_bytes())? + begin.len();
    let split = |entry: &[u8]| {
        let at = entry.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        Some((entry[..at].to_vec(), entry[at + 1..].to_vec()))
    };
    let all = rest[start..].split(|&byte| byte == 0).filter_map(split);
    Some(all.filter(|(name, _)| !OWN.iter().any(|own| name == own.as_bytes())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_between_marks() {
        let told = b"Welcome!\nspur-login-environment\nA=1\0PWD=/\0B=two\nlines=2\0spur-login-environment\n";
        let pair = |(name, value): (&str, &str)| (name.into(), value.into());
        assert!(is_whole(told) && !is_whole(&told[..told.len() - 1]));
        assert_eq!(variables(told).unwrap(), [("A", "1"), ("B", "two\nlines=2")].map(pair).into());
        assert_eq!(variables(b"A=1\0"), None);
        assert_eq!(SCRIPT.matches(MARK).count(), 2);
    }
}
