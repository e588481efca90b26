//! The last line of an attestation: the reach of its tenant beyond its own namespaces, by all rights and rules of the cluster.

use super::verdict::{AttackResult, Outcome};

/// The name of the line.
const NAME: &str = "reach";
/// The number of findings that the line quotes.
const MOST_QUOTED: usize = 3;

/// Judges the result of the search for the tenant's authority: each finding is a path. `unknown` lists the objects that could not be read.
#[must_use]
pub fn assess_reach(beyond: &[String], unknown: &[String]) -> AttackResult {
    let (outcome, message, remedy) = if !beyond.is_empty() {
        let quoted: Vec<&str> = beyond.iter().take(MOST_QUOTED).map(String::as_str).collect();
        let message = format!("{} beyond its own namespaces: {}", beyond.len(), quoted.join("; "));
        let remedy = "take away the binding, or the name, that the path begins with: tenure reach tenant NAME --paths";
        (Outcome::NotHeld, message, remedy)
    } else if !unknown.is_empty() {
        let message = format!("these could not be read: {}", unknown.join(", "));
        (Outcome::NotTried, message, "attest with the rights of an administrator")
    } else {
        (Outcome::Held, "nothing beyond its own namespaces".to_owned(), "")
    };
    AttackResult {
        name: NAME.to_owned(),
        tries: "reaches authority outside its own namespaces, step by step".to_owned(),
        stop: NAME.to_owned(),
        outcome,
        message,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_path_does_not_hold_and_gap_stays_undecided() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (beyond, unknown, outcome, message) in [
            (vec![], vec![], Outcome::Held, "nothing beyond"),
            (
                texts(&["cluster-admin: a > b"]),
                texts(&["nodes"]),
                Outcome::NotHeld,
                "1 beyond its own namespaces: cluster-admin",
            ),
            (vec![], texts(&["nodes"]), Outcome::NotTried, "nodes"),
        ] {
            let judged = assess_reach(&beyond, &unknown);
            assert_eq!(judged.outcome, outcome, "{judged:?}");
            assert!(judged.message.contains(message), "{judged:?}");
            assert_eq!(judged.remedy.is_empty(), outcome == Outcome::Held);
        }
    }
}
