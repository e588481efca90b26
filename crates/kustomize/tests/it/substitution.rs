//! Variables that are substituted after a build: errors and their places, confidential results, and costs.

use kustomize::{Budget, Build, Error, MapTree, Options, Overrides, Substitution, Variable, build};

const HEAD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";

fn make_variables(variables: &[(&str, &str, bool)]) -> Substitution {
    let variable = |(name, value, is_secret): &(&str, &str, bool)| {
        let value = value.as_bytes().to_vec();
        let is_secret = *is_secret;
        ((*name).to_owned(), Variable { value, is_secret })
    };
    Substitution::new(variables.iter().map(variable).collect())
}

fn build_text(text: &str, options: Options) -> Result<Build, Error> {
    let mut tree = MapTree::new();
    tree.insert("kustomization.yaml", "resources: [a.yaml]\n");
    tree.insert("a.yaml", text);
    build(&tree, "", &options)
}

fn options_with(substitution: Substitution) -> Options {
    Options {
        substitution: Some(substitution),
        ..Options::default()
    }
}

fn build_error(text: &str, substitution: Substitution) -> String {
    build_text(text, options_with(substitution)).unwrap_err().to_string()
}

#[test]
fn substituted_secret_value_makes_object_confidential() {
    let secret = make_variables(&[("password", "hunter2", true), ("colour", "teal", false)]);
    let confidential = |text: &str| {
        let built = build_text(&format!("{HEAD}data:\n  a: {text}\n"), options_with(secret.clone())).unwrap();
        built.resources[0].is_confidential()
    };
    assert!(confidential("x${password}"));
    assert!(confidential("${#password}"), "its length is one, too");
    assert!(confidential("${colour:=${password}}"), "whether it is used or not");
    assert!(!confidential("${colour}"));
    assert!(!confidential("plain"));
    assert!(!confidential("$${password}"));
}

/// A value of a Secret changes neither the identity of an object nor the name of a field.
#[test]
fn secret_values_cannot_change_identity_or_field_names() {
    let of_secret = |value| make_variables(&[("v", value, true), ("plain", "web", false)]);
    for (text, value) in [
        ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${v}\n", "web"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: x${v}\n",
            "web",
        ),
        ("apiVersion: v1\nkind: ${v}\nmetadata:\n  name: a\n", "ConfigMap"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\nz: ${v}\n",
            "x\rmetadata:\r  name: web",
        ),
    ] {
        let message = build_error(text, of_secret(value));
        assert!(message.contains("take the variable from a ConfigMap"), "{message}");
        assert!(!message.contains("web"), "{message}");
    }
    for (text, value) in [
        ("data:\n  ${v}: a\n", "web"),
        ("data:\n  a${#v}: a\n", "web"),
        ("data: ${v}\n", "{web: a}"),
        ("data:\n  a: ${v}\n", "a\r  web: b"),
        ("list:\n- ${v}\n", "a\r- {web: b}"),
    ] {
        let message = build_error(&format!("{HEAD}{text}"), of_secret(value));
        assert!(message.contains("of the name of a field"), "{message}");
        assert!(!message.contains("web"), "{message}");
    }
    // Values may be of any type, and those of others may have names.
    let text = format!("{HEAD}data:\n  a: ${{v}}\n  b: ${{map}}\n");
    let both = make_variables(&[("v", "[1, 2]", true), ("map", "{c: d}", false)]);
    assert_eq!(
        build_text(&text, options_with(both)).unwrap().resources[0].object["data"]["b"]["c"],
        "d"
    );
    let text = format!("{}data:\n  a: ${{v}}\n", HEAD.replace("name: a", "name: ${plain}"));
    let built = build_text(&text, options_with(of_secret("hunter2"))).unwrap();
    assert_eq!(built.resources[0].object["metadata"]["name"], "web");
    assert!(built.resources[0].is_confidential());
}

