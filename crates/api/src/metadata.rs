//! Labels, annotations, finalizers and field managers: the fixed words on objects. Flux's and Capsule's are theirs, `tenure.dev/` is ours.

/// The platform namespace: surfaces in it are of the platform tier.
pub const PLATFORM_NAMESPACE: &str = "tenure-system";
/// The ServiceAccount of the controller itself, in the platform namespace.
pub const CONTROLLER_SERVICE_ACCOUNT: &str = "tenure-controller";
/// The Lease of the leader among several `tenure run`, in the platform namespace.
pub const CONTROLLER_LEASE: &str = "tenure-controller";
/// The prefix of the Lease's name for a shard, before the shard's name.
pub const SHARD_LEASE_PREFIX: &str = "tenure-controller-shard-";
/// Annotation of these Leases: the revisions of Tenants and namespaces up to which the leader has released everything
/// outside its part.
pub const LET_GO: &str = "tenure.dev/let-go";
/// Label of the objects that run the controllers of a shard: its name.
pub const SHARD_LABEL: &str = "tenure.dev/shard";
/// Label with the shard of a Tenant, or of a namespace without a tenant (Flux's).
pub const SHARDING_KEY: &str = "sharding.fluxcd.io/key";
/// The Lease that Flux's source-controller holds while it reconciles, in its own namespace.
pub const SOURCE_CONTROLLER_LEASE: &str = "source-controller-leader-election";
/// The Lease that Flux's notification-controller holds while it reconciles, in its own namespace.
pub const NOTIFICATION_CONTROLLER_LEASE: &str = "notification-controller-leader-election";
/// The Lease that Flux's kustomize-controller holds while it reconciles, in its own namespace.
pub const KUSTOMIZE_CONTROLLER_LEASE: &str = "kustomize-controller-leader-election";
/// Lease by which Flux's controller of ArtifactGenerators elects its leader.
pub const SOURCE_WATCHER_LEASE: &str = "source-watcher-leader-election";
/// The Lease that Capsule's controller holds while it reconciles, in its own namespace.
pub const CAPSULE_LEASE: &str = "42c733ea.clastix.capsule.io";

/// Field manager of everything that a Kustomization applies (Flux's, so that a cluster that switches recreates nothing).
pub const KUSTOMIZE_CONTROLLER: &str = "kustomize-controller";
/// Field manager of a Kustomization's own status and finalizer (Flux's).
pub const KUSTOMIZE_CONTROLLER_STATUS: &str = "gotk-kustomize-controller";
/// Field manager of a source's own status and finalizer (Flux's).
pub const SOURCE_CONTROLLER_STATUS: &str = "gotk-source-controller";
/// Field manager of Flux's controller of ArtifactGenerators.
pub const SOURCE_WATCHER: &str = "source-watcher";
/// Field manager of the status of a Receiver, an Alert and a Provider, and of a Receiver's requests to reconcile (Flux's).
pub const NOTIFICATION_CONTROLLER: &str = "notification-controller";
/// Field manager of the objects that Tenure writes for a Surface or a Tenant.
pub const TENURE_CONTROLLER: &str = "tenure-controller";
/// Field managers whose fields are taken over when an object is first applied (as Flux does): exact for `before-first-apply`,
/// prefix for kubectl.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Prefix of kubectl's field managers.
pub const KUBECTL_PREFIX: &str = "kubectl";

/// The entry of a Secret for ssh with the private half of the key (Flux's).
pub const PRIVATE_HALF_ENTRY: &str = "identity";
/// The entry of a Secret for ssh with the public half of the key (Flux's).
pub const PUBLIC_HALF_ENTRY: &str = "identity.pub";
/// The entry of a Secret for ssh with the keys of hosts (Flux's).
pub const KNOWN_HOSTS_ENTRY: &str = "known_hosts";

