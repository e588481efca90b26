//! The kinds that lanes reconcile, with one folder or file for each, and the code that they share.
//!
//! - `alert`: Alerts.
//! - `artifact_generator`: ArtifactGenerators.
//! - `borrowed_objects`: objects in other lanes' processes that one object refers to.
//! - `bucket`: Buckets.
//! - `checked_kind`: reconciles a kind whose objects are only checked.
//! - `external_artifact`: ExternalArtifacts.
//! - `git_repository`: GitRepositories.
//! - `helm_chart`: HelmCharts.
//! - `helm_repository`: HelmRepositories.
//! - `kustomization`: Kustomizations.
//! - `oci_repository`: OCIRepositories.
//! - `provider`: Providers.
//! - `receiver`: Receivers.
//! - `reference_lookup`: finds the target of a reference, if the reference is allowed.
//! - `served_source`: finds the source of a served artifact.
//! - `source`: reconciles sources of any kind.

pub(crate) mod alert;
pub(crate) mod artifact_generator;
pub(crate) mod borrowed_objects;
pub(crate) mod bucket;
pub(crate) mod checked_kind;
pub(crate) mod external_artifact;
pub(crate) mod git_repository;
pub(crate) mod helm_chart;
pub(crate) mod helm_repository;
pub(crate) mod kustomization;
pub(crate) mod oci_repository;
pub(crate) mod provider;
pub(crate) mod receiver;
pub(crate) mod reference_lookup;
pub(crate) mod served_source;
pub(crate) mod source;
