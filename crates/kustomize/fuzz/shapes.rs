//! Converts the bytes of a fuzzer into trees of files, and checks every tree.

use kustomize::{LoadRestrictor, MapTree, Options, Overrides, build};
use serde_json::{Map, Value, json};

/// Checks whether Go's YAML reader refuses a character or changes it.
#[must_use]
pub fn is_unreadable(character: char) -> bool {
    matches!(character, '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Builds a tree with and without the options of a caller. The only requirement is an answer or an error, soon.
pub fn build_all(tree: &(String, MapTree)) {
    let (inside, tree) = tree;
    let plain = Options::default();
    let asked = Options {
        load_restrictor: LoadRestrictor::None,
        generate_missing: true,
        managed_by_label: true,
        overrides: Overrides {
            namespace: Some("team".to_owned()),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            ..Overrides::default()
        },
        ..Options::default()
    };
    for options in [plain, asked] {
        match build(tree, inside, &options) {
            Ok(built) => {
                let _ = built.to_yaml();
                for resource in &built.resources {
                    let _ = resource.locate("/metadata/name");
                }
            }
            Err(error) => {
                let _ = error.to_string();
            }
        }
    }
}

/// Cuts bytes into files at lines `-- PATH --`; the first line names the folder to build.
#[must_use]
pub fn tree(bytes: &[u8]) -> (String, MapTree) {
    let mut tree = MapTree::new();
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let inside = String::from_utf8_lossy(lines.next().unwrap_or_default())
        .trim()
        .to_owned();
    let mut file: Option<(String, Vec<u8>)> = None;
    for line in lines {
        let heading = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.trim_end().strip_prefix("-- ")?.strip_suffix(" --"));
        match (heading, &mut file) {
            (Some(heading), open) => {
                if let Some((path, content)) = open.take() {
                    tree.insert(&path, content);
                }
                match heading.split_once(" -> ") {
                    Some((path, target)) => tree.insert_link(path, target),
                    None => *open = Some((heading.to_owned(), Vec::new())),
                }
            }
            (None, Some((_, content))) => content.extend_from_slice(line),
            (None, None) => file = Some(("kustomization.yaml".to_owned(), line.to_vec())),
        }
    }
    if let Some((path, content)) = file {
        tree.insert(&path, content);
    }
    (inside, tree)
}

/// Draws choices from bytes; when they are used up every choice is the first.
struct Draw<'bytes> {
    bytes: std::slice::Iter<'bytes, u8>,
}

