//! GnuPG's data in OCB (RFC 7253, and the packet of LibrePGP's draft, 5.16), which GnuPG 2.3 and later write for their own keys: the mode, and the chunks of a message.

use aes::Block;
use zeroize::Zeroizing;

use super::body::Aes;
use super::session::{Session, key_size};
use openpgp_packets::packet::{take_byte, take_bytes};

const OCB: u8 = 2;
/// Bytes of a nonce and of a tag.
const NONCE: usize = 15;
const TAG: usize = 16;
/// The most chunks of a message: a data key's message has one.
const MOST_CHUNKS: usize = 16;

/// Decrypts the packet after its version byte.
pub(super) fn open_packet(mut rest: &[u8], session: &Session) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = take_byte(&mut rest)?;
    if cipher != session.cipher || session.key.len() != key_size(cipher)? || take_byte(&mut rest)? != OCB {
        return None;
    }
    let size = take_byte(&mut rest)?;
    let chunk = 1_usize.checked_shl(u32::from(size.min(56)) + 6)?;
    let nonce: [u8; NONCE] = take_bytes(&mut rest, NONCE)?.try_into().ok()?;
    let (sealed, end) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
    let ocb = Ocb::new(Aes::new(&session.key)?);
    let header = [0xd4, 1, cipher, OCB, size];
    let mut clear = Zeroizing::new(Vec::with_capacity(sealed.len()));
    let mut index = 0_u64;
    for part in sealed.chunks(chunk.checked_add(TAG)?).take(MOST_CHUNKS) {
        let (part, tag) = part.split_at_checked(part.len().checked_sub(TAG)?)?;
        let with = [header.as_slice(), &index.to_be_bytes()].concat();
        clear.extend_from_slice(&ocb.decrypt_chunk(&chunk_nonce(nonce, index), &with, part, tag)?);
        index += 1;
    }
    // The last tag authenticates only the total length.
    let length = u64::try_from(clear.len()).ok()?;
    let with = [header.as_slice(), &index.to_be_bytes(), &length.to_be_bytes()].concat();
    ocb.decrypt_chunk(&chunk_nonce(nonce, index), &with, &[], end)?;
    Some(clear)
}

/// Returns the nonce of a chunk.
fn chunk_nonce(mut nonce: [u8; NONCE], index: u64) -> [u8; NONCE] {
    for (place, byte) in nonce.iter_mut().rev().zip(index.to_be_bytes().iter().rev()) {
        *place ^= byte;
    }
    nonce
}

/// The OCB mode with one key, and two values of RFC 7253 that are derived from the key: `L_*` and `L_$`.
struct Ocb {
    aes: Aes,
    star: u128,
    dollar: u128,
}

impl Ocb {
    fn new(aes: Aes) -> Self {
        let star = encrypt_block(&aes, 0);
        Self {
            aes,
            star,
            dollar: double(star),
        }
    }

    /// Returns L of a block by its number, from 1.
    fn of_block(&self, number: u64) -> u128 {
        (0..=number.trailing_zeros()).fold(self.dollar, |value, _| double(value))
    }

    fn decrypt_chunk(&self, nonce: &[u8], with: &[u8], sealed: &[u8], tag: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        go_yaml::meter::count_text(sealed.len());
        let mut offset = self.first_offset(nonce);
        let mut sum = 0_u128;
        let mut clear = Zeroizing::new(Vec::with_capacity(sealed.len()));
        let (blocks, rest) = sealed.as_chunks::<16>();
        for (number, block) in (1..).zip(blocks) {
            offset ^= self.of_block(number);
            let mut inside = Block::from((u128::from_be_bytes(*block) ^ offset).to_be_bytes());
            self.aes.decrypt(&mut inside);
            let opened = u128::from_be_bytes(inside.into()) ^ offset;
            sum ^= opened;
            clear.extend_from_slice(&opened.to_be_bytes());
        }
        if !rest.is_empty() {
            offset ^= self.star;
            let stream = encrypt_block(&self.aes, offset).to_be_bytes();
            let opened: Zeroizing<Vec<u8>> =
                Zeroizing::new(rest.iter().zip(stream).map(|(byte, stream)| byte ^ stream).collect());
            sum ^= pad_block(&opened);
            clear.extend_from_slice(&opened);
        }
        let expected = encrypt_block(&self.aes, sum ^ offset ^ self.dollar) ^ self.hash_data(with);
        let is_whole = bool::from(subtle::ConstantTimeEq::ct_eq(expected.to_be_bytes().as_slice(), tag));
        is_whole.then_some(clear)
    }

