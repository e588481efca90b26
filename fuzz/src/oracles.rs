//! Independent readers of the same formats. They must accept each input that this project accepts, with the same meaning.

use git_signatures::fuzzing::Accepted;
use pgp::composed::{Deserializable as _, DetachedSignature, Message};
use pgp::packet::{PacketHeader, PublicKey, PublicSubkey};
use pgp::types::{PacketLength, Tag, VerifyingKey};
use sops::Format;
use sops::fuzzing::Clear;
use ssh_encoding::{Decode as _, Encode as _};
use ssh_key::{HashAlg, SshSig};
#[cfg(feature = "sources")]
use tenure_sources::fuzzing::listing::Listed;

/// Compares packets with those of the crate pgp.
pub fn packets(bytes: &[u8], packets: &[(u8, Vec<u8>)], is_whole: bool) {
    let mut rest = bytes;
    for (tag, body) in packets {
        let header = PacketHeader::try_from_reader(&mut rest).expect("the header of a packet that was read");
        assert_eq!(u8::from(header.tag()), *tag);
        let mut length = header.packet_length();
        let mut joined = Vec::new();
        loop {
            let (size, is_last) = match length {
                PacketLength::Fixed(size) => (size as usize, true),
                PacketLength::Partial(size) => (size as usize, false),
                PacketLength::Indeterminate => (rest.len(), true),
            };
            let (piece, after) = rest
                .split_at_checked(size)
                .expect("the content of a packet that was read");
            joined.extend_from_slice(piece);
            rest = after;
            if is_last {
                break;
            }
            length = PacketLength::try_from_reader(&mut rest).expect("the next part of a packet");
        }
        assert_eq!(joined, *body);
    }
    assert_eq!(rest.is_empty(), is_whole);
}

/// Requires that the crate pgp finds a key in the ring that has made the signature. It reads each key alone, since it refuses a whole ring for one broken subkey.
pub fn openpgp(accepted: &Accepted) {
    let mut rest = accepted.keys.as_slice();
    let (mut keys, mut subkeys) = (Vec::new(), Vec::new());
    while let Some(packet) = openpgp_packets::packet::take_packet(&mut rest) {
        let length = packet.body.len() as u32;
        let body = packet.body.as_slice();
        match packet.tag {
            6 => keys.extend(PublicKey::try_from_reader(
                PacketHeader::new_fixed(Tag::PublicKey, length),
                body,
            )),
            14 => subkeys.extend(PublicSubkey::try_from_reader(
                PacketHeader::new_fixed(Tag::PublicSubkey, length),
                body,
            )),
            _ => {}
        }
    }
    let mut rest = accepted.signature.as_slice();
    let mut is_good = false;
    // A block may have several signatures, of which one is enough.
    while let Some(packet) = openpgp_packets::packet::take_packet(&mut rest) {
        let Some(alone) = write_signed_part(&packet.body) else {
            continue;
        };
        let Ok(signature) = DetachedSignature::from_bytes(alone.as_slice()) else {
            continue;
        };
        is_good |= keys.iter().any(|key| is_verified(&signature, key, &accepted.payload))
            || subkeys
                .iter()
                .any(|key| is_verified(&signature, key, &accepted.payload));
    }
    assert!(is_good, "the crate pgp does not verify a signature that was accepted");
}

/// Verifies without the first two octets of the hash, which are not signed. In signatures of version 4, RFC 9580 leaves it to a reader whether it compares them.
fn is_verified(signature: &DetachedSignature, key: &impl VerifyingKey, payload: &[u8]) -> bool {
    let signature = &signature.signature;
    let (Some(config), Some(numbers)) = (signature.config(), signature.signature()) else {
        return false;
    };
    let hash = || {
        let mut hasher = config.hash_alg.new_hasher().ok()?;
        config.hash_data_to_sign(&mut hasher, payload).ok()?;
        let length = config.hash_signature_data(&mut hasher).ok()?;
        hasher.update(&config.trailer(length).ok()?);
        Some(hasher.finalize())
    };
    hash().is_some_and(|hash| key.verify(config.hash_alg, &hash, numbers).is_ok())
}

/// Writes a signature packet without its subpackets that are not signed: no reader has to understand them.
fn write_signed_part(body: &[u8]) -> Option<Vec<u8>> {
    let signed = 6 + usize::from(u16::from_be_bytes([*body.get(4)?, *body.get(5)?]));
    let (signed, rest) = body.split_at_checked(signed)?;
    let unsigned = 2 + usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    let body = [signed, &[0, 0], rest.get(unsigned..)?].concat();
    Some([[0xc2, 255].as_slice(), &(body.len() as u32).to_be_bytes(), &body].concat())
}

