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
