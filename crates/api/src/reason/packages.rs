//! The reasons of Packages and PackageSources. They are Cozystack's if its operator has one. Tenure's own are marked as "Ours". Each has a row with
//! its remedy in `docs/howto/why-is-it-not-applied.md`.

/// A Package has no PackageSource of its name.
pub const PACKAGE_SOURCE_NOT_FOUND: &str = "PackageSourceNotFound";
/// A Package selects a variant that its PackageSource doesn't have.
pub const VARIANT_NOT_FOUND: &str = "VariantNotFound";
/// A PackageSource, or its use by a Package, is invalid.
pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
/// Packages that a Package depends on are not ready.
pub const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";
/// A component depends on a component that doesn't exist, or the releases of a dependency are unknown.
pub const DEPENDS_ON_FAILED: &str = "DependsOnFailed";
/// A HelmRelease, or its namespace, can't be written.
pub const HELM_RELEASE_FAILED: &str = "HelmReleaseFailed";
/// Ours: a HelmRelease of a Package is not healthy.
pub const HELM_RELEASE_NOT_READY: &str = "HelmReleaseNotReady";
/// Ours: helm-controller acts as the account that a HelmRelease of a Package names, and the API server refuses that account: it lacks rights, or doesn't exist.
pub const RELEASE_ACCOUNT_FORBIDDEN: &str = "ReleaseAccountForbidden";
/// Ours: a HelmRelease exists that the Package didn't create.
pub const RELEASE_CONFLICT: &str = "ReleaseConflict";
/// Ours: Packages or components depend on each other.
pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
/// Ours: two Packages, components or PackageSources want an object of one name.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Ours: the definition of the kind drops a field of the status that records generated objects.
pub const RECORD_NOT_STORED: &str = "RecordNotStored";
/// A PackageSource names no source.
pub const SOURCE_REF_NOT_SET: &str = "SourceRefNotSet";
/// Ours: a component names a library that its variant doesn't have.
pub const LIBRARY_NOT_FOUND: &str = "LibraryNotFound";
/// Ours: an ArtifactGenerator exists that the PackageSource didn't create.
pub const GENERATOR_CONFLICT: &str = "GeneratorConflict";
/// The ArtifactGenerator of a PackageSource doesn't exist.
pub const ARTIFACT_GENERATOR_NOT_FOUND: &str = "ArtifactGeneratorNotFound";
/// The ArtifactGenerator of a PackageSource has no condition Ready for its generation yet.
pub const ARTIFACT_GENERATOR_NOT_READY: &str = "ArtifactGeneratorNotReady";
/// The controller of ArtifactGenerators has reported nothing for a long time.
pub const SOURCE_WATCHER_STALLED: &str = "SourceWatcherStalled";
/// Ours: a PackageSource makes no artifacts.
pub const NO_ARTIFACTS: &str = "NoArtifacts";
/// Ours: a PackageValues is valid, and its Package and components exist.
pub const ACCEPTED: &str = "Accepted";
/// Ours: the HelmReleases have the changes of a PackageValues.
pub const MERGED: &str = "Merged";
/// Ours: a PackageValues has no Package of its name.
pub const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// Ours: the Package of a PackageValues was deleted.
pub const ORPHANED: &str = "Orphaned";
/// Ours: a PackageValues changes a component that its Package doesn't install.
pub const COMPONENT_NOT_FOUND: &str = "ComponentNotFound";
/// Ours: a PackageValues has changes that can't be applied.
pub const INVALID: &str = "Invalid";
