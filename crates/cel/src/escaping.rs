//! Conversion between property names and identifiers of the language.

const SYMBOLS: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

fn is_keyword(name: &str) -> bool {
    crate::parser::is_reserved(name)
}

/// Returns a property's name as an expression spells it; `None` if the name can't be escaped.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if is_keyword(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        if let Some((symbol, spelled)) = SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)) {
            escaped.push_str(spelled);
            rest = rest.get(symbol.len()..).unwrap_or_default();
        } else if letter.is_ascii_alphanumeric() || letter == '_' {
            escaped.push(letter);
            rest = rest.get(1..).unwrap_or_default();
        } else {
            return None;
        }
    }
    Some(escaped)
}

/// Returns the property that an identifier names; `None` if the identifier is no valid escape.
pub(crate) fn unescape(escaped: &str) -> Option<String> {
    if !escaped.contains("__") {
        return Some(escaped.to_owned());
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(start) = rest.find("__") {
        let (before, from) = rest.split_at(start);
        let inner = from.get(2..).unwrap_or_default();
        let Some(end) = inner.find('_') else { break };
        let word = inner.get(..end).unwrap_or_default();
        if word.is_empty() || !inner.get(end..).is_some_and(|tail| tail.starts_with("__")) {
            // Not an escape: the underscores are letters.
            name.push_str(before);
            name.push('_');
            rest = from.get(1..).unwrap_or_default();
            continue;
        }
        name.push_str(before);
        let symbol = SYMBOLS.iter().find(|(_, spelled)| spelled.trim_matches('_') == word);
        match symbol {
            Some((symbol, _)) => name.push_str(symbol),
            None if is_keyword(word) && word.len() + 4 == escaped.len() => name.push_str(word),
            None => return None,
        }
        rest = inner.get(end + 2..).unwrap_or_default();
    }
    name.push_str(rest);
    Some(name)
}
