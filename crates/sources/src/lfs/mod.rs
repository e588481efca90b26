//! Git LFS: the content of files whose commit has only a pointer.
//!
//! | module | owns |
//! |---|---|
//! | `server` | the place of the API for a repository, as data |
//! | `batch` | requests to the API and its answers, as data |
//! | `plan` | the choice of contents and servers, and the check of sizes |
//! | `transfer` | requests to the API, and the contents that arrive |
//! | `replacement` | the archive with contents in place of pointers |
//!
//! A pointer has the SHA-256 of the content, so a commit decides the content of its artifact in LFS, too. The server of the repository gets the source's credentials. It
//! says where each content is. That address may be on another host, which gets only the headers that the answer names.

mod batch;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod plan;
mod replacement;
mod server;
mod transfer;

pub(crate) use plan::{Repository, plan_contents};
pub(crate) use replacement::replace_pointers;
pub(crate) use transfer::{Contents, LfsTransfer, REPLACING_BYTES};
