//! `/metrics` in Prometheus' text form, under the names that dashboards of Kubernetes expect. The metrics are:
//! requests by verb and resource, durations, requests in flight, stored objects, and the process itself.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::{Response, StatusCode};
use parking_lot::RwLock;
use tenure_exposition::{FamilyKind, Labels, begin_family, write_family, write_histogram};

use crate::fairness::{Fairness, MemoryUse};
use crate::http::{Body, RequestInfo, respond};
use crate::keys;
use crate::program_hooks::ProgramHooks;
use crate::registry::Registry;
use crate::routes::version;

/// The upper ends of the buckets of durations, in seconds: kube-apiserver's buckets.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Limit for combinations of labels; later ones are not counted.
const SERIES: usize = 10_000;

/// The counters of requests and watches since the start, for `/metrics`.
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

/// The counters of the requests with equal labels and code.
#[derive(Debug)]
struct Series {
    labels: MetricLabels,
    code: u16,
    count: AtomicU64,
    /// The sum of durations in microseconds.
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
    /// For watches: the number of open ones.
    open: AtomicI64,
}

/// The labels of a series, except the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MetricLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    dry_run: &'static str,
}

/// The properties of a request that choose its metric labels.
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

    /// Returns the label for a path: only its first part, as clients invent the rest.
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

    /// Returns the labels. Only a resource that was found is named, so that clients can't grow the table with
    /// invented names.
    fn labels(self, found: bool) -> MetricLabels {
        let of = |text: &str| if found { text.to_owned() } else { String::new() };
        let info = self.info;
        MetricLabels {
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

/// A running request in the metrics, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicI64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open watch in the metrics, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch(Arc<Series>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a running request other than a watch.
    pub(crate) fn count_in_flight(&self, info: &RequestInfo) -> InFlight<'_> {
        let [reading, writing] = &self.in_flight;
        let reads = matches!(info.verb.as_str(), "get" | "list" | "head");
        let gauge = if reads { reading } else { writing };
        gauge.fetch_add(1, Ordering::Relaxed);
        InFlight(gauge)
    }

    /// Counts an open watch.
    pub(crate) fn watch(&self, counted: Counted<'_>) -> Option<OpenWatch> {
        let series = self.find_series(&self.watches, counted, 200)?;
        series.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenWatch(series))
    }

    /// Counts one answered request. A watch counts when it begins.
    pub(crate) fn count_answer(&self, counted: Counted<'_>, code: u16, duration: Duration) {
        let Some(series) = self.find_series(&self.requests, counted, code) else {
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

    fn find_series(
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

    /// Returns the answer to `/metrics`.
    pub(crate) fn serve(
        &self,
        registry: &Registry,
        fairness: &Fairness,
        surroundings: &ProgramHooks,
    ) -> Response<Body> {
        let mut out = String::new();
        self.write_requests(&mut out);
        let [reading, writing] = &self.in_flight;
        let in_flight =
            |kind: &str, gauge: &AtomicI64| (Labels::of(&[("request_kind", kind)]), gauge.load(Ordering::Relaxed));
        write_gauges(
            &mut out,
            "apiserver_current_inflight_requests",
            [in_flight("readOnly", reading), in_flight("mutating", writing)],
        );
        let open = sort_series(&self.watches).into_iter();
        let open = open.map(|series| (series.labels.write(None), series.open.load(Ordering::Relaxed)));
        write_gauges(&mut out, "apiserver_longrunning_requests", open);
        let rejected = [(
            Labels::of(&[("reason", "concurrency-limit")]),
            fairness.rejected_count(),
        )];
        write_counters(&mut out, "apiserver_flowcontrol_rejected_requests_total", rejected);
        for (name, held) in [
            ("tenure_answer_bytes", MemoryUse::Answers),
            ("tenure_request_body_bytes", MemoryUse::Bodies),
            ("tenure_request_object_bytes", MemoryUse::Objects),
        ] {
            let (held, exempt) = fairness.ledger(held).held_bytes();
            let held = [("true", held), ("false", exempt)];
            write_gauges(
                &mut out,
                name,
                held.map(|(bounded, held)| (Labels::of(&[("bounded", bounded)]), held)),
            );
        }
        write_store(&mut out, registry);
        for (name, count) in surroundings.counters() {
            write_counters(&mut out, name, [(Labels::none(), count)]);
        }
        let build = Labels::of(&[
            ("git_version", version::GIT_VERSION),
            ("major", version::MAJOR),
            ("minor", version::MINOR),
            ("platform", &version::machine_platform()),
        ]);
        write_gauges(&mut out, "kubernetes_build_info", [(build, 1)]);
        write_process_figures(&mut out, self.started);
        surroundings.write_figures(&mut out);
        respond::with_text(StatusCode::OK, out)
    }

    fn write_requests(&self, out: &mut String) {
        let requests = sort_series(&self.requests);
        let counts = requests.iter().map(|series| {
            let labels = series.labels.write(Some(series.code));
            (labels, series.count.load(Ordering::Relaxed))
        });
        write_counters(out, "apiserver_request_total", counts);
        // Series of durations have no code.
        let mut durations: BTreeMap<&MetricLabels, (u64, u64, [u64; BUCKETS.len()])> = BTreeMap::new();
        for series in requests.iter().filter(|series| series.labels.verb != "WATCH") {
            let (count, micros, buckets) = durations.entry(&series.labels).or_default();
            *count += series.count.load(Ordering::Relaxed);
            *micros += series.micros.load(Ordering::Relaxed);
            for (sum, bucket) in buckets.iter_mut().zip(&series.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        let name = "apiserver_request_duration_seconds";
        begin_family(out, name, FamilyKind::Histogram, "");
        for (labels, (count, micros, buckets)) in durations {
            let sum = format_args!("{:.6}", micros as f64 / 1e6).to_string();
            write_histogram(out, (name, &labels.write(None)), &BUCKETS, &buckets, (sum, count));
        }
    }
}

/// Writes the operating system's counters of this process, which was started at `started`; nothing if they are
/// unreadable.
pub fn write_process_figures(out: &mut String, started: SystemTime) {
    let started = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = [(Labels::none(), started.as_secs())];
    write_gauges(out, "process_start_time_seconds", start);
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
            write_gauges(out, name, [(Labels::none(), kilobytes * 1024)]);
        }
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        write_gauges(out, "process_open_fds", [(Labels::none(), open.count())]);
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
        write_counters(out, "process_cpu_seconds_total", [(Labels::none(), seconds)]);
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
    let named = |group: &str, plural: &str| Labels::of(&[("group", group), ("resource", plural)]);
    let stored = objects
        .iter()
        .map(|((group, plural), count)| (named(group, plural), *count));
    write_gauges(out, "apiserver_resource_objects", stored);
    let joined = |group: &str, plural: &str| {
        let dot = if group.is_empty() { "" } else { "." };
        Labels::of(&[("resource", &format!("{plural}{dot}{group}"))])
    };
    let stored = objects
        .iter()
        .map(|((group, plural), count)| (joined(group, plural), *count));
    write_gauges(out, "apiserver_storage_objects", stored);
    let whole = |value: u64| [(Labels::none(), value)];
    let writable = u64::from(store.check_writable().is_ok());
    write_gauges(out, "tenure_store_writable", whole(writable));
    write_gauges(out, "tenure_store_objects", whole(snapshot.len() as u64));
    write_gauges(out, "tenure_store_object_bytes", whole(bytes as u64));
    write_counters(out, "tenure_store_revision", whole(snapshot.revision()));
    write_counters(
        out,
        "tenure_store_compacted_revision",
        whole(store.compacted_revision()),
    );
}

fn write_gauges<V: std::fmt::Display>(out: &mut String, name: &str, series: impl IntoIterator<Item = (Labels, V)>) {
    write_family(out, (name, FamilyKind::Gauge, ""), series);
}

fn write_counters<V: std::fmt::Display>(out: &mut String, name: &str, series: impl IntoIterator<Item = (Labels, V)>) {
    write_family(out, (name, FamilyKind::Counter, ""), series);
}

fn sort_series(table: &RwLock<HashMap<u64, Arc<Series>>>) -> Vec<Arc<Series>> {
    let mut all: Vec<_> = table.read().values().cloned().collect();
    all.sort_by(|left, right| (&left.labels, left.code).cmp(&(&right.labels, right.code)));
    all
}

impl MetricLabels {
    fn write(&self, code: Option<u16>) -> Labels {
        let labels = match code {
            Some(code) => Labels::of(&[("code", &code.to_string())]),
            None => Labels::none(),
        };
        [
            ("component", "apiserver"),
            ("dry_run", self.dry_run),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
        .into_iter()
        .fold(labels, |labels, (name, value)| labels.with(name, value))
    }
}
