//! The query parameters of object requests, as the registry wants them.

use std::time::Duration;

use http::HeaderMap;

use crate::catalog::Resource;
use crate::http::query::Query;
use crate::http::{ApiError, FieldError};
use crate::registry::{DeleteOptions, FieldValidation, ListOptions, RevisionMatch, Selectors, WatchOptions};

/// How long a watch lasts that names no timeout: Kubernetes' half hour, and up to as much again.
const WATCH_SECONDS: u64 = 30 * 60;

pub(crate) fn dry_run(query: &Query, kind: &str) -> Result<bool, ApiError> {
    let mut found = false;
    for value in query.all("dryRun") {
        if value != "All" {
            let error = FieldError::not_supported("dryRun", vec![value], &["All"]);
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]));
        }
        found = true;
    }
    Ok(found)
}

/// The manager that a write names, or else the program in its User-Agent.
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

pub(crate) fn field_validation(query: &Query, kind: &str) -> Result<FieldValidation, ApiError> {
    match query.get("fieldValidation") {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some(other) => {
            let error = FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
            Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]))
        }
    }
}

fn revision_match(query: &Query) -> Result<Option<RevisionMatch>, ApiError> {
    match query.get("resourceVersionMatch") {
        None => Ok(None),
        Some("Exact") => Ok(Some(RevisionMatch::Exact)),
        Some("NotOlderThan") => Ok(Some(RevisionMatch::NotOlderThan)),
        Some(other) => {
            let error = FieldError::not_supported("resourceVersionMatch", other, &["Exact", "NotOlderThan", ""]);
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
        }
    }
}

fn selectors(query: &Query, resource: &Resource, name: Option<&str>) -> Result<Selectors, ApiError> {
    let fields = query.get("fieldSelector");
    let named = name.map(|name| match fields {
        Some(fields) => format!("{fields},metadata.name={name}"),
        None => format!("metadata.name={name}"),
    });
    Selectors::parse(resource, query.get("labelSelector"), named.as_deref().or(fields))
}

pub(crate) fn list(query: &Query, resource: &Resource) -> Result<ListOptions, ApiError> {
    let limit = query.number("limit")?.unwrap_or(0);
    Ok(ListOptions {
        selectors: selectors(query, resource, None)?,
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: query.get("continue").map(str::to_owned),
        resource_version: query.get("resourceVersion").map(str::to_owned),
        resource_version_match: revision_match(query)?,
    })
}

pub(crate) fn watch(query: &Query, resource: &Resource, name: Option<&str>) -> Result<WatchOptions, ApiError> {
    let seconds = match query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => seconds.unsigned_abs(),
        // Spread the ends, so that a thousand watches that began together don't come back together.
        _ => WATCH_SECONDS + jitter() % WATCH_SECONDS,
    };
    Ok(WatchOptions {
        selectors: selectors(query, resource, name)?,
        resource_version: query.get("resourceVersion").map(str::to_owned),
        resource_version_match: revision_match(query)?,
        send_initial_events: query
            .get("sendInitialEvents")
            .map(|value| !matches!(value, "0" | "false")),
        bookmarks: query.flag("allowWatchBookmarks"),
        timeout: Duration::from_secs(seconds),
    })
}

fn jitter() -> u64 {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 8];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Options of a deletion in the query; a body, if there is one, wins.
pub(crate) fn delete(query: &Query) -> Result<DeleteOptions, ApiError> {
    let orphan = query.get("orphanDependents").map(|value| value == "true");
    Ok(DeleteOptions {
        propagation_policy: query
            .get("propagationPolicy")
            .map(str::to_owned)
            .or_else(|| orphan.map(|orphan| if orphan { "Orphan" } else { "Background" }.to_owned())),
        grace_period_seconds: query.number("gracePeriodSeconds")?,
        dry_run: dry_run(query, "DeleteOptions")?,
        ..DeleteOptions::default()
    })
}
