//! The words that stand as `reason` in conditions and events. Flux's where Flux has one; ours are marked.

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
/// Something could not be applied.
pub const RECONCILIATION_FAILED: &str = "ReconciliationFailed";
/// The source or its artifact is missing or cannot be read.
pub const ARTIFACT_FAILED: &str = "ArtifactFailed";
/// The files could not be rendered.
pub const BUILD_FAILED: &str = "BuildFailed";
/// Something could not be pruned.
pub const PRUNE_FAILED: &str = "PruneFailed";
/// Something was not pruned, as an annotation asks.
pub const PRUNE_SKIPPED: &str = "PruneSkipped";
/// The deletion of a Kustomization has reached its last objects: the rights of its own ServiceAccount.
pub const DELETING_OWN_RIGHTS: &str = "DeletingOwnRights";
/// A health check failed or did not end in time.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
/// A health check was given up because something newer came.
pub const HEALTH_CHECK_CANCELED: &str = "HealthCheckCanceled";
/// Tenancy refuses it.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// A CEL expression does not compile.
pub const INVALID_CEL_EXPRESSION: &str = "InvalidCELExpression";
/// Reconciliation is suspended.
pub const SUSPENDED: &str = "Suspended";
/// Something was applied, changed or deleted (events).
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
/// An artifact's manifest or layer is not what can be worked with.
pub const OCI_ARTIFACT_LAYER_OPERATION_FAILED: &str = "OCIArtifactLayerOperationFailed";
/// The objects of a bucket could not be listed or fetched.
pub const BUCKET_OPERATION_FAILED: &str = "BucketOperationFailed";
/// A source of which an artifact is to be made is not there, or has nothing yet.
pub const SOURCE_FETCH_FAILED: &str = "SourceFetchFailed";
/// What the upstream has could not be listed.
pub const READ_OPERATION_FAILED: &str = "ReadOperationFailed";
/// A signature could not be verified.
pub const VERIFICATION_ERROR: &str = "VerificationError";
/// The credentials are not of the kind that the provider takes.
pub const INVALID_PROVIDER_CONFIGURATION: &str = "InvalidProviderConfiguration";
/// What is to be verified is not what is fetched.
pub const INVALID_VERIFICATION_MODE: &str = "InvalidVerificationMode";
/// What is to be verified is not signed.
pub const INVALID_GIT_OBJECT: &str = "InvalidGitObject";
/// The signature of a tag is not good.
pub const INVALID_TAG_SIGNATURE: &str = "InvalidTagSignature";
/// The signature of a commit is not good.
pub const INVALID_COMMIT_SIGNATURE: &str = "InvalidCommitSignature";
/// What was fetched could not be stored.
pub const ARCHIVE_OPERATION_FAILED: &str = "ArchiveOperationFailed";
/// What is to be included could not be put where it belongs.
pub const COPY_FAILURE: &str = "CopyFailure";
/// Something that is to be included does not exist.
pub const NOT_FOUND: &str = "NotFound";
/// Something that is to be included has nothing stored yet.
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
/// An event could not be sent to whom an Alert names (events, Flux's).
pub const NOTIFICATION_DISPATCH_FAILED: &str = "NotificationDispatchFailed";
/// What is told beside an event is said twice (events, Flux's).
pub const METADATA_APPEND_FAILED: &str = "MetadataAppendFailed";
/// Ours: an Alert names a Provider that is not there, or can't be used.
pub const PROVIDER_NOT_READY: &str = "ProviderNotReady";
/// Some part of a spec can't be what it is.
pub const VALIDATION_FAILED: &str = "ValidationFailed";

/// Ours: a field is set that Tenure does not implement.
pub const UNSUPPORTED_FIELD: &str = "UnsupportedField";
/// Ours: a field's value is not valid.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// Ours: some objects' kinds are not known to the cluster; the others were applied.
pub const UNKNOWN_KIND: &str = "UnknownKind";
/// Ours: what is there differs from Git, and nothing is applied since only that is asked.
pub const DRIFT_DETECTED: &str = "DriftDetected";
/// Ours: another writer keeps reverting what is applied.
pub const FIELD_CONTESTED: &str = "FieldContested";
/// Ours: a deletion waits until somebody allows it.
pub const DELETION_GUARDED: &str = "DeletionGuarded";
/// The inventory is of another cluster than the one that spec.kubeConfig leads to.
pub const CLUSTER_CHANGED: &str = "ClusterChanged";
/// Ours: a repository holds what Flux's installation consists of.
pub const FLUX_REPLACED: &str = "FluxReplaced";
/// The inventory is of the cluster that spec.kubeConfig leads to.
pub const OTHER_CLUSTER: &str = "OtherCluster";
/// Ours: another Kustomization owns an object.
pub const OWNED_BY_ANOTHER: &str = "OwnedByAnother";
/// Ours: every namespace that says it is the Tenant's is recorded.
pub const RECORDED: &str = "Recorded";
/// Ours: the record began with the namespaces that there were.
pub const TAKEN_OVER: &str = "TakenOver";
/// Ours: namespaces say that they are the Tenant's, and only an administrator can tell whether they are.
pub const ADOPTION_NEEDED: &str = "AdoptionNeeded";
/// Ours: the ServiceAccounts that the Tenant names as owners are there.
pub const OWNERS_THERE: &str = "OwnersThere";
/// Ours: a ServiceAccount that the Tenant names as an owner isn't there.
pub const OWNER_MISSING: &str = "OwnerMissing";
/// Ours: nobody knows whether it is there.
pub const OWNER_NOT_LOOKED_AT: &str = "OwnerNotLookedAt";
/// Ours: nobody else is known to be the account that the Tenant's surfaces act as.
pub const ACCOUNT_EXCLUSIVE: &str = "Exclusive";
/// Ours: others are, or can be, the account that the Tenant's surfaces act as.
pub const ACCOUNT_SHARED: &str = "Shared";
/// Ours: nobody knows all of those who could be that account.
pub const ACCOUNT_NOT_LOOKED_AT: &str = "NotLookedAt";
/// Ours: the Tenant is being deleted, and its namespaces with it.
pub const TERMINATING: &str = "Terminating";
/// Ours: the surface does not live where a surface may live.
pub const WRONG_NAMESPACE: &str = "WrongNamespace";
/// Ours: the ServiceAccount to act as does not exist, or may not be used.
pub const IDENTITY_MISSING: &str = "IdentityMissing";
/// What judges writes is in force. Ours.
pub const IN_FORCE: &str = "InForce";
/// Policies wait for what they read to be written first. Ours.
pub const FACTS_MISSING: &str = "FactsMissing";
/// A policy, what binds it, or a webhook isn't as it has to be. Ours.
pub const WEAKENED: &str = "Weakened";
/// Policies are as they have to be, and no request has met them yet. Ours.
pub const NOT_MET_YET: &str = "NotMetYet";
/// A lane of several namespaces may request an administrator's token. Ours.
pub const SHARED_LANE_MINTS: &str = "SharedLaneMints";
/// Something is meant to be in force, and nothing has reported it yet.
pub const NOT_REPORTED: &str = "NotReported";
/// There are policies that this version doesn't make. Ours.
pub const LEFT_OVER: &str = "LeftOver";
/// What judges writes can't be looked at, or put back. Ours.
pub const NOT_KEPT: &str = "NotKept";
