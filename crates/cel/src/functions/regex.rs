//! `matches`, `find` and `findAll`.

use regex::Regex;

use crate::failure::Failure;
use crate::functions::effort_of_values;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let Some(Value::String(pattern)) = arguments.get(1) else {
        return Err(Failure::no_such_overload());
    };
    let compiled = meter.compile_pattern(pattern);
    let compiled = match compiled {
        Err(failure) if function != "matches" && !failure.is_too_costly() => {
            return Err(Failure::new(format!("Illegal regex: {failure}")));
        }
        other => other?,
    };
    with_pattern(function, arguments, &compiled, meter)
}

/// Implements the functions with a pattern that is already compiled.
pub(crate) fn with_pattern<'a>(
    function: &str,
    arguments: &[Value<'a>],
    pattern: &Regex,
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    match (function, arguments) {
        ("matches", [Value::String(text), _]) => Ok(Value::Bool(pattern.is_match(text))),
        ("find", [Value::String(text), _]) => {
            let found = pattern.find(text).map_or("", |found| found.as_str());
            Ok(Value::from(found.to_owned()))
        }
        ("findAll", [Value::String(text), _, rest @ ..]) => {
            let most = match rest {
                [] => usize::MAX,
                [Value::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return Err(Failure::no_such_overload()),
            };
            let mut all: Vec<Value<'a>> = Vec::new();
            // As in Go, an empty match directly after the previous match does not count.
            let mut end = None;
            for found in pattern.find_iter(text) {
                if all.len() >= most {
                    break;
                }
                if found.is_empty() && end == Some(found.start()) {
                    continue;
                }
                end = Some(found.end());
                meter.spend_effort(effort_of_values(1) + found.len())?;
                all.push(Value::from(found.as_str().to_owned()));
            }
            Ok(Value::from(all))
        }
        _ => Err(Failure::no_such_overload()),
    }
}
