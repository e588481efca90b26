//! The objects that are removed, their order, and the objects that are never touched, as data.

use serde_json::json;
use tenure_api::metadata::{FLUX_FINALIZER, LANE_BINDING, LANE_FINALIZER, LANE_LABEL};

use super::*;

pub(super) fn make_observed(object: Value) -> ObservedObject {
    let mut object = object;
    let path = format!("/{}", name_object(&object));
    object["metadata"]["uid"] = json!(format!("uid of {path}"));
    object["metadata"]["resourceVersion"] = json!("7");
    ObservedObject { path, object }
}

pub(super) fn make_object(kind: &str, namespace: &str, name: &str) -> Value {
    let version = match kind {
        "Kustomization" => "kustomize.toolkit.fluxcd.io/v1",
        "GitRepository" => "source.toolkit.fluxcd.io/v1",
        "Surface" => "tenure.dev/v1alpha1",
        "Tenant" => "capsule.clastix.io/v1beta2",
        "NetworkPolicy" => "networking.k8s.io/v1",
        _ => "v1",
    };
    let labels = if kind.contains("Role") || kind == "ServiceAccount" {
        json!({MANAGED_BY: MANAGED_BY_TENURE})
    } else {
        json!({})
    };
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

pub(super) fn set_value(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let metadata = if parent.is_empty() {
        &mut object
    } else {
        object.pointer_mut(parent).unwrap()
    };
    metadata[field] = value;
    object
}

fn add_owner(object: Value, api_version: &str, kind: &str) -> Value {
    let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "shop", "uid": "u"}, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "v"}]);
    set_value(object, "/metadata/ownerReferences", owner)
}

fn make_kustomization(namespace: &str, name: &str) -> Value {
    set_value(
        make_object("Kustomization", namespace, name),
        "/metadata/finalizers",
        json!([FLUX_FINALIZER, "another"]),
    )
}

fn make_definition(group: &str, kind: &str) -> Value {
    let definition = make_object("CustomResourceDefinition", "", kind);
    set_value(definition, "/spec", json!({"group": group, "names": {"kind": kind}}))
}

/// Returns a cluster with all kinds of objects.
pub(super) fn make_snapshot() -> Snapshot {
    let installed = [
        make_definition("tenure.dev", "Surface"),
        make_definition("kustomize.toolkit.fluxcd.io", "Kustomization"),
        make_definition("capsule.clastix.io", "Tenant"),
        make_definition("helm.toolkit.fluxcd.io", "HelmRelease"),
        make_object("ClusterRole", "", TENANT_GITOPS_CLUSTER_ROLE),
        make_object("ClusterRole", "", HOME_OWNER_CLUSTER_ROLE),
        make_object("Namespace", "", PLATFORM_NAMESPACE),
        make_object("ServiceAccount", PLATFORM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT),
        make_object("ClusterRole", "", "tenure-controller"),
        make_object("ClusterRoleBinding", "", "tenure-controller"),
        make_object("Role", PLATFORM_NAMESPACE, "tenure-leader"),
    ];
    Snapshot {
        deployments: vec![
            make_observed(make_object("Deployment", PLATFORM_NAMESPACE, "tenure-controller")),
            make_observed(make_object(
                "Deployment",
                PLATFORM_NAMESPACE,
                "tenure-controller-shard-a",
            )),
        ],
        installed: installed.map(make_observed).into(),
        reconciled: vec![
            make_observed(add_owner(
                make_kustomization("shop", "web"),
                "tenure.dev/v1alpha1",
                "Surface",
            )),
            make_observed(make_kustomization(PLATFORM_NAMESPACE, "platform")),
        ],
        custom: vec![
            make_observed(make_object("Surface", "shop", "apps")),
            make_observed(make_object("Tenant", "", "shop")),
            make_observed(make_object("Tenant", "", "plant")),
            make_observed(make_object("Kustomization", "shop", "web")),
        ],
        owned: vec![make_observed(add_owner(
            make_object("Namespace", "", "shop"),
            "capsule.clastix.io/v1beta2",
            "Tenant",
        ))],
        ..Snapshot::default()
    }
}

