//! Costs: vectors of whole numbers that add up over disjoint parts of a placement and compare from left to right.
//!
//! Because the order survives adding the same cost to both sides, the best choice for a whole is made of best choices
//! for its parts; that is all the solver rests on.

/// A cost vector. Both sides of an operation always have the same width.
pub(crate) trait Cost: Clone + Ord + std::fmt::Debug + AsRef<[i64]> + AsMut<[i64]> {
    /// The cost of nothing.
    fn zero(width: usize) -> Self;

    /// The fields.
    fn fields(&self) -> &[i64] {
        self.as_ref()
    }

    /// The fields, to be written.
    fn fields_mut(&mut self) -> &mut [i64] {
        self.as_mut()
    }

    /// Takes away a cost that was added before.
    fn sub(&mut self, other: &Self) {
        self.fields_mut().iter_mut().zip(other.fields()).for_each(|(field, less)| *field -= less);
    }

    /// Adds another cost.
    fn add(&mut self, other: &Self) {
        self.fields_mut().iter_mut().zip(other.fields()).for_each(|(field, more)| *field += more);
    }
}

/// Fields of the costs that are kept on the stack; wider ones go to the heap.
pub(crate) const NARROW: usize = 12;

/// A cost of at most [`NARROW`] fields; those beyond the width stay 0.
pub(crate) type Narrow = [i64; NARROW];

impl Cost for Narrow {
    fn zero(_: usize) -> Self {
        [0; NARROW]
    }
}

impl Cost for Vec<i64> {
    fn zero(width: usize) -> Self {
        vec![0; width]
    }
}
