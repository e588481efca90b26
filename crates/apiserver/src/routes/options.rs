//! The query parameters of object requests, in the registry's types.

use std::sync::LazyLock;
use std::time::Duration;

use http::HeaderMap;
use regex::Regex;
use tenure_kinds::schema::FieldErrorKind;

use crate::catalog::Resource;
use crate::http::query::Query;
use crate::http::{ApiError, FieldError};
use crate::operation::{DeleteOptions, FieldValidation};
use crate::registry::{ListOptions, RevisionMatch, WatchOptions};
use crate::selectors::Selectors;

/// Duration of a watch without a timeout: Kubernetes' half hour, and a random time of at most the same length.
const WATCH_SECONDS: u64 = 30 * 60;

/// Refuses invalid options of a write. `apply` is `None` for other writes than patches, and says whether a patch is an
/// apply.
pub(crate) fn check(query: &Query, kind: &str, apply: Option<bool>) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    match apply {
        Some(true) if query.get("fieldManager").is_none() => {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        Some(false) if query.get("force").is_some() => {
            errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        _ => {}
    }
    if kind != "DeleteOptions" {
        errors.extend(query.get("fieldManager").into_iter().flat_map(manager_faults));
    }
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if dry_run.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", dry_run, &["All"]));
    }
    if let Some(mode) = query.get("fieldValidation")
        && kind != "DeleteOptions"
        && !matches!(mode, "Ignore" | "Strict" | "Warn")
    {
        let supported = ["", "Ignore", "Strict", "Warn"];
        errors.push(FieldError::not_supported("fieldValidation", mode, &supported));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", kind, "", &errors))
}

/// Printable characters by Go's definition.
static PRINTABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$").ok());
const LONGEST_MANAGER: usize = 128;

fn manager_faults(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > LONGEST_MANAGER {
        let detail = format!("may not be more than {LONGEST_MANAGER} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, "fieldManager", "", detail));
    }
    for (position, letter) in manager.char_indices() {
        let printable = PRINTABLE
            .as_ref()
            .is_some_and(|printable| printable.is_match(letter.encode_utf8(&mut [0; 4])));
        if !printable {
            let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
            errors.push(FieldError::invalid("fieldManager", manager, detail));
        }
    }
    errors
}

/// Checks whether the request is a dry run; [`check`] has validated the values.
pub(crate) fn dry_run(query: &Query) -> bool {
    query.all("dryRun").next().is_some()
}

/// Returns the manager of a write, or else the program in its User-Agent.
pub(crate) fn field_manager(query: &Query, headers: &HeaderMap) -> String {
    if let Some(manager) = query.get("fieldManager") {
        return manager.to_owned();
    }
    let agent = headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let program = agent.split('/').next().unwrap_or_default();
    let program: String = program.chars().take(128).collect();
    if program.is_empty() {
        "unknown".to_owned()
    } else {
        program
    }
}

/// Returns the handling of unknown fields; [`check`] has validated the value.
pub(crate) fn field_validation(query: &Query) -> FieldValidation {
    match query.get("fieldValidation") {
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        _ => FieldValidation::Warn,
    }
}

/// Refuses contradictory options of a list or a watch.
fn check_reading(query: &Query, watch: bool) -> Result<Option<RevisionMatch>, ApiError> {
    let field = "resourceVersionMatch";
    let forbidden = |detail: &str| FieldError::forbidden(field, detail);
    let initial = query.get("sendInitialEvents").is_some();
    let (matching, version) = (query.get(field), query.get("resourceVersion"));
    let mut errors = Vec::new();
    if watch && initial && matching != Some("NotOlderThan") {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(forbidden(detail));
    }
    match matching {
        None => {}
        Some(other) if watch => {
            if !initial {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(forbidden(detail));
            }
            if other != "NotOlderThan" {
                errors.push(FieldError::not_supported(field, other, &["NotOlderThan"]));
            }
            if query.get("continue").is_some() {
                errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        Some(other) => {
            if version.is_none() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if query.get("continue").is_some() {
                errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(other, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(field, other, &["Exact", "NotOlderThan", ""]));
            }
            if other == "Exact" && version == Some("0") {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(forbidden(detail));
            }
        }
    }
    if !watch && initial {
        let detail = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", detail));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    Ok(matching.map(|matching| {
        if matching == "Exact" {
            RevisionMatch::Exact
        } else {
            RevisionMatch::NotOlderThan
        }
    }))
}

pub(crate) fn list(query: &Query, resource: &Resource) -> Result<ListOptions, ApiError> {
    let limit = query.parse_number("limit")?.unwrap_or(0);
    query.parse_number("timeoutSeconds")?;
    // The order of errors: first the syntax of the label selector, then the options together, then the fields of the
    // field selector.
    let selectors = Selectors::parse_labels(query.get("labelSelector"))?;
    let resource_version_match = check_reading(query, false)?;
    Ok(ListOptions {
        selectors: selectors.with_fields(resource, query.get("fieldSelector"))?,
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: query.get("continue").map(str::to_owned),
        resource_version: query.get("resourceVersion").map(str::to_owned),
        resource_version_match,
        turns: None,
    })
}

pub(crate) fn watch(query: &Query, resource: &Resource, name: Option<&str>) -> Result<WatchOptions, ApiError> {
    let seconds = match query.parse_number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => seconds.unsigned_abs(),
        // Random ends, so that a thousand watches that began together don't restart together.
        _ => WATCH_SECONDS + random_jitter() % WATCH_SECONDS,
    };
    query.parse_number("limit")?;
    check_reading(query, true)?;
    let fields = query.get("fieldSelector");
    let named = name.map(|name| match fields {
        Some(fields) => format!("{fields},metadata.name={name}"),
        None => format!("metadata.name={name}"),
    });
    Ok(WatchOptions {
        selectors: Selectors::parse(resource, query.get("labelSelector"), named.as_deref().or(fields))?,
        resource_version: query.get("resourceVersion").map(str::to_owned),
        send_initial_events: query
            .get("sendInitialEvents")
            .map(|value| !matches!(value, "0" | "false")),
        bookmarks: query.is_flag_set("allowWatchBookmarks"),
        timeout: Duration::from_secs(seconds),
        turns: None,
    })
}

fn random_jitter() -> u64 {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 8];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Returns the options of a deletion in the query; a body has precedence.
pub(crate) fn delete(query: &Query) -> Result<DeleteOptions, ApiError> {
    check(query, "DeleteOptions", None)?;
    let orphan = query
        .get("orphanDependents")
        .map(|_| query.is_flag_set("orphanDependents"));
    let policy = query.get("propagationPolicy").map(str::to_owned);
    Ok(DeleteOptions {
        propagation_policy: DeleteOptions::merge_policies(policy, orphan)?,
        grace_period_seconds: query.parse_number("gracePeriodSeconds")?,
        dry_run: dry_run(query),
        ..DeleteOptions::default()
    })
}
