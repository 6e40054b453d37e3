//! Least prices: by parts, by pieces, and by what is spent.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

/// A price that nothing has; two of them can be added up.
pub(super) const NEVER: u64 = 1 << 62;

/// A way to use a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) count: usize,
    pub(super) spent: usize,
    pub(super) price: u64,
}

/// How few and how many pieces a number of parts can use; None where there is no way to use so many parts.
pub(super) type Reach = Option<(usize, usize)>;

/// What numbers of parts can use: of as many as there can be at one place, one after another.
pub(super) struct Reaches {
    first: usize,
    reaches: SmallVec<[Reach; FEW]>,
}

/// Numbers of parts at one place that there mostly are no more of.
const FEW: usize = 8;

impl Reaches {
    /// By what each number of parts can use.
    pub(super) fn new(parts: RangeInclusive<usize>, reach: impl Fn(usize) -> Reach) -> Self {
        Self { first: *parts.start(), reaches: parts.map(reach).collect() }
    }

    /// What a number of parts can use.
    pub(super) fn of(&self, parts: usize) -> Reach {
        self.reaches.get(parts.checked_sub(self.first)?).copied().flatten()
    }
}

/// What is used of two disjoint ranges of parts.
pub(super) fn both(one: Reach, other: Reach) -> Reach {
    one.zip(other).map(|(one, other)| (one.0 + other.0, one.1 + other.1))
}

/// What is used in one way or the other.
pub(super) fn either(one: Reach, other: Reach) -> Reach {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// The least prices for some parts: by parts used, by pieces used, and by what is spent.
pub(super) struct Table {
    /// By the number of parts, from `first` on: the fewest and the most pieces that are told apart, and where their prices
    /// begin.
    rows: SmallVec<[Option<(usize, usize, usize)>; FEW]>,
    first: usize,
    pub(super) prices: Vec<u64>,
    slack: usize,
}

impl Table {
    pub(super) fn new(windows: &Reaches, slack: usize) -> Self {
        let mut size = 0;
        let row = |window: &Reach| {
            let (fewest, most) = (*window)?;
            let start = size;
            size += (most - fewest + 1) * (slack + 1);
            Some((fewest, most, start))
        };
        let rows = windows.reaches.iter().map(row).collect();
        Self { rows, first: windows.first, prices: vec![NEVER; size], slack }
    }

    /// The numbers of parts that there are prices for.
    pub(super) fn parts(&self) -> impl Iterator<Item = usize> {
        (self.first..).zip(&self.rows).filter(|(_, row)| row.is_some()).map(|(parts, _)| parts)
    }

    fn row(&self, parts: usize) -> Option<(usize, usize, usize)> {
        self.rows.get(parts.checked_sub(self.first)?).copied().flatten()
    }

    /// The prices of so many parts and pieces, by what is spent.
    pub(super) fn at(&self, parts: usize, pieces: usize) -> Option<&[u64]> {
        let start = self.start(parts, pieces)?;
        Some(&self.prices[start..=start + self.slack])
    }

    pub(super) fn start(&self, parts: usize, pieces: usize) -> Option<usize> {
        let (fewest, most, start) = self.row(parts)?;
        (fewest..=most).contains(&pieces).then(|| start + (pieces - fewest) * (self.slack + 1))
    }

    /// Offers the prices that another table has for some number of parts, for `more` parts than that together with a way
    /// to use them.
    pub(super) fn offer(&mut self, other: &Table, parts: usize, more: usize, way: Way) {
        let Some((fewest, most, from)) = other.row(parts) else { return };
        let Some((least, largest, to)) = self.row(parts + more) else { return };
        let row = self.slack + 1;
        let known = Rows { fewest, prices: &other.prices[from..from + (most - fewest + 1) * row] };
        let size = (largest - least + 1) * row;
        known.offer_to(&mut self.prices[to..to + size], least, row, way);
    }
}

/// The least prices by what is spent, for one number of pieces after the other.
pub(super) struct Rows<'r> {
    pub(super) fewest: usize,
    pub(super) prices: &'r [u64],
}

impl Rows<'_> {
    /// Offers them, together with a way to use more, to prices for numbers of pieces from `least` on.
    pub(super) fn offer_to(&self, prices: &mut [u64], least: usize, row: usize, way: Way) {
        let behind = least.saturating_sub(self.fewest + way.count) * row;
        let ahead = (self.fewest + way.count).saturating_sub(least) * row;
        let (Some(others), Some(prices)) = (self.prices.get(behind..), prices.get_mut(ahead..)) else {
            return;
        };
        if way.spent == 0 {
            lower(prices, others, 0, way.price);
        } else {
            let rows = prices.chunks_exact_mut(row).zip(others.chunks_exact(row));
            rows.for_each(|(prices, others)| lower(prices, others, way.spent, way.price));
        }
    }
}

/// Lowers prices to others, each for spending so much more and at a price.
fn lower(prices: &mut [u64], others: &[u64], more: usize, price: u64) {
    for (least, &other) in prices[more..].iter_mut().zip(others) {
        *least = (other + price).min(*least);
    }
}

/// The least prices of a part, from none of its open pieces to all of them.
#[derive(Default)]
pub(super) struct Levels {
    prices: Vec<u64>,
    starts: Vec<usize>,
}

impl Levels {
    /// Adds a level with no prices yet.
    pub(super) fn add(&mut self, size: usize) {
        self.starts.push(self.prices.len());
        self.prices.resize(self.prices.len() + size, NEVER);
    }

    /// Removes all levels.
    pub(super) fn clear(&mut self) {
        self.prices.clear();
        self.starts.clear();
    }

    /// The last level but one, and the last.
    pub(super) fn last_two(&mut self) -> (&[u64], &mut [u64]) {
        let [.., before, last] = self.starts[..] else { return (&[], &mut []) };
        let (known, next) = self.prices.split_at_mut(last);
        (&known[before..], next)
    }

    /// The prices with so many of the last open pieces.
    pub(super) fn of(&self, pieces: usize) -> &[u64] {
        let end = self.starts.get(pieces + 1).copied().unwrap_or(self.prices.len());
        &self.prices[self.starts[pieces]..end]
    }

    /// The last level to change.
    pub(super) fn last_mut(&mut self) -> &mut [u64] {
        let start = self.starts.last().copied().unwrap_or(self.prices.len());
        &mut self.prices[start..]
    }

    /// The last level.
    pub(super) fn last(&self) -> &[u64] {
        self.starts.last().map_or(&[], |&start| &self.prices[start..])
    }
}