/// The finalizer of Kustomizations and sources (Flux's).
pub const FLUX_FINALIZER: &str = "finalizers.fluxcd.io";
/// Finalizer that Flux's controller puts on an ArtifactGenerator.
pub const GENERATOR_FINALIZER: &str = "source.extensions.fluxcd.io/finalizer";
/// Label of an ExternalArtifact: uid of the ArtifactGenerator that makes it.
pub const GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";
/// Annotation of an ArtifactGenerator: `disabled` keeps it from being reconciled.
pub const GENERATOR_SWITCH: &str = "source.extensions.fluxcd.io/reconcile";
/// The finalizer of Surfaces and Tenants.
pub const TENURE_FINALIZER: &str = "tenure.dev/finalizer";

/// Label that names the Kustomization that owns an object.
pub const OWNER_NAME: &str = "kustomize.toolkit.fluxcd.io/name";
/// Label that names the namespace of the Kustomization that owns an object.
pub const OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// Annotation on an applied object: `Merge`, `IfNotPresent` or `Ignore`.
pub const SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";
/// Annotation on an applied object: `enabled` recreates it when a change is refused as immutable.
pub const FORCE: &str = "kustomize.toolkit.fluxcd.io/force";
/// Annotation on an applied object: `disabled` keeps it from being pruned.
pub const PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
/// Annotation on an applied object: `disabled` excludes it from reconciliation.
pub const RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
/// Annotation on an event: the revision that it is about.
pub const EVENT_REVISION: &str = "kustomize.toolkit.fluxcd.io/revision";
/// Annotation on an event: the origin of the applied artifact, as the artifact states it.
pub const EVENT_ORIGIN_REVISION: &str = "kustomize.toolkit.fluxcd.io/originRevision";
/// Annotation on a source's event: the revision that it is about.
pub const SOURCE_EVENT_REVISION: &str = "source.toolkit.fluxcd.io/revision";
/// The prefix of annotations on an object that are sent with its events.
pub const EVENT_METADATA_PREFIX: &str = "event.toolkit.fluxcd.io/";
/// Annotation that requests a reconciliation now. Its value comes back as `status.lastHandledReconcileAt`.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
/// Annotation on an object that a Surface generates: the last request that the Surface has passed on to it. It passes on each
/// request once.
pub const PASSED_REQUEST: &str = "tenure.dev/passed-request";

/// Label on a ConfigMap or Secret: with `Enabled`, a change of it triggers the reconciliation of objects
/// that name it.
pub const WATCH_CONFIG: &str = "reconcile.fluxcd.io/watch";
/// Annotation or label on a built object: `disabled` turns the substitution of variables in it off.
pub const SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";
/// Annotation on an object: `disabled` leaves its encrypted SOPS data as they are.
pub const DECRYPT: &str = "kustomize.toolkit.fluxcd.io/decrypt";

/// Annotation on a Kustomization: the digest of objects that may be deleted in spite of a guard, as its condition names it. Several are
/// separated by commas.
pub const ALLOW_DELETION: &str = "tenure.dev/allow-deletion";
/// Annotation on a Kustomization: `All`, `Partial` or `DetectOnly`, the part of Git's content that is
/// applied.
pub const APPLY_MODE: &str = "tenure.dev/apply";
/// Annotation of a Kustomization whose cluster changed: says whether this is the same cluster at another address, or another
/// one.
pub const CLUSTER: &str = "tenure.dev/cluster";

