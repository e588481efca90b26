//! Collects the texts that the program can print to a user: errors, conditions, events, hints and logs. Their source is the string literals of the crates whose texts
//! reach users. A heuristic separates sentences from names, expressions and templates.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};

use super::list_tracked_files;
use literals::read_shipped_part;

mod literals;

/// The crates whose texts reach users.
const CRATES: &[&str] = &[
    "admission",
    "admission-rules",
    "api",
    "cluster",
    "controllers",
    "git-access",
    "git-hosts",
    "inspection",
    "planner",
    "reach",
    "sources",
    "tenancy",
    "tenure",
];

/// The fewest words of a message.
const FEWEST_WORDS: usize = 3;

/// The fewest words with letters alone. A list of placeholders or flags is no message.
const FEWEST_PLAIN_WORDS: usize = 2;

/// Parts of texts for machines: CEL, JSON, YAML, regular expressions, markup.
const FOREIGN_PARTS: &[&str] = &[
    "==",
    "!=",
    "&&",
    "||",
    "::",
    "=>",
    "{{",
    "{\"",
    "\": ",
    "(?",
    "\\d",
    "\\s",
    "[^",
    ".all(",
    ".exists(",
    ".map(",
    ".filter(",
    "has(",
    "apiVersion",
    "<svg",
    "</",
    "/>",
];

/// One message.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Message {
    /// The file, relative to the root.
    pub(super) file: String,
    /// The number of its first line.
    pub(super) line: usize,
    /// The text, with its placeholders.
    pub(super) text: String,
}

/// Lists the messages below some paths, which are relative to the root, one a line. Without a path, all are listed.
pub(super) fn list_messages(root: &Path, below: &[String]) -> anyhow::Result<String> {
    let messages = collect_messages(root, below)?;
    if messages.is_empty() {
        bail!(
            "no message below {}: name files or folders of these crates, relative to the root of the checkout, such as crates/{}",
            below.join(" "),
            CRATES.join(", crates/")
        );
    }
    let mut text = String::new();
    for message in messages {
        let on_one_line = message.text.replace('\n', "\\n");
        writeln!(text, "{}:{}: {on_one_line}", message.file, message.line)?;
    }
    Ok(text)
}

/// Collects the messages below some paths, sorted by file and line.
pub(super) fn collect_messages(root: &Path, below: &[String]) -> anyhow::Result<Vec<Message>> {
    let mut found = Vec::new();
    let mut test_modules = BTreeSet::new();
    for path in list_tracked_files(root)?.into_iter().filter(|path| is_source(path)) {
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let part = read_shipped_part(&text);
        let folder = module_folder(&path);
        test_modules.extend(part.test_modules.iter().map(|name| format!("{folder}/{name}")));
        let messages = part.literals.into_iter().filter(|literal| is_message(&literal.text));
        found.extend(messages.map(|literal| Message {
            file: path.clone(),
            line: literal.line,
            text: literal.text,
        }));
    }
    let is_wanted = |path: &str| below.is_empty() || below.iter().any(|folder| Path::new(path).starts_with(folder));
    let is_test = |path: &str| {
        let path = path.strip_suffix(".rs").unwrap_or(path);
        Path::new(path)
            .ancestors()
            .filter_map(Path::to_str)
            .any(|module| test_modules.contains(module))
    };
    found.retain(|message| is_wanted(&message.file) && !is_test(&message.file));
    found.sort();
    Ok(found)
}

/// Checks whether a file belongs to the source of a crate whose texts reach users.
fn is_source(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["crates", name, "src", ..] if CRATES.contains(name)) && path.ends_with(".rs")
}

/// Returns the folder with the modules that a file declares.
fn module_folder(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => path.strip_suffix(".rs").unwrap_or(path),
    }
}

