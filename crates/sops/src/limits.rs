//! Owns what decrypting one file may take. Refuses nothing itself; each limit is looked at where what it counts is made.

/// What decrypting one file may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file, as it is in the repository. Flux's limit is 5 MiB (`maxEncryptedFileSize` of kustomize-controller).
    pub bytes: usize,
    /// Nodes of a file's tree, aliases counted wherever they are used.
    pub nodes: usize,
    /// How deep maps and lists may be nested.
    pub depth: usize,
    /// Recipients of one file.
    pub recipients: usize,
    /// How often a private key may be tried on one file: on an age stanza or on a session key of OpenPGP.
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
