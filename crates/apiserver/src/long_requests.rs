//! Detection of requests that may compute for long, by the body and by the stored object.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use memchr::memmem;
use tenure_store::Entry;

use crate::catalog::{Origin, Resource};
use crate::contents::is_verbatim;
use crate::http::RequestInfo;
use crate::registry::Registry;

/// A body up to this size is handled on the thread that received it.
const SMALL_BODY: usize = 16 * 1024;
/// The limit for a body if rules are evaluated: their cost is not proportional to the body.
const SMALL_JUDGED_BODY: usize = 4 * 1024;
/// The limit for the stored object of a request.
const SMALL_OBJECT: usize = 64 * 1024;

/// The group of roles: few bytes can bind a role with many rules.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The group of authorization reviews.
const REVIEWS: &str = "authorization.k8s.io";

/// The possibly large parts of a request.
#[derive(Debug, Default)]
pub(crate) struct LargeParts {
    /// Whether the request may compute for long: its body is large, few bytes of its body expand to many, or its
    /// stored object is large.
    pub(crate) is_long: bool,
    /// Whether few bytes of the body may expand to many.
    pub(crate) multiplies: bool,
    /// The stored object that the request works on.
    pub(crate) stored: Option<Arc<Entry>>,
}

/// Measures the possibly large parts of a request.
pub(crate) fn measure_request(registry: &Registry, info: &RequestInfo, headers: &HeaderMap, body: &[u8]) -> LargeParts {
    let multiplies = multiplies(headers, body);
    // Requests that visit many objects, or compare all granted rights with all rights of the user.
    let compares = info.group == RBAC && !matches!(info.verb.as_str(), "get" | "list");
    let goes_far = info.verb == "deletecollection" || compares || info.group == REVIEWS;
    let mut asked = LargeParts {
        is_long: body.len() > SMALL_BODY || multiplies || goes_far,
        multiplies,
        stored: None,
    };
    let catalog = registry.catalog();
    let Some(resource) = catalog.find(&info.group, &info.version, &info.resource) else {
        return asked;
    };
    asked.is_long |= body.len() > SMALL_JUDGED_BODY && is_judged(resource);
    asked.stored = find_stored(registry, info, headers, resource);
    let stored = asked.stored.as_ref().map_or(0, |entry| entry.bytes.len());
    asked.is_long |= stored > SMALL_OBJECT;
    asked
}

/// Returns the stored object that a request works on, unless the request only sends it.
fn find_stored(
    registry: &Registry,
    info: &RequestInfo,
    headers: &HeaderMap,
    resource: &Resource,
) -> Option<Arc<Entry>> {
    let works_on_stored = match info.verb.as_str() {
        "update" | "patch" | "delete" => true,
        "get" => !is_verbatim(resource) || wants_a_view(headers),
        _ => false,
    };
    let name = info.name.as_deref().filter(|_| works_on_stored)?;
    let key = resource.key(info.namespace.as_deref().filter(|_| resource.namespaced), name);
    registry.store().snapshot().get(&key).cloned()
}

/// Checks whether few bytes may expand to many: by copies of a JSON patch, or by aliases of YAML.
fn multiplies(headers: &HeaderMap, body: &[u8]) -> bool {
    let has = |text: &[u8]| memmem::find(body, text).is_some();
    let form = headers.get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
    let says = |text: &[u8]| form.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text));
    if says(b"json-patch") {
        // An escaped text may contain any operation.
        return has(b"copy") || has(b"\\u");
    }
    says(b"yaml") && has(b"&") && has(b"*")
}

fn is_judged(resource: &Resource) -> bool {
    match &resource.origin {
        Origin::Builtin => false,
        Origin::Custom(custom) => custom.schema.has_rules(),
    }
}

fn wants_a_view(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|form| memmem::find(form.as_bytes(), b"as=").is_some())
}
