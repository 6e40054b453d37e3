//! One printable field of a record.

use std::cmp::Ordering;

use jiff::tz::TimeZone;

/// Facts besides the record that determine its printed text.
#[derive(Clone, Debug)]
pub struct Show {
    /// Time zone in which times are printed.
    pub zone: TimeZone,
    /// Seconds since the Unix epoch at the time of printing.
    pub now: i64,
    /// True to print memory in the largest fitting unit rather than as requested.
    pub convert: bool,
    /// True to print amounts read and written in bytes.
    pub disks_in_bytes: bool,
    /// Unit in which memory is printed, one of `KMGTP`; `None` for the largest fitting one.
    pub unit: Option<char>,
    /// Maximum number of characters of an array's task list; 0 for no limit.
    pub array_width: usize,
    /// Name of the cluster; empty if not needed.
    pub cluster: String,
    /// Format of times.
    pub times: Times,
    /// True to print JSON on one line: `SLURM_JSON=compact`.
    pub compact: bool,
    /// Caller of the command; empty if not needed.
    pub asker: Asker,
    /// Seconds since the Unix epoch since which the records may be out of date, because the controller's
    /// database is away; `None` if the records are current.
    pub stale: Option<i64>,
}

/// Caller of the command, as JSON output names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The terminal; empty without one.
    pub terminal: String,
    /// Name of the user.
    pub user: String,
    /// Name of the user's group.
    pub group: String,
    /// Words of the command line.
    pub command: Vec<String>,
}

/// Format of points in time: `SLURM_TIME_FORMAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Full date and time, as `2026-11-20T10:00:00`.
    #[default]
    Standard,
    /// Shorter for times near the present.
    Relative,
    /// A format of `strftime`.
    Format(String),
}

impl Show {
    /// Width to which Slurm truncates the task list of an array.
    pub const ARRAY_WIDTH: usize = 64;

    /// Returns the defaults, with times in `zone`.
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

/// Order of records by a field.
pub enum Order<R> {
    /// Order of the printed texts.
    Shown,
    /// Order by a comparison of the records.
    By(fn(&R, &R) -> Ordering),
}

/// Definition of a field of the records `R`: its names in format strings, its text and its order.
pub struct Field<R: 'static> {
    /// Letter of the field in `%X` and in sort specifications.
    pub letter: Option<char>,
    /// Long name of the field; case is ignored.
    pub name: &'static str,
    /// Other long names of the field.
    pub aliases: &'static [&'static str],
    /// Header of the field's column.
    pub header: &'static str,
    /// Returns the text for one record.
    pub text: fn(&R, &Show) -> String,
    /// Order of records by this field.
    pub order: Order<R>,
    /// True for a duration, whose digits are never truncated; words in its place are.
    pub span: bool,
}

impl<R> Field<R> {
    /// Returns a field that sorts by its text.
    pub const fn new(
        letter: Option<char>,
        name: &'static str,
        header: &'static str,
        text: fn(&R, &Show) -> String,
    ) -> Field<R> {
        Field { letter, name, aliases: &[], header, text, order: Order::Shown, span: false }
    }

    /// Sets another order.
    pub const fn by(self, order: fn(&R, &R) -> Ordering) -> Field<R> {
        Field { order: Order::By(order), ..self }
    }

    /// Adds other long names.
    pub const fn or(self, aliases: &'static [&'static str]) -> Field<R> {
        Field { aliases, ..self }
    }

    /// Marks the field as a duration.
    pub const fn span(self) -> Field<R> {
        Field { span: true, ..self }
    }

    /// Compares two records by this field.
    pub fn compare(&self, a: &R, b: &R, show: &Show) -> Ordering {
        match self.order {
            Order::Shown => (self.text)(a, show).cmp(&(self.text)(b, show)),
            Order::By(order) => order(a, b),
        }
    }
}

/// The fields of one kind of record.
pub struct Table<R: 'static> {
    /// Name of the records in messages about an unknown field, such as `job` or `node`.
    pub records: &'static str,
    /// The fields: first those with letters, in the order of `%all`, and last those that only Spur has.
    pub fields: &'static [Field<R>],
    /// Separators of `%all` after a lower-case letter, after an upper-case letter, and at the end.
    pub bars: [&'static str; 3],
}

impl<R> Table<R> {
    /// Returns the field with this letter; `None` if there is none.
    pub(super) fn by_letter(&self, letter: char) -> Option<&'static Field<R>> {
        self.fields.iter().find(|field| field.letter == Some(letter))
    }

    /// Returns the field with this long name; `None` if there is none.
    pub(super) fn by_name(&self, name: &str) -> Option<&'static Field<R>> {
        let same = |other: &&str| other.eq_ignore_ascii_case(name);
        self.fields.iter().find(|field| same(&field.name) || field.aliases.iter().any(same))
    }

    /// Returns the fields with letters, lower case first.
    pub(super) fn lettered(&self) -> Vec<(char, &'static Field<R>)> {
        let lettered = self.fields.iter().filter_map(|field| Some((field.letter?, field)));
        let mut fields: Vec<_> = lettered.collect();
        fields.sort_by_key(|(letter, _)| (letter.is_ascii_uppercase(), *letter));
        fields
    }
}
