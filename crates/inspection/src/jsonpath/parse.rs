//! Parses templates. The grammar and its errors are kubectl's.

use serde_json::{Number, Value};

use super::{Action, DEEPEST, Node, Slice};

/// Parses text with actions in braces.
pub(super) fn parse_template(template: &str) -> Result<Vec<Action>, String> {
    let mut rest = template;
    // The actions of the template, and of each open range.
    let mut open: Vec<(Vec<Node>, Vec<Action>)> = vec![(Vec::new(), Vec::new())];
    while !rest.is_empty() {
        let (text, after) = rest.find('{').map_or((rest, None), |brace| {
            let (text, after) = rest.split_at_checked(brace).unwrap_or((rest, ""));
            (text, after.strip_prefix('{'))
        });
        if !text.is_empty() {
            add_action(&mut open, Action::Print(vec![Node::Constant(Value::from(text))]));
        }
        let Some(after) = after else { break };
        let mut reader = Reader::new(after, 0);
        let nodes = reader.read_action()?;
        rest = reader.rest;
        let is_word = |node: &Node, word: &str| matches!(node, Node::Word(found) if found == word);
        if nodes.iter().any(|node| is_word(node, "end")) {
            match open.len() {
                1 => add_action(&mut open, Action::StrayEnd),
                _ => close_range(&mut open, true),
            }
        } else if nodes.iter().any(|node| is_word(node, "range")) {
            if open.len() > DEEPEST {
                return Err(format!("more than {DEEPEST} nested ranges"));
            }
            let nodes = nodes.into_iter().filter(|node| !is_word(node, "range")).collect();
            open.push((nodes, Vec::new()));
        } else {
            add_action(&mut open, Action::Print(nodes));
        }
    }
    while open.len() > 1 {
        close_range(&mut open, false);
    }
    Ok(open.pop().map(|(_, actions)| actions).unwrap_or_default())
}

fn add_action(open: &mut [(Vec<Node>, Vec<Action>)], action: Action) {
    if let Some((_, actions)) = open.last_mut() {
        actions.push(action);
    }
}

fn close_range(open: &mut Vec<(Vec<Node>, Vec<Action>)>, is_closed: bool) {
    if let Some((nodes, body)) = open.pop() {
        add_action(open, Action::Range { nodes, body, is_closed });
    }
}

/// Parses an expression without braces.
fn parse_expression(text: &str, depth: usize) -> Result<Vec<Node>, String> {
    if depth > DEEPEST {
        return Err(format!("more than {DEEPEST} nested brackets"));
    }
    let closed = format!("{text}}}");
    let mut reader = Reader::new(&closed, depth);
    reader.read_action()
}

