//! The number of terms in a text: values, entries and items. The work on a request grows with its terms and not with
//! its bytes. A kilobyte can hold one text or a hundred owners of fields.

use memchr::memchr2;

/// Counts the terms of a JSON text, and stops soon after `most`. Text within strings doesn't count.
pub(super) fn count_json(text: &[u8], most: usize) -> usize {
    let (mut count, mut rest) = (0, text);
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'"' => rest = skip_string(rest),
            b',' | b'{' | b'[' => {
                count += 1;
                if count > most {
                    return count;
                }
            }
            _ => {}
        }
    }
    count
}

/// Returns the text after a string.
fn skip_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(found) = memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(found) == Some(&b'"');
        rest = rest.get(found + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

/// Counts the marks of a YAML text that may begin a term. A long text of many lines counts like as many entries.
pub(super) fn count_yaml(text: &[u8]) -> usize {
    let is_mark = |byte: &&u8| matches!(byte, b'\n' | b',' | b'{' | b'[' | b':' | b'?');
    text.iter().filter(is_mark).count()
}

/// Counts the terms of a protobuf body.
pub(super) fn count_protobuf(body: &[u8]) -> usize {
    let mut embedded = 0;
    let extent = tenure_kinds::protobuf::measure_extent(body, &mut |json| embedded += count_json(json, usize::MAX));
    embedded + extent.entries + extent.items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_no_terms() {
        for (text, want) in [
            ("", 0),
            ("{}", 1),
            (r#"{"a":"{[,,,"}"#, 1),
            (r#"{"a":"\"{,","b":[1,2]}"#, 4),
            (r#"{"a":"b\\","c":1}"#, 2),
            (r#"{"a":"never ends,,,"#, 1),
            (r#"{"a":"ends with \"#, 1),
        ] {
            assert_eq!(count_json(text.as_bytes(), 100), want, "{text}");
        }
        assert_eq!(count_json(b"[,,,,,,,,", 3), 4, "the count ends soon after the maximum");
    }
}
