//! The texts of Warning headers: each once, and no more of them than Kubernetes sends.
//!
//! If they are longer than [`MOST`] characters in total, each is cut to [`LONGEST`], and texts beyond [`MOST`] are
//! dropped.

use std::borrow::Cow;

/// Limit for the total characters, before any text is cut, and after that.
const MOST: usize = 4 * 1024;
/// Limit for the characters of one text after that.
const LONGEST: usize = 256;

fn count_characters(text: &str) -> usize {
    text.chars().count()
}

/// Adds a text, if it will be sent.
pub(crate) fn add_warning(texts: &mut Vec<String>, text: String) {
    let whole: usize = texts.iter().map(|text| count_characters(text)).sum();
    let cut: usize = texts.iter().map(|text| count_characters(text).min(LONGEST)).sum();
    let is_full = whole > MOST && cut >= MOST;
    if is_full || text.is_empty() || texts.contains(&text) {
        return;
    }
    texts.push(text);
}

/// Returns the texts that are sent.
pub(crate) fn list_sent(texts: &[String]) -> impl Iterator<Item = Cow<'_, str>> {
    let cuts = texts.iter().map(|text| count_characters(text)).sum::<usize>() > MOST;
    texts.iter().map(move |text| {
        if cuts {
            Cow::Owned(text.chars().take(LONGEST).collect())
        } else {
            Cow::Borrowed(text.as_str())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_sent_after_adding(all: &[String]) -> Vec<String> {
        let mut texts = Vec::new();
        all.iter().for_each(|text| add_warning(&mut texts, text.clone()));
        list_sent(&texts).map(Cow::into_owned).collect()
    }

    #[test]
    fn few_are_sent_as_they_are() {
        let long = "x".repeat(MOST);
        assert_eq!(
            list_sent_after_adding(&[long.clone(), long.clone(), String::new()]),
            [long]
        );
    }

    #[test]
    fn many_are_cut_and_then_dropped() {
        let all: Vec<String> = (0..60_000).map(|index| format!("{index:0>300}")).collect();
        let cut = list_sent_after_adding(&all);
        assert_eq!(cut.len(), MOST / LONGEST);
        assert!(cut.iter().all(|text| text.len() == LONGEST));
        let short: Vec<String> = (0..60_000).map(|index| format!("{index:0>64}")).collect();
        // The text that exceeded the limit is sent, too.
        assert_eq!(list_sent_after_adding(&short), short[..=MOST / 64]);
    }
}
