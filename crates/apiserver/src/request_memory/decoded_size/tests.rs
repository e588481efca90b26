//! Estimates against the real sizes of values: never below, and for ordinary manifests not far above.

use base64::Engine as _;
use serde_json::json;
use tenure_kinds::schema::strict::{Twice, read_json};

use super::*;
use crate::yaml;

/// Returns the bytes of a value beside its own slot, with maps as empty as possible.
fn measure_allocation(value: &Value) -> usize {
    match value {
        Value::String(text) => text.capacity(),
        Value::Array(items) => {
            items.capacity() * size_of::<Value>() + items.iter().map(measure_allocation).sum::<usize>()
        }
        Value::Object(map) => {
            let inside: usize = map
                .iter()
                .map(|(key, value)| key.capacity() + measure_allocation(value))
                .sum();
            inside + nodes(map.len())
        }
        _ => 0,
    }
}

/// Returns the bytes of the nodes of a map. Each node but the first has at least five entries, and one more entry is
/// between two nodes.
fn nodes(entries: usize) -> usize {
    let leaf = FAN * (size_of::<String>() + size_of::<Value>()) + 16;
    let inner = leaf + (FAN + 1) * size_of::<usize>();
    if entries <= FAN {
        return if entries == 0 { 0 } else { leaf };
    }
    let (mut level, mut sum) = (entries.div_ceil(6), 0);
    sum += level * leaf;
    while level > 1 {
        level = if level <= FAN + 1 { 1 } else { level / 6 };
        sum += level * inner;
    }
    sum
}

/// Returns manifests of all built-in kinds, as JSON and in Go's encoding.
fn manifests() -> Vec<(Value, Vec<u8>)> {
    let recorded = include_str!("../../../../kinds/tests/recorded/protobuf.jsonl");
    let cases = recorded
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    cases
        .map(|case| {
            let body = case["body"].as_str().unwrap();
            let body = base64::engine::general_purpose::STANDARD.decode(body).unwrap();
            (case["object"].clone(), body)
        })
        .collect()
}

/// Returns manifests as people and programs write them.
fn ordinary_values() -> Vec<Value> {
    let container = json!({"name": "app", "image": "example.com/team/app:1.2.3", "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/app", "readOnly": true}]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "app", "namespace": "team", "labels": {"app": "app", "tier": "web", "app.kubernetes.io/name": "app"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "app"}}, "template": {"metadata": {"labels": {"app": "app"}},
            "spec": {"containers": [container.clone(), container], "volumes": [{"name": "data", "emptyDir": {}},
                {"name": "config", "configMap": {"name": "app", "items": [{"key": "a", "path": "a"}]}}]}}}});
    let settings: serde_json::Map<String, Value> = (0..200)
        .map(|number| (format!("setting-{number}"), json!(format!("value of setting {number}"))))
        .collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": settings});
    let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}, "data": {"file": "some text\n".repeat(5_000)}});
    vec![deployment, map, text]
}

/// Returns texts that need far more memory than their size suggests.
fn hostile_texts() -> Vec<String> {
    let many = |item: &str| format!("[{}]", vec![item; 5_000].join(","));
    let nested = |open: &str, middle: &str, close: &str, depth: usize| {
        let one = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
        format!("[{}]", vec![one.as_str(); 50].join(","))
    };
    let keys = |value: &str| {
        let entries: Vec<String> = (0..20_000).map(|number| format!("\"k{number}\":{value}")).collect();
        format!("{{{}}}", entries.join(","))
    };
    let backwards: Vec<String> = (0..20_000).rev().map(|number| format!("\"{number:05}\":1")).collect();
    vec![
        many("{\"a\":1}"),
        many("{\"\":1}"),
        many("{}"),
        many("[]"),
        many("[1]"),
        many("[[1],[1],[1],[1],[1]]"),
        many("1"),
        many("\"\""),
        many("\"x\""),
        many("{\"a\":{},\"b\":{}}"),
        many("{\"a\":[],\"b\":[1]}"),
        nested("[", "1", "]", 110),
        nested("{\"\":", "1", "}", 110),
        nested("[{\"\":", "1", "}]", 55),
        keys("{}"),
        keys("{\"a\":1}"),
        keys("[1,2,3,4,5]"),
        format!("{{{}}}", backwards.join(",")),
        format!("[\"{}\"]", "long ".repeat(100_000)),
        format!("[\"{}\"]", "\\n\\u0041\\\\".repeat(10_000)),
        format!(
            "[{}]",
            (1..200)
                .map(|count| format!("[{}]", vec!["1"; count].join(",")))
                .collect::<Vec<_>>()
                .join(",")
        ),
        many("1e999"),
    ]
}

