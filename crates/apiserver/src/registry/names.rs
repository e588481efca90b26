//! Which keys and values a label selector may name, with the texts that Kubernetes gives for the others.

use std::sync::LazyLock;

use regex::Regex;

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// A pattern for the whole text. The patterns are constants, and a test compiles them all.
fn whole(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

static SUBDOMAIN_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(SUBDOMAIN));
static QUALIFIED_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(QUALIFIED));
static VALUE_RE: LazyLock<Option<Regex>> = LazyLock::new(|| whole(VALUE));

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|regex| regex.is_match(text))
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// What is wrong with a DNS subdomain (RFC 1123).
fn dns_subdomain(text: &str) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_compile() {
        for pattern in [SUBDOMAIN, QUALIFIED, VALUE] {
            assert!(whole(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn names() {
        assert!(dns_subdomain("a.b-c").is_empty());
        assert_eq!(dns_subdomain("A").len(), 1);
        assert!(qualified_name("example.com/Name_1").is_empty());
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert!(label_value("").is_empty());
    }
}
