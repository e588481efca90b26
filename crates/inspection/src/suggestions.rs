//! Suggestions for mistyped names: "did you mean …?". A suggestion needs few corrections, or begins with the typed text.

use strsim::damerau_levenshtein;

/// The largest number of corrected letters between the typed text and a suggestion.
const MOST_CORRECTIONS: usize = 3;
/// The largest number of suggestions.
const MOST_SUGGESTIONS: usize = 3;
/// The least length of a text that counts as the beginning of names.
const SHORTEST_BEGINNING: usize = 3;
/// The longest compared text. The comparison takes time by the product of both lengths.
const LONGEST: usize = 253;

/// Returns the names that are close to a typed text, the closest first.
#[must_use]
pub fn find_close<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let length = typed.chars().count();
    if length > LONGEST {
        return Vec::new();
    }
    let most = (length / 3).clamp(1, MOST_CORRECTIONS);
    let mut close: Vec<(usize, &str)> = names
        .into_iter()
        .filter(|name| name.len() <= LONGEST)
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let corrections = damerau_levenshtein(&typed, &lower);
            let is_beginning = length >= SHORTEST_BEGINNING && lower.starts_with(&typed);
            match (corrections <= most, is_beginning) {
                (true, _) => Some((corrections, name)),
                (false, true) => Some((most + 1, name)),
                (false, false) => None,
            }
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().map(|(_, name)| name).take(MOST_SUGGESTIONS).collect()
}

/// Returns a hint with the close names: `did you mean web, web-a or web-b?`; `None` if no name is close.
#[must_use]
pub fn name_suggestions(typed: &str, names: &[&str]) -> Option<String> {
    let close = find_close(typed, names.iter().copied());
    let (last, others) = close.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_come_first() {
        let names = [
            "kustomizations",
            "kustomization",
            "surfaces",
            "surface",
            "web",
            "web-a",
            "web-b",
            "wob",
        ];
        let check = |typed: &str, expected: &[&str]| assert_eq!(find_close(typed, names), expected, "{typed}");
        check("kustomizatoin", &["kustomization", "kustomizations"]);
        check("Surfce", &["surface", "surfaces"]);
        check("wbe", &["web"]);
        check("web-", &["web", "web-a", "web-b"]);
        check("deployment", &[]);
        check("", &[]);
        check(&"x".repeat(1_000_000), &[]);
    }

    #[test]
    fn a_hint_lists_the_names() {
        assert_eq!(name_suggestions("wb", &["web"]).as_deref(), Some("did you mean web?"));
        let hint = name_suggestions("wed", &["web", "wet", "red"]);
        assert_eq!(hint.as_deref(), Some("did you mean red, web or wet?"));
        assert_eq!(name_suggestions("other", &["web"]), None);
    }
}
