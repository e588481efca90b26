//! JSON as SOPS reads and writes it: keys keep their order, even repeated ones; integers of 64 bits are separate from other numbers; indentation is a tab. Files of no
//! format are JSON with one key, `data`.

use zeroize::Zeroizing;

use crate::error::Error;
use crate::text;
use crate::tree::{Document, Entry, Node, NodeCounter, Span, Value, find_field};

/// The key of the content of a file without a format.
pub(crate) const DATA: &str = "data";
const INDENT: &str = "\t";

/// Reads a file. Its first value must be an object; as in SOPS, the text after it is ignored.
///
/// # Errors
/// When the file isn't JSON.
pub(crate) fn read(file: &str, count: &mut NodeCounter) -> Result<Document, Error> {
    let mut reader = Reader { file, at: 0, count };
    reader.skip_blanks();
    if reader.peek() != Some(b'{') {
        return Err(reader.fail("SOPS encrypts JSON with an object at its top"));
    }
    let Value::Map(entries) = reader.read_value(0)?.value else {
        return Err(reader.fail("SOPS encrypts JSON with an object at its top"));
    };
    Ok(Document {
        entries,
        cuts: Vec::new(),
        is_flow: true,
    })
}

/// Parses JSON text into nodes.
struct Reader<'a, 'b> {
    file: &'a str,
    at: usize,
    count: &'b mut NodeCounter,
}

impl Reader<'_, '_> {
    fn peek(&self) -> Option<u8> {
        self.file.as_bytes().get(self.at).copied()
    }

    fn fail(&self, what: &'static str) -> Error {
        let before = self.file.as_bytes().get(..self.at).unwrap_or_default();
        Error::Syntax {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            what,
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Error> {
        self.skip_blanks();
        if self.peek() != Some(byte) {
            return Err(self.fail(what));
        }
        self.at += 1;
        Ok(())
    }

    fn read_value(&mut self, depth: usize) -> Result<Node, Error> {
        self.count.count_node(depth)?;
        self.skip_blanks();
        let value = match self.peek() {
            Some(b'{') => {
                self.at += 1;
                Value::Map(self.read_object(depth)?)
            }
            Some(b'[') => {
                self.at += 1;
                Value::List(self.read_array(depth)?)
            }
            Some(b'"') => Value::Text(Zeroizing::new(self.read_string()?)),
            Some(b'-' | b'0'..=b'9') => self.read_number()?,
            _ => self.read_word()?,
        };
        Ok(Node::new(value))
    }

    fn read_object(&mut self, depth: usize) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(entries);
        }
        loop {
            self.skip_blanks();
            let key = self.read_string()?;
            self.expect(b':', "there is no `:` behind a key")?;
            let value = self.read_value(depth + 1)?;
            entries.push(Entry::Pair {
                key,
                value,
                whole: Span::default(),
            });
            self.skip_blanks();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(entries);
            }
            self.expect(b',', "there is neither `,` nor `}` behind a value")?;
        }
    }

    fn read_array(&mut self, depth: usize) -> Result<Vec<Node>, Error> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(items);
        }
        loop {
            items.push(self.read_value(depth + 1)?);
            self.skip_blanks();
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(items);
            }
            self.expect(b',', "there is neither `,` nor `]` behind a value")?;
        }
    }

    fn read_word(&mut self) -> Result<Value, Error> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.fail("it is not a value of JSON"))
    }

    /// Reads an integer of 64 bits, or else a float, as SOPS reads Go's `json.Number`.
    fn read_number(&mut self) -> Result<Value, Error> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = self.file.get(start..self.at).unwrap_or_default();
        if !is_number(text) {
            return Err(self.fail("it is not a number of JSON"));
        }
        if let Ok(number) = text.parse() {
            return Ok(Value::Int(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Float(number)),
            _ => Err(self.fail("a number is too large")),
        }
    }

    fn read_string(&mut self) -> Result<String, Error> {
        if self.peek() != Some(b'"') {
            return Err(self.fail("there is no string where one must be"));
        }
        self.at += 1;
        let mut read = Zeroizing::new(String::new());
        loop {
            let rest = self.file.get(self.at..).unwrap_or_default();
            let end = rest.find(|one: char| one == '"' || one == '\\' || one < ' ');
            let Some(end) = end else {
                return Err(self.fail("a string doesn't end"));
            };
            read.push_str(rest.get(..end).unwrap_or_default());
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    go_yaml::meter::count_text(read.len());
                    return Ok(std::mem::take(&mut *read));
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.read_escape()?;
                    read.push(escaped);
                }
                _ => return Err(self.fail("a string has a character that must be escaped")),
            }
        }
    }

    fn read_escape(&mut self) -> Result<char, Error> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some_and(|byte| byte.is_ascii()));
        Ok(match byte {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.read_code_unit()?;
                if let Some(character) = char::from_u32(unit) {
                    return Ok(character);
                }
                // Two surrogates make a character; a single one is replaced, as in Go.
                let after = self.at;
                if (0xd800..0xdc00).contains(&unit)
                    && self.file.get(self.at..).is_some_and(|rest| rest.starts_with("\\u"))
                {
                    self.at += 2;
                    let low = self.read_code_unit()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    self.at = after;
                }
                '\u{fffd}'
            }
            _ => return Err(self.fail("a string has an escape that JSON doesn't know")),
        })
    }

    fn read_code_unit(&mut self) -> Result<u32, Error> {
        let digits = self.file.get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.fail("a string has an escape that JSON doesn't know"));
        }
        self.at += 4;
        Ok(u32::from_str_radix(digits, 16).unwrap_or(0xfffd))
    }
}

