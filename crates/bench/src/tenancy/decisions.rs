//! The time of a decision about a write, by the guard of the embedded control plane without a server around it: many clients at once, while namespaces come and go. The
//! time of a server before and after the decision is not included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tenure_admission::EmbeddedGuard;
use tenure_apiserver::{Guard as _, GuardPlace, GuardQueries, GuardQuestion, Review, Ruling};
use tenure_tenancy::Settings;

use crate::process::memory_of;
use crate::report::{Report, find_percentile, format_megabytes};

/// The number of Tenants, and the namespaces of each.
const TENANTS: usize = 1_000;
const NAMESPACES: usize = 3;
/// The clients at the same time, and the requests of each.
const CLIENTS: usize = 16;
const ASKED: usize = 50_000;
/// The pause between two changes of namespaces.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a written object.
const LARGE: usize = 4 << 10;

/// A server that stores only Tenants and namespaces, with users that have only their RBAC rights.
struct Nothing;

impl GuardQueries for Nothing {
    fn may(&self, _: &GuardQuestion<'_>) -> bool {
        false
    }

    fn may_account(&self, _: (&str, &str), _: &GuardQuestion<'_>) -> bool {
        false
    }

    fn find(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }
}

/// The attributes of a write for RBAC and admission: the resource, the object's name, and the user.
#[derive(Debug)]
struct WriteRequest {
    group: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
    user: String,
}

/// A write: the request, and its object.
struct Write {
    request: WriteRequest,
    object: Value,
    is_allowed: bool,
}

/// Measures decisions.
pub(super) fn measure(report: &mut Report) -> anyhow::Result<()> {
    let before = memory_of(std::process::id())?.0;
    let guard = EmbeddedGuard::new(Settings::default());
    for index in 0..TENANTS {
        learn_tenant(&guard, index);
    }
    let known = memory_of(std::process::id())?.0.saturating_sub(before);
    let many = format!("{TENANTS} Tenants of {NAMESPACES} namespaces known");
    report.add(format!("{many}: memory"), format_megabytes(known), None, "20 MB");

    let is_over = AtomicBool::new(false);
    let (mut all, changes) = std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut changes = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let name = format!("tenant-0-{}", changes / 2 % 50);
                let namespace = write_namespace(&name, 0);
                let made = changes.is_multiple_of(2).then_some(&namespace);
                guard.record_object(("", "namespaces"), make_place(&name), made);
                changes += 1;
                std::thread::sleep(PAUSE);
            }
            changes
        });
        let guard = &guard;
        let asking: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || ask_guard(guard, client)))
            .collect();
        let asked = asking.into_iter().map(|asking| match asking.join() {
            Ok(asked) => asked,
            Err(_) => bail!("a client of the guard panicked"),
        });
        let asked: anyhow::Result<Vec<_>> = asked.collect();
        is_over.store(true, Ordering::Relaxed);
        let changes = changing.join().ok().context("who changes namespaces panicked")?;
        Ok::<_, anyhow::Error>((asked?.concat(), changes))
    })?;
    report.add(
        format!(
            "{many}, {changes} changes of namespaces meanwhile: a decision about an object of 4 KB (p50, p99 of {})",
            all.len()
        ),
        format!(
            "{}, {}",
            format_microseconds(find_percentile(&mut all, 0.5)),
            format_microseconds(find_percentile(&mut all, 0.99))
        ),
        None,
        "p99 50 µs",
    );
    Ok(())
}

fn format_microseconds(duration: Duration) -> String {
    format!("{:.1} µs", duration.as_secs_f64() * 1e6)
}

/// Runs one client and returns the time of each of its decisions. Another thread may have had the processor in between.
fn ask_guard(guard: &EmbeddedGuard, client: usize) -> anyhow::Result<Vec<Duration>> {
    let writes = list_writes(client);
    let groups = ["system:authenticated".to_owned()];
    let extra = BTreeMap::new();
    let mut took = Vec::with_capacity(ASKED);
    for write in writes.iter().cycle().take(ASKED) {
        let review = Review {
            operation: "CREATE",
            group: write.request.group,
            resource: write.request.resource,
            subresource: "",
            namespace: &write.request.namespace,
            name: &write.request.name,
            user: &write.request.user,
            groups: &groups,
            extra: &extra,
            is_dry_run: true,
            object: Some(&write.object),
            old_object: None,
            is_settled: true,
        };
        let began = Instant::now();
        let ruling = guard.judge(&review, &Nothing);
        took.push(began.elapsed());
        let is_allowed = matches!(ruling, Ruling::Allow { .. });
        if is_allowed != write.is_allowed {
            bail!("{:?}: {ruling:?}", write.request);
        }
    }
    Ok(took)
}

