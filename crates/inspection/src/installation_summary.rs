//! The protection by an installation, counted in attacks of [`crate::attestation`], and the flags against the remaining attacks.

use crate::attestation::{ExpectedDefense, LEFT_BY_POLICIES, Names, list_attacks};

/// The choices of an installation that decide which attacks it refuses.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// The API server asks Tenure about writes.
    pub has_webhooks: bool,
    /// The controllers put policies in force.
    pub has_policies: bool,
    /// The policies that bound the controllers' own accounts are installed.
    pub has_bounds: bool,
    /// Each tenant's lane has a Pod of its own.
    pub has_lane_pods: bool,
    /// The addresses of the API server are named.
    pub names_api_servers: bool,
}

/// A line of the summary: attacks that the installation refuses, or a gap with the flag that closes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryLine {
    /// Whether the line is about refused attacks, and not about a gap.
    pub is_kept: bool,
    /// The line.
    pub text: String,
}

fn make_kept_line(text: String) -> SummaryLine {
    SummaryLine { is_kept: true, text }
}

fn make_open_line(text: String) -> SummaryLine {
    SummaryLine { is_kept: false, text }
}

/// Describes which attacks an installation refuses. The controllers have to run for that. `tenure attest` tries the attacks.
#[must_use]
pub fn summarize_protection(protection: Protection) -> Vec<SummaryLine> {
    let names = Names {
        suffix: "0".to_owned(),
        platform: tenure_api::metadata::PLATFORM_NAMESPACE.to_owned(),
        tenant_uid: String::new(),
        neighbour_uid: String::new(),
        expires: String::new(),
    };
    let attacks = list_attacks(&names);
    let all = attacks.len();
    let by_rbac = attacks
        .iter()
        .filter(|attack| attack.stop == ExpectedDefense::Rbac)
        .count();
    let by_rules = all - by_rbac;
    let mut lines = Vec::new();
    match (protection.has_webhooks, protection.has_policies) {
        (true, true) => lines.push(make_kept_line(format!(
            "all {all} attacks of tenure attest are refused: {by_rbac} by RBAC, {by_rules} by rules of admission, as policies and by webhooks"
        ))),
        (true, false) => {
            lines.push(make_kept_line(format!(
                "all {all} attacks of tenure attest are refused while a Pod of the controllers answers: {by_rbac} by RBAC, {by_rules} by webhooks"
            )));
            lines.push(make_open_line(
                "while no Pod answers, writes that only Tenure can check wait; policies decide most of them without Tenure: --policies".to_owned(),
            ));
        }
        (false, true) => {
            let left = LEFT_BY_POLICIES.len();
            lines.push(make_kept_line(format!(
                "{} of {all} attacks of tenure attest are refused: {by_rbac} by RBAC, {} by policies",
                all - left,
                by_rules - left
            )));
            lines.push(make_open_line(format!(
                "{left} attacks are left, because an expression sees neither sums nor other objects ({}): --admission closes them",
                LEFT_BY_POLICIES.join(", ")
            )));
        }
        (false, false) => {
            lines.push(make_kept_line(format!("{by_rbac} of {all} attacks of tenure attest are refused by RBAC")));
            lines.push(make_open_line(format!(
                "nothing refuses the other {by_rules}, which rules of admission stop: --admission and --policies close them"
            )));
        }
    }
    if !protection.has_bounds {
        lines.push(make_open_line(
            "nothing bounds what the controllers' own account may write: Kubernetes 1.30 has the policies for it"
                .to_owned(),
        ));
    }
    lines.push(match protection.has_lane_pods {
        true => make_kept_line("each tenant is reconciled in a Pod of its own".to_owned()),
        false => make_open_line(
            "tenants are reconciled in the Pod of the controllers: --lanes deployment gives each tenant a Pod of its own".to_owned(),
        ),
    });
    if !protection.names_api_servers {
        lines.push(make_open_line(
            "the Pods may connect to ports 443 and 6443 of every address: --api-server ADDRESS:PORT closes all others"
                .to_owned(),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(has_webhooks: bool, has_policies: bool) -> String {
        let lines = summarize_protection(Protection {
            has_webhooks,
            has_policies,
            has_bounds: has_policies,
            has_lane_pods: false,
            names_api_servers: true,
        });
        let sign = |line: SummaryLine| format!("{} {}", if line.is_kept { "+" } else { "-" }, line.text);
        lines.into_iter().map(sign).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn open_gap_is_named_with_closing_flag() {
        let whole = describe(true, true);
        assert!(whole.starts_with("+ all ") && !whole.contains("--admission"), "{whole}");
        assert!(describe(true, false).contains("--policies"));
        let policies = describe(false, true);
        assert!(
            policies.contains("- 5 attacks are left") && policies.contains("quota-by-burst"),
            "{policies}"
        );
        let nothing = describe(false, false);
        assert!(
            nothing.contains("- nothing refuses the other ") && nothing.contains("--admission"),
            "{nothing}"
        );
        assert!(nothing.contains("nothing bounds"), "{nothing}");
    }

    #[test]
    fn attacks_that_policies_leave_exist() {
        let names = crate::attestation::Names {
            suffix: "0".to_owned(),
            platform: "tenure-system".to_owned(),
            tenant_uid: String::new(),
            neighbour_uid: String::new(),
            expires: String::new(),
        };
        let attacks = list_attacks(&names);
        for left in LEFT_BY_POLICIES {
            let attack = attacks.iter().find(|attack| attack.name == left);
            let attack = attack.unwrap_or_else(|| panic!("no attack {left}"));
            assert!(matches!(attack.stop, ExpectedDefense::Rule(_)), "{left}");
        }
    }
}
