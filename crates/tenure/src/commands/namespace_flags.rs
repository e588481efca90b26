//! Reads flags of the controllers that name namespaces.

use std::collections::BTreeMap;

use tenure_tenancy::settings::check_protected;

use crate::failure::Failure;

/// Reads the default accounts, by namespace.
pub(super) fn parse_default_accounts(texts: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let parse = |text: &String| match text.split_once('=') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(
            Failure::usage(format!("--default-service-account {text:?}: write NAMESPACE=NAME"))
                .hint("such as tenure-system=platform-gitops"),
        ),
    };
    texts.iter().map(parse).collect()
}

/// Reads names and prefixes of namespaces; an empty text means none.
pub(super) fn parse_namespaces(flag: &str, texts: &[String]) -> Result<Vec<String>, Failure> {
    let named = texts.iter().filter(|text| !text.is_empty());
    let parse = |text: &String| match check_protected(text) {
        Ok(()) => Ok(text.clone()),
        Err(why) => Err(Failure::usage(format!("{flag} {text:?}: {why}"))
            .hint("a namespace's name, or how some begin with a * behind, such as ops,platform-*")),
    };
    named.map(parse).collect()
}
