//! A process that reads a file as a user, for spurd: what a batch script has written, for `spur logs`.
//!
//! The process is outside of every step's control group, so its user must not be able to run anything in it: it executes no
//! program and cannot be traced. It has no descriptor but its socket and the file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};

use step_wire::order::ReadOrder;

use crate::task::{fork, user};

/// How often a file is looked at whose end was reached: nothing tells of what is added on a network file system.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Takes an order from the socket and answers it; ends when the file has been passed on, or the socket is closed.
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
        // What was written before the end was announced is read after it.
        io::copy(&mut file, &mut socket)?;
        if over {
            return Ok(());
        }
        file = current(file, &order.file)?;
        over = is_over(&socket)?;
    }
}

/// A regular file; a pipe or a device might never answer.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// The file that has the name now, from its beginning if it is another one or was made shorter.
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

/// Waits a moment; whether spurd has closed its end meanwhile, or what it says with that: nothing more is written.
fn is_over(socket: &UnixStream) -> io::Result<bool> {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    Ok(rustix::event::poll(&mut watched, Some(&LOOK_AGAIN))? > 0)
}
