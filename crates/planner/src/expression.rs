//! Expressions in CEL that say yes or no, as users write them into a spec: compiled, evaluated, and paid for.
//!
//! Owns what an expression may cost. One has a bound of its own, and all of one object share a purse that is filled again after a while, and
//! a little when its spec changes: whoever writes an expression that never ends spends their own time, and not much of it. It refuses to know
//! what is judged: variables come from the caller. What an evaluation says may quote what it looked at; `Refused` tells which words do.

use std::time::Duration;

use jiff::Timestamp;
use kubernetes_cel::{Allowance, Environment, Program, Type, Value, Variables};
use serde::{Deserialize, Serialize};
use tenure_api::text::visible;

use crate::ending::add_duration;

/// What one expression may spend on one object: cost in the units of Kubernetes' CEL, and bytes that it looks at or makes beyond that.
pub const EXPRESSION: Allowance = Allowance {
    cost: 100_000,
    effort: 4 << 20,
};

/// What all expressions of one object may spend in [`PURSE_TIME`].
pub const PURSE: Allowance = Allowance {
    cost: 10_000_000,
    effort: 128 << 20,
};

/// How long a purse lasts.
pub const PURSE_TIME: Duration = Duration::from_secs(600);

/// As much text as expressions are to be counted for, in bytes, where work waits for its turn by the text that it is about: what one
/// round of them may take is more than a moment.
pub const WORK: usize = 256 << 10;

/// How many letters are told of what is wrong with an expression, and of why it can't be evaluated, which is remembered of each object.
const TOLD: (usize, usize) = (600, 200);

/// An expression, compiled, and the field that it stands in.
#[derive(Debug)]
pub(crate) struct Expression {
    field: String,
    program: Program,
}

/// Why an expression says neither yes nor no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It can't be evaluated on this object. The words may quote it.
    Failed {
        /// The field of the expression.
        field: String,
        /// What CEL says.
        why: String,
    },
    /// It costs too much. The words quote nothing.
    TooCostly(String),
    /// The purse is empty. The words quote nothing.
    Spent(String),
}

impl Refused {
    /// The whole message. Only for objects that may be quoted.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Failed { field, why } => format!("{field}: {}", tell(why, TOLD.1)),
            Self::TooCostly(message) | Self::Spent(message) => message.clone(),
        }
    }

    /// The message about an object that nothing may be told of.
    pub(crate) fn message_without_contents(&self) -> String {
        match self {
            Self::Failed { field, .. } => {
                format!("{field} can't be evaluated; why is not told, as that may quote a Secret")
            }
            Self::TooCostly(message) | Self::Spent(message) => message.clone(),
        }
    }
}

impl Expression {
    /// Compiles what stands in a field. Its type must be a truth value; one that is known only when it is evaluated will do where
    /// nothing is known of its variables.
    ///
    /// # Errors
    /// A message that names the field and the place in it.
    pub(crate) fn compile(environment: &Environment, field: String, text: &str) -> Result<Self, String> {
        Self::compile_as(environment, (field, text), (Type::Bool, "bool"))
    }

    /// As [`Expression::compile`], for an expression that yields a text.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn compile_text(environment: &Environment, field: String, text: &str) -> Result<Self, String> {
        Self::compile_as(environment, (field, text), (Type::String, "string"))
    }

    fn compile_as(
        environment: &Environment,
        (field, text): (String, &str),
        (wanted, word): (Type, &str),
    ) -> Result<Self, String> {
        let program = environment
            .compile(text)
            .map_err(|error| format!("{field}: {}", tell(&error.to_string(), TOLD.0)))?;
        if let Some(problem) = program.instantiation_failure() {
            return Err(format!("{field}: {}", tell(problem, TOLD.0)));
        }
        match program.output_type() {
            found if *found == wanted => {}
            Type::Dyn if environment.takes_any_variable() => {}
            other => return Err(format!("{field} must yield {word}, and yields {other}")),
        }
        Ok(Self { field, program })
    }

    /// What it says, paid from a purse.
    pub(crate) fn evaluate<'a>(&self, variables: &dyn Variables<'a>, purse: &mut Purse) -> Result<bool, Refused> {
        match self.evaluate_any(variables, purse)? {
            Value::Bool(said) => Ok(said),
            other => Err(self.refuse_type(&other, "bool")),
        }
    }

    /// What text it yields, paid from a purse.
    pub(crate) fn evaluate_text<'a>(
        &self,
        variables: &dyn Variables<'a>,
        purse: &mut Purse,
    ) -> Result<String, Refused> {
        match self.evaluate_any(variables, purse)? {
            Value::String(said) => Ok(said.to_string()),
            other => Err(self.refuse_type(&other, "string")),
        }
    }

    fn refuse_type(&self, found: &Value<'_>, wanted: &str) -> Refused {
        Refused::Failed {
            field: self.field.clone(),
            why: format!("yields {}, not {wanted}", found.type_of()),
        }
    }

    fn evaluate_any<'a>(&self, variables: &dyn Variables<'a>, purse: &mut Purse) -> Result<Value<'a>, Refused> {
        let left = purse.left();
        let allowed = Allowance {
            cost: EXPRESSION.cost.min(left.cost),
            effort: EXPRESSION.effort.min(left.effort),
        };
        if allowed.cost == 0 || allowed.effort == 0 {
            return Err(purse.refuse(&self.field));
        }
        let evaluation = self.program.evaluate_within(variables, allowed);
        // What ended it was not spent, and would be spent again.
        purse.spend(evaluation.cost.min(allowed.cost), evaluation.effort.min(allowed.effort));
        match evaluation.result {
            Ok(said) => Ok(said),
            Err(failure) if failure.is_too_costly() && allowed == EXPRESSION => Err(Refused::TooCostly(format!(
                "{} costs more than an expression may (a cost of {} on one object): look at less",
                self.field, EXPRESSION.cost
            ))),
            Err(failure) if failure.is_too_costly() => Err(purse.refuse(&self.field)),
            Err(failure) => Err(Refused::Failed {
                field: self.field.clone(),
                why: failure.to_string(),
            }),
        }
    }
}

