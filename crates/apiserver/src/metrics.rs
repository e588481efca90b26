//! `/metrics` in Prometheus' text form, under the names that dashboards of Kubernetes look for: requests by verb and
//! resource, their durations, what is in flight, what is stored, and the process itself.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::{Response, StatusCode};
use parking_lot::RwLock;

use crate::fairness::{Fairness, Held};
use crate::http::{Body, RequestInfo, respond};
use crate::keys;
use crate::registry::Registry;
use crate::routes::version;
use crate::surroundings::Surroundings;

/// The upper ends of the buckets of durations, in seconds: as the real server has them.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Combinations of labels that are kept apart; what comes after is counted nowhere.
const SERIES: usize = 10_000;

/// Counters since the start.
#[derive(Debug)]
pub(crate) struct Metrics {
    hasher: RandomState,
    requests: RwLock<HashMap<u64, Arc<Series>>>,
    watches: RwLock<HashMap<u64, Arc<Series>>>,
    in_flight: [AtomicI64; 2],
    started: SystemTime,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            requests: RwLock::default(),
            watches: RwLock::default(),
            in_flight: Default::default(),
            started: SystemTime::now(),
        }
    }
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    code: u16,
    count: AtomicU64,
    /// The sum of durations in microseconds.
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
    /// For watches: how many are open.
    open: AtomicI64,
}

/// What tells series apart, beside the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    dry_run: &'static str,
}

/// What of a request is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) info: &'a RequestInfo,
    /// Whether a patch is an apply.
    pub(crate) apply: bool,
    pub(crate) dry_run: bool,
}

impl Counted<'_> {
    fn verb(self) -> &'static str {
        match self.info.verb.as_str() {
            "get" | "head" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" | "post" => "POST",
            "update" | "put" => "PUT",
            "patch" if self.apply => "APPLY",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            _ => "other",
        }
    }

    fn scope(self) -> &'static str {
        let info = self.info;
        match (info.is_resource, &info.name, &info.namespace) {
            (false, ..) => "",
            (_, Some(_), _) => "resource",
            _ if info.verb == "create" => "resource",
            (_, None, Some(_)) => "namespace",
            (_, None, None) => "cluster",
        }
    }

    /// What a path is called: the first part only, for clients invent the rest.
    fn path(self) -> &'static str {
        match self
            .info
            .path
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default()
        {
            "api" => "api",
            "apis" => "apis",
            "healthz" => "/healthz",
            "livez" => "/livez",
            "readyz" => "/readyz",
            "metrics" => "/metrics",
            "openapi" => "openapi",
            "openid" => "/openid",
            "version" => "/version",
            _ => "",
        }
    }

    /// Whatever a client invents must not grow the table: only what was found is named.
    fn labels(self, found: bool) -> Labels {
        let of = |text: &str| if found { text.to_owned() } else { String::new() };
        let info = self.info;
        Labels {
            verb: self.verb(),
            group: of(&info.group),
            version: of(&info.version),
            resource: of(&info.resource),
            subresource: if info.is_resource {
                of(info.subresource.as_deref().unwrap_or_default())
            } else {
                self.path().to_owned()
            },
            scope: self.scope(),
            dry_run: if self.dry_run { "All" } else { "" },
        }
    }
}

