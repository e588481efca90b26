//! The memory that a text needs once it is decoded: an upper estimate, made in one pass over its bytes before
//! anything is decoded.
//!
//! Invariant: the estimate is never below the real size, because admitted requests must fit. For JSON it follows the
//! nesting, so an ordinary manifest is not estimated at much more than its size. For YAML it counts only marks, so a
//! YAML request may wait in cases where its JSON form would not.

use std::mem::size_of;

use memchr::{memchr2, memmem};
use serde_json::Value;

use crate::yaml::{MOST_COPIED, MOST_NODES};

/// Fixed cost of an allocation beside the requested bytes.
const ALLOCATED: usize = 16;
/// Entries of one node of a map. A node is allocated for all of them at once.
const FAN: usize = 11;
/// A map with one node: from one entry up to a full node.
const LEAF: usize = FAN * (size_of::<String>() + size_of::<Value>()) + 16 + ALLOCATED;
/// An inner node of a map.
const INNER: usize = LEAF + (FAN + 1) * size_of::<usize>();
/// An entry of a map with several nodes. Each node has at least five entries, and one more entry is between two
/// nodes.
const ENTRY: usize = (LEAF + INNER / 5) / 6 + 1;
/// Capacity of the smallest list. The capacity of a full list doubles.
const FIRST_ITEMS: usize = 4;
/// A list from one item up to its first capacity.
const LIST: usize = FIRST_ITEMS * size_of::<Value>() + ALLOCATED;
/// Fixed cost of a string beside its bytes.
const TEXT: usize = ALLOCATED + 16;
/// Fixed cost of a YAML scalar: a number that is a key is written out as text, which may be longer.
const SCALAR: usize = TEXT + 24;
/// The deepest level that is decoded, and a few more.
const DEEPEST: usize = 136;
/// Largest number of bytes that one byte of JSON can need: nested maps of one entry, `{"":`, have five bytes each.
const DENSEST: usize = LEAF / 5 + 1;

/// A map or list whose end the pass has not reached, with the number of its entries so far.
#[derive(Clone, Copy)]
struct Open {
    is_map: bool,
    entries: usize,
}

impl Open {
    /// Adds an entry or item. Returns its size.
    fn add(&mut self) -> usize {
        self.entries += 1;
        let entries = self.entries;
        if self.is_map {
            return match entries {
                1 => LEAF,
                _ if entries <= FAN => 0,
                // At this size the map becomes several nodes.
                _ if entries == FAN + 1 => FAN * ENTRY,
                _ => ENTRY,
            };
        }
        match entries {
            1 => LIST,
            _ if entries > FIRST_ITEMS && (entries - 1).is_power_of_two() => (entries - 1) * size_of::<Value>(),
            _ => 0,
        }
    }
}

/// Returns an upper bound for the size of the value in a JSON text. For invalid JSON the bound covers the part that
/// is decoded before the error.
pub(crate) fn weigh_json(text: &[u8]) -> usize {
    // A byte that is not UTF-8 becomes a character of three bytes.
    let stretch = if std::str::from_utf8(text).is_ok() { 1 } else { 3 };
    let mut open: Vec<Open> = Vec::with_capacity(16);
    let mut sum = 0;
    let mut rest = text;
    // Whether the next value belongs to an entry, which is counted already.
    let mut in_entry = false;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let (is_value, opens) = match first {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => continue,
            b'}' | b']' => {
                open.pop();
                continue;
            }
            b':' => {
                sum += open.last_mut().filter(|open| open.is_map).map_or(0, Open::add);
                in_entry = true;
                continue;
            }
            b'"' => {
                let length = string_length(rest);
                rest = rest.get(length..).unwrap_or_default();
                // An empty string is not allocated.
                sum += if length > 1 { length * stretch + TEXT } else { 0 };
                (true, None)
            }
            b'{' => (true, Some(true)),
            b'[' => (true, Some(false)),
            _ => {
                let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'}' | b']');
                let length = rest.iter().position(ends).unwrap_or(rest.len());
                let word = rest.get(..length).unwrap_or_default();
                rest = rest.get(length..).unwrap_or_default();
                // A number needs nothing beside its slot. In YAML, a number that is too large becomes a string.
                let is_short = length < 16
                    && (first.is_ascii_alphabetic() || !word.iter().any(|byte| matches!(byte, b'e' | b'E')));
                sum += if is_short { 0 } else { length + 1 + TEXT };
                (true, None)
            }
        };
        if is_value && !std::mem::take(&mut in_entry) {
            sum += open.last_mut().filter(|open| !open.is_map).map_or(0, Open::add);
        }
        if let Some(is_map) = opens {
            if open.len() >= DEEPEST {
                break;
            }
            open.push(Open { is_map, entries: 0 });
        }
    }
    sum
}

