//! The apply mode of a Kustomization: apply a stage as a whole, apply only its accepted objects, or apply nothing and report the differences.
//!
//! The module parses the annotation with the mode, and reports differences. Every mode reads and dry-runs the same objects as the same identity.

use tenure_api::metadata::APPLY_MODE;
use tenure_api::{ObjectId, reason};

use super::context::Context;
use super::desired::{Desired, DesiredObject};
use super::object_action::Change;
use super::preview::DifferenceKind;
use super::{Phase, outcome};
use crate::fields;
use crate::outcome::join_names;

/// The number of objects that a message names.
const NAMED: usize = 50;
/// The most bytes of a line for the fields of one object.
const FIELDS: usize = 200;

/// The apply mode of a Kustomization, from its annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ApplyMode {
    /// A stage is applied when all of it is accepted (Flux's).
    #[default]
    All,
    /// The accepted objects of a stage are applied; refused ones hold up the later stages and pruning.
    Partial,
    /// Nothing is written; the condition reports the would-be changes.
    DetectOnly,
}

impl ApplyMode {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// The allowed values.
    pub(super) fn read(text: Option<&str>) -> Result<Self, String> {
        match text {
            None | Some("" | "All") => Ok(Self::All),
            Some("Partial") => Ok(Self::Partial),
            Some("DetectOnly") => Ok(Self::DetectOnly),
            Some(other) => Err(format!(
                "metadata.annotations: {APPLY_MODE} is {other:?}, and must be All, Partial or DetectOnly"
            )),
        }
    }
}

/// A difference that [`ApplyMode::DetectOnly`] found: an action that another mode would take.
#[derive(Clone, Debug)]
pub(super) struct DetectedDifference {
    /// The object; unset if a whole kind could not be looked up.
    pub(super) id: Option<ObjectId>,
    pub(super) what: DifferenceKind,
    pub(super) line: String,
    /// The fields of the object that would be changed.
    pub(super) fields: Vec<fields::Difference>,
}

/// Records that an apply would create or change an object.
pub(super) fn record_apply(context: &mut Context<'_>, object: &DesiredObject, change: Change, exists: bool) {
    match (exists, change.fields.is_empty()) {
        (false, _) => record_difference(context, object, DifferenceKind::Created, "would be created"),
        (true, true) => {
            let words = "would be taken over from another field manager";
            record_difference(context, object, DifferenceKind::TakenOver, words);
        }
        (true, false) => {
            let names: Vec<String> = change.fields.iter().map(|field| field.path.clone()).collect();
            // The place of the object stands behind the object, since its fields can come from other files.
            let subject = format!("{} ({})", object.target.id.subject(), object.origin);
            context.detected.push(DetectedDifference {
                id: Some(object.target.id.clone()),
                what: DifferenceKind::Changed,
                line: describe_change(&subject, &names),
                fields: change.fields,
            });
        }
    }
}

/// Describes the fields of an object that would be changed.
pub(super) fn describe_change(subject: &str, fields: &[String]) -> String {
    format!("{subject} would be changed: {}", join_names(fields, FIELDS))
}

/// Records an action that another mode would take on an object.
pub(super) fn record_difference(context: &mut Context<'_>, object: &DesiredObject, what: DifferenceKind, words: &str) {
    context.detected.push(DetectedDifference {
        id: Some(object.target.id.clone()),
        what,
        line: format!("{} {words} ({})", object.target.id.subject(), object.origin),
        fields: Vec::new(),
    });
}

/// Ends a plan in [`ApplyMode::DetectOnly`] with a report of the differences, if there are any.
pub(super) fn report_differences(context: &mut Context<'_>, desired: &Desired) -> Phase<()> {
    if context.detected.is_empty() {
        return Ok(());
    }
    let detected = std::mem::take(&mut context.detected);
    let mut lines: Vec<String> = detected.into_iter().map(|detected| detected.line).collect();
    lines.extend(desired.unknown.iter().map(|(_, message)| message.clone()));
    let count = lines.len();
    let mut named: Vec<String> = lines.drain(..count.min(NAMED)).collect();
    if !lines.is_empty() {
        named.push(format!("and {} more", lines.len()));
    }
    let message = format!(
        "nothing was applied, since {APPLY_MODE} is DetectOnly; {count} {} from revision {}\n{}",
        if count == 1 { "object differs" } else { "objects differ" },
        context.revision.as_deref().unwrap_or_default(),
        named.join("\n")
    );
    Err(outcome::end_with_differences(
        context.fork(),
        reason::DRIFT_DETECTED,
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_apply_mode_is_refused_with_valid_modes() {
        assert_eq!(ApplyMode::read(None), Ok(ApplyMode::All));
        assert_eq!(ApplyMode::read(Some("DetectOnly")), Ok(ApplyMode::DetectOnly));
        let refused = ApplyMode::read(Some("detect-only\u{202e}")).unwrap_err();
        assert!(
            refused.contains("All, Partial or DetectOnly") && !refused.contains('\u{202e}'),
            "{refused}"
        );
    }
}
