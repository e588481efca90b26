//! Common parts of the rules about a Tenant's bounds: the Tenant of an object, shortened texts, and advice.

use serde_json::Value;

use super::Case;
use tenure_tenancy::bounds::Names;
use tenure_tenancy::placement::TenantFacts;

/// The greatest length of a user's text in a message, and the greatest number of names.
const MAX_SHORTENED_CHARS: usize = 256;
const MAX_LISTED_NAMES: usize = 8;

/// Returns the Tenant of the request's namespace, and the object. The bounds apply to every user that writes there: controllers create
/// objects for other users, and a user that may change the Tenant needs no exemption.
pub(super) fn find_tenant(case: Case<'_>) -> Option<(&TenantFacts, &Value)> {
    let object = case.request.object.filter(|_| case.request.writes())?;
    let tenant = case.tenant?;
    Some((tenant, object))
}

/// Returns a user's text, shortened for a message.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHORTENED_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the advice for a name that isn't allowed.
pub(super) fn advise(field: &str, names: Names<'_>) -> String {
    let mut allowed = join_names(names.default.into_iter().chain(names.exact.iter().map(String::as_str)));
    if let Some(expression) = names.expression {
        if !allowed.is_empty() {
            allowed.push_str(", ");
        }
        allowed.push_str("what matches ");
        allowed.push_str(&shorten(expression));
    }
    write_advice(field, &allowed)
}

/// Returns the advice for a plain list of allowed names.
pub(super) fn advise_of(field: &str, names: &[String]) -> String {
    write_advice(field, &join_names(names.iter().map(String::as_str)))
}

/// Returns the beginning of the advice about a field of allowed values.
pub(super) fn begin_advice(field: &str) -> String {
    format!("take what the Tenant's {field} allows")
}

fn write_advice(field: &str, allowed: &str) -> String {
    match allowed {
        "" => begin_advice(field),
        allowed => format!("{}: {allowed}", begin_advice(field)),
    }
}

fn join_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let listed: Vec<String> = names.clone().take(MAX_LISTED_NAMES).map(shorten).collect();
    match names.count().saturating_sub(MAX_LISTED_NAMES) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}
