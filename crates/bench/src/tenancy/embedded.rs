//! Measures the cost of admission in the embedded control plane. Servers without and with it alternate: with the guard, with the policies alone, and with the policies of
//! every installation, the bounds of Tenure's accounts. All do the same work, and each meets the same leftovers of the others. A second server without a guard shows the
//! precision of the measurement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_admission::EmbeddedGuard;
use tenure_admission_rules::policy::{self, HandEditDenials, MintableAccounts};
use tenure_api::ObjectMeta;
use tenure_api::Tenant;
use tenure_apiserver::Guard;
use tenure_tenancy::{FactIndex, NamespaceFacts, Settings, TenantFacts};

use super::stage::{LARGE, Stage, for_each, list_namespaces, name_owner};
use crate::report::{Report, find_percentile};

/// The number of turns of each server. A pass is short, and each is compared with the pass beside it. Other load on a shared machine changes slower than the turns; it
/// moved single passes of a second by a fifth.
const ROUNDS: usize = 60;
/// The name of the first server, which all others are compared with.
const WITHOUT: &str = "without";

/// One server, and the figures of its passes.
struct Side {
    name: &'static str,
    stage: Stage,
    applies: Vec<Pass>,
    creates: Vec<Pass>,
}

/// The figures of a pass.
#[derive(Clone, Copy)]
struct Pass {
    elapsed: Duration,
    /// Processor time of the whole process, which does nothing else.
    cpu: Duration,
}

/// Measures with this many stored Tenants, and this many requests per pass.
pub(super) async fn measure(tenants: usize, requests: usize, report: &mut Report) -> anyhow::Result<()> {
    let guard: Arc<dyn Guard> = Arc::new(EmbeddedGuard::new(Settings::default()));
    let policed = Stage::set(None, tenants).await?;
    put_policies_in_force(&policed, tenants).await?;
    let bounded = Stage::set(None, tenants).await?;
    for object in policy::list_bounds(&Settings::default()) {
        bounded.apply(&object).await?;
    }
    let sides = [
        (WITHOUT, Stage::set(None, tenants).await?),
        ("without, once more", Stage::set(None, tenants).await?),
        ("with the guard", Stage::set(Some(guard), tenants).await?),
        ("with the policies alone", policed),
        ("with the bounds of Tenure's accounts", bounded),
    ];
    let mut sides = sides.map(|(name, stage)| Side {
        name,
        stage,
        applies: Vec::new(),
        creates: Vec::new(),
    });
    for side in &sides {
        // A later pass applies these objects again, so that no pass does anything for the first time.
        measure_pass(&side.stage, Kind::Apply, tenants, requests).await?;
    }
    let requests = (requests / 8).max(16);
    let mut chance = 1_u64;
    for round in 0..ROUNDS {
        // The order is random: the server of the previous turn has its memory in the processors' caches, which a fixed order would give to the same one each time.
        for last in (1..sides.len()).rev() {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let other = usize::try_from(chance >> 33).unwrap_or_default() % (last + 1);
            sides.swap(last, other);
        }
        for side in &mut sides {
            let stage = &side.stage;
            side.applies
                .push(measure_pass(stage, Kind::Apply, tenants, requests).await?);
            let kind = Kind::Create(round);
            side.creates.push(measure_pass(stage, kind, tenants, requests).await?);
        }
    }
    sides.sort_by_key(|side| (side.name != WITHOUT, side.name.len()));
    let [without, others @ ..] = &sides;
    for (what, pick, bar) in [
        (
            "an apply that changes nothing",
            (|side: &Side| &side.applies) as fn(&Side) -> &Vec<Pass>,
            "5 %",
        ),
        ("a create", |side: &Side| &side.creates, "10 %"),
    ] {
        let base = pick(without);
        for other in others {
            let passes = pick(other);
            let lost = find_loss(base, passes, |pass| pass.elapsed);
            let cpu = find_loss(base, passes, |pass| pass.cpu);
            let each = |passes: &[Pass]| {
                let took = find_percentile(&mut passes.iter().map(|pass| pass.elapsed).collect::<Vec<_>>(), 0.5);
                requests as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE)
            };
            let bar = if other.name == "with the guard" { bar } else { "" };
            report.add(
                format!(
                    "embedded, {tenants} Tenants stored, {what} of 4 KB {}: lost against the same {}, by the clock and by processor time (median of {ROUNDS} pairs of passes of {requests})",
                    other.name, without.name
                ),
                format!("{lost:.1} %, {cpu:.1} % ({:.0}/s)", each(passes)),
                Some(format!("{:.0}/s", each(base))),
                bar,
            );
        }
    }
    Ok(())
}

