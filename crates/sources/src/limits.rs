//! The bounds of a fetch. Every reader of outside bytes takes them as an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of one fetch, and of one load of an artifact: bytes, counts and a timeout. All bounds hold whatever the server claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes read from the network over all connections of one fetch, TLS and ssh framing included.
    pub received_bytes: u64,
    /// Objects in the pack that the server sends.
    pub objects: u32,
    /// Bytes of all objects of the pack together, inflated and with their deltas applied.
    pub object_bytes: u64,
    /// Bytes that applying deltas and reading objects again may produce, plus a kilobyte for each time. Bounds the work.
    pub delta_bytes: u64,
    /// Files and symbolic links in the commit, ignored ones included.
    pub files: u32,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files of the artifact, unpacked.
    pub unpacked_bytes: u64,
    /// Bytes of a path in the repository, and of a symbolic link's target.
    pub path_bytes: usize,
    /// Folders inside folders.
    pub depth: usize,
    /// References that the server may list.
    pub references: usize,
    /// Redirects followed in a row.
    pub redirects: usize,
    /// Longest wait for one address to accept a connection.
    pub connect_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            received_bytes: 128 << 20,
            objects: 200_000,
            object_bytes: 512 << 20,
            delta_bytes: 2 << 30,
            files: 100_000,
            file_bytes: 64 << 20,
            unpacked_bytes: 256 << 20,
            path_bytes: 1024,
            depth: 64,
            references: 100_000,
            redirects: 5,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Writes a number of bytes for messages: `128 MiB`.
pub(crate) fn describe_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}
