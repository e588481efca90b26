//! What rules about a Tenant's bounds have in common: of whose objects they are, what is told of long texts, and what is advised.

use serde_json::Value;

use super::Case;
use crate::bounds::Names;
use crate::realm::TenantFacts;

/// How much of a text is told that somebody wrote, and of how many names.
const TOLD: usize = 256;
const NAMES_TOLD: usize = 8;

/// The Tenant in whose namespace something is written, and the object. Everybody is bound who writes there: controllers make what others
/// ask them for, and who may change the Tenant needs no way past it.
pub(super) fn find_tenant(case: Case<'_>) -> Option<(&TenantFacts, &Value)> {
    let object = case.request.object.filter(|_| case.request.writes())?;
    let tenant = case.tenant?;
    Some((tenant, object))
}

/// A text of somebody else's, no longer than a message has room for.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What to write instead of a name that isn't allowed.
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

/// The same of a plain list.
pub(super) fn advise_of(field: &str, names: &[String]) -> String {
    write_advice(field, &tell(names.iter().map(String::as_str)))
}

/// What is advised wherever a field says what is allowed.
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
