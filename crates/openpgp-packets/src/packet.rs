//! OpenPGP's packets (RFC 9580, 4) and the numbers in them. Lengths beyond the end of the bytes are refused, and so are more packets than a key or a message needs.

use zeroize::Zeroizing;

/// The most packets of one key or message.
pub const MOST_PACKETS: usize = 512;
/// The most parts of one packet's body.
const MOST_PARTS: usize = 4096;

/// An OpenPGP packet.
pub struct Packet {
    /// The kind of packet.
    pub tag: u8,
    /// The content; several parts are joined.
    pub body: Zeroizing<Vec<u8>>,
}

/// Takes the next packet; `None` at the end or if the packet is damaged.
#[must_use]
pub fn take_packet(bytes: &mut &[u8]) -> Option<Packet> {
    let first = take_byte(bytes)?;
    if first & 0x80 == 0 {
        return None;
    }
    if first & 0x40 != 0 {
        return Some(Packet {
            tag: first & 0x3f,
            body: read_new_body(bytes)?,
        });
    }
    let length = match first & 3 {
        0 => usize::from(take_byte(bytes)?),
        1 => take_number(bytes, 2)?,
        2 => take_number(bytes, 4)?,
        // A packet without a length extends to the end of the bytes.
        _ => bytes.len(),
    };
    Some(Packet {
        tag: first >> 2 & 0x0f,
        body: Zeroizing::new(take_bytes(bytes, length)?.to_vec()),
    })
}

/// Reads a body in the new format, which may have several parts.
fn read_new_body(bytes: &mut &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut body = Zeroizing::new(Vec::new());
    for _ in 0..MOST_PARTS {
        let first = usize::from(take_byte(bytes)?);
        let (length, is_last) = match first {
            0..192 => (first, true),
            192..224 => (((first - 192) << 8) + usize::from(take_byte(bytes)?) + 192, true),
            255 => (take_number(bytes, 4)?, true),
            _ => (1 << (first & 0x1f), false),
        };
        body.extend_from_slice(take_bytes(bytes, length)?);
        if is_last {
            return Some(body);
        }
    }
    None
}

/// Takes a byte; `None` at the end.
#[must_use]
pub fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// Takes this many bytes; `None` if there are fewer.
#[must_use]
pub fn take_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a number of this many bytes, four at most.
#[must_use]
pub fn take_number(bytes: &mut &[u8], length: usize) -> Option<usize> {
    let taken = take_bytes(bytes, length)?;
    taken.iter().try_fold(0_usize, |number, byte| {
        Some(number.checked_mul(256)? + usize::from(*byte))
    })
}

/// Takes a number of any size, which has its length in bits before it.
#[must_use]
pub fn take_mpi<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bits = take_number(bytes, 2)?;
    take_bytes(bytes, bits.div_ceil(8))
}
