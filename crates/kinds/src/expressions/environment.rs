//! The variables of admission's expressions and their types, as Kubernetes declares them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kubernetes_cel::{Environment, Type};

/// The name of the type that `variables` has.
pub(super) const COMPOSED: &str = "kubernetes.variables";

/// The variables that an expression may use beside `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// `params`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
}

impl Scope {
    /// Creates a scope with the authorizer, for all expressions except those of messages.
    pub fn with_authorizer(params: bool) -> Self {
        Self {
            params,
            authorizer: true,
        }
    }

    /// Creates a scope without the authorizer, for expressions of messages.
    pub fn of_messages(params: bool) -> Self {
        Self {
            params,
            authorizer: false,
        }
    }
}

static EVERYWHERE: LazyLock<Environment> = LazyLock::new(|| {
    declare_fixed_types(Environment::new())
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
});

/// Declares the variables whose types never change.
fn declare_fixed_types(environment: Environment) -> Environment {
    declare_objects(environment)
        .with_variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .with_variable("request", Type::object("kubernetes.AdmissionRequest"))
}

/// Returns the environment for expressions of this scope.
pub(super) fn make_environment(scope: Scope) -> Environment {
    let mut environment = EVERYWHERE.clone();
    if scope.params {
        environment = environment.with_variable("params", Type::Dyn);
    }
    if scope.authorizer {
        let resource = Type::object("kubernetes.authorization.ResourceCheck");
        environment = declare_authorizer(environment).with_variable("authorizer.requestResource", resource);
    }
    environment
}

fn declare_authorizer(environment: Environment) -> Environment {
    environment.with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
}

/// Returns the environment that checks expressions against the types of `declare`. As in Kubernetes, `authorizer.requestResource` is
/// unknown in this environment.
pub fn make_checking_environment(
    has_params: bool,
    declare: impl FnOnce(Environment) -> Environment,
    object: Type,
    params: Type,
) -> Environment {
    let environment = declare_authorizer(declare(declare_fixed_types(Environment::new())))
        .with_variable("object", object.clone())
        .with_variable("oldObject", object);
    if has_params {
        environment.with_variable("params", params)
    } else {
        environment
    }
}

fn declare_objects(environment: Environment) -> Environment {
    let texts = || Type::list(Type::String);
    let labels = || Type::map(Type::String, Type::String);
    let declared: [(&str, &[(&str, Type)]); 8] = [
        (
            "kubernetes.GroupVersionKind",
            &[
                ("group", Type::String),
                ("version", Type::String),
                ("kind", Type::String),
            ],
        ),
        (
            "kubernetes.GroupVersionResource",
            &[
                ("group", Type::String),
                ("version", Type::String),
                ("resource", Type::String),
            ],
        ),
        (
            "kubernetes.UserInfo",
            &[
                ("username", Type::String),
                ("uid", Type::String),
                ("groups", texts()),
                ("extra", Type::map(Type::String, texts())),
            ],
        ),
        (
            "kubernetes.AdmissionRequest",
            &[
                ("kind", Type::object("kubernetes.GroupVersionKind")),
                ("resource", Type::object("kubernetes.GroupVersionResource")),
                ("subResource", Type::String),
                ("requestKind", Type::object("kubernetes.GroupVersionKind")),
                ("requestResource", Type::object("kubernetes.GroupVersionResource")),
                ("requestSubResource", Type::String),
                ("name", Type::String),
                ("namespace", Type::String),
                ("operation", Type::String),
                ("userInfo", Type::object("kubernetes.UserInfo")),
                ("dryRun", Type::Bool),
                ("options", Type::Dyn),
            ],
        ),
        ("kubernetes.NamespaceSpec", &[("finalizers", texts())]),
        (
            "kubernetes.NamespaceCondition",
            &[
                ("status", Type::String),
                ("type", Type::String),
                ("lastTransitionTime", Type::Timestamp),
                ("message", Type::String),
                ("reason", Type::String),
            ],
        ),
        (
            "kubernetes.NamespaceStatus",
            &[
                ("conditions", Type::list(Type::object("kubernetes.NamespaceCondition"))),
                ("phase", Type::String),
            ],
        ),
        (
            "kubernetes.NamespaceMetadata",
            &[
                ("name", Type::String),
                ("generateName", Type::String),
                ("namespace", Type::String),
                ("labels", labels()),
                ("annotations", labels()),
                ("UID", Type::String),
                ("creationTimestamp", Type::Timestamp),
                ("deletionGracePeriodSeconds", Type::Int),
                ("deletionTimestamp", Type::Timestamp),
                ("generation", Type::Int),
                ("resourceVersion", Type::String),
                ("finalizers", texts()),
            ],
        ),
    ];
    let namespace = BTreeMap::from([
        ("metadata".to_owned(), Type::object("kubernetes.NamespaceMetadata")),
        ("spec".to_owned(), Type::object("kubernetes.NamespaceSpec")),
        ("status".to_owned(), Type::object("kubernetes.NamespaceStatus")),
    ]);
    declared.into_iter().fold(
        environment.with_object("kubernetes.Namespace", namespace),
        |environment, (name, fields)| {
            let fields = fields.iter().map(|(name, of)| ((*name).to_owned(), of.clone()));
            environment.with_object(name, fields.collect())
        },
    )
}
