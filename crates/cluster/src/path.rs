//! The paths of requests. Every part is percent-encoded, and `.` and `..` are errors, so no name can lead a path elsewhere.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::discovery::Resource;
use crate::error::ClusterError;

const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// Writes the path of a resource's collection, of one object if a name is given, or of a subresource.
pub(crate) fn write_path(
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
    subresource: Option<&str>,
) -> Result<String, ClusterError> {
    let mut path = if resource.group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", write_segment(&resource.group)?)
    };
    path.push('/');
    path.push_str(&write_segment(&resource.version)?);
    if resource.namespaced
        && let Some(namespace) = namespace
    {
        path.push_str("/namespaces/");
        path.push_str(&write_segment(namespace)?);
    }
    for part in [Some(resource.plural.as_str()), name, subresource]
        .into_iter()
        .flatten()
    {
        path.push('/');
        path.push_str(&write_segment(part)?);
    }
    Ok(path)
}

/// Writes a query string with its `?`; empty without parameters.
pub(crate) fn write_query(parameters: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (key, value) in parameters {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        text.extend(utf8_percent_encode(value, SEGMENT));
    }
    text
}

fn write_segment(part: &str) -> Result<String, ClusterError> {
    if part.is_empty() || part == "." || part == ".." {
        return Err(ClusterError::Request {
            what: format!("{part:?}"),
            problem: "it can't be part of an address".to_owned(),
        });
    }
    Ok(utf8_percent_encode(part, SEGMENT).to_string())
}
