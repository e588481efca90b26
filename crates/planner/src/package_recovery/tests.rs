//! Recoveries by data: the writers of a Package in their order, the manifest of the release, and the rows of the plan. Each case also executes the plan.

use serde_json::{Value, json};
use structured_merge::{Applied, FieldManager, Managed, Timestamp, Typing};

use super::*;

const API: &str = "cozystack.io/v1alpha1";
const NAME: &str = "cozystack.metallb";
/// The chart's version in the manifest of its release.
const MANIFEST: &str = "\
---
# Source: platform/templates/secret.yaml
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {token: hidden-value}
---
# Source: platform/templates/packages.yaml
apiVersion: cozystack.io/v1alpha1
kind: Package
metadata:
  name: cozystack.metallb
  annotations: {helm.sh/resource-policy: keep}
  labels: {helm.toolkit.fluxcd.io/name: platform, helm.toolkit.fluxcd.io/namespace: cozy-system}
spec:
  variant: default
  components:
    metallb: {values: {controller: {replicas: 2}}}
";

fn release() -> ReleaseName {
    ReleaseName {
        namespace: "cozy-system".to_owned(),
        name: "platform".to_owned(),
    }
}

fn manager() -> FieldManager {
    FieldManager::new(Typing::deduced(), API, "Package").for_custom_resource()
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(1_700_000_000)
}

fn apply(live: Option<&Value>, by: &str, object: &Value) -> Value {
    let applied: Applied = manager().apply(live, object, by, true, now()).unwrap();
    applied.into_object(live)
}

/// Merges a patch into an object, as the API server does for a writer.
fn patch(live: &Value, by: &str, patch: &Value) -> Value {
    fn merge(target: &mut Value, patch: &Value) {
        let Some(patch) = patch.as_object() else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let target = target.as_object_mut().unwrap();
        for (key, value) in patch {
            match value {
                Value::Null => drop(target.remove(key)),
                value => merge(target.entry(key).or_insert(Value::Null), value),
            }
        }
    }
    let mut new = live.clone();
    merge(&mut new, patch);
    manager().update(Some(live), new, by, now())
}

fn package(spec: Value) -> Value {
    json!({ "apiVersion": API, "kind": "Package", "metadata": { "name": NAME }, "spec": spec })
}

fn values(values: Value) -> Value {
    json!({ "components": { "metallb": { "values": values } } })
}

fn chart() -> Value {
    find_rendered(MANIFEST, &package(json!({})), &release()).unwrap()
}

/// Returns the Package as its chart made it.
fn installed() -> Value {
    let mut live = apply(None, "helm-controller", &chart());
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["uid"] = json!("u");
    live
}

fn rows(plan: &Recovery) -> Vec<String> {
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), Value::to_string);
    let write = |row: &RecoveredField| {
        let (before, after) = (text(&row.before), text(&row.after));
        let owners = row.owners.join("+");
        format!("{} {}: {before} > {after} ({owners})", row.effect.as_str(), row.path)
    };
    plan.fields.iter().map(write).collect()
}

