//! Common parts of the rules about a Tenant's bounds: the Tenant of an object, shortened texts, and advice.

use serde_json::Value;

use super::Case;
use tenure_tenancy::bounds::Names;
use tenure_tenancy::placement::TenantFacts;

/// The greatest length of a user's text in a message, and the greatest number of names.
const TOLD: usize = 256;
const NAMES_TOLD: usize = 8;

/// Returns the Tenant of the request's namespace, and the object. The bounds apply to every user that writes there: controllers create
/// objects for other users, and a user that may change the Tenant needs no exemption.
pub(super) fn find_tenant(case: Case<'_>) -> Option<(&TenantFacts, &Value)> {
    let object = case.request.object.filter(|_| case.request.writes())?;
    let tenant = case.tenant?;
    Some((tenant, object))
}

/// Returns a user's text, shortened for a message.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the advice for a name that isn't allowed.
pub(super) fn advise(field: &str, names: Names<'_>) -> String {
    let mut told = tell(names.default.into_iter().chain(names.exact.iter().map(String::as_str)));
    if let Some(expression) = names.expression {
        if !told.is_empty() {
            told.push_str(", ");
        }
        told.push_str("what matches ");
        told.push_str(&shorten(expression));
    }
    write_advice(field, &told)
}

/// Returns the advice for a plain list of allowed names.
pub(super) fn advise_of(field: &str, names: &[String]) -> String {
    write_advice(field, &tell(names.iter().map(String::as_str)))
}

/// Returns the beginning of the advice about a field of allowed values.
pub(super) fn begin_advice(field: &str) -> String {
    format!("take what the Tenant's {field} allows")
}

fn write_advice(field: &str, told: &str) -> String {
    match told {
        "" => begin_advice(field),
        told => format!("{}: {told}", begin_advice(field)),
    }
}

fn tell<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let told: Vec<String> = names.clone().take(NAMES_TOLD).map(shorten).collect();
    match names.count().saturating_sub(NAMES_TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}
