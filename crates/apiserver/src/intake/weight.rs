//! What a text takes in memory once it is decoded: an upper estimate, in one pass over its bytes, before anything of it is made.
//!
//! Owns what the parts of a [`Value`] cost. Refuses to decode. It is never below what the value takes, as what is let in by it must fit;
//! for JSON it follows the nesting, so that an ordinary manifest isn't taken for much more than it is. Of YAML only marks are counted: who
//! sends it may wait where the same as JSON would not.

use std::mem::size_of;

use memchr::{memchr2, memmem};
use serde_json::Value;

use crate::yaml::{MOST_COPIED, MOST_NODES};

/// What an allocation takes beside what was asked for.
const ALLOCATED: usize = 16;
/// Entries of one node of a map: it is allocated for all of them at once.
const FAN: usize = 11;
/// A map of one entry, and of as many as there is room for in one node.
const LEAF: usize = FAN * (size_of::<String>() + size_of::<Value>()) + 16 + ALLOCATED;
/// A node above others.
const INNER: usize = LEAF + (FAN + 1) * size_of::<usize>();
/// An entry of a map of several nodes. Each has five entries at least, and there is one more between two of them.
const ENTRY: usize = (LEAF + INNER / 5) / 6 + 1;
/// Places of the smallest list. A list that is full gets twice as many.
const FIRST_ITEMS: usize = 4;
/// A list of one item, and of as many as there is room for at first.
const LIST: usize = FIRST_ITEMS * size_of::<Value>() + ALLOCATED;
/// What a text takes beside its bytes.
const TEXT: usize = ALLOCATED + 16;
/// The same of one that stood for itself: a number that is a key is written out, and may be longer then.
const SCALAR: usize = TEXT + 24;
/// Levels beyond which nothing is read, and a few more.
const DEEPEST: usize = 136;
/// Bytes that one byte of JSON can come to at most: maps of one entry within each other, `{"":`, five bytes each.
const DENSEST: usize = LEAF / 5 + 1;

/// What is open while a text is gone through.
#[derive(Clone, Copy)]
struct Open {
    is_map: bool,
    entries: usize,
}

impl Open {
    /// One more entry or item, and what it takes.
    fn add(&mut self) -> usize {
        self.entries += 1;
        let entries = self.entries;
        if self.is_map {
            return match entries {
                1 => LEAF,
                _ if entries <= FAN => 0,
                // They are several nodes from now on.
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

/// What the value in a JSON text takes at most. Of a text that is none: what is made of it until that is noticed.
pub(crate) fn weigh_json(text: &[u8]) -> usize {
    // A byte that is no UTF-8 is read as a character of three.
    let stretch = if std::str::from_utf8(text).is_ok() { 1 } else { 3 };
    let mut open: Vec<Open> = Vec::with_capacity(16);
    let mut sum = 0;
    let mut rest = text;
    // Whether what comes is the value of an entry, which is counted already.
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
                // A text of no byte is not allocated.
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
                // A number takes nothing beside its place; to YAML, one that is too large is a text.
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

/// Bytes up to the end of a string, its closing quote included.
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

/// What the value in a YAML text takes at most, its anchors and aliases included.
pub(crate) fn weigh_yaml(text: &[u8]) -> usize {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if !matches!(first, Some(b'{' | b'[')) {
        return weigh_marks(text);
    }
    // Most of what is called YAML is JSON, which is told by reading it without keeping anything.
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
        // A byte order mark ends in what is no ASCII.
        let begins = before.is_ascii_whitespace()
            || !before.is_ascii()
            || matches!(before, b'[' | b'{' | b',' | b':' | b'}' | b']');
        match byte {
            b'{' => sum += LEAF + SCALAR,
            b'[' => sum += LIST + SCALAR,
            b',' => sum += ENTRY + SCALAR,
            // Within a word it is a part of it, as in a URL.
            b':' if !(is_of_word(before) && is_of_word(next)) => sum += LEAF + 2 * SCALAR,
            b'?' if begins => sum += LEAF + 2 * SCALAR,
            b'-' if ends => sum += LIST + SCALAR,
            b'&' if !ends => anchors += 1,
            b'*' if !ends && begins => aliases = aliases.saturating_add(1),
            _ => {}
        }
        before = byte;
    }
    // An escape of two bytes may be a character of three.
    sum += text.len() + text.len() / 2;
    let most = MOST_NODES * (LEAF + 2 * size_of::<Value>() + SCALAR) + MOST_COPIED + 2 * text.len();
    if anchors == 0 {
        // An alias of nothing is refused.
        return sum.min(most);
    }
    // What is anchored is kept once more, and each alias at most doubles what there is.
    multiply(sum.saturating_mul(anchors.saturating_add(1)), aliases).min(most)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'.')
}

/// What a document that weighs `document` takes at most after the copies of a JSON patch.
pub(crate) fn weigh_copies(document: usize, patch: &[u8]) -> usize {
    // What is escaped may be anything.
    let copies = match memmem::find(patch, b"\\u") {
        Some(_) => u32::MAX,
        None => u32::try_from(memmem::find_iter(patch, b"copy").count()).unwrap_or(u32::MAX),
    };
    let most = document.saturating_add(crate::http::body::MAX_BODY * DENSEST);
    multiply(document, copies).min(most)
}

/// Doubles it so many times.
fn multiply(weight: usize, doublings: u32) -> usize {
    weight.saturating_mul(1usize.checked_shl(doublings).unwrap_or(usize::MAX))
}

/// What the value in a protobuf body takes at most.
pub(crate) fn weigh_protobuf(body: &[u8]) -> usize {
    let mut embedded = 0;
    let extent = tenure_kinds::protobuf::extent(body, &mut |json| embedded += weigh_json(json));
    let entries = extent.maps * LEAF + extent.entries.saturating_sub(extent.maps) * ENTRY;
    embedded + entries + extent.items * LIST + extent.texts * TEXT + extent.bytes
}

#[cfg(test)]
mod tests;
