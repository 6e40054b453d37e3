//! Which parts of a domain, and which pieces of those, the best choice may use: told by what each takes, before
//! anything is searched.
//!
//! The parts are the domains of which the best choice uses as few as will do, before anything else counts; the pieces
//! are what it uses as few of as it can next. For any multiplier, m pieces in k parts take no more than m multipliers and what
//! the pieces of the k parts that have most of it take beyond the multiplier. By how much that is more than the job, where
//! some choice is known that does with k parts and m pieces, is the slack of every choice that is no worse: what uses
//! a part that has less than the others, or a piece that is smaller than the multiplier, uses the slack up.

use smallvec::{SmallVec, smallvec};

/// What the parts take: piece by piece, part after part.
#[derive(Debug, Default)]
pub(super) struct Parts {
    sizes: Vec<u32>,
    ends: Vec<usize>,
}

impl Parts {
    /// Makes room for so many parts and pieces.
    pub(super) fn reserve(&mut self, parts: usize, pieces: usize) {
        self.ends.reserve(parts);
        self.sizes.reserve(pieces);
    }

    /// Adds a part.
    pub(super) fn push(&mut self, pieces: impl Iterator<Item = u32>) {
        self.sizes.extend(pieces);
        self.close();
    }

    /// Adds a piece to a part that is not complete.
    pub(super) fn add(&mut self, takes: u32) {
        self.sizes.push(takes);
    }

    /// The pieces that were added last are a part.
    pub(super) fn close(&mut self) {
        self.ends.push(self.sizes.len());
    }

    /// What the pieces of one part take.
    pub(super) fn of(&self, part: usize) -> &[u32] {
        &self.sizes[self.start(part)..self.ends[part]]
    }

    /// How many pieces the parts before one have.
    pub(super) fn start(&self, part: usize) -> usize {
        part.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.ends.len()).map(|part| self.of(part))
    }
}

/// What every choice that may be the best has in common; see the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlackBound {
    amount: u64,
    /// Fewest parts that hold the job.
    parts: usize,
    /// No fewer do.
    least_parts: usize,
    /// No fewer pieces hold it in so many parts, and so many do.
    least_pieces: u64,
    known_pieces: u64,
    multiplier: u64,
    slack: u64,
    /// What the k parts that have most take beyond the multiplier, and what the last of them does.
    worth: u64,
    last: u64,
}

/// What there is to choose: so many pieces of so many parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) parts: usize,
    pub(super) pieces: usize,
    pub(super) multiplier: u64,
    /// What the last of the k parts that have most takes beyond the multiplier.
    pub(super) last: u64,
    /// By how much as many multipliers and what the k parts take beyond them are more than the job.
    pub(super) slack: u64,
}

/// Choices that are made to find a good multiplier.
const ROUNDS: usize = 4;

/// Multipliers below the smallest of the largest pieces that are tried where the fewest pieces come first.
const TOLLS: u64 = 3;

impl SlackBound {
    /// Of parts that hold an amount together; None where they do not.
    pub(super) fn new(parts: &Parts, amount: u32) -> Option<Self> {
        let amount = u64::from(amount);
        let rooms: Vec<u64> = parts.iter().map(|pieces| beyond(pieces, 0)).collect();
        let mut chosen: Vec<usize> = (0..rooms.len()).collect();
        chosen.sort_unstable_by(|&a, &b| rooms[b].cmp(&rooms[a]));
        let mut sum = 0;
        let count = 1 + chosen.iter().position(|&part| {
            sum += rooms[part];
            sum >= amount
        })?;
        chosen.truncate(count);
        let last = rooms[chosen[count - 1]];
        let mut best = Self {
            amount,
            parts: count,
            least_parts: count,
            least_pieces: 1,
            known_pieces: u64::MAX,
            multiplier: 0,
            slack: sum - amount,
            worth: sum,
            last,
        };
        let (mut sizes, mut last) = (Vec::new(), None);
        for _ in 0..ROUNDS {
            sizes.clear();
            chosen.iter().for_each(|&part| sizes.extend_from_slice(parts.of(part)));
            let Some((pieces, multiplier)) = largest(&mut sizes, amount) else { break };
            best.known_pieces = best.known_pieces.min(pieces);
            let next = Some((best.known_pieces, multiplier));
            if last == next {
                // That chose these parts.
                break;
            }
            best.offer(parts, amount, multiplier, &mut chosen);
            last = next;
        }
        // The slack is convex in the multiplier; less than nothing there is not.
        for step in [1, -1] {
            let next = |best: &Self| {
                best.multiplier
                    .checked_add_signed(step)
                    .filter(|multiplier| *multiplier > 0 && best.slack > 0)
            };
            while next(&best).is_some_and(|multiplier| best.offer(parts, amount, multiplier, &mut chosen)) {}
        }
        Some(best)
    }

