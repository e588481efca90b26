//! Output formats that the user describes, as recorded from kubectl 1.36: `kubectl get things web -o FORMAT` for the object, and without a name for the list. kubectl
//! gives fields of an object in any order, so the words of some answers are compared without their order.

use serde_json::{Value, json};
use tenure_inspection::custom_columns::Columns;
use tenure_inspection::jsonpath::Template;

fn print(format: &str, data: &Value, objects: &[Value], with_headers: bool) -> Result<String, String> {
    let (name, template) = format.split_once('=').expect("a format with a template");
    match name {
        "custom-columns" => {
            let columns = Columns::parse(template).map_err(|error| error.to_string())?;
            let lines = columns
                .print(objects, with_headers)
                .map_err(|error| error.to_string())?;
            Ok(lines.iter().map(|line| format!("{line}\n")).collect())
        }
        "jsonpath" => {
            let template = Template::parse(template).map_err(|error| error.to_string())?;
            template.print(data).map_err(|error| error.to_string())
        }
        "jsonpath-as-json" => {
            let template = Template::parse(template).map_err(|error| error.to_string())?;
            template.print_json(data).map_err(|error| error.to_string())
        }
        other => panic!("{other}"),
    }
}

fn sort_words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split([' ', ',', '\n']).collect();
    words.sort_unstable();
    words
}

#[test]
fn templates_and_columns_print_as_in_kubectl() {
    let recorded: Value = serde_json::from_str(include_str!("kubectl_output.json")).expect("JSON");
    let object = &recorded["object"];
    let items = recorded["items"].as_array().expect("a list");
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    let cases = recorded["cases"].as_array().expect("a list");
    assert!(cases.len() > 180, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let format = case["format"].as_str().expect("a format");
        // The command refuses an empty template before it parses one.
        if format == "jsonpath=" {
            continue;
        }
        let (data, objects) = match case["on"] == "object" {
            true => (object, std::slice::from_ref(object)),
            false => (&list, items.as_slice()),
        };
        let expected = case["output"]
            .as_str()
            .ok_or(case["error"].as_str().unwrap_or_default());
        let got = print(format, data, objects, case["noHeaders"] != true);
        let is_equal = match (&got, expected) {
            (Ok(got), Ok(expected)) if case["unordered"] == true => sort_words(got) == sort_words(expected),
            (Ok(got), Ok(expected)) => got == expected,
            (Err(got), Err(expected)) => got == expected,
            _ => false,
        };
        if !is_equal {
            wrong.push(format!("{format}\n  here:    {got:?}\n  kubectl: {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No template and no data may end the program.
#[test]
fn broken_templates_are_errors() {
    let nested = "{.a[?(".repeat(10_000);
    let unions = format!("{{{}", "[1,".repeat(10_000));
    let deep = format!("{{.a{}}}", "[?(@.b[?(@.c)])]".repeat(1_000));
    let ranges = "{range @}".repeat(10_000);
    assert!(Template::parse(&ranges).is_err() && Template::parse(&nested).is_err());
    let data = json!({"a": [{"b": [{"c": 1}]}], "n": i64::MIN});
    for template in [
        nested.as_str(),
        unions.as_str(),
        deep.as_str(),
        "{[9223372036854775807]}",
        "{.a[-9223372036854775808:9223372036854775807:9223372036854775807]}",
        "{.a[99999999999999999999]}",
        "{\\",
        "{.\\",
        "{'\\",
        "{\"\\x\"}",
        "{\"\\uD800\"}",
        "{.a[?(@.b==}",
        "{é}",
        "é{.é}",
        "{..}",
        "{range}{end}",
    ] {
        if let Ok(parsed) = Template::parse(template) {
            let _answer = parsed.print(&data);
        }
        let _columns = Columns::parse(&format!("A:{template}"));
    }
}
