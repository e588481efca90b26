//! The decryption that `spec.decryption` requests: the Secret with the keys, the entries that are keys, and the handling of files that were changed and of Secrets that
//! are still encrypted. A key that needs a request to a key service is refused by name. A file names the address of such a service, so an author of files would receive
//! whatever the controller may send there.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tenure_api::metadata::DECRYPT;
use tenure_api::names::is_dns_subdomain;
use tenure_api::{KustomizationSpec, ObjectId, reason};
use zeroize::Zeroizing;

use super::context::Context;
use super::types::Rendered;
use super::{Phase, outcome};
use crate::confidential;
use crate::object::{Object, RenderedObject};

/// The only provider, as in Flux.
pub(crate) const SOPS: &str = "sops";
/// The endings of the names of keys: identities of age, and armored keys of OpenPGP.
const KEYS: [&str; 2] = [".agekey", ".asc"];
/// The names of entries that Flux passes to key services.
const SERVICES: [(&str, &str); 4] = [
    ("sops.vault-token", "HashiCorp Vault"),
    ("sops.aws-kms", "AWS KMS"),
    ("sops.azure-kv", "Azure Key Vault"),
    ("sops.gcp-kms", "Google Cloud KMS"),
];
/// The most entries with keys in one Secret.
const MOST_ENTRIES: usize = 64;
/// The most changed files that a message names.
const NAMED: usize = 5;

/// Refuses an invalid `spec.decryption`, independent of the state of the cluster.
pub(super) fn check_spec(spec: &KustomizationSpec) -> Result<(), String> {
    let Some(decryption) = &spec.decryption else {
        return Ok(());
    };
    if decryption.provider != SOPS {
        return Err(format!("spec.decryption.provider must be {SOPS}"));
    }
    match find_secret(spec) {
        Some(name) if !is_dns_subdomain(name) => Err(format!(
            "spec.decryption.secretRef.name: {name:?} is not the name of a Secret"
        )),
        _ => Ok(()),
    }
}

/// Finds the name of the Secret with the keys.
pub(super) fn find_secret(spec: &KustomizationSpec) -> Option<&str> {
    let reference = spec.decryption.as_ref()?.secret_ref.as_ref()?;
    Some(reference.name.as_str())
}

/// Reads the decryption keys from the Secret. Ignores other entries, as Flux does.
pub(super) fn read_keys(secret: &Object) -> Result<BTreeMap<String, Zeroizing<Vec<u8>>>, String> {
    let mut keys = BTreeMap::new();
    for (name, value) in secret.view().find_map("/data").into_iter().flatten() {
        if let Some((_, service)) = SERVICES.iter().find(|(entry, _)| entry == name) {
            return Err(format!(
                "{name} is a key of {service}, which is not supported: encrypt the files for a key of age or OpenPGP, and remove the \
                 entry"
            ));
        }
        if !KEYS.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        if keys.len() == MOST_ENTRIES {
            return Err(format!("it has more than {MOST_ENTRIES} entries with keys"));
        }
        let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.ok_or_else(|| format!("{name} can't be read"))?;
        keys.insert(name.clone(), Zeroizing::new(bytes));
    }
    Ok(keys)
}

/// Refuses Secrets that are still encrypted: applied, they would have no values, or unusable ones.
pub(super) fn check_decrypted(context: &Context<'_>, objects: &[RenderedObject]) -> Phase<()> {
    let encrypted = objects.iter().find(|rendered| {
        let view = rendered.object.view();
        let id = ObjectId::from_object(&rendered.object.0);
        id.is_ok_and(|id| confidential::is_secret(&id))
            && view.find("/sops").is_some()
            && !view
                .find_annotation(DECRYPT)
                .is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
    });
    let Some(encrypted) = encrypted else {
        return Ok(());
    };
    let id = ObjectId::from_object(&encrypted.object.0)
        .map(|id| id.subject())
        .unwrap_or_default();
    let message = format!(
        "{id} is SOPS encrypted, configuring decryption is required for this secret to be reconciled ({})",
        encrypted.origin
    );
    Err(outcome::plan_failed(context.fork(), reason::BUILD_FAILED, message))
}

/// Describes files that were changed after encryption; nothing if there are none.
pub(super) fn describe_changed(rendered: &Rendered) -> Option<String> {
    let (first, rest) = rendered
        .changed_files
        .split_at_checked(NAMED)
        .unwrap_or((&rendered.changed_files, &[]));
    if first.is_empty() {
        return None;
    }
    let more = if rest.is_empty() {
        String::new()
    } else {
        format!(" and {} more", rest.len())
    };
    Some(format!(
        "encrypted files were changed afterwards, or their MAC is missing: {}{more}",
        first.join(", ")
    ))
}

/// Refuses files that were changed after encryption, if the program's settings say so.
pub(super) fn check_unchanged(context: &Context<'_>, rendered: &Rendered) -> Phase<()> {
    match describe_changed(rendered) {
        Some(message) if context.snapshot.strict_sops => Err(outcome::plan_failed(
            context.fork(),
            reason::BUILD_FAILED,
            format!("{message}; encrypt them again with sops (an administrator asks for this with --sops-strict)"),
        )),
        _ => Ok(()),
    }
}
