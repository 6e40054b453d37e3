//! `spurstepd`: runs one step on one node. spurd starts it and sends it the order over a socket.

mod clients;
mod clock;
mod confine;
mod connection;
mod fork_server;
mod mpi;
mod poll;
mod reader;
mod requests;
mod setup;
mod socket;
mod stream;
mod task;

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;

use step_wire::message::{Event, Frame};

use crate::fork_server::Wanted;
use crate::poll::Shell;
use crate::setup::{Received, Refusal};

/// Forks a spurstepd for each step that spurd asks for on standard input; each child runs its step to the
/// end.
///
/// Processes that read a user's file for spurd are forked likewise.
fn main() -> ExitCode {
    // A start script may have left a file open that only root may read; tasks must not inherit the
    // descriptor.
    close_fds::set_fds_cloexec(3, &[]);
    match fork_server::tend() {
        Ok(Some(Wanted::Step { listener, directory })) => run_step(listener, &directory),
        Ok(Some(Wanted::Reader { socket })) => match reader::serve(socket) {
            Ok(()) => ExitCode::SUCCESS,
            // The client or spurd is gone.
            Err(_) => ExitCode::FAILURE,
        },
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "spurstepd: no spurd on standard input: {error} (spurd starts spurstepd; people do not)"
            );
            ExitCode::FAILURE
        }
    }
}

fn run_step(listener: UnixListener, directory: &File) -> ExitCode {
    let Received { launch, mut spurd, listener } = match setup::receive(listener) {
        Ok(received) => received,
        Err(error) => {
            eprintln!("spurstepd: no order: {error}");
            return ExitCode::FAILURE;
        }
    };
    let prepared = match setup::prepare(launch, listener, directory) {
        Ok(prepared) => prepared,
        Err(Refusal { message, node_fault }) => {
            eprintln!("spurstepd: {message}");
            spurd.send(&Frame::Event(Event::Refused { message, node_fault }));
            return ExitCode::FAILURE;
        }
    };
    match Shell::new(prepared).run(spurd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spurstepd: {error}");
            ExitCode::FAILURE
        }
    }
}
