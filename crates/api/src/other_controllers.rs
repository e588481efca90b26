//! Kinds of other controllers that repositories often contain, with the page that says how to have them beside Tenure.

/// Returns the action for a user whose cluster does not serve a kind of this `group/version`, if the documentation has a page about the kind's controller.
#[must_use]
pub fn advise_on_missing_kind(api_version: &str) -> Option<&'static str> {
    let (group, _) = crate::inventory::split_api_version(api_version);
    (group == "helm.toolkit.fluxcd.io")
        .then_some("install Flux's helm-controller beside Tenure: docs/howto/helm-controller.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_helm_release_leads_to_its_page() {
        let advice = advise_on_missing_kind("helm.toolkit.fluxcd.io/v2").expect("advice");
        let page = include_str!("../../../docs/howto/helm-controller.md");
        assert!(
            advice.ends_with("docs/howto/helm-controller.md") && page.starts_with("# "),
            "{advice}"
        );
        assert_eq!(advise_on_missing_kind("apps/v1"), None);
    }
}
