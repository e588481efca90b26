//! A value that contains its own revision. Nothing else in the value is read.

use bytes::Bytes;

/// Bytes to store, and optionally the position of the revision's decimal digits.
///
/// A Kubernetes object contains its resourceVersion, but the revision is known only once the write has its place in
/// the sequence. So the writer inserts the revision then.
#[derive(Debug, Clone)]
pub struct Payload {
    bytes: Bytes,
    revision_at: Option<usize>,
}

impl Payload {
    /// Returns a value that is stored unchanged.
    #[must_use]
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            revision_at: None,
        }
    }

    /// Returns a value into which the revision's digits are inserted before the byte at `offset`. An offset beyond
    /// the end appends them.
    #[must_use]
    pub fn with_revision_at(bytes: impl Into<Bytes>, offset: usize) -> Self {
        let bytes = bytes.into();
        let offset = offset.min(bytes.len());
        Self {
            bytes,
            revision_at: Some(offset),
        }
    }

    /// Returns the bytes as they are stored under `revision`.
    #[must_use]
    pub fn with_revision(&self, revision: u64) -> Bytes {
        let Some(offset) = self.revision_at else {
            return self.bytes.clone();
        };
        let (head, tail) = self.bytes.split_at(offset);
        let digits = revision.to_string();
        let mut out = Vec::with_capacity(self.bytes.len() + digits.len());
        out.extend_from_slice(head);
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(tail);
        Bytes::from(out)
    }
}
