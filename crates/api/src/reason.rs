//! The `reason` words of conditions and events. They are Flux's if Flux has one. Tenure's own are marked
//! as "Ours".

pub mod packages;

/// The reconciliation is under way.
pub const PROGRESSING: &str = "Progressing";
/// The reconciliation failed and is tried again.
pub const PROGRESSING_WITH_RETRY: &str = "ProgressingWithRetry";
/// The controller itself failed while it worked on the object. Ours.
pub const INTERNAL_ERROR: &str = "InternalError";
/// A dependency is not ready yet.
pub const DEPENDENCY_NOT_READY: &str = "DependencyNotReady";
/// Everything was applied, and is healthy if that was asked for.
pub const RECONCILIATION_SUCCEEDED: &str = "ReconciliationSucceeded";
/// An object could not be applied.
pub const RECONCILIATION_FAILED: &str = "ReconciliationFailed";
/// The source or its artifact is missing or cannot be read.
pub const ARTIFACT_FAILED: &str = "ArtifactFailed";
/// The files could not be rendered.
pub const BUILD_FAILED: &str = "BuildFailed";
/// An object could not be pruned.
pub const PRUNE_FAILED: &str = "PruneFailed";
/// An object was not pruned, as an annotation asks.
pub const PRUNE_SKIPPED: &str = "PruneSkipped";
/// The deletion of a Kustomization has reached its last objects: the rights of its own ServiceAccount.
pub const DELETING_OWN_RIGHTS: &str = "DeletingOwnRights";
/// No controller has written the status of an object whose controller always writes one. Ours.
pub const NO_CONTROLLER: &str = "NoController";
/// A health check failed or did not end in time.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
/// A health check was given up because something newer came.
pub const HEALTH_CHECK_CANCELED: &str = "HealthCheckCanceled";
/// Tenancy denies it.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// A CEL expression does not compile.
pub const INVALID_CEL_EXPRESSION: &str = "InvalidCELExpression";
/// Reconciliation is suspended.
pub const SUSPENDED: &str = "Suspended";
/// An object was applied, changed or deleted (events).
pub const RECONCILIATION_PROGRESSED: &str = "Progressing";

/// The key of a source can't be made, or isn't the one that was made. Ours.
pub const DEPLOY_KEY_UNAVAILABLE: &str = "DeployKeyUnavailable";

/// The URL of a source is not valid.
pub const URL_INVALID: &str = "URLInvalid";
/// The credentials were refused, or could not be read.
pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";
/// A Git operation failed.
pub const GIT_OPERATION_FAILED: &str = "GitOperationFailed";
/// A Git operation succeeded.
pub const GIT_OPERATION_SUCCEEDED: &str = "GitOperationSucceeded";
/// An artifact could not be found, or pulled from its registry.
pub const OCI_ARTIFACT_PULL_FAILED: &str = "OCIArtifactPullFailed";
/// An artifact's manifest or layer has an unusable form.
pub const OCI_ARTIFACT_LAYER_OPERATION_FAILED: &str = "OCIArtifactLayerOperationFailed";
/// The objects of a bucket could not be listed or fetched.
pub const BUCKET_OPERATION_FAILED: &str = "BucketOperationFailed";
/// A source of an artifact is missing, or has no artifact yet.
pub const SOURCE_FETCH_FAILED: &str = "SourceFetchFailed";
/// The contents of the upstream could not be listed.
pub const READ_OPERATION_FAILED: &str = "ReadOperationFailed";
/// A signature could not be verified.
pub const VERIFICATION_ERROR: &str = "VerificationError";
/// The credentials have a kind that the provider doesn't accept.
pub const INVALID_PROVIDER_CONFIGURATION: &str = "InvalidProviderConfiguration";
/// The object to verify is not the one that is fetched.
pub const INVALID_VERIFICATION_MODE: &str = "InvalidVerificationMode";
/// The object to verify is not signed.
pub const INVALID_GIT_OBJECT: &str = "InvalidGitObject";
/// The signature of a tag is not good.
pub const INVALID_TAG_SIGNATURE: &str = "InvalidTagSignature";
/// The signature of a commit is not good.
pub const INVALID_COMMIT_SIGNATURE: &str = "InvalidCommitSignature";
/// The fetched content could not be stored.
pub const ARCHIVE_OPERATION_FAILED: &str = "ArchiveOperationFailed";
/// An included artifact could not be copied to its place.
pub const COPY_FAILURE: &str = "CopyFailure";
/// An operation failed, and no other reason names it.
pub const FAILED: &str = "Failed";
/// The index of a Helm repository can't be read.
pub const INDEXATION_FAILED: &str = "IndexationFailed";
/// The source of a HelmChart does not exist.
pub const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";
/// The source of a HelmChart has no stored artifact yet.
pub const NO_SOURCE_ARTIFACT: &str = "NoSourceArtifact";
/// A HelmChart names a kind that has no charts.
pub const UNSUPPORTED_SOURCE_KIND: &str = "UnsupportedSourceKind";
/// A source has no such chart, or no such version of it.
pub const INVALID_CHART_REFERENCE: &str = "InvalidChartReference";
/// A chart could not be fetched.
pub const CHART_PULL_ERROR: &str = "ChartPullError";
/// A chart was fetched and stored unchanged.
pub const CHART_PULL_SUCCEEDED: &str = "ChartPullSucceeded";
/// The version of a chart can't have build metadata.
pub const METADATA_PATCH_ERROR: &str = "MetadataPatchError";
/// A file of values for a chart is missing, or can't be read.
pub const VALUES_FILES_ERROR: &str = "ValuesFilesError";
/// A chart that another one needs is missing.
pub const DEPENDENCY_BUILD_ERROR: &str = "DependencyBuildError";
/// A chart could not be packaged.
pub const CHART_PACKAGE_ERROR: &str = "ChartPackageError";
/// A chart was packaged and stored.
pub const CHART_PACKAGE_SUCCEEDED: &str = "ChartPackageSucceeded";
/// The signature of a chart could not be verified.
pub const CHART_VERIFICATION_ERROR: &str = "ChartVerificationError";
/// An included source does not exist.
pub const NOT_FOUND: &str = "NotFound";
/// An included source has no stored artifact yet.
pub const NO_ARTIFACT: &str = "NoArtifact";
/// An artifact was fetched and stored.
pub const SUCCEEDED: &str = "Succeeded";
/// A new artifact was stored (events).
pub const NEW_ARTIFACT: &str = "NewArtifact";
/// The upstream has the revision that is stored already (events).
pub const ARTIFACT_UP_TO_DATE: &str = "ArtifactUpToDate";
/// The upstream has a revision that is not stored yet.
pub const NEW_REVISION: &str = "NewRevision";

