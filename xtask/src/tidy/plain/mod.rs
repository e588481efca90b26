//! Counts the sentences that have to be read twice, in comments of Rust files, in the documents and in messages of the program. Most readers of the project read English
//! as a second language. Each crate has a ceiling, another one for its messages, and the documents have one together. A rule judges words only, so single sentences may break one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};

use super::{Finding, list_tracked_files, messages};
use ceilings::{CEILINGS, MESSAGE_CEILINGS, Shares, Subject};
use comments::{Form, find_comments};
use markdown::read_paragraphs;
use rules::{Rule, find_broken};
use sentences::split_sentences;

mod ceilings;
mod comments;
mod markdown;
mod message_sentences;
mod rules;
mod sentences;

/// The scope of the documents.
const DOCUMENTS: &str = "docs";

/// Documents in the root. All others are below `docs`.
const ROOT_DOCUMENTS: &[&str] = &["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];

/// The number of sentences of one crate, or of the documents, and the sentences that break a rule.
#[derive(Debug, Default)]
struct Measured {
    sentences: usize,
    flagged: Vec<Flagged>,
}

impl Measured {
    /// Counts the sentences that begin with a clause.
    fn clauses(&self) -> usize {
        self.flagged
            .iter()
            .filter(|flagged| flagged.begins_with_clause())
            .count()
    }
}

/// A sentence that breaks a rule.
#[derive(Debug)]
struct Flagged {
    file: String,
    line: usize,
    text: String,
    rules: Vec<Rule>,
}

impl Flagged {
    fn begins_with_clause(&self) -> bool {
        self.rules.contains(&Rule::ClauseFirst)
    }

    fn format_place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    fn describe(&self) -> String {
        let advice: Vec<String> = self.rules.iter().map(|rule| rule.advice()).collect();
        format!("{}: {}", advice.join("; "), self.text)
    }
}

/// Compares each crate, its messages, and the documents with their ceilings.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let messages = message_sentences::measure_messages(&messages::collect_messages(root, &[])?);
    let mut findings = ceilings::compare_shares(&measure_tree(root, &[])?, CEILINGS, Subject::Prose);
    findings.extend(ceilings::compare_shares(&messages, MESSAGE_CEILINGS, Subject::Messages));
    Ok(findings)
}

/// Lists the flagged sentences below some paths, which are relative to the root, and the counts. Without a path, all are listed.
pub(super) fn list_flagged(root: &Path, below: &[String]) -> anyhow::Result<String> {
    let measured = measure_tree(root, below)?;
    if measured.is_empty() {
        bail!(
            "no sentence below {}: name files or folders relative to the root of the checkout, such as crates/api/src",
            below.join(" ")
        );
    }
    let messages = message_sentences::measure_messages(&messages::collect_messages(root, below)?);
    let mut text = String::new();
    for measured in [&measured, &messages] {
        for flagged in measured.values().flat_map(|measured| &measured.flagged) {
            writeln!(text, "{}: {}", flagged.format_place(), flagged.describe())?;
        }
    }
    write_counts(&mut text, &measured, Subject::Prose)?;
    write_counts(&mut text, &messages, Subject::Messages)?;
    Ok(text)
}

fn write_counts(text: &mut String, scopes: &BTreeMap<String, Measured>, subject: Subject) -> std::fmt::Result {
    for (scope, measured) in scopes {
        let shares = Shares::measure(measured);
        writeln!(
            text,
            "{scope}: {} of {} {} have to be read twice ({} ‰), {} of them begin with a clause ({} ‰)",
            measured.flagged.len(),
            measured.sentences,
            subject.noun(),
            shares.flagged,
            measured.clauses(),
            shares.clauses,
        )?;
    }
    Ok(())
}

fn measure_tree(root: &Path, below: &[String]) -> anyhow::Result<BTreeMap<String, Measured>> {
    let mut scopes: BTreeMap<String, Measured> = BTreeMap::new();
    let is_wanted = |path: &str| below.is_empty() || below.iter().any(|folder| Path::new(path).starts_with(folder));
    for path in list_tracked_files(root)?.into_iter().filter(|path| is_wanted(path)) {
        let Some(scope) = find_scope(&path) else {
            continue;
        };
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let measured = scopes.entry(scope.to_owned()).or_default();
        measure_file(&path, &text, measured);
    }
    Ok(scopes)
}

