//! `/healthz`, `/livez` and `/readyz`, alone or with the name of one check, short or verbose.

use std::fmt::Write;

use http::{Response, StatusCode};

use crate::http::query::Query;
use crate::http::{Body, respond};
use crate::registry::Registry;

/// Answers a health path; `None` for other paths. `more` are the readiness checks of the embedding program.
pub(crate) fn serve(
    path: &str,
    query: &Query,
    registry: &Registry,
    stopping: bool,
    more: Vec<(&'static str, bool)>,
) -> Option<Response<Body>> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let endpoint = parts
        .next()
        .filter(|endpoint| matches!(*endpoint, "healthz" | "livez" | "readyz"))?;
    // A store that can't be written is still readable, and a restart frees no disk space: the server is alive, and
    // not ready.
    let mut checks = vec![("ping", true), ("store", registry.store().revision() > 0)];
    if endpoint == "readyz" {
        checks = vec![("ping", true), ("store", registry.store().check_writable().is_ok())];
        checks.extend(more);
        checks.push(("shutdown", !stopping));
    }
    if let Some(wanted) = parts.next().filter(|wanted| !wanted.is_empty()) {
        // The store has the role of etcd, and monitoring uses that name for the check.
        let wanted = if wanted == "etcd" { "store" } else { wanted };
        return Some(match checks.iter().find(|(name, _)| *name == wanted) {
            None => respond::not_found(),
            Some((_, true)) => respond::with_text(StatusCode::OK, "ok"),
            Some((name, false)) => answer_failure(&format!("internal server error: {name} failed\n")),
        });
    }
    let mut unmatched: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    let mut healthy = true;
    let mut report = String::new();
    for (name, ok) in &checks {
        let asked = unmatched.len();
        unmatched.retain(|excluded| excluded != name);
        let excluded = unmatched.len() < asked;
        let _ = match (excluded, ok) {
            (true, _) => writeln!(report, "[+]{name} excluded: ok"),
            (false, true) => writeln!(report, "[+]{name} ok"),
            (false, false) => writeln!(report, "[-]{name} failed: reason withheld"),
        };
        healthy &= *ok || excluded;
    }
    if !unmatched.is_empty() {
        unmatched.sort_unstable();
        let names: Vec<String> = unmatched.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(",")
        );
    }
    let _ = writeln!(report, "{endpoint} check {}", if healthy { "passed" } else { "failed" });
    Some(match (healthy, query.is_flag_set("verbose")) {
        (true, false) => respond::with_text(StatusCode::OK, "ok"),
        (true, true) => respond::with_text(StatusCode::OK, report),
        (false, _) => answer_failure(&report),
    })
}

fn answer_failure(report: &str) -> Response<Body> {
    respond::with_text(StatusCode::INTERNAL_SERVER_ERROR, report.to_owned())
}
