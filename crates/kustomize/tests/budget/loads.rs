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

const fn bytes(name: &'static str, place: &'static str, files: fn() -> Vec<(String, String)>) -> Load {
    Load {
        name,
        directory: "",
        files,
        spends_steps: false,
        place,
    }
}

const fn steps(name: &'static str, place: &'static str, files: fn() -> Vec<(String, String)>) -> Load {
    Load {
        name,
        directory: "",
        files,
        spends_steps: true,
        place,
    }
}

fn files(list: Vec<(&str, String)>) -> Vec<(String, String)> {
    list.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}

fn each(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect()
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{data}---\n")
}

fn maps(count: usize) -> String {
    each(count, |at| config_map(&format!("m{at}"), "  a: b\n"))
}

fn long(length: usize) -> String {
    "x".repeat(length)
}

pub(crate) const LOADS: &[Load] = &[
    bytes("a replacement into many fields", "replacements[0].targets[0]", || {
        let paths = each(12_000, |at| format!("    - data.k{at}\n"));
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nreplacements:\n- source: {{kind: ConfigMap, name: from, fieldPath: data.a}}\n  targets:\n  - \
                     select: {{kind: ConfigMap, name: m.*}}\n    options: {{create: true}}\n    fieldPaths:\n{paths}"
                ),
            ),
            (
                "maps.yaml",
                maps(20) + &config_map("from", &format!("  a: {}\n", long(900 << 10))),
            ),
        ])
    }),
    bytes("a replacement that joins", "replacements", || {
        let one = "- source: {kind: ConfigMap, name: m0, fieldPath: data.a}\n  targets:\n  - select: {kind: ConfigMap, name: m0}\n    \
                   fieldPaths: [data.a]\n    options: {delimiter: \",\", index: 9999999}\n";
        files(vec![
            (
                "kustomization.yaml",
                format!("resources: [maps.yaml]\nreplacements:\n{}", one.repeat(40)),
            ),
            ("maps.yaml", maps(1)),
        ])
    }),
    bytes("a replacement of a whole mapping in itself", "replacements", || {
        let paths = each(60, |at| format!("    - data.k{at}\n"));
        files(vec![
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
                    each(5000, |at| format!("    k{at}: {at}\n"))
                ),
            ),
        ])
    }),
    bytes("a patch of many resources", "patches[0]", || {
        files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", maps(2000)),
            (
                "patch.yaml",
                config_map("any", &each(1000, |at| format!("  k{at}: v\n"))).replace("---\n", ""),
            ),
        ])
    }),
    bytes("a JSON patch of many resources", "patches[0]", || {
        let value = each(1000, |at| format!("    k{at}: v\n"));
        files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", maps(2000)),
            ("patch.yaml", format!("- op: add\n  path: /data\n  value:\n{value}")),
        ])
    }),
    bytes("a JSON patch that copies", "patches[0]", || {
        let copies = each(40, |at| format!("- {{op: copy, from: /data, path: /data/x{at}}}\n"));
        files(vec![
            (
                "kustomization.yaml",
                "resources: [maps.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: ConfigMap}\n".to_owned(),
            ),
            ("maps.yaml", maps(1)),
            ("patch.yaml", copies),
        ])
    }),
    bytes("aliases in many documents", "bombs.yaml", || {
        let bomb = |at: usize| {
            let mut text =
                format!("apiVersion: v1\nkind: Widget\nmetadata: {{name: b{at}}}\na0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
            for level in 1..5 {
                let row = vec![format!("*a{}", level - 1); 10].join(",");
                text.push_str(&format!("a{level}: &a{level} [{row}]\n"));
            }
            text + "---\n"
        };
        files(vec![
            ("kustomization.yaml", "resources: [bombs.yaml]\n".to_owned()),
            ("bombs.yaml", each(100, bomb)),
        ])
    }),
    bytes("aliases of a long text", "bombs.yaml", || {
        files(vec![
            ("kustomization.yaml", "resources: [bombs.yaml]\n".to_owned()),
            (
                "bombs.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: b}}\na: &a {}\nb:\n{}",
                    long(100 << 10),
                    each(1000, |_| "- *a\n".to_owned())
                ),
            ),
        ])
    }),
    bytes("bases that double", "maps.yaml", || {
        let mut all = vec![
            (
                "l0/kustomization.yaml".to_owned(),
                "resources: [maps.yaml]\n".to_owned(),
            ),
            ("l0/maps.yaml".to_owned(), maps(10)),
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
    bytes("components taken again and again", "labels", || {
        let pairs = each(500, |at| format!("    key{at}: {}\n", long(40)));
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\ncomponents:\n{}",
                    each(200, |at| format!("- c{}\n", at % 2))
                ),
            ),
            ("maps.yaml", maps(100)),
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
    bytes("labels in many fields", "labels[0]", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nlabels:\n- fields:\n{}  pairs:\n{}",
                    each(100, |at| format!("  - {{path: spec/f{at}, create: true}}\n")),
                    each(100, |at| format!("    key{at}: {}\n", long(60)))
                ),
            ),
            ("maps.yaml", maps(1000)),
        ])
    }),
    bytes("long prefixes on each level", "namePrefix", || {
        let mut all = vec![
            (
                "l0/kustomization.yaml".to_owned(),
                "resources: [maps.yaml]\n".to_owned(),
            ),
            ("l0/maps.yaml".to_owned(), maps(50)),
        ];
        for level in 1..60 {
            all.push((
                format!("l{level}/kustomization.yaml"),
                format!("namePrefix: {}\nresources: [../l{}]\n", long(1 << 10), level - 1),
            ));
        }
        all.push(("kustomization.yaml".to_owned(), "resources: [l59]\n".to_owned()));
        all
    }),
    bytes("generators of one file", "configMapGenerator[", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "configMapGenerator:\n{}",
                    each(200, |at| format!("- {{name: g{at}, files: [long.txt]}}\n"))
                ),
            ),
            ("long.txt", long(500 << 10)),
        ])
    }),
    bytes("generators of Secrets of one file", "secretGenerator[", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "secretGenerator:\n{}",
                    each(200, |at| format!("- {{name: g{at}, files: [long.txt]}}\n"))
                ),
            ),
            ("long.txt", long(500 << 10)),
        ])
    }),
    bytes("options of many generators", "configMapGenerator[", || {
        files(vec![(
            "kustomization.yaml",
            format!(
                "generatorOptions:\n  annotations:\n{}configMapGenerator:\n{}",
                each(1000, |at| format!("    key{at}: {}\n", long(40))),
                each(1000, |at| format!("- {{name: g{at}, literals: [a=b]}}\n"))
            ),
        )])
    }),
    bytes("vars of a long text", "maps.yaml", || {
        files(vec![
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
                    long(100 << 10),
                    "$(A)".repeat(10_000)
                ),
            ),
        ])
    }),
    bytes("transformations that are noted", "kustomization.yaml", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "buildMetadata: [originAnnotations, transformerAnnotations]\nresources: [maps.yaml]\nlabels:\n{}",
                    each(500, |at| format!("- pairs: {{k: v{at}}}\n"))
                ),
            ),
            ("maps.yaml", maps(500)),
        ])
    }),
    bytes("patterns that grow", "patches[", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\npatches:\n{}",
                    each(500, |at| format!(
                        "- target: {{kind: ConfigMap, name: '(\\pL{{20}}){{5}}{at}'}}\n  patch: '[{{\"op\": \"remove\", \"path\": \"/data\"}}]'\n"
                    ))
                ),
            ),
            ("maps.yaml", maps(1)),
        ])
    }),
    bytes("configurations for many images", "images[", || {
        files(vec![
            (
                "kustomization.yaml",
                format!(
                    "resources: [maps.yaml]\nconfigurations: [c.yaml]\nimages:\n{}",
                    each(2000, |at| format!("- {{name: n{at}, newTag: v1}}\n"))
                ),
            ),
            (
                "c.yaml",
                format!("images:\n{}", each(2000, |at| format!("- {{path: spec/f{at}}}\n"))),
            ),
            ("maps.yaml", maps(1)),
        ])
    }),
    bytes("unknown fields", "kustomization.yaml", || {
        files(vec![("kustomization.yaml", each(40_000, |at| format!("f{at}: 1\n")))])
    }),
    bytes("nested far inside", "wide.yaml", || {
        let deep = format!("{}1{}", "[".repeat(150), "]".repeat(150));
        files(vec![
            ("kustomization.yaml", "resources: [wide.yaml]\n".to_owned()),
            (
                "wide.yaml",
                format!(
                    "apiVersion: v1\nkind: Widget\nmetadata: {{name: w}}\na:\n{}",
                    each(3000, |_| format!("- {deep}\n"))
                ),
            ),
        ])
    }),
    steps("definitions that refer to each other", "crds", || {
        let reference = |name: &str, to: &str| format!("\"{name}\": {{\"$ref\": \"{to}\"}}");
        let of = |name: &str| {
            format!(
                "\"{name}\": {{\"Schema\": {{\"properties\": {{\"kind\": {{}}, \"apiVersion\": {{}}, \"metadata\": {{}}, {}, {}}}}}}}",
                reference("a", "x.A"),
                reference("b", "x.B")
            )
        };
        files(vec![
            ("kustomization.yaml", "crds: [crd.json]\n".to_owned()),
            ("crd.json", format!("{{{}, {}}}", of("x.A"), of("x.B"))),
        ])
    }),
    steps(
        "texts that are read again for each field in them",
        "replacements[0].targets[0]",
        || {
            let json = format!("{{{}\"z\": 1}}", each(5000, |at| format!("\"k{at}\": {at}, ")));
            let paths = each(3000, |at| format!("    - data.a.k{at}\n"));
            files(vec![
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
    steps("lists that are merged by keys", "patches[0]", || {
        let ports = |from: usize| {
            each(4000, |at| {
                format!("      - containerPort: {}\n        protocol: P{at}\n", at + from)
            })
        };
        let pod = |from: usize| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: c\n    ports:\n{}",
                ports(from).replace("      ", "    ")
            )
        };
        files(vec![
            (
                "kustomization.yaml",
                "resources: [pod.yaml]\npatches:\n- path: patch.yaml\n".to_owned(),
            ),
            ("pod.yaml", pod(0)),
            ("patch.yaml", pod(100_000)),
        ])
    }),
    steps("one name in many namespaces", "resources.yaml", || {
        let map =
            |at: usize| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: n{at}}}\n---\n");
        let volumes = each(4000, |_| "  - configMap: {name: m}\n".to_owned());
        files(vec![
            ("kustomization.yaml", "resources: [over]\nnamePrefix: b-\n".to_owned()),
            (
                "over/kustomization.yaml",
                "namePrefix: a-\nresources: [resources.yaml]\n".to_owned(),
            ),
            (
                "over/resources.yaml",
                each(5000, map)
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
    files(vec![
            (
                "kustomization.yaml",
                "namespace: here\nnamePrefix: a-\nnameSuffix: -b\nresources: [maps.yaml]\nlabels:\n- pairs: {team: x}\n  includeSelectors: \
                 true\ncommonAnnotations: {a: b}\nimages:\n- {name: nginx, newTag: v2}\nconfigMapGenerator:\n- {name: g, literals: \
                 [a=b]}\npatches:\n- target: {kind: ConfigMap, name: m.*}\n  patch: '[{\"op\": \"add\", \"path\": \"/data/c\", \"value\": \
                 \"d\"}]'\nreplacements:\n- source: {kind: ConfigMap, name: m0, fieldPath: data.a}\n  targets:\n  - select: {kind: \
                 ConfigMap, name: m1}\n    fieldPaths: [data.a]\n"
                    .to_owned(),
            ),
            ("maps.yaml", maps(200)),
        ])
})];
