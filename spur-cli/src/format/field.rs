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
    /// Whether what was read and written is printed in bytes.
    pub disks_in_bytes: bool,
    /// The unit in which memory is printed, of `KMGTP`; `None` for the one that fits.
    pub unit: Option<char>,
    /// The most characters of an array's task list; 0 is no limit.
    pub array_width: usize,
    /// The name of the cluster, where it is wanted.
    pub cluster: String,
    /// How times are printed.
    pub times: Times,
    /// Whether JSON stands on one line: `SLURM_JSON=compact`.
    pub compact: bool,
    /// Who asks, where that is wanted.
    pub asker: Asker,
    /// Since when what is shown may be old, in seconds since the Unix epoch: the controller's database was away.
    pub stale: Option<i64>,
}

/// Who asks, as JSON tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The terminal; empty without one.
    pub terminal: String,
    /// His name.
    pub user: String,
    /// The name of his group.
    pub group: String,
    /// What he wrote.
    pub command: Vec<String>,
}

/// How points in time are printed: `SLURM_TIME_FORMAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// `2026-11-20T10:00:00`.
    #[default]
    Standard,
    /// Shorter the nearer they are.
    Relative,
    /// By a format of `strftime`.
    Format(String),
}

impl Show {
    /// The width to which Slurm cuts the task list of an array.
    pub const ARRAY_WIDTH: usize = 64;

    /// Prints times in `zone`, everything else as by default.
    pub fn new(zone: TimeZone, now: i64) -> Show {
        Show {
            zone,
            now,
            convert: true,
            disks_in_bytes: false,
            unit: None,
            array_width: Show::ARRAY_WIDTH,
            cluster: String::new(),
            times: Times::Standard,
            compact: false,
            asker: Asker::default(),
            stale: None,
        }
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
    /// Other long names for the same.
    pub aliases: &'static [&'static str],
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
        Field { letter, name, aliases: &[], header, text, order: Order::Shown, span: false }
    }

    /// The same, sorting otherwise.
    pub const fn by(self, order: fn(&R, &R) -> Ordering) -> Field<R> {
        Field { order: Order::By(order), ..self }
    }

    /// The same, with other long names.
    pub const fn or(self, aliases: &'static [&'static str]) -> Field<R> {
        Field { aliases, ..self }
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

/// The fields of one kind of records, and what their lists are called.
pub struct Table<R: 'static> {
    /// What the records are called where a field is not one of them: `job`, `node`.
    pub records: &'static str,
    /// The fields; those with letters as `%all` prints them, those that only Spur has behind the others.
    pub fields: &'static [Field<R>],
    /// What `%all` prints behind a small letter, behind a capital one, and behind the last one.
    pub bars: [&'static str; 3],
}

impl<R> Table<R> {
    /// The field with this letter.
    pub(super) fn by_letter(&self, letter: char) -> Option<&'static Field<R>> {
        self.fields.iter().find(|field| field.letter == Some(letter))
    }

    /// The field with this long name.
    pub(super) fn by_name(&self, name: &str) -> Option<&'static Field<R>> {
        let same = |other: &&str| other.eq_ignore_ascii_case(name);
        self.fields.iter().find(|field| same(&field.name) || field.aliases.iter().any(same))
    }

    /// The fields that have letters, small ones first.
    pub(super) fn lettered(&self) -> Vec<(char, &'static Field<R>)> {
        let lettered = self.fields.iter().filter_map(|field| Some((field.letter?, field)));
        let mut fields: Vec<_> = lettered.collect();
        fields.sort_by_key(|(letter, _)| (letter.is_ascii_uppercase(), *letter));
        fields
    }
}