/// Label on a namespace: the Tenant that it belongs to. It counts only if the Tenant's status records the namespace's
/// uid.
pub const TENANT_LABEL: &str = "capsule.clastix.io/tenant";
/// Label on an object of a Tenant in its namespaces, as Capsule writes it: the Tenant.
pub const CAPSULE_TENANT_LABEL: &str = "projectcapsule.dev/tenant";
/// Label on an object of a Tenant in its namespaces, as Capsule writes it: [`CAPSULE_CONTROLLER`].
pub const CAPSULE_MANAGED_BY: &str = "projectcapsule.dev/managed-by";
/// Value of [`CAPSULE_MANAGED_BY`].
pub const CAPSULE_CONTROLLER: &str = "controller";
/// Label on a namespace of a tenant that is cordoned: `true`.
pub const CORDONED_LABEL: &str = "projectcapsule.dev/cordoned";
/// Label of namespaces whose Tenant bounds their objects, with the value `true`: a dead webhook blocks such objects there.
pub const BOUNDED_LABEL: &str = "tenure.dev/bounded";
/// Label of namespaces whose Tenant has quotas for all of its namespaces together, with the value `true`: a dead webhook blocks every
/// object there that may be counted.
pub const COUNTED_LABEL: &str = "tenure.dev/counted";
/// Label of namespaces in which policies leave some checks of Pods to webhooks, with the value `true`: a dead webhook blocks these Pods there.
pub const LEFT_PODS_LABEL: &str = "left.tenure.dev/pods";
/// Label of namespaces in which policies leave some checks of PersistentVolumeClaims to webhooks.
pub const LEFT_CLAIMS_LABEL: &str = "left.tenure.dev/persistentvolumeclaims";
/// Label of namespaces in which policies leave some checks of Ingresses to webhooks.
pub const LEFT_INGRESSES_LABEL: &str = "left.tenure.dev/ingresses";
/// The labels of namespaces by which webhooks select them, and which only the controllers write.
pub const WEBHOOK_LABELS: [&str; 5] = [
    BOUNDED_LABEL,
    COUNTED_LABEL,
    LEFT_PODS_LABEL,
    LEFT_CLAIMS_LABEL,
    LEFT_INGRESSES_LABEL,
];
/// Annotation on a namespace: labels of the nodes that its Pods run on, for the admission plugin PodNodeSelector.
pub const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// Annotation on a namespace: proves that the controllers created it, until its Tenant's status records it.
pub const CREATION_PROOF: &str = "tenure.dev/creation-proof";
/// The prefixes of RoleBindings that give owners of a Tenant, and its GitOps account, their rights in a namespace.
pub const GRANTING_BINDINGS: [&str; 2] = ["capsule:managed:", "tenure:gitops"];
/// Label on a namespace: the Pod Security level that the API server enforces there.
pub const POD_SECURITY_ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Label on a namespace: the version of that level.
pub const POD_SECURITY_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
/// Annotation on a Tenant: the least strict Pod Security level that its namespaces may have.
pub const POD_SECURITY: &str = "tenure.dev/pod-security";
/// Annotation on a Tenant: its home namespace, if that has another name than the tenant.
pub const HOME_NAMESPACE: &str = "tenure.dev/home-namespace";
/// Annotation on a Tenant: finalizers of other controllers that stay on objects of Tenure in the Tenant's namespaces, separated by commas. A `*` at
/// the end matches any rest.
pub const KEPT_FINALIZERS: &str = "tenure.dev/kept-finalizers";
/// Annotation on a Surface, or a Kustomization: the effect of hand edits of fields that Git manages. [`HAND_EDITS_REFUSE`],
/// [`HAND_EDITS_REVERT`]. Without it, the user is warned, and the edit is reverted.
pub const HAND_EDITS: &str = "tenure.dev/hand-edits";
/// Value of [`HAND_EDITS`]: the edit is denied.
pub const HAND_EDITS_REFUSE: &str = "refuse";
/// Value of [`HAND_EDITS`]: the edit is reverted without a warning.
pub const HAND_EDITS_REVERT: &str = "revert";
/// Annotation on a Surface, or a Kustomization: other users that may write fields that Git manages, as user names
/// separated by commas.
pub const OTHER_WRITERS: &str = "tenure.dev/other-writers";
/// The prefix of the annotations on namespaces that policies read, and that the controllers write.
pub const FACTS_PREFIX: &str = "facts.tenure.dev/";
/// Annotation on a namespace without a tenant, which the controllers write: the ServiceAccounts that objects there name, separated by commas.
/// Lanes request tokens of these, and of no others there.
pub const MINTABLE_FACT: &str = "facts.tenure.dev/mintable";
/// Annotation on such a namespace, which an administrator writes: other ServiceAccounts whose tokens lanes may request.
pub const MINTABLE_ACCOUNTS: &str = "tenure.dev/mintable-accounts";
/// Annotation on a Tenant: the effect if another user takes its GitOps account. Without [`GITOPS_ACCOUNT_EXCLUSIVE`]
/// the user is warned.
pub const GITOPS_ACCOUNT: &str = "tenure.dev/gitops-account";
/// Value of [`GITOPS_ACCOUNT`]: the request is denied.
pub const GITOPS_ACCOUNT_EXCLUSIVE: &str = "exclusive";
/// Annotation on a Tenant: the ClusterRole that its generated GitOps account has in each of its namespaces, in place of Tenure's own. Only
/// administrators write Tenants, and RBAC says which roles may be bound at all.
pub const GITOPS_CLUSTER_ROLE: &str = "tenure.dev/gitops-cluster-role";
/// Annotation on a Tenant: with [`AUTHOR_ROLE_NONE`], its owners are not bound to [`AUTHOR_CLUSTER_ROLE`] by default.
pub const AUTHOR_ROLE: &str = "tenure.dev/author-role";
/// Value of [`AUTHOR_ROLE`]: owners write no object that Tenure reconciles.
pub const AUTHOR_ROLE_NONE: &str = "none";
/// The prefix of the names of Tenants that `tenure attest` makes.
pub const ATTEST_PREFIX: &str = "attest-";
/// Label on a Tenant that `tenure attest` made: `true`.
pub const ATTEST_LABEL: &str = "tenure.dev/attest";
/// Annotation on such a Tenant: its end, as RFC 3339.
pub const ATTEST_EXPIRES: &str = "tenure.dev/attest-expires";
/// Label on an object that a Surface generates: the Surface's name (same namespace).
pub const SURFACE_LABEL: &str = "tenure.dev/surface";
/// Label on an object that a Surface generates: the source's name within the Surface.
pub const SURFACE_SOURCE_LABEL: &str = "tenure.dev/source";
/// Label on objects that Tenure writes for a Tenant.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Labels by which Tenure recognises the objects that it manages.
pub const MANAGING_LABELS: [&str; 8] = [
    MANAGED_BY,
    TENANT_LABEL,
    LANE_LABEL,
    SURFACE_LABEL,
    SURFACE_SOURCE_LABEL,
    CREDENTIAL_LABEL,
    GENERATOR_LABEL,
    crate::access::REQUEST_LABEL,
];
/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_TENURE: &str = "tenure";

