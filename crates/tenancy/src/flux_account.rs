//! Who objects of Flux's kinds act as in a tenant's namespaces.
//!
//! Owns the one answer, which admission forces, policies read on namespaces, and a Surface's children name. It follows from the namespace,
//! the kind, and what an administrator set. Refuses to look at the object: by a label of shards its writer would choose which of Flux's
//! controllers takes it, besides Tenure, which takes every one of a kind that it reconciles; so no two objects of one kind and one
//! namespace act as two accounts.

use crate::settings::Settings;

/// A kind whose `spec.serviceAccountName` says who it acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActingKind {
    /// Reconciled here, unless an administrator leaves them to Flux's kustomize-controller.
    Kustomization,
    /// Reconciled by Flux's helm-controller alone.
    HelmRelease,
}

impl ActingKind {
    /// Whether Flux's own controllers reconcile it, and speak in its account's name.
    fn is_left_to_flux(self, settings: &Settings) -> bool {
        match self {
            Self::Kustomization => settings.leaves_kustomizations,
            Self::HelmRelease => true,
        }
    }
}

/// The account of a kind's objects in a namespace of a tenant. In the home namespace it is the account of the tenant's surfaces, which is kept
/// from everybody who has no token of it; where Flux's own controllers reconcile the kind, and an administrator named an account for the
/// home namespace, it is that one. Elsewhere it is the one that he named for the namespace, else `default`.
pub(crate) fn name_account<'a>(
    settings: &'a Settings,
    kind: ActingKind,
    namespace: &str,
    (home, gitops): (&str, Option<&'a str>),
) -> Option<&'a str> {
    if namespace != home {
        return Some(settings.default_account(namespace));
    }
    let named = settings.default_service_accounts.get(home).map(String::as_str);
    named.filter(|_| kind.is_left_to_flux(settings)).or(gitops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_home_who_reconciles_says_which_account_it_is() {
        let mut settings = Settings::default();
        let home = ("home", Some("gitops"));
        let ask = |settings: &Settings, kind, namespace: &str| {
            name_account(settings, kind, namespace, home).map(str::to_owned)
        };
        let is = |name: &str| Some(name.to_owned());
        for kind in [ActingKind::Kustomization, ActingKind::HelmRelease] {
            assert_eq!(ask(&settings, kind, "home"), is("gitops"));
            assert_eq!(ask(&settings, kind, "dev"), is("default"));
        }
        for (namespace, account) in [("home", "flux"), ("dev", "deployer")] {
            let accounts = &mut settings.default_service_accounts;
            accounts.insert(namespace.to_owned(), account.to_owned());
        }
        assert_eq!(ask(&settings, ActingKind::Kustomization, "home"), is("gitops"));
        assert_eq!(ask(&settings, ActingKind::HelmRelease, "home"), is("flux"));
        assert_eq!(ask(&settings, ActingKind::Kustomization, "dev"), is("deployer"));
        settings.leaves_kustomizations = true;
        assert_eq!(ask(&settings, ActingKind::Kustomization, "home"), is("flux"));
        assert_eq!(ask(&settings, ActingKind::Kustomization, "dev"), is("deployer"));
        // Without an account of its own, nothing acts there unless an administrator named one.
        let nobody = |kind| name_account(&Settings::default(), kind, "home", ("home", None)).is_none();
        assert!(nobody(ActingKind::Kustomization) && nobody(ActingKind::HelmRelease));
    }
}
