//! Applying a delta of a pack to its base, with every length checked.

/// Bytes at the beginning of a delta that [`read_sizes`] needs.
pub(crate) const HEAD: usize = 18;

/// Reads the sizes of base and result that a delta declares in its first bytes; `None` if they are malformed.
pub(crate) fn read_sizes(head: &[u8]) -> Option<(u64, u64)> {
    let (base_size, rest) = read_size(head)?;
    let (result_size, _) = read_size(rest)?;
    Some((base_size, result_size))
}

/// Reads the size of the result that a delta declares; `None` if the delta is malformed or has another base.
pub(crate) fn read_result_size(base_length: usize, delta: &[u8]) -> Option<(u64, &[u8])> {
    let (base_size, rest) = read_size(delta)?;
    let (result_size, rest) = read_size(rest)?;
    (base_size == base_length as u64).then_some((result_size, rest))
}

/// Applies the instructions of a delta; `None` if they are malformed or do not give the declared size.
///
/// The caller has checked the declared size against its limits.
pub(crate) fn apply_delta(base: &[u8], instructions: &[u8], result_size: u64) -> Option<Vec<u8>> {
    let result_size = usize::try_from(result_size).ok()?;
    let mut result = Vec::with_capacity(result_size);
    let mut rest = instructions;
    while let Some((&instruction, tail)) = rest.split_first() {
        rest = tail;
        let piece = if instruction & 0x80 != 0 {
            let mut number = |bits: std::ops::Range<u8>| {
                let mut value = 0_usize;
                for (shift, bit) in bits.enumerate() {
                    if instruction & (1 << bit) != 0 {
                        let (&byte, tail) = rest.split_first()?;
                        rest = tail;
                        value |= usize::from(byte) << (8 * shift);
                    }
                }
                Some(value)
            };
            let offset = number(0..4)?;
            let length = match number(4..7)? {
                0 => 0x10000,
                length => length,
            };
            base.get(offset..offset.checked_add(length)?)?
        } else if instruction != 0 {
            let (piece, tail) = rest.split_at_checked(usize::from(instruction))?;
            rest = tail;
            piece
        } else {
            return None;
        };
        if result.len() + piece.len() > result_size {
            return None;
        }
        result.extend_from_slice(piece);
    }
    (result.len() == result_size).then_some(result)
}

/// Reads a number in groups of seven bits, low ones first.
fn read_size(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::{apply_delta, read_result_size};

    #[test]
    fn instructions_are_bounded_by_base_and_declared_size() {
        let base = b"hello world";
        // Base of 11 bytes, result of 8: copy 5 from 6, insert "!!!".
        let good = [11, 8, 0b1001_0001, 6, 5, 3, b'!', b'!', b'!'];
        let (size, instructions) = read_result_size(base.len(), &good).unwrap();
        assert_eq!(apply_delta(base, instructions, size).unwrap(), b"world!!!");
        assert!(read_result_size(10, &good).is_none(), "made for another base");
        let bad: [&[u8]; 7] = [
            &[0b1001_0001, 7, 5],               // copies over the end of the base
            &[0b1001_0001, 6],                  // is cut off
            &[4, b'a'],                         // inserts more than there is
            &[0],                               // is reserved
            &[0b1001_0001, 0, 9],               // gives more than declared
            &[1, b'a'],                         // gives less than declared
            &[0b1000_1111, 255, 255, 255, 255], // copies from far beyond
        ];
        for instructions in bad {
            assert_eq!(apply_delta(base, instructions, 8), None, "{instructions:?}");
        }
        assert!(read_result_size(11, &[0x80; 12]).is_none(), "an endless number");
    }
}
