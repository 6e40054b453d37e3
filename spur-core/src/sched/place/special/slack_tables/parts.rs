//! The parts that the best choice may use, where what they cost comes first: what is known of them without a look at what
//! their pieces cost leaves few of them.

use crate::sched::place::special::outcome::NoChoice;

use super::lower_bounds::{Offer, least_with};
use super::table::{NEVER, Way};
use super::{Book, Detail, Prices, Stop, Used, narrow};

/// The least slack with which what parts spend at least is known in far less time than all that they may spend.
const WORTH_IT: usize = 3;

impl<P: Prices> Book<'_, P> {
    /// The best choice.
    ///
    /// What parts cost comes first. It is known without a look at what pieces cost, so only the parts that the cheapest
    /// ones are among are left for that: first of those that may make it as cheap as nothing forbids ([`least_with`]),
    /// then, if these do not hold the job, of those that may make it as cheap as they do.
    pub(super) fn cheapest(&self) -> Result<Vec<Used>, NoChoice> {
        let price = |stop: &Stop| self.prices.of_part(stop.part);
        let offers: Vec<Offer> = (self.stops.iter())
            .map(|stop| Offer { skipped: stop.skipped, used: stop.used, price: price(stop) })
            .collect();
        let Some(bounds) = least_with(&offers, self.parts, self.slack) else { return self.best() };
        let least = bounds.iter().copied().min().unwrap_or(NEVER);
        if bounds.iter().all(|bound| *bound == least) {
            return self.told();
        }
        let found = self.of_no_more(&bounds, least).told();
        let cost = match &found {
            Ok(used) => {
                let parts = used.chunk_by(|one, other| one.part == other.part);
                parts.map(|used| self.prices.of_part(used[0].part)).sum()
            }
            Err(NoChoice::Nowhere) => NEVER,
            Err(NoChoice::Unknown) => return found,
        };
        if cost == least { found } else { self.of_no_more(&bounds, cost).told() }
    }

    /// The best choice, of those parts alone, and of as many pieces of each, that some choice uses that is as cheap by what
    /// comes first: what parts cost, then what pieces do whatever is taken of them. Where that is known for little.
    fn told(&self) -> Result<Vec<Used>, NoChoice> {
        let usable = self.stops.iter().filter(|stop| stop.used.is_some()).count();
        let of_parts = if usable > self.parts && self.slack >= WORTH_IT {
            self.narrowed(&self.stops.iter().map(|stop| self.cheapest_ways(stop)).collect::<Vec<_>>())?
        } else {
            None
        };
        let book = of_parts.as_ref().unwrap_or(self);
        if !book.exact || book.slack == 0 || book.is_settled() {
            return book.best();
        }
        let of_pieces = book.narrowed(&book.all_ways(Detail::Pieces))?;
        of_pieces.as_ref().unwrap_or(book).best()
    }

    /// Whether it is known which parts are used, and how many pieces of each.
    fn is_settled(&self) -> bool {
        let mut usable = self.stops.iter().filter(|stop| stop.used.is_some());
        usable.clone().count() == self.parts && usable.all(|stop| stop.counts.0 == stop.counts.1)
    }

    /// The same with what the cheapest choices in some ways use: these parts, and so many pieces of each; None where that is
    /// too much to find out.
    fn narrowed(&self, ways: &[Vec<u64>]) -> Result<Option<Self>, NoChoice> {
        let row = self.slack + 1;
        let Some(tables) = self.tables(&self.windows(), ways) else { return Ok(None) };
        let prices = tables[0].at(self.parts, self.pieces).ok_or(NoChoice::Nowhere)?;
        let price = prices.iter().copied().min().filter(|price| *price < NEVER).ok_or(NoChoice::Nowhere)?;
        // Everything that may be left on the way of a cheapest choice: parts, pieces, and what they spend.
        let mut left: Vec<(usize, usize, usize)> = (0..row)
            .filter(|&spent| prices[spent] == price)
            .map(|spent| (self.parts, self.pieces, spent))
            .collect();
        let mut kept = Vec::with_capacity(self.stops.len());
        for ((stop, ways), both) in self.stops.iter().zip(ways).zip(tables.windows(2)) {
            let mut next = Vec::with_capacity(left.len());
            let mut counts: Option<(usize, usize)> = None;
            for &(parts, pieces, spent) in &left {
                let price = both[0].at(parts, pieces).map_or(NEVER, |prices| prices[spent]);
                let mut go_on = |parts: Option<usize>, pieces: Option<usize>, way: Way| {
                    let (Some(parts), Some(pieces)) = (parts, pieces) else { return false };
                    let Some(spent) = spent.checked_sub(way.spent) else { return false };
                    let leads =
                        both[1].at(parts, pieces).is_some_and(|prices| prices[spent] + way.price == price);
                    if leads {
                        next.push((parts, pieces, spent));
                    }
                    leads
                };
                if let Some(spent) = stop.skipped {
                    go_on(Some(parts), Some(pieces), Way { count: 0, spent, price: 0 });
                }
                let ways = ways.iter().enumerate().filter(|(_, price)| **price < NEVER);
                for way in ways.map(|(index, &price)| stop.way(index, row, price)) {
                    if go_on(parts.checked_sub(1), pieces.checked_sub(way.count), way) {
                        let (fewest, most) = counts.unwrap_or((way.count, way.count));
                        counts = Some((fewest.min(way.count), most.max(way.count)));
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            left = next;
            kept.extend(match counts {
                Some(counts) => Some(Stop { counts, ..stop.clone() }),
                None => stop.left_out(),
            });
        }
        Ok(Some(self.of(kept)))
    }

    /// What a part costs by itself, for every number of pieces of it that can be used, with the least that these spend.
    fn cheapest_ways(&self, stop: &Stop) -> Vec<u64> {
        let row = self.slack + 1;
        let Some(used) = stop.used else { return Vec::new() };
        let (fewest, most) = stop.counts;
        let mut ways = vec![NEVER; (most + 1 - fewest) * row];
        // What more is spent where an open piece is used, or less; those that have to be come first.
        let mut changes: Vec<isize> = Vec::with_capacity(stop.open.len());
        let (mut spent, mut sure) = (used.cast_signed(), stop.sure.len());
        for open in &stop.open {
            match open.skipped {
                Some(skipped) => {
                    spent += skipped.cast_signed();
                    changes.push(open.used.cast_signed() - skipped.cast_signed());
                }
                None => {
                    spent += open.used.cast_signed();
                    sure += 1;
                }
            }
        }
        changes.sort_unstable();
        let sums = std::iter::once(0).chain(changes).scan(spent, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        for (count, spent) in (sure..=most).zip(sums) {
            let spent = usize::try_from(spent).ok().filter(|spent| *spent < row);
            if let Some((more, spent)) = count.checked_sub(fewest).zip(spent) {
                ways[more * row + spent] = self.prices.of_part(stop.part);
            }
        }
        ways
    }

    /// The same without parts that would make it cost more than that.
    fn of_no_more(&self, bounds: &[u64], most: u64) -> Self {
        let all = self.stops.iter().zip(bounds);
        let kept =
            |(stop, bound): (&Stop, &u64)| if *bound <= most { Some(stop.clone()) } else { stop.left_out() };
        self.of(all.filter_map(kept).collect())
    }

    /// The same of some of the parts.
    fn of(&self, mut stops: Vec<Stop>) -> Self {
        narrow(&mut stops, self.parts, self.pieces);
        Self { stops, ..*self }
    }
}

impl Stop {
    /// The same where it is not used; None where that makes no difference to others.
    fn left_out(&self) -> Option<Self> {
        let left_out = || Self { sure: Vec::new(), open: Vec::new(), used: None, counts: (0, 0), ..*self };
        (self.skipped != Some(0)).then(left_out)
    }
}

#[cfg(test)]
mod tests {
    use crate::sched::place::special::outcome::NoChoice;
    use crate::sched::place::special::slack_bound::{Parts, SlackBound};
    use crate::sched::place::special::slack_tables::{Prices, book};

    /// What parts cost, what pieces do, and what their nodes do, the fewest of which are left out last.
    struct Table {
        parts: Vec<u64>,
        pieces: Vec<Vec<(u64, Vec<u64>)>>,
        are_for_nodes: bool,
    }

    impl Prices for Table {
        fn of_part(&self, part: usize) -> u64 {
            self.parts[part] << 40
        }

        fn of_piece(&self, part: usize, piece: usize, less: usize) -> u64 {
            let (own, nodes) = &self.pieces[part][piece];
            own << 20 | nodes[nodes.len() - 1 - less]
        }

        fn of_any_of_piece(&self, part: usize, piece: usize) -> u64 {
            self.pieces[part][piece].0 << 20
        }

        fn are_for_what_is_taken(&self) -> bool {
            self.are_for_nodes
        }
    }

    #[test]
    fn what_comes_first_leaves_out_no_best_choice() {
        let mut state = 11_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut placed = 0;
        for case in 0..4000 {
            let (largest, kinds) = (1 + next(9), 1 + next(4));
            let mut parts = Parts::default();
            let mut table = Table { parts: Vec::new(), pieces: Vec::new(), are_for_nodes: next(2) == 0 };
            let mut all = 0;
            for _ in 0..2 + next(9) {
                let sizes: Vec<u32> =
                    (0..1 + next(7)).map(|_| u32::try_from(1 + next(largest)).unwrap_or(1)).collect();
                all += sizes.iter().sum::<u32>();
                parts.push(sizes.iter().copied());
                table.parts.push(1 + next(kinds));
                let mut piece = |size: u32| {
                    let nodes = (0..size).scan(0, |sum, _| {
                        *sum += 1 + next(kinds);
                        Some(*sum)
                    });
                    let nodes: Vec<u64> = std::iter::once(0).chain(nodes).collect();
                    (1 + next(kinds), nodes)
                };
                table.pieces.push(sizes.into_iter().map(&mut piece).collect());
            }
            let amount = u32::try_from(1 + next(all.into())).unwrap_or(1);
            let admitted: Vec<usize> = (0..table.parts.len()).collect();
            let Some(slack_bound) = SlackBound::new(&parts, amount) else { continue };
            let Ok(book) = book(&parts, &slack_bound, &admitted, &table) else { continue };
            let (found, wanted) = (book.cheapest(), book.best());
            assert_eq!(found, wanted, "case {case}");
            placed += usize::from(!matches!(found, Err(NoChoice::Unknown)));
        }
        assert!(placed > 1000, "{placed}");
    }
}
