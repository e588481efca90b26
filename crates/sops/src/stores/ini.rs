//! INI files as SOPS reads and writes them with Go's `ini.v1`: repeated sections, comments before a section or after a key, quotes, continued lines, and aligned `=`.

use zeroize::Zeroizing;

use crate::error::Error;
use crate::stores::dotenv::as_text;
use crate::tree::{Comment, Document, Entry, Node, NodeCounter, Span, Value};

/// The section before all others. It has no header if it comes first.
const DEFAULT: &str = "DEFAULT";
const DELIMITERS: [char; 2] = ['=', ':'];
const TRIPLE: &str = "\"\"\"";

/// Reads a file into a map of its sections.
///
/// # Errors
/// For a line that is no section, no comment and no pair.
pub(crate) fn read(file: &str, count: &mut NodeCounter) -> Result<Document, Error> {
    let mut reader = Reader {
        rest: file.strip_prefix('\u{feff}').unwrap_or(file),
        line: 0,
        comment: String::new(),
    };
    let mut sections = vec![(DEFAULT.to_owned(), Section::default())];
    while !reader.rest.is_empty() {
        let whole = reader.next_line();
        let line = whole.trim_start();
        if line.is_empty() {
            continue;
        }
        count.count_node(2)?;
        go_yaml::meter::count_text(line.len());
        if line.starts_with(['#', ';']) {
            reader.comment.push_str(line);
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let (name, behind) = header
                .rsplit_once(']')
                .ok_or(reader.fail("a section's name doesn't end"))?;
            if name.is_empty() {
                return Err(reader.fail("a section has no name"));
            }
            if let Some(at) = behind.find(['#', ';']) {
                reader.comment.push_str(behind.get(at..).unwrap_or_default());
            }
            let section = Section {
                comment: reader.take_comment(),
                ..Section::default()
            };
            sections.push((name.to_owned(), section));
            continue;
        }
        let (name, value) = reader.split_key(line)?;
        let value = reader.read_value(value)?;
        let comment = reader.take_comment();
        if let Some((_, section)) = sections.last_mut() {
            let name = if name == "-" {
                section.numbered += 1;
                format!("#{}", section.numbered)
            } else {
                name
            };
            section.put_pair(name, value, comment);
        }
    }
    let entries = sections.into_iter().map(|(name, section)| Entry::Pair {
        key: name,
        value: Node::new(Value::Map(section.into_entries())),
        whole: Span::default(),
    });
    Ok(Document {
        entries: entries.collect(),
        cuts: Vec::new(),
        is_flow: false,
    })
}

/// A section of an INI file while its lines are read.
#[derive(Default)]
struct Section {
    comment: String,
    pairs: Vec<(String, String, String)>,
    known: std::collections::HashMap<String, usize>,
    /// The number of keys without a name so far.
    numbered: usize,
}

impl Section {
    /// Adds a pair. An existing key keeps its place and gets the new value.
    fn put_pair(&mut self, name: String, value: String, comment: String) {
        match self.known.get(&name).and_then(|at| self.pairs.get_mut(*at)) {
            Some(pair) => {
                pair.1 = value;
                pair.2 = comment;
            }
            None => {
                self.known.insert(name.clone(), self.pairs.len());
                self.pairs.push((name, value, comment));
            }
        }
    }

    fn into_entries(self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = comment_entry(&self.comment).into_iter().collect();
        for (name, value, comment) in self.pairs {
            entries.push(Entry::Pair {
                key: name,
                value: Node::text(value),
                whole: Span::default(),
            });
            entries.extend(comment_entry(&comment));
        }
        entries
    }
}

/// Returns a comment without its first character.
fn comment_entry(comment: &str) -> Option<Entry> {
    let text = match comment.chars().next()? {
        ';' => comment.trim_start_matches([';', ' ']),
        '#' => comment.trim_start_matches(['#', ' ']),
        _ => comment,
    };
    Some(Entry::Comment(Comment::new(text, Span::default())))
}

/// Reads the lines of an INI file.
struct Reader<'a> {
    rest: &'a str,
    line: usize,
    /// The comment that belongs to the next section or key.
    comment: String,
}

