//! The library's own guarantees: locations of fields, overrides, generation, refusals.

use kustomize::{
    Error, ImageOverride, MapTree, Options, Overrides, PatchOverride, PatchTarget, build, generate, read_manifests,
};

fn make_tree(files: &[(&str, &str)]) -> MapTree {
    let mut tree = MapTree::new();
    for (path, text) in files {
        tree.insert(path, *text);
    }
    tree
}

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: web
        image: nginx:1.0
";

#[test]
fn fields_know_their_file_and_line() {
    let tree = make_tree(&[
        ("base/kustomization.yaml", "resources: [web.yaml]\n"),
        ("base/web.yaml", DEPLOYMENT),
        (
            "over/kustomization.yaml",
            "resources: [../base]\npatches:\n- path: patch.yaml\n",
        ),
        (
            "over/patch.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 3\n  paused: true\n",
        ),
    ]);
    let built = build(&tree, "over", &Options::default()).unwrap();
    let resource = &built.resources[0];
    let at = |pointer: &str| resource.locate(pointer).unwrap().to_string();
    assert_eq!(resource.origin.location.to_string(), "base/web.yaml:1");
    assert_eq!(at("/spec/replicas"), "over/patch.yaml:6");
    assert_eq!(at("/spec/paused"), "over/patch.yaml:7");
    assert_eq!(at("/spec/template/spec/containers/0/image"), "base/web.yaml:11");
    assert_eq!(resource.locate("/spec/none"), None);
    assert!(
        resource
            .origin
            .transformers()
            .next()
            .unwrap()
            .contains("PatchTransformer (over/kustomization.yaml:3)")
    );
}