/// Checks whether a text is a message: some words of a language, separated by single spaces.
fn is_message(text: &str) -> bool {
    if FOREIGN_PARTS.iter().any(|part| text.contains(part)) {
        return false;
    }
    let text = join_placeholders(text);
    text.lines().any(|line| {
        let words: Vec<&str> = line.trim().split(' ').collect();
        let is_spaced = words.iter().all(|word| !word.is_empty());
        let plain_words = words.iter().filter(|word| is_plain_word(word)).count();
        is_spaced && words.len() >= FEWEST_WORDS && plain_words >= FEWEST_PLAIN_WORDS
    })
}

/// Checks whether a word has letters alone, and punctuation around it. A flag is none.
fn is_plain_word(word: &str) -> bool {
    let word = word.trim_matches(|c: char| "\"'()[],.:;!?`".contains(c));
    word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-'))
}

/// Takes the spaces out of placeholders, so that each counts as one word.
fn join_placeholders(text: &str) -> String {
    let mut is_placeholder = false;
    text.chars()
        .filter(|c| {
            match c {
                '{' => is_placeholder = true,
                '}' => is_placeholder = false,
                _ => {}
            }
            !is_placeholder || *c != ' '
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree has more messages. Fewer mean that the collector misses some.
    const FLOOR: usize = 3000;

    #[test]
    fn messages_are_sentences() {
        for text in [
            "no such file",
            "{path}: is a folder",
            "{} of {} sources",
            "{name}: {problem:?} at {line}, expected a number",
            "the owner's account can't read: ask it",
            "the apply failed:\n{answer}",
        ] {
            assert!(is_message(text), "{text}");
        }
        for text in [
            "",
            "spec.path",
            "not found",
            "{} {} {}",
            "{a} {b} x",
            "--name -n -o json",
            "object.metadata.name == oldObject.metadata.name && true",
            "{\"kind\": \"a b c\"}",
            "apiVersion: v1 of some kind",
            "a  b  c",
            "std::fs is a module",
        ] {
            assert!(!is_message(text), "{text}");
        }
    }

    #[test]
    fn a_placeholder_is_one_word() {
        assert_eq!(join_placeholders("a {b: >5 } c { d } e"), "a {b:>5} c {d} e");
        assert!(!is_message("{one two three four}"));
    }

    #[test]
    fn sources_are_files_of_some_crates() {
        for (path, want) in [
            ("crates/planner/src/a/b.rs", true),
            ("crates/planner/tests/it/a.rs", false),
            ("crates/planner/benches/a.rs", false),
            ("crates/planner/build.rs", false),
            ("crates/planner/src/a.json", false),
            ("crates/kinds/src/lib.rs", false),
        ] {
            assert_eq!(is_source(path), want, "{path}");
        }
    }

    #[test]
    fn modules_are_in_a_folder() {
        assert_eq!(module_folder("crates/a/src/lib.rs"), "crates/a/src");
        assert_eq!(module_folder("crates/a/src/b/mod.rs"), "crates/a/src/b");
        assert_eq!(module_folder("crates/a/src/b.rs"), "crates/a/src/b");
    }

    #[test]
    fn the_tree_has_messages_in_each_crate() {
        let root = crate::tidy::find_root();
        let messages = collect_messages(&root, &[]).expect("collected");
        assert!(messages.len() >= FLOOR, "{} messages", messages.len());
        for name in CRATES {
            let folder = format!("crates/{name}/");
            assert!(
                messages.iter().any(|message| message.file.starts_with(&folder)),
                "{name}"
            );
        }
        assert!(messages.is_sorted());
    }

    #[test]
    fn a_path_narrows_the_list() {
        let root = crate::tidy::find_root();
        let text = list_messages(&root, &["crates/tenure/src".to_owned()]).expect("listed");
        let others = text.lines().filter(|line| !line.starts_with("crates/tenure/src/"));
        assert_eq!(others.count(), 0, "{text}");
        let missing = list_messages(&root, &["crates/kinds".to_owned()]).expect_err("no messages");
        assert!(
            missing.to_string().contains("no message below crates/kinds"),
            "{missing}"
        );
    }
}
