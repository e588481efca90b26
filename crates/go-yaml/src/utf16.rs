//! UTF-16 texts, as some shells write redirected output. Like Go's scanner, this module recognises them by the byte order mark. Incomplete
//! characters are an error.

use std::borrow::Cow;

/// Decodes a text from UTF-8, or from UTF-16 with a byte order mark; `None` if the bytes are no text.
pub fn decode(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let decode: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
    };
    let (pairs, odd) = bytes.get(2..)?.as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let units = pairs.iter().map(|pair| decode(*pair));
    let mut text: String = char::decode_utf16(units).collect::<Result<_, _>>().ok()?;
    text.truncate(end_of_first_document(&text));
    Some(Cow::Owned(text))
}

/// Returns the end of the first document. kustomize cuts texts into documents before it detects UTF-16, so a UTF-16 text has only one
/// document.
fn end_of_first_document(text: &str) -> usize {
    let (mut has_begun, mut at) = (false, 0);
    for line in text.split_inclusive('\n') {
        let marker = line
            .strip_prefix("---")
            .filter(|rest| rest.trim_start().len() < rest.len());
        if marker.is_some() && has_begun {
            return at;
        }
        has_begun |= marker.is_some() || !line.trim_start().is_empty() && !line.trim_start().starts_with(['#', '%']);
        at += line.len();
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::decode;

    fn encode(text: &str) -> Vec<u8> {
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn there_is_one_document() {
        for (written, read) in [
            ("a: \u{1f600}\n", "a: \u{1f600}\n"),
            ("# c\n---\na: 1\n---\na: 2\n", "# c\n---\na: 1\n"),
            ("a: 1\r\n---\r\na: 2\r\n", "a: 1\r\n"),
            ("a: ---b\n---b: 1\n", "a: ---b\n---b: 1\n"),
        ] {
            assert_eq!(decode(&encode(written)).unwrap(), read);
        }
    }

    #[test]
    fn halves_of_characters_are_no_text() {
        assert_eq!(decode(&[0xff, 0xfe, b'a']), None);
        assert_eq!(decode(&[0xfe, 0xff, 0xd8, 0x00]), None);
        assert_eq!(decode(&[b'a', 0xff]), None);
    }
}
