//! Properties: for any input, the library answers soon and without a panic. It reads its own output back unchanged.

use kustomize::{Limits, MapTree, Options, build, read_manifests, to_yaml};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn small_limits() -> Limits {
    Limits {
        nodes: 20_000,
        documents: 200,
        ..Limits::default()
    }
}

/// Pieces that YAML and kustomizations are made of, so that random text gets past the first character.
fn generate_fragments() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        "  name: a",
        "- ",
        "  ",
        "\n",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
        "<<: ",
        "|\n",
        ">-\n",
        "'",
        "\"",
        "#x",
        "---\n",
        "...\n",
        "!!str ",
        "!x ",
        "? ",
        "0644",
        "~",
        "null",
        "yes",
        "resources:",
        "patches:",
        "- patch: |-",
        "- target: {kind: .*}",
        "namePrefix: ",
        "namespace: ",
        "images:",
        "replacements:",
        "vars:",
        "configMapGenerator:",
        "labels:",
        "$patch: delete",
        "\t",
        "\r\n",
        "\u{feff}",
        "\\",
        "%YAML 1.1",
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

fn generate_values() -> impl Strategy<Value = Value> {
    let scalars = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1.0e12..1.0e12).prop_map(|float: f64| Value::from((float * 8.0).round() / 8.0 + 0.0625)),
        // Go reads no control characters but these, and turns next-line characters into spaces.
        "[ -~\t\n\u{a0}-\u{2fff}]{0,120}".prop_map(Value::from),
        "(yes|no|on|~|null|0x1|1e3|1_0|012|\\.5|2020-01-01|1:20|- a|a: b| a|a |#|<<|=|\\||'|\"){0,2}"
            .prop_map(Value::from),
    ];
    scalars.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            // Go writes a merge key as it is, and expands it when it reads the text back.
            prop::collection::btree_map("[ -~]{1,12}".prop_filter("a merge key", |key| key != "<<"), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut tree = MapTree::new();
        tree.insert("kustomization.yaml", "resources: [a.yaml]\nconfigMapGenerator: [{name: g, files: [a.yaml], envs: [a.yaml]}]\n");
        tree.insert("a.yaml", bytes.clone());
        let options = Options { limits: small_limits(), ..Options::default() };
        let _ = build(&tree, "", &options);
        tree.insert("kustomization.yaml", bytes);
        let _ = build(&tree, "", &options);
    }

    #[test]
    fn arbitrary_yaml_never_panics(resource in generate_fragments(), kustomization in generate_fragments(), patch in generate_fragments()) {
        let mut tree = MapTree::new();
        tree.insert("kustomization.yaml", format!("resources: [a.yaml, b.yaml]\npatches: [{{path: p.yaml, target: {{kind: .*}}}}]\n{kustomization}"));
        tree.insert("a.yaml", resource);
        tree.insert("b.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n");
        tree.insert("p.yaml", patch);
        let _ = build(&tree, "", &Options { limits: small_limits(), ..Options::default() });
    }

    #[test]
    fn written_manifests_read_back_the_same(spec in generate_values()) {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
        let text = to_yaml(&object);
        let read = read_manifests("a.yaml", &text, &Limits::default());
        prop_assert!(read.is_ok(), "{read:?}\n{text}");
        let read = read.unwrap();
        prop_assert_eq!(read[0].to_yaml(), text);
    }
}
