//! Hostlists with one bracket group, until the text room has its own.

pub(super) fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let comma = rest.find(',').unwrap_or(rest.len());
        let open = rest.find('[').filter(|&open| open < comma);
        let Some(open) = open else {
            names.push(rest[..comma].to_owned());
            rest = rest.get(comma + 1..).unwrap_or("");
            continue;
        };
        let close = rest.find(']').ok_or("a [ without its ]")?;
        for part in rest[open + 1..close].split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let from: u32 = low.parse().map_err(|_| format!("{low} is no number"))?;
            let to: u32 = high.parse().map_err(|_| format!("{high} is no number"))?;
            if from > to {
                return Err(format!("{part} runs backwards"));
            }
            let width = low.len();
            names.extend((from..=to).map(|n| format!("{}{n:0width$}", &rest[..open])));
        }
        rest = rest[close + 1..].trim_start_matches(',');
    }
    Ok(names)
}

pub(super) fn compress(names: &[&str]) -> String {
    match names {
        [only] => (*only).to_owned(),
        [first, .., last] => {
            let digits = first.len() - first.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let (stem, low) = first.split_at(first.len() - digits);
            last.strip_prefix(stem).map_or_else(|| names.join(","), |high| format!("{stem}[{low}-{high}]"))
        }
        [] => String::new(),
    }
}

pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known.into_iter().find(|other| other.eq_ignore_ascii_case(name)).map(str::to_owned)
}
