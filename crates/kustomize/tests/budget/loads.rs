//! The loads: trees of some hundred kilobytes at most that ask for far more, and ordinary trees for comparison.

/// A tree and how it has to end.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) directory: &'static str,
    pub(crate) files: fn() -> Vec<(String, String)>,
    /// The load exceeds the steps of the budget, not the bytes.
    pub(crate) spends_steps: bool,
    /// The place that the error must name.
    pub(crate) place: &'static str,
}

const fn bytes_load(name: &'static str, place: &'static str, files: fn() -> Vec<(String, String)>) -> Load {
    Load {
        name,
        directory: "",
        files,
        spends_steps: false,
        place,
    }
}

const fn steps_load(name: &'static str, place: &'static str, files: fn() -> Vec<(String, String)>) -> Load {
    Load {
        name,
        directory: "",
        files,
        spends_steps: true,
        place,
    }
}

fn own_files(list: Vec<(&str, String)>) -> Vec<(String, String)> {
    list.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}

fn repeat_lines(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect()
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{data}---\n")
}

fn make_maps(count: usize) -> String {
    repeat_lines(count, |at| config_map(&format!("m{at}"), "  a: b\n"))
}

fn long_text(length: usize) -> String {
    "x".repeat(length)
}

pub(crate) const LOADS: &[Load] = &[
    bytes_load("a replacement into many fields", "replacements[0].targets[0]", || {
        let paths = repeat_lines(12_000, |at| format!("    - data.k{at}\n"));
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nreplacements:\n- source: {{kind: ConfigMap, name: from, fieldPath: data.a}}\n  targets:\n  - \
                     select: {{kind: ConfigMap, name: m.*}}\n    options: {{create: true}}\n    fieldPaths:\n{paths}"
                ),
            ),
            (
                "maps.yaml",
                make_maps(20) + &config_map("from", &format!("  a: {}\n", long_text(900 << 10))),
            ),
        ])
    }),
    bytes_load("a replacement that joins", "replacements", || {
        let one = "- source: {kind: ConfigMap, name: m0, fieldPath: data.a}\n  targets:\n  - select: {kind: ConfigMap, name: m0}\n    \
                   fieldPaths: [data.a]\n    options: {delimiter: \",\", index: 9999999}\n";
        own_files(vec![
            (
                "kustomization.yaml",
                format!("resources: [maps.yaml]\nreplacements:\n{}", one.repeat(40)),
            ),
            ("maps.yaml", make_maps(1)),
        ])
    }),
    bytes_load("a replacement of a whole mapping in itself", "replacements", || {
        let paths = repeat_lines(60, |at| format!("    - data.k{at}\n"));
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nreplacements:\n- source: {{kind: Widget, name: w, fieldPath: data.a}}\n  targets:\n  - select: \
                     {{kind: Widget}}\n    options: {{create: true}}\n    fieldPaths:\n{paths}"
                ),
            ),
            (
                "maps.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: w}}\ndata:\n  a:\n{}",
                    repeat_lines(5000, |at| format!("    k{at}: {at}\n"))
                ),
            ),
        ])
    }),
    bytes_load("a patch of many resources", "patches[0]", || {
        own_files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", make_maps(2000)),
            (
                "patch.yaml",
                config_map("any", &repeat_lines(1000, |at| format!("  k{at}: v\n"))).replace("---\n", ""),
            ),
        ])
    }),
    bytes_load("a JSON patch of many resources", "patches[0]", || {
        let value = repeat_lines(1000, |at| format!("    k{at}: v\n"));
        own_files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", make_maps(2000)),
            ("patch.yaml", format!("- op: add\n  path: /data\n  value:\n{value}")),
        ])
    }),
    bytes_load("a JSON patch that copies", "patches[0]", || {
        let copies = repeat_lines(40, |at| format!("- {{op: copy, from: /data, path: /data/x{at}}}\n"));
        own_files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", make_maps(1)),
            ("patch.yaml", copies),
        ])
    }),
    bytes_load("aliases in many documents", "bombs.yaml", || {
        let bomb = |at: usize| {
            let mut text =
                format!("apiVersion: v1\nkind: Widget\nmetadata: {{name: b{at}}}\na0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
            for level in 1..5 {
                let row = vec![format!("*a{}", level - 1); 10].join(",");
                text.push_str(&format!("a{level}: &a{level} [{row}]\n"));
            }
            text + "---\n"
        };
        own_files(vec![
            ("kustomization.yaml", "resources: [bombs.yaml]\n".to_owned()),
            ("bombs.yaml", repeat_lines(100, bomb)),
        ])
    }),
    bytes_load("aliases of a long text", "bombs.yaml", || {
        own_files(vec![
            ("kustomization.yaml", "resources: [bombs.yaml]\n".to_owned()),
            (
                "bombs.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: b}}\na: &a {}\nb:\n{}",
                    long_text(100 << 10),
                    repeat_lines(1000, |_| "- *a\n".to_owned())
                ),
            ),
        ])
    }),
    bytes_load("bases that double", "maps.yaml", || {
        let mut all = vec![
            (
                "l0/kustomization.yaml".to_owned(),
                "resources: [maps.yaml]\n".to_owned(),
            ),
            ("l0/maps.yaml".to_owned(), make_maps(10)),
        ];
        for level in 1..13 {
            for side in ["a", "b"] {
                all.push((
                    format!("l{level}/{side}/kustomization.yaml"),
                    format!("namePrefix: {side}-\nresources: [../../l{}]\n", level - 1),
                ));
            }
            all.push((format!("l{level}/kustomization.yaml"), "resources: [a, b]\n".to_owned()));
        }
        all.push(("kustomization.yaml".to_owned(), "resources: [l12]\n".to_owned()));
        all
    }),
    bytes_load("components taken again and again", "labels", || {
        let pairs = repeat_lines(500, |at| format!("    key{at}: {}\n", long_text(40)));
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\ncomponents:\n{}",
                    repeat_lines(200, |at| format!("- c{}\n", at % 2))
                ),
            ),
            ("maps.yaml", make_maps(100)),
            (
                "c0/kustomization.yaml",
                format!("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nlabels:\n- pairs:\n{pairs}"),
            ),
            (
                "c1/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: p-\n".to_owned(),
            ),
        ])
    }),
    bytes_load("labels in many fields", "labels[0]", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nlabels:\n- fields:\n{}  pairs:\n{}",
                    repeat_lines(100, |at| format!("  - {{path: spec/f{at}, create: true}}\n")),
                    repeat_lines(100, |at| format!("    key{at}: {}\n", long_text(60)))
                ),
            ),
            ("maps.yaml", make_maps(1000)),
        ])
    }),
    bytes_load("long prefixes on each level", "namePrefix", || {
        let mut all = vec![
            (
                "l0/kustomization.yaml".to_owned(),
                "resources: [maps.yaml]\n".to_owned(),
            ),
            ("l0/maps.yaml".to_owned(), make_maps(50)),
        ];
        for level in 1..60 {
            all.push((
                format!("l{level}/kustomization.yaml"),
                format!("namePrefix: {}\nresources: [../l{}]\n", long_text(1 << 10), level - 1),
            ));
        }
        all.push(("kustomization.yaml".to_owned(), "resources: [l59]\n".to_owned()));
        all
    }),
    bytes_load("generators of one file", "configMapGenerator[", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "configMapGenerator:\n{}",
                    repeat_lines(200, |at| format!("- {{name: g{at}, files: [long.txt]}}\n"))
                ),
            ),
            ("long.txt", long_text(500 << 10)),
        ])
    }),
    bytes_load("generators of Secrets of one file", "secretGenerator[", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "secretGenerator:\n{}",
                    repeat_lines(200, |at| format!("- {{name: g{at}, files: [long.txt]}}\n"))
                ),
            ),
            ("long.txt", long_text(500 << 10)),
        ])
    }),
    bytes_load("options of many generators", "configMapGenerator[", || {
        own_files(vec![(
            "kustomization.yaml",
            format!(
                "generatorOptions:\n  annotations:\n{}configMapGenerator:\n{}",
                repeat_lines(1000, |at| format!("    key{at}: {}\n", long_text(40))),
                repeat_lines(1000, |at| format!("- {{name: g{at}, literals: [a=b]}}\n"))
            ),
        )])
    }),
    bytes_load("vars of a long text", "maps.yaml", || {
        own_files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\nvars:\n- name: A\n  objref: {apiVersion: v1, kind: Widget, name: from}\n  fieldref: {fieldPath: \
                 data.a}\n"
                    .to_owned(),
            ),
            (
                "maps.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: from}}\ndata: {{a: {}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: \
                     {{name: p}}\nspec:\n  containers:\n  - name: c\n    args:\n    - {}\n",
                    long_text(100 << 10),
                    "$(A)".repeat(10_000)
                ),
            ),
        ])
    }),
    bytes_load("transformations that are noted", "kustomization.yaml", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "buildMetadata: [originAnnotations, transformerAnnotations]\nresources: [maps.yaml]\nlabels:\n{}",
                    repeat_lines(500, |at| format!("- pairs: {{k: v{at}}}\n"))
                ),
            ),
            ("maps.yaml", make_maps(500)),
        ])
    }),
    bytes_load("patterns that grow", "patches[", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\npatches:\n{}",
                    repeat_lines(500, |at| format!(
                        "- target: {{kind: ConfigMap, name: '(\\pL{{20}}){{5}}{at}'}}\n  patch: '[{{\"op\": \"remove\", \"path\": \"/data\"}}]'\n"
                    ))
                ),
            ),
            ("maps.yaml", make_maps(1)),
        ])
    }),
    bytes_load("configurations for many images", "images[", || {
        own_files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nconfigurations: [c.yaml]\nimages:\n{}",
                    repeat_lines(2000, |at| format!("- {{name: n{at}, newTag: v1}}\n"))
                ),
            ),
            (
                "c.yaml",
                format!(
                    "images:\n{}",
                    repeat_lines(2000, |at| format!("- {{path: spec/f{at}}}\n"))
                ),
            ),
            ("maps.yaml", make_maps(1)),
        ])
    }),
    bytes_load("unknown fields", "kustomization.yaml", || {
        own_files(vec![(
            "kustomization.yaml",
            repeat_lines(40_000, |at| format!("f{at}: 1\n")),
        )])
    }),
    bytes_load("nested far inside", "wide.yaml", || {
        let deep = format!("{}1{}", "[".repeat(150), "]".repeat(150));
        own_files(vec![
            ("kustomization.yaml", "resources: [wide.yaml]\n".to_owned()),
            (
                "wide.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: w}}\na:\n{}",
                    repeat_lines(3000, |_| format!("- {deep}\n"))
                ),
            ),
        ])
    }),
    steps_load("definitions that refer to each other", "crds", || {
        let reference = |name: &str, to: &str| format!("\"{name}\": {{\"$ref\": \"{to}\"}}");
        let of = |name: &str| {
            format!(
                "\"{name}\": {{\"Schema\": {{\"properties\": {{\"kind\": {{}}, \"apiVersion\": {{}}, \"metadata\": {{}}, {}, {}}}}}}}",
                reference("a", "x.A"),
                reference("b", "x.B")
            )
        };
        own_files(vec![
            ("kustomization.yaml", "crds: [crd.json]\n".to_owned()),
            ("crd.json", format!("{{{}, {}}}", of("x.A"), of("x.B"))),
        ])
    }),
    steps_load(
        "texts that are read again for each field in them",
        "replacements[0].targets[0]",
        || {
            let json = format!("{{{}\"z\": 1}}", repeat_lines(5000, |at| format!("\"k{at}\": {at}, ")));
            let paths = repeat_lines(3000, |at| format!("    - data.a.k{at}\n"));
            own_files(vec![
                (
                    "kustomization.yaml",
                    format!(
                        "resources: [maps.yaml]\nreplacements:\n- sourceValue: v\n  targets:\n  - select: {{kind: ConfigMap}}\n    \
                     fieldPaths:\n{paths}"
                    ),
                ),
                ("maps.yaml", config_map("m", &format!("  a: '{json}'\n"))),
            ])
        },
    ),
    steps_load("lists that are merged by keys", "patches[0]", || {
        let ports = |from: usize| {
            repeat_lines(4000, |at| {
                format!("      - containerPort: {}\n        protocol: P{at}\n", at + from)
            })
        };
        let pod = |from: usize| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: c\n    ports:\n{}",
                ports(from).replace("      ", "    ")
            )
        };
        own_files(vec![
            (
                "kustomization.yaml",
                "resources: [pod.yaml]\npatches:\n- path: patch.yaml\n".to_owned(),
            ),
            ("pod.yaml", pod(0)),
            ("patch.yaml", pod(100_000)),
        ])
    }),
    steps_load("one name in many namespaces", "resources.yaml", || {
        let map =
            |at: usize| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: n{at}}}\n---\n");
        let volumes = repeat_lines(4000, |_| "  - configMap: {name: m}\n".to_owned());
        own_files(vec![
            ("kustomization.yaml", "resources: [over]\nnamePrefix: b-\n".to_owned()),
            (
                "over/kustomization.yaml",
                "namePrefix: a-\nresources: [resources.yaml]\n".to_owned(),
            ),
            (
                "over/resources.yaml",
                repeat_lines(5000, map)
                    + &format!(
                        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: n1}}\nspec:\n  volumes:\n{volumes}"
                    ),
            ),
        ])
    }),
];

/// Names a tree and makes it.
type Ordinary = (&'static str, fn() -> Vec<(String, String)>);

/// Ordinary trees: the transformers of the loads, with a usual size.
pub(crate) const ORDINARY: &[Ordinary] = &[("two hundred resources and everything once", || {
    own_files(vec![
            (
                "kustomization.yaml",
                "namespace: here\nnamePrefix: a-\nnameSuffix: -b\nresources: [maps.yaml]\nlabels:\n- pairs: {team: x}\n  includeSelectors: \
                 true\ncommonAnnotations: {a: b}\nimages:\n- {name: nginx, newTag: v2}\nconfigMapGenerator:\n- {name: g, literals: \
                 [a=b]}\npatches:\n- target: {kind: ConfigMap, name: m.*}\n  patch: '[{\"op\": \"add\", \"path\": \"/data/c\", \"value\": \
                 \"d\"}]'\nreplacements:\n- source: {kind: ConfigMap, name: m0, fieldPath: data.a}\n  targets:\n  - select: {kind: \
                 ConfigMap, name: m1}\n    fieldPaths: [data.a]\n"
                    .to_owned(),
            ),
            ("maps.yaml", make_maps(200)),
        ])
})];
