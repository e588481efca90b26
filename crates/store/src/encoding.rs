//! Objects and changes as bytes, in the tables and in the log. Bytes that don't match their checksum are refused.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Entry, EventKind, JournalError, Record};

/// FNV-1a, 64 bits: detects flipped bits. It does not protect from a forger, who could write the file anyway.
fn compute_checksum(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

pub(crate) fn encode_object(key: &str, revision: u64, value: &[u8]) -> Vec<u8> {
    let revision = revision.to_le_bytes();
    let sum = compute_checksum(&[&revision, key.as_bytes(), value]).to_le_bytes();
    let mut out = Vec::with_capacity(16 + value.len());
    out.extend_from_slice(&revision);
    out.extend_from_slice(&sum);
    out.extend_from_slice(value);
    out
}

pub(crate) fn decode_object(key: &str, stored: &[u8]) -> Result<Entry, JournalError> {
    let damaged = || JournalError::Damaged(format!("the object {key:?} does not match its checksum"));
    let (revision, rest) = stored.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (sum, value) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    if compute_checksum(&[revision, key.as_bytes(), value]) != u64::from_le_bytes(*sum) {
        return Err(damaged());
    }
    Ok(Entry {
        revision: u64::from_le_bytes(*revision),
        bytes: Bytes::copy_from_slice(value),
    })
}

pub(crate) fn encode_record(record: &Record) -> Vec<u8> {
    let (before, previous) = match &record.previous {
        Some((revision, bytes)) => (*revision, bytes.as_ref()),
        None => (0, &[][..]),
    };
    let mut body = Vec::with_capacity(25 + record.key.len() + record.value.len() + previous.len());
    body.push(u8::from(record.kind == EventKind::Delete));
    body.extend_from_slice(&before.to_le_bytes());
    body.extend_from_slice(&(record.key.len() as u64).to_le_bytes());
    body.extend_from_slice(&(record.value.len() as u64).to_le_bytes());
    body.extend_from_slice(record.key.as_bytes());
    body.extend_from_slice(&record.value);
    body.extend_from_slice(previous);
    let mut out = Vec::with_capacity(8 + body.len());
    out.extend_from_slice(&compute_checksum(&[&record.revision.to_le_bytes(), &body]).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

pub(crate) fn decode_record(revision: u64, stored: &[u8]) -> Result<Record, JournalError> {
    let parse = || -> Option<Record> {
        let (sum, body) = stored.split_first_chunk::<8>()?;
        if compute_checksum(&[&revision.to_le_bytes(), body]) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (kind, rest) = body.split_first()?;
        let (before, rest) = rest.split_first_chunk::<8>()?;
        let (key_length, rest) = rest.split_first_chunk::<8>()?;
        let (value_length, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*key_length)).ok()?)?;
        let (value, previous) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*value_length)).ok()?)?;
        let before = u64::from_le_bytes(*before);
        Some(Record {
            revision,
            key: Arc::from(std::str::from_utf8(key).ok()?),
            kind: if *kind == 0 { EventKind::Put } else { EventKind::Delete },
            value: Bytes::copy_from_slice(value),
            previous: (before != 0).then(|| (before, Bytes::copy_from_slice(previous))),
        })
    };
    parse().ok_or_else(|| {
        JournalError::Damaged(format!(
            "the history of revision {revision} does not match its checksum"
        ))
    })
}