/// Writes a value in YAML's block style, one line for an entry or item.
fn write_block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&format!("\n{indent}{}:", json!(key).to_string().trim_matches('"')));
                write_block(value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&format!("\n{indent}-"));
                write_block(item, depth + 1, out);
            }
        }
        other => out.push_str(&format!(" {other}")),
    }
}

fn ratio(estimate: usize, taken: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a ratio to look at")]
    let ratio = estimate as f64 / taken.max(1) as f64;
    ratio
}

#[test]
fn json_takes_no_more_than_it_weighs() {
    let mut compared = 0;
    for text in hostile_texts() {
        let weight = weigh_json(text.as_bytes());
        let shown = text.get(..text.len().min(30)).unwrap();
        // A refused text has no value to compare with.
        let Ok((value, _)) = read_json(text.as_bytes(), Twice::Last) else {
            continue;
        };
        assert!(
            weight >= measure_allocation(&value),
            "{shown}: {weight} for {}",
            measure_allocation(&value)
        );
        assert!(weight <= text.len() * DENSEST, "{shown}: {weight}");
        compared += 1;
    }
    assert_eq!(
        compared,
        hostile_texts().len() - 1,
        "all but the number that is none to JSON"
    );
    let odd = [b"[\"".as_slice(), &[0xff; 10_000], b"\"]"].concat();
    let (value, _) = read_json(&odd, Twice::Last).unwrap();
    assert!(weigh_json(&odd) >= measure_allocation(&value));
}

#[test]
fn ordinary_manifests_weigh_little_more_than_they_take() {
    let kinds = manifests();
    assert!(kinds.len() > 20);
    let (mut json, mut yaml, mut protobuf, mut all) = (0, 0, 0, 0);
    for (value, body) in &kinds {
        let text = value.to_string();
        let (read, _) = read_json(text.as_bytes(), Twice::Filled).unwrap();
        let weight = weigh_json(text.as_bytes());
        assert!(
            weight >= measure_allocation(&read),
            "{text}: {weight} for {}",
            measure_allocation(&read)
        );
        (json, all) = (json + weight, all + measure_allocation(&read));
        let mut lines = String::new();
        write_block(value, 0, &mut lines);
        let (read, _) = yaml::parse(lines.as_bytes()).unwrap();
        let weight = weigh_yaml(lines.as_bytes());
        assert!(
            weight >= measure_allocation(&read),
            "{lines}: {weight} for {}",
            measure_allocation(&read)
        );
        yaml += weight;
        let read = tenure_kinds::protobuf::decode(body).unwrap();
        let weight = weigh_protobuf(body);
        assert!(
            weight >= measure_allocation(&read),
            "{text} in protobuf: {weight} for {}",
            measure_allocation(&read)
        );
        protobuf += weight;
    }
    let ratios = [json, yaml, protobuf].map(|sum| ratio(sum, all));
    assert!(ratios[0] < 2.0 && ratios[1] < 4.0 && ratios[2] < 4.0, "{ratios:?}");
    for value in ordinary_values() {
        let text = value.to_string();
        let (read, _) = read_json(text.as_bytes(), Twice::Filled).unwrap();
        let ratio = ratio(weigh_json(text.as_bytes()), measure_allocation(&read));
        assert!((1.0..2.0).contains(&ratio), "{ratio}: {}", &text[..60]);
    }
}

