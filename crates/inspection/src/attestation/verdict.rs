//! The meaning of the answers to an attack and to its control, and the report about all attacks.

use std::fmt::Write as _;

use serde::Serialize;
use tenure_api::text::visible_line;

use super::{Attack, ExpectedDefense, Verb};

/// The most bytes of the API server's message that are repeated.
const LONGEST: usize = 512;

/// The API server's answer to an attempt of an attack, or to its control.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptResult {
    /// HTTP status; 0 when there was no answer.
    pub code: u16,
    /// The message of the answer, or of the failure if there was no answer.
    pub message: String,
    /// Whether a successful answer shows the effect of the request.
    pub has_effect: bool,
}

impl AttemptResult {
    /// Checks whether the answer reports success.
    #[must_use]
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Finds the rule that the message ends with, in brackets, as every refusal of Tenure's does.
    fn find_rule(&self) -> Option<&str> {
        let (_, rule) = self.message.trim_end().strip_suffix(')')?.rsplit_once('(')?;
        Some(rule)
    }

    fn describe(&self) -> String {
        let line = visible_line(&self.message).into_owned();
        let end = line.char_indices().map(|(at, _)| at).find(|at| *at >= LONGEST);
        let text = end.and_then(|end| line.get(..end)).unwrap_or(&line);
        format!("{}: {text}", self.code)
    }
}

/// Whether an attack was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The attack was stopped.
    Held,
    /// The attack was not stopped.
    NotHeld,
    /// The result is unknown.
    NotTried,
}

impl Outcome {
    /// Returns the outcome in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotHeld => "did not hold",
            Self::NotTried => "could not be tried",
        }
    }
}

/// The result of one attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttackResult {
    /// The attack's name.
    pub name: String,
    /// The attempt of the attack.
    pub tries: String,
    /// The mechanism that should have stopped the attack.
    pub stop: String,
    /// Whether the attack was stopped.
    pub outcome: Outcome,
    /// The API server's message, or the reason for which the attack couldn't be tried.
    #[serde(rename = "said")]
    pub message: String,
    /// The advice; empty if the attack was stopped.
    pub remedy: String,
}

/// Judges the answers to an attempt, several for a burst, and the answer to its control, which was sent before.
#[must_use]
pub fn assess_attack(attack: &Attack, attempts: &[AttemptResult], control: &AttemptResult) -> AttackResult {
    let (outcome, message) = decide_outcome(attack, attempts, control);
    AttackResult {
        name: attack.name.to_owned(),
        tries: attack.tries.to_owned(),
        stop: attack.stop.as_str().to_owned(),
        outcome,
        message,
        remedy: match outcome {
            Outcome::Held => String::new(),
            Outcome::NotHeld => attack.stop.remedy().to_owned(),
            Outcome::NotTried => "correct the cause, and run tenure attest again".to_owned(),
        },
    }
}

/// Finds the kind that the control creates, if the answer says that the cluster doesn't serve the kind. A missing object is named in the answer.
fn find_unserved_kind<'a>(attack: &'a Attack, control: &AttemptResult) -> Option<&'a str> {
    let is_unserved =
        control.code == 404 && attack.control.verb == Verb::Create && !control.message.contains("\" not found");
    attack.control.body.get("kind")?.as_str().filter(|_| is_unserved)
}

fn decide_outcome(attack: &Attack, attempts: &[AttemptResult], control: &AttemptResult) -> (Outcome, String) {
    let done = attempts
        .iter()
        .filter(|tried| tried.is_done() && tried.has_effect)
        .count();
    let room = attack.burst.map_or(0, |burst| burst.room);
    // An attack that succeeded beyond its bound counts as a success, whatever the result of the control.
    if done > usize::try_from(room).unwrap_or(usize::MAX) {
        let message = match attack.burst {
            Some(burst) => format!("{done} of {} succeeded, and there was room for {room}", burst.count),
            None => "it was accepted".to_owned(),
        };
        return (Outcome::NotHeld, message);
    }
    if let Some(kind) = find_unserved_kind(attack, control) {
        return (Outcome::NotTried, format!("{kind} is not installed here"));
    }
    if !control.is_done() {
        let message = format!(
            "the allowed request of the control failed, so a refusal proves nothing: {}",
            control.describe()
        );
        return (Outcome::NotTried, message);
    }
    if attack.burst.is_some() && done == 0 {
        return (
            Outcome::NotTried,
            "none of them succeeded, though there was room".to_owned(),
        );
    }
    let mut refused = attempts.iter().filter(|tried| !tried.is_done());
    // A refusal for another reason (an unserved kind, an invalid field) doesn't stop an attacker who avoids the mistake.
    if let Some(other) = refused.clone().find(|tried| !is_stopped(attack.stop, tried)) {
        return (
            Outcome::NotTried,
            format!("it was refused for another reason: {}", other.describe()),
        );
    }
    match refused.next() {
        Some(refused) => (Outcome::Held, refused.describe()),
        None if attack.effect.is_some() => (Outcome::Held, "it was accepted, and had no effect".to_owned()),
        None => (Outcome::NotTried, "nothing was refused".to_owned()),
    }
}

