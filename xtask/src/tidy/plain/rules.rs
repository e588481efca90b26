//! The rules for one sentence. A rule finds a form that most readers read twice. It judges words, not meaning: a sentence that it finds can be correct, and the ceilings
//! leave room for some.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::sentences::Sentence;

/// The most words of one sentence.
const LONGEST: usize = 32;

/// A clause with fewer words is a label, such as "What changed".
const SHORTEST_CLAUSE: usize = 5;

/// The most negations of one sentence, if two of them are in one clause.
const MOST_NEGATIONS: usize = 2;

/// The most clauses with `whose`, `whom` or `of which` in one sentence.
const MOST_RELATIVES: usize = 1;

/// A reason to read a sentence twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// The sentence begins with a clause in the place of its subject.
    ClauseFirst,
    /// The sentence has too many words.
    Long,
    /// A word without a definite meaning, and words to write instead.
    Vague(&'static str, &'static str),
    /// The comment begins with a pronoun, and the noun is in another place.
    PronounFirst,
    /// The sentence has many negations, or clauses within clauses.
    Stacked,
}

impl Rule {
    /// Returns the name of the rule, and the solution.
    pub(super) fn advice(self) -> String {
        match self {
            Self::ClauseFirst => "begins with a clause: begin with the noun that acts".to_owned(),
            Self::Long => format!("more than {LONGEST} words: one sentence for each idea, or a list"),
            Self::Vague(word, instead) => format!("{word:?}: write {instead}"),
            Self::PronounFirst => "begins with a pronoun: begin with the noun".to_owned(),
            Self::Stacked => "stacked negations or clauses: state the positive case, in two sentences".to_owned(),
        }
    }
}

/// Words that begin a clause.
const CLAUSE: &[&str] = &[
    "what",
    "whatever",
    "which",
    "whichever",
    "who",
    "whoever",
    "whom",
    "whomever",
    "whose",
];

/// Words before `what`, `which`, `whom` or `whose` at the beginning of a clause.
const PREPOSITIONS: &[&str] = &[
    "about", "at", "beside", "by", "for", "from", "in", "of", "on", "through", "to", "under", "with",
];

/// Words that begin a new clause, besides punctuation.
const CONJUNCTIONS: &[&str] = &[
    "and", "as", "because", "but", "if", "nor", "or", "since", "so", "than", "unless", "until", "when", "while",
];

/// Pronouns that replace a noun.
const PRONOUNS: &[&str] = &[
    "he", "it", "its", "neither", "none", "others", "she", "so", "such", "their", "theirs", "they",
];

/// Words that are pronouns unless a noun follows.
const DETERMINERS: &[&str] = &["all", "another", "both", "one", "that", "these", "this", "those"];

/// Words that follow a pronoun, and begin no noun.
const NO_NOUN: &[&str] = &[
    "about", "above", "also", "and", "are", "as", "at", "before", "below", "beside", "but", "by", "can", "does", "for",
    "from", "had", "has", "have", "here", "in", "is", "may", "must", "needs", "of", "on", "only", "or", "that",
    "there", "to", "under", "was", "were", "which", "who", "whose", "will", "with", "without",
];

/// Vague words, and what to write instead.
const VAGUE: &[(&str, &str)] = &[
    ("anew", "\"again\", or a verb such as \"re-create\" or \"retry\""),
    ("anybody", "the role: any user, any account"),
    ("everybody", "the role: all users, all accounts"),
    ("nobody", "the role that is excluded: no user, no account"),
    ("somebody", "the role: a user, an owner, an administrator"),
    ("whatever", "\"any\" or \"each\" with the noun"),
    ("whoever", "the role: a user, an owner, the controller"),
    ("whomever", "the role: a user, an owner, the controller"),
    ("thereby", "a second sentence with its own subject"),
    ("hereby", "the verb alone"),
    ("beforehand", "\"before\" with the event"),
    ("as ever", "\"as before\", or the rule itself"),
    ("at work", "\"running\" or \"active\""),
    ("under way", "\"in progress\" or \"running\""),
    ("from now on", "the event or the time at which this begins"),
    ("of its own accord", "\"without a request\", or the trigger"),
    ("for want of", "\"because there is no\""),
    ("what is more", "\"also\""),
    ("comes to be", "\"becomes\", or \"is created\""),
    ("came to be", "\"became\", or \"was created\""),
    ("is told", "\"receives\", \"is notified\", or the field that holds this"),
    (
        "are told",
        "\"receive\", \"are notified\", or the field that holds this",
    ),
    ("is said", "the subject and its verb: X reports, X defines"),
    ("are said", "the subject and its verb: X reports, X defines"),
    ("is asked for", "\"is requested\""),
    ("are asked for", "\"are requested\""),
    ("let go of", "\"release\""),
    ("lets go of", "\"releases\""),
    ("see to", "\"reconcile\", \"own\" or \"ensure\""),
    ("sees to", "\"reconciles\", \"owns\" or \"ensures\""),
    ("there is none", "\"X does not exist\", with the noun"),
    ("none is", "\"no X is\", with the noun"),
    ("the one that", "the noun"),
    ("those that", "the noun"),
    ("what there is", "the noun"),
];

