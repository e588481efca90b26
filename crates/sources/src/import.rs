//! Imports an archive of another store from an open file. The file is untrusted: only content with the requested digest is stored. A file that grows meanwhile is not
//! followed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use sha2::{Digest as _, Sha256};

use crate::artifact::{ArtifactStore, SourceKey};
use crate::error::StorageError;
use crate::fetch_budgets::find_refusal;

/// Bytes that are copied at a time.
const PIECE: usize = 64 << 10;

impl ArtifactStore {
    /// Stores the archive of this digest for a source, charged to a lane, as if it had been fetched here.
    ///
    /// Blocks on the disk.
    ///
    /// # Errors
    /// [`StorageError::DigestMismatch`] when the file has other content, [`StorageError::OverBudget`] when the budget has no capacity for it, and
    /// [`StorageError::InvalidName`] or [`StorageError::Io`].
    pub fn import(&self, source: &SourceKey, digest: &str, file: &File, lane: &str) -> Result<(), StorageError> {
        let path = source.archive(digest)?;
        let failed = |error: io::Error| match find_refusal(&error) {
            Some(refused) => refused.into(),
            None => self.io_error("import", &path, error),
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut incoming = self.incoming_file(lane)?;
        let mut hash = Sha256::new();
        {
            let mut writer = incoming.writer(self);
            let mut rest = file.take(length);
            let mut piece = vec![0; PIECE];
            loop {
                let read = rest.read(&mut piece).map_err(failed)?;
                let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
                    break;
                };
                hash.update(read);
                writer.write_all(read).map_err(failed)?;
            }
            writer.flush().map_err(failed)?;
        }
        incoming.complete();
        let found = format!("sha256:{}", hex::encode(hash.finalize()));
        if found != digest {
            return Err(StorageError::DigestMismatch {
                expected: digest.to_owned(),
                found,
            });
        }
        self.store_archive(source, incoming, digest).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BudgetLimits, ByteBudget};

    fn make_store(folder: &std::path::Path, bytes: u64) -> ArtifactStore {
        let room = BudgetLimits {
            what: "archives",
            lane: bytes,
            all: bytes,
            lane_setting: "--lane",
            all_setting: "--all",
            is_half: false,
        };
        ArtifactStore::open(folder, ByteBudget::new(room)).unwrap()
    }

    #[test]
    fn import_stores_only_content_with_requested_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (here, handed) = (folder.path().join("store"), folder.path().join("handed"));
        let store = make_store(&here, 1 << 20);
        let source = SourceKey::new("GitRepository", "team", "app", "1").unwrap();
        let content = vec![7_u8; 200_000];
        std::fs::write(&handed, &content).unwrap();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&content)));
        let open = || File::open(&handed).unwrap();
        store.import(&source, &digest, &open(), "green").unwrap();
        assert!(store.contains(&source, &digest));
        assert_eq!(store.disk().held_by("green"), 200_000);
        // The control: with one more byte, nothing of the file is stored.
        std::fs::write(&handed, [&content[..], b"x"].concat()).unwrap();
        let other = SourceKey::new("GitRepository", "team", "other", "1").unwrap();
        let refused = store.import(&other, &digest, &open(), "green").unwrap_err();
        assert!(matches!(refused, StorageError::DigestMismatch { .. }), "{refused}");
        assert!(!store.contains(&other, &digest));
        assert_eq!(store.disk().held_by("green"), 200_000);
        // The budget bounds the size, and a digest leads to no other folder.
        std::fs::write(&handed, vec![0_u8; 2 << 20]).unwrap();
        let refused = store.import(&other, &digest, &open(), "green").unwrap_err();
        assert!(matches!(refused, StorageError::OverBudget(_)), "{refused}");
        let refused = store.import(&other, "sha256:../x", &open(), "green").unwrap_err();
        assert!(matches!(refused, StorageError::InvalidName { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(here.join(".incoming")).unwrap().count(), 0);
    }
}