#[test]
fn one_object_stays_one_object() {
    for (text, value, why) in [
        (
            "data:\n  a: ${v}\n",
            "x\r---\rkind: Secret",
            "one object would become several",
        ),
        (
            "data:\n  a: ${v}\n",
            "x\u{2028}---\u{2028}kind: Secret",
            "one object would become several",
        ),
        ("z: ${v}\n", "x\rkind: ''", "without a kind or name"),
        ("z: ${v}\n", "x\rmetadata: null", "without a kind or name"),
        ("z: ${v}\n", "x\rkind: ConfigMapList\ritems: []", "makes a list"),
        ("data:\n  a: \"${v\"\n", "", "missing closing brace"),
        ("data:\n  a: ${v:?x}\n", "", "`:?` and `:+` are not supported"),
        ("data:\n  a: ${u:1:1}\n", "", "is not UTF-8"),
        ("data:\n  a: ${v}\n", "[", "can't be read"),
    ] {
        let message = build_error(
            &format!("{HEAD}{text}"),
            make_variables(&[("v", value, false), ("u", "é", false)]),
        );
        assert!(message.contains(why), "{text} {value:?}: {message}");
    }
}

#[test]
fn an_error_names_the_line_and_the_variable() {
    let message = build_error(&format!("{HEAD}data:\n  a: x\n  b: ${{colour}}\n"), make_variables(&[]));
    assert_eq!(
        message,
        "a.yaml:7: ConfigMap.v1.[noGrp]/a.[noNs]: post build failed: variable not set (strict mode): \"colour\": set it in spec.postBuild, \
         write `${colour:=default}`, or `$${colour}` where no variable is meant"
    );
    let message = build_error(
        &format!("{HEAD}data:\n  a: x\n  b: ${{colour:}}\n"),
        make_variables(&[]),
    );
    assert!(
        message.starts_with("a.yaml:7: ") && message.contains("at `${colour`"),
        "{message}"
    );
}

