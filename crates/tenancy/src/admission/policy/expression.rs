//! Texts within expressions. Owns how a text is quoted, and how a sentence with values in it is written.

/// A text as an expression.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("'");
    for letter in text.chars() {
        if matches!(letter, '\'' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('\'');
    quoted
}

/// A sentence as an expression: `{}` stands for the next value, which is one, too.
pub(super) fn phrase(template: &str, values: &[&str]) -> String {
    let mut values = values.iter();
    let mut parts = Vec::new();
    for (index, text) in template.split("{}").enumerate() {
        if index > 0 {
            parts.extend(values.next().map(|value| format!("string({value})")));
        }
        if !text.is_empty() {
            parts.push(quote(text));
        }
    }
    parts.join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_an_expression() {
        assert_eq!(
            phrase("a {} isn't {}", &["x", "y.z"]),
            r"'a ' + string(x) + ' isn\'t ' + string(y.z)"
        );
        assert_eq!(phrase("{}", &["x"]), "string(x)");
        assert_eq!(quote(r"\"), r"'\\'");
    }
}
