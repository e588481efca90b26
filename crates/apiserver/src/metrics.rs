//! `/metrics`: counts of requests and of stored objects, in Prometheus' text form.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use http::{Response, StatusCode};
use parking_lot::Mutex;

use crate::http::{Body, RequestInfo, respond};
use crate::registry::Registry;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Labels, Count>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    verb: String,
    group: String,
    resource: String,
    code: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    requests: u64,
    seconds: f64,
}

impl Metrics {
    /// Counts one answered request. A watch counts when it begins.
    pub(crate) fn count(&self, info: &RequestInfo, code: u16, duration: Duration) {
        // Whatever a client invents must not grow the table: only what was found is named.
        let found = info.is_resource && code != 404;
        let known = matches!(
            info.verb.as_str(),
            "get" | "list" | "watch" | "create" | "update" | "patch" | "delete" | "deletecollection" | "post" | "put"
        );
        let labels = Labels {
            verb: if known { info.verb.clone() } else { "other".to_owned() },
            group: if found { info.group.clone() } else { String::new() },
            resource: if found { info.resource.clone() } else { String::new() },
            code,
        };
        let mut requests = self.requests.lock();
        if requests.len() > 10_000 {
            return;
        }
        let count = requests.entry(labels).or_default();
        count.requests += 1;
        count.seconds += duration.as_secs_f64();
    }

    /// The answer to `/metrics`.
    pub(crate) fn serve(&self, registry: &Registry) -> Response<Body> {
        let mut out = String::from("# TYPE apiserver_request_total counter\n");
        let requests = self.requests.lock().clone();
        for (labels, count) in &requests {
            let _ = writeln!(out, "apiserver_request_total{{{}}} {}", labels.text(), count.requests);
        }
        out.push_str("# TYPE apiserver_request_seconds_total counter\n");
        for (labels, count) in &requests {
            let _ = writeln!(
                out,
                "apiserver_request_seconds_total{{{}}} {:.6}",
                labels.text(),
                count.seconds
            );
        }
        let snapshot = registry.store().snapshot();
        let _ = writeln!(
            out,
            "# TYPE tenure_store_revision counter\ntenure_store_revision {}",
            snapshot.revision()
        );
        let _ = writeln!(
            out,
            "# TYPE tenure_store_objects gauge\ntenure_store_objects {}",
            snapshot.len()
        );
        respond::text(StatusCode::OK, out)
    }
}

impl Labels {
    fn text(&self) -> String {
        let Self {
            verb,
            group,
            resource,
            code,
        } = self;
        let safe = |text: &str| text.replace(['"', '\\', '\n'], "_");
        format!(
            "verb={verb:?},group=\"{}\",resource=\"{}\",code=\"{code}\"",
            safe(group),
            safe(resource)
        )
    }
}
