//! Allow list of the lanes' accounts: what a lane may write, and where, whatever RBAC grants it.
//!
//! A lane is bound to a narrow ClusterRole in each of its namespaces. An administrator can bind its account to more by mistake, for example with a
//! RoleBinding to the group of all ServiceAccounts. The policy here covers every write of a lane as itself: of every kind, with every verb. A request that a
//! lane makes as a tenant's ServiceAccount has that account's user name, and never meets it.
//!
//! The namespaces of a lane follow from their names and the tenant's label, like the bindings that the controller may write
//! ([`list_place_variables`](super::own_account)).

use tenure_api::metadata::{
    FLUX_FINALIZER, GENERATOR_FINALIZER, GENERATOR_LABEL, REQUESTED_AT, SECRET_WRITER, SURFACE_LABEL, TENURE_FINALIZER,
};
use tenure_api::roles::LANE_KINDS;

use super::own_account::{by_lane, list_place_variables, refuse};
use super::{About, Action, Policy, USER, Validation, Where, quote, variable};
use crate::admission::minting::OWN_ACCOUNTS;
use crate::settings::Settings;

/// Name of the policy, without the common prefix.
pub(super) const NAME: &str = "lane-rights";
/// Questions of a lane about its own rights. API servers ask no policy about them; one that does gets the same answer.
const REVIEWS: [&str; 3] = [
    "authentication.k8s.io/selfsubjectreviews",
    "authorization.k8s.io/selfsubjectaccessreviews",
    "authorization.k8s.io/selfsubjectrulesreviews",
];

/// Kinds that lanes generate: the resource, the label of its objects, and kind and group of the owner.
struct Generated {
    resource: &'static str,
    label: &'static str,
    owner: &'static str,
    group: &'static str,
    /// The field of the owner that the label repeats.
    named_by: &'static str,
}

const GENERATED: [Generated; 3] = [
    Generated {
        resource: "source.toolkit.fluxcd.io/gitrepositories",
        label: SURFACE_LABEL,
        owner: "Surface",
        group: "tenure.dev/",
        named_by: "name",
    },
    Generated {
        resource: "kustomize.toolkit.fluxcd.io/kustomizations",
        label: SURFACE_LABEL,
        owner: "Surface",
        group: "tenure.dev/",
        named_by: "name",
    },
    Generated {
        resource: "source.toolkit.fluxcd.io/externalartifacts",
        label: GENERATOR_LABEL,
        owner: "ArtifactGenerator",
        group: "source.extensions.fluxcd.io/",
        named_by: "uid",
    },
];

impl Generated {
    /// True for an object of this kind that a lane generated.
    fn is_marked(&self, object: &str) -> String {
        format!(
            "variables.resource == {} && {object}.?metadata.?labels[?{label}].orValue('') != '' && \
             {object}.?metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == {} && owner.apiVersion.startsWith({}) && \
             owner.{} == {object}.metadata.labels[{label}])",
            quote(self.resource),
            quote(self.owner),
            quote(self.group),
            self.named_by,
            label = quote(self.label),
        )
    }
}

fn is_marked(object: &str) -> String {
    let kinds = GENERATED.iter().map(|kind| format!("({})", kind.is_marked(object)));
    kinds.collect::<Vec<_>>().join(" || ")
}

pub(super) fn bounds(settings: &Settings) -> Policy {
    let platform = settings.platform_namespace.as_str();
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: Where::Anywhere,
        about: vec![About {
            groups: vec!["*"],
            resources: vec!["*/*"],
            operations: vec!["*"],
        }],
        conditions: vec![by_lane(platform)],
        variables: list_variables(settings),
        validations: list_validations(),
    }
}

