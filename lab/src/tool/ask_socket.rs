//! One request to a control socket: sends standard input and prints the response, up to an empty line or the end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(super) fn ask(socket: &Path) -> io::Result<()> {
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request)?;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(&request)?;
    for line in BufReader::new(stream).lines() {
        match line? {
            line if line.is_empty() => break,
            line => println!("{line}"),
        }
    }
    Ok(())
}
