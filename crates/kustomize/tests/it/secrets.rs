//! No message contains a value of a Secret, whatever fails. The tests also check which resources are marked because they contain content
//! copied from a Secret.

use kustomize::{MapTree, Options, build};

const VALUE: &str = "hunter2";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  p: hunter2\n";
const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  p: none\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\ndata:\n  p: none\n";

fn make_tree(kustomization: &str, files: &[(&str, &str)]) -> MapTree {
    let mut tree = MapTree::new();
    tree.insert("kustomization.yaml", kustomization);
    for (path, text) in files {
        tree.insert(path, *text);
    }
    tree
}

#[test]
fn no_error_quotes_a_secret() {
    let check = |what: &str, kustomization: &str, files: &[(&str, &str)]| {
        let error = build(&make_tree(kustomization, files), ".", &Options::default()).expect_err(what);
        assert!(!error.to_string().contains(VALUE), "{what}: {error}");
    };
    let generator = |source: &str| format!("secretGenerator:\n- name: s\n  {source}\n");
    check("a literal", &generator("literals: [hunter2]"), &[]);
    check("a file", &generator("files: [hunter2=a=b]"), &[]);
    check("a file without a key", &generator("files: [=hunter2]"), &[]);
    let wrong = SECRET.replace("p: hunter2", "p: !!int hunter2");
    check(
        "a value of another type",
        "resources: [s.yaml]\n",
        &[("s.yaml", &wrong)],
    );
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}",
        wrong.trim_end().replace('\n', "\n  ")
    );
    check("the same in a list", "resources: [s.yaml]\n", &[("s.yaml", &list)]);
    check(
        "a part of a value",
        "resources: [s.yaml, m.yaml]\nreplacements:\n- source: {kind: Secret, name: s, fieldPath: stringData.p, options: {delimiter: x, index: 5}}\n  targets:\n  - select: {kind: ConfigMap, name: m}\n    fieldPaths: [data.p]\n",
        &[("s.yaml", SECRET), ("m.yaml", MAP)],
    );
    check(
        "a patch",
        "resources: [s.yaml]\npatches:\n- patch: |\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: s}\n    stringData: [hunter2]\n- target: {kind: Secret}\n  patch: |\n    - {op: test, path: /stringData/p, value: hunter2x}\n",
        &[("s.yaml", SECRET)],
    );
}

