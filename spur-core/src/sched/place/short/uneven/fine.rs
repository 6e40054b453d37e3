//! The sieve for parts, pieces and atoms: where the fewest atoms are wanted of the fewest pieces of the fewest parts.
//!
//! With a toll for each atom and a fee for each piece, n atoms in m pieces of k parts take no more than n tolls, m fees
//! and what the k best parts are worth: what the atoms of each piece take beyond the toll, less the fee, where that is
//! more than nothing. By how much that is more than the job, where a choice of n atoms is known and fewer pieces would
//! not do, is the slack of every choice that is no worse.

use crate::sched::place::short::sieve::{Sieve, largest};

/// A piece: what it is, and what it takes in all.
type Piece<P> = (P, u64);

/// What every choice that may be the best has in common; see the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fine {
    toll: u32,
    fee: u64,
    slack: u64,
    /// The worth of the last of the k best parts.
    last: u64,
}

/// Choices that are made to find good tolls.
const ROUNDS: usize = 4;

impl Fine {
    /// Of the parts and pieces that `sieve` lets through; None where fewer pieces might do, or no choice is found.
    /// `beyond` says what the atoms of a piece take beyond a toll; `atoms` adds what each of them takes.
    pub(super) fn new<P: Copy>(
        sieve: &Sieve,
        parts: &[Vec<Piece<P>>],
        amount: u32,
        beyond: impl Fn(P, u32) -> u64,
        atoms: impl Fn(P, &mut Vec<u32>),
    ) -> Option<Self> {
        let pieces = usize::try_from(sieve.pieces()?).ok()?;
        let ground = Ground { parts, count: sieve.parts(), pieces, amount: amount.into(), beyond };
        let (mut toll, mut fee, mut known) = (0, u64::from(sieve.toll()), None);
        let mut best: Option<Self> = None;
        for _ in 0..ROUNDS {
            let (chosen, least) = ground.choose(&ground.beyond(toll), fee)?;
            fee = least;
            if chosen.iter().map(|(_, room)| room).sum::<u64>() >= ground.amount {
                let mut sizes = Vec::new();
                chosen.iter().for_each(|&(piece, _)| atoms(piece, &mut sizes));
                let (count, last) = largest(&mut sizes, ground.amount)?;
                known = Some(known.map_or(count, |known: u64| known.min(count)));
                toll = u32::try_from(last).ok()?;
            }
            ground.offer(toll, fee, known?, &mut best);
        }
        for step in [1, -1] {
            while let Some(toll) = best.and_then(|best| best.toll.checked_add_signed(step)) {
                let (_, fee) = ground.choose(&ground.beyond(toll), best?.fee)?;
                if !ground.offer(toll, fee, known?, &mut best) {
                    break;
                }
            }
        }
        best
    }

    /// What using a part takes of the slack, by what its pieces take beyond the toll.
    pub(super) fn admits(&self, beyond: impl Iterator<Item = u64>) -> Option<u64> {
        let lacks = self.last.saturating_sub(beyond.map(|beyond| beyond.saturating_sub(self.fee)).sum());
        (lacks <= self.slack).then_some(lacks)
    }

    /// What using a piece of a part takes of it.
    pub(super) fn admits_piece(&self, lacks: u64, beyond: u64) -> Option<u64> {
        let lacks = lacks + self.fee.saturating_sub(beyond);
        (lacks <= self.slack).then_some(lacks)
    }

    /// Whether an atom of a piece may belong to the best choice.
    pub(super) fn admits_atom(&self, lacks: u64, takes: u32) -> bool {
        lacks + u64::from(self.toll.saturating_sub(takes)) <= self.slack
    }

    /// What is paid for an atom.
    pub(super) fn toll(&self) -> u32 {
        self.toll
    }
}

/// What the search for good tolls looks at.
struct Ground<'g, P, B> {
    parts: &'g [Vec<Piece<P>>],
    /// Fewest parts and pieces.
    count: usize,
    pieces: usize,
    amount: u64,
    beyond: B,
}

impl<P: Copy, B: Fn(P, u32) -> u64> Ground<'_, P, B> {
    /// What the pieces of every part take beyond a toll.
    fn beyond(&self, toll: u32) -> Vec<Vec<u64>> {
        let of_part =
            |part: &Vec<Piece<P>>| part.iter().map(|&(piece, _)| (self.beyond)(piece, toll)).collect();
        self.parts.iter().map(of_part).collect()
    }

    /// The parts that are worth most with a fee, and what each is worth; the best of them first.
    fn worths(&self, beyond: &[Vec<u64>], fee: u64) -> Vec<(u64, usize)> {
        let worth = |pieces: &Vec<u64>| pieces.iter().map(|beyond| beyond.saturating_sub(fee)).sum();
        let mut worths: Vec<(u64, usize)> = beyond.iter().map(worth).zip(0..).collect();
        worths.sort_unstable_by(|a, b| b.cmp(a));
        worths.truncate(self.count);
        worths
    }

    /// The pieces that take most beyond the toll in the parts that are worth most, as many as there are to be, and what
    /// the last of them takes; None where there are not as many.
    fn choose(&self, beyond: &[Vec<u64>], fee: u64) -> Option<(Vec<Piece<P>>, u64)> {
        let mut all: Vec<(u64, u64, Piece<P>)> = Vec::new();
        for (_, part) in self.worths(beyond, fee) {
            let pieces = self.parts[part].iter().zip(&beyond[part]);
            all.extend(pieces.map(|(&piece, &beyond)| (beyond, piece.1, piece)));
        }
        all.sort_unstable_by_key(|&(beyond, room, _)| std::cmp::Reverse((beyond, room)));
        let least = all.get(self.pieces.checked_sub(1)?)?.0;
        Some((all[..self.pieces].iter().map(|&(_, _, piece)| piece).collect(), least))
    }

    /// Tries other tolls; whether they leave less slack.
    fn offer(&self, toll: u32, fee: u64, known: u64, best: &mut Option<Fine>) -> bool {
        let worths = self.worths(&self.beyond(toll), fee);
        let Some(&(last, _)) = worths.last() else { return false };
        let most: u64 = worths.iter().map(|(worth, _)| worth).sum();
        let paid = known.saturating_mul(toll.into()).saturating_add(fee.saturating_mul(self.pieces as u64));
        let slack = paid.saturating_add(most).saturating_sub(self.amount);
        let is_better = best.is_none_or(|best| slack < best.slack);
        if is_better {
            *best = Some(Fine { toll, fee, slack, last });
        }
        is_better
    }
}