#[test]
fn fields_of_inline_patches_know_their_kustomization_line() {
    let kustomization = "resources: [web.yaml]
patches:
- patch: |-

    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
    spec:
      paused: true
- target: {kind: Deployment}
  patch: |
    - op: add
      path: /spec/strategy
      value:
        type: RollingUpdate
        rollingUpdate:
          maxSurge: 1
- patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {minReadySeconds: 5}}'
- target: {kind: Deployment}
  patch: >-
    [{\"op\": \"add\",

    \"path\": \"/spec/folded\", \"value\": 1}]
patchesStrategicMerge:
- |-
  apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    revisionHistoryLimit: 2
patchesJson6902:
- target: {version: v1, group: apps, kind: Deployment, name: web}
  patch: |-
    - op: replace
      path: /spec/replicas
      value: 4
transformers:
- |-
  apiVersion: builtin
  kind: PatchTransformer
  metadata: {name: x}
  patch: |-
    - op: add
      path: /spec/last
      value: 1
  target: {kind: Deployment}
"
    .replace("\\\"", "\"");
    let tree = make_tree(&[("kustomization.yaml", &kustomization), ("web.yaml", DEPLOYMENT)]);
    let built = build(&tree, "", &Options::default()).unwrap();
    let at = |pointer: &str| built.resources[0].locate(pointer).unwrap().to_string();
    for (pointer, line) in [
        ("/spec/paused", 10),
        ("/spec/strategy", 16),
        ("/spec/strategy/type", 16),
        ("/spec/strategy/rollingUpdate/maxSurge", 18),
        ("/spec/minReadySeconds", 19),
        ("/spec/folded", 21),
        ("/spec/revisionHistoryLimit", 31),
        ("/spec/replicas", 37),
        ("/spec/last", 46),
    ] {
        assert_eq!(at(pointer), format!("kustomization.yaml:{line}"), "{pointer}");
    }
    assert_eq!(at("/spec/template/spec/containers/0/name"), "web.yaml:10");
}

#[test]
fn errors_in_inline_patches_name_their_kustomization_line() {
    for (text, wanted) in [
        (
            "patches:\n- patch: |-\n    apiVersion: v1\n    kind: X\n",
            "kustomization.yaml:3: missing metadata.name",
        ),
        ("patches:\n- patch: |-\n    a: b\n    c: [\n", "kustomization.yaml:"),
        (
            "transformers:\n- |-\n  apiVersion: builtin\n  kind: LabelTransformer\n  metadata: {name: x}\n  labels: {a: [b]}\n",
            "kustomization.yaml:6: labels.a",
        ),
    ] {
        let error = build(&make_tree(&[("kustomization.yaml", text)]), "", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn yaml_text_that_cannot_be_written_again_is_refused() {
    for (text, wanted) in [
        ("a: 1\n\n# lonely\n\nt: x\n", "the comment on line 3 of the text"),
        ("a: # on a key\n  b: 1\nt: x\n", "the comment on line 1 of the text"),
        ("a: # on a key\n   b: 1\nt: x\n", "the comment on line 1 of the text"),
        ("t: x\n# last\n", "the comment on line 2 of the text"),
        ("a: &a 1\nt: x\n", "an anchor on line 1"),
        ("a: !mine {}\nt: x\n", "a tag on line 1"),
        ("a: |+\n  x\n\nt: x\n", "keeps its last blank lines"),
        ("t: [x]\n", "replaced as a whole"),
    ] {
        let text: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let files = [
            (
                "kustomization.yaml",
                "resources: [a.yaml]\nreplacements:\n- sourceValue: v\n  targets:\n  - select: {kind: ConfigMap}\n    fieldPaths: [data.f.t]\n",
            ),
            (
                "a.yaml",
                &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  f: |\n{text}"),
            ),
        ];
        let error = build(&make_tree(&files), "", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'data.f' holds YAML text") && error.contains(wanted),
            "{text}: {error}"
        );
    }
}

#[test]
fn overrides_are_laid_over_the_root() {
    let tree = make_tree(&[
        (
            "kustomization.yaml",
            "namespace: own\nresources: [web.yaml]\nimages:\n- {name: nginx, newName: mirror/nginx, newTag: \"1\"}\n",
        ),
        ("web.yaml", DEPLOYMENT),
        (
            "more/kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {from: component}\n",
        ),
    ]);
    let overrides = Overrides {
        namespace: Some("tenant".to_owned()),
        name_prefix: Some("p-".to_owned()),
        name_suffix: Some("-s".to_owned()),
        patches: vec![PatchOverride {
            patch: "- op: replace\n  path: /spec/replicas\n  value: 9\n".to_owned(),
            target: Some(PatchTarget {
                kind: "Deployment".to_owned(),
                ..PatchTarget::default()
            }),
        }],
        images: vec![ImageOverride {
            name: "nginx".to_owned(),
            new_tag: "2".to_owned(),
            ..ImageOverride::default()
        }],
        components: vec!["more".to_owned(), "missing".to_owned()],
        ignore_missing_components: true,
        build_metadata: vec!["originAnnotations".to_owned()],
        labels: [("owner".to_owned(), "me".to_owned())].into(),
        annotations: [("seen".to_owned(), "yes".to_owned())].into(),
    };
    let built = build(
        &tree,
        "",
        &Options {
            overrides,
            ..Options::default()
        },
    )
    .unwrap();
    let object = &built.resources[0].object;
    assert_eq!(object["metadata"]["name"], "p-web-s");
    assert_eq!(object["metadata"]["namespace"], "tenant");
    assert_eq!(object["metadata"]["labels"]["owner"], "me");
    assert_eq!(object["metadata"]["annotations"]["seen"], "yes");
    assert_eq!(object["metadata"]["annotations"]["from"], "component");
    assert_eq!(
        object["metadata"]["annotations"]["config.kubernetes.io/origin"],
        "path: web.yaml\n"
    );
    assert_eq!(object["spec"]["replicas"], 9);
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"][0]["image"],
        "mirror/nginx:2"
    );
    assert!(built.warnings.iter().any(|warning| warning.contains("'missing'")));
}

#[test]
fn a_folder_without_a_kustomization_gets_one() {
    let tree = make_tree(&[
        ("apps/b/web.yml", DEPLOYMENT),
        ("apps/a.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"),
        ("apps/own/kustomization.yaml", "resources: [c.yaml]\n"),
        (
            "apps/own/c.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: c}\n",
        ),
        (
            "apps/own/not-listed.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: d}\n",
        ),
        ("apps/readme.md", "text"),
    ]);
    let text = generate(&tree, "apps").unwrap();
    assert!(text.ends_with("resources:\n- a.yaml\n- b/web.yml\n- own\n"), "{text}");
    assert!(matches!(
        build(&tree, "apps", &Options::default()),
        Err(Error::NoKustomization { .. })
    ));
    let built = build(
        &tree,
        "apps",
        &Options {
            generate_missing: true,
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!(built.resources.len(), 3);
}

#[test]
fn links_inside_the_tree_are_followed_and_others_refused() {
    let mut tree = make_tree(&[
        ("base/web.yaml", DEPLOYMENT),
        ("app/kustomization.yaml", "resources: [web.yaml]\n"),
    ]);
    tree.insert_link("app/web.yaml", "../base/web.yaml");
    let refused = build(&tree, "app", &Options::default()).unwrap_err().to_string();
    assert!(refused.contains("not in or below 'app'"), "{refused}");
    let open = Options {
        load_restrictor: kustomize::LoadRestrictor::None,
        ..Options::default()
    };
    assert_eq!(build(&tree, "app", &open).unwrap().resources.len(), 1);
    for target in ["/etc/passwd", "../../outside"] {
        tree.insert_link("app/web.yaml", target);
        let refused = build(&tree, "app", &open).unwrap_err().to_string();
        assert!(
            refused.contains("app/web.yaml") && refused.contains(target) && refused.contains("leaves the tree"),
            "{refused}"
        );
    }
    tree.insert_link("app/web.yaml", "web.yaml");
    assert!(build(&tree, "app", &open).unwrap_err().to_string().contains("loop"));
}

#[test]
fn refusals_say_why_and_what_to_do() {
    let cases = [
        ("helmCharts:\n- name: x\n", "helm template"),
        ("resources: [https://example.com/x.yaml]\n", "nothing is fetched"),
        ("resources: [../..]\n", "leaves the tree"),
        ("resources: [.]\n", "cycle detected"),
        ("resource: []\n", "did you mean \"resources\""),
        ("namePrefix: 1\nnamespace: yes\n", "quote it"),
        (
            "transformers:\n- |-\n  apiVersion: v1\n  kind: Exec\n  metadata: {name: x}\n",
            "never run during a build",
        ),
        ("openapi: {path: x}\n", "no such file"),
        ("openapi: {version: v1.30.0}\n", "name a schema of your own with path"),
        (
            "generators:\n- |-\n  apiVersion: builtin\n  kind: HashTransformer\n  metadata: {name: x}\n",
            "list it under transformers",
        ),
    ];
    for (text, wanted) in cases {
        let error = build(&make_tree(&[("kustomization.yaml", text)]), "", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(wanted) && error.contains("kustomization.yaml:"),
            "{text}: {error}"
        );
    }
}

#[test]
fn name_hash_is_refused_after_a_kind_change() {
    let patches =
        "patches:\n- target: {name: a}\n  patch: '[{\"op\": \"replace\", \"path\": \"/kind\", \"value\": \"KIND\"}]'\n";
    let build_widget = |generator: &str, kind: &str, more: &str| {
        let text = format!("{generator}{}{more}", patches.replace("KIND", kind));
        let built = build(&make_tree(&[("kustomization.yaml", &text)]), "", &Options::default());
        built.map(|built| built.to_yaml()).map_err(|error| error.to_string())
    };
    let place = "kustomization.yaml:2: Widget.v1.[noGrp]/a.[noNs]: ";
    let why = "the kind of this generated resource was changed, and only a ConfigMap or a Secret gets a name suffix hash here; set disableNameSuffixHash: true in the options of its generator, or write it as a resource instead of generating it";
    let map = "configMapGenerator:\n- {name: a, literals: [k=v]}\n";
    let secret = "secretGenerator:\n- {name: a, literals: [k=v]}\n";
    for generator in [map, secret] {
        assert_eq!(build_widget(generator, "Widget", ""), Err(format!("{place}{why}")));
        let without = "generatorOptions: {disableNameSuffixHash: true}\n";
        assert!(
            build_widget(generator, "Widget", without)
                .unwrap()
                .contains("kind: Widget\nmetadata:\n  name: a\n")
        );
        // Between the two kinds with a hash, the hash covers the final content of the resource.
        assert!(
            build_widget(generator, "Secret", "")
                .unwrap()
                .contains("kind: Secret\nmetadata:\n  name: a-")
        );
    }
    let hashed = "transformers:\n- '{apiVersion: builtin, kind: HashTransformer, metadata: {name: h}}'\n";
    let error = build_widget(map, "Widget", hashed).unwrap_err();
    assert_eq!(
        error,
        format!("kustomization.yaml:7: transformers[0]: {why}, in Widget.v1.[noGrp]/a.[noNs] (kustomization.yaml:2)")
    );
    let files = [
        ("kustomization.yaml", "resources: [w.yaml]\n"),
        (
            "w.yaml",
            "apiVersion: v1\nkind: Widget\nmetadata:\n  name: a\n  annotations: {internal.config.kubernetes.io/needsHashSuffix: enabled}\n",
        ),
    ];
    let error = build(&make_tree(&files), "", &Options::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("w.yaml:1: Widget.v1.[noGrp]/a.[noNs]: the annotation ")
            && error.ends_with("remove the annotation"),
        "{error}"
    );
}

#[test]
fn failed_change_names_the_field_that_requested_it() {
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n";
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec: 1\n";
    let cases = [
        (
            "patches:\n- target: {kind: Deployment}\n  patch: '[{\"op\": \"test\", \"path\": \"/spec/replicas\", \"value\": 2}]'\n",
            "over/kustomization.yaml:3: patches[0]: ",
        ),
        (
            "patches:\n- path: patch.yaml\n",
            "over/kustomization.yaml:3: patches[0]: ",
        ),
        (
            "replacements:\n- source: {kind: Deployment, name: web}\n  targets:\n  - select: {kind: Deployment}\n    fieldPaths: [spec.none]\n",
            "over/kustomization.yaml:3: replacements[0].targets[0]: ",
        ),
    ];
    for (text, wanted) in cases {
        let files = [
            ("base/kustomization.yaml", "resources: [web.yaml]\n"),
            ("base/web.yaml", web),
            ("over/kustomization.yaml", &format!("resources: [../base]\n{text}")),
            ("over/patch.yaml", patch),
        ];
        let error = build(&make_tree(&files), "over", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(wanted) && error.ends_with(", in Deployment.v1.apps/web.[noNs] (base/web.yaml:1)"),
            "{error}"
        );
    }
    let source =
        "resources: [../base]\nreplacements:\n- source: {kind: Service}\n  targets: [{select: {kind: Deployment}}]\n";
    let wed = patch.replace("web", "wed");
    for (text, wanted) in [
        (
            source,
            "over/kustomization.yaml:3: replacements[0].source: nothing selected",
        ),
        (
            "resources: [../base]\npatches:\n- path: patch.yaml\n",
            "over/kustomization.yaml:3: patches[0]: the strategic merge patch finds no resource, or several: no matches for Id \
             Deployment.v1.apps/wed.[noNs]; there is Deployment.v1.apps/web.[noNs]",
        ),
        (
            "resources: [../base]\nimages:\n- name: nginx\n  tag: v1\n",
            "over/kustomization.yaml:4: images[0].tag: unknown field \"tag\"; known are name, newName, ",
        ),
    ] {
        let files = [
            ("base/kustomization.yaml", "resources: [web.yaml]\n"),
            ("base/web.yaml", web),
            ("over/kustomization.yaml", text),
            ("over/patch.yaml", &wed),
        ];
        let error = build(&make_tree(&files), "over", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn independent_errors_come_together() {
    let files = [
        ("kustomization.yaml", "resources:\n- a.yaml\n- b.yaml\n"),
        ("b.yaml", "kind: X\n"),
    ];
    let error = build(&make_tree(&files), "", &Options::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kustomization.yaml:2: resources[0]") && error.contains("b.yaml:1: missing metadata.name"),
        "{error}"
    );
}

#[test]
fn bombs_are_refused() {
    let mut bomb = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\na0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for level in 1..10 {
        let previous = format!("*a{}", level - 1);
        let row = vec![previous; 10].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
    }
    let bomb = make_tree(&[("kustomization.yaml", "resources: [a.yaml]\n"), ("a.yaml", &bomb)]);
    assert!(
        build(&bomb, "", &Options::default())
            .unwrap_err()
            .to_string()
            .contains("aliases stand for more")
    );
    let deep = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\na: {}",
        "[".repeat(100_000)
    );
    assert!(read_manifests("deep.yaml", &deep, &kustomize::Limits::default()).is_err());
}

#[test]
fn resources_cannot_grow_without_end() {
    let copies: String = (0..60)
        .map(|step| format!("- {{op: copy, from: /data, path: /data/x{step}}}\n"))
        .collect();
    let fields = "- source: {kind: Widget, fieldPath: data.a}\n  targets: [{select: {kind: Widget}, fieldPaths: [data.a], options: {delimiter: \",\", index: 9999999}}]\n".repeat(60);
    let deeper = "- {op: move, from: /data, path: /y}\n- {op: add, path: /data, value: {}}\n- {op: move, from: /y, path: /data/y}\n".repeat(600);
    for (kustomization, wanted) in [
        (
            "resources: [a.yaml]\npatches: [{path: p.yaml, target: {kind: Widget}}]\n".to_owned(),
            "too big",
        ),
        (format!("resources: [a.yaml]\nreplacements:\n{fields}"), "too big"),
        (
            "resources: [a.yaml]\npatches: [{path: d.yaml, target: {kind: Widget}}]\n".to_owned(),
            "nested deeper",
        ),
    ] {
        let tree = make_tree(&[
            ("kustomization.yaml", &kustomization),
            (
                "a.yaml",
                "apiVersion: v1\nkind: Widget\nmetadata: {name: a}\ndata: {a: text, b: [1, 2]}\n",
            ),
            ("p.yaml", &copies),
            ("d.yaml", &deeper),
        ]);
        let error = build(&tree, "", &Options::default()).unwrap_err().to_string();
        assert!(error.contains(wanted) || error.contains("nested deeper"), "{error}");
    }
}

#[test]
fn debug_output_hides_content() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {password: hunter2}\n";
    let objects = read_manifests("secret.yaml", text, &kustomize::Limits::default()).unwrap();
    assert!(!format!("{objects:?}").contains("hunter2"));
}
