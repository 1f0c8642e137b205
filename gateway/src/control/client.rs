//! The command line's end.

use super::message::{Answer, Request};
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// A connection to a gateway, good for one request.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
}

/// Why a gateway gave no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody is there.
    Nobody(PathBuf),
    /// The socket belongs to somebody else.
    Forbidden(PathBuf),
    /// The connection broke.
    Broken(PathBuf, io::Error),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody(path) => write!(
                f,
                "no gateway answers at {}: start one with `esplanade run`, or name its socket with --control",
                path.display()
            ),
            Self::Forbidden(path) => write!(
                f,
                "the gateway at {} belongs to another user: run this as root",
                path.display()
            ),
            Self::Broken(path, error) => {
                write!(f, "the gateway at {} broke off: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for NoAnswer {}

impl NoAnswer {
    /// Whether there is no gateway at all.
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody(_))
    }
}

impl Client {
    /// Connects to the gateway at `path`.
    pub fn connect(path: &Path) -> Result<Self, NoAnswer> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => NoAnswer::Nobody(path.to_owned()),
            ErrorKind::PermissionDenied => NoAnswer::Forbidden(path.to_owned()),
            _ => NoAnswer::Broken(path.to_owned(), error),
        })?;
        let client = Self {
            stream,
            path: path.to_owned(),
        };
        client.patience(Some(Duration::from_secs(120)))?;
        Ok(client)
    }

    /// Asks, and waits for the answer.
    pub fn ask(mut self, request: &Request) -> Result<Answer, NoAnswer> {
        self.send(request)?;
        let path = self.path.clone();
        let mut line = Zeroizing::new(String::new());
        let read = BufReader::new(&self.stream).read_line(&mut line);
        match read {
            Ok(0) => Err(NoAnswer::Broken(path, ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(NoAnswer::Broken(path, error)),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| NoAnswer::Broken(path, io::Error::other(error))),
        }
    }

    /// Asks, and hands over every line of the answer until the gateway ends or `line` says no.
    pub fn follow(
        mut self,
        request: &Request,
        mut line: impl FnMut(Answer) -> bool,
    ) -> Result<(), NoAnswer> {
        self.send(request)?;
        self.patience(None)?;
        let path = self.path.clone();
        for text in BufReader::new(&self.stream).lines() {
            let answer = text
                .and_then(|text| serde_json::from_str(&text).map_err(io::Error::other))
                .map_err(|error| NoAnswer::Broken(path.clone(), error))?;
            if !line(answer) {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, request: &Request) -> Result<(), NoAnswer> {
        let broken = |error| NoAnswer::Broken(self.path.clone(), error);
        let mut text = Zeroizing::new(
            serde_json::to_vec(request)
                .map_err(io::Error::other)
                .map_err(broken)?,
        );
        text.push(b'\n');
        self.stream.write_all(&text).map_err(broken)
    }

    fn patience(&self, time: Option<Duration>) -> Result<(), NoAnswer> {
        let set = self
            .stream
            .set_read_timeout(time)
            .and_then(|()| self.stream.set_write_timeout(time));
        set.map_err(|error| NoAnswer::Broken(self.path.clone(), error))
    }
}
