//! Parts of the policies that bound the controller's own account.

use tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;

use super::{USER, Validation, phrase, quote};
use crate::admission::Rule;

/// Match condition: the request is the controller's.
pub(super) fn by_controller(platform: &str) -> (&'static str, String) {
    let account = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    ("by-controller", format!("{USER} == {account}"))
}

/// A validation of a request of the controller.
pub(super) fn refuse(holds: String, what: &str) -> Validation {
    Validation {
        holds,
        rule: Rule::ControllerRights,
        why: phrase(
            &format!("{{}} may not write {{}} {{}}: {what}"),
            &[USER, "variables.kind", "variables.name"],
        ),
        remedy: quote("let an administrator do it, if it is meant"),
    }
}