/// Returns the crate of a source file or test, or the documents.
fn find_scope(path: &str) -> Option<&str> {
    if path.ends_with(".md") {
        return (ROOT_DOCUMENTS.contains(&path) || path.starts_with("docs/")).then_some(DOCUMENTS);
    }
    let parts: Vec<&str> = path.split('/').collect();
    let folder = match parts.as_slice() {
        ["crates", name, "src" | "tests", ..] => path.get(.."crates/".len() + name.len()),
        ["xtask", "src" | "tests", ..] => Some("xtask"),
        _ => None,
    };
    folder.filter(|_| path.ends_with(".rs"))
}

fn measure_file(file: &str, text: &str, measured: &mut Measured) {
    if file.ends_with(".md") {
        let lines = text.lines().enumerate();
        measure_prose(file, lines.map(|(number, line)| (number + 1, line)), false, measured);
    } else {
        for comment in find_comments(text) {
            let is_documentation = comment.form == Form::Doc;
            measure_prose(file, comment.lines, is_documentation, measured);
        }
    }
}

fn measure_prose<'a>(
    file: &str,
    lines: impl IntoIterator<Item = (usize, &'a str)>,
    is_documentation: bool,
    measured: &mut Measured,
) {
    let mut opens_documentation = is_documentation;
    for sentence in read_paragraphs(lines).iter().flat_map(split_sentences) {
        let rules = find_broken(&sentence, std::mem::take(&mut opens_documentation));
        measured.sentences += 1;
        if !rules.is_empty() {
            measured.flagged.push(Flagged {
                file: file.to_owned(),
                line: sentence.line,
                text: sentence.text,
                rules,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, sentences: usize, want: &[usize]) {
        let mut measured = Measured::default();
        measure_file(file, text, &mut measured);
        let lines: Vec<usize> = measured.flagged.iter().map(|flagged| flagged.line).collect();
        assert_eq!((measured.sentences, lines.as_slice()), (sentences, want), "{text}");
    }

    #[test]
    fn files() {
        check(
            "a.md",
            "# About `a` lanes\n\nA lane starts. It\nstarts anew.\n",
            3,
            &[3],
        );
        check("a.md", "It is read once.", 1, &[]);
        check(
            "a.rs",
            "/// It is read once. It is fast,\n/// or nobody waits.",
            2,
            &[1, 1],
        );
        check(
            "a.rs",
            "/// The lane starts.\n///\n/// It is read.\nfn a() {}\n/// It is read.",
            3,
            &[5],
        );
        check("a.rs", "//! It is read once.\n// It is read once.", 2, &[]);
        check(
            "a.rs",
            "let a = \"Nobody is told // that\"; // A lane starts anew",
            1,
            &[1],
        );
        check(
            "a.rs",
            "/// A table:\n///\n/// ```\n/// // nobody waits here\n/// ```\n/// - nobody waits here",
            1,
            &[6],
        );
    }

    #[test]
    fn scopes() {
        let check = |path: &str, want: Option<&str>| assert_eq!(find_scope(path), want, "{path}");
        check("crates/api/src/a/b.rs", Some("crates/api"));
        check("crates/api/tests/it/main.rs", Some("crates/api"));
        check("xtask/src/main.rs", Some("xtask"));
        check("docs/decisions/1.md", Some("docs"));
        check("README.md", Some("docs"));
        for path in [
            "CHANGELOG.md",
            "crates/api/README.md",
            "crates/api/tests/a.md",
            "crates/api/build.rs",
            "src.rs",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn a_path_narrows_the_list() {
        let root = crate::tidy::find_root();
        let text = list_flagged(&root, &["xtask/src/tidy".to_owned()]).expect("listed");
        assert_eq!(
            text.lines().filter(|line| !line.starts_with("xtask")).count(),
            0,
            "{text}"
        );
        let missing = list_flagged(&root, &["xtask/sr".to_owned()]).expect_err("no such folder");
        assert!(missing.to_string().contains("no sentence below xtask/sr"), "{missing}");
    }
}