fn list_validations() -> Vec<Validation> {
    let is_creation = "request.operation == 'CREATE'";
    vec![
        refuse(
            format!(
                "variables.isReconciled || variables.isStatus && request.operation == 'UPDATE' || \
                 variables.resource == '/events' && request.operation in ['CREATE', 'UPDATE'] || \
                 variables.resource == '/serviceaccounts/token' && {is_creation} || variables.isReview && {is_creation}"
            ),
            "a lane writes the objects that it reconciles, their status and events, and requests tokens",
        ),
        refuse(
            "variables.isReview || variables.account in variables.lanes".to_owned(),
            "the namespace belongs to another lane",
        ),
        // The policy of the account that writes credentials refuses its token, and says so.
        refuse(
            format!(
                "variables.resource != '/serviceaccounts/token' || !variables.isPlatform || !variables.name.startsWith('{OWN_ACCOUNTS}') || \
                 variables.name == '{SECRET_WRITER}'"
            ),
            "no lane gets a token of an account of Tenure",
        ),
        refuse(
            format!(
                "!variables.isReconciled || request.operation == 'UPDATE' || {is_creation} && variables.isMarked || \
                 request.operation == 'DELETE' && variables.wasMarked"
            ),
            "a lane creates and deletes only what a Surface or an ArtifactGenerator generates",
        ),
        refuse(
            "!variables.isReconciled || request.operation != 'UPDATE' || variables.keepsSpec && variables.keepsMetadata || \
             (variables.wasMarked || variables.wasFluxs) && variables.isMarked"
                .to_owned(),
            "of an object that it did not generate, a lane changes its own finalizer, the annotation of a requested reconciliation, and the status",
        ),
        refuse(
            format!(
                "!variables.isReconciled || request.operation == 'DELETE' || variables.new.?metadata.?finalizers.orValue([])\
                 .all(finalizer, finalizer in variables.old.?metadata.?finalizers.orValue([]) || finalizer in [{}])",
                list_finalizers()
            ),
            "the only finalizers that a lane adds are its own",
        ),
        refuse(
            "!variables.isReconciled || request.operation == 'DELETE' || variables.new.?metadata.?ownerReferences.orValue([])\
             .all(owner, owner in variables.old.?metadata.?ownerReferences.orValue([]) || owner.kind in ['Surface', 'ArtifactGenerator'])"
                .to_owned(),
            "the owner of an object that a lane generates is a Surface or an ArtifactGenerator",
        ),
    ]
}

fn list_finalizers() -> String {
    [FLUX_FINALIZER, GENERATOR_FINALIZER, TENURE_FINALIZER]
        .map(quote)
        .join(", ")
}

fn list_variables(settings: &Settings) -> Vec<(String, String)> {
    let list = |suffix: &str| {
        let all = LANE_KINDS.iter().flat_map(|(group, resources)| {
            resources
                .iter()
                .map(move |resource| quote(&format!("{group}/{resource}{suffix}")))
        });
        all.collect::<Vec<_>>().join(", ")
    };
    let kept = |path: &str, none: &str| {
        format!("variables.new.{path}.orValue({none}) == variables.old.{path}.orValue({none})")
    };
    let finalizers = |object: &str| {
        format!(
            "variables.{object}.?metadata.?finalizers.orValue([]).filter(finalizer, !(finalizer in [{}]))",
            list_finalizers()
        )
    };
    let annotations = |object: &str| format!("variables.{object}.?metadata.?annotations.orValue({{}})");
    let keeps = |from: &str, to: &str| {
        let (from, to) = (annotations(from), annotations(to));
        format!(
            "{from}.all(key, key == {} || {to}[?key].hasValue() && {to}[key] == {from}[key])",
            quote(REQUESTED_AT)
        )
    };
    let mut variables = vec![
        variable(
            "kind",
            "request.resource.resource + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)",
        ),
        variable("resource", "request.resource.group + '/' + variables.kind"),
        variable("new", "object == null ? dyn({}) : dyn(object)"),
        variable("old", "oldObject == null ? dyn({}) : dyn(oldObject)"),
        variable(
            "name",
            "request.?name.orValue('') != '' ? request.name : variables.new.?metadata.?name.orValue(variables.old.?metadata.?name.orValue(''))",
        ),
        variable("account", format!("{USER}.split(':')[3]")),
        variable("isReconciled", format!("variables.resource in [{}]", list(""))),
        variable("isStatus", format!("variables.resource in [{}]", list("/status"))),
        variable(
            "isReview",
            format!("variables.resource in [{}]", REVIEWS.map(quote).join(", ")),
        ),
    ];
    variables.extend(list_place_variables(settings));
    variables.extend([
        variable("isMarked", is_marked("variables.new")),
        variable("wasMarked", is_marked("variables.old")),
        // An ArtifactGenerator takes over what Flux's controller generated from it: that has the label.
        variable(
            "wasFluxs",
            format!(
                "variables.resource == 'source.toolkit.fluxcd.io/externalartifacts' && \
                 variables.old.?metadata.?labels[?{}].orValue('') != ''",
                quote(GENERATOR_LABEL)
            ),
        ),
        variable("keepsSpec", kept("?spec", "dyn({})")),
        variable(
            "keepsMetadata",
            [
                kept("?metadata.?labels", "{}"),
                kept("?metadata.?ownerReferences", "[]"),
                format!("{} == {}", finalizers("new"), finalizers("old")),
                keeps("old", "new"),
                keeps("new", "old"),
            ]
            .join(" && "),
        ),
    ]);
    variables
}
