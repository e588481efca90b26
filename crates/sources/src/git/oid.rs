//! Object ids of both of Git's hash algorithms.

use std::fmt;

use sha2::Digest as _;

/// The hash algorithm of object ids. All objects of a repository use one algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Algorithm {
    Sha1,
    Sha256,
}

impl Algorithm {
    /// Returns the name, as in the protocol and in revisions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// Returns the length of an id in bytes.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// Hashes content that arrives in pieces.
pub(crate) enum Hasher {
    Sha1(Box<sha1dc::Hasher>),
    Sha256(Box<sha2::Sha256>),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha1 => Self::Sha1(Box::new(sha1dc::Hasher::new())),
            Algorithm::Sha256 => Self::Sha256(Box::new(sha2::Sha256::new())),
        }
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(piece),
            Self::Sha256(hasher) => hasher.update(piece),
        }
    }

    /// Returns the id; `None` if the content was made to collide in SHA-1. Git refuses such content as well.
    pub(crate) fn finish(self) -> Option<Oid> {
        match self {
            Self::Sha1(hasher) => {
                let digest: [u8; 20] = hasher.finalize().ok()?.into();
                Oid::from_bytes(&digest)
            }
            Self::Sha256(hasher) => Oid::from_bytes(&hasher.finalize()),
        }
    }
}

/// The id of a Git object: a SHA-1 or SHA-256 hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Oid {
    length: u8,
    bytes: [u8; 32],
}

impl Oid {
    /// Reads an id of 20 or 32 bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), 20 | 32) {
            return None;
        }
        let mut own = [0; 32];
        own.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            length: u8::try_from(bytes.len()).ok()?,
            bytes: own,
        })
    }

    /// Reads an id in hex.
    pub(crate) fn from_hex(text: &[u8]) -> Option<Self> {
        if !matches!(text.len(), 40 | 64) || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        Self::from_bytes(&hex::decode(text).ok()?)
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        if self.length == 20 {
            Algorithm::Sha1
        } else {
            Algorithm::Sha256
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(
            self.bytes.get(..usize::from(self.length)).unwrap_or_default(),
        ))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
