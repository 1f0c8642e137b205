//! Descriptors over a Unix socket.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Descriptors of one message; the kernel takes up to 253 (`SCM_MAX_FD`).
pub(super) const MAX_MESSAGE_DESCRIPTORS: usize = 128;

/// The byte that the descriptors of a message are sent with, before the answer itself: JSON ignores it.
const CARRIER: u8 = b' ';

/// Sends descriptors: messages of one byte that carry them, at least one.
pub(crate) fn send(stream: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut parts = all.chunks(MAX_MESSAGE_DESCRIPTORS);
    send_message(stream, parts.next().unwrap_or_default())?;
    parts.try_for_each(|part| send_message(stream, part))
}

fn send_message(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let carrier = [IoSlice::new(&[CARRIER])];
    sendmsg(stream, &carrier, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads the first byte of an answer, with all descriptors that were sent before it.
pub(crate) fn receive_all(stream: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    loop {
        let (byte, mut more) = receive(stream)?;
        descriptors.append(&mut more);
        if byte != CARRIER {
            return Ok((byte, descriptors));
        }
    }
}

/// Reads a byte, with the descriptors sent along.
pub(crate) fn receive(stream: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let received = loop {
        let into = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    Ok((byte[0], descriptors))
}
