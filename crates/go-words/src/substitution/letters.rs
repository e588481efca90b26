//! Bytes as letters, in Go's way: each byte that is no part of a letter counts as U+FFFD, and the other case of a letter is at most one
//! letter.

/// Returns the letters of bytes, each with its length in bytes.
fn split_letters(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid().chars().map(|letter| (letter, letter.len_utf8()));
        valid.chain(chunk.invalid().iter().map(|_| (char::REPLACEMENT_CHARACTER, 1)))
    })
}

/// Returns the first letter and its length in bytes. The length is zero if there is no letter.
pub(super) fn first_letter(bytes: &[u8]) -> (char, usize) {
    // No letter takes more than four bytes.
    let begin = bytes.get(..4).unwrap_or(bytes);
    split_letters(begin).next().unwrap_or((char::REPLACEMENT_CHARACTER, 0))
}

/// Returns the offsets at which letters begin, and the end of the text.
pub(super) fn letter_boundaries(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let starts = split_letters(bytes).scan(0, |at, (_, width)| {
        let start = *at;
        *at += width;
        Some(start)
    });
    starts.chain(std::iter::once(bytes.len()))
}

/// Applies `other` to each letter.
pub(super) fn map_all(bytes: &[u8], other: fn(char) -> char) -> Vec<u8> {
    let text: String = split_letters(bytes).map(|(letter, _)| other(letter)).collect();
    text.into_bytes()
}

/// Applies `other` to the first letter only.
pub(super) fn map_first(bytes: &[u8], other: fn(char) -> char) -> Vec<u8> {
    let (letter, width) = first_letter(bytes);
    if width == 0 {
        return Vec::new();
    }
    let rest = bytes.get(width..).unwrap_or_default();
    [other(letter).encode_utf8(&mut [0; 4]).as_bytes(), rest].concat()
}

/// Returns the letters from last to first.
pub(super) fn reverse(bytes: &[u8]) -> Vec<u8> {
    let letters: Vec<char> = split_letters(bytes).map(|(letter, _)| letter).collect();
    letters.into_iter().rev().collect::<String>().into_bytes()
}

/// Returns whether a character may stand in the name of a variable: a letter, a decimal digit or `_`. (Some marks pass here for letters that don't
/// in Go; no variable has such a name.)
pub(super) fn is_of_name(letter: char) -> bool {
    let code = u32::from(letter);
    let is_digit = || DIGITS.iter().any(|(first, last)| (*first..=*last).contains(&code));
    letter == '_' || letter.is_alphabetic() || letter.is_ascii_digit() || (!letter.is_ascii() && is_digit())
}

/// The decimal digits of Unicode, first and last (its category Nd).
#[rustfmt::skip]
const DIGITS: [(u32, u32); 64] = [
    (0x0030, 0x0039), (0x0660, 0x0669), (0x06F0, 0x06F9), (0x07C0, 0x07C9), (0x0966, 0x096F), (0x09E6, 0x09EF),
    (0x0A66, 0x0A6F), (0x0AE6, 0x0AEF), (0x0B66, 0x0B6F), (0x0BE6, 0x0BEF), (0x0C66, 0x0C6F), (0x0CE6, 0x0CEF),
    (0x0D66, 0x0D6F), (0x0DE6, 0x0DEF), (0x0E50, 0x0E59), (0x0ED0, 0x0ED9), (0x0F20, 0x0F29), (0x1040, 0x1049),
    (0x1090, 0x1099), (0x17E0, 0x17E9), (0x1810, 0x1819), (0x1946, 0x194F), (0x19D0, 0x19D9), (0x1A80, 0x1A89),
    (0x1A90, 0x1A99), (0x1B50, 0x1B59), (0x1BB0, 0x1BB9), (0x1C40, 0x1C49), (0x1C50, 0x1C59), (0xA620, 0xA629),
    (0xA8D0, 0xA8D9), (0xA900, 0xA909), (0xA9D0, 0xA9D9), (0xA9F0, 0xA9F9), (0xAA50, 0xAA59), (0xABF0, 0xABF9),
    (0xFF10, 0xFF19), (0x104A0, 0x104A9), (0x10D30, 0x10D39), (0x11066, 0x1106F), (0x110F0, 0x110F9), (0x11136, 0x1113F),
    (0x111D0, 0x111D9), (0x112F0, 0x112F9), (0x11450, 0x11459), (0x114D0, 0x114D9), (0x11650, 0x11659), (0x116C0, 0x116C9),
    (0x11730, 0x11739), (0x118E0, 0x118E9), (0x11950, 0x11959), (0x11C50, 0x11C59), (0x11D50, 0x11D59), (0x11DA0, 0x11DA9),
    (0x11F50, 0x11F59), (0x16A60, 0x16A69), (0x16AC0, 0x16AC9), (0x16B50, 0x16B59), (0x1D7CE, 0x1D7FF), (0x1E140, 0x1E149),
    (0x1E2F0, 0x1E2F9), (0x1E4F0, 0x1E4F9), (0x1E950, 0x1E959), (0x1FBF0, 0x1FBF9),
];

/// Returns the upper case of a letter.
pub(super) fn to_upper(letter: char) -> char {
    let code = u32::from(letter);
    let simple = match code {
        // Greek letters with a small iota below: as a whole word they become two letters, by themselves one.
        0x1F80..=0x1F87 | 0x1F90..=0x1F97 | 0x1FA0..=0x1FA7 => code + 8,
        0x1FB3 | 0x1FC3 | 0x1FF3 => code + 9,
        _ => return only_letter(letter, letter.to_uppercase()),
    };
    char::from_u32(simple).unwrap_or(letter)
}

/// Returns the lower case of a letter.
pub(super) fn to_lower(letter: char) -> char {
    match letter {
        'İ' => 'i',
        _ => only_letter(letter, letter.to_lowercase()),
    }
}

/// Returns the only letter of `others`; returns `letter` if `others` has several letters or none.
fn only_letter(letter: char, mut others: impl ExactSizeIterator<Item = char>) -> char {
    match (others.len(), others.next()) {
        (1, Some(other)) => other,
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every letter with another case gets the case that Go gives it.
    #[test]
    fn letters_have_the_cases_that_go_gives_them() {
        let cases: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/substitution.json")).unwrap();
        let letters = |field: &str| cases[1][field].as_str().unwrap().chars();
        assert!(letters("letters").count() > 2800);
        for ((letter, upper), lower) in letters("letters").zip(letters("uppers")).zip(letters("lowers")) {
            assert_eq!((to_upper(letter), to_lower(letter)), (upper, lower), "{letter:?}");
        }
    }
}
