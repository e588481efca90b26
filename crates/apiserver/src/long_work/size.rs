//! Which requests may compute for long: by what was sent, and by what is stored.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use memchr::memmem;

use crate::catalog::{Origin, Resource};
use crate::http::RequestInfo;
use crate::registry::{Registry, is_verbatim};

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

/// Whether a request may compute for long: if its body is large, if few bytes of it can mean many, or if the object that it is
/// about is large.
pub(crate) fn is_long(registry: &Registry, info: &RequestInfo, headers: &HeaderMap, body: &[u8]) -> bool {
    if body.len() > SMALL_BODY || multiplies(headers, body) {
        return true;
    }
    // What goes through many objects, or compares all that is granted with all that is held.
    let compares = info.group == RBAC && !matches!(info.verb.as_str(), "get" | "list");
    if info.verb == "deletecollection" || compares || info.group == REVIEWS {
        return true;
    }
    let catalog = registry.catalog();
    let Some(resource) = catalog.find(&info.group, &info.version, &info.resource) else {
        return false;
    };
    if body.len() > SMALL_JUDGED_BODY && is_judged(resource) {
        return true;
    }
    let works_on_stored = match info.verb.as_str() {
        "update" | "patch" | "delete" => true,
        "get" => !is_verbatim(resource) || wants_a_view(headers),
        _ => false,
    };
    let Some(name) = info.name.as_deref().filter(|_| works_on_stored) else {
        return false;
    };
    let key = resource.key(info.namespace.as_deref().filter(|_| resource.namespaced), name);
    let snapshot = registry.store().snapshot();
    snapshot.get(&key).is_some_and(|entry| entry.bytes.len() > SMALL_OBJECT)
}

/// Whether few bytes may mean many: the copies of a JSON patch, the aliases of YAML.
fn multiplies(headers: &HeaderMap, body: &[u8]) -> bool {
    let has = |text: &[u8]| memmem::find(body, text).is_some();
    let form = headers.get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
    if form.starts_with(b"application/json-patch") {
        // What is escaped may be anything.
        return has(b"copy") || has(b"\\u");
    }
    memmem::find(form, b"yaml").is_some() && has(b"&") && has(b"*")
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
