//! Label selectors in Kubernetes' form: `a=b,c!=d,e in (f, g),!h,i>1`. This module has the scanner, the grammar and
//! the errors, in the order of kube-apiserver's errors.

use tenure_checkpoint::checkpoint;
use tenure_kinds::schema::go_quoted;
use tenure_kinds::schema::validation::metadata::{label_value, qualified_name};

/// The operator of a term in a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One term of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) operator: Operator,
    pub(super) values: Vec<String>,
}

/// Reads a selector; an empty one has no requirements.
///
/// # Errors
/// The first fault, in Kubernetes' words.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut words = RequirementScanner { rest: text };
    let mut requirements = Vec::new();
    loop {
        checkpoint();
        match words.peek() {
            Token::End => return Ok(requirements),
            Token::Name(_) | Token::Symbol("!") => {}
            other => {
                return Err(format!("found '{other}', expected: !, identifier, or 'end of string'"));
            }
        }
        let requirement = parse_requirement(&mut words).map_err(|why| format!("unable to parse requirement: {why}"))?;
        requirements.push(requirement);
        match words.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match words.peek() {
                Token::Name(_) | Token::Symbol("!") => {}
                other => return Err(format!("found '{other}', expected: identifier after ','")),
            },
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

fn parse_requirement(words: &mut RequirementScanner<'_>) -> Result<Requirement, String> {
    let mut word = words.next();
    let negated = word == Token::Symbol("!");
    if negated {
        word = words.next();
    }
    let Token::Name(key) = word else {
        return Err(format!("found '{word}', expected: identifier"));
    };
    let complaints = qualified_name(key);
    if !complaints.is_empty() {
        let detail = complaints.join("; ");
        return Err(format!("<nil>: Invalid value: {}: {detail}", go_quoted(key)));
    }
    let ends = matches!(words.peek(), Token::End | Token::Symbol(","));
    let (operator, values) = if negated {
        (Operator::DoesNotExist, Vec::new())
    } else if ends {
        (Operator::Exists, Vec::new())
    } else {
        parse_operation(words)?
    };
    let requirement = Requirement {
        key: key.to_owned(),
        operator,
        values,
    };
    check(&requirement)?;
    Ok(requirement)
}

/// Reads an operator with its values.
fn parse_operation(words: &mut RequirementScanner<'_>) -> Result<(Operator, Vec<String>), String> {
    let word = words.next();
    let operator = match word {
        Token::Name("in") | Token::Symbol("=" | "==") => Operator::In,
        Token::Name("notin") | Token::Symbol("!=") => Operator::NotIn,
        Token::Symbol(">") => Operator::GreaterThan,
        Token::Symbol("<") => Operator::LessThan,
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = match word {
        Token::Name(_) => set(words)?,
        _ => match words.peek() {
            Token::End | Token::Symbol(",") => vec![String::new()],
            _ => match words.next() {
                Token::Name(value) => vec![value.to_owned()],
                other => return Err(format!("found '{other}', expected: identifier")),
            },
        },
    };
    Ok((operator, values))
}

/// Reads values in parentheses; between two commas is an empty value.
fn set(words: &mut RequirementScanner<'_>) -> Result<Vec<String>, String> {
    let open = words.next();
    if open != Token::Symbol("(") {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = Vec::new();
    match words.peek() {
        Token::Symbol(")") => {
            words.next();
            return Ok(vec![String::new()]);
        }
        Token::Name(_) | Token::Symbol(",") => {}
        other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
    }
    loop {
        checkpoint();
        match words.next() {
            Token::Name(value) => {
                values.push(value.to_owned());
                match words.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => break,
                    other => return Err(format!("found '{other}', expected: ',' or ')'")),
                }
            }
            Token::Symbol(",") => {
                if values.is_empty() {
                    values.push(String::new());
                }
                match words.peek() {
                    Token::Symbol(")") => {
                        values.push(String::new());
                        break;
                    }
                    Token::Symbol(",") => {
                        words.next();
                        values.push(String::new());
                    }
                    _ => {}
                }
            }
            other => return Err(format!("found '{other}', expected: ',', or identifier")),
        }
    }
    words.next();
    values.sort();
    values.dedup();
    Ok(values)
}

fn check(requirement: &Requirement) -> Result<(), String> {
    let values = &requirement.values;
    if matches!(requirement.operator, Operator::GreaterThan | Operator::LessThan)
        && let Some(odd) = values.iter().find(|value| value.parse::<i64>().is_err())
    {
        return Err(format!(
            "values[0]: Invalid value: {odd:?}: for 'Gt', 'Lt' operators, the value must be an integer"
        ));
    }
    for (index, value) in values.iter().enumerate() {
        let complaints = label_value(value);
        if !complaints.is_empty() {
            let (key, value, detail) = (&requirement.key, go_quoted(value), complaints.join("; "));
            return Err(format!("values[{index}][{key}]: Invalid value: {value}: {detail}"));
        }
    }
    Ok(())
}

/// A word of a label selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Symbol(&'static str),
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Name(text) | Self::Symbol(text) => text,
            Self::End => "",
        })
    }
}

/// Splits the text of a label selector into words.
struct RequirementScanner<'a> {
    rest: &'a str,
}

impl<'a> RequirementScanner<'a> {
    const SYMBOLS: [&'static str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

    fn next(&mut self) -> Token<'a> {
        let space = [' ', '\t', '\r', '\n'];
        self.rest = self.rest.trim_start_matches(space);
        if self.rest.is_empty() {
            return Token::End;
        }
        for symbol in Self::SYMBOLS {
            if let Some(rest) = self.rest.strip_prefix(symbol) {
                self.rest = rest;
                return Token::Symbol(symbol);
            }
        }
        let end = self
            .rest
            .find(|letter| space.contains(&letter) || "=!(),><".contains(letter));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Token::Name(name)
    }

    fn peek(&self) -> Token<'a> {
        RequirementScanner { rest: self.rest }.next()
    }
}
