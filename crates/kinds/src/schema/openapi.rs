//! The OpenAPI v3 documents of the built-in group-versions, served as the checked-in bytes.

use std::sync::LazyLock;

use super::archive::Archive;

static DOCUMENTS: LazyLock<Archive> = LazyLock::new(|| Archive::open(include_bytes!("../../data/openapi.archive")));

/// A document.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    pub path: &'static str,
    /// The JSON text in gzip. A client that accepts gzip gets these bytes unchanged.
    pub gzip: &'static [u8],
    /// SHA-512 of the text in upper-case hex: the `hash` of its URL and its ETag.
    pub hash: &'static str,
    /// Length of the text in bytes.
    pub text_length: usize,
}

impl Document {
    /// Returns the JSON text.
    pub fn text(&self) -> Vec<u8> {
        super::archive::inflate(self.gzip).unwrap_or_default()
    }
}

/// Returns the documents by path.
pub fn list_documents() -> impl Iterator<Item = Document> {
    DOCUMENTS.members().filter_map(|(path, _)| find_document(path))
}

/// Returns the document of a path.
pub fn find_document(path: &str) -> Option<Document> {
    let archive: &'static Archive = &DOCUMENTS;
    let (path, member) = archive.members().find(|(name, _)| *name == path)?;
    Some(Document {
        path,
        gzip: archive.find_compressed(path)?,
        hash: &member.hash,
        text_length: member.text,
    })
}
