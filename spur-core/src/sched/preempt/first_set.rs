//! A good set of victims, where the searches for the cheapest set begin.

/// Decides whether a job fits if some jobs leave.
pub(super) trait RoomTrial {
    /// The nodes that the job gets.
    type Seats;

    /// The nodes that the job gets if the jobs in `leaving` leave; `None` if it does not fit.
    fn seats(&mut self, leaving: &[usize]) -> Option<Self::Seats>;

    /// Removes from `leaving` the jobs that may stay although the job gets the nodes `seats`.
    fn spare(&self, leaving: &mut Vec<usize>, seats: &Self::Seats);

    /// True if it is still worth while to try smaller sets.
    fn goes_on(&mut self) -> bool;
}

/// The shortest prefix of an order that is enough, without jobs that are not needed. `None` if all are not
/// enough.
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