/// Checks whether a refusal is one that lasts: of the rule that is meant, of another rule, or of RBAC, which comes before both. The reason of a policy's refusal
/// is Forbidden, too.
fn is_stopped(stop: ExpectedDefense, tried: &AttemptResult) -> bool {
    tried.code == 403
        || (matches!(stop, ExpectedDefense::Rule(_)) && tried.code == 422 && tried.find_rule() == Some(stop.as_str()))
}

/// The results of all attacks.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The address of the cluster.
    pub cluster: String,
    /// The start of the attestation, as RFC 3339.
    pub started: String,
    /// The version of the program.
    pub version: String,
    /// One result for each attack.
    pub results: Vec<AttackResult>,
}

impl Report {
    /// Counts the results with this outcome.
    #[must_use]
    pub fn count_outcomes(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// Checks whether at least one attack was stopped, and no attack got through. An attack that couldn't be tried, for example because the cluster doesn't serve its
    /// kinds, doesn't count, and the report still names it.
    #[must_use]
    pub fn has_held(&self) -> bool {
        self.count_outcomes(Outcome::NotHeld) == 0 && self.count_outcomes(Outcome::Held) > 0
    }

    /// Writes the report for people, a line for each attack, the worst first.
    #[must_use]
    pub fn write_text(&self) -> String {
        let mut text = String::new();
        for outcome in [Outcome::NotHeld, Outcome::NotTried, Outcome::Held] {
            for result in self.results.iter().filter(|result| result.outcome == outcome) {
                let _written = writeln!(text, "{}: {}: {}", outcome.as_str(), result.name, result.tries);
                if outcome != Outcome::Held {
                    let _written = writeln!(text, "    {}", result.message);
                    let _written = writeln!(text, "    {}: {}", result.stop, result.remedy);
                }
            }
        }
        let _written = writeln!(text, "{}", self.summarize_counts());
        text
    }

    /// Returns the numbers, in a sentence.
    #[must_use]
    pub fn summarize_counts(&self) -> String {
        format!(
            "{} attacks: {} held, {} did not hold, {} could not be tried",
            self.results.len(),
            self.count_outcomes(Outcome::Held),
            self.count_outcomes(Outcome::NotHeld),
            self.count_outcomes(Outcome::NotTried)
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tenure_admission_rules::Rule;

    use super::super::{AttackRequest, ConcurrentRequests, Sender};
    use super::*;

    fn make_attack(stop: ExpectedDefense, burst: Option<ConcurrentRequests>) -> Attack {
        let ask = |path: &str| AttackRequest::new(Sender::Owner, Verb::Read, path, Value::Null);
        Attack {
            burst,
            ..Attack::new("a", "tries", stop, ask("/a"), ask("/b"))
        }
    }

    fn make_result(code: u16, message: &str) -> AttemptResult {
        AttemptResult {
            code,
            message: message.to_owned(),
            has_effect: true,
        }
    }

    #[test]
    fn defense_holds_if_attack_is_refused_and_control_succeeds() {
        let done = make_result(201, "");
        let (rule, rbac) = (ExpectedDefense::Rule(Rule::Cordoned), ExpectedDefense::Rbac);
        let cases = [
            (rule, make_result(403, "no (cordoned)"), &done, Outcome::Held),
            (rule, make_result(422, "no (cordoned)"), &done, Outcome::Held),
            (rule, make_result(422, "no (tenant)"), &done, Outcome::NotTried),
            (rule, make_result(422, "spec.a is not valid"), &done, Outcome::NotTried),
            (rule, make_result(403, "RBAC comes first"), &done, Outcome::Held),
            (rule, make_result(200, ""), &done, Outcome::NotHeld),
            (rbac, make_result(403, "no"), &done, Outcome::Held),
            (rbac, make_result(404, "not found"), &done, Outcome::NotTried),
            (rbac, make_result(0, "no answer"), &done, Outcome::NotTried),
            (rbac, make_result(403, "no"), &make_result(403, "no"), Outcome::NotTried),
            // The attack succeeded, so the result of the control has no effect.
            (rbac, make_result(200, ""), &make_result(500, "no"), Outcome::NotHeld),
        ];
        for (stop, attempt, control, outcome) in cases {
            let found = assess_attack(&make_attack(stop, None), std::slice::from_ref(&attempt), control);
            assert_eq!(found.outcome, outcome, "{attempt:?} beside {control:?}: {found:?}");
            assert_eq!(found.remedy.is_empty(), outcome == Outcome::Held);
        }
    }

    #[test]
    fn unserved_kind_is_named() {
        let mut attack = make_attack(ExpectedDefense::Rbac, None);
        attack.control.verb = Verb::Create;
        attack.control.body = serde_json::json!({ "kind": "HelmRelease" });
        let assess_message =
            |message: &str| assess_attack(&attack, &[make_result(403, "no")], &make_result(404, message)).message;
        assert_eq!(assess_message(""), "HelmRelease is not installed here");
        assert_eq!(
            assess_message("404 page not found"),
            "HelmRelease is not installed here"
        );
        assert!(assess_message("namespaces \"a\" not found").contains("a refusal proves nothing"));
    }

    #[test]
    fn accepted_attack_without_effect_counts_as_held() {
        let attack = make_attack(ExpectedDefense::Rbac, None).seen_by("/a", Value::from("b"));
        let outcome = |answer: Value| {
            let tried = AttemptResult {
                has_effect: attack.has_effect(&answer),
                ..make_result(200, "")
            };
            assess_attack(&attack, &[tried], &self::make_result(200, "")).outcome
        };
        assert_eq!(outcome(serde_json::json!({"a": "b"})), Outcome::NotHeld);
        assert_eq!(outcome(serde_json::json!({"a": "c"})), Outcome::Held);
        assert_eq!(outcome(serde_json::json!({})), Outcome::Held);
    }

    #[test]
    fn burst_holds_if_successes_match_room() {
        let burst = make_attack(
            ExpectedDefense::Rule(Rule::NamespaceOptions),
            Some(ConcurrentRequests { count: 3, room: 1 }),
        );
        let (done, refused) = (make_result(201, ""), make_result(403, "no (namespace-options)"));
        let judge = |attempts: &[&AttemptResult]| {
            let attempts: Vec<AttemptResult> = attempts.iter().map(|tried| (*tried).clone()).collect();
            assess_attack(&burst, &attempts, &done).outcome
        };
        assert_eq!(judge(&[&done, &refused, &refused]), Outcome::Held);
        assert_eq!(judge(&[&done, &done, &refused]), Outcome::NotHeld);
        assert_eq!(judge(&[&refused, &refused, &refused]), Outcome::NotTried);
    }

    #[test]
    fn a_report_tells_the_worst_first() {
        let judged = |code: u16| {
            assess_attack(
                &make_attack(ExpectedDefense::Rbac, None),
                &[make_result(code, "said\u{1b}")],
                &make_result(200, ""),
            )
        };
        let mut report = Report {
            cluster: String::new(),
            started: String::new(),
            version: String::new(),
            results: vec![judged(403)],
        };
        assert!(report.has_held());
        report.results.push(judged(200));
        assert!(!report.has_held());
        let text = report.write_text();
        assert!(text.starts_with("did not hold: a: tries\n"), "{text}");
        assert!(
            text.ends_with("2 attacks: 1 held, 1 did not hold, 0 could not be tried\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
        report.results.clear();
        assert!(!report.has_held(), "nothing tried is nothing held");
    }
}
