//! The names of a story. Many stories share a server, so each has names of its own.

/// The facts of a world to which drawn objects refer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// The tenant whose side is compared, and its home namespace.
    pub(crate) alpha: String,
    /// The hostile tenant, and its home namespace.
    pub(crate) evil: String,
    /// The uid of Tenant alpha.
    pub(crate) alpha_uid: String,
    /// The uid of Tenant evil.
    pub(crate) evil_uid: String,
    /// The address of the Git server.
    pub(crate) git: String,
    /// The numbers of their projects at the host of private repositories.
    pub(crate) alpha_project: u64,
    pub(crate) evil_project: u64,
}

impl Scene {
    /// Returns the names of the story with this number.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            alpha: format!("alpha{number:03}"),
            evil: format!("evil{number:03}"),
            ..Self::default()
        }
    }

    /// Returns a name with the hostile tenant's prefix.
    pub(crate) fn of_evil(&self, end: &str) -> String {
        format!("{}-{end}", self.evil)
    }

    /// Returns a name with the other tenant's prefix.
    pub(crate) fn of_alpha(&self, end: &str) -> String {
        format!("{}-{end}", self.alpha)
    }

    /// Lists namespaces without an owner that an object outside the hostile tenant names: a binding, an owner, a protected name.
    pub(crate) fn list_mentioned(&self) -> Vec<String> {
        let of_alpha = [self.of_alpha("ci"), self.of_alpha("bots")];
        let of_platform = ["argocd", "monitoring", "flux-system", "cert-manager", "velero"];
        of_alpha.into_iter().chain(of_platform.map(str::to_owned)).collect()
    }

    /// Lists existing namespaces of others.
    pub(crate) fn list_foreign(&self) -> Vec<String> {
        let of_platform = ["kube-system", "tenure-system", "default"];
        let of_alpha = [self.alpha.clone(), self.of_alpha("dev")];
        of_alpha.into_iter().chain(of_platform.map(str::to_owned)).collect()
    }
}

/// Whether a name belongs to a story with another number.
pub(crate) fn is_of_another(name: &str, scenes: &[Scene]) -> bool {
    let is_of_a_story = ["alpha", "evil"].iter().any(|begins| {
        name.match_indices(begins).any(|(place, _)| {
            let rest = name.get(place + begins.len()..).unwrap_or_default();
            rest.len() >= 3 && rest.bytes().take(3).all(|byte| byte.is_ascii_digit())
        })
    });
    is_of_a_story
        && !scenes
            .iter()
            .any(|scene| name.contains(&scene.alpha) || name.contains(&scene.evil))
}