fn only(names: &[&str]) -> Reset {
    Reset::Managers(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Executes the first write of a plan.
fn transfer(live: &Value, plan: &Recovery) -> Value {
    let Some(transfer) = &plan.transfer else {
        return live.clone();
    };
    let mut new = live.clone();
    new["metadata"]["managedFields"] = transfer[0]["value"].clone();
    manager().update(Some(live), new, "tenure-recover", now())
}

/// Plans a recovery, compares its rows, executes it, and returns the Package. Afterwards nothing is left to do.
#[track_caller]
fn check(live: &Value, reset: &Reset, expected: &[&str]) -> Value {
    let plan = super::plan(live, &chart(), reset).unwrap();
    assert_eq!(rows(&plan), expected);
    let is_needed = expected.iter().any(|row| !row.starts_with("keep"));
    assert_eq!(plan.is_needed(), is_needed);
    if !is_needed {
        return live.clone();
    }
    let between = transfer(live, &plan);
    // A kill after the first write: the next plan has the same changes, also without the flag.
    for reset in [reset, &Reset::Nothing] {
        let next = super::plan(&between, &chart(), reset).unwrap();
        assert!(next.is_within(&plan) && plan.is_within(&next), "{:#?}", rows(&next));
    }
    let done = apply(Some(&between), &plan.manager, &plan.write_apply(&between));
    let left = super::plan(&done, &chart(), &Reset::Nothing).unwrap();
    assert!(!left.is_needed(), "{:#?}", rows(&left));
    assert_eq!(done["spec"]["variant"], "default");
    done
}

fn owners(object: &Value, path: &str) -> Vec<String> {
    list_owners(&Managed::of_object(object).unwrap(), &path.parse().unwrap())
}

#[test]
fn untouched_package_needs_no_recovery() {
    check(&installed(), &Reset::Nothing, &[]);
    let tuned = apply(Some(&installed()), "kubectl", &package(values(json!({ "speaker": 1 }))));
    let row = "keep .spec.components.metallb.values.speaker: 1 > 1 (kubectl)";
    check(&tuned, &Reset::Nothing, &[row]);
}

#[test]
fn stolen_fields_return_to_the_chart() {
    let stolen = json!({
        "variant": "oidc",
        "components": { "metallb": { "values": { "controller": { "replicas": 5 }, "speaker": 1 } } }
    });
    let live = apply(Some(&installed()), "kustomize-controller", &package(stolen));
    let rows = [
        "restore .spec.components.metallb.values.controller.replicas: 5 > 2 (kustomize-controller)",
        "keep .spec.components.metallb.values.speaker: 1 > 1 (kustomize-controller)",
        "restore .spec.variant: \"oidc\" > \"default\" (kustomize-controller)",
    ];
    let done = check(&live, &Reset::Nothing, &rows);
    for path in [".spec.variant", ".spec.components.metallb.values.controller.replicas"] {
        assert_eq!(owners(&done, path), ["helm-controller"], "{path}");
    }
    assert_eq!(done["spec"]["components"]["metallb"]["values"]["speaker"], 1);
}

/// An owner of the maps around a field would keep them in the Package after the chart removes them.
#[test]
fn manager_without_other_fields_owns_no_map() {
    let stolen = package(values(json!({ "controller": { "replicas": 5 } })));
    let by_apply = apply(Some(&installed()), "thief", &stolen);
    let by_patch = patch(&installed(), "thief", &json!({ "spec": stolen["spec"] }));
    let mut beside = stolen;
    beside["spec"]["components"]["metallb"]["values"]["speaker"] = json!({ "level": 1 });
    let beside = apply(Some(&installed()), "thief", &beside);
    for (live, expected) in [
        (&by_apply, &["helm-controller"][..]),
        (&by_patch, &["helm-controller"]),
        (&beside, &["helm-controller", "thief"]),
    ] {
        let plan = super::plan(live, &chart(), &Reset::Nothing).unwrap();
        let between = transfer(live, &plan);
        let done = apply(Some(&between), &plan.manager, &plan.write_apply(&between));
        assert_eq!(list_managers(&Managed::of_object(&done).unwrap()), expected);
        let thieves = owners(&done, ".spec.components.metallb.values.controller");
        assert!(!thieves.contains(&"thief".to_owned()), "{thieves:?}");
    }
}

#[test]
fn named_manager_loses_fields_beside_the_chart() {
    let orphans = json!({ "components": { "other": { "enabled": false, "values": { "a": { "b": 1 } } } } });
    let live = apply(Some(&installed()), "kustomize-controller", &package(orphans));
    let live = patch(
        &live,
        "kubectl-edit",
        &json!({ "spec": values(json!({ "speaker": 1 })) }),
    );
    let gone = [
        "remove .spec.components.other.enabled: false > - (kustomize-controller)",
        "remove .spec.components.other.values.a.b: 1 > - (kustomize-controller)",
    ];
    let stays = "keep .spec.components.metallb.values.speaker: 1 > 1 (kubectl-edit)";
    let done = check(&live, &only(&["kustomize-controller"]), &[stays, gone[0], gone[1]]);
    let expected = json!({ "metallb": { "values": { "controller": { "replicas": 2 }, "speaker": 1 } } });
    assert_eq!(done["spec"]["components"], expected);
    let goes = "remove .spec.components.metallb.values.speaker: 1 > - (kubectl-edit)";
    let done = check(&live, &Reset::All, &[goes, gone[0], gone[1]]);
    assert_eq!(done["spec"], chart()["spec"]);
}

/// A patch by hand owns the maps around its fields, too.
#[test]
fn emptied_maps_go_with_their_fields() {
    let live = patch(
        &installed(),
        "kubectl-patch",
        &json!({ "spec": { "ignoreDependencies": ["x"], "components": { "a": { "values": { "b": 1 } }, "c": { "values": {} } } } }),
    );
    let done = check(
        &live,
        &Reset::All,
        &[
            "remove .spec.components.a.values.b: 1 > - (kubectl-patch)",
            "remove .spec.components.c.values: {} > - (kubectl-patch)",
            "remove .spec.ignoreDependencies: [\"x\"] > - (kubectl-patch)",
        ],
    );
    assert_eq!(done["spec"], chart()["spec"]);
}

#[test]
fn field_of_two_managers_stays_for_the_other() {
    let shared = package(values(json!({ "speaker": 1 })));
    let live = apply(Some(&installed()), "one", &shared);
    let live = apply(Some(&live), "two", &shared);
    let row = "keep .spec.components.metallb.values.speaker: 1 > 1 (one+two)";
    check(&live, &only(&["one"]), &[row]);
    let row = row.replace("keep", "remove").replace("1 > 1", "1 > -");
    check(&live, &only(&["one", "two"]), &[&row]);
}

#[test]
fn removed_fields_come_back() {
    let spec = json!({ "variant": null, "components": null });
    let live = patch(&installed(), "kubectl-edit", &json!({ "spec": spec }));
    let done = check(
        &live,
        &Reset::Nothing,
        &[
            "restore .spec.components.metallb.values.controller.replicas: - > 2 ()",
            "restore .spec.variant: - > \"default\" ()",
        ],
    );
    assert_eq!(done["spec"], chart()["spec"]);
    let annotations = json!({ "helm.sh/resource-policy": null });
    let live = patch(
        &installed(),
        "kubectl-edit",
        &json!({ "metadata": { "annotations": annotations } }),
    );
    let row = "restore .metadata.annotations.helm.sh/resource-policy: - > \"keep\" ()";
    check(&live, &Reset::Nothing, &[row]);
}

/// Another owner of the variant would be in conflict with the chart's next change. An administrator may apply a value of the chart unchanged.
#[test]
fn second_owner_loses_only_fields_that_are_the_charts_by_definition() {
    let same =
        json!({ "variant": "default", "components": { "metallb": { "values": { "controller": { "replicas": 2 } } } } });
    let live = apply(Some(&installed()), "kustomize-controller", &package(same));
    let row = "hand back .spec.variant: \"default\" > \"default\" (helm-controller+kustomize-controller)";
    let done = check(&live, &Reset::Nothing, &[row]);
    assert_eq!(owners(&done, ".spec.variant"), ["helm-controller"]);
    let replicas = ".spec.components.metallb.values.controller.replicas";
    assert_eq!(owners(&done, replicas), ["helm-controller", "kustomize-controller"]);
}

#[test]
fn value_that_is_right_again_is_handed_back() {
    let set = |replicas: u8| json!({ "spec": values(json!({ "controller": { "replicas": replicas } })) });
    let live = patch(&patch(&installed(), "kubectl-edit", &set(5)), "kubectl-edit", &set(2));
    let replicas = ".spec.components.metallb.values.controller.replicas";
    let row = format!("hand back {replicas}: 2 > 2 (kubectl-edit)");
    let done = check(&live, &Reset::Nothing, &[&row]);
    assert_eq!(owners(&done, replicas), ["helm-controller"]);
}

#[test]
fn map_and_value_change_places() {
    let scalar = json!({ "spec": values(json!({ "controller": 5 })) });
    let live = patch(&installed(), "kubectl-edit", &scalar);
    let done = check(
        &live,
        &Reset::Nothing,
        &[
            "remove .spec.components.metallb.values.controller: 5 > - (kubectl-edit)",
            "restore .spec.components.metallb.values.controller.replicas: - > 2 ()",
        ],
    );
    assert_eq!(done["spec"], chart()["spec"]);
    let deeper = json!({ "spec": values(json!({ "controller": { "replicas": { "min": 1 } } })) });
    let done = check(
        &patch(&installed(), "kubectl-edit", &deeper),
        &Reset::Nothing,
        &[
            "restore .spec.components.metallb.values.controller.replicas: - > 2 (kubectl-edit)",
            "remove .spec.components.metallb.values.controller.replicas.min: 1 > - (kubectl-edit)",
        ],
    );
    assert_eq!(done["spec"], chart()["spec"]);
}

/// Older releases of Helm wrote with updates.
#[test]
fn older_release_gets_its_fields_back() {
    let created = manager().update(None, chart(), "helm-controller", now());
    let live = patch(&created, "kubectl-edit", &json!({ "spec": { "variant": "oidc" } }));
    let done = check(
        &live,
        &Reset::Nothing,
        &["restore .spec.variant: \"oidc\" > \"default\" (kubectl-edit)"],
    );
    assert_eq!(owners(&done, ".spec.variant"), ["helm-controller"]);
    check(&created, &Reset::Nothing, &[]);
}

#[test]
fn chart_without_a_trace_gets_the_manager_of_its_labels() {
    let bare = patch(&installed(), "x", &json!({ "metadata": { "managedFields": [{}] } }));
    let bare = patch(&bare, "x", &json!({ "spec": { "variant": "oidc" } }));
    let mut plain = chart();
    plain["metadata"]["labels"] = json!({});
    for (chart, manager) in [(chart(), "helm-controller"), (plain, "helm")] {
        assert_eq!(super::plan(&bare, &chart, &Reset::Nothing).unwrap().manager, manager);
    }
}

#[test]
fn kustomization_is_named_only_if_it_applies_a_changed_field() {
    let labels =
        json!({ "kustomize.toolkit.fluxcd.io/name": "tuning", "kustomize.toolkit.fluxcd.io/namespace": "cozy-system" });
    let mut own = package(values(json!({ "speaker": 1 })));
    own["metadata"]["labels"] = labels;
    let live = apply(Some(&installed()), KUSTOMIZE_CONTROLLER, &own);
    let plan = |live: &Value, reset: &Reset| super::plan(live, &chart(), reset).unwrap().kustomization;
    let stolen = patch(&live, "kubectl-edit", &json!({ "spec": { "variant": "oidc" } }));
    assert_eq!(plan(&stolen, &Reset::Nothing), None);
    let found = Some(("cozy-system".to_owned(), "tuning".to_owned()));
    assert_eq!(plan(&live, &Reset::All), found);
    own["spec"]["variant"] = json!("oidc");
    assert_eq!(
        plan(&apply(Some(&live), KUSTOMIZE_CONTROLLER, &own), &Reset::Nothing),
        found
    );
}

#[test]
fn unknown_manager_is_named_with_the_known_ones() {
    let live = apply(Some(&installed()), "one", &package(values(json!({ "speaker": 1 }))));
    let plan = super::plan(&live, &chart(), &only(&["tow", "one"])).unwrap();
    assert_eq!(plan.unknown_managers, ["tow"]);
    assert_eq!(plan.managers, ["helm-controller", "one"]);
}

#[test]
fn another_change_is_not_within_the_shown_plan() {
    let set = |variant: &str| {
        let live = patch(&installed(), "one", &json!({ "spec": { "variant": variant } }));
        super::plan(&live, &chart(), &Reset::Nothing).unwrap()
    };
    let nothing = super::plan(&installed(), &chart(), &Reset::Nothing).unwrap();
    assert!(set("a").is_within(&set("b")) && nothing.is_within(&set("a")));
    assert!(!set("a").is_within(&nothing));
    let versioned = set("a").write_apply(&installed());
    assert_eq!(
        (&versioned["metadata"]["resourceVersion"], &versioned["metadata"]["uid"]),
        (&json!("7"), &json!("u"))
    );
}

#[test]
fn numbers_and_nulls_are_compared_by_value() {
    for (live, chart, expected) in [
        (Some(json!(1)), json!(1.0), true),
        (
            Some(json!(9_007_199_254_740_993_i64)),
            json!(9_007_199_254_740_992_i64),
            false,
        ),
        (Some(json!([1, { "a": 2 }])), json!([1.0, { "a": 2.0 }]), true),
        (None, Value::Null, true),
        (Some(Value::Null), Value::Null, true),
        (Some(json!({ "a": 1 })), json!({}), true),
        (Some(json!("1")), json!(1), false),
    ] {
        assert_eq!(is_same(live.as_ref(), &chart), expected, "{live:?} {chart}");
    }
}

#[test]
fn release_of_another_writer_is_not_believed() {
    assert_eq!(find_release(&installed()), Ok(release()));
    let annotations = json!({ "meta.helm.sh/release-namespace": "tenant-evil" });
    let forged = patch(
        &installed(),
        "mallory",
        &json!({ "metadata": { "annotations": annotations } }),
    );
    let problem = find_release(&forged).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "its annotation meta.helm.sh/release-namespace is of mallory, and not of Helm"
    );
    assert_eq!(find_release(&package(json!({}))), Err(ReleaseProblem::Missing));
}

#[test]
fn manifest_has_the_package_once() {
    let check = |manifest: &str, expected: Result<&str, ManifestProblem>| {
        let found = find_rendered(manifest, &package(json!({})), &release());
        let variant = found.map(|found| found["spec"]["variant"].as_str().unwrap().to_owned());
        assert_eq!(variant, expected.map(str::to_owned), "{manifest}");
    };
    check(MANIFEST, Ok("default"));
    check(&MANIFEST.replace('\n', "\r\n"), Ok("default"));
    check("", Err(ManifestProblem::NotRendered));
    check(
        &MANIFEST.replace("cozystack.metallb", "cozystack.metallb2"),
        Err(ManifestProblem::NotRendered),
    );
    check(&MANIFEST.replace("v1alpha1", "v1"), Err(ManifestProblem::NotRendered));
    check(&format!("{MANIFEST}{MANIFEST}"), Err(ManifestProblem::Ambiguous));
    check(
        &MANIFEST.replace("  name: cozystack", "\t name: cozystack"),
        Err(ManifestProblem::Unreadable(1)),
    );
    let list = "apiVersion: v1\nkind: List\nitems: [{apiVersion: cozystack.io/v1alpha1, kind: Package, metadata: {name: cozystack.metallb}, spec: {variant: a}}]";
    check(list, Ok("a"));
    let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
        d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: [*f,*f,*f,*f,*f,*f,*f,*f]\nkind: Package\nname: cozystack.metallb\n";
    check(bomb, Err(ManifestProblem::Unreadable(1)));
    let long = format!("{MANIFEST}{}", "#".repeat(LONGEST_MANIFEST));
    assert_eq!(
        find_rendered(&long, &package(json!({})), &release()),
        Err(ManifestProblem::TooLong)
    );
}

#[test]
fn rendered_package_is_as_helm_applies_it() {
    let metadata = json!({
        "name": NAME,
        "annotations": {
            "helm.sh/resource-policy": "keep", "meta.helm.sh/release-name": "platform", "meta.helm.sh/release-namespace": "cozy-system"
        },
        "labels": {
            "app.kubernetes.io/managed-by": "Helm", "helm.toolkit.fluxcd.io/name": "platform",
            "helm.toolkit.fluxcd.io/namespace": "cozy-system"
        }
    });
    assert_eq!(chart()["metadata"], metadata);
    let served = MANIFEST
        .replace("spec:\n", "status: {a: 1}\nspec:\n")
        .replace("  annotations:", "  uid: u\n  namespace: x\n  annotations:");
    assert_eq!(find_rendered(&served, &package(json!({})), &release()), Ok(chart()));
}