impl<'a> Reader<'a> {
    /// Returns the next line, with its line end.
    fn next_line(&mut self) -> &'a str {
        let end = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += 1;
        go_yaml::meter::count_steps(1 + line.len() / 16);
        line
    }

    fn fail(&self, what: &'static str) -> Error {
        Error::Syntax { line: self.line, what }
    }

    fn take_comment(&mut self) -> String {
        std::mem::take(&mut self.comment).trim().to_owned()
    }

    /// Splits a line into the name of a key and the text after the delimiter.
    fn split_key<'b>(&self, line: &'b str) -> Result<(String, &'b str), Error> {
        const NO_DELIMITER: &str = "it is not a line of an INI file: there is neither `=` nor `:`";
        let quote = if line.len() > 6 && line.starts_with(TRIPLE) {
            TRIPLE
        } else if line.starts_with('"') {
            "\""
        } else if line.starts_with('`') {
            "`"
        } else {
            let at = line.find(DELIMITERS).ok_or(self.fail(NO_DELIMITER))?;
            if at == 0 {
                return Err(self.fail("a key has no name"));
            }
            let (name, value) = line.split_at_checked(at).unwrap_or((line, ""));
            return Ok((self.read_name(name)?, value.get(1..).unwrap_or_default()));
        };
        let inside = line.get(quote.len()..).unwrap_or_default();
        let (name, behind) = inside
            .split_once(quote)
            .ok_or(self.fail("the quotes of a key don't end"))?;
        let at = behind.find(DELIMITERS).ok_or(self.fail(NO_DELIMITER))?;
        Ok((self.read_name(name)?, behind.get(at + 1..).unwrap_or_default()))
    }

    fn read_name(&self, name: &str) -> Result<String, Error> {
        let name = name.trim();
        if name.is_empty() {
            return Err(self.fail("a key has no name"));
        }
        Ok(name.to_owned())
    }

    /// Reads the value after a delimiter. A comment on its line is stored for the key.
    fn read_value(&mut self, written: &str) -> Result<String, Error> {
        let line = written.trim_start();
        if line.is_empty() {
            return Ok(String::new());
        }
        let quote = if line.len() > 3 && line.starts_with(TRIPLE) {
            Some(TRIPLE)
        } else {
            line.starts_with('`').then_some("`")
        };
        if let Some(quote) = quote {
            let inside = line.get(quote.len()..).unwrap_or_default();
            return match inside.rsplit_once(quote) {
                Some((value, _)) => Ok(value.to_owned()),
                None => self.read_until(inside, quote),
            };
        }
        let mut line = line.trim();
        if let Some(before) = line.strip_suffix('\\') {
            return Ok(self.read_continued_lines(before));
        }
        if let Some(at) = line.find(['#', ';']) {
            self.comment.push_str(line.get(at..).unwrap_or_default());
            line = line.get(..at).unwrap_or_default().trim();
        }
        for quote in ['\'', '"'] {
            let inside = line.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
            if let Some(inside) = inside.filter(|inside| !inside.contains(quote)) {
                return Ok(inside.to_owned());
            }
        }
        Ok(line.to_owned())
    }

    /// Reads the lines of a quoted value, up to the closing quotes.
    fn read_until(&mut self, begun: &str, quote: &str) -> Result<String, Error> {
        let mut value = begun.to_owned();
        while !self.rest.is_empty() {
            let next = self.next_line();
            let Some((before, behind)) = next.rsplit_once(quote) else {
                value.push_str(next);
                continue;
            };
            if behind.trim_end_matches(['\r', '\n']).trim().ends_with('\\') {
                value.push_str(next);
                continue;
            }
            value.push_str(before);
            if let Some(at) = behind.find(['#', ';']) {
                self.comment.push_str(behind.get(at..).unwrap_or_default().trim());
            }
            return Ok(value);
        }
        Err(self.fail("the quotes of a value don't end"))
    }

    /// Reads the lines of a value that end with a backslash, and joins them.
    fn read_continued_lines(&mut self, begun: &str) -> String {
        let mut value = begun.to_owned();
        loop {
            let next = self.next_line().trim();
            value.push_str(next);
            if next.is_empty() || !value.ends_with('\\') {
                return value;
            }
            value.pop();
        }
    }
}