pub(super) fn list_lines(plan: &Plan) -> Vec<Vec<String>> {
    let stage = |stage: &Vec<Step>| stage.iter().map(|step| step.says.clone()).collect();
    plan.stages.iter().map(stage).collect()
}

pub(super) fn find<'a>(plan: &'a Plan, says: &str) -> &'a Step {
    let found = plan.stages.iter().flatten().find(|step| step.says.starts_with(says));
    found.unwrap_or_else(|| panic!("no {says}: {:#?}", self::list_lines(plan)))
}

#[test]
fn the_order_is_controllers_finalizers_rights_kinds_namespace() {
    let plan = plan(&make_snapshot(), KindChoice::Own).unwrap();
    assert_eq!(
        list_lines(&plan),
        [
            vec![
                "Deployment tenure-system/tenure-controller: deleted",
                "Deployment tenure-system/tenure-controller-shard-a: deleted",
            ],
            vec![
                "Kustomization shop/web: without the controllers' finalizer, without its owner",
                "Kustomization tenure-system/platform: without the controllers' finalizer, suspended",
            ],
            vec!["ClusterRoleBinding tenure-controller: deleted"],
            vec!["ClusterRole tenure-controller: deleted"],
            vec!["CustomResourceDefinition Surface: deleted"],
            vec!["Namespace tenure-system: deleted"],
        ]
    );
    assert!(
        plan.stays.iter().any(|line| line.contains("kind Tenant (2 objects)")),
        "{:?}",
        plan.stays
    );
    assert!(plan.goes.contains(&"Surface shop/apps".to_owned()), "{:?}", plan.goes);
}

