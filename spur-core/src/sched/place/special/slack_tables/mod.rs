//! The best choice of parts and of pieces of them, where a [`SlackBound`] says how many of each there are.
//!
//! What a choice takes is told by what it spends of the slack: a piece that is left out although it takes more than the
//! multiplier, or used although it takes less, spends the difference, and so does a part that is worth more or less than the
//! last. A choice holds the job if it spends no more than the slack, so the tables are as wide as the slack, which is
//! small, whatever the size of the job. They hold the least price for every number of parts and pieces and everything
//! spent, from the last part to the first; then one walk forwards uses what comes first and still leads to the best.

mod lower_bounds;
mod parts;
mod table;

use std::ops::RangeInclusive;

use super::outcome::NoChoice;
use super::slack_bound::{Parts, SlackBound, Terms};

use table::{Levels, NEVER, Reach, Reaches, Rows, Table, Way, both, either};

/// Numbers that are worked out at most; beyond that another way is quicker.
const MOST: usize = 1 << 24;
/// Numbers that are kept at most.
const MOST_KEPT: usize = 1 << 22;
/// The largest slack that tables are made for.
const WIDEST: usize = 127;

/// What things cost: whole numbers that add up, below 2⁶² in sum. Smaller is better.
pub(super) trait Prices {
    /// What using a part costs, by its number: what parts cost decides before what pieces do.
    fn of_part(&self, part: usize) -> u64;

    /// What using a piece costs, if so much less is taken of it than it has; by the number of its part and its own in that.
    fn of_piece(&self, part: usize, piece: usize, less: usize) -> u64;

    /// What using a piece costs whatever is taken of it, which decides before the rest of what it costs.
    fn of_any_of_piece(&self, part: usize, piece: usize) -> u64 {
        self.of_piece(part, piece, 0)
    }

    /// Whether taking less of a piece can cost less; then exactly what the job needs is taken.
    fn are_for_what_is_taken(&self) -> bool {
        false
    }
}

/// A piece that is used: its part, its own number in that, and how much less is taken of it than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) part: usize,
    pub(super) piece: usize,
    pub(super) less: usize,
}

/// The best choice, in order. `parts` are what the slack bound was made of; `admitted`
/// are the numbers of those that may be used, in order.
pub(super) fn choose(
    parts: &Parts,
    slack_bound: &SlackBound,
    admitted: &[usize],
    prices: &impl Prices,
) -> Result<Vec<Used>, NoChoice> {
    book(parts, slack_bound, admitted, prices)?.cheapest()
}

/// What there is to choose.
fn book<'b, P: Prices>(
    parts: &Parts,
    slack_bound: &SlackBound,
    admitted: &[usize],
    prices: &'b P,
) -> Result<Book<'b, P>, NoChoice> {
    let Some(terms) = slack_bound.terms() else { return Err(NoChoice::Unknown) };
    let slack = usize::try_from(terms.slack).ok().filter(|slack| *slack <= WIDEST);
    let slack = slack.ok_or(NoChoice::Unknown)?;
    let exact = prices.are_for_what_is_taken();
    let stop = |&part: &usize| Stop::new(part, parts.of(part), &terms, exact);
    let mut stops: Vec<Stop> = Vec::with_capacity(admitted.len());
    stops.extend(admitted.iter().filter_map(stop));
    narrow(&mut stops, terms.parts, terms.pieces);
    Ok(Book { prices, stops, slack, parts: terms.parts, pieces: terms.pieces, exact })
}

/// A piece that a best choice may use or not, or take less of.
#[derive(Debug, Clone, Copy)]
struct Open {
    piece: usize,
    /// What leaving it out spends, if that can be.
    skipped: Option<usize>,
    /// What using all of it spends.
    used: usize,
    /// The most that can be taken less of it.
    less: usize,
}

/// A part that may be used.
#[derive(Clone)]
struct Stop {
    part: usize,
    /// Pieces that are used, all of them, with the part.
    sure: Vec<usize>,
    open: Vec<Open>,
    /// What leaving the part out spends, if that can be.
    skipped: Option<usize>,
    /// What using it spends, if that can be.
    used: Option<usize>,
    /// The fewest and the most pieces of it that are used, if it is.
    counts: (usize, usize),
}