const NAMES: &[&str] = &["web", "app", "settings", "a", "web-1", "", "no", "1"];
const SPACES: &[&str] = &["", "default", "team", "kube-system"];
const TEXTS: &[&str] = &[
    "web",
    "yes",
    "0644",
    "1e3",
    "~",
    "null",
    "",
    "a: b",
    "line\nline\n",
    "${web}",
    "$(VAR)",
    "$(web)",
    "*",
    "a,b.c:d",
    "nginx:1.0",
    "nginx",
    "nginx@sha256:abc",
    "{\"a\": 1}",
    "[1]",
    "<<",
    "=",
    "2020-01-01",
    "ünï",
    "- a",
    "#",
    "key=value",
];
const KINDS: &[(&str, &str)] = &[
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("v1", "Namespace"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
    ("example.com/v1", "Widget"),
    ("batch/v1", "CronJob"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("v1", "List"),
];
const PATHS: &[&str] = &[
    "metadata.name",
    "metadata.labels.app",
    "spec.template.spec.containers.[name=web].image",
    "spec.template.spec.containers.0.image",
    "spec.template.spec.containers.*.env",
    "data.key",
    "data",
    "spec",
    "metadata",
    "spec.replicas",
    "spec.list.[a=b].c",
    "",
    "metadata.annotations.[x.y/z]",
    "spec.list.-",
];
const POINTERS: &[&str] = &[
    "/data/key",
    "/metadata/labels",
    "/spec/list/0",
    "/spec/list/-",
    "",
    "/metadata/name",
    "/spec/replicas",
    "/a~1b",
];
const FILES: &[&str] = &[
    "a.yaml",
    "b.yaml",
    "p.yaml",
    "c.properties",
    "missing.yaml",
    "../0/a.yaml",
    ".",
    "link.yaml",
];

impl Draw<'_> {
    fn byte(&mut self) -> usize {
        self.bytes.next().map_or(0, |byte| usize::from(*byte))
    }

    fn one<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.byte() % from.len()]
    }

    fn text(&mut self, from: &[&str]) -> Value {
        Value::from(self.one(from))
    }

    fn chance(&mut self, of: usize) -> bool {
        self.byte() % of == 1
    }

    fn some(&mut self, most: usize, mut each: impl FnMut(&mut Self) -> Value) -> Value {
        let count = self.byte() % (most + 1);
        (0..count).map(|_| each(self)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.byte() % 8 {
            0..=3 => self.text(TEXTS),
            4 => json!(self.byte()),
            5 => self.one(&[json!(null).is_null(), false]).into(),
            6 if depth < 4 => self.some(3, |draw| draw.value(depth + 1)),
            7 if depth < 4 => self.map(depth),
            _ => Value::Null,
        }
    }

    fn map(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        for _ in 0..self.byte() % 4 {
            let key = self.one(&[
                "name",
                "key",
                "app",
                "a",
                "image",
                "$patch",
                "$retainKeys",
                "list",
                "spec",
                "x.y/z",
                "replicas",
            ]);
            map.insert(key.to_owned(), self.value(depth + 1));
        }
        Value::Object(map)
    }

    fn resource(&mut self) -> Value {
        let (version, kind) = self.one(KINDS);
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": self.one(NAMES)}});
        let metadata = &mut object["metadata"];
        if self.chance(3) {
            metadata["namespace"] = self.text(SPACES);
        }
        if self.chance(3) {
            metadata["labels"] = self.map(2);
        }
        if self.chance(3) {
            let name = self.one(&[
                "config.kubernetes.io/local-config",
                "internal.config.kubernetes.io/generatorBehavior",
                "internal.config.kubernetes.io/needsHashSuffix",
                "a",
            ]);
            metadata["annotations"] = json!({name: self.one(TEXTS)});
        }
        match kind {
            "ConfigMap" | "Secret" => object["data"] = self.map(3),
            "Deployment" => {
                let containers = self.some(3, |draw| {
                    json!({"name": draw.one(NAMES), "image": draw.one(TEXTS),
                        "env": draw.some(2, |draw| json!({"name": draw.one(NAMES), "value": draw.one(TEXTS)})),
                        "ports": draw.some(2, |draw| json!({"containerPort": draw.byte(), "protocol": "TCP"})),
                        "envFrom": draw.some(1, |draw| json!({"configMapRef": {"name": draw.one(NAMES)}}))})
                });
                object["spec"] = json!({"replicas": self.byte(), "selector": {"matchLabels": self.map(3)},
                    "template": {"metadata": {"labels": self.map(3)}, "spec": {"containers": containers,
                    "serviceAccountName": self.one(NAMES), "volumes": self.some(2, |draw| json!({"name": draw.one(NAMES),
                        "configMap": {"name": draw.one(NAMES)}}))}}});
            }
            "RoleBinding" => {
                object["roleRef"] =
                    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.one(NAMES)});
                object["subjects"] = self.some(
                    2,
                    |draw| json!({"kind": "ServiceAccount", "name": draw.one(NAMES), "namespace": draw.one(SPACES)}),
                );
            }
            "List" => object["items"] = self.some(2, |draw| draw.value(2)),
            _ => object["spec"] = self.value(1),
        }
        object
    }

    fn selector(&mut self) -> Value {
        let mut selector = json!({"kind": self.one(&[".*", "Deployment", "ConfigMap", "(", "Widget", ""]), "name": self.one(&[".*", "web", "", "a|b", "["])});
        if self.chance(3) {
            selector["labelSelector"] = self.text(&["app=web", "app in (a,b)", "!app", "(", "app"]);
        }
        if self.chance(4) {
            selector["namespace"] = self.text(SPACES);
        }
        selector
    }

    fn patch(&mut self) -> Value {
        let text = if self.chance(2) {
            self.some(3, |draw| {
                let op = draw.one(&["add", "remove", "replace", "copy", "move", "test", "x"]);
                json!({"op": op, "path": draw.one(POINTERS), "from": draw.one(POINTERS), "value": draw.value(2)})
            })
        } else {
            let mut patch = self.resource();
            if self.chance(3) {
                patch["$patch"] = self.text(&["delete", "replace", "merge", "x"]);
            }
            patch
        };
        let mut patch = json!({});
        if self.chance(5) {
            patch["path"] = self.text(FILES);
        } else {
            patch["patch"] = Value::from(text.to_string());
        }
        if self.chance(2) {
            patch["target"] = self.selector();
        }
        if self.chance(4) {
            patch["options"] = json!({"allowNameChange": self.chance(2), "allowKindChange": self.chance(2)});
        }
        patch
    }

    fn generator(&mut self) -> Value {
        json!({"name": self.one(NAMES), "behavior": self.one(&["", "create", "merge", "replace", "x"]),
            "literals": self.some(2, |draw| draw.text(TEXTS)), "files": self.some(2, |draw| draw.text(FILES)),
            "envs": self.some(1, |draw| draw.text(FILES)), "options": {"disableNameSuffixHash": self.chance(2), "labels": self.map(3)}})
    }

    fn replacement(&mut self) -> Value {
        let options = |draw: &mut Self| {
            json!({"delimiter": draw.one(&["", ":", "/", "-"]), "index": draw.byte() as i64 - 3, "create": draw.chance(2),
                "encoding": draw.one(&["", "base64"])})
        };
        json!({"source": {"kind": self.one(KINDS).1, "name": self.one(NAMES), "fieldPath": self.one(PATHS), "options": options(self)},
            "targets": self.some(2, |draw| json!({"select": draw.selector(), "reject": draw.some(1, Self::selector),
                "fieldPaths": draw.some(2, |draw| draw.text(PATHS)), "options": options(draw)}))})
    }

    fn kustomization(&mut self, layer: usize) -> Value {
        let mut k = json!({});
        let mut resources: Vec<Value> = vec!["a.yaml".into()];
        for _ in 0..self.byte() % 3 {
            resources.push(if layer > 0 {
                format!("../{}", self.byte() % layer).into()
            } else {
                self.text(FILES)
            });
        }
        k["resources"] = resources.into();
        let fields: [(&str, fn(&mut Self) -> Value); 22] = [
            ("namespace", |draw| draw.text(SPACES)),
            ("namePrefix", |draw| draw.text(NAMES)),
            ("nameSuffix", |draw| draw.text(NAMES)),
            ("commonLabels", |draw| draw.map(3)),
            ("commonAnnotations", |draw| draw.map(3)),
            ("labels", |draw| {
                draw.some(2, |draw| {
                    json!({"pairs": draw.map(3), "includeSelectors": draw.chance(2), "includeTemplates": draw.chance(2),
                        "fields": draw.some(1, |draw| json!({"path": draw.one(POINTERS), "create": draw.chance(2)}))})
                })
            }),
            ("images", |draw| {
                draw.some(2, |draw| json!({"name": draw.one(TEXTS), "newName": draw.one(TEXTS), "newTag": draw.one(TEXTS), "digest": draw.one(&["", "sha256:a"])}))
            }),
            ("replicas", |draw| {
                draw.some(2, |draw| json!({"name": draw.one(NAMES), "count": draw.byte()}))
            }),
            ("patches", |draw| draw.some(3, Self::patch)),
            ("patchesStrategicMerge", |draw| {
                draw.some(2, |draw| draw.resource().to_string().into())
            }),
            ("configMapGenerator", |draw| draw.some(2, Self::generator)),
            ("secretGenerator", |draw| draw.some(2, Self::generator)),
            (
                "generatorOptions",
                |draw| json!({"labels": draw.map(3), "immutable": draw.chance(2), "disableNameSuffixHash": draw.chance(2)}),
            ),
            ("replacements", |draw| draw.some(2, Self::replacement)),
            ("vars", |draw| {
                draw.some(2, |draw| {
                    let (version, kind) = draw.one(KINDS);
                    json!({"name": draw.one(&["VAR", "web"]), "objref": {"apiVersion": version, "kind": kind, "name": draw.one(NAMES)},
                        "fieldref": {"fieldpath": draw.one(PATHS)}})
                })
            }),
            (
                "sortOptions",
                |draw| json!({"order": draw.one(&["legacy", "fifo", "x"])}),
            ),
            ("buildMetadata", |draw| {
                draw.some(3, |draw| {
                    draw.text(&["originAnnotations", "transformerAnnotations", "managedByLabel"])
                })
            }),
            ("configurations", |draw| draw.some(1, |draw| draw.text(FILES))),
            ("crds", |draw| draw.some(1, |draw| draw.text(FILES))),
            ("transformers", |draw| {
                draw.some(2, |draw| {
                    let kind = draw.one(&["PrefixTransformer", "LabelTransformer", "NamespaceTransformer", "PatchTransformer", "ReplacementTransformer", "ImageTagTransformer"]);
                    json!({"apiVersion": "builtin", "kind": kind, "metadata": {"name": draw.one(NAMES)}, "prefix": draw.one(NAMES),
                        "patch": draw.resource().to_string(), "labels": draw.map(3), "fieldSpecs": [{"path": draw.one(POINTERS), "create": true}]})
                    .to_string()
                    .into()
                })
            }),
            ("components", |draw| draw.some(1, |_| "../component".into())),
            ("openapi", |draw| json!({"path": draw.one(FILES)})),
        ];
        for (name, make) in fields {
            if self.chance(4) {
                k[name] = make(self);
            }
        }
        k
    }
}