    /// The same where the fewest pieces come first, and then the fewest parts; None where no good choice is found.
    pub(super) fn of_fewest_pieces(parts: &Parts, amount: u32) -> Option<Self> {
        let amount = u64::from(amount);
        let (pieces, smallest) = largest(&mut parts.sizes.clone(), amount)?;
        // What k pieces take with each multiplier is paid for; the parts have to be worth the rest.
        let mut count = 1;
        let mut worths: Vec<Vec<(u64, usize)>> = Vec::new();
        for multiplier in Self::multipliers(smallest) {
            let mut worth: Vec<(u64, usize)> =
                parts.iter().map(|pieces| beyond(pieces, multiplier)).zip(0..).collect();
            worth.sort_unstable_by(|a, b| b.cmp(a));
            let mut paid = pieces.saturating_mul(multiplier);
            let reached = |(worth, _): &(u64, usize)| {
                paid += worth;
                paid >= amount
            };
            count = worth.iter().position(reached)?.saturating_add(1).max(count);
            worths.push(worth);
        }
        let fewest = count;
        for count in fewest..=worths[0].len() {
            let holds = worths.iter().any(|worth| {
                let mut sizes: Vec<u32> = Vec::new();
                worth[..count].iter().for_each(|&(_, part)| sizes.extend_from_slice(parts.of(part)));
                largest(&mut sizes, amount).is_some_and(|(needed, _)| needed == pieces)
            });
            if holds {
                let slack_bound = Self::of_pieces(parts, amount, pieces, count);
                return Some(Self { least_parts: fewest, ..slack_bound });
            }
        }
        None
    }

    /// The same for fewer parts than are known to do, as far as those might do as well, the fewest first.
    pub(super) fn of_fewer_parts(&self, parts: &Parts) -> impl Iterator<Item = Self> {
        let Self { amount, known_pieces, .. } = *self;
        (self.least_parts..self.parts).map(move |count| Self::of_pieces(parts, amount, known_pieces, count))
    }

    /// The same where fewer parts than are known to do turned out not to.
    pub(super) fn of_known_parts(&self) -> Self {
        Self { least_parts: self.parts, ..*self }
    }

    /// The fewest pieces there can be, in so many parts.
    fn of_pieces(parts: &Parts, amount: u64, pieces: u64, count: usize) -> Self {
        let mut best = Self::without_tolls(amount, pieces, count);
        let mut chosen = Vec::new();
        let smallest = largest(&mut parts.sizes.clone(), amount).map_or(1, |(_, smallest)| smallest);
        for multiplier in Self::multipliers(smallest) {
            best.offer(parts, amount, multiplier, &mut chosen);
        }
        best
    }

    /// So many pieces of so many parts, before any multiplier was tried.
    fn without_tolls(amount: u64, pieces: u64, parts: usize) -> Self {
        Self {
            amount,
            parts,
            least_parts: parts,
            least_pieces: pieces,
            known_pieces: pieces,
            multiplier: 0,
            slack: u64::MAX,
            worth: 0,
            last: 0,
        }
    }

    /// Multipliers that may leave little slack where the fewest pieces come first, by the smallest of the largest pieces that hold
    /// the job.
    fn multipliers(smallest: u64) -> std::ops::RangeInclusive<u64> {
        smallest.saturating_sub(TOLLS).max(1)..=smallest
    }

    /// The same where exactly so many pieces are used, of as few parts as nothing forbids and then of one more after the
    /// other.
    pub(super) fn of_exactly(parts: &Parts, amount: u32, pieces: u32) -> impl Iterator<Item = Self> {
        let (amount, pieces) = (u64::from(amount), u64::from(pieces));
        let mut rooms: Vec<u64> = parts.iter().map(|pieces| beyond(pieces, 0)).collect();
        let mut counts: Vec<u64> = parts.iter().map(|pieces| pieces.len() as u64).collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let least = fewest(&rooms, amount).max(fewest(&counts, pieces));
        (least..=rooms.len()).filter_map(move |count| Self::of_so_many(parts, amount, pieces, count))
    }

    /// Exactly so many pieces of so many parts; None where those cannot hold the job.
    fn of_so_many(parts: &Parts, amount: u64, pieces: u64, count: usize) -> Option<Self> {
        let mut best = Self::without_tolls(amount, pieces, count);
        let mut chosen = Vec::new();
        let mut sizes = Vec::new();
        best.offer(parts, amount, 0, &mut chosen);
        for _ in 0..ROUNDS {
            sizes.clear();
            chosen.iter().for_each(|&part| sizes.extend_from_slice(parts.of(part)));
            let Some(at) = usize::try_from(pieces).ok()?.checked_sub(1).filter(|at| *at < sizes.len()) else {
                break;
            };
            let (_, last, _) = sizes.select_nth_unstable_by(at, |a, b| b.cmp(a));
            let multiplier = u64::from(*last);
            best.offer(parts, amount, multiplier, &mut chosen);
        }
        // The slack is convex in the multiplier.
        for step in [1, -1] {
            let next = |best: &Self| best.multiplier.checked_add_signed(step);
            while next(&best).is_some_and(|multiplier| best.offer(parts, amount, multiplier, &mut chosen)) {}
        }
        (best.least_pieces <= pieces).then_some(best)
    }

