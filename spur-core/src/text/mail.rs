//! Of what a user wants mail: `--mail-type`.

/// What mail can be of.
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

/// Those of the time limit, and at how many percent of it they are due.
pub const OF_TIME: [(&str, u8); 4] =
    [("TIME_LIMIT_50", 50), ("TIME_LIMIT_80", 80), ("TIME_LIMIT_90", 90), ("TIME_LIMIT", 100)];

/// Whether a list has an event.
#[must_use]
pub fn has(list: &str, event: &str) -> bool {
    list.split(',').any(|known| known == event)
}

/// The events of a list with commas, in capitals, and the words that are none.
#[must_use]
pub fn types(written: &str) -> (String, Vec<String>) {
    let words = written.to_ascii_uppercase();
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let (known, unknown): (Vec<&str>, Vec<&str>) = words.partition(|word| TYPES.contains(word));
    (known.join(","), unknown.into_iter().map(str::to_owned).collect())
}
