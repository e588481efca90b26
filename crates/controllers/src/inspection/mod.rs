//! Answers for users about one Kustomization, without a write.
//!
//! - `object_origin`: the file and line of an applied object.
//! - `preview`: the effect of uncommitted files.

pub(crate) mod object_origin;
pub(crate) mod preview;
