//! The nearest known word, for "did you mean" in messages.

/// The word of `known` that is nearest to `word`; `None` if no known word is near enough.
///
/// A known word is near enough if few letters differ: at most a third of the letters of `word`, and at least
/// one. A difference is an inserted, dropped or replaced letter, or two swapped neighbours (optimal string
/// alignment). A word that continues the other, which has at least three letters, is also near enough. The
/// first of several equally near words is returned, and case is ignored.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let long = word.chars().count();
    let allowed = (long / 3).max(1);
    let distance_to = |candidate: &'a str| {
        let letters = candidate.to_lowercase();
        let other = letters.chars().count();
        let continues = long.min(other) >= 3 && (letters.starts_with(&word) || word.starts_with(&letters));
        if !continues && long.abs_diff(other) > allowed {
            return None;
        }
        let distance = strsim::osa_distance(&word, &letters);
        (distance <= allowed || continues).then_some((distance, candidate))
    };
    if word.is_empty() {
        return None;
    }
    known.into_iter().filter_map(distance_to).min_by_key(|&(distance, _)| distance).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words() {
        let known = ["backfill", "depth", "order", "max_time", "oversubscribe"];
        for (word, expected) in [
            ("backfil", Some("backfill")),
            ("Backfill", Some("backfill")),
            ("ordre", Some("order")),
            ("dept", Some("depth")),
            ("maxtime", Some("max_time")),
            ("over", Some("oversubscribe")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
