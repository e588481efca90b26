//! The conversation with a Git server: its capabilities, its references, and one pack.
//!
//! Supports protocol version 2, and version 0 for older servers (version 1 is 0 with a greeting). A request asks for one commit without history. A server that sends more
//! is bounded by bytes and objects like any other.

use std::io;

use tokio::io::AsyncRead;

use super::oid::{Algorithm, Oid};
use super::pktline::{self, Packet, PacketReader};
use crate::artifact::TaskWrite;
use crate::budget::OverBudget;
use crate::fetch_budgets::GrowingCharge;
use crate::limits::Limits;

/// The client name that is sent to the server.
const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// Why a conversation with a Git server failed.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The stream ended or broke.
    Broken(io::Error),
    /// The server violated the Git protocol.
    Malformed(&'static str),
    /// The server reported an error.
    Remote(String),
    /// More references or objects than allowed.
    TooLarge { what: &'static str, limit: String },
    /// A budget has no capacity for the list of references.
    OverBudget(OverBudget),
    /// The pack could not be written to disk.
    Storage(io::Error),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Malformed("a line has no length"),
            _ => Self::Broken(error),
        }
    }
}

/// A reference that the server has listed, with its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteReference {
    pub(crate) name: String,
    /// The target: a commit, or a tag object.
    pub(crate) oid: Oid,
    /// The target of the tag object.
    pub(crate) peeled: Option<Oid>,
}

/// The server's first message, in version 2 or 0 of the protocol.
#[derive(Debug)]
pub(crate) enum Advertisement {
    /// Version 2: references have to be requested.
    Two { algorithm: Algorithm, shallow: bool },
    /// Versions 0 and 1: all references come at once.
    Zero {
        algorithm: Algorithm,
        capabilities: Vec<String>,
        references: Vec<RemoteReference>,
    },
}

impl Advertisement {
    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Two { algorithm, .. } | Self::Zero { algorithm, .. } => *algorithm,
        }
    }

    /// Reads the first message of a server.
    pub(crate) async fn read<R>(
        reader: &mut PacketReader<R>,
        limits: &Limits,
        memory: &mut GrowingCharge,
    ) -> Result<Self, WireError>
    where
        R: AsyncRead + Unpin,
    {
        let mut first = next_line(reader).await?;
        if first.as_deref().is_some_and(|line| line.starts_with(b"# service=")) {
            while next_line(reader).await?.is_some() {}
            first = next_line(reader).await?;
        }
        if first.as_deref() == Some(b"version 2") {
            return Self::read_two(reader).await;
        }
        if first.as_deref() == Some(b"version 1") {
            first = next_line(reader).await?;
        }
        let mut capabilities = Vec::new();
        let mut references = Vec::new();
        let mut line = first;
        let mut is_first = true;
        while let Some(bytes) = line {
            let mut bytes = bytes.as_slice();
            if is_first {
                let (reference, offered) =
                    split_at_byte(bytes, 0).ok_or(WireError::Malformed("it offers no capabilities"))?;
                capabilities = String::from_utf8_lossy(offered)
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect();
                bytes = reference;
                is_first = false;
            }
            if !bytes.starts_with(b"shallow ") {
                add_reference(&mut references, bytes, limits, memory).await?;
            }
            line = next_line(reader).await?;
        }
        let algorithm = find_algorithm(capabilities.iter().map(String::as_str))?;
        Ok(Self::Zero {
            algorithm,
            capabilities,
            references,
        })
    }

    /// Reads the rest of a first message in version 2: the capabilities.
    async fn read_two<R>(reader: &mut PacketReader<R>) -> Result<Self, WireError>
    where
        R: AsyncRead + Unpin,
    {
        let mut capabilities = Vec::new();
        while let Some(line) = next_line(reader).await? {
            if capabilities.len() >= 100 {
                return Err(WireError::Malformed("it offers too many capabilities"));
            }
            capabilities.push(String::from_utf8_lossy(&line).into_owned());
        }
        let offers = |name: &str| {
            capabilities.iter().find_map(|line| {
                if line == name {
                    Some("")
                } else {
                    line.strip_prefix(name)?.strip_prefix('=')
                }
            })
        };
        let Some(fetch) = offers("fetch") else {
            return Err(WireError::Malformed("it offers no fetch"));
        };
        let shallow = fetch.split(' ').any(|feature| feature == "shallow");
        Ok(Self::Two {
            algorithm: find_algorithm(capabilities.iter().map(String::as_str))?,
            shallow,
        })
    }
}

/// Writes the request for references that start with one of these prefixes (version 2).
pub(crate) fn write_list_request(algorithm: Algorithm, prefixes: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    pktline::write_line(&mut out, "command=ls-refs");
    pktline::write_line(&mut out, &format!("agent={AGENT}"));
    pktline::write_line(&mut out, &format!("object-format={}", algorithm.name()));
    pktline::write_delimiter(&mut out);
    pktline::write_line(&mut out, "peel");
    for prefix in prefixes {
        pktline::write_line(&mut out, &format!("ref-prefix {prefix}"));
    }
    pktline::write_flush(&mut out);
    out
}

