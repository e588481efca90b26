//! Findings as SARIF 2.1.0 (OASIS), the form in which code hosts read them: <https://docs.oasis-open.org/sarif/sarif/v2.1.0/>.

use serde_json::{Value, json};

use super::{Category, Finding};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Writes a log with one run. Addresses are relative to the root of the files. A finding without a place is reported at `fallback`, a file below the root, since hosts
/// leave out findings without a file.
#[must_use]
pub fn write_sarif(findings: &[Finding], fallback: &str, version: &str) -> Value {
    let rules = Category::ALL.map(|category| {
        json!({
            "id": category.as_str(),
            "shortDescription": { "text": category.describe() },
        })
    });
    let results: Vec<Value> = findings.iter().map(|finding| write_result(finding, fallback)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "tenure check", "version": version, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn write_result(finding: &Finding, fallback: &str) -> Value {
    let mut text = format!("{}; {}", finding.message, finding.remedy);
    if let Some(object) = &finding.object {
        text = format!("{object}: {text}");
    }
    let (path, line) = match &finding.origin {
        Some(origin) => (origin.path.as_str(), origin.line),
        None => (fallback, 0),
    };
    let mut location = json!({ "artifactLocation": { "uri": write_uri(path), "uriBaseId": "%SRCROOT%" } });
    // Line numbers begin with 1; an unknown line has no region.
    if line > 0
        && let Some(location) = location.as_object_mut()
    {
        location.insert("region".to_owned(), json!({ "startLine": line }));
    }
    let index = Category::ALL.iter().position(|category| *category == finding.category);
    json!({
        "ruleId": finding.category.as_str(),
        "ruleIndex": index,
        "level": finding.level.as_str(),
        "message": { "text": tenure_api::text::visible_line(&text) },
        "locations": [{ "physicalLocation": location }],
    })
}

/// Writes a path as a relative reference (RFC 3986): nothing in it is a scheme, a host or a query.
fn write_uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Level;
    use tenure_planner::object::Origin;

    /// The parts of the schema that a reader needs, as data: a pointer, its type, and whether there is a list of allowed values.
    const REQUIRED: [(&str, &str, &[&str]); 12] = [
        ("/version", "string", &["2.1.0"]),
        ("/$schema", "string", &[]),
        ("/runs", "array", &[]),
        ("/runs/0/tool/driver/name", "string", &[]),
        ("/runs/0/tool/driver/rules/0/id", "string", &[]),
        ("/runs/0/tool/driver/rules/0/shortDescription/text", "string", &[]),
        ("/runs/0/results", "array", &[]),
        ("/runs/0/results/0/ruleId", "string", &["rbac"]),
        (
            "/runs/0/results/0/level",
            "string",
            &["none", "note", "warning", "error"],
        ),
        ("/runs/0/results/0/message/text", "string", &[]),
        (
            "/runs/0/results/0/locations/0/physicalLocation/artifactLocation/uri",
            "string",
            &["a%3Ab/c%20d.yaml"],
        ),
        (
            "/runs/0/results/0/locations/0/physicalLocation/region/startLine",
            "number",
            &["7"],
        ),
    ];

    #[test]
    fn a_log_has_what_the_schema_requires() {
        let finding = Finding::new(Level::Error, Category::Rbac, "no\u{1b}", "ask");
        let located = finding.clone().with_origin(Some(Origin {
            path: "a:b/c d.yaml".to_owned(),
            line: 7,
        }));
        let log = write_sarif(&[located, finding], "app/kustomization.yaml", "1.0");
        for (pointer, wanted, allowed) in REQUIRED {
            let value = log.pointer(pointer).unwrap_or(&Value::Null);
            let (found, text) = match value {
                Value::String(text) => ("string", text.clone()),
                Value::Array(_) => ("array", String::new()),
                Value::Number(number) => ("number", number.to_string()),
                _ => ("another type", String::new()),
            };
            assert_eq!(found, wanted, "{pointer}");
            assert!(
                allowed.is_empty() || allowed.contains(&text.as_str()),
                "{pointer}: {text}"
            );
        }
        for result in log.pointer("/runs/0/results").and_then(Value::as_array).unwrap() {
            let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][rule]["id"], result["ruleId"]);
        }
        let fallback = &log["runs"][0]["results"][1]["locations"][0]["physicalLocation"];
        assert_eq!(fallback["artifactLocation"]["uri"], "app/kustomization.yaml");
        assert!(fallback.get("region").is_none(), "no line is no region: {fallback}");
        assert!(!log.to_string().contains("u001b"), "control characters are shown");
    }
}