/// Returns the place of an object without a namespace.
fn make_place(name: &str) -> GuardPlace<'_> {
    GuardPlace { namespace: "", name }
}

fn learn_tenant(guard: &EmbeddedGuard, index: usize) {
    let names = list_namespaces(index);
    let spaces: Vec<Value> = names
        .iter()
        .map(|name| json!({ "name": name, "uid": uid_of(name) }))
        .collect();
    let name = format!("tenant-{index}");
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name, "uid": uid_of(&name) },
        "spec": {
            "owners": [{ "kind": "User", "name": format!("owner-{index}") }],
            "namespaceOptions": { "quota": 100 },
            "containerRegistries": { "allowed": ["registry.example"] }
        },
        "status": { "spaces": spaces }
    });
    guard.record_object(("capsule.clastix.io", "tenants"), make_place(&name), Some(&tenant));
    for name in names {
        guard.record_object(
            ("", "namespaces"),
            make_place(&name),
            Some(&write_namespace(&name, index)),
        );
    }
}

fn list_namespaces(index: usize) -> Vec<String> {
    let more = (1..NAMESPACES).map(|number| format!("tenant-{index}-{number}"));
    std::iter::once(format!("tenant-{index}")).chain(more).collect()
}

fn uid_of(name: &str) -> String {
    format!("uid-of-{name}")
}

fn write_namespace(name: &str, index: usize) -> Value {
    let tenant = format!("tenant-{index}");
    let owner =
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant, "uid": uid_of(&tenant) });
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "uid": uid_of(name), "labels": { "capsule.clastix.io/tenant": tenant }, "ownerReferences": [owner] }
    })
}

/// Lists the writes of an owner: most are in its own namespace, and some are refused.
fn list_writes(client: usize) -> Vec<Write> {
    let index = client * 7 + 1;
    let namespace = format!("tenant-{index}-1");
    let text = "x".repeat(LARGE);
    let request = |group: &'static str, resource: &'static str, namespace: &str, name: &str| WriteRequest {
        group,
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        user: format!("owner-{index}"),
    };
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace, "annotations": { "text": text } });
    let pod = |image: &str| json!({ "metadata": metadata("pod"), "spec": { "containers": [{ "name": "app", "image": image, "imagePullPolicy": "Always" }] } });
    let write = |request: WriteRequest, object: Value, is_allowed: bool| Write {
        request,
        object,
        is_allowed,
    };
    vec![
        write(
            request("", "configmaps", &namespace, "text"),
            json!({ "metadata": { "name": "text", "namespace": namespace }, "data": { "text": text } }),
            true,
        ),
        write(
            request("", "pods", &namespace, "pod"),
            pod("registry.example/app:1"),
            true,
        ),
        write(
            request("", "pods", &namespace, "pod"),
            pod("elsewhere.example/app:1"),
            false,
        ),
        write(
            request(
                "",
                "namespaces",
                &format!("tenant-{index}-more"),
                &format!("tenant-{index}-more"),
            ),
            json!({ "metadata": { "name": format!("tenant-{index}-more"), "annotations": { "text": text } } }),
            true,
        ),
        write(
            request(
                "kustomize.toolkit.fluxcd.io",
                "kustomizations",
                &format!("tenant-{index}"),
                "apps",
            ),
            json!({
                "metadata": { "name": "apps", "namespace": format!("tenant-{index}"), "annotations": { "text": text } },
                "spec": { "interval": "1h", "prune": true, "path": "./", "sourceRef": { "kind": "GitRepository", "name": "apps", "namespace": "tenant-0" } }
            }),
            false,
        ),
    ]
}
