//! Makes up the files that configure transformers: `configurations`, and resources of the built-in kinds.

use super::objects::IMAGES;
use super::random::Random;
use super::writer::{Value, list, map};

/// Makes a file of `configurations`.
pub(super) fn make_configuration(random: &mut Random) -> Value {
    let mut configuration = map([]);
    if random.chance(50) {
        let specs = list([map([
            ("kind", "Widget".into()),
            (
                "path",
                random
                    .pick(&[
                        "spec/ref",
                        "spec/nested/ref",
                        "spec/list/value",
                        "spec/target",
                        "spec/target/name",
                    ])
                    .into(),
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
    if random.chance(20) {
        configuration.put(
            "nameSuffix",
            list([map([("path", "spec/target/name".into()), ("kind", "Widget".into())])]),
        );
    }
    for (list_name, path) in [
        ("labels", "spec/nested/labels"),
        ("templateLabels", "spec/template/metadata/labels"),
        ("commonAnnotations", "spec/nested/annotations"),
    ] {
        if random.chance(20) {
            let spec = map([
                ("path", path.into()),
                ("create", random.chance(50).into()),
                ("group", "example.com".into()),
                ("kind", "Widget".into()),
            ]);
            configuration.put(list_name, list([spec]));
        }
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

/// Makes an element of `images`.
pub(super) fn make_image(random: &mut Random) -> Value {
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
    match random.draw_below(4) {
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
