//! Bech32 (BIP 173), the form of age's keys: as in age, without its limit of 90 characters.

use zeroize::Zeroizing;

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
/// The number of characters of the checksum.
const CHECKSUM: usize = 6;

fn compute_checksum(prefix: &str, data: &[u8]) -> u32 {
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    high.chain([0])
        .chain(low)
        .chain(data.iter().copied())
        .fold(1, |sum: u32, value| {
            let top = sum >> 25;
            let shifted = ((sum & 0x01ff_ffff) << 5) ^ u32::from(value);
            GENERATORS
                .iter()
                .enumerate()
                .filter(|(bit, _)| top >> bit & 1 == 1)
                .fold(shifted, |sum, (_, generator)| sum ^ generator)
        })
}

/// Regroups bits into larger or smaller groups; `None` if the rest isn't zero.
fn regroup_bits(data: &[u8], from: u32, to: u32, pad: bool) -> Option<Zeroizing<Vec<u8>>> {
    let mut regrouped = Zeroizing::new(Vec::with_capacity(data.len() * from as usize / to as usize + 1));
    let (mut held, mut bits) = (0_u32, 0);
    let mask = (1_u32 << to) - 1;
    for value in data {
        held = ((held << from) | u32::from(*value)) & 0xfff;
        bits += from;
        while bits >= to {
            bits -= to;
            regrouped.push(u8::try_from((held >> bits) & mask).ok()?);
        }
    }
    let rest = (held << (to - bits)) & mask;
    if pad && bits > 0 {
        regrouped.push(u8::try_from(rest).ok()?);
    } else if !pad && (bits >= from || rest != 0) {
        return None;
    }
    Some(regrouped)
}

/// Returns the bytes of a text with this prefix; `None` if it has another prefix, or a wrong checksum.
pub(crate) fn decode(prefix: &str, text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if text.len() > 128
        || (text.contains(|one: char| one.is_ascii_lowercase()) && text.contains(|one: char| one.is_ascii_uppercase()))
    {
        return None;
    }
    let lower = Zeroizing::new(text.to_ascii_lowercase());
    let data = lower.strip_prefix(prefix)?.strip_prefix('1')?;
    let values: Option<Vec<u8>> = data
        .bytes()
        .map(|byte| {
            let at = CHARACTERS.iter().position(|character| *character == byte)?;
            u8::try_from(at).ok()
        })
        .collect();
    let values = Zeroizing::new(values?);
    if compute_checksum(prefix, &values) != 1 {
        return None;
    }
    let (data, _) = values.split_at_checked(values.len().checked_sub(CHECKSUM)?)?;
    regroup_bits(data, 5, 8, false)
}

/// Writes bytes as a text with this prefix.
pub(crate) fn encode(prefix: &str, bytes: &[u8]) -> String {
    let data = regroup_bits(bytes, 8, 5, true).unwrap_or_default();
    let mut padded = data.to_vec();
    padded.extend([0; CHECKSUM]);
    let sum = compute_checksum(prefix, &padded) ^ 1;
    let ends = (0..CHECKSUM).map(|index| (sum >> (5 * (5 - index)) & 31) as usize);
    let all = data.iter().map(|value| usize::from(*value)).chain(ends);
    let characters = all.filter_map(|at| CHARACTERS.get(at)).map(|byte| char::from(*byte));
    format!("{prefix}1{}", characters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_bytes_decode_to_themselves() {
        let bytes: Vec<u8> = (0..32).map(|byte| byte * 7).collect();
        let text = encode("age", &bytes);
        assert_eq!(decode("age", &text).unwrap().as_slice(), bytes);
        assert_eq!(decode("age", &text.to_uppercase()).unwrap().as_slice(), bytes);
        let mistyped = text.replace(text.chars().last().unwrap(), "q");
        assert!(mistyped == text || decode("age", &mistyped).is_none());
        assert!(decode("other", &text).is_none());
    }

    /// A sample of BIP 173.
    #[test]
    fn a_text_without_data_has_a_checksum() {
        assert_eq!(decode("a", "A12UEL5L").map(|bytes| bytes.len()), Some(0));
        assert_eq!(encode("a", &[]), "a12uel5l");
    }
}