    /// Tries another multiplier; whether that leaves less slack. `chosen` becomes the parts that have most beyond it.
    fn offer(&mut self, parts: &Parts, amount: u64, multiplier: u64, chosen: &mut Vec<usize>) -> bool {
        let beyond: Vec<u64> = parts.iter().map(|pieces| beyond(pieces, multiplier)).collect();
        chosen.clear();
        chosen.extend(0..beyond.len());
        chosen.select_nth_unstable_by(self.parts - 1, |&a, &b| beyond[b].cmp(&beyond[a]));
        chosen.truncate(self.parts);
        let most: u64 = chosen.iter().map(|&part| beyond[part]).sum();
        let lacks = amount.saturating_sub(most);
        let needed = if multiplier == 0 && lacks > 0 { u64::MAX } else { lacks.div_ceil(multiplier.max(1)) };
        self.least_pieces = self.least_pieces.max(needed);
        let slack = self.known_pieces.saturating_mul(multiplier).saturating_add(most).saturating_sub(amount);
        let is_better = slack < self.slack;
        if is_better {
            let last = chosen.iter().map(|&part| beyond[part]).min().unwrap_or(0);
            (self.multiplier, self.slack, self.worth, self.last) = (multiplier, slack, most, last);
        }
        is_better
    }

    /// Fewest parts that hold the job.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// The fewest pieces of so many parts that hold the job; None where that is not known.
    pub(super) fn pieces(&self) -> Option<u64> {
        (self.least_pieces == self.known_pieces).then_some(self.known_pieces)
    }

    /// What exactly there is to choose; None where that is not known.
    pub(super) fn terms(&self) -> Option<Terms> {
        let Self { parts, multiplier, worth, last, amount, .. } = *self;
        let pieces = self.pieces().filter(|_| self.least_parts == parts)?;
        let slack = pieces.checked_mul(multiplier)?.checked_add(worth)?.checked_sub(amount)?;
        Some(Terms { parts, pieces: usize::try_from(pieces).ok()?, multiplier, last, slack })
    }
}

/// How many of some falling numbers come to an amount; one more than there are where all do not.
pub(super) fn fewest(numbers: &[u64], amount: u64) -> usize {
    let mut sum = 0;
    let reached = |number: &u64| {
        sum += number;
        sum >= amount
    };
    numbers.iter().position(reached).map_or(numbers.len() + 1, |last| last + 1)
}

/// What pieces take beyond a multiplier, in sum.
fn beyond(pieces: &[u32], multiplier: u64) -> u64 {
    let multiplier = u32::try_from(multiplier).unwrap_or(u32::MAX);
    pieces.iter().map(|&takes| u64::from(takes.saturating_sub(multiplier))).sum()
}

/// Kinds for each of some sizes up to which counting them is sooner done than putting the sizes in order.
const KINDS: usize = 4;

/// How many of the largest sizes hold an amount, and the last of them.
pub(super) fn largest(sizes: &mut [u32], amount: u64) -> Option<(u64, u64)> {
    let most = sizes.iter().fold(0, |most, &size| most.max(size));
    match sizes.len() {
        count if most > 0 && sizes.iter().all(|&size| size == most) => {
            let needed = amount.div_ceil(most.into()).max(1);
            (needed <= count as u64).then_some((needed, most.into()))
        }
        count if KINDS * count > most as usize => largest_of_few_kinds(sizes, most, amount),
        _ => {
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let mut sum = 0;
            let reached = |&takes: &u32| {
                sum += u64::from(takes);
                sum >= amount
            };
            let at = sizes.iter().position(reached)?;
            Some((at as u64 + 1, u64::from(sizes[at]).max(1)))
        }
    }
}

/// How few of some sizes hold an amount, and the least that each of so few is where they do; None where not even all do.
pub(super) fn fewest_of(sizes: &mut [u32], amount: u64) -> Option<(u64, u32)> {
    let (count, last) = largest(sizes, amount)?;
    let larger = sizes.iter().map(|&size| u64::from(size)).filter(|size| *size > last);
    let (more, sum) = larger.fold((0, 0), |(more, sum), size| (more + 1, sum + size));
    Some((count, u32::try_from(amount - sum - (count - 1 - more) * last).ok()?))
}

/// The same of sizes of few kinds, which are counted.
fn largest_of_few_kinds(sizes: &[u32], most: u32, amount: u64) -> Option<(u64, u64)> {
    let mut counts: SmallVec<[u32; 64]> = smallvec![0; most as usize + 1];
    sizes.iter().for_each(|&size| counts[size as usize] += 1);
    let (mut left, mut before) = (amount, 0);
    for size in (1..=most).rev() {
        let (size, count) = (u64::from(size), u64::from(counts[size as usize]));
        if left <= count * size {
            return Some((before + left.div_ceil(size).max(1), size));
        }
        left -= count * size;
        before += count;
    }
    None
}
