//! Which requests may compute for long: by what was sent, and by what is stored.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use memchr::memmem;
use tenure_store::Entry;

use crate::catalog::{Origin, Resource};
use crate::contents::is_verbatim;
use crate::http::RequestInfo;
use crate::registry::Registry;

/// A body up to this size is worked on where it arrives.
const SMALL_BODY: usize = 16 * 1024;
/// The same where rules are evaluated, whose cost is not in proportion to what they look at.
const SMALL_JUDGED_BODY: usize = 4 * 1024;
/// A request about a stored object up to this size, too.
const SMALL_OBJECT: usize = 64 * 1024;

/// The group of roles: few bytes bind one that grants much.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The group of questions about them.
const REVIEWS: &str = "authorization.k8s.io";

/// What may be large about a request.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Whether it may compute for long: its body is large, few bytes of it can mean many, or the object that it is about is large.
    pub(crate) is_long: bool,
    /// Whether few bytes of its body may mean many.
    pub(crate) multiplies: bool,
    /// The stored object that it works on.
    pub(crate) stored: Option<Arc<Entry>>,
}

/// Looks at what may be large about a request.
pub(crate) fn look_at(registry: &Registry, info: &RequestInfo, headers: &HeaderMap, body: &[u8]) -> Asked {
    let multiplies = multiplies(headers, body);
    // What goes through many objects, or compares all that is granted with all that is held.
    let compares = info.group == RBAC && !matches!(info.verb.as_str(), "get" | "list");
    let goes_far = info.verb == "deletecollection" || compares || info.group == REVIEWS;
    let mut asked = Asked {
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

/// The stored object that a request works on, and doesn't only send.
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

/// Whether few bytes may mean many: the copies of a JSON patch, the aliases of YAML.
fn multiplies(headers: &HeaderMap, body: &[u8]) -> bool {
    let has = |text: &[u8]| memmem::find(body, text).is_some();
    let form = headers.get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
    let says = |text: &[u8]| form.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text));
    if says(b"json-patch") {
        // What is escaped may be anything.
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