/// Words of messages that only the project uses, and what to write instead. Many comments explain them, and no message does.
const PRIVATE: &[(&str, &str)] = &[
    ("are there", "\"exist\""),
    ("are told", "\"receive\", or the noun that holds this"),
    ("as whom", "\"as\" with the account"),
    ("figures", "\"metrics\""),
    ("gave out", "\"issued\""),
    ("gives out", "\"issues\""),
    ("is none", "\"is not a X\", with the noun"),
    ("is not there", "\"does not exist\", or \"is missing\""),
    ("is there", "\"exists\""),
    ("isn't there", "\"does not exist\", or \"is missing\""),
    ("is wanted", "\"must be\", with the form"),
    ("judge", "\"check\" or \"validate\""),
    ("judged", "\"checked\" or \"validated\""),
    ("lets through", "\"admits\" or \"approves\""),
    ("lets it through", "\"admits it\" or \"approves it\""),
    ("no room", "\"no capacity\", or the limit"),
    ("of before", "\"previous\""),
    ("once more", "\"again\""),
    ("stands in", "\"is in\", or \"exists in\""),
    ("stands on", "\"is on\", or \"the X has\""),
    ("takes it for", "\"authenticates it as\""),
    ("takes them for", "\"authenticates them as\""),
    ("told", "\"reported\", or the noun"),
];

/// Phrases by the first word: nearly all words of a text begin no phrase.
type ByFirstWord = HashMap<&'static str, Vec<(&'static str, &'static str)>>;

static VAGUE_BY_FIRST_WORD: LazyLock<ByFirstWord> = LazyLock::new(|| by_first_word(VAGUE));

static PRIVATE_BY_FIRST_WORD: LazyLock<ByFirstWord> = LazyLock::new(|| by_first_word(PRIVATE));

fn by_first_word(list: &'static [(&'static str, &'static str)]) -> ByFirstWord {
    let mut phrases = ByFirstWord::new();
    for (phrase, instead) in list {
        let first = phrase.split(' ').next().unwrap_or_default();
        phrases.entry(first).or_default().push((*phrase, *instead));
    }
    phrases
}

/// Lists the rules that a sentence of a message breaks. A message may begin with a pronoun, as in "spec.url: it has a query".
pub(super) fn broken_in_message(sentence: &Sentence) -> Vec<Rule> {
    let words: Vec<&str> = sentence.words.iter().map(String::as_str).collect();
    let mut rules = find_broken(sentence, false);
    if !rules.iter().any(|rule| matches!(rule, Rule::Vague(..))) {
        rules.extend(find_vague(&words, &PRIVATE_BY_FIRST_WORD));
    }
    rules
}

/// Lists the rules that a sentence breaks. `opens_documentation`: the sentence is the first one of an item's documentation.
pub(super) fn find_broken(sentence: &Sentence, opens_documentation: bool) -> Vec<Rule> {
    let words: Vec<&str> = sentence.words.iter().map(String::as_str).collect();
    let mut rules = Vec::new();
    if begins_with_clause(sentence, &words) {
        rules.push(Rule::ClauseFirst);
    }
    if words.len() > LONGEST {
        rules.push(Rule::Long);
    }
    rules.extend(find_vague(&words, &VAGUE_BY_FIRST_WORD));
    if opens_documentation && begins_with_pronoun(&words) {
        rules.push(Rule::PronounFirst);
    }
    if is_stacked(sentence, &words) {
        rules.push(Rule::Stacked);
    }
    rules
}