/// Writes a document as an INI file.
///
/// # Errors
/// When the document has anything but sections at the top.
pub(crate) fn write(document: &Document) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut file = Zeroizing::new(Vec::new());
    let sections: Vec<(&str, &[Entry])> = document
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Pair { key, value, .. } => Some((key, value)),
            Entry::Comment(_) => None,
        })
        .map(|(key, value)| match &value.value {
            Value::Map(entries) => Ok((key.as_str(), entries.as_slice())),
            _ => Err(Error::Unwritable("an INI file is made of sections")),
        })
        .collect::<Result<_, _>>()?;
    for (index, (name, entries)) in sections.iter().enumerate() {
        write_section(&mut file, name, entries, index == 0)?;
        let is_silent = index == 0 && is_default(name) && !entries.iter().any(is_pair);
        if index + 1 < sections.len() && !is_silent {
            file.push(b'\n');
        }
    }
    go_yaml::meter::count_bytes(file.len());
    Ok(file)
}

fn is_pair(entry: &Entry) -> bool {
    matches!(entry, Entry::Pair { .. })
}

fn is_default(name: &str) -> bool {
    name.eq_ignore_ascii_case(DEFAULT)
}

/// A key, its value, and its comment.
type Pair<'a> = (&'a str, Zeroizing<Vec<u8>>, Option<&'a str>);

fn write_section(file: &mut Vec<u8>, name: &str, entries: &[Entry], is_first: bool) -> Result<(), Error> {
    let mut entries = entries.iter().peekable();
    if let Some(Entry::Comment(comment)) = entries.next_if(|entry| !is_pair(entry)) {
        write_comment(file, &comment.text, false);
    }
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Pair { key, value, .. } => pairs.push((key, as_text(&value.value)?, None)),
            Entry::Comment(comment) => {
                if let Some(last) = pairs.last_mut() {
                    last.2 = Some(comment.text.as_str());
                }
            }
        }
    }
    if !(is_first && is_default(name)) {
        file.extend_from_slice(format!("[{name}]\n").as_bytes());
    }
    let length = |key: &str| {
        key.len()
            + match key {
                _ if key.contains('"') || key.contains(DELIMITERS) => 2,
                _ if key.contains('`') => 6,
                _ => 0,
            }
    };
    let column = pairs.iter().map(|(key, ..)| length(key)).max().unwrap_or(0);
    for (key, value, comment) in &pairs {
        if let Some(comment) = comment {
            write_comment(file, comment, true);
        }
        let quoted = match *key {
            key if key.contains('"') || key.contains(DELIMITERS) => format!("`{key}`"),
            key if key.contains('`') => format!("{TRIPLE}{key}{TRIPLE}"),
            key => key.to_owned(),
        };
        file.extend_from_slice(quoted.as_bytes());
        file.extend(std::iter::repeat_n(b' ', column - quoted.len().min(column)));
        file.extend_from_slice(b" = ");
        write_value(file, value);
        file.push(b'\n');
    }
    Ok(())
}

fn write_value(file: &mut Vec<u8>, value: &[u8]) {
    let quote = if value.iter().any(|byte| matches!(byte, b'\n' | b'`')) {
        TRIPLE
    } else if value.iter().any(|byte| matches!(byte, b'#' | b';')) {
        "`"
    } else if value.trim_ascii().len() != value.len() {
        "\""
    } else {
        ""
    };
    file.extend_from_slice(quote.as_bytes());
    file.extend_from_slice(value);
    file.extend_from_slice(quote.as_bytes());
}

fn write_comment(file: &mut Vec<u8>, comment: &str, is_trimmed: bool) {
    for line in comment.split('\n') {
        let (sign, text) = match line.strip_prefix(['#', ';']) {
            Some(text) => (line.get(..1).unwrap_or(";"), text.trim()),
            None if is_trimmed => (";", line.trim()),
            None => (";", line),
        };
        file.extend_from_slice(format!("{sign} {text}\n").as_bytes());
    }
}
