//! The output of the reading commands on terminals of 80, 120 and 160 columns, compared with files. The objects, the columns and the clock are fixed. Look at a new file
//! before you commit it: `TENURE_TEST_CAPTURE=1` writes the files.

use std::path::PathBuf;
use std::str::FromStr as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::{ObjectId, ObjectView};
use tenure_inspection::ages::write_time_since;
use tenure_inspection::event_table;
use tenure_inspection::jsonpath::Template;
use tenure_inspection::object_facts::Findings;
use tenure_inspection::object_table::{ObjectTable, Selection};
use tenure_inspection::ownership::fields::{list_owned_fields, write_table};
use tenure_inspection::text_table::{Cell, TextTable, Tone};
use tenure_inspection::tree::{Extent, build_tree};
use tenure_inspection::tree_lines::write_tree;
use tenure_planner::{Live, Object};

const NOW: &str = "2026-06-01T12:00:00Z";
const WIDTHS: [usize; 3] = [80, 120, 160];
const DIGEST: &str = "8f3c1d0a5b7e9f2468ace013579bdf02468ace01";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn plain(_: Tone, text: &str) -> String {
    text.to_owned()
}

/// Compares an output with its file.
fn check(name: &str, width: usize, lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/captures");
    let file = folder.join(format!("{name}-{width}.txt"));
    if std::env::var_os("TENURE_TEST_CAPTURE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "{}", file.display());
    for line in lines {
        assert!(line.chars().count() <= width, "wider than {width}: {line}");
        assert_eq!(line.trim_end(), line);
    }
}

fn lay_out(headers: &[String], rows: &[Vec<Cell>], width: usize) -> Vec<String> {
    let layout = TextTable::fit_widths(headers, rows, Some(width));
    let headers: Vec<Cell> = headers.iter().map(|header| header.as_str().into()).collect();
    let rows = std::iter::once(&headers).chain(rows);
    rows.flat_map(|row| layout.format_row(row, plain)).collect()
}

/// Returns the kinds of Tenure and Flux with their definitions.
fn definitions() -> Vec<Value> {
    let mut definitions = tenure_api::crds::crds().unwrap();
    definitions.extend(tenure_api::crds::package_crds().unwrap());
    definitions.extend(tenure_api::crds::access_crds().unwrap());
    definitions
}

/// Returns the answer of an API server about objects of a kind: the columns of its definition, and the objects.
fn serve_table(definition: &Value, objects: &[Value]) -> Value {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|version| version["storage"] == true).unwrap();
    let columns = version["additionalPrinterColumns"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut definitions = vec![json!({"name": "Name", "type": "string", "priority": 0})];
    definitions.extend(columns.iter().cloned());
    let rows = objects.iter().map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(columns.iter().map(|column| {
            let path = Template::parse_relaxed(column["jsonPath"].as_str().unwrap()).unwrap();
            let found = path.find(object).unwrap().concat();
            let cell = found.into_iter().next().unwrap_or(Value::Null);
            match (column["type"].as_str(), cell.as_str()) {
                (Some("date"), Some(time)) => Value::from(write_time_since(time, now())),
                _ => cell,
            }
        }));
        json!({"cells": cells, "object": object})
    });
    json!({"columnDefinitions": definitions, "rows": rows.collect::<Vec<_>>()})
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-06-01T11:55:00Z"})
}