fn begins_with_clause(sentence: &Sentence, words: &[&str]) -> bool {
    let is_question = sentence.text.trim_end_matches(['"', ')']).ends_with('?');
    // A text in lower case is a part of a sentence, such as a list item.
    let is_part = sentence
        .text
        .chars()
        .find(|c| c.is_alphabetic())
        .is_some_and(char::is_lowercase);
    if is_question || is_part || words.len() < SHORTEST_CLAUSE {
        return false;
    }
    match words {
        // With a comma, the clause is a condition, and the subject follows.
        ["where" | "wherever", ..] => !sentence.text.contains(','),
        ["that", "which" | "who", ..] | ["of", "those", ..] => true,
        [first, second, ..] => CLAUSE.contains(first) || (PREPOSITIONS.contains(first) && CLAUSE.contains(second)),
        _ => false,
    }
}

fn find_vague(words: &[&str], phrases: &ByFirstWord) -> Option<Rule> {
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let same_begin = phrases.get(stem_word(word)).into_iter().flatten();
        for (phrase, instead) in same_begin.copied() {
            let mut others = phrase.split(' ').skip(1).zip(after);
            let is_whole = phrase.split(' ').count() <= rest.len();
            if is_whole && others.all(|(wanted, word)| stem_word(word) == wanted) {
                return Some(Rule::Vague(phrase, instead));
            }
        }
        rest = after;
    }
    None
}

fn stem_word(word: &str) -> &str {
    word.strip_suffix("'s").unwrap_or(word)
}

fn begins_with_pronoun(words: &[&str]) -> bool {
    match words {
        // The rule for clauses finds these.
        ["that", "which" | "who", ..] => false,
        ["the", "same" | "one" | "ones" | "others", second, ..] => NO_NOUN.contains(second),
        [first, second, ..] if DETERMINERS.contains(first) => NO_NOUN.contains(second),
        [first, ..] => PRONOUNS.contains(first),
        [] => false,
    }
}

fn is_stacked(sentence: &Sentence, words: &[&str]) -> bool {
    let negations = words.iter().filter(|word| is_negation(word)).count();
    let relatives = words.iter().enumerate().filter(|(at, word)| match **word {
        "whom" | "whose" => true,
        "which" => at
            .checked_sub(1)
            .and_then(|at| words.get(at))
            .is_some_and(|before| PREPOSITIONS.contains(before)),
        _ => false,
    });
    relatives.count() > MOST_RELATIVES || (negations > MOST_NEGATIONS && has_double_negation(&sentence.text))
}

fn is_negation(word: &str) -> bool {
    matches!(
        word,
        "cannot" | "neither" | "never" | "no" | "nobody" | "none" | "not" | "nothing" | "nowhere" | "without"
    ) || word.ends_with("n't")
}