#[test]
fn only_copies_of_secret_values_become_confidential() {
    let confidential = |kustomization: &str| -> Vec<String> {
        let files = [("s.yaml", SECRET), ("m.yaml", MAP)];
        let built = build(&make_tree(kustomization, &files), ".", &Options::default()).expect(kustomization);
        let names = built.resources.iter().filter(|resource| resource.is_confidential());
        names
            .map(|resource| resource.object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = "resources: [s.yaml, m.yaml]\n";
    assert_eq!(confidential(all), ["s"]);
    let replacements = format!(
        "{all}replacements:\n- source: {{kind: Secret, name: s, fieldPath: stringData.p}}\n  targets:\n  - select: {{kind: ConfigMap, name: m}}\n    fieldPaths: [data.p]\n- source: {{kind: ConfigMap, name: m, fieldPath: data.p}}\n  targets:\n  - select: {{kind: ConfigMap, name: other}}\n    fieldPaths: [data.p]\n"
    );
    assert_eq!(
        confidential(&replacements),
        ["m", "other", "s"],
        "through another one, too"
    );
    let vars = format!(
        "{all}vars:\n- name: P\n  objref: {{apiVersion: v1, kind: Secret, name: s}}\n  fieldref: {{fieldPath: stringData.p}}\npatches:\n- patch: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {{name: m, annotations: {{p: $(P)}}}}\nconfigurations: [v.yaml]\n"
    );
    let files = [
        ("s.yaml", SECRET),
        ("m.yaml", MAP),
        (
            "v.yaml",
            "varReference:\n- path: metadata/annotations\n  kind: ConfigMap\n",
        ),
    ];
    let built = build(&make_tree(&vars, &files), ".", &Options::default()).expect("vars");
    let names: Vec<&str> = built
        .resources
        .iter()
        .filter(|resource| resource.is_confidential())
        .map(|resource| resource.object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["m", "s"]);
    let renamed = format!(
        "{all}patches:\n- target: {{kind: Secret}}\n  options: {{allowKindChange: true}}\n  patch: |\n    apiVersion: v1\n    kind: Sealed\n    metadata: {{name: s}}\n"
    );
    assert_eq!(confidential(&renamed), ["s"], "what it was counts");
}

/// A tree with some confidential files.
struct Partly<'a>(MapTree, &'a [&'a str]);

impl kustomize::FileTree for Partly<'_> {
    fn entry(&self, path: &str) -> Option<kustomize::Entry<'_>> {
        self.0.entry(path)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.0.list(directory)
    }

    fn is_confidential(&self, path: &str) -> bool {
        self.1.contains(&path)
    }
}

#[test]
fn resources_from_confidential_files_are_confidential() {
    let others = "- other.yaml\n";
    let other = MAP.split("---\n").nth(1).unwrap();
    let confidential = |kustomization: &str, file: (&str, &str)| -> Vec<String> {
        let map = MAP.split("---\n").next().unwrap();
        let mut files = vec![("m.yaml", map), ("other.yaml", other)];
        files.retain(|(path, _)| *path != file.0);
        files.push(file);
        let tree = Partly(make_tree(kustomization, &files), &[file.0]);
        let built = build(&tree, ".", &Options::default()).expect(kustomization);
        let names = built.resources.iter().filter(|resource| resource.is_confidential());
        names
            .map(|resource| resource.object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let both = format!("resources:\n- m.yaml\n{others}");
    let map = MAP.split("---\n").next().unwrap();
    assert_eq!(confidential(&both, ("m.yaml", map)), ["m"]);
    let generated =
        format!("resources:\n{others}configMapGenerator:\n- name: made\n  options: {{disableNameSuffixHash: true}}\n");
    assert_eq!(
        confidential(&format!("{generated}  envs: [a.env]\n"), ("a.env", "A=hunter2\n")),
        ["made"]
    );
    assert_eq!(
        confidential(&format!("{generated}  files: [a.txt]\n"), ("a.txt", "hunter2")),
        ["made"]
    );
    let patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {p: hunter2}\n";
    assert_eq!(
        confidential(&format!("{both}patches:\n- path: p.yaml\n"), ("p.yaml", patch)),
        ["m"]
    );
    let json = "- {op: replace, path: /data/p, value: hunter2}\n";
    let json_patch = format!("{both}patches:\n- path: p.yaml\n  target: {{name: m}}\n");
    assert!(confidential(&json_patch, ("p.yaml", json)).contains(&"m".to_owned()));
    // The patched value is copied further, as a part of a text.
    let copied = format!(
        "{both}patches:\n- path: p.yaml\nreplacements:\n- source: {{kind: ConfigMap, name: m, fieldPath: data.p}}\n  targets:\n  - select: {{kind: ConfigMap, name: other}}\n    fieldPaths: [data.p]\n    options: {{delimiter: '-', index: 1}}\n"
    );
    assert_eq!(confidential(&copied, ("p.yaml", patch)), ["m", "other"]);
    // If no part of a confidential file is seen, its content may be in any resource.
    let labels = "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: l}\nlabels: {a: hunter2}\nfieldSpecs: [{path: metadata/labels, create: true}]\n";
    assert_eq!(
        confidential(&format!("{both}transformers: [l.yaml]\n"), ("l.yaml", labels)),
        ["m", "other"]
    );
    assert!(confidential(&both, ("unread.yaml", map)).is_empty());
}
