//! A set of victims that is good, not best: where the searches for the cheapest set begin.

/// Finds out whether room is made if some jobs leave.
pub(super) trait RoomTrial {
    /// Where those go for whom room is made.
    type Seats;

    /// Where they go if these leave; `None` if they do not fit then.
    fn seats(&mut self, leaving: &[usize]) -> Option<Self::Seats>;

    /// Leaves out those who may stay with these seats taken.
    fn spare(&self, leaving: &mut Vec<usize>, seats: &Self::Seats);

    /// Whether it is still worth while to try whether one fewer will do.
    fn goes_on(&mut self) -> bool;
}

/// The first so many of an order, without those that turn out not to be needed. `None` where even all are not enough.
pub(super) fn good<T: RoomTrial>(trial: &mut T, order: &[usize]) -> Option<(Vec<usize>, T::Seats)> {
    let mut seats = trial.seats(order)?;
    let (mut low, mut high) = (0, order.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match trial.seats(&order[..middle]) {
            Some(found) => (seats, high) = (found, middle),
            None => low = middle + 1,
        }
    }
    let mut leaving = order[..high].to_vec();
    trial.spare(&mut leaving, &seats);
    for victim in leaving.clone().into_iter().rev() {
        if !trial.goes_on() {
            break;
        }
        let fewer: Vec<usize> = leaving.iter().copied().filter(|other| *other != victim).collect();
        if fewer.len() < leaving.len()
            && let Some(found) = trial.seats(&fewer)
        {
            (seats, leaving) = (found, fewer);
            trial.spare(&mut leaving, &seats);
        }
    }
    Some((leaving, seats))
}
