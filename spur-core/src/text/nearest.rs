//! The nearest known word, for "did you mean".

/// The word of `known` that is nearest to `word`, if one is near enough to have been meant: at most a third
/// of its letters (and at least one) inserted, dropped, replaced or swapped with their neighbour (optimal string
/// alignment), or one of the two continues the other. The first of several equally near ones; case does not matter.
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
