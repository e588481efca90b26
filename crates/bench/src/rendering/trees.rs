//! The generated trees for the builds. They have the same bytes on every run.

use std::fmt::Write as _;
use std::path::Path;

/// Files by path, relative to the folder to build.
pub(crate) type Tree = Vec<(String, String)>;

/// Writes a tree below a folder.
pub(crate) fn write_tree(tree: &Tree, folder: &Path) -> std::io::Result<()> {
    for (path, content) in tree {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}

/// Makes a kustomization with one Deployment.
pub(crate) fn one_file() -> Tree {
    vec![
        (
            "kustomization.yaml".to_owned(),
            "resources: [deployment.yaml]\n".to_owned(),
        ),
        ("deployment.yaml".to_owned(), make_deployment("web", 0)),
    ]
}

/// Makes one base and this many overlays of it, each with a namespace, prefix, labels, image, replicas, generated settings and a patch; all in one build.
pub(crate) fn make_overlays(count: usize) -> Tree {
    let mut tree = vec![(
        "base/kustomization.yaml".to_owned(),
        "resources: [app.yaml]\nconfigMapGenerator:\n- name: settings-0\n  literals: [colour=teal]\n".to_owned(),
    )];
    tree.push((
        "base/app.yaml".to_owned(),
        format!(
            "{}---\n{}---\n{}",
            make_deployment("web", 0),
            make_service("web"),
            make_account("runner-0")
        ),
    ));
    let mut root = "resources:\n".to_owned();
    for number in 0..count {
        let _ = writeln!(root, "- overlays/{number:02}");
        tree.push((
            format!("overlays/{number:02}/kustomization.yaml"),
            format!(
                "resources: [../../base]\nnamespace: team-{number:02}\nnamePrefix: t{number:02}-\nlabels:\n- pairs: {{team: t{number:02}}}\n  includeSelectors: true\nimages:\n- name: registry.example.com/app\n  newTag: v{number}\nreplicas:\n- name: web\n  count: {}\nconfigMapGenerator:\n- name: settings-0\n  behavior: merge\n  literals: [team=t{number:02}]\npatches:\n- path: patch.yaml\n",
                1 + number % 5
            ),
        ));
        tree.push((
            format!("overlays/{number:02}/patch.yaml"),
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  template:\n    spec:\n      containers:\n      - name: app\n        env:\n        - {{name: TEAM, value: t{number:02}}}\n"
            ),
        ));
    }
    tree.push(("kustomization.yaml".to_owned(), root));
    tree
}

/// Makes this many objects in files of a hundred, a prefix, labels, images and this many patches of them.
pub(crate) fn make_objects(count: usize, patches: usize) -> Tree {
    let mut tree = Tree::new();
    let mut root =
        "namePrefix: acme-\nlabels:\n- pairs: {owner: acme}\n  includeSelectors: true\nimages:\n- name: registry.example.com/app\n  newName: mirror.example.com/app\n  newTag: v2\nresources:\n"
            .to_owned();
    for file in 0..count.div_ceil(100) {
        let documents: Vec<String> = (file * 100..count.min(file * 100 + 100)).map(make_object).collect();
        let _ = writeln!(root, "- objects-{file:03}.yaml");
        tree.push((format!("objects-{file:03}.yaml"), documents.join("---\n")));
    }
    root.push_str("patches:\n");
    // Deployments are every fourth object.
    for number in 0..patches.min(count / 4) {
        let target = number * (count / 4 / patches.min(count / 4)) * 4;
        if number % 4 == 3 {
            let _ = write!(
                root,
                "- target: {{kind: Deployment, name: app-{target}}}\n  patch: |-\n    - op: replace\n      path: /spec/replicas\n      value: {number}\n"
            );
        } else {
            let _ = write!(
                root,
                "- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: app-{target}\n    spec:\n      template:\n        spec:\n          containers:\n          - name: app\n            env:\n            - name: PATCH\n              value: \"{number}\"\n"
            );
        }
    }
    tree.push(("kustomization.yaml".to_owned(), root));
    tree
}

fn make_object(number: usize) -> String {
    let group = number / 4 * 4;
    match number % 4 {
        0 => make_deployment(&format!("app-{number}"), group),
        1 => make_service(&format!("app-{group}")),
        2 => format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings-{group}\ndata:\n  colour: teal\n  limits.conf: |\n    open-files = 1024\n    processes = 64\n  url: https://app-{group}.example.com/\n"
        ),
        _ => make_account(&format!("runner-{group}")),
    }
}

