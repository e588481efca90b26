//! Makes up the files that configure transformers: `configurations`, and resources of the built-in kinds. Owns their content.

use super::objects::{IMAGES, Made, label, pairs};
use super::overlays::as_block;
use super::random::Random;
use super::writer::{Value, list, map};

/// A file of `configurations`.
pub(super) fn configuration(random: &mut Random) -> Value {
    let mut configuration = map([]);
    if random.chance(50) {
        let specs = list([map([
            ("kind", "Widget".into()),
            (
                "path",
                random.pick(&["spec/ref", "spec/nested/ref", "spec/list/value"]).into(),
            ),
        ])]);
        configuration.put(
            "nameReference",
            list([map([
                ("kind", "ConfigMap".into()),
                ("version", "v1".into()),
                ("fieldSpecs", specs),
            ])]),
        );
    }
    if random.chance(30) {
        configuration.put(
            "images",
            list([map([("kind", "Widget".into()), ("path", "spec/image".into())])]),
        );
    }
    if random.chance(30) {
        configuration.put(
            "varReference",
            list([map([("kind", "Widget".into()), ("path", "spec/text".into())])]),
        );
    }
    if random.chance(30) {
        let spec = map([
            ("path", "spec/selector/matchLabels".into()),
            ("create", random.chance(50).into()),
            ("kind", "Widget".into()),
        ]);
        configuration.put("commonLabels", list([spec]));
    }
    if random.chance(30) {
        configuration.put(
            "namePrefix",
            list([map([("path", "spec/nested/name".into()), ("kind", "Widget".into())])]),
        );
    }
    if random.chance(30) {
        let spec = map([
            ("path", "spec/namespace".into()),
            ("create", true.into()),
            ("kind", "Widget".into()),
        ]);
        configuration.put("namespace", list([spec]));
    }
    if random.chance(30) {
        configuration.put(
            "replicas",
            list([map([
                ("path", "spec/replicas".into()),
                ("kind", "Widget".into()),
                ("create", random.chance(50).into()),
            ])]),
        );
    }
    configuration
}

/// A transformer of the built-in kinds.
pub(super) fn builtin(random: &mut Random, visible: &[Made]) -> Value {
    let kind = random.pick(&[
        "PrefixTransformer",
        "SuffixTransformer",
        "LabelTransformer",
        "AnnotationsTransformer",
        "NamespaceTransformer",
        "ImageTagTransformer",
        "PatchTransformer",
    ]);
    let config = map([
        ("apiVersion", "builtin".into()),
        ("kind", kind.into()),
        ("metadata", map([("name", "one".into())])),
    ]);
    let spec = |path: &str| list([map([("path", path.into()), ("create", true.into())])]);
    match kind {
        "PrefixTransformer" => config.with("prefix", "t-").with("fieldSpecs", spec("metadata/name")),
        "SuffixTransformer" => config.with("suffix", "-t").with("fieldSpecs", spec("metadata/name")),
        "LabelTransformer" => config
            .with("labels", pairs(random, 2))
            .with("fieldSpecs", spec("metadata/labels")),
        "AnnotationsTransformer" => config
            .with("annotations", pairs(random, 2))
            .with("fieldSpecs", spec("metadata/annotations")),
        "NamespaceTransformer" => {
            let mut config = map([
                ("apiVersion", "builtin".into()),
                ("kind", kind.into()),
                (
                    "metadata",
                    map([("name", "one".into()), ("namespace", "elsewhere".into())]),
                ),
            ]);
            if random.chance(50) {
                config.put("unsetOnly", random.chance(50));
            }
            if random.chance(50) {
                config.put(
                    "setRoleBindingSubjects",
                    random.pick(&["defaultOnly", "allServiceAccounts", "none"]),
                );
            }
            config.with("fieldSpecs", spec("metadata/namespace"))
        }
        "ImageTagTransformer" => config.with("imageTag", image(random)),
        _ if visible.is_empty() => config,
        _ => {
            let made = random.pick(visible);
            let patch = map([
                ("apiVersion", made.api.as_str().into()),
                ("kind", made.kind.as_str().into()),
                (
                    "metadata",
                    map([
                        ("name", made.name.as_str().into()),
                        ("annotations", map([("patched", label(random))])),
                    ]),
                ),
            ]);
            let text = super::writer::document(&patch, false, random);
            config.with("patch", as_block(text))
        }
    }
}

/// An element of `images`.
pub(super) fn image(random: &mut Random) -> Value {
    let whole = random.pick(IMAGES);
    let name = whole.split_once('@').map_or(whole, |(name, _)| name);
    let name = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    };
    let mut entry = map([("name", name.into())]);
    if random.chance(40) {
        entry.put(
            "newName",
            random.pick(&["mirror.example.com/app", "other", "localhost:5000/x"]),
        );
    }
    match random.below(4) {
        0 => entry.put(
            "digest",
            "sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3",
        ),
        1 => entry.put("tagSuffix", "-dev"),
        2 => entry.put(
            "newTag",
            Value::Raw(
                random
                    .pick(&["v2", "'1.0'", "\"2\"", "v1.20", "latest", "'0644'"])
                    .to_owned(),
            ),
        ),
        _ => {}
    }
    entry
}