/// What the expressions of one object have spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Purse {
    /// For which generation.
    pub generation: Option<i64>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Cost.
    pub cost: u64,
    /// Bytes.
    pub effort: usize,
}

impl Purse {
    /// Fills it, if its time is over; for another spec, a tenth of it at least, so that mended expressions are tried and who writes specs
    /// can't spend at will.
    pub(crate) fn renew(&mut self, generation: Option<i64>, now: Timestamp) {
        if self.until().is_none_or(|until| now >= until) {
            *self = Self {
                generation,
                since: Some(now),
                cost: 0,
                effort: 0,
            };
        } else if self.generation != generation {
            self.generation = generation;
            self.cost = self.cost.min(PURSE.cost / 10 * 9);
            self.effort = self.effort.min(PURSE.effort / 10 * 9);
        }
    }

    /// When it is filled again.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.since.map(|since| add_duration(since, PURSE_TIME))
    }

    /// Pays for looking at so many bytes; whether there was enough.
    pub(crate) fn pay(&mut self, bytes: usize) -> bool {
        self.spend(0, bytes);
        self.effort < PURSE.effort
    }

    fn left(&self) -> Allowance {
        Allowance {
            cost: PURSE.cost.saturating_sub(self.cost),
            effort: PURSE.effort.saturating_sub(self.effort),
        }
    }

    fn spend(&mut self, cost: u64, effort: usize) {
        self.cost = self.cost.saturating_add(cost);
        self.effort = self.effort.saturating_add(effort);
    }

    /// Why nothing more is evaluated.
    pub(crate) fn refuse(&self, field: &str) -> Refused {
        let until = self.until().map(|until| format!(" until {until}")).unwrap_or_default();
        Refused::Spent(format!(
            "{field} is not evaluated{until}: the expressions of this object have cost as much as they may in {} minutes (a cost of {}, or \
             {} MiB looked at): let them look at less",
            PURSE_TIME.as_secs() / 60,
            PURSE.cost,
            PURSE.effort >> 20
        ))
    }
}

/// As much of a message as is told.
fn tell(message: &str, most: usize) -> String {
    let shown = visible(message);
    match shown.char_indices().nth(most) {
        Some((end, _)) => format!("{} [...]", shown.get(..end).unwrap_or_default()),
        None => shown.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purse_is_filled_after_its_time_and_a_little_for_another_spec() {
        let at = |seconds: u64| add_duration("2026-01-01T00:00:00Z".parse().unwrap(), Duration::from_secs(seconds));
        let mut purse = Purse::default();
        let left = |purse: &Purse| PURSE.cost - purse.cost;
        purse.renew(Some(1), at(0));
        purse.spend(PURSE.cost, PURSE.effort);
        purse.renew(Some(1), at(599));
        assert_eq!((left(&purse), purse.pay(0)), (0, false));
        purse.renew(Some(2), at(599));
        assert_eq!((left(&purse), purse.pay(0)), (PURSE.cost / 10, true));
        // What was left is not lost, and not multiplied.
        purse.renew(Some(3), at(599));
        assert_eq!(left(&purse), PURSE.cost / 10);
        purse.renew(Some(3), at(600));
        assert_eq!(left(&purse), PURSE.cost);
    }
}
