//! Decides with which account objects of Flux's kinds act in a tenant's namespaces.
//!
//! Admission forces this one answer, policies read it from namespaces, and the objects that a Surface generates name it. The answer
//! follows from the namespace, the kind, and the administrator's settings, and never from the object. By a shard label the object's writer
//! would choose which of Flux's controllers takes it, besides Tenure, which takes every object of a kind that it reconciles. So no two
//! objects of one kind and one namespace act with two accounts.

use crate::settings::Settings;

/// A kind whose `spec.serviceAccountName` names the account with which it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActingKind {
    /// Tenure reconciles it, unless an administrator leaves it to Flux's kustomize-controller.
    Kustomization,
    /// Only Flux's helm-controller reconciles it.
    HelmRelease,
}

impl ActingKind {
    /// Checks whether Flux's own controllers reconcile the kind, with the account of the object.
    fn is_left_to_flux(self, settings: &Settings) -> bool {
        match self {
            Self::Kustomization => settings.leaves_kustomizations,
            Self::HelmRelease => true,
        }
    }
}

/// Returns the account of a kind's objects in a namespace of a tenant.
///
/// In the home namespace, the account is that of the tenant's Surfaces, which only holders of its token can use. If Flux's own controllers
/// reconcile the kind, and an administrator named an account for the home namespace, it is this account. In another namespace, it is the
/// account that the administrator named for that namespace, else `default`.
#[must_use]
pub fn name_account<'a>(
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
    fn reconciler_decides_account_in_home_namespace() {
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
        // Without a GitOps account, nothing acts there unless an administrator named an account.
        let nobody = |kind| name_account(&Settings::default(), kind, "home", ("home", None)).is_none();
        assert!(nobody(ActingKind::Kustomization) && nobody(ActingKind::HelmRelease));
    }
}
