//! Which names are valid, with the texts that Kubernetes gives for those that are not.

use std::sync::LazyLock;

use regex::Regex;

use crate::catalog::Resource;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// A pattern for the whole text. The patterns are constants, and a test compiles them all.
fn whole(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

static LABEL_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(LABEL));
static SUBDOMAIN_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(SUBDOMAIN));
static QUALIFIED_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(QUALIFIED));
static VALUE_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(VALUE));

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|regex| regex.is_match(text))
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// What is wrong with a DNS label (RFC 1123).
pub(crate) fn dns_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !matches(&LABEL_RE, text) {
        wrong.push(format!("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"));
    }
    wrong
}

/// What is wrong with a DNS subdomain (RFC 1123).
pub(crate) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push(too_long(253));
    }
    if !matches(&SUBDOMAIN_RE, text) {
        wrong.push(format!("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"));
    }
    wrong
}

/// What is wrong with a key of a label or annotation, or a finalizer.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    dns_subdomain(prefix)
                        .into_iter()
                        .map(|detail| format!("prefix part {detail}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63)));
    }
    if !matches(&QUALIFIED_RE, name) {
        wrong.push(format!("name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"));
    }
    wrong
}

/// What is wrong with a label's value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push(too_long(63));
    }
    if !matches(&VALUE_RE, text) {
        wrong.push(format!("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{VALUE}')"));
    }
    wrong
}

/// What is wrong with a name that only has to be one part of a path.
fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." => return vec!["may not be '.'".to_owned()],
        ".." => return vec!["may not be '..'".to_owned()],
        _ => {}
    }
    ['/', '%']
        .into_iter()
        .filter(|character| text.contains(*character))
        .map(|character| format!("may not contain '{character}'"))
        .collect()
}

/// What is wrong with an object's name, by its kind.
pub(crate) fn validate_name(resource: &Resource, name: &str) -> Vec<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => dns_label(name),
        ("", "services") => dns_label(name),
        ("rbac.authorization.k8s.io", _) => path_segment(name),
        _ => dns_subdomain(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_compile() {
        for pattern in [LABEL, SUBDOMAIN, QUALIFIED, VALUE] {
            assert!(whole(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn names() {
        assert!(dns_subdomain("a.b-c").is_empty());
        assert_eq!(dns_subdomain("A").len(), 1);
        assert_eq!(dns_label("").len(), 1);
        assert!(qualified_name("example.com/Name_1").is_empty());
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert!(label_value("").is_empty());
        assert_eq!(path_segment("a/b%").len(), 2);
    }
}
