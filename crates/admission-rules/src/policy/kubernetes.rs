//! The exemptions of Kubernetes' own controllers as expressions, from the table that the functions read.

use tenure_api::kubernetes_controllers::{
    API_SERVER, CONTROLLER_MANAGER, CONTROLLERS, NODE_PREFIX, SCHEDULER, name_user,
};

use super::super::kubernetes::{EXEMPTIONS, Exemption};
use super::super::{Operation, Rule};
use super::{USER, quote};

/// Returns the conditions that exclude the API server itself and Tenure's accounts. Neither acts on a tenant's
/// template.
pub(super) fn not_api_server_or_tenure(platform: &str) -> Vec<(&'static str, String)> {
    let own = quote(&format!("system:serviceaccount:{platform}:tenure-"));
    vec![
        ("not-the-api-server", format!("{USER} != {}", quote(API_SERVER))),
        ("not-tenure-itself", format!("!{USER}.startsWith({own})")),
    ]
}

/// Returns the expression that a controller may change a field although the rule refuses it to
/// others.
pub(super) fn may_change(rule: Rule, field: &str) -> String {
    write_any(rule, |exemption| exemption.fields.contains(&field))
}

/// Returns the expression that a controller may delete an object although the rule refuses it to
/// others.
pub(super) fn may_delete(rule: Rule) -> String {
    write_any(rule, |exemption| exemption.operation == Operation::Delete)
}

/// Returns the expression that a controller keeps a namespace without facts in order: it updates or deletes an object that exists, or creates one
/// that no template describes. A node gets the tokens of the Pods that it runs.
pub(super) fn write_upkeep() -> String {
    let mut users: Vec<String> = CONTROLLERS.iter().map(|name| name_user(name)).collect();
    users.extend([CONTROLLER_MANAGER, SCHEDULER].map(str::to_owned));
    let is_node = format!("{USER}.startsWith({})", quote(NODE_PREFIX));
    format!(
        "((request.operation in ['UPDATE', 'DELETE'] && ({is_node} || {USER} in {})) || \
         ({is_node} && request.?subResource.orValue('') == 'token') || {})",
        write_list(&users),
        write_any(Rule::NamespaceMembership, |exemption| exemption.operation
            == Operation::Create)
    )
}

/// Returns the list of top-level keys of managed fields in which a controller may change what Git manages. Everything else in them
/// stays.
pub(super) fn list_changed_keys(rule: Rule) -> String {
    let of_rule = EXEMPTIONS.iter().filter(|exemption| exemption.rule == rule);
    let lists = of_rule.flat_map(|exemption| {
        let mut tops: Vec<&str> = exemption
            .fields
            .iter()
            .filter_map(|field| split_field(field))
            .map(|(top, _)| top)
            .collect();
        tops.dedup();
        tops.into_iter().map(|top| {
            let keys = exemption.fields.iter().filter_map(|field| split_field(field));
            let keys: Vec<String> = keys
                .filter(|(of, key)| *of == top && !key.is_empty())
                .map(|(_, key)| key.to_owned())
                .collect();
            // If the whole field may change, nothing else is in it.
            let rest = if keys.is_empty() {
                "true".to_owned()
            } else {
                is_otherwise_kept(top, &keys)
            };
            format!(
                "({} && {rest} ? [{}] : [])",
                write_request(exemption),
                quote(&format!("f:{top}"))
            )
        })
    });
    lists.collect::<Vec<_>>().join(" + ")
}

/// Returns the first segment of a JSON pointer, and the second, which may be empty.
fn split_field(field: &'static str) -> Option<(&'static str, &'static str)> {
    let field = field.strip_prefix('/')?;
    Some(field.split_once('/').unwrap_or((field, "")))
}

/// Returns the expression that a part of the object is unchanged, except these keys.
fn is_otherwise_kept(part: &str, keys: &[String]) -> String {
    let read = |object: &str| format!("{object}.?{part}.orValue({{}})");
    let (old, new, keys) = (read("oldObject"), read("object"), write_list(keys));
    format!(
        "{new}.all(key, key in {keys} || (key in {old} && {new}[key] == {old}[key])) && \
         {old}.all(key, key in {keys} || key in {new})"
    )
}

fn write_any(rule: Rule, is_meant: impl Fn(&Exemption) -> bool) -> String {
    let meant = EXEMPTIONS
        .iter()
        .filter(|exemption| exemption.rule == rule && is_meant(exemption));
    let requests: Vec<String> = meant.map(write_request).collect();
    if requests.is_empty() {
        return "false".to_owned();
    }
    format!("({})", requests.join(" || "))
}

/// Returns the expression that an exemption covers a request.
fn write_request(exemption: &Exemption) -> String {
    let (group, name) = exemption.resource;
    let operation = match exemption.operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    };
    let mut terms = vec![
        format!("request.operation == '{operation}'"),
        format!("request.resource.group == {}", quote(group)),
    ];
    if name != "*" {
        terms.push(format!("request.resource.resource == {}", quote(name)));
    }
    terms.push("request.?subResource.orValue('') == ''".to_owned());
    terms.push(format!("{USER} in {}", write_list(&exemption.list_users())));
    format!("({})", terms.join(" && "))
}

fn write_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(", "))
}
