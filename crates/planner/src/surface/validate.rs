//! The check of a Surface's spec: it must be valid and stay within its tier. Nothing is generated from an invalid one.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::Surface;
use tenure_api::names::{LONGEST_LABEL_VALUE, ObjectName, is_dns_label, is_dns_subdomain};
use tenure_api::surface::{SurfaceDeployKey, SurfaceSource};
use tenure_tenancy::{Denial, DenialReason, Placement, write_scope};

use super::children::name_kustomizations;
use crate::kustomization::SOPS;
use crate::list_limits;

/// Checks the spec.
pub(super) fn validate_surface(surface: &Surface, placement: &Placement) -> Result<(), Denial> {
    let invalid = |message: String| Denial::because(DenialReason::InvalidSpec, message);
    let sources = &surface.spec.sources;
    list_limits::check_surface(surface).map_err(invalid)?;
    if sources.is_empty() {
        return Err(invalid(
            "spec.sources is empty: name at least one repository".to_owned(),
        ));
    }
    let mut names = BTreeSet::new();
    let mut generated: BTreeMap<String, &str> = BTreeMap::new();
    let surface_name = surface.metadata.name.as_deref().unwrap_or_default();
    for source in sources {
        let name = source.name.as_str();
        let field = format!("spec.sources[{name}]");
        if !is_dns_label(name) {
            return Err(invalid(format!(
                "spec.sources: {name:?} is not a valid name: lower-case letters, digits and '-'"
            )));
        }
        if !names.insert(name) {
            return Err(invalid(format!("spec.sources: there are two sources called {name}")));
        }
        if source.path.is_some() && !source.paths.is_empty() {
            return Err(invalid(format!("{field}: path and paths are both set; use one")));
        }
        let mut path_names = BTreeSet::new();
        for path in &source.paths {
            if !is_dns_label(&path.name) {
                return Err(invalid(format!("{field}.paths: {:?} is not a valid name", path.name)));
            }
            if !path_names.insert(path.name.as_str()) {
                return Err(invalid(format!(
                    "{field}.paths: there are two paths called {}",
                    path.name
                )));
            }
            if let Some(target) = &path.target_namespace {
                write_scope::check_target_namespace(placement, target)
                    .map_err(|denial| prefix_field(&field, denial))?;
            }
        }
        if let Some(target) = &source.target_namespace {
            write_scope::check_target_namespace(placement, target).map_err(|denial| prefix_field(&field, denial))?;
        }
        if let Some(secret) = &source.secret_ref {
            ObjectName::new(secret.name.clone()).map_err(|error| invalid(format!("{field}.secretRef: {error}")))?;
        }
        if let Some(decryption) = &source.decryption {
            let name = &decryption.secret_ref.name;
            if decryption.provider != SOPS {
                return Err(invalid(format!("{field}.decryption.provider must be {SOPS}")));
            }
            if !is_dns_subdomain(name) {
                let message = format!("{field}.decryption.secretRef.name: {name:?} is not the name of a Secret");
                return Err(invalid(message));
            }
        }
        if let Some(key) = &source.deploy_key {
            check_deploy_key(source, key).map_err(|problem| invalid(format!("{field}.deployKey: {problem}")))?;
        }
        for (name, duration) in [
            ("interval", &source.interval),
            ("timeout", &source.timeout),
            ("retryInterval", &source.retry_interval),
        ] {
            if let Some(duration) = duration {
                duration
                    .parse()
                    .map_err(|error| invalid(format!("{field}.{name}: {error}")))?;
            }
        }
        for child in name_kustomizations(surface_name, source) {
            // The name becomes a label's value on every applied object.
            if child.len() > LONGEST_LABEL_VALUE {
                return Err(invalid(format!(
                    "{field}: the Kustomization would be called {child}, which is longer than {LONGEST_LABEL_VALUE} characters: shorten the name of the Surface, the source or the path"
                )));
            }
            if let Some(other) = generated.insert(child.clone(), name) {
                return Err(invalid(format!(
                    "spec.sources: {other} and {name} would both generate a Kustomization called {child}"
                )));
            }
        }
    }
    check_dependencies(sources).map_err(invalid)
}

/// Checks a deploy key: the server must be reached over ssh, and the spec must name the server's own keys.
fn check_deploy_key(source: &SurfaceSource, key: &SurfaceDeployKey) -> Result<(), String> {
    if source.secret_ref.is_some() {
        return Err("secretRef names other credentials of the same source; use one".to_owned());
    }
    if !source.url.reveal().starts_with("ssh://") {
        return Err(format!(
            "{} is not reached over ssh, which is what a deploy key is for: use an address that begins with ssh://",
            source.url
        ));
    }
    if key.known_hosts.trim().is_empty() {
        return Err(
            "knownHosts is empty, and without it the server's identity can't be checked: put the output of ssh-keyscan there, after a comparison".to_owned(),
        );
    }
    if key.known_hosts.len() > list_limits::KNOWN_HOSTS {
        return Err(format!(
            "knownHosts has {} bytes, and {} is the most: leave out other servers",
            key.known_hosts.len(),
            list_limits::KNOWN_HOSTS
        ));
    }
    if key
        .known_hosts
        .chars()
        .any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'))
    {
        return Err("knownHosts has characters in it that no text has".to_owned());
    }
    Ok(())
}

fn prefix_field(field: &str, denial: Denial) -> Denial {
    Denial {
        message: format!("{field}: {}", denial.message),
        ..denial
    }
}

/// Checks that every dependency exists, and that none leads back to itself.
fn check_dependencies(sources: &[SurfaceSource]) -> Result<(), String> {
    let by_name: BTreeMap<&str, &SurfaceSource> = sources.iter().map(|source| (source.name.as_str(), source)).collect();
    for source in sources {
        for dependency in &source.depends_on {
            if !by_name.contains_key(dependency.name.as_str()) {
                return Err(format!(
                    "spec.sources[{}].dependsOn: there is no source called {}",
                    source.name, dependency.name
                ));
            }
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = source
            .depends_on
            .iter()
            .map(|dependency| dependency.name.as_str())
            .collect();
        while let Some(name) = open.pop() {
            if name == source.name {
                return Err(format!("spec.sources[{}].dependsOn leads back to itself", source.name));
            }
            if seen.insert(name) {
                let next = by_name.get(name).into_iter().flat_map(|source| &source.depends_on);
                open.extend(next.map(|dependency| dependency.name.as_str()));
            }
        }
    }
    Ok(())
}
