//! The origin of objects, from findings.

use serde_json::json;

use super::*;
use tenure_planner::object::Object;
use tenure_planner::refusal::{Failure, Reason};

fn id(text: &str) -> ObjectId {
    text.parse().expect("an id")
}

const KUSTOMIZATION: &str = "shop_web_kustomize.toolkit.fluxcd.io_Kustomization";

struct World {
    objects: Vec<(ObjectId, Live)>,
    placement: Result<Placement, String>,
}

fn make_unclaimed() -> Placement {
    Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    }
}

impl World {
    fn new(objects: Vec<Value>) -> Self {
        let objects = objects
            .into_iter()
            .map(|object| {
                (
                    ObjectId::from_object(&object).expect("an id"),
                    Live::Present(Object(object)),
                )
            })
            .collect();
        Self {
            objects,
            placement: Ok(make_unclaimed()),
        }
    }

    fn trace(&self, start: &str) -> Trace {
        let mut found = Findings::default();
        loop {
            match trace_origin(&id(start), &found) {
                Ok(trace) => return trace,
                Err(MissingFacts::Object(id)) => {
                    let live = self.objects.iter().find(|(known, _)| *known == id);
                    let live = live.map_or(Live::Absent, |(_, live)| live.clone());
                    assert!(found.objects.insert(id, live).is_none(), "nothing is asked for twice");
                }
                Err(MissingFacts::Placement(neighbours)) => {
                    let before = found.placements.insert(neighbours, self.placement.clone());
                    assert!(before.is_none(), "nothing is asked for twice");
                }
            }
        }
    }

    fn check(&self, start: &str, verdict: Verdict, doubt: &str) -> Trace {
        let trace = self.trace(start);
        assert_eq!(trace.verdict, verdict, "{trace:#?}");
        if doubt.is_empty() {
            assert!(trace.doubts.is_empty(), "{trace:#?}");
        } else {
            assert!(
                trace.doubts.iter().any(|found_doubt| found_doubt.contains(doubt)),
                "{trace:#?}"
            );
        }
        trace
    }
}

fn make_deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "d",
        "labels": {"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "shop"}}})
}

fn make_kustomization(entries: &[&str]) -> Value {
    let entries: Vec<Value> = entries.iter().map(|entry| json!({"id": entry, "v": "v1"})).collect();
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "web", "namespace": "shop", "uid": "k",
            "ownerReferences": [{"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "name": "web", "uid": "s", "controller": true}]},
        "spec": {"serviceAccountName": "deployer", "path": "./apps", "sourceRef": {"kind": "GitRepository", "name": "web-web"}},
        "status": {"lastAppliedRevision": "main@sha1:abc", "lastAttemptedRevision": "main@sha1:def", "inventory": {"entries": entries},
            "conditions": [{"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "no such file", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn make_repository() -> Value {
    json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "web-web", "namespace": "shop"},
        "spec": {"url": "https://user:sesame@git.example/web", "ref": {"branch": "main"}},
        "status": {"artifact": {"revision": "main@sha1:def"}}})
}

fn make_surface(source: &str) -> Value {
    json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "web", "namespace": "shop", "uid": "s"},
        "spec": {"sources": [{"name": source, "url": "https://git.example/web"}]}, "status": {"tier": "Tenant"}})
}

const DEPLOYMENT: &str = "shop_web_apps_Deployment";

