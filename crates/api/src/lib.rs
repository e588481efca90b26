//! The kinds of the API groups that Tenure serves: their fields, statuses, conditions and reasons, their names, and their CRDs as data.
//!
//! Users' values are decoded leniently where one bad object must not stop the others (a duration is stored as text and parsed when it
//! is used). They are decoded strictly where a wrong guess would be unsafe. The crate decides nothing: `tenancy` and `planner` do. It
//! does no I/O. kube is a dependency only for its derive and its object types.

pub mod access;
pub mod admission_webhooks;
pub mod alert;
pub mod artifact;
pub mod artifact_generator;
pub mod bucket;
pub mod condition;
pub mod crds;
pub mod customizer;
pub mod digest;
pub mod duration;
pub mod enforcement;
pub mod external_artifact;
pub mod git_repository;
pub mod helm;
pub mod installation;
pub mod inventory;
pub mod jitter;
pub mod kubernetes_controllers;
pub mod kustomization;
pub mod metadata;
pub mod names;
pub mod oci_repository;
pub mod other_controllers;
pub mod package;
pub mod package_source;
pub mod package_values;
pub mod provider;
pub mod reason;
pub mod receiver;
pub mod reference;
pub mod roles;
pub mod selector;
pub mod source_url;
pub mod surface;
pub mod tenant;
pub mod text;
pub mod time;
pub mod view;
pub mod workload;

pub use alert::{Alert, AlertSpec, AlertStatus};
pub use artifact_generator::{ArtifactGenerator, ArtifactGeneratorSpec, ArtifactGeneratorStatus};
pub use bucket::{Bucket, BucketSpec, BucketStatus};
pub use condition::{Condition, ConditionStatus};
pub use duration::DurationText;
pub use enforcement::{Enforcement, EnforcementSpec, EnforcementStatus};
pub use external_artifact::{ExternalArtifact, ExternalArtifactSpec, ExternalArtifactStatus};
pub use git_repository::{GitRepository, GitRepositorySpec, GitRepositoryStatus};
pub use inventory::ObjectId;
pub use kustomization::{Kustomization, KustomizationSpec, KustomizationStatus};
pub use oci_repository::{OciRepository, OciRepositorySpec, OciRepositoryStatus};
pub use package::{Package, PackageSpec, PackageStatus};
pub use package_source::{PackageSource, PackageSourceSpec, PackageSourceStatus};
pub use package_values::{PackageValues, PackageValuesSpec, PackageValuesStatus};
pub use provider::{Provider, ProviderSpec, ProviderStatus};
pub use receiver::{Receiver, ReceiverSpec, ReceiverStatus};
pub use source_url::SourceUrl;
pub use surface::{Surface, SurfaceSpec, SurfaceStatus};
pub use tenant::{Tenant, TenantSpec, TenantStatus};
pub use view::{ObjectView, StatedCondition};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
pub use time::Time;
