//! The nearest known word, for "did you mean".

/// The word of `known` that is nearest to `word`, if one is near enough to have been meant: at most a third
/// of its letters (and at least one) inserted, dropped, replaced or swapped with their neighbour, or one of
/// the two continues the other. The first of several equally near ones; case does not matter.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let allowed = (word.len() / 3).max(1);
    let distance_to = |candidate: &'a str| {
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        let continues = word.len() >= 3
            && letters.len() >= 3
            && (letters.starts_with(&word) || word.starts_with(&letters));
        let distance = distance(&word, &letters);
        (distance <= allowed || continues).then_some((distance, candidate))
    };
    if word.is_empty() {
        return None;
    }
    known.into_iter().filter_map(distance_to).min_by_key(|&(distance, _)| distance).map(|(_, word)| word)
}

/// Edits between two words: insertions, deletions, replacements and swaps of neighbours, each once per place
/// (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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

    #[test]
    fn distances() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("abc", "acb"), 1);
        assert_eq!(d("kitten", "sitting"), 3);
    }
}