/// A reader of a template: the text that is not parsed yet, and the depth of nesting.
struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn new(rest: &'t str, depth: usize) -> Self {
        Self { rest, depth }
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next();
        self.rest = characters.as_str();
        next
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip_prefix(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes the characters up to the first one that ends them.
    fn take_until(&mut self, is_end: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Reads the steps up to the closing brace.
    fn read_action(&mut self) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        loop {
            if self.skip_prefix("}") {
                return Ok(nodes);
            }
            if self.skip_prefix("[?(") {
                nodes.push(self.read_filter()?);
                continue;
            }
            if self.skip_prefix("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err("invalid multiple recursive descent".to_owned());
                }
                nodes.push(Node::Recursive);
                if self.peek().is_some_and(is_word_character) {
                    nodes.push(self.read_field());
                }
                continue;
            }
            let before = self.rest;
            match self.next() {
                None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                // The current object is the input of each step.
                Some(' ' | '@' | '$') => {}
                Some('[') => self.read_brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(self.read_quoted(quote)?),
                Some('.') => nodes.push(self.read_field()),
                Some(sign) if sign == '+' || sign == '-' || sign.is_numeric() => {
                    self.rest = before;
                    nodes.push(self.read_number()?);
                }
                Some(character) if is_word_character(character) => {
                    self.rest = before;
                    nodes.push(match self.take_until(is_terminator) {
                        "true" => Node::Constant(Value::Bool(true)),
                        "false" => Node::Constant(Value::Bool(false)),
                        word => Node::Word(word.to_owned()),
                    });
                }
                Some(character) => {
                    let code = u32::from(character);
                    return Err(format!("unrecognized character in action: U+{code:04X} {character:?}"));
                }
            }
        }
    }

    /// Reads a field name, whose terminators can have a backslash before them.
    fn read_field(&mut self) -> Node {
        let mut name = String::new();
        while let Some(character) = self.peek() {
            if character == '\\' {
                self.next();
                name.extend(self.next().filter(|escaped| *escaped != '\\'));
            } else if is_terminator(character) {
                break;
            } else {
                self.next();
                name.push(character);
            }
        }
        match name.as_str() {
            "*" => Node::Wildcard,
            _ => Node::Field(name),
        }
    }

    fn read_number(&mut self) -> Result<Node, String> {
        let start = self.rest;
        if self.peek().is_some_and(|sign| sign == '+' || sign == '-') {
            self.next();
        }
        self.take_until(|character| character != '.' && !character.is_numeric());
        let text = start.strip_suffix(self.rest).unwrap_or(start);
        let whole = text.parse::<i64>().ok().map(Number::from);
        let number = whole.or_else(|| text.parse().ok().and_then(Number::from_f64));
        let number = number.ok_or_else(|| format!("cannot parse number {text}"))?;
        Ok(Node::Constant(Value::Number(number)))
    }

    /// Reads what follows an opening bracket: a slice, a field, or a union of both.
    fn read_brackets(&mut self, nodes: &mut Vec<Node>) -> Result<(), String> {
        let text = self.take_until(|character| character == ']' || character == '\n');
        if !self.skip_prefix("]") {
            return Err("unterminated array".to_owned());
        }
        if text.contains(',') {
            let members = text.split(',').map(|member| {
                let member = format!("[{}]", member.trim_matches(' '));
                parse_expression(&member, self.depth + 1)
            });
            nodes.push(Node::Union(members.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
            nodes.extend(parse_expression(&format!(".{name}"), self.depth + 1)?);
            return Ok(());
        }
        nodes.push(Node::Slice(read_slice(text)?));
        Ok(())
    }

    /// Reads a filter after its opening: `left operator right)]`, or a path that has to exist.
    fn read_filter(&mut self) -> Result<Node, String> {
        let text = self.find_filter()?;
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".to_owned());
        }
        let depth = self.depth + 1;
        let is_sign = |character: char| matches!(character, '!' | '<' | '>' | '=');
        let Some(start) = text.find(is_sign).filter(|start| *start > 0) else {
            let left = parse_expression(text, depth)?;
            return Ok(Node::Filter { left, comparison: None });
        };
        let (left, rest) = text.split_at_checked(start).unwrap_or((text, ""));
        let end = rest.find(|character| !is_sign(character)).unwrap_or(rest.len());
        let (operator, right) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if right.is_empty() {
            let left = parse_expression(text, depth)?;
            return Ok(Node::Filter { left, comparison: None });
        }
        let left = parse_expression(left, depth)?;
        let comparison = Some((operator.to_owned(), parse_expression(right, depth)?));
        Ok(Node::Filter { left, comparison })
    }

    /// Takes the text up to the closing parenthesis, which may not be in quotes.
    fn find_filter(&mut self) -> Result<&'t str, String> {
        let (start, mut quote, mut is_closed, mut before) = (self.rest, None, false, '(');
        loop {
            let at = self.rest;
            match self.next() {
                None | Some('\n') => return Err("unterminated filter".to_owned()),
                Some(sign @ ('"' | '\'')) => match quote {
                    None => quote = Some(sign),
                    Some(open) if before != '\\' && sign == open => is_closed = true,
                    Some(_) => {}
                },
                Some(')') if quote.is_some() == is_closed => return Ok(start.strip_suffix(at).unwrap_or(start)),
                Some(character) => {
                    before = character;
                    continue;
                }
            }
            before = '"';
        }
    }

    /// Reads a quoted text after its opening quote.
    fn read_quoted(&mut self, quote: char) -> Result<Node, String> {
        let (start, mut before) = (self.rest, quote);
        loop {
            let at = self.rest;
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".to_owned()),
                Some(end) if end == quote && before != '\\' => {
                    let inner = start.strip_suffix(at).unwrap_or(start);
                    let text = unquote_text(inner, quote)
                        .ok_or_else(|| format!("unquote string {quote}{inner}{quote} error invalid syntax"))?;
                    return Ok(Node::Constant(Value::String(text)));
                }
                Some(character) => before = character,
            }
        }
    }
}

/// Reads `from:to:step`, or an index. `*` means all elements.
fn read_slice(text: &str) -> Result<Slice, String> {
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<&str> = text.split(':').collect();
    let read = |part: Option<&&str>| match part.copied().unwrap_or_default() {
        "" => Ok(None),
        number => number.parse::<i64>().map(Some),
    };
    let (from, to, step) = (read(parts.first()), read(parts.get(1)), read(parts.get(2)));
    match (from, to, step) {
        (Ok(from), Ok(to), Ok(step)) if parts.len() <= 3 && !text.contains('+') => Ok(Slice {
            from,
            to,
            step,
            is_index: parts.len() == 1,
        }),
        _ => Err(format!("invalid array index {text}")),
    }
}

fn is_word_character(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Whether a character ends a name.
fn is_terminator(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

/// Resolves the escapes of a quoted text, as Go has them.
fn unquote_text(text: &str, quote: char) -> Option<String> {
    let mut result = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        let digits = |characters: &mut std::str::Chars<'_>, count: usize, radix: u32| {
            let digits: String = characters.take(count).collect();
            let code = u32::from_str_radix(&digits, radix).ok()?;
            (digits.chars().count() == count)
                .then_some(code)
                .and_then(char::from_u32)
        };
        result.push(match characters.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' => '\\',
            'x' => digits(&mut characters, 2, 16)?,
            'u' => digits(&mut characters, 4, 16)?,
            'U' => digits(&mut characters, 8, 16)?,
            first @ '0'..='7' => {
                let rest: String = characters.by_ref().take(2).collect();
                let code = u32::from_str_radix(&format!("{first}{rest}"), 8).ok()?;
                char::from_u32(code).filter(|_| rest.len() == 2 && code < 256)?
            }
            sign if sign == quote => sign,
            _ => return None,
        });
    }
    Some(result)
}