/// One of the things that are being worked on; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicI64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open watch; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch(Arc<Series>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// A request that is not a watch is being worked on.
    pub(crate) fn enter(&self, info: &RequestInfo) -> InFlight<'_> {
        let [reading, writing] = &self.in_flight;
        let reads = matches!(info.verb.as_str(), "get" | "list" | "head");
        let gauge = if reads { reading } else { writing };
        gauge.fetch_add(1, Ordering::Relaxed);
        InFlight(gauge)
    }

    /// A watch is open.
    pub(crate) fn watch(&self, counted: Counted<'_>) -> Option<OpenWatch> {
        let series = self.series(&self.watches, counted, 200)?;
        series.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenWatch(series))
    }

    /// Counts one answered request. A watch counts when it begins.
    pub(crate) fn count(&self, counted: Counted<'_>, code: u16, duration: Duration) {
        let Some(series) = self.series(&self.requests, counted, code) else {
            return;
        };
        series.count.fetch_add(1, Ordering::Relaxed);
        if counted.info.verb == "watch" {
            return;
        }
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        series.micros.fetch_add(micros, Ordering::Relaxed);
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|end| seconds <= *end);
        if let Some(bucket) = bucket.and_then(|index| series.buckets.get(index)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn series(
        &self,
        table: &RwLock<HashMap<u64, Arc<Series>>>,
        counted: Counted<'_>,
        code: u16,
    ) -> Option<Arc<Series>> {
        let info = counted.info;
        let found = info.is_resource && code != 404;
        let named = found.then_some((&info.group, &info.version, &info.resource, &info.subresource));
        let short = (counted.verb(), counted.path(), counted.scope(), counted.dry_run, code);
        let key = self.hasher.hash_one((named, short));
        if let Some(series) = table.read().get(&key) {
            return Some(series.clone());
        }
        let mut table = table.write();
        if table.len() >= SERIES {
            return None;
        }
        let series = table.entry(key).or_insert_with(|| {
            Arc::new(Series {
                labels: counted.labels(found),
                code,
                count: AtomicU64::new(0),
                micros: AtomicU64::new(0),
                buckets: Default::default(),
                open: AtomicI64::new(0),
            })
        });
        Some(series.clone())
    }

    /// The answer to `/metrics`.
    pub(crate) fn serve(
        &self,
        registry: &Registry,
        fairness: &Fairness,
        surroundings: &Surroundings,
    ) -> Response<Body> {
        let mut out = String::new();
        self.write_requests(&mut out);
        let [reading, writing] = &self.in_flight;
        let in_flight =
            |kind: &str, gauge: &AtomicI64| (format!("request_kind=\"{kind}\""), gauge.load(Ordering::Relaxed));
        family(
            &mut out,
            "apiserver_current_inflight_requests",
            "gauge",
            [in_flight("readOnly", reading), in_flight("mutating", writing)],
        );
        let open = sorted(&self.watches).into_iter();
        let open = open.map(|series| (series.labels.text(), series.open.load(Ordering::Relaxed)));
        family(&mut out, "apiserver_longrunning_requests", "gauge", open);
        let rejected = [("reason=\"concurrency-limit\"".to_owned(), fairness.rejected())];
        family(
            &mut out,
            "apiserver_flowcontrol_rejected_requests_total",
            "counter",
            rejected,
        );
        for (name, held) in [
            ("tenure_answer_bytes", Held::Answers),
            ("tenure_request_body_bytes", Held::Bodies),
            ("tenure_request_object_bytes", Held::Objects),
        ] {
            let (held, exempt) = fairness.ledger(held).held();
            let held = [
                ("bounded=\"true\"".to_owned(), held),
                ("bounded=\"false\"".to_owned(), exempt),
            ];
            family(&mut out, name, "gauge", held);
        }
        write_store(&mut out, registry);
        for (name, count) in surroundings.counters() {
            family(&mut out, name, "counter", [(String::new(), count)]);
        }
        let build = format!(
            "git_version=\"{}\",major=\"{}\",minor=\"{}\",platform=\"{}\"",
            version::GIT_VERSION,
            version::MAJOR,
            version::MINOR,
            version::platform()
        );
        family(&mut out, "kubernetes_build_info", "gauge", [(build, 1)]);
        self.write_process(&mut out);
        respond::text(StatusCode::OK, out)
    }

    fn write_requests(&self, out: &mut String) {
        let requests = sorted(&self.requests);
        let counts = requests.iter().map(|series| {
            let labels = format!("code=\"{}\",{}", series.code, series.labels.text());
            (labels, series.count.load(Ordering::Relaxed))
        });
        family(out, "apiserver_request_total", "counter", counts);
        // Durations are not told apart by code.
        let mut durations: BTreeMap<&Labels, (u64, u64, [u64; BUCKETS.len()])> = BTreeMap::new();
        for series in requests.iter().filter(|series| series.labels.verb != "WATCH") {
            let (count, micros, buckets) = durations.entry(&series.labels).or_default();
            *count += series.count.load(Ordering::Relaxed);
            *micros += series.micros.load(Ordering::Relaxed);
            for (sum, bucket) in buckets.iter_mut().zip(&series.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        let name = "apiserver_request_duration_seconds";
        let _ = writeln!(out, "# TYPE {name} histogram");
        for (labels, (count, micros, buckets)) in durations {
            let labels = labels.text();
            let mut below = 0;
            for (end, bucket) in BUCKETS.iter().zip(buckets) {
                below += bucket;
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{end}\"}} {below}");
            }
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "{name}_sum{{{labels}}} {:.6}", micros as f64 / 1e6);
            let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
        }
    }

    /// What the operating system counts; nothing where it can't be read.
    fn write_process(&self, out: &mut String) {
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start = [(String::new(), started.as_secs())];
        family(out, "process_start_time_seconds", "gauge", start);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        for (name, field) in [
            ("process_resident_memory_bytes", "VmRSS:"),
            ("process_virtual_memory_bytes", "VmSize:"),
        ] {
            if let Some(kilobytes) = kilobytes(field) {
                family(out, name, "gauge", [(String::new(), kilobytes * 1024)]);
            }
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            family(out, "process_open_fds", "gauge", [(String::new(), open.count())]);
        }
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // utime and stime, the 12th and 13th field after the command's name (proc(5)), in hundredths of a second.
        let fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(11)
            .take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        if ticks > 0 {
            let seconds = format!("{:.2}", ticks as f64 / 100.0);
            family(out, "process_cpu_seconds_total", "counter", [(String::new(), seconds)]);
        }
    }
}