fn list_whole_chain() -> Vec<Value> {
    let mut kustomization = make_kustomization(&[DEPLOYMENT]);
    kustomization["metadata"]["name"] = json!("web-web");
    let mut deployment = make_deployment();
    deployment["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("web-web");
    vec![deployment, kustomization, make_repository(), make_surface("web")]
}

#[test]
fn trace_lists_applier_source_and_generator() {
    let trace = World::new(list_whole_chain()).check(DEPLOYMENT, Verdict::Managed, "");
    let roles: Vec<(Role, &str)> = trace
        .links
        .iter()
        .map(|link| (link.role, link.object.as_str()))
        .collect();
    assert_eq!(
        roles,
        [
            (Role::Object, "Deployment/shop/web"),
            (Role::Applier, "Kustomization/shop/web-web"),
            (Role::Source, "GitRepository/shop/web-web"),
            (Role::Generator, "Surface/shop/web"),
        ]
    );
    let text = serde_json::to_string(&trace).expect("text");
    for word in [
        "system:serviceaccount:shop:deployer",
        "main@sha1:abc",
        "main@sha1:def",
        "BuildFailed",
        "no such file",
        "https://git.example/web",
        "belongs to no Tenant",
    ] {
        assert!(text.contains(word), "no {word}: {text}");
    }
    assert!(!text.contains("sesame"), "{text}");
}

#[test]
fn unconfirmed_claims_are_reported() {
    // Labels that were copied.
    let world = World::new(vec![
        make_deployment(),
        make_kustomization(&["shop_other_apps_Deployment"]),
        make_repository(),
        make_surface("web"),
    ]);
    world.check(DEPLOYMENT, Verdict::Unconfirmed, "whose inventory doesn't list it");
    // Labels of one that is gone.
    World::new(vec![make_deployment()]).check(DEPLOYMENT, Verdict::Unconfirmed, "which does not exist");
    // Labels with a name that no object can have.
    let mut forged = make_deployment();
    forged["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("../../secrets/x");
    World::new(vec![forged]).check(DEPLOYMENT, Verdict::Unconfirmed, "can't be one");
    // An object that may not be read.
    let mut world = World::new(vec![make_deployment()]);
    let failure = Failure {
        code: 403,
        reason: Reason::Forbidden,
        message: "you may not".to_owned(),
        ..Failure::default()
    };
    world.objects.push((id(KUSTOMIZATION), Live::Failed(failure)));
    world.check(DEPLOYMENT, Verdict::Unknown, "you may not");
    // A Kustomization whose objects are in another cluster.
    let mut elsewhere = make_kustomization(&[DEPLOYMENT]);
    elsewhere["spec"]["kubeConfig"] = json!({"secretRef": {"name": "x"}});
    World::new(vec![make_deployment(), elsewhere]).check(DEPLOYMENT, Verdict::Unconfirmed, "another cluster");
    // The control: the same with an inventory that lists it.
    let world = World::new(vec![
        make_deployment(),
        make_kustomization(&[DEPLOYMENT]),
        make_repository(),
    ]);
    world.check(
        DEPLOYMENT,
        Verdict::Managed,
        "Surface web owns it, which does not exist",
    );
}

/// Any account with rights on a status can forge it: an inventory proves nothing about objects that its namespace may not apply.
#[test]
fn a_forged_inventory_confirms_nothing() {
    let mut victim = make_deployment();
    victim["metadata"]["namespace"] = json!("victim");
    let victims = "victim_web_apps_Deployment";
    let mut world = World::new(vec![victim, make_kustomization(&[victims]), make_repository()]);
    // The control: without tenants, Kubernetes' rights alone bound the applied objects.
    world.check(victims, Verdict::Managed, "Surface");
    let tenant = json!({"tenant": {"tenant": "shop", "home": "shop", "namespaces": ["shop"],
        "gitops": {"Ok": "shop-gitops"}, "defaultServiceAccount": "default"}});
    world.placement = Ok(serde_json::from_value(tenant).expect("a placement"));
    world.check(victims, Verdict::Unconfirmed, "doesn't count");
    world.placement = Err("tenants is forbidden".to_owned());
    let trace = world.check(victims, Verdict::Managed, "Surface");
    let text = serde_json::to_string(&trace).expect("text");
    assert!(text.contains("its right to apply there is unknown"), "{text}");
}

#[test]
fn owners_are_followed_by_their_uid() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}]}});
    let mut objects = list_whole_chain();
    objects.push(pod.clone());
    let world = World::new(objects);
    let trace = world.check("shop_web-1__Pod", Verdict::Managed, "");
    assert_eq!(trace.links.get(1).map(|link| link.role), Some(Role::Owner));
    assert!(
        trace.summary.contains("Kustomization/shop/web-web"),
        "{}",
        trace.summary
    );

    let mut other = pod;
    other["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    let mut objects = list_whole_chain();
    objects.push(other);
    World::new(objects).check("shop_web-1__Pod", Verdict::Unconfirmed, "means another one");

    // A Surface that does not generate it.
    let mut objects = list_whole_chain();
    objects.pop();
    objects.push(make_surface("other"));
    World::new(objects).check(DEPLOYMENT, Verdict::Managed, "generates nothing of that name");
}