/// Checks whether a text has the form of a JSON number.
fn is_number(text: &str) -> bool {
    let body = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(are_digits)
        && exponent.is_none_or(|text| are_digits(text.strip_prefix(['-', '+']).unwrap_or(text)))
}

/// Writes a file as `sops -d` does.
///
/// # Errors
/// When JSON can't represent a value.
pub(crate) fn write(document: &Document) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut file = Zeroizing::new(String::new());
    write_object(&mut file, &document.entries, Some(1))?;
    file.push('\n');
    go_yaml::meter::count_text(file.len());
    Ok(Zeroizing::new(std::mem::take(&mut *file).into_bytes()))
}

/// Writes a document on one line, which every YAML reader accepts.
///
/// # Errors
/// When JSON can't represent a value.
pub(crate) fn write_line(document: &Document) -> Result<Zeroizing<String>, Error> {
    let mut line = Zeroizing::new(String::new());
    write_object(&mut line, &document.entries, None)?;
    go_yaml::meter::count_text(line.len());
    Ok(line)
}

fn break_line(into: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        into.push('\n');
        (0..depth).for_each(|_| into.push_str(INDENT));
    }
}

fn write_object(into: &mut String, entries: &[Entry], depth: Option<usize>) -> Result<(), Error> {
    let pairs = entries.iter().filter_map(|entry| match entry {
        Entry::Pair { key, value, .. } => Some((key, value)),
        Entry::Comment(_) => None,
    });
    into.push('{');
    let mut is_empty = true;
    for (key, value) in pairs {
        if !is_empty {
            into.push(',');
        }
        is_empty = false;
        break_line(into, depth);
        text::write_json_string(into, key);
        into.push_str(": ");
        write_value(into, value, depth)?;
    }
    if !is_empty {
        break_line(into, depth.map(|depth| depth - 1));
    }
    into.push('}');
    Ok(())
}

fn write_value(into: &mut String, node: &Node, depth: Option<usize>) -> Result<(), Error> {
    match &node.value {
        Value::Null => into.push_str("null"),
        Value::Bool(truth) => into.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => into.push_str(&number.to_string()),
        Value::Float(number) if number.is_finite() => into.push_str(&go_yaml::format_json(*number)),
        Value::Float(_) => return Err(Error::Unwritable("a number that isn't finite can't be written as JSON")),
        Value::Text(text) | Value::Time(text) => text::write_json_string(into, text),
        Value::Bytes(bytes) => {
            text::write_json_string(into, &Zeroizing::new(String::from_utf8_lossy(bytes).into_owned()))
        }
        Value::Map(entries) => write_object(into, entries, depth.map(|depth| depth + 1))?,
        Value::List(items) => {
            into.push('[');
            let mut is_empty = true;
            for item in items.iter().filter(|item| !matches!(item.value, Value::Comment(_))) {
                if !is_empty {
                    into.push(',');
                }
                is_empty = false;
                break_line(into, depth.map(|depth| depth + 1));
                write_value(into, item, depth.map(|depth| depth + 1))?;
            }
            if !is_empty {
                break_line(into, depth);
            }
            into.push(']');
        }
        Value::Comment(_) => return Err(Error::Unwritable("a comment stands in place of a value")),
    }
    Ok(())
}

/// Returns the content of a file without a format.
///
/// # Errors
/// When the document has another form.
pub(crate) fn write_data(document: &Document) -> Result<Zeroizing<Vec<u8>>, Error> {
    match find_field(&document.entries, DATA).map(|node| &node.value) {
        Some(Value::Text(text)) => Ok(Zeroizing::new(text.as_bytes().to_vec())),
        Some(Value::Bytes(bytes)) => Ok(bytes.clone()),
        _ => Err(Error::Unwritable(
            "it is not a file that SOPS encrypted as a whole: there is no text below `data`",
        )),
    }
}
