//! Values of a Helm chart in layers: chart < `cozystack-values` < Package < PackageValues.
//!
//! Maps merge. Everything else replaces, and `null` is a value: Helm removes the default of a chart where it meets `null`. Numbers are exact to the last digit. A value
//! that Kubernetes can't store exactly is refused with its path, never changed.
//!
//! helm-controller merges the lower layers. So a map that replaces another kind of value meets the chart's map again, and such paths are reported
//! ([`Layer::list_replaced`]).

mod exact;
mod keyed_lists;
mod layer;
mod overrides;
mod references;
mod yaml;

use std::fmt;

pub use exact::{ExactNumber, ExactValue};
pub use layer::{Found, Layer};
pub use overrides::{Effective, Override};
pub(crate) use overrides::{check_size, write_json};
pub use references::{HelmReference, Reference};
pub use tenure_api::package_values::KeyedList;
pub use yaml::read_yaml;

/// The most levels of maps and lists. The API server's JSON has more, but each level costs stack in every reader.
pub const MOST_LEVELS: usize = 100;
/// The most bytes of the values of one component, as JSON.
pub const MOST_BYTES: usize = 512 << 10;
/// The most bytes of a key. Paths are made of keys.
const MOST_KEY: usize = 1 << 10;
/// The most paths that are listed.
const MOST_PATHS: usize = 1000;
/// The most entries of `valuesFrom`: a policy asks about the rights on each.
const MOST_REFERENCES: usize = 16;
/// The most entries of `unset`, and of `lists`.
const MOST_RULES: usize = 1000;
/// The beginning of keys at the root that are the platform's, such as `_cluster` and `_namespace`.
const RESERVED: char = '_';
/// The key that removes an item of a keyed list.
const REMOVE: &str = "$remove";

/// Invalid values. The path is an RFC 6901 pointer, such as `/controller/replicas`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ValuesError {
    /// The path of the value; empty for the root.
    pub path: String,
    /// The problem, and the way out.
    pub problem: String,
}

impl fmt::Display for ValuesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        write!(
            formatter,
            "{}: {}",
            tenure_api::text::visible_line(path),
            tenure_api::text::visible_line(&self.problem)
        )
    }
}

impl ValuesError {
    fn new(path: &Path<'_>, problem: impl Into<String>) -> Self {
        Self::at(path.to_string(), problem)
    }

    fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

/// A path while values are visited. It is written only for a message.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn check_key(&self, key: &str) -> Result<(), ValuesError> {
        if key.len() <= MOST_KEY {
            return Ok(());
        }
        Err(ValuesError::new(self, format!("a key has more than {MOST_KEY} bytes")))
    }

    fn check_depth(&self, levels: usize) -> Result<(), ValuesError> {
        if levels <= MOST_LEVELS {
            return Ok(());
        }
        Err(ValuesError::new(
            self,
            format!("the values have more than {MOST_LEVELS} levels: make them flatter"),
        ))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(parent, key) => write!(formatter, "{parent}/{}", escape_step(key)),
            Self::Index(parent, index) => write!(formatter, "{parent}/{index}"),
        }
    }
}

/// Writes a key as a step of a pointer.
fn escape_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Writes steps as a pointer.
fn join_steps(steps: &[String]) -> String {
    steps.iter().map(|step| format!("/{}", escape_step(step))).collect()
}
