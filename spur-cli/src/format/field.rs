//! One thing that can be printed of a record.

use std::cmp::Ordering;

use jiff::tz::TimeZone;

/// What texts depend on besides the record.
#[derive(Clone, Debug)]
pub struct Show {
    /// The zone in which times are printed.
    pub zone: TimeZone,
    /// Seconds since the epoch.
    pub now: i64,
    /// Whether memory is printed in the largest fitting unit rather than as it was asked for.
    pub convert: bool,
    /// The most characters of an array's task list; 0 is no limit.
    pub array_width: usize,
}

impl Show {
    /// The width to which Slurm cuts the task list of an array.
    pub const ARRAY_WIDTH: usize = 64;

    /// Prints times in `zone`, everything else as by default.
    pub fn new(zone: TimeZone, now: i64) -> Show {
        Show { zone, now, convert: true, array_width: Show::ARRAY_WIDTH }
    }
}

/// How records are ordered by a field.
pub enum Order<R> {
    /// By the text that is printed.
    Shown,
    /// By what stands behind it.
    By(fn(&R, &R) -> Ordering),
}

/// A field of the records `R`: how it is named in format strings, and what it prints.
pub struct Field<R: 'static> {
    /// Its letter in `%X` and in sort specifications.
    pub letter: Option<char>,
    /// Its long name, matched without regard to case.
    pub name: &'static str,
    /// What stands above its column.
    pub header: &'static str,
    /// The text for one record.
    pub text: fn(&R, &Show) -> String,
    /// How records sort by it.
    pub order: Order<R>,
    /// Whether it is a span of time, of which no digit is ever cut off; the words in its place are.
    pub span: bool,
}

impl<R> Field<R> {
    /// A field that sorts by its text.
    pub const fn new(
        letter: Option<char>,
        name: &'static str,
        header: &'static str,
        text: fn(&R, &Show) -> String,
    ) -> Field<R> {
        Field { letter, name, header, text, order: Order::Shown, span: false }
    }

    /// The same, sorting otherwise.
    pub const fn by(self, order: fn(&R, &R) -> Ordering) -> Field<R> {
        Field { order: Order::By(order), ..self }
    }

    /// The same, for a span of time.
    pub const fn span(self) -> Field<R> {
        Field { span: true, ..self }
    }

    /// How two records compare by this field.
    pub fn compare(&self, a: &R, b: &R, show: &Show) -> Ordering {
        match self.order {
            Order::Shown => (self.text)(a, show).cmp(&(self.text)(b, show)),
            Order::By(order) => order(a, b),
        }
    }
}

/// The field with this letter.
pub(super) fn by_letter<R>(table: &'static [Field<R>], letter: char) -> Option<&'static Field<R>> {
    table.iter().find(|field| field.letter == Some(letter))
}

/// The field with this long name.
pub(super) fn by_name<R>(table: &'static [Field<R>], name: &str) -> Option<&'static Field<R>> {
    table.iter().find(|field| field.name.eq_ignore_ascii_case(name))
}