#[test]
fn an_unassigned_object_is_reported_and_a_ring_ends() {
    let mut plain = make_deployment();
    plain["metadata"]["labels"] = json!({});
    let trace = World::new(vec![plain]).check(DEPLOYMENT, Verdict::Unmanaged, "");
    assert!(trace.summary.contains("nothing here manages it"), "{}", trace.summary);
    assert_eq!(World::new(Vec::new()).trace(DEPLOYMENT).links.len(), 1);

    let mut own = make_kustomization(&[KUSTOMIZATION]);
    own["metadata"]["labels"] = make_deployment()["metadata"]["labels"].clone();
    own["metadata"]["ownerReferences"] = json!([]);
    let trace = World::new(vec![own, make_repository()]).check(KUSTOMIZATION, Verdict::Managed, "part of a cycle");
    assert_eq!(trace.links.len(), 2, "{trace:#?}");
}

const RELEASE: &str = "shop_web_helm.toolkit.fluxcd.io_HelmRelease";

/// Makes a Deployment of a chart, its HelmRelease, the chart and the source. `spec` is added to the HelmRelease.
fn list_release_chain(spec: Value, entries: &[&str]) -> Vec<Value> {
    let labels = json!({"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "shop"});
    let mut deployment = make_deployment();
    deployment["metadata"]["labels"] = labels;
    let entries: Vec<Value> = entries.iter().map(|entry| json!({"id": entry, "v": "v1"})).collect();
    let history = json!([{"name": "web", "namespace": "shop", "chartName": "podinfo", "chartVersion": "6.1.0", "version": 3, "status": "deployed"}]);
    let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "web", "namespace": "shop", "uid": "r"},
        "spec": spec, "status": {"helmChart": "shop/shop-web", "history": history, "inventory": {"entries": entries}}});
    let chart = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart", "metadata": {"name": "shop-web", "namespace": "shop"},
        "spec": {"chart": "podinfo", "version": "6.x", "sourceRef": {"kind": "HelmRepository", "name": "charts"}},
        "status": {"artifact": {"revision": "6.1.0", "digest": "sha256:abc"}}});
    let repository = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository", "metadata": {"name": "charts", "namespace": "shop"},
        "spec": {"url": "https://user:sesame@charts.example"}});
    vec![deployment, release, chart, repository]
}

fn list_roles(trace: &Trace) -> Vec<(Role, &str)> {
    let links = trace.links.iter();
    links.map(|link| (link.role, link.object.as_str())).collect()
}

#[test]
fn trace_lists_release_chart_and_applier() {
    let mut objects = list_release_chain(json!({"serviceAccountName": "shop-gitops"}), &[DEPLOYMENT]);
    objects[1]["metadata"]["labels"] = make_deployment()["metadata"]["labels"].clone();
    objects.extend([make_kustomization(&[RELEASE]), make_repository(), make_surface("web")]);
    objects[4]["metadata"]["ownerReferences"] = json!([]);
    let trace = World::new(objects).check(DEPLOYMENT, Verdict::Managed, "");
    assert_eq!(
        list_roles(&trace),
        [
            (Role::Object, "Deployment/shop/web"),
            (Role::Installer, "HelmRelease/shop/web"),
            (Role::Chart, "HelmChart/shop/shop-web"),
            (Role::Source, "HelmRepository/shop/charts"),
            (Role::Applier, "Kustomization/shop/web"),
            (Role::Source, "GitRepository/shop/web-web"),
        ]
    );
    assert!(
        trace.summary.contains("managed by HelmRelease/shop/web"),
        "{}",
        trace.summary
    );
    let text = serde_json::to_string(&trace).expect("text");
    for word in [
        "system:serviceaccount:shop:shop-gitops",
        "podinfo 6.1.0",
        "shop/web, version 3, deployed",
        "sha256:abc",
        "charts.example",
    ] {
        assert!(text.contains(word), "no {word}: {text}");
    }
    assert!(!text.contains("sesame"), "{text}");
}

