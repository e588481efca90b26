//! Authorizer checks, built step by step. The caller of the evaluation answers the checks.

use crate::extension::{Check, Extension, Stage};
use crate::failure::Failure;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    match arguments {
        [Value::Extension(Extension::Decision(decision))] => Ok(match function {
            "allowed" => Value::Bool(decision.allowed),
            "reason" => Value::from(decision.reason.clone()),
            "errored" => Value::Bool(decision.error.is_some()),
            "error" => Value::from(decision.error.clone().unwrap_or_default()),
            _ => return Err(Failure::no_such_overload()),
        }),
        [
            Value::Extension(Extension::Check(check)),
            Value::String(name),
            Value::String(second),
        ] if function == "serviceAccount" && check.stage == Stage::Authorizer => service_account(check, name, second),
        [Value::Extension(Extension::Check(check)), Value::String(text)] => {
            let mut check = Check::clone(check);
            let text = text.to_string();
            match (function, check.stage) {
                ("path", Stage::Authorizer) => {
                    check.stage = Stage::Path;
                    check.path = text;
                }
                ("group", Stage::Authorizer) => {
                    check.stage = Stage::Group;
                    check.group = text;
                }
                ("resource", Stage::Group) => {
                    check.stage = Stage::Resource;
                    check.resource = text;
                }
                ("subresource", Stage::Resource) => check.subresource = text,
                ("namespace", Stage::Resource) => check.namespace = text,
                ("name", Stage::Resource) => check.name = text,
                ("fieldSelector", Stage::Resource) => check.field_selector = Some(text),
                ("labelSelector", Stage::Resource) => check.label_selector = Some(text),
                _ => return Err(Failure::no_such_overload()),
            }
            Ok(check.into_value())
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn service_account<'a>(check: &Check, namespace: &str, name: &str) -> Result<Value<'a>, Failure> {
    if !super::named_formats::subdomain_problems(name, false).is_empty() {
        return Err(Failure::new("Invalid service account name"));
    }
    if !super::named_formats::label_problems(namespace, false).is_empty() {
        return Err(Failure::new("Invalid service account namespace"));
    }
    let mut check = Check::clone(check);
    check.service_account = Some((namespace.to_owned(), name.to_owned()));
    Ok(check.into_value())
}
