//! Admission of certificate requests. For each signer, rights decide which users may approve and which may sign. No user gets a client
//! certificate for the group `system:masters`.

use serde_json::Value;
use tenure_auth::authorization::Attributes as Right;
use tenure_auth::identity::MASTERS;

use super::validation::{CLIENT_SIGNER, list_organizations};
use crate::kind::{Admitted, Plugin, Rule};

/// The rules, in Kubernetes' order.
pub(super) const RULES: &[Rule] = &[
    Rule {
        validate: validate_approval,
        ..Rule::new(Plugin::CertificateApproval)
    },
    Rule {
        validate: validate_signing,
        ..Rule::new(Plugin::CertificateSigning)
    },
    Rule {
        validate: validate_subject,
        ..Rule::new(Plugin::CertificateSubjectRestriction)
    },
];

/// Checks that an approver has the right to approve for the signer.
fn validate_approval(admitted: &Admitted<'_>, _: &Value) -> Result<(), String> {
    match (admitted.request.subresource, admitted.old) {
        (Some("approval"), Some(old)) => require_right(admitted, "approve", old),
        _ => Ok(()),
    }
}

/// Checks that the writer of a certificate or of a failure has the right to sign for the signer.
fn validate_signing(admitted: &Admitted<'_>, object: &Value) -> Result<(), String> {
    let (Some("status"), Some(old)) = (admitted.request.subresource, admitted.old) else {
        return Ok(());
    };
    let same = |pointer: &str| object.pointer(pointer) == old.pointer(pointer);
    if same("/status/certificate") && same("/status/conditions") {
        return Ok(());
    }
    require_right(admitted, "sign", old)
}

fn signer_name(object: &Value) -> &str {
    let name = object.pointer("/spec/signerName").and_then(Value::as_str);
    name.unwrap_or_default()
}

/// Refuses a user without a right to this signer or to all signers of its domain.
fn require_right(admitted: &Admitted<'_>, verb: &str, request: &Value) -> Result<(), String> {
    let signer = signer_name(request);
    let domain = signer.split('/').next().unwrap_or_default();
    let is_allowed = [signer.to_owned(), format!("{domain}/*")].iter().any(|name| {
        let right = Right::resource(verb, "certificates.k8s.io", "*", "signers").with_name(name);
        admitted.rights.authorize(admitted.request.user, &right).allowed
    });
    if is_allowed {
        return Ok(());
    }
    Err(format!(
        "user not permitted to {verb} requests with signerName {signer:?}"
    ))
}

/// Refuses a client certificate for the group `system:masters`.
fn validate_subject(admitted: &Admitted<'_>, object: &Value) -> Result<(), String> {
    if !admitted.is_creation() || signer_name(object) != CLIENT_SIGNER {
        return Ok(());
    }
    let request = object
        .pointer("/spec/request")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let groups = list_organizations(request).map_err(|why| format!("failed to parse CSR: {why}"))?;
    if groups.iter().any(|group| group == MASTERS) {
        return Err(format!(
            "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        ));
    }
    Ok(())
}