    fn first_offset(&self, nonce: &[u8]) -> u128 {
        let number = nonce
            .iter()
            .fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
        // A tag of 128 bits is written as 0, and a 1 bit precedes the nonce.
        let whole = number | 1 << (8 * nonce.len().min(NONCE));
        let bottom = u32::try_from(whole & 63).unwrap_or(0);
        let top = encrypt_block(&self.aes, whole & !63);
        if bottom == 0 {
            return top;
        }
        let stretched = ((top >> 64) ^ (top >> 56)) & u128::from(u64::MAX);
        (top << bottom) | (stretched >> (64 - bottom))
    }

    fn hash_data(&self, with: &[u8]) -> u128 {
        let (blocks, rest) = with.as_chunks::<16>();
        let mut offset = 0;
        let mut sum = 0;
        for (number, block) in (1..).zip(blocks) {
            offset ^= self.of_block(number);
            sum ^= encrypt_block(&self.aes, u128::from_be_bytes(*block) ^ offset);
        }
        if !rest.is_empty() {
            offset ^= self.star;
            sum ^= encrypt_block(&self.aes, pad_block(rest) ^ offset);
        }
        sum
    }
}

fn encrypt_block(aes: &Aes, value: u128) -> u128 {
    let mut block = Block::from(value.to_be_bytes());
    aes.encrypt(&mut block);
    u128::from_be_bytes(block.into())
}

fn double(value: u128) -> u128 {
    (value << 1) ^ (0x87 & (value >> 127).wrapping_neg())
}

/// Pads a part of a block with a 1 bit and zeros.
fn pad_block(part: &[u8]) -> u128 {
    let mut block = [0; 16];
    for (place, byte) in block.iter_mut().zip(part.iter().chain(&[0x80])) {
        *place = *byte;
    }
    u128::from_be_bytes(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decrypts the samples of RFC 7253, appendix A.
    #[test]
    fn the_samples_of_the_standard_open() {
        let ocb = Ocb::new(Aes::new(&hex::decode("000102030405060708090A0B0C0D0E0F").unwrap()).unwrap());
        for (nonce, with, clear, sealed) in [
            ("BBAA99887766554433221100", "", "", "785407BFFFC8AD9EDCC5520AC9111EE6"),
            (
                "BBAA99887766554433221101",
                "0001020304050607",
                "0001020304050607",
                "6820B3657B6F615A5725BDA0D3B4EB3A257C9AF1F8F03009",
            ),
            (
                "BBAA99887766554433221103",
                "",
                "0001020304050607",
                "45DD69F8F5AAE72414054CD1F35D82760B2CD00D2F99BFA9",
            ),
        ] {
            let bytes = |text: &str| hex::decode(text).unwrap();
            let sealed = bytes(sealed);
            let (content, tag) = sealed.split_at(sealed.len() - TAG);
            let opened = ocb.decrypt_chunk(&bytes(nonce), &bytes(with), content, tag);
            assert_eq!(opened.as_deref(), Some(&bytes(clear)), "{nonce}");
            assert!(ocb.decrypt_chunk(&bytes(nonce), b"other", content, tag).is_none());
        }
    }

    #[test]
    fn doubling_is_in_the_field() {
        assert_eq!(double(1), 2);
        assert_eq!(double(1 << 127), 0x87);
        assert_eq!(pad_block(&[1, 2]) >> 104, 0x01_0280);
    }
}
