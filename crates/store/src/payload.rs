//! A value that contains its own revision. Owns the splice; refuses to look at anything else in the value.

use bytes::Bytes;

/// Bytes to store, and optionally the place where the decimal digits of the revision belong.
///
/// A Kubernetes object carries its resourceVersion inside itself, but the revision exists only once the
/// write has its place in the sequence; so the writer inserts it then.
#[derive(Debug, Clone)]
pub struct Payload {
    bytes: Bytes,
    revision_at: Option<usize>,
}

impl Payload {
    /// A value that is stored as it is.
    #[must_use]
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            revision_at: None,
        }
    }

    /// A value into which the revision's digits are inserted before the byte at `offset`.
    /// An offset behind the end appends them.
    #[must_use]
    pub fn with_revision_at(bytes: impl Into<Bytes>, offset: usize) -> Self {
        let bytes = bytes.into();
        let offset = offset.min(bytes.len());
        Self {
            bytes,
            revision_at: Some(offset),
        }
    }

    /// The bytes as they are stored under `revision`.
    #[must_use]
    pub fn at(&self, revision: u64) -> Bytes {
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