fn make_deployment(name: &str, group: usize) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/name: {name}\nspec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app: {name}\n  template:\n    metadata:\n      labels:\n        app: {name}\n    spec:\n      serviceAccountName: runner-{group}\n      containers:\n      - name: app\n        image: registry.example.com/app:v1\n        args: [\"--listen\", \":8080\", \"--name={name}\"]\n        env:\n        - name: COLOUR\n          valueFrom:\n            configMapKeyRef:\n              name: settings-{group}\n              key: colour\n        ports:\n        - containerPort: 8080\n          name: http\n        resources:\n          limits:\n            cpu: 500m\n            memory: 128Mi\n          requests:\n            cpu: 100m\n            memory: 64Mi\n        readinessProbe:\n          httpGet:\n            path: /ready\n            port: http\n      - name: proxy\n        image: registry.example.com/proxy:1.2.3\n        ports:\n        - containerPort: 9090\n      volumes:\n      - name: settings\n        configMap:\n          name: settings-{group}\n"
    )
}

fn make_service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  selector:\n    app: {name}\n  ports:\n  - name: http\n    port: 80\n    targetPort: http\n"
    )
}

fn make_account(name: &str) -> String {
    format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n")
}

/// Makes a bundle of CustomResourceDefinitions of about this many bytes in one file, in the form of controller-gen.
pub(crate) fn make_definitions(bytes: usize) -> Tree {
    let mut text = String::with_capacity(bytes + (1 << 20));
    let mut number = 0;
    while text.len() < bytes {
        if number > 0 {
            text.push_str("---\n");
        }
        write_definition(&mut text, number);
        number += 1;
    }
    vec![
        (
            "kustomization.yaml".to_owned(),
            "resources: [definitions.yaml]\nlabels:\n- pairs: {owner: acme}\n".to_owned(),
        ),
        ("definitions.yaml".to_owned(), text),
    ]
}

fn write_definition(text: &mut String, number: usize) {
    let _ = write!(
        text,
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    controller-gen.kubebuilder.io/version: v0.16.1\n  name: things{number}.example.com\nspec:\n  group: example.com\n  names:\n    kind: Thing{number}\n    listKind: Thing{number}List\n    plural: things{number}\n    singular: thing{number}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    subresources:\n      status: {{}}\n    schema:\n      openAPIV3Schema:\n        description: Thing{number} is the Schema for the things API.\n        type: object\n        required:\n        - spec\n        properties:\n"
    );
    for field in 0..12 {
        write_schema(text, 10, field, 0);
    }
}

/// Writes one property with nested properties, three levels deep.
fn write_schema(text: &mut String, indent: usize, field: usize, depth: usize) {
    let pad = " ".repeat(indent);
    let _ = write!(text, "{pad}field{field}:\n{pad}  description: ");
    if field.is_multiple_of(3) {
        let _ = write!(
            text,
            "|-\n{pad}    Field{field} holds what the controller should do when \"nothing\" else says it.\n{pad}    More info: https://example.com/docs/concepts#field-{field}\n"
        );
    } else {
        let _ = write!(
            text,
            "Field{field} selects the objects that this applies to; an empty one\n{pad}    selects none. It is matched against the labels of every object in the namespace\n{pad}    and its children.\n"
        );
    }
    match (depth, field % 4) {
        (0..=2, 0 | 1) => {
            let _ = write!(text, "{pad}  type: object\n{pad}  properties:\n");
            for inner in 0..8 {
                write_schema(text, indent + 4, inner, depth + 1);
            }
        }
        (_, 0) => {
            let _ = write!(text, "{pad}  type: integer\n{pad}  format: int32\n{pad}  minimum: 0\n");
        }
        (_, 2) => {
            let _ = write!(
                text,
                "{pad}  type: array\n{pad}  items:\n{pad}    type: string\n{pad}  x-kubernetes-list-type: atomic\n"
            );
        }
        (_, 3) => {
            let _ = write!(
                text,
                "{pad}  type: string\n{pad}  enum:\n{pad}  - \"Always\"\n{pad}  - IfNotPresent\n{pad}  - \"\"\n{pad}  default: \"yes\"\n"
            );
        }
        _ => {
            let _ = write!(
                text,
                "{pad}  anyOf:\n{pad}  - type: integer\n{pad}  - type: string\n{pad}  pattern: ^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))$\n{pad}  x-kubernetes-int-or-string: true\n"
            );
        }
    }
}