/// The token of a Receiver can't be found.
pub const TOKEN_NOT_FOUND: &str = "TokenNotFound";
/// An event could not be sent to the receiver of an Alert (events, Flux's).
pub const NOTIFICATION_DISPATCH_FAILED: &str = "NotificationDispatchFailed";
/// The metadata of an event has a key twice (events, Flux's).
pub const METADATA_APPEND_FAILED: &str = "MetadataAppendFailed";
/// Ours: an Alert names a Provider that is missing, or can't be used.
pub const PROVIDER_NOT_READY: &str = "ProviderNotReady";
/// Ours: the address of a Provider is one that the controllers may not connect to.
pub const ADDRESS_DENIED: &str = "AddressDenied";
/// Ours: no listener takes requests for Receivers.
pub const NO_LISTENER: &str = "NoListener";
/// A part of a spec is invalid.
pub const VALIDATION_FAILED: &str = "ValidationFailed";

/// Ours: a field is set that Tenure does not implement.
pub const UNSUPPORTED_FIELD: &str = "UnsupportedField";
/// Ours: a field's value is not valid.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// Ours: some objects' kinds are not known to the cluster; the others were applied.
pub const UNKNOWN_KIND: &str = "UnknownKind";
/// Ours: the cluster differs from Git, and nothing is applied since only detection is requested.
pub const DRIFT_DETECTED: &str = "DriftDetected";
/// Ours: another writer keeps reverting what is applied.
pub const FIELD_CONTESTED: &str = "FieldContested";
/// Ours: a deletion waits until an administrator or owner allows it.
pub const DELETION_GUARDED: &str = "DeletionGuarded";
/// The inventory is of another cluster than the one that spec.kubeConfig leads to.
pub const CLUSTER_CHANGED: &str = "ClusterChanged";
/// Ours: a repository contains the objects of Flux's installation.
pub const FLUX_REPLACED: &str = "FluxReplaced";
/// The inventory is of the cluster that spec.kubeConfig leads to.
pub const OTHER_CLUSTER: &str = "OtherCluster";
/// Ours: another Kustomization owns an object.
pub const OWNED_BY_ANOTHER: &str = "OwnedByAnother";
/// Ours: every namespace that claims to be the Tenant's is recorded.
pub const RECORDED: &str = "Recorded";
/// Ours: the record began with the existing namespaces.
pub const TAKEN_OVER: &str = "TakenOver";
/// Ours: namespaces claim to be the Tenant's, and only an administrator can decide whether they are.
pub const ADOPTION_NEEDED: &str = "AdoptionNeeded";
/// Ours: the ServiceAccounts that the Tenant names as owners exist.
pub const OWNERS_THERE: &str = "OwnersThere";
/// Ours: a ServiceAccount that the Tenant names as an owner is missing.
pub const OWNER_MISSING: &str = "OwnerMissing";
/// Ours: it is unknown whether the ServiceAccount exists.
pub const OWNER_NOT_LOOKED_AT: &str = "OwnerNotLookedAt";
/// Ours: no other user is known to have access to the Tenant's GitOps account.
pub const ACCOUNT_EXCLUSIVE: &str = "Exclusive";
/// Ours: other users have, or can get, access to the Tenant's GitOps account.
pub const ACCOUNT_SHARED: &str = "Shared";
/// Ours: the list of users that could get access to that account is incomplete.
pub const ACCOUNT_NOT_LOOKED_AT: &str = "NotLookedAt";
/// Ours: the Tenant is being deleted, and its namespaces with it.
pub const TERMINATING: &str = "Terminating";
/// Ours: the Surface is in a namespace where no Surface may live.
pub const WRONG_NAMESPACE: &str = "WrongNamespace";
/// Ours: the ServiceAccount to act as does not exist, or may not be used.
pub const IDENTITY_MISSING: &str = "IdentityMissing";
/// The checks of writes are in force. Ours.
pub const IN_FORCE: &str = "InForce";
/// The policies wait until the facts that they read are written. Ours.
pub const FACTS_MISSING: &str = "FactsMissing";
/// A policy, a binding of a policy, or a webhook doesn't have the required form. Ours.
pub const WEAKENED: &str = "Weakened";
/// The policies have the required form, and no request has shown yet that they are in force. Ours.
pub const NOT_MET_YET: &str = "NotMetYet";
/// A lane of several namespaces may request an administrator's token. Ours.
pub const SHARED_LANE_MINTS: &str = "SharedLaneMints";
/// A check of writes should be in force, and no report about it exists yet.
pub const NOT_REPORTED: &str = "NotReported";
/// The cluster has policies that this version doesn't make. Ours.
pub const LEFT_OVER: &str = "LeftOver";
/// The checks of writes can't be read, or can't be restored. Ours.
pub const NOT_KEPT: &str = "NotKept";
