//! Reads the recorder's archives: many gzip members behind one JSON header. Only requested members are copied.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde::Deserialize;

/// The header's entry for one member.
#[derive(Debug, Deserialize)]
pub(super) struct Member {
    offset: usize,
    length: usize,
    /// SHA-512 of the uncompressed text in upper-case hex; OpenAPI documents only.
    #[serde(default)]
    pub hash: String,
    /// Length of the uncompressed text in bytes; OpenAPI documents only.
    #[serde(default)]
    pub text: usize,
    /// `group/version/Kind -> definition`; type packages only.
    #[serde(default)]
    pub kinds: BTreeMap<String, String>,
}

/// An archive built into the program.
pub(super) struct Archive {
    members: BTreeMap<String, Member>,
    body: &'static [u8],
}

impl Archive {
    /// Reads the header. Checked-in data that can't be read yields an empty archive: the tests read every member.
    pub(super) fn open(bytes: &'static [u8]) -> Self {
        let read = || {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (header, body) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            Some(Self {
                members: serde_json::from_slice(header).ok()?,
                body,
            })
        };
        read().unwrap_or(Self {
            members: BTreeMap::new(),
            body: &[],
        })
    }

    /// Names and headers of all members.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.members.iter().map(|(name, member)| (name.as_str(), member))
    }

    /// Returns a member as stored: gzip.
    pub(super) fn find_compressed(&self, name: &str) -> Option<&'static [u8]> {
        let member = self.members.get(name)?;
        self.body.get(member.offset..member.offset.checked_add(member.length)?)
    }

    /// Returns a member's text.
    pub(super) fn text(&self, name: &str) -> Option<Vec<u8>> {
        inflate(self.find_compressed(name)?)
    }
}

/// Decompresses checked-in gzip data.
pub fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).ok()?;
    Some(text)
}