/// Draws up to four layers of kustomizations, one upon the other, and builds the last.
#[must_use]
pub fn layers(bytes: &[u8]) -> (String, MapTree) {
    let mut draw = Draw { bytes: bytes.iter() };
    let mut tree = MapTree::new();
    let count = 1 + draw.byte() % 4;
    for layer in 0..count {
        for file in ["a.yaml", "b.yaml", "p.yaml"] {
            let documents: Vec<String> = (0..1 + draw.byte() % 3)
                .map(|_| kustomize::to_yaml(&draw.resource()))
                .collect();
            tree.insert(&format!("{layer}/{file}"), documents.join("---\n"));
        }
        tree.insert(&format!("{layer}/c.properties"), "key=value\nweb=1\n");
        tree.insert_link(&format!("{layer}/link.yaml"), "b.yaml");
        let kustomization = draw.kustomization(layer);
        tree.insert(
            &format!("{layer}/kustomization.yaml"),
            kustomize::to_yaml(&kustomization),
        );
    }
    let mut component = draw.kustomization(0);
    component["apiVersion"] = "kustomize.config.k8s.io/v1alpha1".into();
    component["kind"] = "Component".into();
    component["resources"] = json!([]);
    tree.insert("component/kustomization.yaml", kustomize::to_yaml(&component));
    (format!("{}", count - 1), tree)
}
