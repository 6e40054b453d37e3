//! Events of a job for which a user gets mail: the `--mail-type` option.

/// Events that `ALL` includes, in Slurm's order.
pub const ALL: [&str; 6] = ["INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"];

/// All words that `--mail-type` accepts.
pub const TYPES: &[&str] = &[
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
];

/// Time limit events, with the percentage of the limit at which each is due.
pub const OF_TIME: [(&str, u8); 4] =
    [("TIME_LIMIT_50", 50), ("TIME_LIMIT_80", 80), ("TIME_LIMIT_90", 90), ("TIME_LIMIT", 100)];

/// True if the list contains the event.
#[must_use]
pub fn has(list: &str, event: &str) -> bool {
    list.split(',').any(|known| known == event)
}

/// True if the list requests mail for the event, by its name or by `ALL`.
#[must_use]
pub fn tells_of(list: &str, event: &str) -> bool {
    has(list, event) || (has(list, "ALL") && ALL.contains(&event))
}

/// Splits a list at its commas into known events, in capitals, and unknown words.
#[must_use]
pub fn types(written: &str) -> (String, Vec<String>) {
    let words = written.to_ascii_uppercase();
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let (known, unknown): (Vec<&str>, Vec<&str>) = words.partition(|word| TYPES.contains(word));
    (known.join(","), unknown.into_iter().map(str::to_owned).collect())
}

/// Prints the events of a list in Slurm's order, with `ALL` replaced by the events it includes. An empty list
/// prints as an empty text.
#[must_use]
pub fn shown(list: &str) -> String {
    let order = [&["ARRAY_TASKS"], &ALL[..], &OF_TIME.map(|(event, _)| event)].concat();
    order.into_iter().filter(|event| tells_of(list, event)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_slurm_shows() {
        for (list, expected) in [
            ("", ""),
            ("NONE", ""),
            ("FAIL,END", "END,FAIL"),
            ("ALL", "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT"),
            (
                "TIME_LIMIT,TIME_LIMIT_90,TIME_LIMIT_80,TIME_LIMIT_50,END,ARRAY_TASKS",
                "ARRAY_TASKS,END,TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT_90,TIME_LIMIT",
            ),
        ] {
            assert_eq!(shown(list), expected, "{list}");
        }
    }
}