/// Compares the verdict about a signature with that of the crate ssh-key.
pub fn ssh(input: &Accepted, is_accepted: bool) {
    let list = String::from_utf8_lossy(&input.keys);
    let key = ssh_key::PublicKey::from_openssh(list.trim()).expect("a recorded key");
    let mut rest = input.signature.as_slice();
    // The crate ssh-key reads past a wrong length of the key inside, so only a signature in the form that it writes is compared. It also takes the version 0, which
    // no program writes.
    let is_written_so = |signature: &SshSig| {
        let mut written = Vec::new();
        signature.version() == 1 && signature.encode(&mut written).is_ok() && written == input.signature
    };
    let other = SshSig::decode(&mut rest).ok().filter(is_written_so);
    let is_good = other.is_some_and(|signature| {
        matches!(signature.hash_alg(), HashAlg::Sha256 | HashAlg::Sha512)
            && key.verify("git", &input.payload, &signature).is_ok()
    });
    assert_eq!(is_accepted, is_good, "the crate ssh-key has another verdict");
}

/// Requires that the crate ssh-key reads each line of a list that was accepted.
pub fn ssh_keys(bytes: &[u8], is_accepted: bool) {
    if !is_accepted {
        return;
    }
    for line in std::str::from_utf8(bytes).expect("a list is text").lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(2).collect();
        ssh_key::PublicKey::from_openssh(&words.join(" ")).expect("a key that was accepted");
    }
}

/// Requires that a clear file is one of its format.
pub fn clear_file(clear: &Clear) {
    if clear.format == Format::Json {
        serde_json::from_slice::<serde::de::IgnoredAny>(&clear.bytes).expect("a clear file of JSON");
    }
}

/// The crate age, with the recorded identities.
pub struct Age(Vec<age::x25519::Identity>);

impl Default for Age {
    fn default() -> Self {
        let text = include_str!("../../crates/sops/tests/data/keys/first.agekey");
        let keys = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            keys.map(|key| key.trim().parse().expect("a recorded identity"))
                .collect(),
        )
    }
}

impl Age {
    /// Compares what was opened: a short file of one chunk is opened by both, or by neither.
    pub fn compare(&self, bytes: &[u8], opened: Option<&[u8]>) {
        let other = self.open(bytes);
        if bytes.len() < 4000 {
            assert_eq!(opened, other.as_deref(), "the crate age opens another file");
        } else if opened.is_some() {
            assert_eq!(opened, other.as_deref());
        }
    }

    fn open(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let decryptor = age::Decryptor::new_buffered(bytes).ok()?;
        let identities = self.0.iter().map(|identity| identity as &dyn age::Identity);
        let mut clear = Vec::new();
        std::io::Read::read_to_end(&mut decryptor.decrypt(identities).ok()?, &mut clear).ok()?;
        Some(clear)
    }
}

/// Compares the content of a message with that of the crate pgp, if that one reads it.
pub fn literal(bytes: &[u8], content: &[u8]) {
    let Ok(mut message) = Message::from_bytes(bytes) else {
        return;
    };
    for _ in 0..8 {
        if !message.is_compressed() {
            break;
        }
        let Ok(inner) = message.decompress() else { return };
        message = inner;
    }
    if message.is_literal()
        && let Ok(other) = message.as_data_vec()
        && other.len() <= 4000
    {
        assert_eq!(content, other, "the crate pgp reads another content");
    }
}

/// Compares a page with that of another reader of XML. Pages that this reader refuses are not compared: ours skips what it does not know.
#[cfg(feature = "sources")]
pub fn listing(bytes: &[u8], listed: Option<&Listed>) {
    let (Some((objects, next)), Ok(text)) = (listed, std::str::from_utf8(bytes)) else {
        return;
    };
    let Ok(document) = roxmltree::Document::parse(text) else {
        return;
    };
    let root = document.root_element();
    if root.tag_name().name() != "ListBucketResult" {
        return;
    }
    let children = |node: roxmltree::Node<'_, '_>, name: &str| -> Vec<String> {
        let named = node.children().filter(|child| child.tag_name().name() == name);
        // Text between elements inside is not text of a key.
        named
            .map(|child| {
                let texts = child.children().filter(roxmltree::Node::is_text);
                texts.filter_map(|part| part.text()).collect()
            })
            .collect()
    };
    let contents: Vec<_> = root
        .children()
        .filter(|child| child.tag_name().name() == "Contents")
        .collect();
    assert_eq!(contents.len(), objects.len(), "another number of objects");
    let encoding = children(root, "EncodingType");
    for (node, (key, _, size)) in contents.iter().zip(objects) {
        let keys = children(*node, "Key");
        let sizes = children(*node, "Size");
        if let ([written], [], [whole]) = (keys.as_slice(), encoding.as_slice(), sizes.as_slice())
            && !node
                .descendants()
                .any(|inner| inner.parent().is_some_and(|parent| parent.parent() == Some(*node)) && inner.is_element())
        {
            assert_eq!((written, whole.trim().parse()), (key, Ok(*size)));
        }
    }
    let tokens = children(root, "NextContinuationToken");
    if let (Some(next), [token]) = (next, tokens.as_slice())
        && !root.descendants().any(|inner| {
            inner
                .parent()
                .is_some_and(|parent| parent.has_tag_name("NextContinuationToken"))
                && inner.is_element()
        })
    {
        assert_eq!(next, token);
    }
}