fn write_store(out: &mut String, registry: &Registry) {
    let store = registry.store();
    let snapshot = store.snapshot();
    let mut objects: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut bytes = 0;
    for (key, entry) in snapshot.range(keys::ALL, None) {
        let Some(parts) = keys::read(key) else {
            continue;
        };
        *objects.entry((parts.group, parts.plural)).or_default() += 1;
        bytes += entry.bytes.len();
    }
    let named = |group: &str, plural: &str| format!("group=\"{}\",resource=\"{}\"", safe(group), safe(plural));
    let stored = objects
        .iter()
        .map(|((group, plural), count)| (named(group, plural), *count));
    family(out, "apiserver_resource_objects", "gauge", stored);
    let joined = |group: &str, plural: &str| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("resource=\"{}{dot}{}\"", safe(plural), safe(group))
    };
    let stored = objects
        .iter()
        .map(|((group, plural), count)| (joined(group, plural), *count));
    family(out, "apiserver_storage_objects", "gauge", stored);
    let whole = |value: u64| [(String::new(), value)];
    let writable = u64::from(store.writable().is_ok());
    family(out, "tenure_store_writable", "gauge", whole(writable));
    family(out, "tenure_store_objects", "gauge", whole(snapshot.len() as u64));
    family(out, "tenure_store_object_bytes", "gauge", whole(bytes as u64));
    family(out, "tenure_store_revision", "counter", whole(snapshot.revision()));
    family(
        out,
        "tenure_store_compacted_revision",
        "counter",
        whole(store.compacted()),
    );
}

/// One family of series.
fn family<V: std::fmt::Display>(
    out: &mut String,
    name: &str,
    kind: &str,
    series: impl IntoIterator<Item = (String, V)>,
) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for (labels, value) in series {
        let _ = if labels.is_empty() {
            writeln!(out, "{name} {value}")
        } else {
            writeln!(out, "{name}{{{labels}}} {value}")
        };
    }
}

fn sorted(table: &RwLock<HashMap<u64, Arc<Series>>>) -> Vec<Arc<Series>> {
    let mut all: Vec<_> = table.read().values().cloned().collect();
    all.sort_by(|left, right| (&left.labels, left.code).cmp(&(&right.labels, right.code)));
    all
}

fn safe(text: &str) -> String {
    text.replace(['"', '\\', '\n'], "_")
}

impl Labels {
    fn text(&self) -> String {
        format!(
            "component=\"apiserver\",dry_run=\"{}\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
            self.dry_run,
            safe(&self.group),
            safe(&self.resource),
            self.scope,
            safe(&self.subresource),
            self.verb,
            safe(&self.version)
        )
    }
}
