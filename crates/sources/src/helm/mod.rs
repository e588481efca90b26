//! Helm repositories and charts: fetches an index, and makes the archive of a chart from a repository, a registry, or the files of another source.
//!
//! helm-controller reads the archive. Nothing here renders a chart.

mod archive;
mod error;
mod fetch_chart;
mod fetch_index;
mod folder;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod ignore;
mod index;
mod metadata;
mod package;
mod repository;
mod request;

pub use error::ChartError;
pub use fetch_chart::{count_files, fetch_chart};
pub use fetch_index::fetch_index;
pub use request::{ChartFetch, HelmSecrets, IndexFetch};
