//! In which order records are printed: `P,t,-p`.

use super::field::{Field, Show, Table};

struct Key<R: 'static> {
    field: &'static Field<R>,
    descending: bool,
}

/// The fields to sort by, most significant first.
pub struct Sort<R: 'static> {
    keys: Vec<Key<R>>,
}

impl<R> Sort<R> {
    /// Reads letters with commas between or not, each with `+` (ascending, the default) or `-` before it, and
    /// with `#` for `configured`, the field whose order is that of the configuration, where there is one.
    ///
    /// # Errors
    /// Says which letter is none.
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

    /// Sorts; records that are equal by all keys stay as they are.
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