/// The ServiceAccount that writes credentials, in the platform namespace, and the ClusterRole to which an administrator binds it in chosen
/// namespaces. It has no right anywhere else.
pub const SECRET_WRITER: &str = "tenure-secret-writer";
/// Label on the credentials that this account writes, and on the rights to read one. Its value is the sort of credential.
pub const CREDENTIAL_LABEL: &str = "tenure.dev/credential";
/// Value of [`CREDENTIAL_LABEL`]: the key of a Surface's source.
pub const CREDENTIAL_DEPLOY_KEY: &str = "deploy-key";
/// Value of [`CREDENTIAL_LABEL`]: a credential for a FluxAccessRequest.
pub const CREDENTIAL_ACCESS: &str = "access";
/// Annotation on the first staging Secret of an AccessProvider: the number of staging Secrets in
/// use.
pub const STAGING_SECRETS_ANNOTATION: &str = "tenure.dev/staging-secrets";

/// The prefix of the ServiceAccounts of lanes, in the platform namespace. No repository may act as an account with such a name.
pub const LANE_PREFIX: &str = "tenure-lane-";
/// Label on the ServiceAccounts and RoleBindings of lanes. Its value is the sort of lane.
pub const LANE_LABEL: &str = "tenure.dev/lane";
/// The RoleBinding that gives a lane its rights in a namespace.
pub const LANE_BINDING: &str = "tenure:lane";
/// Prefix of the RoleBindings of a tenant's owners, as Capsule names them.
pub const OWNER_BINDING_PREFIX: &str = "capsule:managed:";
/// RoleBinding of a tenant's GitOps ServiceAccount. With a colon and a suffix: its binding to another role, or in the home namespace.
pub const GITOPS_BINDING: &str = "tenure:gitops";
/// RoleBinding by which the controller sees, in a home namespace, the Pods and Roles that could use the GitOps
/// account.
pub const WITNESS_BINDING: &str = "tenure:witness";
/// The finalizer of that RoleBinding: a namespace in deletion loses it last. Otherwise no object in the namespace could be finished.
pub const LANE_FINALIZER: &str = "tenure.dev/lane";
/// The ClusterRole of a lane: its bookkeeping, and tokens of the ServiceAccounts of the namespace.
pub const LANE_CLUSTER_ROLE: &str = "tenure-lane";
/// The ClusterRole of a lane in Kubernetes' own namespaces: only its bookkeeping.
pub const LANE_BOOKS_CLUSTER_ROLE: &str = "tenure-lane-books";

