//! Git's framing: a line of at most 65,516 bytes behind four hex digits.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};

/// An item in a stream of pkt-lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    /// A line, its final newline included.
    Line(Bytes),
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: the end of a section.
    Delimiter,
    /// `0002`: the end of a response.
    ResponseEnd,
}

/// Reads pkt-lines from a stream.
pub(crate) struct PacketReader<R> {
    inner: BufReader<R>,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner: BufReader::with_capacity(64 << 10, inner),
        }
    }

    /// Reads the rest of an answer, so that the connection can be used again; gives up after a few bytes.
    pub(crate) async fn finish(&mut self) {
        let mut spare = [0; 1024];
        for _ in 0..16 {
            match self.inner.read(&mut spare).await {
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
    }

    /// Reads the next packet. The end of the stream is an error, since Git marks the end of its data.
    pub(crate) async fn next(&mut self) -> io::Result<Packet> {
        let mut digits = [0; 4];
        self.inner.read_exact(&mut digits).await?;
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a line has no length");
        let text = std::str::from_utf8(&digits).map_err(|_| malformed())?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        let length = usize::from_str_radix(text, 16).map_err(|_| malformed())?;
        match length {
            0 => Ok(Packet::Flush),
            1 => Ok(Packet::Delimiter),
            2 => Ok(Packet::ResponseEnd),
            3 => Err(malformed()),
            length => {
                let mut line = BytesMut::zeroed(length - 4);
                self.inner.read_exact(&mut line).await?;
                Ok(Packet::Line(line.freeze()))
            }
        }
    }
}

/// Appends a text to a message as one pkt-line.
pub(crate) fn write_line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
}

/// Appends a flush packet (`0000`) to a message.
pub(crate) fn write_flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Appends a delimiter packet (`0001`) to a message.
pub(crate) fn write_delimiter(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0001");
}

/// Returns a line without its final newline.
pub(crate) fn trim_line(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
