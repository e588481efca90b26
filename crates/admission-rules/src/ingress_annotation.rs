//! The rule for annotations by which an Ingress takes hosts, or configures a proxy, besides its rules. They are denied if a Tenant bounds
//! hostnames: their values are in the controller's own language, which Tenure doesn't read.

use std::collections::BTreeSet;

use tenure_tenancy::settings::Settings;

/// The default list, from the documentation of the controllers. A `*` at the beginning stands for the controller's prefix, which administrators
/// choose.
const REFUSED: [&str; 26] = [
    // ingress-nginx: other names of the server, the host with or without `www`, and raw configuration.
    "*/server-alias",
    "*/from-to-www-redirect",
    "*/server-snippet",
    "*/configuration-snippet",
    "*/auth-snippet",
    "*/stream-snippet",
    "*/modsecurity-snippet",
    // NGINX Inc.
    "*/server-snippets",
    "*/location-snippets",
    // HAProxy Ingress, and the controller of HAProxy Technologies.
    "*/server-alias-regex",
    "*/redirect-from",
    "*/redirect-from-regex",
    "*/config-backend",
    "*/config-frontend",
    "*/config-tcp-service",
    "*/backend-config-snippet",
    "*/route-acl",
    // Traefik writes these into the expression that matches requests.
    "*/router.pathmatcher",
    "*/rule-type",
    // Kong, Application Gateway, AWS load balancers.
    "konghq.com/host-aliases",
    "appgw.ingress.kubernetes.io/hostname-extension",
    "alb.ingress.kubernetes.io/conditions.*",
    "alb.ingress.kubernetes.io/actions.*",
    // Emissary: whole mappings.
    "getambassador.io/config",
    // ExternalDNS: names that lead to the Ingress.
    "external-dns.alpha.kubernetes.io/hostname",
    "external-dns.alpha.kubernetes.io/internal-hostname",
];

/// Lists the patterns of an installation.
pub(super) fn list_refused(settings: &Settings) -> BTreeSet<&str> {
    let patterns = settings.refused_ingress_annotations.iter().map(String::as_str);
    let allowed: BTreeSet<&str> = patterns
        .clone()
        .filter_map(|pattern| pattern.strip_prefix('-'))
        .collect();
    let more = patterns.filter(|pattern| !pattern.starts_with('-') && !pattern.is_empty());
    let all = REFUSED.into_iter().chain(more);
    all.filter(|pattern| !allowed.contains(pattern)).collect()
}

/// Checks whether an annotation matches a pattern.
pub(super) fn is_match(pattern: &str, key: &str) -> bool {
    if let Some(end) = pattern.strip_prefix('*') {
        return key.ends_with(end);
    }
    match pattern.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => key == pattern,
    }
}

/// Returns the message about such an annotation.
pub(super) fn write_annotation_message(tenant: &str, key: &str) -> (String, String) {
    (
        format!("metadata.annotations: {key} may add hosts, and Tenant {tenant} allows only some hostnames"),
        "write hosts into spec.rules, or ask an administrator (--refused-ingress-annotations)".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrators_extend_and_shorten_the_list() {
        let settings = Settings {
            refused_ingress_annotations: ["example.org/*", "-*/server-alias"].map(str::to_owned).to_vec(),
            ..Settings::default()
        };
        let is_refused =
            |settings: &Settings, key: &str| list_refused(settings).iter().any(|pattern| is_match(pattern, key));
        for (key, by_default, then) in [
            ("nginx.ingress.kubernetes.io/server-alias", true, false),
            ("my.prefix/server-alias", true, false),
            ("nginx.ingress.kubernetes.io/server-snippet", true, true),
            ("alb.ingress.kubernetes.io/conditions.web", true, true),
            ("example.org/x", false, true),
            ("nginx.ingress.kubernetes.io/rewrite-target", false, false),
            ("server-alias", false, false),
        ] {
            assert_eq!(is_refused(&Settings::default(), key), by_default, "{key}");
            assert_eq!(is_refused(&settings, key), then, "{key}");
        }
    }
}
