//! The process that keeps pre-shared keys, private keys and SK_d, and works with them when the ike process asks.
//!
//! It parses nothing that a stranger wrote: a request has typed fields, and the octets in them are only hashed, signed
//! or taken for a public value, whose check is part of the arithmetic.

use super::channel::Channel;
use super::inherited::{ProcessOptions, settle};
use super::message::{FromKeys, SecretEntry, ToKeys};
use super::pool::Pool;
use crate::failure::Failure;
use crate::memory;
use crate::privileges::{self, ChildCalls};
use crate::random::fill_with_random;
use ikev2::signatures::PrivateKey;
use ikev2::work::{Done, Secrets, Work, WorkError, WorkId, prepare_thread};
use ipsec::suite::Secret;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError, RwLock};

/// Requests that wait for a thread; further ones wait in the socket.
const MAX_QUEUED_REQUESTS: usize = 256;

/// Threads, where there are that many processors.
const MAX_THREADS: usize = 4;

/// `esplanade ike-keys`.
pub(crate) fn key_process(options: ProcessOptions) -> Result<(), Failure> {
    privileges::let_keys_be_locked();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (main, mut given) = settle(options, c"ike-keys", Some(ChildCalls::Keys))?;
    memory::with_keys(|| {
        let work = given
            .pop()
            .ok_or_else(|| Failure::new("the stream to the ike process is missing"))?;
        let keys = KeyProcess::new(main, work, threads.min(MAX_THREADS)).map_err(Failure::new)?;
        match keys.serve() {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(Failure::new(error)),
            _ => Ok(()),
        }
    })
}

/// The streams and the threads.
pub(super) struct KeyProcess {
    main: Channel,
    ike: Channel,
    secrets: Arc<RwLock<Secrets>>,
    pool: Pool<(WorkId, Work), Done>,
    /// A request for which no thread has room yet.
    parked: Option<(WorkId, Work)>,
}

impl KeyProcess {
    pub(super) fn new(main: UnixStream, ike: OwnedFd, threads: usize) -> io::Result<Self> {
        let secrets = Arc::new(RwLock::new(Secrets::new()));
        let shared = Arc::clone(&secrets);
        let work = move |(id, work)| {
            let secrets = shared.read().unwrap_or_else(PoisonError::into_inner);
            let result = secrets.perform(work, &mut |bytes| fill_with_random(bytes));
            Done { id, result }
        };
        Ok(Self {
            main: Channel::new(main)?,
            ike: Channel::new(ike.into())?,
            secrets,
            pool: Pool::start("keys", (threads, MAX_QUEUED_REQUESTS), prepare_thread, work)?,
            parked: None,
        })
    }

    /// Serves until one of the two other processes has gone: what the ike process has negotiated goes with it.
    pub(super) fn serve(mut self) -> io::Result<()> {
        loop {
            self.wait()?;
            while let Some(ToKeys::Secrets(entries)) = self.main.receive()? {
                self.replace(entries);
                // A queue of single bytes is never full.
                let _ = self.main.push(&FromKeys::Ready);
            }
            for done in self.pool.results() {
                if self.ike.push(&done).is_err() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
            }
            self.take_requests()?;
            self.main.flush()?;
            self.ike.flush()?;
        }
    }

    fn wait(&self) -> io::Result<()> {
        let wanted = |channel: &Channel, reads: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, channel.waiting_bytes() > 0);
            flags
        };
        let mut fds = [
            PollFd::from_borrowed_fd(self.pool.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.main.as_fd(), wanted(&self.main, true)),
            PollFd::from_borrowed_fd(self.ike.as_fd(), wanted(&self.ike, self.parked.is_none())),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_requests(&mut self) -> io::Result<()> {
        loop {
            let request = match self.parked.take() {
                Some(parked) => parked,
                None => match self.ike.receive()? {
                    Some(request) => request,
                    None => return Ok(()),
                },
            };
            if let Err(request) = self.pool.submit(request) {
                self.parked = Some(request);
                return Ok(());
            }
        }
    }

    fn replace(&mut self, entries: Vec<SecretEntry>) {
        let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        secrets.remove_keys();
        // Most peers have the same private key. It is read once, and what its first signature computes (RSA: blinding)
        // serves the signatures for all of them.
        let mut read = HashMap::new();
        for entry in &entries {
            match entry {
                SecretEntry::SharedSecret(number, octets) => {
                    secrets.add_shared_secret(*number, Secret::new(octets.to_vec()));
                }
                SecretEntry::PrivateKey(number, pem) => {
                    let key = read
                        .entry(pem.as_slice())
                        .or_insert_with(|| PrivateKey::from_pem(pem));
                    match key {
                        Ok(key) => secrets.add_private_key(*number, key.clone()),
                        Err(why) => eprintln!("esplanade: private key {number} is not used: {why}"),
                    }
                }
            }
        }
    }
}

/// The answer where a request cannot be done.
pub(super) fn refused(id: WorkId, why: WorkError) -> Done {
    Done {
        id,
        result: Err(why),
    }
}
