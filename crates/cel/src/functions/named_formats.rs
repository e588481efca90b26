//! The named formats: the results of `format.….().validate(text)`.

use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use crate::extension::Extension;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::time;
use crate::url::Url;
use crate::value::Value;

/// A format that texts can be checked against.
#[derive(Debug)]
pub struct NamedFormat {
    function: &'static str,
    /// The name of the format.
    pub name: &'static str,
    /// The assumed length of the pattern, for the cost.
    pub(crate) pattern_size: u64,
    check: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    make_format("format.dns1123Label", "DNS1123Label", 30, |text| {
        label_problems(text, false)
    }),
    make_format("format.dns1123Subdomain", "DNS1123Subdomain", 60, |text| {
        subdomain_problems(text, false)
    }),
    make_format("format.dns1035Label", "DNS1035Label", 30, |text| {
        old_label_problems(text, false)
    }),
    make_format("format.qualifiedName", "QualifiedName", 60, qualified_name_problems),
    make_format("format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| {
        label_problems(text, true)
    }),
    make_format("format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        subdomain_problems(text, true)
    }),
    make_format("format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| {
        old_label_problems(text, true)
    }),
    make_format("format.labelValue", "LabelValue", 40, label_value_problems),
    make_format("format.uri", "URI", 1103, |text| {
        Url::parse(text).err().into_iter().collect()
    }),
    make_format("format.uuid", "uuid", 71, |text| {
        problem_unless(is_uuid(text), "does not match the UUID format")
    }),
    make_format("format.byte", "byte", 84, |text| {
        let fine = base64::engine::general_purpose::STANDARD.decode(text).is_ok();
        problem_unless(fine && !text.is_empty(), "invalid base64")
    }),
    make_format("format.date", "date", 71, |text| {
        problem_unless(time::parse_date(text).is_some(), "invalid date")
    }),
    make_format("format.datetime", "datetime", 71, |text| {
        problem_unless(is_date_time(text), "invalid datetime")
    }),
];

const fn make_format(
    function: &'static str,
    name: &'static str,
    pattern_size: u64,
    check: fn(&str) -> Vec<String>,
) -> NamedFormat {
    NamedFormat {
        function,
        name,
        pattern_size,
        check,
    }
}

fn problem_unless(fine: bool, problem: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![problem.to_owned()] }
}

/// Implements `format.named(…)` and the formats by name.
pub(crate) fn find_named<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    let found = |function: &str| {
        FORMATS
            .iter()
            .find(|format| format.function == function)
            .map(|format| Value::Extension(Extension::Format(format)))
    };
    match (function, arguments) {
        ("format.named", [Value::String(name)]) => Ok(Value::optional(found(&format!("format.{}", &**name)))),
        (function, []) => found(function).ok_or_else(Failure::no_such_overload),
        _ => Err(Failure::no_such_overload()),
    }
}

/// Returns the errors in a text, or an empty optional.
pub(crate) fn validate<'a>(_: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    let [Value::Extension(Extension::Format(format)), Value::String(text)] = arguments else {
        return Err(Failure::no_such_overload());
    };
    let problems = (format.check)(text);
    let problems: Vec<Value<'a>> = problems.into_iter().map(Value::from).collect();
    Ok(Value::optional((!problems.is_empty()).then(|| Value::from(problems))))
}

fn is_label(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(fine) && text.bytes().next_back().is_some_and(fine);
    ends && text.bytes().all(|byte| fine(byte) || byte == b'-')
}

/// Replaces the end of a prefix for generated names, because the API server will replace that end.
fn complete_prefix(text: &str, prefix: bool) -> String {
    match text.strip_suffix('-') {
        Some(start) if prefix && !start.is_empty() => {
            let mut letters = start.chars();
            letters.next_back();
            format!("{}a", letters.as_str())
        }
        _ => text.to_owned(),
    }
}

fn too_long(text: &str, most: usize, problems: &mut Vec<String>) {
    if text.len() > most {
        problems.push(format!("must be no more than {most} bytes"));
    }
}

pub(crate) fn label_problems(text: &str, prefix: bool) -> Vec<String> {
    let text = complete_prefix(text, prefix);
    let mut problems = Vec::new();
    too_long(&text, 63, &mut problems);
    if !is_label(&text) {
        problems.push(if is_subdomain(&text) {
            "must not contain dots".to_owned()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned()
        });
    }
    problems
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

pub(crate) fn subdomain_problems(text: &str, prefix: bool) -> Vec<String> {
    let text = complete_prefix(text, prefix);
    let mut problems = Vec::new();
    too_long(&text, 253, &mut problems);
    if !is_subdomain(&text) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn old_label_problems(text: &str, prefix: bool) -> Vec<String> {
    let text = complete_prefix(text, prefix);
    let mut problems = Vec::new();
    too_long(&text, 63, &mut problems);
    if !is_label(&text) || text.starts_with(|first: char| first.is_ascii_digit()) {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

fn is_label_key(text: &str) -> bool {
    let ends = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().next().is_some_and(ends)
        && text.bytes().next_back().is_some_and(ends)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                   alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let found = subdomain_problems(prefix, false);
                problems.extend(found.into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_key(name) {
        problems.push(format!("name part {KEY}"));
    }
    problems
}

fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(text, 63, &mut problems);
    if !text.is_empty() && !is_label_key(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

fn is_uuid(text: &str) -> bool {
    static UUID: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok());
    UUID.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Checks for a date, a `t`, and a time with valid hours and minutes.
fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok());
    let lower = text.to_lowercase();
    let Some((date, clock)) = lower.split_once('t') else {
        return false;
    };
    let Some(found) = TIME.as_ref().and_then(|pattern| pattern.captures(clock)) else {
        return false;
    };
    let below = |group: usize, most: &str| found.get(group).is_some_and(|part| part.as_str() <= most);
    time::parse_date(date).is_some() && below(1, "23") && below(2, "59") && below(3, "59")
}