/// Checks whether one clause has two negations. A list such as "no key, no value and no line" has one in each part.
fn has_double_negation(text: &str) -> bool {
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let prose = prose.join("X").to_lowercase();
    prose.split([',', ';', ':', '(', ')']).any(|clause| {
        let words: Vec<&str> = clause.split(' ').map(|word| word.trim_matches(['.', '"'])).collect();
        let parts = words.split(|word| CONJUNCTIONS.contains(word));
        parts
            .map(|part| part.iter().filter(|word| is_negation(word)).count())
            .any(|count| count > 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::plain::markdown::read_paragraphs;
    use crate::tidy::plain::sentences::split_sentences;

    /// Compares the broken rules of the first sentence with the beginnings of their advice.
    fn check(text: &str, want: &[&str]) {
        let paragraph = &read_paragraphs([(1, text)])[0];
        let sentence = &split_sentences(paragraph)[0];
        let got: Vec<String> = find_broken(sentence, true).into_iter().map(Rule::advice).collect();
        assert_eq!(got.len(), want.len(), "{text}: {got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.starts_with(want), "{text}: {got} is not {want}");
        }
    }

    #[test]
    fn clause_first() {
        let clause: &[&str] = &["begins with a clause"];
        check("Who owns several Tenants selects one.", clause);
        check("What was deleted may come back.", clause);
        check("Whose account it is decides the rest.", clause);
        check("Of which the last one is read.", clause);
        check("That which a lane holds stays locked.", clause);
        check("Where the reader of the log stands.", clause);
        check("What is the owner of a namespace?", &[]);
        check("\"Who owns this namespace of ours?\"", &[]);
        check("Where a webhook runs, policies wait.", &[]);
        check("What changed last.", &[]);
        check("`What` begins a clause, too.", &[]);
        check("what an owner may write there", &[]);
        check("In a namespace, the owner decides which.", &[]);
        check("Whether the object exists on the server.", &[]);
    }

    #[test]
    fn long() {
        let words = |count: usize| format!("A{}.", " word".repeat(count - 1));
        check(&words(32), &[]);
        check(&words(33), &["more than 32"]);
        check(&format!("A `{}` b c.", words(50)), &[]);
    }

    #[test]
    fn vague_words() {
        check("The lane starts anew after that.", &["\"anew\""]);
        check("A namespace is nobody's before that.", &["\"nobody\""]);
        check("The lane lets go of its lock.", &["\"lets go of\""]);
        check("Any key works, whatever: this one is said to.", &["\"whatever\""]);
        check("The field `nobody` exists.", &[]);
        check("The lane lets go.", &[]);
        check("A renewal is announced.", &[]);
        for (phrase, instead) in VAGUE {
            assert!(!instead.is_empty());
            check(&format!("Then X {phrase} Y."), &[&format!("{phrase:?}")]);
        }
    }

    #[test]
    fn messages() {
        let check = |text: &str, want: &[&str]| {
            let sentence = &split_sentences(&read_paragraphs([(1, text)])[0])[0];
            let got: Vec<String> = broken_in_message(sentence).into_iter().map(Rule::advice).collect();
            assert_eq!(got.len(), want.len(), "{text}: {got:?}");
            for (got, want) in got.iter().zip(want) {
                assert!(got.starts_with(want), "{text}: {got} is not {want}");
            }
        };
        check("It is larger than 64 KiB", &[]);
        check("What comes after stage 2", &["begins with a clause"]);
        check("NAME=FOLDER is wanted", &["\"is wanted\""]);
        check("Nobody is told of it", &["\"nobody\""]);
        for (phrase, _) in PRIVATE {
            check(&format!("Then X {phrase} Y."), &[&format!("{phrase:?}")]);
        }
    }

    #[test]
    fn pronoun_first() {
        let pronoun: &[&str] = &["begins with a pronoun"];
        check("It is read once.", pronoun);
        check("Its last known state.", pronoun);
        check("The same as above.", pronoun);
        check("Those of the tenant.", pronoun);
        check("All that was read.", pronoun);
        check("This crate reads logs.", &[]);
        check("All namespaces of a tenant.", &[]);
        check("The one place for this.", &[]);
        let sentence = &split_sentences(&read_paragraphs([(1, "It is read once.")])[0])[0];
        assert!(find_broken(sentence, false).is_empty());
    }

    #[test]
    fn stacked() {
        let stacked: &[&str] = &["stacked negations or clauses"];
        check("A lane does not stop without a lock, nor does it not start.", stacked);
        check("A reader can't know that no lock isn't held.", stacked);
        check("A lane whose owner has a Tenant whose name is long.", stacked);
        check("The lock of which a lane whose name is long knows.", stacked);
        check("A lane does not stop without a lock.", &[]);
        check("A line has no key, no value and no comment.", &[]);
        check("A line `not no never` is not read without a key.", &[]);
        check("Which lists are maps, which are sets, and which are atomic?", &[]);
        check("A lane whose owner is unknown.", &[]);
    }

    #[test]
    fn several_rules() {
        check(
            "Whoever asks is told that it works.",
            &["begins with a clause", "\"whoever\""],
        );
        check("Ünïcode → 中文 ‘nobody’ is fine.", &["\"nobody\""]);
    }
}