impl Stop {
    /// None where it cannot be used, and leaving it out spends nothing.
    fn new(part: usize, takes: &[u32], terms: &Terms, divides: bool) -> Option<Self> {
        let Terms { multiplier, last, slack, .. } = *terms;
        let slack = usize::try_from(slack).ok()?;
        let within = |spent: u64, slack: usize| usize::try_from(spent).ok().filter(|spent| *spent <= slack);
        let worth: u64 = takes.iter().map(|&takes| u64::from(takes).saturating_sub(multiplier)).sum();
        let used = within(last.saturating_sub(worth), slack)?;
        let left = slack - used;
        let mut stop = Self {
            part,
            sure: Vec::with_capacity(takes.len()),
            open: Vec::with_capacity(takes.len()),
            skipped: within(worth.saturating_sub(last), slack),
            used: Some(used),
            counts: (0, 0),
        };
        for (piece, &takes) in takes.iter().enumerate().filter(|(_, takes)| **takes > 0) {
            let takes = u64::from(takes);
            let skipped = within(takes.saturating_sub(multiplier), left);
            let Some(used) = within(multiplier.saturating_sub(takes), left) else { continue };
            // Something is taken of every piece that is used.
            let least = usize::try_from(takes - 1).unwrap_or(slack);
            let less = if divides { least.min(left - used) } else { 0 };
            if skipped.is_none() && less == 0 {
                stop.sure.push(piece);
            } else {
                stop.open.push(Open { piece, skipped, used, less });
            }
        }
        stop.count(left);
        Some(stop)
    }

    /// Finds out how few and how many pieces can be used where so much may be spent.
    fn count(&mut self, left: usize) {
        // Those that spend least come first.
        let most = |spends: &mut dyn Iterator<Item = usize>| {
            let mut kinds = [0; WIDEST + 1];
            spends.for_each(|spend| kinds[spend] += 1);
            let (mut left, mut count) = (left, kinds[0]);
            for (spend, &of_kind) in kinds.iter().enumerate().take(left + 1).skip(1) {
                let few = of_kind.min(left / spend);
                (left, count) = (left - few * spend, count + few);
            }
            count
        };
        let total = self.sure.len() + self.open.len();
        let skips = most(&mut self.open.iter().filter_map(|open| open.skipped));
        let uses = most(&mut self.open.iter().map(|open| open.used));
        self.counts = (total - skips, self.sure.len() + uses);
    }

    /// The way whose price stands at an index, where so many are in a row.
    fn way(&self, index: usize, row: usize, price: u64) -> Way {
        Way { count: self.counts.0 + index / row, spent: index % row, price }
    }

    /// The fewest and the most open pieces that are used of those from one on.
    fn reach(&self, from: usize) -> (usize, usize) {
        let (fewest, most) = (self.counts.0.saturating_sub(self.sure.len()), self.counts.1 - self.sure.len());
        let left = self.open.len() - from;
        (fewest.saturating_sub(from), most.min(left))
    }
}

/// Leaves to every part only what the others can make up for.
fn narrow(stops: &mut [Stop], parts: usize, pieces: usize) {
    let usable = stops.iter().filter(|stop| stop.used.is_some());
    let mut counts: Vec<(usize, usize)> = usable.map(|stop| stop.counts).collect();
    let others = parts.saturating_sub(1);
    counts.sort_unstable_by_key(|&(fewest, _)| fewest);
    let least: usize = counts.iter().take(others).map(|(fewest, _)| fewest).sum();
    counts.sort_unstable_by_key(|&(_, most)| std::cmp::Reverse(most));
    let most: usize = counts.iter().take(others).map(|(_, most)| most).sum();
    for stop in stops.iter_mut().filter(|stop| stop.used.is_some()) {
        stop.counts.0 = stop.counts.0.max(pieces.saturating_sub(most));
        stop.counts.1 = stop.counts.1.min(pieces.saturating_sub(least));
        if stop.counts.0 > stop.counts.1 || stop.counts.1 < stop.sure.len() {
            stop.used = None;
        }
    }
}

