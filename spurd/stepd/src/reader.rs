//! A process that reads a file as a user, for spurd: the output of a batch script, for `spur logs`.
//!
//! The process is outside every step's control group, so its user must not be able to run anything in it. The
//! process executes no program and cannot be traced. Its only descriptors are its socket and the file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};

use step_wire::order::ReadOrder;

use crate::task::{fork, user};

/// Interval at which a fully read file is read again: network file systems do not report additions.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Reads an order from the socket and answers it; ends when the file has been sent, or the socket is closed.
pub(crate) fn serve(mut socket: UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&socket).read_line(&mut line)?;
    let order: ReadOrder = serde_json::from_str(&line)?;
    fork::reset_signals()?;
    user::become_user(&order.identity)?;
    let mut file = loop {
        match open(&order.file) {
            Ok(file) => break file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && order.follow && !is_over(&socket)? => {}
            Err(error) => {
                socket.write_all(&[ReadOrder::REFUSED])?;
                return socket.write_all(error.to_string().as_bytes());
            }
        }
    };
    socket.write_all(&[ReadOrder::OPENED])?;
    let mut over = !order.follow;
    loop {
        // What was written before the end was announced is read after the announcement.
        io::copy(&mut file, &mut socket)?;
        if over {
            return Ok(());
        }
        file = current(file, &order.file)?;
        over = is_over(&socket)?;
    }
}

/// Opens a regular file; a pipe or a device might never answer.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Returns the file that has the name now, at its beginning if it is another file or was truncated.
fn current(mut file: File, path: &Path) -> io::Result<File> {
    let known = file.metadata()?;
    if let Ok(new) = open(path) {
        let found = new.metadata()?;
        if (found.dev(), found.ino()) != (known.dev(), known.ino()) {
            return Ok(new);
        }
    }
    if known.len() < file.stream_position()? {
        file.seek(SeekFrom::Start(0))?;
    }
    Ok(file)
}

/// Waits a moment, and returns true if spurd has shut its end down meanwhile: nothing more is written to the
/// file.
fn is_over(socket: &UnixStream) -> io::Result<bool> {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    Ok(rustix::event::poll(&mut watched, Some(&LOOK_AGAIN))? > 0)
}
