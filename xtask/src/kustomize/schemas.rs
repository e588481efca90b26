//! Makes up the schemas of a kustomization: `make_openapi` with merge keys, and `make_crds` with reference fields. Their definitions are of kinds that the objects have.

use super::random::Random;
use super::trees::Folder;
use super::writer::{Value, list, map};

/// Makes the field `make_openapi`.
pub(super) fn make_openapi(random: &mut Random, folder: &mut Folder) -> Value {
    if random.chance(10) {
        return map([("version", "v1.21.2".into())]);
    }
    let document = make_document(random);
    let text = folder.text(random, &document);
    let stem = random.pick(&["schema", "schema.json"]);
    map([("path", folder.file(random, stem, &text).into())])
}

fn make_kind(group: &str, version: &str, kind: &str) -> Value {
    list([map([
        ("group", group.into()),
        ("version", version.into()),
        ("kind", kind.into()),
    ])])
}

fn make_text() -> Value {
    map([("type", "string".into())])
}

fn make_document(random: &mut Random) -> Value {
    let element = map([
        ("type", "object".into()),
        (
            "properties",
            map([
                ("name", make_text()),
                ("value", make_text()),
                ("more", map([("type", "object".into())])),
            ]),
        ),
    ]);
    let mut merged = map([("type", "array".into()), ("items", element)]);
    if random.chance(85) {
        merged.put(
            "x-kubernetes-patch-strategy",
            random.pick(&["merge", "merge", "merge,retainKeys", "replace"]),
        );
    }
    match random.draw_below(4) {
        0 => merged.put(
            "x-kubernetes-list-map-keys",
            random.pick(&[vec!["name"], vec!["name", "value"]]),
        ),
        1 => {}
        _ => merged.put("x-kubernetes-patch-merge-key", random.pick(&["name", "name", "value"])),
    }
    let scalars = map([
        ("type", "array".into()),
        ("items", make_text()),
        ("x-kubernetes-patch-strategy", "merge".into()),
    ]);
    let mut properties = map([("list", merged)]);
    if random.chance(40) {
        properties.put("items", scalars);
    }
    if random.chance(50) {
        let reference = random.pick(&[
            "#/definitions/com.example.v1.WidgetSpec",
            "#/definitions/com.example.v1.Missing",
            "#/definitions/io.k8s.api.core.v1.PodTemplateSpec",
        ]);
        properties.put("nested", map([("$ref", reference.into())]));
    }
    let spec = map([("type", "object".into()), ("properties", properties)]);
    let widget = map([
        ("type", "object".into()),
        (
            "properties",
            map([
                ("apiVersion", make_text()),
                ("kind", make_text()),
                ("metadata", map([("type", "object".into())])),
                (
                    "spec",
                    map([("$ref", "#/definitions/com.example.v1.WidgetSpec".into())]),
                ),
            ]),
        ),
        (
            "x-kubernetes-group-version-kind",
            make_kind("example.com", "v1", "Widget"),
        ),
    ]);
    let mut definitions = map([("com.example.v1.Widget", widget), ("com.example.v1.WidgetSpec", spec)]);
    if random.chance(30) {
        let template = map([("$ref", "#/definitions/io.k8s.api.core.v1.PodTemplateSpec".into())]);
        let rollout = map([
            ("type", "object".into()),
            (
                "properties",
                map([("spec", map([("properties", map([("template", template)]))]))]),
            ),
            (
                "x-kubernetes-group-version-kind",
                make_kind("argoproj.io", "v1alpha1", "Rollout"),
            ),
        ]);
        definitions.put("io.argoproj.v1alpha1.Rollout", rollout);
    }
    let mut document = map([("definitions", definitions)]);
    if random.chance(40) {
        let get = map([(
            "get",
            map([
                ("x-kubernetes-action", "list".into()),
                (
                    "x-kubernetes-group-version-kind",
                    map([
                        ("group", "example.com".into()),
                        ("kind", "ClusterWidget".into()),
                        ("version", "v1".into()),
                    ]),
                ),
            ]),
        )]);
        let path = random.pick(&[
            "/apis/example.com/v1/clusterwidgets",
            "/apis/example.com/v1/namespaces/{namespace}/clusterwidgets",
        ]);
        document.put("paths", map([(path, get)]));
    }
    document
}

/// Makes the field `make_crds`.
pub(super) fn make_crds(random: &mut Random, folder: &mut Folder) -> Value {
    let mut reference = make_text();
    reference.put("x-kubernetes-object-ref-api-version", "v1");
    reference.put("x-kubernetes-object-ref-kind", random.pick(&["ConfigMap", "Secret"]));
    if random.chance(30) {
        reference.put("x-kubernetes-object-ref-name-key", "name");
    }
    let mut properties = map([("target", reference)]);
    if random.chance(40) {
        properties.put(
            "selector",
            map([("type", "object".into()), ("x-kubernetes-label-selector", "".into())]),
        );
    }
    if random.chance(40) {
        properties.put(
            "notes",
            map([("type", "object".into()), ("x-kubernetes-annotation", "".into())]),
        );
    }
    if random.chance(30) {
        properties.put("text", make_text().with("x-kubernetes-identity", ""));
    }
    let spec = map([("Schema", map([("properties", properties)]))]);
    let widget = map([
        ("apiVersion", make_text()),
        ("kind", make_text()),
        (
            "metadata",
            map([("$ref", "k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta".into())]),
        ),
        ("spec", map([("$ref", "example.com/pkg.WidgetSpec".into())])),
    ]);
    let schema = random.pick(&["Schema", "schema"]);
    let document = map([
        ("example.com/pkg.Widget", map([(schema, map([("properties", widget)]))])),
        ("example.com/pkg.WidgetSpec", spec),
    ]);
    let text = folder.text(random, &document);
    vec![folder.file(random, "crd", &text)].into()
}