/// Returns three objects of a kind: ready, failed, and suspended without a status.
fn objects_of(kind: &str) -> Vec<Value> {
    let revision = format!("main@sha1:{DIGEST}");
    let (applied, stored) = (
        format!("Applied revision: {revision}"),
        format!("stored artifact for revision '{revision}'"),
    );
    let message = match kind {
        "Kustomization" | "Surface" | "HelmRelease" => applied,
        "GitRepository" | "OCIRepository" | "Bucket" | "ExternalArtifact" | "HelmRepository" | "HelmChart" => stored,
        "Tenant" => "2 namespaces are recorded".to_owned(),
        _ => "initialized".to_owned(),
    };
    let failure = "kustomize build failed: accumulating resources from 'deployment.yaml': open /deployment.yaml: no such file or directory: \
                   add the file to the repository, or take it out of the field resources of apps/kustomization.yaml";
    let object = |name: &str, age: &str, spec: Value, status: Value| json!({"kind": kind, "metadata": {"name": name, "namespace": "shop-production", "creationTimestamp": age}, "spec": spec, "status": status});
    let spec = |suspend: bool| {
        json!({"suspend": suspend, "url": "https://git.example.org/shop/web", "endpoint": "minio.storage.svc:9000", "provider": "gitlab",
            "kind": "GitLab", "address": "https://git.example.org", "agent": {"name": "git-access"}, "scope": "Project", "role": "reporter",
            "target": if kind == "FluxAccessGrant" { json!("gitlab-shop-web") } else { json!({"path": "shop/web"}) }, "requestedBy": "alice", "sourceRef": {"name": "composed"}, "approvedBy": "bob", "decision": "Approved",
            "requestRef": {"name": "web"}, "tenant": "shop", "variant": "default", "notAfter": "2026-07-01T12:00:00Z",
            "namespaceOptions": {"quota": 5}})
    };
    let status = |conditions: Value| {
        json!({"conditions": conditions, "artifact": {"revision": revision}, "lastAppliedRevision": revision, "tier": "Tenant", "state": "Active",
            "identity": "system:serviceaccount:shop-production:shop-gitops", "size": 2, "path": "shop/web", "variants": "default,small",
            "sources": [{"name": "web", "appliedRevision": revision}], "history": [{"chartVersion": "1.4.2"}]})
    };
    vec![
        object(
            "web",
            "2026-05-29T12:00:00Z",
            spec(false),
            status(json!([ready("True", "Succeeded", &message), {"type": "Accepted", "status": "True"}])),
        ),
        object(
            "payment-service",
            "2026-06-01T11:15:00Z",
            spec(false),
            status(json!([ready("False", "BuildFailed", failure)])),
        ),
        object("new", "2026-06-01T11:59:30Z", spec(true), json!({})),
    ]
}

#[test]
fn get_shows_each_kind() {
    for width in WIDTHS {
        let (mut namespaced, mut all) = (Vec::new(), Vec::new());
        for definition in definitions() {
            let (group, kind) = (
                definition["spec"]["group"].as_str(),
                definition["spec"]["names"]["kind"].as_str(),
            );
            let (group, kind) = (group.unwrap(), kind.unwrap());
            let answer = serve_table(&definition, &objects_of(kind));
            for (with_namespace, lines) in [(false, &mut namespaced), (true, &mut all)] {
                let is_namespaced = definition["spec"]["scope"] == "Namespaced";
                let selection = Selection {
                    group,
                    kind,
                    with_namespace: with_namespace && is_namespaced,
                    with_kind: false,
                    is_wide: false,
                };
                let table = ObjectTable::select_columns(&answer, &selection);
                lines.push(format!(
                    "{}.{group}",
                    definition["spec"]["names"]["plural"].as_str().unwrap()
                ));
                lines.extend(lay_out(&table.headers, &table.rows(&answer, now()), width));
                lines.push(String::new());
            }
        }
        check("get", width, &namespaced);
        check("get-all-namespaces", width, &all);
    }
}

#[test]
fn events_have_ages() {
    let event = |type_: &str, reason: &str, kind: &str, times: [&str; 2], count: i64, message: &str| {
        json!({"type": type_, "reason": reason, "message": message, "count": count, "metadata": {"namespace": "shop-production"},
            "firstTimestamp": times[0], "lastTimestamp": times[1], "involvedObject": {"kind": kind, "name": "web"}})
    };
    let events = [
        event(
            "Normal",
            "NewArtifact",
            "GitRepository",
            ["2026-06-01T10:00:00Z", "2026-06-01T10:00:00Z"],
            1,
            &format!("stored artifact for revision 'main@sha1:{DIGEST}'"),
        ),
        event(
            "Warning",
            "BuildFailed",
            "Kustomization",
            ["2026-06-01T10:00:00Z", "2026-06-01T11:55:00Z"],
            24,
            "kustomize build failed: accumulating resources from 'deployment.yaml': open /deployment.yaml: no such file or directory",
        ),
        event(
            "Normal",
            "ReconciliationSucceeded",
            "Kustomization",
            ["2026-06-01T11:59:00Z", "2026-06-01T11:59:00Z"],
            1,
            &format!("Reconciliation finished in 213ms, next run in 10m0s; applied main@sha1:{DIGEST}"),
        ),
    ];
    for width in WIDTHS {
        let rows: Vec<Vec<Cell>> = events
            .iter()
            .map(|event| event_table::write_row(event, false, now()))
            .collect();
        check(
            "events",
            width,
            &lay_out(&event_table::list_headers(false), &rows, width),
        );
        let rows: Vec<Vec<Cell>> = events
            .iter()
            .map(|event| event_table::write_row(event, true, now()))
            .collect();
        let lines = lay_out(&event_table::list_headers(true), &rows, width);
        check("events-all-namespaces", width, &lines);
    }
}

