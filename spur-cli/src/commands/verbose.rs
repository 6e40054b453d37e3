//! Messages of `-v` of commands that request nodes.

use crate::options::submission::Submission;
use crate::options::told;
use crate::place::{self, Here};
use crate::session::Session;

/// Prints the given options and those without effect; with `-vv` also the limits and the mask that the job
/// inherits.
pub(super) fn tell(session: &mut Session, wishes: &Submission) {
    if wishes.verbose == 0 || wishes.quiet {
        return;
    }
    for line in told::lines(wishes, &Here) {
        session.inform(&line);
    }
    for note in &wishes.notes {
        session.inform(note);
    }
    if wishes.verbose > 1 {
        for limit in place::limits(&wishes.propagate) {
            session.inform(&format!("debug:  propagating RLIMIT_{}={}", limit.name, limit.soft));
        }
        let mask = wishes.umask.unwrap_or_else(place::file_mask);
        session.inform(&format!("debug:  propagating UMASK={mask:04o}"));
    }
}
