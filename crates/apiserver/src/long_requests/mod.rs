//! Detection of requests that may compute for long: by the bytes and the terms of the body and of the stored object, and
//! by the length of the query and the headers.

mod terms;

use std::sync::Arc;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use memchr::memmem;
use tenure_store::Entry;

use crate::catalog::{Origin, Resource};
use crate::contents::is_verbatim;
use crate::http::RequestInfo;
use crate::http::query::Query;
use crate::registry::Registry;

/// A body up to this size is handled on the thread that received it.
const SMALL_BODY: usize = 16 * 1024;
/// The limit for a body if rules are evaluated: their cost is not proportional to the body.
const SMALL_JUDGED_BODY: usize = 4 * 1024;
/// The limit for the stored object of a request.
const SMALL_OBJECT: usize = 64 * 1024;
/// The limit for the terms of the body and the stored object together: values, entries and items, such as owners of
/// fields, finalizers and conditions. With so few, a loop over all pairs is short, too.
const FEW_TERMS: usize = 512;
/// The limit for the terms if rules are evaluated, whose loops may be nested.
const FEW_JUDGED_TERMS: usize = 128;
/// The limit for the query: selectors, and texts that are checked letter by letter.
const SMALL_QUERY: usize = 2 * 1024;
/// Bytes of a query that are not charged: few selectors are longer.
const UNCHARGED_QUERY: usize = 256;
/// Memory of a selector for each byte of its text.
const SELECTOR_WEIGHT: usize = 64;
/// The limit for all headers, which may be lists, too.
const SMALL_HEADERS: usize = 16 * 1024;

/// The group of roles: few bytes can bind a role with many rules.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The group of authorization reviews.
const REVIEWS: &str = "authorization.k8s.io";

/// The parts of a request that can be large: whether its work may take long, and how much memory its selectors need.
#[derive(Debug, Default)]
pub(crate) struct LargeParts {
    /// Whether the request may compute for long: its body is large, few bytes of its body expand to many, or its
    /// stored object is large.
    pub(crate) is_long: bool,
    /// Whether few bytes of the body may expand to many.
    pub(crate) multiplies: bool,
    /// The stored object that the request works on.
    pub(crate) stored: Option<Arc<Entry>>,
    /// The memory for the request's selectors; zero for usual ones.
    pub(crate) selectors: usize,
}

/// The parts of a request whose lengths its client chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

impl RequestParts<'_> {
    /// Checks whether the query or the headers may take long to read. Selectors are read term by term.
    pub(crate) fn has_long_head(&self) -> bool {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len());
        self.count_query_bytes() > SMALL_QUERY || headers.sum::<usize>() > SMALL_HEADERS
    }

    fn count_query_bytes(&self) -> usize {
        self.query.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Returns an upper estimate of the memory for the request's selectors; zero for usual ones. A watch holds its
    /// selectors until it ends.
    pub(crate) fn weigh_selectors(&self) -> usize {
        let bytes = self.count_query_bytes();
        if bytes > UNCHARGED_QUERY {
            bytes * SELECTOR_WEIGHT
        } else {
            0
        }
    }

    /// Counts the terms of the body, and stops soon after `most`.
    fn count_terms(&self, most: usize) -> usize {
        let form = self.headers.get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
        if contains_ignoring_case(form, b"protobuf") {
            return terms::count_protobuf(self.body);
        }
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        if contains_ignoring_case(form, b"yaml") && !matches!(first, Some(b'{' | b'[')) {
            return terms::count_yaml(self.body);
        }
        terms::count_json(self.body, most)
    }
}

/// Measures the possibly large parts of a request.
pub(crate) fn measure_request(registry: &Registry, request: &RequestParts<'_>) -> LargeParts {
    let &RequestParts {
        info, headers, body, ..
    } = request;
    let multiplies = may_expand(headers, body);
    // Requests that compare all granted rights with all rights of the user.
    let compares = info.group == RBAC && !matches!(info.verb.as_str(), "get" | "list");
    // Requests that visit many objects: an eviction reads all budgets of its namespace.
    let evicts = info.subresource.as_deref() == Some("eviction");
    let visits_many = info.verb == "deletecollection" || compares || evicts || info.group == REVIEWS;
    let mut asked = LargeParts {
        is_long: body.len() > SMALL_BODY || multiplies || visits_many || request.has_long_head(),
        multiplies,
        stored: None,
        selectors: request.weigh_selectors(),
    };
    let catalog = registry.catalog();
    let Some(resource) = catalog.find(&info.group, &info.version, &info.resource) else {
        return asked;
    };
    let is_judged = is_judged(resource);
    asked.is_long |= body.len() > SMALL_JUDGED_BODY && is_judged;
    asked.stored = find_stored(registry, info, headers, resource);
    let stored = asked.stored.as_ref().map_or(&[][..], |entry| &entry.bytes);
    asked.is_long |= stored.len() > SMALL_OBJECT;
    if !asked.is_long {
        let few = if is_judged { FEW_JUDGED_TERMS } else { FEW_TERMS };
        let terms = request.count_terms(few);
        asked.is_long = terms > few || terms + terms::count_json(stored, few) > few;
    }
    asked
}

/// Checks whether the work on a stored object may take long.
pub(crate) fn is_long_object(stored: &[u8]) -> bool {
    stored.len() > SMALL_OBJECT || terms::count_json(stored, FEW_TERMS) > FEW_TERMS
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
        "get" => !is_verbatim(resource) || asks_for_view(headers),
        _ => false,
    };
    let name = info.name.as_deref().filter(|_| works_on_stored)?;
    let key = resource.key(info.namespace.as_deref().filter(|_| resource.namespaced), name);
    registry.store().snapshot().get(&key).cloned()
}

/// Checks whether few bytes may expand to many: by copies of a JSON patch, or by aliases of YAML.
fn may_expand(headers: &HeaderMap, body: &[u8]) -> bool {
    let has = |text: &[u8]| memmem::find(body, text).is_some();
    let form = headers.get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
    if contains_ignoring_case(form, b"json-patch") {
        // The operation `copy` may also be written with escapes, so any escape counts as a copy.
        return has(b"copy") || has(b"\\u");
    }
    contains_ignoring_case(form, b"yaml") && has(b"&") && has(b"*")
}

/// Checks whether a type of content has this text, in lower or upper case.
fn contains_ignoring_case(form: &[u8], text: &[u8]) -> bool {
    form.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Checks whether a custom kind has validation rules (CEL).
fn is_judged(resource: &Resource) -> bool {
    match &resource.origin {
        Origin::Builtin => false,
        Origin::Custom(custom) => custom.schema.has_rules(),
    }
}

/// Checks whether the Accept header asks for a table or for metadata, which needs the decoded object.
fn asks_for_view(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|form| memmem::find(form.as_bytes(), b"as=").is_some())
}