/// Returns by how many percent the throughput is lower: the median over the pairs of passes.
fn find_loss(base: &[Pass], passes: &[Pass], pick: fn(&Pass) -> Duration) -> f64 {
    let pairs = base.iter().zip(passes);
    let mut losses: Vec<f64> = pairs
        .map(|(base, pass)| {
            let took = pick(pass).as_secs_f64().max(f64::MIN_POSITIVE);
            (1.0 - pick(base).as_secs_f64() / took) * 100.0
        })
        .collect();
    losses.sort_by(f64::total_cmp);
    losses.get(losses.len() / 2).copied().unwrap_or_default()
}

/// The requests of a pass.
#[derive(Clone, Copy)]
enum Kind {
    Apply,
    /// Creates of objects that no other pass has created.
    Create(usize),
}

/// Sends this many requests of owners in their namespaces, half of them ConfigMaps, which no rule checks, and half Ingresses.
async fn measure_pass(stage: &Stage, kind: Kind, tenants: usize, requests: usize) -> anyhow::Result<Pass> {
    let (began, used) = (Instant::now(), read_processor_time());
    for_each(requests, |number| async move {
        let index = number % tenants.max(1);
        let user = name_owner(index);
        let namespace = list_namespaces(index).pop().unwrap_or_default();
        let name = match kind {
            Kind::Apply => format!("applied-{number}"),
            Kind::Create(round) => format!("made-{round}-{number}"),
        };
        let (path, object) = write_object(&namespace, &name, number);
        let body = object.to_string().into_bytes();
        let path = match kind {
            Kind::Apply => format!("{path}/{name}?fieldManager=bench&force=true"),
            Kind::Create(_) => path,
        };
        let (method, form) = match kind {
            Kind::Apply => ("PATCH", "application/apply-patch+yaml"),
            Kind::Create(_) => ("POST", "application/json"),
        };
        stage.send_as(Some(&user), (method, &path, form), body).await.map(drop)
    })
    .await?;
    Ok(Pass {
        elapsed: began.elapsed(),
        cpu: read_processor_time().saturating_sub(used),
    })
}

/// Returns the processor time of this process since its start.
fn read_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Returns the path of an object, and the object.
fn write_object(namespace: &str, name: &str, number: usize) -> (String, Value) {
    let text = "x".repeat(LARGE);
    if number.is_multiple_of(2) {
        let object =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "text": text } });
        return (format!("/api/v1/namespaces/{namespace}/configmaps"), object);
    }
    let backend = json!({ "service": { "name": "app", "port": { "number": 80 } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name, "annotations": { "text": text } },
        "spec": { "rules": [{ "host": format!("{name}.example.org"), "http": { "paths": [path] } }] }
    });
    (
        format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"),
        object,
    )
}

/// Enforces the policies as the controllers do: the facts that policies read are written on the namespaces first.
async fn put_policies_in_force(stage: &Stage, tenants: usize) -> anyhow::Result<()> {
    let mut facts = FactIndex::new(Settings {
        has_policies: true,
        ..Settings::default()
    });
    let list = |path: &'static str| async move {
        let listed = stage.send("GET", path, "", &Value::Null).await?;
        let items = listed.get("items").and_then(Value::as_array);
        Ok::<_, anyhow::Error>(items.cloned().unwrap_or_default())
    };
    for tenant in list("/apis/capsule.clastix.io/v1beta2/tenants").await? {
        let tenant: Tenant = serde_json::from_value(tenant)?;
        facts.set_tenant(TenantFacts::from(&tenant));
    }
    for namespace in list("/api/v1/namespaces").await? {
        let metadata = namespace.get("metadata").cloned().unwrap_or_default();
        let metadata: ObjectMeta = serde_json::from_value(metadata)?;
        facts.set_namespace(NamespaceFacts::from(&metadata));
    }
    let facts = &facts;
    for_each(tenants, |index| async move {
        for name in list_namespaces(index) {
            let expected = policy::describe_namespace(
                facts,
                (&HandEditDenials::default(), &MintableAccounts::default()),
                &name,
            );
            let patch = json!({ "metadata": { "annotations": expected } });
            let path = format!("/api/v1/namespaces/{name}");
            stage
                .send("PATCH", &path, "application/merge-patch+json", &patch)
                .await?;
        }
        Ok(())
    })
    .await?;
    for object in policy::list_policies(&Settings::default()) {
        stage.apply(&object).await?;
    }
    Ok(())
}