/// Fields of other writers stay, and a patch applies only to the observed object.
#[test]
fn patch_removes_only_own_fields() {
    let plan = plan(&make_snapshot(), KindChoice::All).unwrap();
    let Action::Patch(patch) = &find(&plan, "Kustomization shop/web").action else {
        panic!("no patch");
    };
    assert_eq!(patch["metadata"]["finalizers"], json!(["another"]));
    assert_eq!(patch["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(patch["metadata"]["ownerReferences"][0]["kind"], "ConfigMap");
    assert_eq!(patch["spec"], json!({"suspend": true}));
    assert_eq!(patch["metadata"]["uid"], "uid of /Kustomization shop/web");
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

/// For every choice and every state: no Kustomization is deleted, by its kind or its namespace, before it is suspended and released. No namespace keeps an owner
/// that is deleted.
#[test]
fn deletion_takes_no_other_objects_along() {
    for kinds in [KindChoice::Own, KindChoice::None, KindChoice::All] {
        let plan = plan(&make_snapshot(), kinds).unwrap();
        let position = |what: &dyn Fn(&Step) -> bool| plan.stages.iter().position(|stage| stage.iter().any(what));
        let patches = position(&|step| matches!(step.action, Action::Patch(_))).unwrap();
        for (stage, step) in plan
            .stages
            .iter()
            .enumerate()
            .flat_map(|(stage, steps)| steps.iter().map(move |step| (stage, step)))
        {
            let deletes = matches!(step.action, Action::Delete { .. }) && !step.says.starts_with("Deployment");
            assert!(!deletes || stage > patches, "{kinds:?}: {}", step.says);
        }
        let tenants_go = list_lines(&plan)
            .concat()
            .iter()
            .any(|step| step.starts_with("CustomResourceDefinition Tenant"));
        let released = list_lines(&plan)
            .concat()
            .iter()
            .any(|step| step.starts_with("Namespace shop: without its owner"));
        assert_eq!(tenants_go, kinds == KindChoice::All);
        assert_eq!(tenants_go, released);
        let is_about_releases = |line: &String| line.contains("HelmRelease");
        assert!(!list_lines(&plan).concat().iter().any(is_about_releases));
        assert!(plan.stays.iter().any(is_about_releases), "{:?}", plan.stays);
        assert!(
            !list_lines(&plan)
                .concat()
                .iter()
                .any(|step| step.starts_with("Namespace shop: deleted"))
        );
    }
}

#[test]
fn objects_reconciled_by_others_stay() {
    let mut snapshot = make_snapshot();
    snapshot.flux = Some("kustomize-controller in flux-system".to_owned());
    assert!(matches!(plan(&snapshot, KindChoice::All), Err(Blocker::Reconciled(_))));
    snapshot.inside = vec![make_observed(make_kustomization(PLATFORM_NAMESPACE, "platform"))];
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert_eq!(
        find(&plan, "Kustomization shop/web").says,
        "Kustomization shop/web: without its owner"
    );
    assert!(
        plan.stays.iter().any(|line| line.contains("reconciled by others")),
        "{:?}",
        plan.stays
    );
    let all = list_lines(&plan).concat();
    assert!(
        !all.iter()
            .any(|step| step.starts_with("Namespace") || step.contains("suspended")),
        "{all:?}"
    );
    // The namespace stays, so the controllers' objects in it are deleted one by one.
    assert!(
        all.contains(&"ServiceAccount tenure-system/tenure-controller: deleted".to_owned()),
        "{all:?}"
    );
}

/// A controller of Tenants doesn't handle Flux's finalizers.
#[test]
fn capsule_keeps_its_kind_and_nothing_else() {
    let mut snapshot = make_snapshot();
    snapshot.capsule = Some("capsule-controller-manager in capsule-system".to_owned());
    assert!(matches!(plan(&snapshot, KindChoice::All), Err(Blocker::Reconciled(_))));
    let without = plan(&make_snapshot(), KindChoice::Own).unwrap();
    assert_eq!(plan(&snapshot, KindChoice::Own).unwrap(), without);
}

#[test]
fn rights_of_removed_accounts_are_reported() {
    let subject = json!([{"kind": "ServiceAccount", "namespace": PLATFORM_NAMESPACE, "name": "platform-gitops"}]);
    let binding = set_value(make_object("ClusterRoleBinding", "", "platform"), "/subjects", subject);
    let snapshot = Snapshot {
        cluster_role_bindings: vec![make_observed(binding)],
        ..make_snapshot()
    };
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert!(
        plan.stays.iter().any(|line| line.contains("platform-gitops")),
        "{:?}",
        plan.stays
    );
    assert!(
        !list_lines(&plan)
            .concat()
            .iter()
            .any(|step| step.contains("ClusterRoleBinding platform"))
    );
}

#[test]
fn a_namespace_into_which_something_was_applied_stays() {
    let applied = set_value(
        make_object("Service", PLATFORM_NAMESPACE, "web"),
        "/metadata/labels",
        json!({OWNER_NAME: "platform"}),
    );
    let mut snapshot = make_snapshot();
    snapshot.inside = vec![
        make_observed(make_object("Secret", PLATFORM_NAMESPACE, "key")),
        make_observed(make_object("Event", PLATFORM_NAMESPACE, "e")),
        make_observed(make_object(
            "ServiceAccount",
            PLATFORM_NAMESPACE,
            CONTROLLER_SERVICE_ACCOUNT,
        )),
    ];
    let without = plan(&snapshot, KindChoice::Own).unwrap();
    assert!(
        without.goes.contains(&"Secret tenure-system/key".to_owned()),
        "{:?}",
        without.goes
    );
    snapshot.inside.push(make_observed(applied));
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert!(
        plan.stays.iter().any(|line| line.contains("Service tenure-system/web")),
        "{:?}",
        plan.stays
    );
    let all = list_lines(&plan).concat();
    assert!(!all.iter().any(|step| step.starts_with("Namespace")), "{all:?}");
    assert!(
        all.contains(&"Kustomization tenure-system/platform: without the controllers' finalizer".to_owned()),
        "{all:?}"
    );
}

/// An object with Tenure's label in a tenant's namespace is deleted only if it gives rights to the platform's accounts alone.
#[test]
fn rights_that_the_controllers_had_in_other_namespaces_go() {
    let binding = |name: &str, subjects: Value, label: &str| {
        let binding = set_value(
            make_object("RoleBinding", "shop", name),
            "/metadata/labels",
            json!({MANAGED_BY: label}),
        );
        make_observed(set_value(binding, "/subjects", subjects))
    };
    let ours = json!({"kind": "ServiceAccount", "namespace": PLATFORM_NAMESPACE, "name": "lane"});
    let theirs = json!({"kind": "ServiceAccount", "namespace": "shop", "name": "shop-gitops"});
    let snapshot = Snapshot {
        role_bindings: vec![
            binding("lane", json!([ours]), MANAGED_BY_TENURE),
            binding("gitops", json!([theirs]), MANAGED_BY_TENURE),
            binding("both", json!([ours, theirs]), MANAGED_BY_TENURE),
            binding("nobody", json!([]), MANAGED_BY_TENURE),
            binding("foreign", json!([ours]), "helm"),
        ],
        ..Snapshot::default()
    };
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert_eq!(list_lines(&plan), [vec!["RoleBinding shop/lane: deleted"]]);
}

/// Without a controller that removes the finalizer, the namespace of such a RoleBinding could never be deleted.
#[test]
fn the_rights_of_a_lane_go_with_their_finalizer() {
    let lane = json!([{"kind": "ServiceAccount", "namespace": PLATFORM_NAMESPACE, "name": "tenure-lane-tenant-shop"}]);
    let of_lane = |namespace: &str| {
        let binding = set_value(
            make_object("RoleBinding", namespace, LANE_BINDING),
            "/subjects",
            lane.clone(),
        );
        let binding = set_value(binding, "/metadata/finalizers", json!([LANE_FINALIZER, "another"]));
        let labels = json!({MANAGED_BY: MANAGED_BY_TENURE, LANE_LABEL: "shop"});
        make_observed(set_value(binding, "/metadata/labels", labels))
    };
    let installed = set_value(
        make_object("RoleBinding", "default", "tenure-events"),
        "/subjects",
        lane.clone(),
    );
    let snapshot = Snapshot {
        role_bindings: vec![
            of_lane("shop"),
            of_lane(PLATFORM_NAMESPACE),
            make_observed(installed.clone()),
        ],
        installed: vec![make_observed(installed)],
        ..Snapshot::default()
    };
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert_eq!(
        list_lines(&plan),
        [
            vec![
                format!("RoleBinding shop/{LANE_BINDING}: without its lane's finalizer"),
                format!("RoleBinding {PLATFORM_NAMESPACE}/{LANE_BINDING}: without its lane's finalizer"),
            ],
            vec![
                format!("RoleBinding shop/{LANE_BINDING}: deleted"),
                format!("RoleBinding {PLATFORM_NAMESPACE}/{LANE_BINDING}: deleted"),
                "RoleBinding default/tenure-events: deleted".to_owned(),
            ],
        ]
    );
    let Action::Patch(patch) = &plan.stages[0][0].action else {
        panic!("a patch")
    };
    assert_eq!(patch["metadata"]["finalizers"], json!(["another"]));
}

#[test]
fn finished_steps_are_not_repeated() {
    assert_eq!(plan(&Snapshot::default(), KindChoice::All).unwrap(), Plan::default());
    let going = set_value(
        make_object("Namespace", "", PLATFORM_NAMESPACE),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    let snapshot = Snapshot {
        installed: vec![make_observed(going)],
        reconciled: vec![make_observed(set_value(
            make_object("Kustomization", "shop", "web"),
            "/spec",
            json!({"suspend": true}),
        ))],
        ..Snapshot::default()
    };
    assert!(plan(&snapshot, KindChoice::All).unwrap().stages.is_empty());
}

/// A tenant that restores its finalizer each time keeps the finalizer, and nothing else.
#[test]
fn restored_finalizers_do_not_block_uninstallation() {
    let mut snapshot = make_snapshot();
    for seen in &snapshot.reconciled {
        snapshot.attempts.insert(seen.path.clone(), ATTEMPTS - 1);
    }
    assert_eq!(list_lines(&plan(&snapshot, KindChoice::All).unwrap())[1].len(), 3);
    for attempts in snapshot.attempts.values_mut() {
        *attempts = ATTEMPTS;
    }
    // Objects in the platform namespace belong to no tenant.
    snapshot.inside = vec![make_observed(make_kustomization(PLATFORM_NAMESPACE, "platform"))];
    let plan = plan(&snapshot, KindChoice::All).unwrap();
    let released = &list_lines(&plan)[1];
    assert!(
        released
            .iter()
            .any(|step| step.starts_with("Kustomization tenure-system/platform")),
        "{released:?}"
    );
    assert!(
        !released.iter().any(|step| step.starts_with("Kustomization shop/web")),
        "{released:?}"
    );
    assert!(
        plan.stays.iter().any(|line| line.contains("undoes it")),
        "{:?}",
        plan.stays
    );
    assert!(
        list_lines(&plan)
            .concat()
            .contains(&"ClusterRoleBinding tenure-controller: deleted".to_owned())
    );
}

/// Webhooks without a process would refuse the next writes. No account may restore them, or create namespaces without admission.
#[test]
fn webhooks_are_deleted_before_their_server() {
    let mut snapshot = make_snapshot();
    let ours = |kind: &str, name: &str| {
        make_observed(set_value(
            make_object(kind, "", name),
            "/metadata/labels",
            json!({MANAGED_BY: MANAGED_BY_TENURE}),
        ))
    };
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    snapshot.installed.extend([
        ours("ClusterRole", NAMESPACE_PROVISIONER_CLUSTER_ROLE),
        ours("ClusterRole", NAMESPACE_APPLIER_CLUSTER_ROLE),
        ours("ClusterRole", ADMISSION_ROLE),
        ours("ClusterRoleBinding", ADMISSION_ROLE),
        ours(kinds[0], CONFIGURATION),
        ours(kinds[1], CONFIGURATION),
    ]);
    let list_stages = |plan: &Plan| -> Vec<Vec<String>> {
        let says = |step: &Step| step.says.clone();
        plan.stages
            .iter()
            .map(|stage| stage.iter().map(says).collect())
            .collect()
    };
    let stages = list_stages(&plan(&snapshot, KindChoice::Own).unwrap());
    assert_eq!(
        stages[0],
        [
            "ClusterRoleBinding tenure-admission: deleted",
            "ClusterRole capsule-namespace-provisioner: deleted",
            "ClusterRole tenure-namespace-applier: deleted"
        ]
    );
    assert_eq!(stages[1], kinds.map(|kind| format!("{kind} tenure: deleted")));
    assert!(stages[2][0].starts_with("Deployment"), "{stages:?}");
    // An object of another owner with the same name stays.
    for seen in &mut snapshot.installed {
        if ObjectView::new(&seen.object)
            .read_text("/kind")
            .ends_with("Configuration")
        {
            seen.object["metadata"]["labels"] = json!({});
        }
    }
    let stages = list_stages(&plan(&snapshot, KindChoice::Own).unwrap());
    assert!(
        stages
            .concat()
            .iter()
            .all(|step| !step.contains("WebhookConfiguration")),
        "{stages:?}"
    );
}

#[test]
fn policies_go_before_what_they_read() {
    let mut snapshot = make_snapshot();
    let named = |kind: &str, name: &str| make_observed(make_object(kind, "", name));
    snapshot.policies = vec![
        named("ValidatingAdmissionPolicyBinding", "tenure-cordoned"),
        named("ValidatingAdmissionPolicy", "tenure-cordoned"),
    ];
    snapshot.tenant_rights = vec![named("ClusterRole", "tenure:shop:own")];
    let stated = set_value(
        make_object("Namespace", "", "shop"),
        "/metadata/annotations",
        json!({ "facts.tenure.dev/tenant": "shop", "another": "stays" }),
    );
    let marks = json!({ "tenure.dev/bounded": "true", "tenure.dev/counted": "true", "tenure.dev/another": "stays" });
    let stated = set_value(stated, "/metadata/labels", marks);
    snapshot.stated = vec![make_observed(stated)];
    let choice = RemovalChoice {
        kinds: KindChoice::Own,
        with_protection: true,
    };
    let plan = plan(&snapshot, choice).unwrap();
    let lines = list_lines(&plan);
    assert_eq!(
        lines[1..3],
        [
            vec![
                "ValidatingAdmissionPolicyBinding tenure-cordoned: deleted".to_owned(),
                "ValidatingAdmissionPolicy tenure-cordoned: deleted".to_owned(),
            ],
            vec![
                "Namespace shop: without the facts for policies".to_owned(),
                "ClusterRole tenure:shop:own: deleted".to_owned(),
            ],
        ]
    );
    let Action::Patch(patch) = &find(&plan, "Namespace shop: without").action else {
        panic!("a patch")
    };
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({ "facts.tenure.dev/tenant": null })
    );
    assert_eq!(
        patch["metadata"]["labels"],
        json!({ "tenure.dev/bounded": null, "tenure.dev/counted": null })
    );
}

/// For every choice of kinds: without a controller that removes the finalizer, a Tenant could never be deleted.
#[test]
fn tenant_finalizers_are_removed_before_kinds_are_deleted() {
    for kinds in [KindChoice::None, KindChoice::Own, KindChoice::All] {
        let mut snapshot = make_snapshot();
        let mut tenant = make_object("Tenant", "", "shop");
        tenant["metadata"]["finalizers"] = json!(["tenure.dev/finalizer", "example.org/kept"]);
        snapshot.tenants = vec![make_observed(tenant)];
        let plan = plan(&snapshot, kinds).unwrap();
        let Action::Patch(patch) = &find(&plan, "Tenant shop: without").action else {
            panic!("a patch")
        };
        assert_eq!(patch["metadata"]["finalizers"], json!(["example.org/kept"]));
        let stage = |begins: &str| {
            let stages = list_lines(&plan);
            stages
                .iter()
                .position(|stage| stage.iter().any(|line| line.starts_with(begins)))
        };
        let kind = stage("CustomResourceDefinition").unwrap_or(usize::MAX);
        assert!(stage("Deployment") < stage("Tenant shop: without") && stage("Tenant shop: without") < Some(kind));
    }
}

/// Without a controller that removes the finalizer, neither a request nor its kind could be deleted. The plan first reports what the request's credentials leave
/// behind.
#[test]
fn access_requests_lose_finalizer_and_credentials_are_reported() {
    let mut snapshot = make_snapshot();
    snapshot.access = ["AccessProvider", "FluxAccessRequest"]
        .map(|kind| {
            let finalizers = json!(["tenure.dev/finalizer", "example.org/kept"]);
            let mut object = set_value(
                make_object(kind, PLATFORM_NAMESPACE, "work"),
                "/metadata/finalizers",
                finalizers,
            );
            object["apiVersion"] = json!("tenure.dev/v1alpha1");
            make_observed(object)
        })
        .into();
    for kinds in [KindChoice::None, KindChoice::Own, KindChoice::All] {
        let plan = plan(&snapshot, kinds).unwrap();
        for kind in ["AccessProvider", "FluxAccessRequest"] {
            let step = find(&plan, &format!("{kind} {PLATFORM_NAMESPACE}/work: without"));
            let Action::Patch(patch) = &step.action else {
                panic!("a patch")
            };
            assert_eq!(patch["metadata"]["finalizers"], json!(["example.org/kept"]));
        }
        let is_about_requests = |line: &&String| line.starts_with("the objects of 1 FluxAccessRequests");
        let told = plan.stays.iter().filter(is_about_requests).count();
        assert_eq!(told, 1, "{:?}", plan.stays);
    }
}