#[test]
fn yaml_takes_no_more_than_it_weighs() {
    let list = |item: &str| item.repeat(2_000);
    let aliases: String = (1..12)
        .map(|level| format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1))
        .collect();
    let mut compared = 0;
    for text in [
        list("- a: 1\n"),
        list("- - - - a\n"),
        list("- ? a\n"),
        list("- ?\n"),
        format!("[{}]", list("a: 1, ")),
        format!("[\n{}]", list("a: 1\n,\n")),
        format!("[\"]\",\n{}]", list("a: 1,\n")),
        format!(
            "{{{}}}",
            (0..2_000).map(|number| format!("k{number}, ")).collect::<String>()
        ),
        format!("[{}]", list("? a, ")),
        format!("[{}]", list("\"a\":1,")),
        format!("[{}]", list("{a},")),
        format!("a0: &a0 [{}]\n{aliases}", "x, ".repeat(10)),
        list("- &a {b: c}\n"),
        format!(
            "x: &x {{{}}}\n{}",
            "a: 1, ".repeat(5),
            list("- <<: *x\n").replace("- ", "").replacen("<<", "y", 1)
        ),
        format!("\"{}\"", "\\L".repeat(10_000)),
        format!(
            "{{{}}}",
            (0..2_000)
                .map(|number| format!("\"k{number}\":{{}},"))
                .collect::<String>()
        ),
        hostile_texts().join("\n---\n"),
    ] {
        let weight = weigh_yaml(text.as_bytes());
        let shown: String = text.chars().take(40).collect();
        let Ok((value, _)) = yaml::parse(text.as_bytes()) else {
            continue;
        };
        assert!(
            weight >= measure_allocation(&value),
            "{shown}: {weight} for {}",
            measure_allocation(&value)
        );
        compared += 1;
    }
    assert_eq!(compared, 17, "all of them are read");
    let bomb = format!("a0: &a0 [{}]\n{aliases}", "x, ".repeat(10));
    assert!(
        yaml::parse(bomb.as_bytes()).is_ok(),
        "it is within what aliases may make"
    );
}

/// Random texts of meaningful tokens are never estimated below their size.
#[test]
fn nothing_weighs_less_than_it_takes() {
    const MARKS: [&str; 35] = [
        "\u{feff}", "a", "b", "1", "\"x\"", "'y'", ": ", ":", ":\n", "- ", "-\n", "? ", "?", "[", "]", "{", "}", ",",
        ", ", "\n", "\n  ", "\n    ", " ", "&x ", "*x ", "&x", "*x", "<<: ", "|\n", ">\n", "# c\n", "!t ", "\"", "~",
        "1e9",
    ];
    let mut state = 7u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut read = 0;
    for _ in 0..60_000 {
        let length = 1 + next(14);
        let text: String = (0..length).map(|_| MARKS[next(MARKS.len())]).collect();
        if let Ok((value, _)) = yaml::parse(text.as_bytes()) {
            let weight = weigh_yaml(text.as_bytes());
            assert!(
                weight >= measure_allocation(&value),
                "{text:?}: {weight} for {}: {value}",
                measure_allocation(&value)
            );
            read += 1;
        }
        if let Ok((value, _)) = read_json(text.as_bytes(), Twice::Last) {
            assert!(weigh_json(text.as_bytes()) >= measure_allocation(&value), "{text:?}");
        }
    }
    assert!(read > 5_000, "{read}");
    // Damaged protobuf: the part that is decoded before the error.
    for (_, body) in manifests().iter().take(40) {
        for _ in 0..100 {
            let mut damaged = body.clone();
            let at = next(damaged.len());
            damaged[at] ^= u8::try_from(1 + next(255)).unwrap();
            if let Ok(value) = tenure_kinds::protobuf::decode(&damaged) {
                assert!(weigh_protobuf(&damaged) >= measure_allocation(&value), "{value}");
            }
        }
    }
}

#[test]
fn copies_weigh_what_they_make() {
    let patch = br#"[{"op":"copy","from":"/a","path":"/b"},{"op":"copy","from":"/a","path":"/c"}]"#;
    assert_eq!(weigh_copies(1_000, patch), 4_000);
    let escaped = br#"[{"op":"c\u006fpy"}]"#;
    assert!(weigh_copies(1_000, escaped) > 100 << 20);
    assert!(weigh_copies(1_000, "copy".repeat(1_000).as_bytes()) < 1 << 30);
}
