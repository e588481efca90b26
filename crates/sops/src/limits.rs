//! The limits of decrypting one file. Each limit is checked by the code that produces the counted items.

/// The limits for the size of one encrypted file, and for the work of decrypting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file in the repository. Flux's limit is 5 MiB (`maxEncryptedFileSize` of kustomize-controller).
    pub bytes: usize,
    /// Nodes of a file's tree; an alias counts at every use.
    pub nodes: usize,
    /// The deepest nesting of maps and lists.
    pub depth: usize,
    /// Recipients of one file.
    pub recipients: usize,
    /// Tries of private keys on one file: on an age stanza or on a session key of OpenPGP.
    pub tries: usize,
}

impl Default for Limits {
    /// 5 MiB, 200,000 nodes, 100 levels, 64 recipients, 256 tries.
    fn default() -> Self {
        Self {
            bytes: 5 << 20,
            nodes: 200_000,
            depth: 100,
            recipients: 64,
            tries: 256,
        }
    }
}