/// Reads the answer to [`write_list_request`].
pub(crate) async fn read_list<R>(
    reader: &mut PacketReader<R>,
    limits: &Limits,
    memory: &mut GrowingCharge,
) -> Result<Vec<RemoteReference>, WireError>
where
    R: AsyncRead + Unpin,
{
    let mut references = Vec::new();
    while let Some(line) = next_line(reader).await? {
        // `spec.ref` can only name references that are UTF-8.
        if line
            .split(|byte| *byte == b' ')
            .nth(1)
            .is_some_and(|name| std::str::from_utf8(name).is_err())
        {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split(' ');
        let (oid, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(oid) = Oid::from_hex(oid.as_bytes()) else {
            // A branch without a commit ("unborn") has nothing to fetch.
            continue;
        };
        let peeled = words
            .find_map(|word| word.strip_prefix("peeled:"))
            .and_then(|hex| Oid::from_hex(hex.as_bytes()));
        push_reference(
            &mut references,
            RemoteReference {
                name: name.to_owned(),
                oid,
                peeled,
            },
            limits,
            memory,
        )
        .await?;
    }
    Ok(references)
}

/// A request for a pack, and how to read the part of its answer before the pack.
pub(crate) struct PackRequest {
    pub(crate) body: Vec<u8>,
    shallow: bool,
    version_two: bool,
    side_band: bool,
}

impl PackRequest {
    /// Creates a request for these objects, without history if `shallow` and the server supports it.
    pub(crate) fn new(advertisement: &Advertisement, wants: &[Oid], shallow: bool) -> Self {
        let mut body = Vec::new();
        match advertisement {
            Advertisement::Two {
                algorithm,
                shallow: can_shallow,
            } => {
                let shallow = shallow && *can_shallow;
                pktline::write_line(&mut body, "command=fetch");
                pktline::write_line(&mut body, &format!("agent={AGENT}"));
                pktline::write_line(&mut body, &format!("object-format={}", algorithm.name()));
                pktline::write_delimiter(&mut body);
                pktline::write_line(&mut body, "no-progress");
                pktline::write_line(&mut body, "ofs-delta");
                for want in wants {
                    pktline::write_line(&mut body, &format!("want {want}"));
                }
                if shallow {
                    pktline::write_line(&mut body, "deepen 1");
                }
                pktline::write_line(&mut body, "done");
                pktline::write_flush(&mut body);
                Self {
                    body,
                    shallow,
                    version_two: true,
                    side_band: true,
                }
            }
            Advertisement::Zero {
                algorithm,
                capabilities,
                ..
            } => {
                let offers = |name: &str| capabilities.iter().any(|capability| capability == name);
                let shallow = shallow && offers("shallow");
                let side_band = offers("side-band-64k");
                let mut chosen = vec![format!("agent={AGENT}")];
                // As git does, request the better offered one: Azure DevOps and CodeCommit answer only clients that request it.
                let acknowledgements = ["multi_ack_detailed", "multi_ack"]
                    .into_iter()
                    .find(|name| offers(name));
                for name in acknowledgements
                    .into_iter()
                    .chain(["side-band-64k", "ofs-delta", "no-progress"])
                {
                    if offers(name) {
                        chosen.push(name.to_owned());
                    }
                }
                if capabilities
                    .iter()
                    .any(|capability| capability.starts_with("object-format="))
                {
                    chosen.push(format!("object-format={}", algorithm.name()));
                }
                for (index, want) in wants.iter().enumerate() {
                    if index == 0 {
                        pktline::write_line(&mut body, &format!("want {want} {}", chosen.join(" ")));
                    } else {
                        pktline::write_line(&mut body, &format!("want {want}"));
                    }
                }
                if shallow {
                    pktline::write_line(&mut body, "deepen 1");
                }
                pktline::write_flush(&mut body);
                pktline::write_line(&mut body, "done");
                Self {
                    body,
                    shallow,
                    version_two: false,
                    side_band,
                }
            }
        }
    }

    /// Reads the answer and writes its pack to `out`.
    pub(crate) async fn read<R, W>(
        &self,
        reader: &mut PacketReader<R>,
        pack: &mut PackWriter<'_, W>,
    ) -> Result<(), WireError>
    where
        R: AsyncRead + Unpin,
        W: TaskWrite,
    {
        if self.version_two {
            loop {
                match next_line(reader).await? {
                    Some(line) if line == b"packfile" => break,
                    Some(_) => {}
                    None => {}
                }
            }
        } else {
            if self.shallow {
                while next_line(reader).await?.is_some() {}
            }
            match next_line(reader).await? {
                Some(line) if line == b"NAK" || line.starts_with(b"ACK ") => {}
                _ => return Err(WireError::Malformed("it did not answer the request")),
            }
            if !self.side_band {
                return Err(WireError::Malformed("it can't multiplex (side-band-64k)"));
            }
        }
        loop {
            let line = match reader.next().await? {
                Packet::Line(line) => line,
                Packet::Flush | Packet::ResponseEnd => return pack.finish(),
                Packet::Delimiter => return Err(WireError::Malformed("the pack has sections")),
            };
            match line.split_first() {
                Some((1, data)) => pack.write(data).await?,
                // Progress messages, meant for a terminal.
                Some((2, _)) => {}
                Some((3, message)) => return Err(WireError::Remote(clean_words(message))),
                _ => return Err(WireError::Malformed("a part of the pack has no channel")),
            }
        }
    }
}

/// Writes a pack to disk and reads the number of objects in its first bytes.
pub(crate) struct PackWriter<'a, W> {
    out: &'a mut W,
    limits: &'a Limits,
    header: Vec<u8>,
}

impl<'a, W: TaskWrite> PackWriter<'a, W> {
    pub(crate) fn new(out: &'a mut W, limits: &'a Limits) -> Self {
        Self {
            out,
            limits,
            header: Vec::with_capacity(12),
        }
    }

    async fn write(&mut self, data: &[u8]) -> Result<(), WireError> {
        if self.header.len() < 12 {
            self.header.extend(data.iter().take(12 - self.header.len()));
            if let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] = *self.header.as_slice() {
                if u32::from_be_bytes([a, b, c, d]) > self.limits.objects {
                    return Err(WireError::TooLarge {
                        what: "objects",
                        limit: self.limits.objects.to_string(),
                    });
                }
            } else if self.header.len() >= 12 {
                return Err(WireError::Malformed("its data are not a pack"));
            }
        }
        self.out.write_ready(data).await.map_err(WireError::Storage)
    }

    fn finish(&mut self) -> Result<(), WireError> {
        if self.header.len() < 12 {
            return Err(WireError::Malformed("the pack is cut off"));
        }
        self.out.flush().map_err(WireError::Storage)
    }
}

