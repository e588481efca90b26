//! Renders an artifact's files into objects, with kustomize.
//!
//! - `decryption`: files that SOPS encrypted.
//! - `lfs_pointers`: refuses pointers of Git LFS.
//! - `read_files`: the files that a rendering read, to skip the next one.
//! - `renderer`: runs kustomize within limits.

pub(crate) mod decryption;
pub(crate) mod lfs_pointers;
pub(crate) mod read_files;
pub(crate) mod renderer;