/// The narrow ClusterRole that a tenant's GitOps ServiceAccount is bound to in the tenant's namespaces other than its home.
pub const TENANT_GITOPS_CLUSTER_ROLE: &str = "tenure-tenant-gitops";
/// The ClusterRole of the GitOps ServiceAccount in the home namespace, where deploy keys are:
/// Secrets by name only.
pub const TENANT_GITOPS_HOME_CLUSTER_ROLE: &str = "tenure-tenant-gitops-home";
/// The ClusterRole of a GitOps ServiceAccount that writes only Cozystack's applications, if a Tenant names it.
pub const TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE: &str = "tenure-tenant-gitops-cozystack";
/// The ClusterRole that writes HelmReleases. A Tenant can bind its GitOps ServiceAccount or its owners to this role; by default it is bound to no subject.
pub const HELM_AUTHOR_CLUSTER_ROLE: &str = "tenure-helm-author";
/// The suffix of a tenant's GitOps ServiceAccount, after the tenant's name.
pub const TENANT_GITOPS_SUFFIX: &str = "-gitops";
/// The ClusterRole that shows the reconciled objects to users with the right to view a namespace.
pub const VIEW_CLUSTER_ROLE: &str = "tenure-view";
/// The ClusterRole of users that write the objects that Tenure reconciles: Surfaces, sources, Kustomizations, Receivers, Alerts, Providers.
pub const AUTHOR_CLUSTER_ROLE: &str = "tenure-author";
/// The ClusterRole of users that only look: reconciled objects, and the objects that these apply, without Secrets.
pub const VIEWER_CLUSTER_ROLE: &str = "tenure-viewer";
/// Capsule's ClusterRole that lets an owner delete the tenant's namespaces.
pub const NAMESPACE_DELETER_CLUSTER_ROLE: &str = "capsule-namespace-deleter";
/// The ClusterRole that lets an owner change labels and annotations of the tenant's namespaces: bound only where admission checks them.
pub const NAMESPACE_EDITOR_CLUSTER_ROLE: &str = "tenure-namespace-editor";
/// The ClusterRole of owners in their tenant's home namespace, in place of `admin`: it contains no right that gives access to the GitOps
/// account.
pub const HOME_OWNER_CLUSTER_ROLE: &str = "tenure-home-owner";
/// The ClusterRole by which the controllers see, in a tenant's home namespace, other users that use or could use the GitOps
/// account.
pub const HOME_WITNESS_CLUSTER_ROLE: &str = "tenure-home-witness";
/// Kubernetes' ClusterRole that Capsule gives owners, beside the one that lets them delete namespaces.
pub const OWNER_CLUSTER_ROLE: &str = "admin";
/// The ClusterRole of an account that its Tenant keeps exclusive: by this role policies know which accounts
/// must show a token.
pub const SHOW_TOKEN_CLUSTER_ROLE: &str = "tenure-show-token";
/// The ClusterRole that lets owners apply new namespaces: bound only where admission checks writes, since RBAC can't limit the right to new ones.
pub const NAMESPACE_APPLIER_CLUSTER_ROLE: &str = "tenure-namespace-applier";
/// Capsule's ClusterRole that lets owners create namespaces: bound only where admission checks them.
pub const NAMESPACE_PROVISIONER_CLUSTER_ROLE: &str = "capsule-namespace-provisioner";
