//! Decides which token of this cluster may be sent to another cluster, to prove the sender's identity there.
//!
//! Another cluster may accept the tokens of this one: they name a ServiceAccount and their audiences. A receiver of a token can use it in
//! every place that accepts one of these audiences. So a token goes out only for a ServiceAccount of the own namespace, and never with an
//! audience that this cluster's own API server accepts or has as its issuer. A ConfigMap names the address and the audience of the other
//! cluster. While the audiences accepted here are unknown, no token goes out.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::denial::Denial;
use crate::identity::{self, ServiceAccount};
use crate::placement::Placement;

/// The greatest number of audiences of one token.
const MOST_AUDIENCES: usize = 16;
/// The longest audience, in bytes.
const LONGEST_AUDIENCE: usize = 512;

/// The ServiceAccount and audiences of a token that will be sent to another cluster. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenOrder {
    account: ServiceAccount,
    audiences: Vec<String>,
}

impl TokenOrder {
    /// Returns the account of the token.
    #[must_use]
    pub fn account(&self) -> &ServiceAccount {
        &self.account
    }

    /// Returns the audiences. The list is never empty.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }
}

impl fmt::Display for TokenOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} for {}", self.account, self.audiences.join(", "))
    }
}

impl Serialize for TokenOrder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The claims of a token of this cluster about its audiences and its issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenClaims {
    /// Audiences.
    pub audiences: Vec<String>,
    /// Issuer.
    pub issuer: Option<String>,
}

/// The answer of this cluster's own API server to a token that will be sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnAnswer {
    /// The token proves no identity here.
    Refused,
    /// The token proves an identity here.
    Accepted,
}

/// Decides whose token a Kustomization that acts as `acting` sends to another cluster: that of the ServiceAccount in its namespace that the
/// ConfigMap names, else of `acting`. The controller's and the lanes' tokens are never sent.
///
/// # Errors
/// When no account may act in the namespace, the name is not a ServiceAccount's or is one of Tenure's own, or an audience is invalid.
pub fn order_token(
    placement: &Placement,
    namespace: &str,
    acting: &ServiceAccount,
    named: Option<&str>,
    mut audiences: Vec<String>,
) -> Result<TokenOrder, Denial> {
    let account = match named {
        Some(name) => identity::decide_for_token(placement, namespace, name)?,
        None => acting.clone(),
    };
    audiences.sort();
    audiences.dedup();
    let is_text = |audience: &String| {
        !audience.is_empty()
            && audience.len() <= LONGEST_AUDIENCE
            && audience.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
    };
    if audiences.is_empty() || audiences.len() > MOST_AUDIENCES || !audiences.iter().all(is_text) {
        return Err(Denial::access(format!(
            "audiences: 1 to {MOST_AUDIENCES} are needed, each of 1 to {LONGEST_AUDIENCE} characters without spaces"
        )));
    }
    Ok(TokenOrder { account, audiences })
}

/// Checks whether a token may be requested, by the claims of this cluster's own tokens: `own` is one that its API server accepts.
///
/// # Errors
/// When one of the audiences is accepted here, or the accepted ones are unknown.
pub fn check_order(order: &TokenOrder, own: &TokenClaims) -> Result<(), Denial> {
    if own.audiences.is_empty() {
        return Err(Denial::access(
            "no token is sent to another cluster: the audiences of this cluster's own API server are unknown",
        ));
    }
    let is_own = |audience: &&String| {
        let mut known = own.audiences.iter().chain(&own.issuer);
        known.any(|known| is_alike(known, audience))
    };
    match order.audiences.iter().find(is_own) {
        Some(audience) => Err(refuse_audience(audience)),
        None => Ok(()),
    }
}

/// Checks whether a token may be sent away, by its claims and the answer of this cluster's API server.
///
/// # Errors
/// When the token is accepted here, or has an audience that was not requested.
pub fn check_token(order: &TokenOrder, own: &TokenClaims, made: &TokenClaims, answer: OwnAnswer) -> Result<(), Denial> {
    check_order(order, own)?;
    let is_other = |audience: &&String| !order.audiences.contains(audience);
    if let Some(other) = made.audiences.iter().find(is_other) {
        return Err(refuse_audience(other));
    }
    match answer {
        OwnAnswer::Refused => Ok(()),
        OwnAnswer::Accepted => Err(Denial::access(format!(
            "no token is sent to another cluster: this cluster's own API server accepts one for {}; name the audience that the other \
             cluster's API server expects",
            order.audiences.join(", ")
        ))),
    }
}