#[test]
fn errors_about_secrets_name_place_but_not_value() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  p: hun${ter2}\n  q: x${ter\n";
    let message = build_error(secret, make_variables(&[]));
    assert!(message.starts_with("a.yaml:") && !message.contains("ter"), "{message}");
    let message = build_error(&secret.replace("x${ter\n", "x\n"), make_variables(&[]));
    assert!(
        message.starts_with("a.yaml:6: ") && !message.contains("ter2"),
        "{message}"
    );
    // An unreadable result may quote the value.
    let text = format!("{HEAD}data:\n  a: ${{v}}\n");
    let message = build_error(&text, make_variables(&[("v", "[hunter2", true)]));
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn places_stay() {
    let text = format!("{HEAD}data:\n  a: ${{v}}\n  b:\n  - 1\n  - $$\n");
    let built = build_text(&text, options_with(make_variables(&[("v", "x\r  c: new", false)]))).unwrap();
    let resource = &built.resources[0];
    let line = |pointer: &str| resource.locate(pointer).unwrap().to_string();
    assert_eq!(
        (line("/data/a"), line("/data/b/1")),
        ("a.yaml:6".to_owned(), "a.yaml:9".to_owned())
    );
    assert_eq!(resource.object["data"]["c"], "new");
    assert_eq!(line("/data/c"), "a.yaml:6", "as what it is in");
}

#[test]
fn common_metadata_comes_after_the_substitution() {
    let common = |text: &str| [("of".to_owned(), text.to_owned())].into();
    let mut options = options_with(make_variables(&[("v", "x", false)]));
    options.substitution.as_mut().unwrap().unless = Some(("of".to_owned(), "disabled".to_owned()));
    options.overrides = Overrides {
        labels: common("${v}"),
        annotations: common("disabled"),
        ..Overrides::default()
    };
    let text = format!("{HEAD}data:\n  a: ${{v}}\n");
    let substituted = &build_text(&text, options.clone()).unwrap().resources[0].object;
    assert_eq!(substituted["metadata"]["labels"]["of"], "${v}");
    assert_eq!(substituted["data"]["a"], "x", "only what is built may say no");
    let text = text.replace("  name: a\n", "  name: a\n  labels: {of: disabled}\n");
    assert_eq!(
        build_text(&text, options).unwrap().resources[0].object["data"]["a"],
        "${v}"
    );
}

/// kustomize-controller rounds such a number to a float, because it converts all objects.
#[test]
fn object_without_variables_stays_unchanged() {
    let text = format!("{HEAD}data:\n  a: 9007199254740993\n");
    let built = build_text(&text, options_with(make_variables(&[("v", "x", false)]))).unwrap();
    assert_eq!(built.resources[0].object["data"]["a"], 9_007_199_254_740_993_u64);
}

#[test]
fn multiplying_substitutions_end_at_the_budget() {
    let value = "a".repeat(100_000);
    let bomb = make_variables(&[("v", &value, false)]);
    for expression in [
        "${v//a/${v}}".to_owned(),
        "${v}".repeat(2000),
        "${v##*a*a*b}".to_owned(),
        "${v//${v:0:1}/${v//a/${v}}}".to_owned(),
    ] {
        let options = Options {
            budget: Budget {
                bytes: 64 << 20,
                steps: 10_000_000,
            },
            ..options_with(bomb.clone())
        };
        let refused = build_text(&format!("{HEAD}data:\n  a: {expression}\n"), options);
        assert!(matches!(refused, Err(Error::Budget { .. })), "{refused:?}");
    }
    // Anchors and aliases are values like any other.
    let aliases = (1..30).map(|at| format!("\r  b{at}: &b{at} [*b{0}, *b{0}, *b{0}]", at - 1));
    let laughs = format!("&b0 lol{}", aliases.collect::<String>());
    let refused = build_text(
        &format!("{HEAD}data:\n  b0: ${{v}}\n"),
        options_with(make_variables(&[("v", &laughs, false)])),
    );
    assert!(refused.is_err());
}

/// For any value, the object keeps a valid identity, and no name in it contains a Secret's value.
#[test]
fn no_value_makes_something_else_of_an_object() {
    let parts = [
        "\r",
        "\u{85}",
        "\u{2028}",
        " ",
        "  ",
        "---",
        "...",
        ":",
        ": ",
        "- ",
        "? ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
        "!!str ",
        "|",
        ">",
        "#",
        " #",
        "\"",
        "'",
        "\\",
        "%",
        "<<",
        "~",
        "kind: X",
        "metadata: ",
        "name: web",
        "apiVersion",
        "é",
        "\t",
        "0",
        "web",
    ];
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let text = format!("{HEAD}list:\n- ${{v}}\nquoted: \": ${{v}}\"\nx:\n  y: a${{v}}\nz: ${{v}}\n");
    let mut done = 0;
    for _ in 0..5000 {
        let value: String = (0..=random(8)).map(|_| parts[random(parts.len())]).collect();
        let is_secret = random(2) == 0;
        let Ok(built) = build_text(&text, options_with(make_variables(&[("v", &value, is_secret)]))) else {
            continue;
        };
        done += 1;
        let [resource] = built.resources.as_slice() else {
            panic!("{value:?}");
        };
        let name = resource.object["metadata"]["name"].as_str().unwrap();
        assert!(
            !name.is_empty() && !resource.object["kind"].as_str().unwrap().is_empty(),
            "{value:?}"
        );
        assert_eq!(resource.is_confidential(), is_secret, "{value:?}");
        if is_secret {
            let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(
                (name, resource.object["kind"].as_str()),
                ("a", Some("ConfigMap")),
                "{value:?}"
            );
            assert_eq!(
                keys(&resource.object),
                ["apiVersion", "kind", "list", "metadata", "quoted", "x", "z"]
            );
        }
    }
    assert!(done > 500, "{done}");
}