/// Reads the next line without its newline; `None` at a flush or delimiter. An error of the server becomes an error.
async fn next_line<R>(reader: &mut PacketReader<R>) -> Result<Option<Vec<u8>>, WireError>
where
    R: AsyncRead + Unpin,
{
    match reader.next().await? {
        Packet::Line(line) => match line.strip_prefix(b"ERR ") {
            Some(message) => Err(WireError::Remote(clean_words(message))),
            None => Ok(Some(pktline::trim_line(&line).to_vec())),
        },
        Packet::Flush | Packet::Delimiter | Packet::ResponseEnd => Ok(None),
    }
}

/// Cleans a server's message for a condition: the first 300 characters, without control characters.
pub(crate) fn clean_words(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds the reference of a line in version 0. A line `<tag>^{}` adds the target to the tag object before it.
async fn add_reference(
    references: &mut Vec<RemoteReference>,
    line: &[u8],
    limits: &Limits,
    memory: &mut GrowingCharge,
) -> Result<(), WireError> {
    let malformed = WireError::Malformed("a line is no reference");
    let Some((hex, name)) = split_at_byte(line, b' ') else {
        return Err(malformed);
    };
    let Some(oid) = Oid::from_hex(hex) else {
        return Err(malformed);
    };
    let Ok(name) = std::str::from_utf8(name) else {
        // `spec.ref` can only name references that are UTF-8.
        return Ok(());
    };
    if oid.is_null() {
        // "capabilities^{}": the repository is empty.
        return Ok(());
    }
    if let Some(tag) = name.strip_suffix("^{}") {
        if let Some(last) = references.last_mut().filter(|last| last.name == tag) {
            last.peeled = Some(oid);
        }
        return Ok(());
    }
    push_reference(
        references,
        RemoteReference {
            name: name.to_owned(),
            oid,
            peeled: None,
        },
        limits,
        memory,
    )
    .await
}

/// Adds a reference to the list, within the limit and the budget.
async fn push_reference(
    references: &mut Vec<RemoteReference>,
    reference: RemoteReference,
    limits: &Limits,
    memory: &mut GrowingCharge,
) -> Result<(), WireError> {
    if references.len() >= limits.references {
        return Err(WireError::TooLarge {
            what: "references",
            limit: limits.references.to_string(),
        });
    }
    // Twice the size, because the list may just have grown.
    let bytes = reference.name.len() + 2 * size_of::<RemoteReference>();
    memory.add(bytes as u64).await.map_err(WireError::OverBudget)?;
    references.push(reference);
    Ok(())
}

/// Returns the hash algorithm that the capabilities name; SHA-1 if they name none.
fn find_algorithm<'a>(mut capabilities: impl Iterator<Item = &'a str>) -> Result<Algorithm, WireError> {
    match capabilities.find_map(|capability| capability.strip_prefix("object-format=")) {
        None | Some("sha1") => Ok(Algorithm::Sha1),
        Some("sha256") => Ok(Algorithm::Sha256),
        Some(_) => Err(WireError::Malformed("it uses an unknown hash")),
    }
}

/// Splits bytes at the first occurrence of a byte, which is in neither half.
fn split_at_byte(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = bytes.iter().position(|byte| *byte == at)?;
    Some((bytes.get(..position)?, bytes.get(position + 1..)?))
}
