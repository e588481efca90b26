//! Decrypts the data of a message with its session key: data with a modification detection code (RFC 9580, 5.13.1), which GnuPG and SOPS write by default, and GnuPG's
//! data in OCB. Data without protection is refused.

use std::io::Read as _;

use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes192, Aes256, Block};
use flate2::read::{DeflateDecoder, ZlibDecoder};
use sha1::{Digest as _, Sha1};
use zeroize::Zeroizing;

use super::ocb;
use super::session::{Session, key_size};
use openpgp_packets::packet::{self, Packet, take_byte, take_bytes, take_number};

const COMPRESSED: u8 = 8;
const LITERAL: u8 = 11;
const PROTECTED: u8 = 18;
const GNUPG_AEAD: u8 = 20;
const BLOCK: usize = 16;
/// Bytes of the modification detection code and its packet's header.
const CODE: usize = 22;
/// The most bytes of a data key's message after decompression: a key has 32, a share 33.
const LARGEST: u64 = 4096;
/// The deepest nesting of packets.
pub(super) const DEEPEST: usize = 4;

/// Checks whether a packet of this tag has data that a session key opens.
pub(super) fn is_encrypted(tag: u8) -> bool {
    matches!(tag, 9 | PROTECTED | GNUPG_AEAD)
}

/// AES of any key size.
pub(super) enum Aes {
    Small(Aes128),
    Middle(Aes192),
    Large(Aes256),
}

impl Aes {
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(Self::Small),
            24 => Aes192::new_from_slice(key).ok().map(Self::Middle),
            _ => Aes256::new_from_slice(key).ok().map(Self::Large),
        }
    }

    pub(super) fn encrypt(&self, block: &mut Block) {
        match self {
            Self::Small(aes) => aes.encrypt_block(block),
            Self::Middle(aes) => aes.encrypt_block(block),
            Self::Large(aes) => aes.encrypt_block(block),
        }
    }

    pub(super) fn decrypt(&self, block: &mut Block) {
        match self {
            Self::Small(aes) => aes.decrypt_block(block),
            Self::Middle(aes) => aes.decrypt_block(block),
            Self::Large(aes) => aes.decrypt_block(block),
        }
    }
}

/// Decrypts the content of a message.
pub(super) fn decrypt_message(packet: &Packet, session: &Session) -> Option<Zeroizing<Vec<u8>>> {
    let mut rest = packet.body.as_slice();
    let packets = match (packet.tag, take_byte(&mut rest)?) {
        (PROTECTED, 1) => open_protected(rest, session)?,
        (GNUPG_AEAD, 1) => ocb::open_packet(rest, session)?,
        _ => return None,
    };
    find_literal(&packets, DEEPEST)
}

/// Decrypts in cipher feedback mode and checks the code at the end.
fn open_protected(sealed: &[u8], session: &Session) -> Option<Zeroizing<Vec<u8>>> {
    if session.key.len() != key_size(session.cipher)? || sealed.len() < BLOCK + 2 + CODE {
        return None;
    }
    go_yaml::meter::count_text(sealed.len());
    let aes = Aes::new(&session.key)?;
    let mut clear = Zeroizing::new(Vec::with_capacity(sealed.len()));
    let mut before = Block::default();
    for chunk in sealed.chunks(BLOCK) {
        aes.encrypt(&mut before);
        clear.extend(chunk.iter().zip(before.iter()).map(|(sealed, stream)| sealed ^ stream));
        if let Ok(whole) = Block::try_from(chunk) {
            before = whole;
        }
    }
    let repeated = clear.get(BLOCK..BLOCK + 2)?;
    if clear.get(BLOCK - 2..BLOCK)? != repeated {
        return None;
    }
    let (content, code) = clear.split_at_checked(clear.len().checked_sub(CODE)?)?;
    let (header, hash) = code.split_at_checked(2)?;
    let mut expected = Sha1::new();
    expected.update(content);
    expected.update(header);
    let is_whole = bool::from(subtle::ConstantTimeEq::ct_eq(expected.finalize().as_slice(), hash));
    (header == [0xd3, 0x14] && is_whole).then(|| Zeroizing::new(content.get(BLOCK + 2..).unwrap_or_default().to_vec()))
}

/// Returns the literal data in packets, which may be compressed.
pub(super) fn find_literal(packets: &[u8], depth: usize) -> Option<Zeroizing<Vec<u8>>> {
    let mut rest = packets;
    let packet = packet::take_packet(&mut rest)?;
    let mut body = packet.body.as_slice();
    match packet.tag {
        LITERAL => {
            let _format = take_byte(&mut body)?;
            let name = take_number(&mut body, 1)?;
            take_bytes(&mut body, name + 4)?;
            Some(Zeroizing::new(body.to_vec()))
        }
        COMPRESSED => {
            let mut inside = Zeroizing::new(Vec::new());
            match take_byte(&mut body)? {
                0 => inside.extend_from_slice(body),
                1 => drop(DeflateDecoder::new(body).take(LARGEST).read_to_end(&mut inside).ok()?),
                2 => drop(ZlibDecoder::new(body).take(LARGEST).read_to_end(&mut inside).ok()?),
                _ => return None,
            }
            find_literal(&inside, depth.checked_sub(1)?)
        }
        _ => None,
    }
}