/// Returns the number of bytes up to the end of a string, including the closing quote.
fn string_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if text.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Returns an upper bound for the size of the value in a YAML text, including anchors and aliases.
pub(crate) fn weigh_yaml(text: &[u8]) -> usize {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if !matches!(first, Some(b'{' | b'[')) {
        return weigh_marks(text);
    }
    // Most bodies with a YAML type are JSON. Parsing without storing anything finds that out.
    let json = weigh_json(text);
    match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
        Ok(_) => json,
        Err(_) => json.max(weigh_marks(text)),
    }
}

/// Counts each mark that could begin a map, a list, an entry or an item as if it did.
fn weigh_marks(text: &[u8]) -> usize {
    let (mut sum, mut anchors, mut aliases) = (SCALAR, 0usize, 0u32);
    let mut before = b'\n';
    for (at, &byte) in text.iter().enumerate() {
        let next = text.get(at + 1).copied().unwrap_or(b'\n');
        let ends = next.is_ascii_whitespace();
        // The last byte of a byte order mark is not ASCII.
        let begins = before.is_ascii_whitespace()
            || !before.is_ascii()
            || matches!(before, b'[' | b'{' | b',' | b':' | b'}' | b']');
        match byte {
            b'{' => sum += LEAF + SCALAR,
            b'[' => sum += LIST + SCALAR,
            b',' => sum += ENTRY + SCALAR,
            // Within a word, as in a URL, a colon is part of the word.
            b':' if !(is_of_word(before) && is_of_word(next)) => sum += LEAF + 2 * SCALAR,
            b'?' if begins => sum += LEAF + 2 * SCALAR,
            b'-' if ends => sum += LIST + SCALAR,
            b'&' if !ends => anchors += 1,
            b'*' if !ends && begins => aliases = aliases.saturating_add(1),
            _ => {}
        }
        before = byte;
    }
    // An escape of two bytes may become a character of three.
    sum += text.len() + text.len() / 2;
    let most = MOST_NODES * (LEAF + 2 * size_of::<Value>() + SCALAR) + MOST_COPIED + 2 * text.len();
    if anchors == 0 {
        // An alias without an anchor is refused.
        return sum.min(most);
    }
    // An anchored value is stored a second time, and each alias at most doubles the document.
    double_weight(sum.saturating_mul(anchors.saturating_add(1)), aliases).min(most)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'.')
}

/// Returns an upper bound for a document of size `document` after the copies of a JSON patch.
pub(crate) fn weigh_copies(document: usize, patch: &[u8]) -> usize {
    // The operation `copy` may also be written with escapes, so a patch with any escape counts as one with copies.
    let copies = match memmem::find(patch, b"\\u") {
        Some(_) => u32::MAX,
        None => u32::try_from(memmem::find_iter(patch, b"copy").count()).unwrap_or(u32::MAX),
    };
    let most = document.saturating_add(crate::http::body::MAX_BODY * DENSEST);
    double_weight(document, copies).min(most)
}

/// Doubles a weight this many times.
fn double_weight(weight: usize, doublings: u32) -> usize {
    weight.saturating_mul(1usize.checked_shl(doublings).unwrap_or(usize::MAX))
}

/// Returns an upper bound for the size of the value in a protobuf body.
pub(crate) fn weigh_protobuf(body: &[u8]) -> usize {
    let mut embedded = 0;
    let extent = tenure_kinds::protobuf::measure_extent(body, &mut |json| embedded += weigh_json(json));
    let entries = extent.maps * LEAF + extent.entries.saturating_sub(extent.maps) * ENTRY;
    embedded + entries + extent.items * LIST + extent.texts * TEXT + extent.bytes
}

#[cfg(test)]
mod tests;
