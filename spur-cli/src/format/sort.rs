//! Order of printed records, from specifications such as `P,t,-p`.

use super::field::{Field, Show, Table};

struct Key<R: 'static> {
    field: &'static Field<R>,
    descending: bool,
}

/// Fields to sort by, the most significant first.
pub struct Sort<R: 'static> {
    keys: Vec<Key<R>>,
}

impl<R> Sort<R> {
    /// Parses letters with optional commas between them. Each may have a prefix `+` (ascending, the default)
    /// or `-`. A prefix `#` selects `configured`, the order of the configuration, if there is one.
    ///
    /// # Errors
    /// A message that names the unknown letter.
    pub fn parse(
        text: &str,
        table: &'static Table<R>,
        configured: Option<&'static Field<R>>,
    ) -> Result<Sort<R>, String> {
        let mut keys = Vec::new();
        for item in text.split(',') {
            let (mut descending, mut as_configured) = (false, false);
            for letter in item.trim().chars() {
                match letter {
                    '-' => descending = true,
                    '+' => descending = false,
                    '#' if configured.is_some() => as_configured = true,
                    _ => {
                        let field = table.by_letter(letter);
                        let field = field.ok_or_else(|| format!("Invalid sort specification: {letter}"))?;
                        let field = configured.filter(|_| as_configured).unwrap_or(field);
                        keys.push(Key { field, descending });
                        (descending, as_configured) = (false, false);
                    }
                }
            }
        }
        Ok(Sort { keys })
    }

    /// Sorts the records; the sort is stable.
    pub fn apply(&self, records: &mut [R], show: &Show) {
        records.sort_by(|a, b| {
            let orders = self.keys.iter().map(|key| {
                let order = key.field.compare(a, b, show);
                if key.descending { order.reverse() } else { order }
            });
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
    }
}
