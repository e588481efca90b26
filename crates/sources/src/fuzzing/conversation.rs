//! Any bytes as the answers of a Git server: its first message, its references, and a pack.

use futures::executor::block_on;

use super::{Meter, unlimited_charge};
use crate::git::oid::Oid;
use crate::git::pktline::{Packet, PacketReader};
use crate::git::wire::{Advertisement, PackRequest, PackWriter, clean_words, read_list};
use crate::limits::Limits;

/// Bytes of the reader's buffer, and of one line with its copies.
const READER: u64 = 512 << 10;

pub fn check(bytes: &[u8], meter: Meter<'_>) {
    block_on(check_lines(bytes));
    let limits = Limits {
        references: 200,
        objects: 100,
        ..Limits::default()
    };
    let mut memory = unlimited_charge();
    // The list of references is charged; of the capabilities there are as many as fit into the first lines.
    meter(READER + 8 * bytes.len() as u64, &mut || {
        block_on(converse(bytes, &limits, &mut memory));
    });
}

async fn converse(bytes: &[u8], limits: &Limits, memory: &mut crate::fetch_budgets::GrowingCharge) {
    let mut reader = PacketReader::new(bytes);
    let Ok(advertisement) = Advertisement::read(&mut reader, limits, memory).await else {
        return;
    };
    let references = match &advertisement {
        Advertisement::Zero { references, .. } => references.clone(),
        Advertisement::Two { .. } => match read_list(&mut reader, limits, memory).await {
            Ok(references) => references,
            Err(_) => return,
        },
    };
    assert!(references.len() <= limits.references);
    let names: usize = references.iter().map(|reference| reference.name.len()).sum();
    assert!(memory.mark() >= names as u64, "references that are not charged");
    let wants: Vec<Oid> = references.iter().map(|reference| reference.oid).collect();
    let request = PackRequest::new(&advertisement, &wants, true);
    check_request(&request.body).await;
    let mut out = Vec::new();
    let mut writer = PackWriter::new(&mut out, limits);
    if request.read(&mut reader, &mut writer).await.is_ok() {
        assert!(
            out.starts_with(b"PACK\0\0\0"),
            "what is accepted as a pack begins as one"
        );
        assert!(out.len() <= bytes.len());
    }
}

/// Reads a request as a server does: it consists of whole lines.
async fn check_request(body: &[u8]) {
    let mut reader = PacketReader::new(body);
    let mut length = 0;
    while length < body.len() {
        length += match reader.next().await.unwrap() {
            Packet::Line(line) => line.len() + 4,
            _ => 4,
        };
    }
}

/// Writes what was read: it must be the same bytes.
async fn check_lines(bytes: &[u8]) {
    let mut reader = PacketReader::new(bytes);
    let mut again = Vec::new();
    while let Ok(packet) = reader.next().await {
        match packet {
            Packet::Line(line) => {
                again.extend_from_slice(format!("{:04x}", line.len() + 4).as_bytes());
                again.extend_from_slice(&line);
                let words = clean_words(&line);
                assert!(words.chars().count() <= 300 && !words.contains(char::is_control));
            }
            Packet::Flush => again.extend_from_slice(b"0000"),
            Packet::Delimiter => again.extend_from_slice(b"0001"),
            Packet::ResponseEnd => again.extend_from_slice(b"0002"),
        }
    }
    let begin = bytes.get(..again.len()).unwrap();
    assert!(begin.eq_ignore_ascii_case(&again), "lines are read as others");
}

/// Returns the first inputs: conversations in both versions of the protocol, and refusals.
pub fn seeds() -> Vec<Vec<u8>> {
    let id = "0123456789012345678901234567890123456789";
    let long = "01".repeat(32);
    let line = |text: &[u8]| [format!("{:04x}", text.len() + 4).as_bytes(), text].concat();
    let text = |text: String| line(text.as_bytes());
    let flush = b"0000".to_vec();
    let pack = [
        line(b"\x01PACK\0\0\0\x02\0\0\0\0"),
        line(b"\x02progress"),
        line(b"\x01more"),
        flush.clone(),
    ]
    .concat();
    let two = |id: &str, format: &str| {
        [
            line(b"version 2\n"),
            line(b"agent=x\n"),
            line(b"ls-refs=unborn\n"),
            line(b"fetch=shallow filter\n"),
            text(format!("object-format={format}\n")),
            flush.clone(),
            line(b"unborn HEAD symref-target:refs/heads/main\n"),
            text(format!("{id} refs/heads/main\n")),
            text(format!("{id} refs/tags/v1 peeled:{id}\n")),
            flush.clone(),
            line(b"shallow-info\n"),
            text(format!("shallow {id}\n")),
            b"0001".to_vec(),
            line(b"packfile\n"),
            pack.clone(),
        ]
        .concat()
    };
    let zero = [
        line(b"# service=git-upload-pack\n"),
        flush.clone(),
        text(format!(
            "{id} HEAD\0multi_ack_detailed side-band-64k ofs-delta shallow symref=HEAD:refs/heads/main\n"
        )),
        text(format!("shallow {id}\n")),
        text(format!("{id} refs/tags/v1\n")),
        text(format!("{id} refs/tags/v1^{{}}\n")),
        flush.clone(),
        text(format!("shallow {id}\n")),
        flush.clone(),
        line(b"NAK\n"),
        pack.clone(),
    ]
    .concat();
    let one = [line(b"version 1\n"), zero[34..].to_vec()].concat();
    let empty = [
        text(format!("{} capabilities^{{}}\0object-format=sha256\n", "0".repeat(64))),
        flush.clone(),
    ]
    .concat();
    let refused = line(b"ERR no such repository\n");
    vec![two(id, "sha1"), two(&long, "sha256"), zero, one, empty, refused]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_around_the_first_inputs_keep_their_promises() {
        super::super::check_around(&seeds(), |bytes| check(bytes, &super::super::run));
    }
}