#[test]
fn command_who_shows_owners_of_fields() {
    let managed = |manager: &str, operation: &str, time: &str, subresource: &str, fields: Value| {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": time, "subresource": subresource,
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let container = json!({"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web",
            "annotations": {"example.org/note": "a long note about this deployment that somebody wrote for others"},
            "labels": {"kustomize.toolkit.fluxcd.io/name": "web"},
            "managedFields": [
                managed("kustomize-controller", "Apply", "2026-05-29T12:00:00Z", "", json!({"f:metadata": {"f:annotations": {"f:example.org/note": {}},
                    "f:labels": {"f:kustomize.toolkit.fluxcd.io/name": {}}},
                    "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": container}}}})),
                managed("kubectl", "Update", "2026-06-01T11:00:00Z", "scale", json!({"f:spec": {"f:replicas": {}}})),
                managed("kube-controller-manager", "Update", "2026-06-01T11:59:00Z", "status", json!({"f:status": {"f:replicas": {}}}))]},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "registry.example.org/shop/web:1.4.2", "args": ["--port=8080"]}]}}},
        "status": {"replicas": 2}});
    let mut fields = list_owned_fields(&object, None).unwrap();
    assert!(fields.iter().any(|field| field.is_status()));
    fields.retain(|field| !field.is_status());
    let origin = |field: &tenure_inspection::ownership::fields::OwnedField| {
        (field.entry.manager == "kustomize-controller").then(|| "apps/web/deployment.yaml:12".to_owned())
    };
    let writer = |_: &tenure_inspection::ownership::fields::OwnedField| {
        Some("system:serviceaccount:shop-production:shop-gitops".to_owned())
    };
    for width in WIDTHS {
        let (headers, rows) = write_table(&fields, &origin, &|_| None, now());
        check("who", width, &lay_out(&headers, &rows, width));
        let (headers, rows) = write_table(&fields, &origin, &writer, now());
        check("who-audit-log", width, &lay_out(&headers, &rows, width));
    }
}

#[test]
fn tree_shows_messages_below_objects() {
    let kustomization = |name: &str, condition: Value, entries: &[&str]| {
        let entries: Vec<Value> = entries.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "shop", "generation": 1,
                "labels": {"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "shop"}},
            "status": {"observedGeneration": 1, "conditions": [condition], "inventory": {"entries": entries}}})
    };
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "shop"});
    let applied = format!("Applied revision: main@sha1:{DIGEST}");
    let failure = "kustomize build failed: accumulating resources from 'deployment.yaml': open /deployment.yaml: no such file or directory";
    let nested = "shop_payment-service_kustomize.toolkit.fluxcd.io_Kustomization";
    let objects = [
        kustomization(
            "web",
            ready("True", "ReconciliationSucceeded", &applied),
            &["shop_settings__ConfigMap", "shop_hidden__Secret", nested],
        ),
        kustomization("payment-service", ready("False", "BuildFailed", failure), &[]),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop", "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden", "namespace": "shop", "labels": {}}}),
    ];
    let mut found = Findings::default();
    for object in objects {
        let view = ObjectView::new(&object);
        let group = view
            .read_text("/apiVersion")
            .split_once('/')
            .map_or("", |(group, _)| group)
            .to_owned();
        let id = ObjectId {
            namespace: "shop".to_owned(),
            name: view.read_text("/metadata/name").to_owned(),
            group,
            kind: view.read_text("/kind").to_owned(),
        };
        found.objects.insert(id, Live::Present(Object(object)));
    }
    let root = ObjectId::from_str("shop_web_kustomize.toolkit.fluxcd.io_Kustomization").unwrap();
    let extent = Extent {
        depth: 10,
        objects: 100,
        compact: false,
    };
    let root = build_tree(&root, &found, &extent).unwrap();
    for width in WIDTHS {
        check("tree", width, &write_tree(&root, Some(width), &plain));
    }
}