fn refuse_audience(audience: &str) -> Denial {
    Denial::access(format!(
        "no token is sent to another cluster: {audience} is an audience of this cluster's own API server, so the receiver of the token could use it here; name an audience of the other cluster's API server"
    ))
}

/// Checks whether two audiences are equal, apart from case and slashes at the end.
fn is_alike(one: &str, other: &str) -> bool {
    one.trim_end_matches('/')
        .eq_ignore_ascii_case(other.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> TokenClaims {
        TokenClaims {
            audiences: vec!["https://kubernetes.default.svc".to_owned(), "api".to_owned()],
            issuer: Some("https://issuer.example/own".to_owned()),
        }
    }

    fn order(named: Option<&str>, audiences: &[&str]) -> Result<TokenOrder, Denial> {
        let placement = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        let acting = identity::decide_for_kustomization(&placement, "team", Some("deployer"))?;
        let audiences = audiences.iter().map(|&audience| audience.to_owned()).collect();
        order_token(&placement, "team", &acting, named, audiences)
    }

    fn made(audiences: &[&str]) -> TokenClaims {
        TokenClaims {
            audiences: audiences.iter().map(|&audience| audience.to_owned()).collect(),
            issuer: own().issuer,
        }
    }

    #[test]
    fn token_is_only_for_account_of_own_namespace() {
        let there = ["https://there.example:443"];
        assert_eq!(
            order(None, &there).unwrap().account().to_string(),
            "system:serviceaccount:team:deployer"
        );
        assert_eq!(
            order(Some("other"), &there).unwrap().account().to_string(),
            "system:serviceaccount:team:other"
        );
        for name in ["", "../x", "kube-system:admin", "a/b", "x\n"] {
            order(Some(name), &there).unwrap_err();
        }
        let platform = Placement::Platform {
            default_service_account: "default".to_owned(),
        };
        let acting = identity::decide_for_kustomization(&platform, "tenure-system", None).unwrap();
        for name in ["tenure-controller", "tenure-lane-pool", "tenure-secret-writer"] {
            let ordered = order_token(&platform, "tenure-system", &acting, Some(name), vec!["x".to_owned()]);
            assert!(ordered.unwrap_err().message.contains("Tenure's own"));
        }
        let disputed = Placement::Disputed {
            message: "two tenants".to_owned(),
        };
        order_token(&disputed, "team", &acting, Some("default"), vec!["x".to_owned()]).unwrap_err();
    }

    #[test]
    fn no_audience_of_this_cluster_goes_out() {
        // The control.
        check_order(&order(None, &["https://there.example:443"]).unwrap(), &own()).unwrap();
        for audience in [
            "api",
            "API",
            "https://kubernetes.default.svc/",
            "https://issuer.example/own",
        ] {
            let refused =
                check_order(&order(None, &["https://there.example:443", audience]).unwrap(), &own()).unwrap_err();
            assert!(refused.message.contains("this cluster's own API server"), "{refused}");
        }
        let unknown = check_order(&order(None, &["there"]).unwrap(), &TokenClaims::default()).unwrap_err();
        assert!(unknown.message.contains("are unknown"), "{unknown}");
        let long = "x".repeat(LONGEST_AUDIENCE + 1);
        for audiences in [&[][..], &[""], &["a b"], &["a\nb"], &[long.as_str()]] {
            order(None, audiences).unwrap_err();
        }
        let many: Vec<String> = (0..=MOST_AUDIENCES).map(|number| number.to_string()).collect();
        order(None, &many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err();
    }

    /// A token that this cluster's own API server accepts doesn't leave.
    #[test]
    fn token_leaves_only_if_ordered_and_refused_locally() {
        let order = order(None, &["there"]).unwrap();
        check_token(&order, &own(), &made(&["there"]), OwnAnswer::Refused).unwrap();
        let accepted = check_token(&order, &own(), &made(&["there"]), OwnAnswer::Accepted).unwrap_err();
        assert!(accepted.message.contains("accepts one for there"), "{accepted}");
        check_token(&order, &own(), &made(&["there", "vault"]), OwnAnswer::Refused).unwrap_err();
        check_token(&order, &TokenClaims::default(), &made(&["there"]), OwnAnswer::Refused).unwrap_err();
    }
}