#[test]
fn trace_leads_from_release_to_package() {
    let chart =
        json!({"chartRef": {"kind": "ExternalArtifact", "namespace": "cozy-system", "name": "web-default-web"}});
    let mut objects = list_release_chain(chart, &[DEPLOYMENT]);
    objects[1]["metadata"]["labels"] = json!({"cozystack.io/package": "example.web"});
    let named = |kind: &str, spec: Value, status: Value| json!({"apiVersion": "cozystack.io/v1alpha1", "kind": kind, "metadata": {"name": "example.web"}, "spec": spec, "status": status});
    let record = json!({"releases": [{"namespace": "shop", "name": "web", "uid": "r", "component": "app"}]});
    let source = json!({"sourceRef": {"kind": "GitRepository", "name": "web-web", "namespace": "shop"}});
    objects.extend([
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact", "metadata": {"name": "web-default-web", "namespace": "cozy-system"},
            "spec": {"sourceRef": {"kind": "ArtifactGenerator", "name": "web"}}, "status": {"artifact": {"revision": "latest@sha256:def"}}}),
        json!({"apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "metadata": {"name": "web", "namespace": "cozy-system"}}),
        named("Package", json!({"variant": "default"}), record),
        named("PackageSource", source, json!({})),
        named("PackageValues", json!({}), json!({})),
        make_repository(),
    ]);
    let trace = World::new(objects.clone()).check(DEPLOYMENT, Verdict::Managed, "");
    assert_eq!(
        list_roles(&trace),
        [
            (Role::Object, "Deployment/shop/web"),
            (Role::Installer, "HelmRelease/shop/web"),
            (Role::Chart, "ExternalArtifact/cozy-system/web-default-web"),
            (Role::Source, "ArtifactGenerator/cozy-system/web"),
            (Role::Generator, "Package/example.web"),
            (Role::Source, "PackageSource/example.web"),
            (Role::Source, "GitRepository/shop/web-web"),
            (Role::Values, "PackageValues/example.web"),
        ]
    );
    let text = serde_json::to_string(&trace).expect("text");
    for word in ["component app", "latest@sha256:def", "the account of helm-controller"] {
        assert!(text.contains(word), "no {word}: {text}");
    }

    // A copied label proves nothing.
    objects[1]["metadata"]["uid"] = json!("another");
    World::new(objects.clone()).check(DEPLOYMENT, Verdict::Managed, "records another one of this name");
    objects[1]["metadata"]["name"] = json!("copy");
    World::new(objects).check(
        "shop_copy_helm.toolkit.fluxcd.io_HelmRelease",
        Verdict::Unconfirmed,
        "doesn't record it",
    );
}

#[test]
fn unconfirmed_releases_are_reported() {
    let check = |objects: Vec<Value>, verdict: Verdict, doubt: &str| {
        drop(World::new(objects).check(DEPLOYMENT, verdict, doubt))
    };
    check(
        list_release_chain(json!({}), &[]),
        Verdict::Unconfirmed,
        "whose inventory doesn't list it",
    );
    let elsewhere = json!({"kubeConfig": {"secretRef": {"name": "other"}}});
    check(
        list_release_chain(elsewhere, &[DEPLOYMENT]),
        Verdict::Unconfirmed,
        "applies to another cluster",
    );
    let mut objects = list_release_chain(json!({}), &[DEPLOYMENT]);
    objects[1]["status"]
        .as_object_mut()
        .expect("a status")
        .remove("inventory");
    check(objects.clone(), Verdict::Unknown, "no inventory");
    objects.remove(1);
    check(objects, Verdict::Unconfirmed, "which does not exist");
}
