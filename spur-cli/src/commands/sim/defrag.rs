//! `spur defrag` in a workload. The real command parses options and formats the output; the simulated
//! controller plans and makes the moves.

use jiff::tz::TimeZone;
use spur_core::sched::defrag::Finding;
use spur_core::sim::{Watch, World};
use spur_proto::convert::defrag::render;

use super::command::{Ran, complaints};
use super::deed::Users;
use super::{request, scontrol};
use crate::commands::defrag::{Query, is_success};
use crate::commands::query::Asked;
use crate::format::Show;

/// Plans moves, and makes them with `--apply`.
///
/// # Errors
/// Fails for options that `spur defrag` refuses, or if the controller refuses.
pub(super) fn run<W: Watch>(world: &mut World<W>, words: &[String]) -> Result<Ran, String> {
    let query = match Query::read(words).map_err(|error| error.to_string())? {
        Asked::Show(stdout) => return Ok(Ran { stdout, ..Ran::default() }),
        Asked::Run(query) => query,
    };
    let job = query.job.as_deref().map(|name| scontrol::number(world, name)).transpose()?;
    let wish = match query.request.is_empty() {
        true => None,
        false => Some((Users::default().owner("user"), request::submission(world, &query.request)?.0)),
    };
    let submitted = wish.is_none();
    let (cluster, found) = world.defragment(wish, job)?;
    let mut shown = render(&cluster, &found, submitted);
    if let (true, Finding::Moves(plan)) = (query.apply, &found.finding) {
        (shown.made, shown.stopped) = world.make_moves(plan, submitted);
    }
    let stderr = match shown.stopped.is_empty() {
        true => String::new(),
        false => complaints("spur defrag", [shown.stopped.as_str()]),
    };
    let stdout = query.text(&shown, &Show::new(TimeZone::UTC, world.now().0));
    Ok(Ran { status: u8::from(!is_success(&query, &shown)), stdout, stderr })
}