impl<P: Prices> Book<'_, P> {
    /// The best choice of all of the parts.
    fn best(&self) -> Result<Vec<Used>, NoChoice> {
        let windows = self.windows();
        let ways = self.all_ways(Detail::All);
        let tables = self.tables(&windows, &ways).ok_or(NoChoice::Unknown)?;
        self.follow(&tables, &ways).ok_or(NoChoice::Nowhere)
    }

    /// For every stop, and for the end, and every number of parts used from there on: how few and how many pieces
    /// they use, where the stops before can use the others.
    fn windows(&self) -> Vec<Reaches> {
        let bands = self.bands();
        let join = |known: &Reaches, stop: &Stop, parts: usize| -> Reach {
            let others = stop.used.and(parts.checked_sub(1));
            let used = others.and_then(|others| both(known.of(others), Some(stop.counts)));
            either(stop.skipped.and(known.of(parts)), used)
        };
        let nothing = || Reaches::new(0..=0, |_| Some((0, 0)));
        let mut before = Vec::with_capacity(bands.len());
        before.push(nothing());
        for (stop, after) in self.stops.iter().zip(&bands[1..]) {
            let known = &before[before.len() - 1];
            let band = self.parts - after.end()..=self.parts - after.start();
            before.push(Reaches::new(band, |parts| join(known, stop, parts)));
        }
        let mut after = nothing();
        let mut windows = Vec::with_capacity(before.len());
        for (index, before) in before.iter().enumerate().rev() {
            let meet = |parts: usize| {
                let ((fewest, most), (least, largest)) =
                    after.of(parts).zip(before.of(self.parts - parts))?;
                let window = (
                    fewest.max(self.pieces.saturating_sub(largest)),
                    most.min(self.pieces.checked_sub(least)?),
                );
                (window.0 <= window.1).then_some(window)
            };
            windows.push(Reaches::new(bands[index].clone(), meet));
            if let Some(index) = index.checked_sub(1) {
                after = Reaches::new(bands[index].clone(), |parts| join(&after, &self.stops[index], parts));
            }
        }
        windows.reverse();
        windows
    }

    /// For every stop, and for the end, how few and how many parts can be used from there on: those before hold no more
    /// than there are, and so do those behind.
    fn bands(&self) -> Vec<RangeInclusive<usize>> {
        let mut behind = self.stops.iter().filter(|stop| stop.used.is_some()).count();
        let mut before = 0;
        let band = |before: usize, behind: usize| self.parts.saturating_sub(before)..=self.parts.min(behind);
        let mut bands = Vec::with_capacity(self.stops.len() + 1);
        bands.push(band(before, behind));
        for stop in &self.stops {
            let usable = usize::from(stop.used.is_some());
            (before, behind) = (before + usable, behind - usable);
            bands.push(band(before, behind));
        }
        bands
    }

    /// The least prices of using each part.
    fn all_ways(&self, detail: Detail) -> Vec<Vec<u64>> {
        let mut levels = Levels::default();
        let ways = self.stops.iter().map(|stop| {
            self.ways(stop, detail, &mut levels);
            levels.last().to_vec()
        });
        ways.collect()
    }

    /// Works out the least prices of using a part: with none of its open pieces, then with those from each one on, by how
    /// many of them are used, as far as that is within reach, and by what is spent.
    fn ways(&self, stop: &Stop, detail: Detail, levels: &mut Levels) {
        let row = self.slack + 1;
        levels.clear();
        let Some(used) = stop.used else { return };
        let price = |piece: usize, less: usize| match detail {
            Detail::Pieces => self.prices.of_any_of_piece(stop.part, piece),
            Detail::All => self.prices.of_piece(stop.part, piece, less),
        };
        let sure: u64 = stop.sure.iter().map(|&piece| price(piece, 0)).sum();
        levels.add(row);
        levels.last_mut()[used] = self.prices.of_part(stop.part) + sure;
        for (at, open) in stop.open.iter().enumerate().rev() {
            let (least, most) = stop.reach(at);
            levels.add((most + 1).saturating_sub(least) * row);
            let (known, next) = levels.last_two();
            let known = Rows { fewest: stop.reach(at + 1).0, prices: known };
            if let Some(spent) = open.skipped {
                known.offer_to(next, least, row, Way { count: 0, spent, price: 0 });
            }
            let most_less = if detail == Detail::All { open.less } else { 0 };
            for less in 0..=most_less {
                let price = price(open.piece, less);
                known.offer_to(next, least, row, Way { count: 1, spent: open.used + less, price });
            }
        }
    }

    /// The least prices of what is used from every stop on, and from the end on; None where that is too much work.
    fn tables(&self, windows: &[Reaches], ways: &[Vec<u64>]) -> Option<Vec<Table>> {
        let row = self.slack + 1;
        let end = self.stops.len();
        let mut last = Table::new(&windows[end], self.slack);
        if let Some(start) = last.start(0, 0) {
            last.prices[start] = 0;
        }
        let mut tables = Vec::with_capacity(end + 1);
        tables.push(last);
        let (mut work, mut kept) = (0, 0);
        for (at, (stop, ways)) in self.stops.iter().zip(ways).enumerate().rev() {
            let mut table = Table::new(&windows[at], self.slack);
            let known = &tables[tables.len() - 1];
            work += ways.iter().filter(|price| **price < NEVER).count() * known.prices.len();
            kept += table.prices.len();
            if work > MOST || kept > MOST_KEPT {
                return None;
            }
            for parts in known.parts() {
                if let Some(spent) = stop.skipped {
                    table.offer(known, parts, 0, Way { count: 0, spent, price: 0 });
                }
                let ways = (ways.iter().enumerate()).map(|(index, &price)| stop.way(index, row, price));
                ways.filter(|way| way.price < NEVER).for_each(|way| table.offer(known, parts, 1, way));
            }
            tables.push(table);
        }
        tables.reverse();
        Some(tables)
    }

    /// Walks from the first part to the last and uses what comes first of all that leads to the best price.
    fn follow(&self, tables: &[Table], ways: &[Vec<u64>]) -> Option<Vec<Used>> {
        let row = self.slack + 1;
        let prices = tables[0].at(self.parts, self.pieces)?;
        let least = if self.exact { self.slack } else { 0 };
        let mut price = prices[least..].iter().copied().min().filter(|price| *price < NEVER)?;
        let mut spent: Vec<usize> = (least..row).filter(|&spent| prices[spent] == price).collect();
        let (mut parts, mut pieces) = (self.parts, self.pieces);
        let mut used = Vec::with_capacity(pieces);
        for (at, (stop, ways)) in self.stops.iter().zip(ways).enumerate() {
            let next = &tables[at + 1];
            let leads = |way: &Way| {
                let after = parts.checked_sub(1).zip(pieces.checked_sub(way.count));
                let after = after.and_then(|(parts, pieces)| next.at(parts, pieces));
                let is_left = |spent: &usize| {
                    spent.checked_sub(way.spent).is_some_and(|left| {
                        after.is_some_and(|after| after[left] < NEVER && after[left] + way.price == price)
                    })
                };
                spent.iter().any(is_left)
            };
            let way = |(index, &price): (usize, &u64)| stop.way(index, row, price);
            let good: Vec<Way> =
                ways.iter().enumerate().map(way).filter(|way| way.price < NEVER && leads(way)).collect();
            let taken = if good.is_empty() { None } else { self.within(stop, good, &mut used) };
            let spend = if let Some(way) = taken {
                (parts, pieces, price) = (parts - 1, pieces - way.count, price - way.price);
                way.spent
            } else {
                stop.skipped?
            };
            let after = next.at(parts, pieces)?;
            spent = spent
                .iter()
                .filter_map(|spent| spent.checked_sub(spend))
                .filter(|&left| after[left] == price)
                .collect();
        }
        Some(used)
    }

    /// Uses the pieces of a part that come first in one of some ways, and says which way that is.
    fn within(&self, stop: &Stop, mut ways: Vec<Way>, used: &mut Vec<Used>) -> Option<Way> {
        let row = self.slack + 1;
        let mut levels = Levels::default();
        self.ways(stop, Detail::All, &mut levels);
        let (part, first) = (stop.part, used.len());
        used.extend(stop.sure.iter().map(|&piece| Used { part, piece, less: 0 }));
        // What is used of the open pieces so far, what that spends, and its price.
        let (mut count, mut spent, mut price) = (stop.sure.len(), 0, 0);
        for (at, open) in stop.open.iter().enumerate() {
            let (least, largest) = stop.reach(at + 1);
            let known = levels.of(stop.open.len() - at - 1);
            // Whether a way is still open where so much is used, spent and paid.
            let leads = |way: &Way, count: usize, spent: usize, price: u64| {
                let left = way.count.checked_sub(count).filter(|left| (least..=largest).contains(left));
                left.zip(way.spent.checked_sub(spent)).is_some_and(|(left, spent)| {
                    let rest = known[(left - least) * row + spent];
                    rest < NEVER && rest + price == way.price
                })
            };
            let choice = (0..=open.less).find_map(|less| {
                let paid = price + self.prices.of_piece(part, open.piece, less);
                let spends = spent + open.used + less;
                let good: Vec<Way> =
                    ways.iter().filter(|way| leads(way, count + 1, spends, paid)).copied().collect();
                (!good.is_empty()).then_some((good, less, spends, paid))
            });
            if let Some((good, less, spends, paid)) = choice {
                (ways, spent, price) = (good, spends, paid);
                count += 1;
                used.push(Used { part, piece: open.piece, less });
            } else {
                spent += open.skipped?;
                ways.retain(|way| leads(way, count, spent, price));
            }
        }
        used[first..].sort_unstable_by_key(|used| used.piece);
        ways.first().copied()
    }
}

/// How much of what things cost is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// What parts cost, and what pieces do whatever is taken of them.
    Pieces,
    /// Everything.
    All,
}

/// What the choice comes to, and at what prices.
struct Book<'b, P> {
    prices: &'b P,
    stops: Vec<Stop>,
    slack: usize,
    parts: usize,
    pieces: usize,
    exact: bool,
}
