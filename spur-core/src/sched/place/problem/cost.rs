//! Costs: vectors of integers that add up over disjoint parts of a placement and compare lexicographically.
//!
//! The order survives adding the same cost to both sides. So the best choice for a whole consists of best
//! choices for its parts (Bellman's principle), which all solvers rest on.

/// A cost vector. Both operands always have the same width.
pub(crate) trait Cost: Clone + Ord + std::fmt::Debug + AsRef<[i64]> + AsMut<[i64]> {
    /// The cost of using nothing.
    fn zero(width: usize) -> Self;

    /// The fields of the vector.
    fn fields(&self) -> &[i64] {
        self.as_ref()
    }

    /// The fields of the vector, for changes.
    fn fields_mut(&mut self) -> &mut [i64] {
        self.as_mut()
    }

    /// Subtracts a cost that was added before.
    fn sub(&mut self, other: &Self) {
        self.fields_mut().iter_mut().zip(other.fields()).for_each(|(field, less)| *field -= less);
    }

    /// Adds another cost.
    fn add(&mut self, other: &Self) {
        self.fields_mut().iter_mut().zip(other.fields()).for_each(|(field, more)| *field += more);
    }
}

/// Number of fields of a cost that is kept on the stack; wider costs are kept on the heap.
pub(crate) const NARROW: usize = 12;

/// A cost of at most [`NARROW`] fields; fields beyond the width stay 0.
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
