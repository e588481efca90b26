//! Who may decide on certificate signing requests and who may sign them is said for each signer (`CertificateApproval`,
//! `CertificateSigning`), and nobody gets a client certificate for the group that may do everything
//! (`CertificateSubjectRestriction`).

use serde_json::Value;
use tenure_access::authorization::{Attributes as Right, Authorizer};
use tenure_access::identity::MASTERS;
use tenure_kinds::certificates::{CLIENT_SIGNER, organizations};

use super::{Action, Attributes};
use crate::http::ApiError;
use crate::rights::Rights;

const GROUP: &str = "certificates.k8s.io";

pub(super) fn validate(rights: &Rights, attributes: &Attributes<'_>, object: &Value) -> Result<(), ApiError> {
    if !attributes.is_part_of(GROUP, "certificatesigningrequests") {
        return Ok(());
    }
    match (attributes.action, attributes.subresource(), attributes.old) {
        (Action::Create, "", _) => subject(attributes, object),
        (Action::Update, "approval", Some(old)) => {
            let signer = signer(old);
            if is_allowed(rights, attributes, "approve", signer) {
                return Ok(());
            }
            let why = format!("user not permitted to approve requests with signerName {signer:?}");
            Err(attributes.denied(Some(object), &why))
        }
        (Action::Update, "status", Some(old)) => {
            let signer = signer(old);
            let same = |pointer: &str| object.pointer(pointer) == old.pointer(pointer);
            if same("/status/certificate") && same("/status/conditions")
                || is_allowed(rights, attributes, "sign", signer)
            {
                return Ok(());
            }
            let why = format!("user not permitted to sign requests with signerName {signer:?}");
            Err(attributes.denied(Some(object), &why))
        }
        _ => Ok(()),
    }
}

fn signer(object: &Value) -> &str {
    let name = object.pointer("/spec/signerName").and_then(Value::as_str);
    name.unwrap_or_default()
}

/// Whether the user has a right to this signer, or to all signers of its domain.
fn is_allowed(rights: &Rights, attributes: &Attributes<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].iter().any(|name| {
        let right = Right::resource(verb, GROUP, "*", "signers").named(name);
        rights.authorize(&attributes.op.user, &right).allowed
    })
}

fn subject(attributes: &Attributes<'_>, object: &Value) -> Result<(), ApiError> {
    if signer(object) != CLIENT_SIGNER {
        return Ok(());
    }
    let request = object
        .pointer("/spec/request")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let groups = organizations(request)
        .map_err(|why| attributes.denied(Some(object), &format!("failed to parse CSR: {why}")))?;
    if groups.iter().any(|group| group == MASTERS) {
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(attributes.denied(Some(object), &why));
    }
    Ok(())
}
