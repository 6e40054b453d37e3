//! Power loss without pulling a plug.
//!
//! A process runs with a small recorder preloaded ([`Recorder`]). The recorder writes down every write, sync,
//! rename and removal under one directory, and every byte sent to a pipe or socket. The records are in one
//! order over all threads and child processes. From the records ([`Trace`]) the directory can be rebuilt as a
//! power failure at any moment would leave it ([`Disk`], [`Image`]). Synced content is there; the rest is
//! lost ([`Loss::Unsynced`]) or there in part ([`Loss::Some`]). The program's own recovery is then started on
//! that directory.
//!
//! The rules are those of POSIX, stricter than any one file system. `fsync` and `fdatasync` of a file keep
//! its content and size but not its name, for which its directory must be synced. A sync covers the changes
//! that were complete before it began. Bytes to a pipe or socket count from before they were sent. So
//! *"everything that had been acknowledged is in the image cut at that acknowledgement"* also shows that no
//! reply precedes its sync.
//!
//! The same library makes a call fail that changes something under the directory, the first, the second, and
//! so on ([`failing`]): input/output errors, a full disk, short and torn writes.
//!
//! [`Wall`] shows processes another time than the wall clock's.
//!
//! Some changes escape the recorder: those by raw system calls, statically linked programs, C's buffered
//! output and writable shared mappings. They appear as a difference between the real directory and the image
//! that loses nothing: [`Trace::check_complete`]. SQLite's `-shm` files are such mappings; they carry nothing
//! over a restart and are left out.

mod disk;
mod record;
mod recorder;
mod wall;

pub use disk::{Disk, Image, Loss};
pub use record::{Action, Record, Trace, TraceError};
pub use recorder::{Failure, Recorder, failing};
pub use wall::Wall;
