//! The kinds of Tenure and Flux that commands name: by default, on request, and in completions.

/// The kinds that `tenure get` shows without an argument, in this order.
pub(crate) const OURS: &[&str] = &[
    "tenants.capsule.clastix.io",
    "surfaces.tenure.dev",
    "gitrepositories.source.toolkit.fluxcd.io",
    "ocirepositories.source.toolkit.fluxcd.io",
    "buckets.source.toolkit.fluxcd.io",
    "helmrepositories.source.toolkit.fluxcd.io",
    "helmcharts.source.toolkit.fluxcd.io",
    "artifactgenerators.source.extensions.fluxcd.io",
    "externalartifacts.source.toolkit.fluxcd.io",
    "kustomizations.kustomize.toolkit.fluxcd.io",
    "receivers.notification.toolkit.fluxcd.io",
    "providers.notification.toolkit.fluxcd.io",
    "alerts.notification.toolkit.fluxcd.io",
    "packagesources.cozystack.io",
    "packages.cozystack.io",
    "packagevalues.cozystack.io",
    "helmreleases.helm.toolkit.fluxcd.io",
];

/// The kinds that are reconciled on request and can be suspended.
pub(crate) const RECONCILED: [(&str, &str); 10] = [
    ("source.toolkit.fluxcd.io", "GitRepository"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("source.toolkit.fluxcd.io", "Bucket"),
    ("source.toolkit.fluxcd.io", "HelmRepository"),
    ("source.toolkit.fluxcd.io", "HelmChart"),
    ("source.extensions.fluxcd.io", "ArtifactGenerator"),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("notification.toolkit.fluxcd.io", "Receiver"),
    ("tenure.dev", "Surface"),
    // By helm-controller, which answers in the same fields.
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
];

/// The kinds that can be suspended and have nothing to reconcile, because they react to events.
pub(crate) const EVENT_DRIVEN: [(&str, &str); 2] = [
    ("notification.toolkit.fluxcd.io", "Alert"),
    ("notification.toolkit.fluxcd.io", "Provider"),
];

/// The kinds that are reconciled on request and can't be suspended: they have no field for it.
pub(crate) const NEVER_SUSPENDED: [(&str, &str); 2] = [("cozystack.io", "Package"), ("cozystack.io", "PackageSource")];

/// The kinds that `tenure diff` renders.
pub(crate) const RENDERED: [(&str, &str); 2] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("tenure.dev", "Surface"),
];

/// The kinds that `tenure tree` begins with.
pub(crate) const WITH_RESULTS: [(&str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("tenure.dev", "Surface"),
    ("cozystack.io", "Package"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
];
