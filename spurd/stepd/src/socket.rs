//! Sockets over which descriptors are passed.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

/// Receives bytes with at most two file descriptors.
pub(crate) fn receive_with_descriptors(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> rustix::io::Result<(usize, Vec<File>)> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [io::IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().map(File::from).collect()))
}
