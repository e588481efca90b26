//! Parses tokens into an expression: precedence, literals, optional syntax, and the limits on length and depth. The parser expands macros
//! with [`crate::macros`].

use crate::ast::{Element, Entry, Expr, Id, Kind, Literal};
use crate::factory::Factory;
use crate::lexer::{self, Token, TokenKind};
use crate::macros;
use crate::source::{CompileError, Problem};

/// The maximum length of an expression, in code points.
const MOST_LETTERS: usize = 100_000;

/// The maximum depth of an expression, since parser, checker and evaluator walk it by recursion. A link of a chain
/// counts once, brackets count [`BRACKETS`] times, since they take more of the stack.
pub(crate) const DEEPEST: usize = 250;

const BRACKETS: usize = 2;

const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// A parsed expression, and the number of its parts. All parts have smaller numbers.
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    pub(crate) count: Id,
}

/// Parses an expression.
pub(crate) fn parse(source: &[char]) -> Result<Parsed, CompileError> {
    if source.len() > MOST_LETTERS {
        let message = format!(
            "expression code point size exceeds limit: size: {}, limit {MOST_LETTERS}",
            source.len()
        );
        return Err(CompileError::new(source, vec![Problem { position: 0, message }]));
    }
    let (tokens, problems) = lexer::split_tokens(source);
    let mut parser = Parser {
        tokens,
        at: 0,
        problems,
        factory: Factory::default(),
        depth: 0,
    };
    let root = parser.read_expression();
    if let Ok(root) = root {
        let rest = parser.current_token();
        if rest.kind != TokenKind::End {
            let what = if parser.is_ahead(1, |token| token.kind == TokenKind::End) {
                "extraneous"
            } else {
                "mismatched"
            };
            let message = format!("Syntax error: {what} input '{}' expecting <EOF>", rest.text);
            parser.report_problem(rest.position, message);
        }
        if parser.problems.is_empty() {
            return Ok(Parsed {
                root,
                count: parser.factory.count(),
            });
        }
    }
    Err(CompileError::new(source, parser.problems))
}

/// Signals that the parser has reported a problem and stops.
struct Stop;

/// The tokens of an expression, the position of the next one, and the problems so far.
struct Parser {
    tokens: Vec<Token>,
    at: usize,
    problems: Vec<Problem>,
    factory: Factory,
    depth: usize,
}

impl Parser {
    fn current_token(&self) -> Token {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .cloned()
            .unwrap_or(Token {
                kind: TokenKind::End,
                position: 0,
                text: "<EOF>".to_owned(),
            })
    }

    fn next_is(&self, text: &str) -> bool {
        self.tokens
            .get(self.at)
            .is_some_and(|token| token.kind == TokenKind::Punctuation && token.text == text)
    }

    fn is_ahead(&self, by: usize, test: impl Fn(&Token) -> bool) -> bool {
        self.tokens.get(self.at + by).is_some_and(test)
    }

    fn take_punctuation(&mut self, text: &str) -> Option<usize> {
        let position = self.tokens.get(self.at)?.position;
        self.next_is(text).then(|| {
            self.at += 1;
            position
        })
    }

    fn report_problem(&mut self, position: usize, message: String) {
        self.problems.push(Problem { position, message });
    }

    fn report_unexpected(&mut self, expected: &str) -> Stop {
        let token = self.current_token();
        let message = format!("Syntax error: mismatched input '{}' expecting {expected}", token.text);
        self.report_problem(token.position, message);
        Stop
    }

    fn expect(&mut self, text: &str, expected: &str) -> Result<usize, Stop> {
        match self.take_punctuation(text) {
            Some(position) => Ok(position),
            None => Err(self.report_unexpected(expected)),
        }
    }

    /// Skips and reports a superfluous token, if the expected token follows directly behind it.
    fn skip_extraneous(&mut self, expected: &str, follows: impl Fn(&Token) -> bool) -> bool {
        if self.current_token().kind == TokenKind::End || !self.is_ahead(1, follows) {
            return false;
        }
        let token = self.current_token();
        let message = format!("Syntax error: extraneous input '{}' expecting {expected}", token.text);
        self.report_problem(token.position, message);
        self.at += 1;
        true
    }

    /// Reads the comma or the end of a list.
    fn read_separator(&mut self, end: &str, expected: &str) -> Result<(), Stop> {
        if self.take_punctuation(",").is_some() || self.next_is(end) {
            return Ok(());
        }
        if self.skip_extraneous(expected, |token| {
            token.kind == TokenKind::Punctuation && (token.text == end || token.text == ",")
        }) {
            self.take_punctuation(",");
            return Ok(());
        }
        Err(self.report_unexpected(expected))
    }

    fn report_depth(&mut self) -> Stop {
        let position = self.current_token().position;
        self.report_problem(position, format!("expression recursion limit exceeded: {DEEPEST}"));
        Stop
    }

    fn read_expression(&mut self) -> Result<Expr, Stop> {
        self.depth += BRACKETS;
        if self.depth > DEEPEST {
            return Err(self.report_depth());
        }
        let condition = self.read_operators(1)?;
        let Some(position) = self.take_punctuation("?") else {
            self.depth -= BRACKETS;
            return Ok(condition);
        };
        let yes = self.read_operators(1)?;
        self.expect(":", "':'")?;
        let no = self.read_expression()?;
        self.depth -= BRACKETS;
        Ok(self.factory.make_call(position, "_?_:_", vec![condition, yes, no]))
    }

    /// Returns the operator here: its rank and its function.
    fn peek_operator(&self) -> Option<(u8, &'static str)> {
        let token = self.tokens.get(self.at)?;
        if token.kind == TokenKind::In {
            return Some((3, "@in"));
        }
        if token.kind != TokenKind::Punctuation {
            return None;
        }
        Some(match token.text.as_str() {
            "||" => (1, "_||_"),
            "&&" => (2, "_&&_"),
            "<=" => (3, "_<=_"),
            "<" => (3, "_<_"),
            ">=" => (3, "_>=_"),
            ">" => (3, "_>_"),
            "==" => (3, "_==_"),
            "!=" => (3, "_!=_"),
            "+" => (4, "_+_"),
            "-" => (4, "_-_"),
            "*" => (5, "_*_"),
            "/" => (5, "_/_"),
            "%" => (5, "_%_"),
            _ => return None,
        })
    }

    /// Operands joined by operators of a rank and above. Each link of a chain nests one deeper, except for `&&` and
    /// `||`: those have any number of terms.
    fn read_operators(&mut self, least: u8) -> Result<Expr, Stop> {
        let before = self.depth;
        let mut left = self.read_unary()?;
        while let Some((rank, function)) = self.peek_operator().filter(|(rank, _)| *rank >= least) {
            let position = self.current_token().position;
            self.at += 1;
            if rank > 2 {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(self.report_depth());
                }
            }
            let right = self.read_operators(rank + 1)?;
            left = match left.kind {
                Kind::Call {
                    function: same,
                    target: None,
                    mut arguments,
                } if rank <= 2 && same == function => {
                    arguments.push(right);
                    let kind = Kind::Call {
                        function: same,
                        target: None,
                        arguments,
                    };
                    Expr { kind, ..left }
                }
                kind => {
                    let left = Expr { kind, ..left };
                    self.factory.make_call(position, function, vec![left, right])
                }
            };
        }
        self.depth = before;
        Ok(left)
    }

    fn read_unary(&mut self) -> Result<Expr, Stop> {
        let signed_number =
            self.next_is("-") && self.is_ahead(1, |token| matches!(token.kind, TokenKind::Integer | TokenKind::Float));
        for (operator, function) in [("!", "!_"), ("-", "-_")] {
            if !self.next_is(operator) || signed_number {
                continue;
            }
            let position = self.current_token().position;
            let mut count = 0;
            while self.take_punctuation(operator).is_some() {
                count += 1;
            }
            let operand = self.read_member()?;
            // Two of them cancel each other.
            return Ok(if count % 2 == 1 {
                self.factory.make_call(position, function, vec![operand])
            } else {
                operand
            });
        }
        self.read_member()
    }

    fn read_member(&mut self) -> Result<Expr, Stop> {
        let before = self.depth;
        let mut expression = self.read_primary()?;
        loop {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.report_depth());
            }
            if let Some(position) = self.take_punctuation("[") {
                let optional = self.take_punctuation("?").is_some();
                let index = self.read_expression()?;
                self.expect("]", "']'")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                expression = self.factory.make_call(position, function, vec![expression, index]);
            } else if let Some(position) = self.take_punctuation(".") {
                expression = self.read_field(expression, position)?;
            } else {
                break;
            }
        }
        self.depth = before;
        Ok(expression)
    }

    /// Parses the part after a dot: a field, an optional field, or a call.
    fn read_field(&mut self, operand: Expr, position: usize) -> Result<Expr, Stop> {
        let optional = self.take_punctuation("?").is_some();
        let name = self.current_token();
        match name.kind {
            TokenKind::Identifier => self.at += 1,
            TokenKind::Escaped => {
                self.report_problem(name.position, "unsupported syntax: '`'".to_owned());
                return Err(Stop);
            }
            _ if optional => return Err(self.report_unexpected("{IDENTIFIER, ESC_IDENTIFIER}")),
            _ => {
                let message = format!("Syntax error: no viable alternative at input '.{}'", name.text);
                let message = if name.kind == TokenKind::End {
                    "Syntax error: no viable alternative at input '.'".to_owned()
                } else {
                    message
                };
                self.report_problem(name.position, message);
                return Err(Stop);
            }
        }
        if optional {
            let field = self
                .factory
                .make(name.position, Kind::Literal(Literal::String(name.text.into())));
            return Ok(self.factory.make_call(position, "_?._", vec![operand, field]));
        }
        if let Some(open) = self.take_punctuation("(") {
            // Macros put their target inside a fold.
            self.depth += BRACKETS - 1;
            let arguments = self.read_arguments()?;
            return self.expand_call(open, name.text, Some(operand), arguments);
        }
        let kind = Kind::Select {
            operand: Box::new(operand),
            field: name.text,
            test: false,
        };
        Ok(self.factory.make(position, kind))
    }

    /// Makes a call, or expands the macro of that name.
    fn expand_call(
        &mut self,
        position: usize,
        function: String,
        target: Option<Expr>,
        arguments: Vec<Expr>,
    ) -> Result<Expr, Stop> {
        match macros::expand_macro(&mut self.factory, position, &function, target, arguments) {
            Ok(macros::Expansion::Expression(expression)) => Ok(expression),
            Ok(macros::Expansion::Call(target, arguments)) => Ok(self.factory.make(
                position,
                Kind::Call {
                    function,
                    target: target.map(Box::new),
                    arguments,
                },
            )),
            Err(problem) => {
                self.problems.push(problem);
                // Parsing continues, because the rest may have errors too.
                Ok(self.factory.make(position, Kind::Literal(Literal::Null)))
            }
        }
    }

    fn read_arguments(&mut self) -> Result<Vec<Expr>, Stop> {
        let mut arguments = Vec::new();
        if self.take_punctuation(")").is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.read_expression()?);
            if self.take_punctuation(",").is_none() {
                break;
            }
        }
        if !self.next_is(")")
            && self.skip_extraneous("')'", |token| token.kind == TokenKind::Punctuation && token.text == ")")
        {
            self.take_punctuation(")");
            return Ok(arguments);
        }
        self.expect(")", "{')', ','}")?;
        Ok(arguments)
    }

    fn read_primary(&mut self) -> Result<Expr, Stop> {
        let token = self.current_token();
        match &token.kind {
            TokenKind::Literal(value) => {
                self.at += 1;
                match value {
                    Ok(value) => Ok(self.factory.make(token.position, Kind::Literal(value.clone()))),
                    Err(problem) => {
                        self.report_problem(token.position, problem.clone());
                        Err(Stop)
                    }
                }
            }
            TokenKind::Integer | TokenKind::Float => self.read_number(token.position, ""),
            TokenKind::Identifier => {
                self.at += 1;
                self.read_name(token.position, token.text, "")
            }
            TokenKind::Punctuation => self.read_bracketed(&token),
            TokenKind::In | TokenKind::Escaped | TokenKind::End => Err(self.report_unexpected(OPERAND)),
        }
    }

    fn read_bracketed(&mut self, token: &Token) -> Result<Expr, Stop> {
        self.at += 1;
        match token.text.as_str() {
            "(" => {
                let inner = self.read_expression()?;
                if self.current_token().kind == TokenKind::End {
                    let end = self.current_token().position;
                    self.report_problem(end, "Syntax error: missing ')' at '<EOF>'".to_owned());
                    return Err(Stop);
                }
                self.expect(")", "')'")?;
                Ok(inner)
            }
            "[" => self.read_list(token.position),
            "{" => self.read_map(token.position),
            "-" => self.read_number(token.position, "-"),
            "." => {
                let name = self.current_token();
                if name.kind != TokenKind::Identifier {
                    return Err(self.report_unexpected("IDENTIFIER"));
                }
                self.at += 1;
                self.read_name(name.position, name.text, ".")
            }
            _ => {
                self.at -= 1;
                if self.skip_extraneous(OPERAND, starts_operand) {
                    return self.read_primary();
                }
                Err(self.report_unexpected(OPERAND))
            }
        }
    }

    fn read_number(&mut self, position: usize, sign: &str) -> Result<Expr, Stop> {
        let token = self.current_token();
        self.at += 1;
        let digits = format!("{sign}{}", token.text);
        let value = match token.kind {
            TokenKind::Float => digits
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Literal::Double)
                .ok_or("invalid double literal"),
            _ => match digits.strip_prefix(sign).and_then(|rest| rest.strip_prefix("0x")) {
                Some(hexadecimal) => i64::from_str_radix(&format!("{sign}{hexadecimal}"), 16),
                None => digits.parse(),
            }
            .map(Literal::Int)
            .map_err(|_| "invalid int literal"),
        };
        match value {
            Ok(value) => Ok(self.factory.make(position, Kind::Literal(value))),
            Err(problem) => {
                self.report_problem(position, problem.to_owned());
                Err(Stop)
            }
        }
    }

    /// Returns a name: a variable, a call, or a message literal.
    fn read_name(&mut self, position: usize, name: String, dot: &str) -> Result<Expr, Stop> {
        if is_reserved(&name) {
            self.report_problem(position, format!("reserved identifier: {name}"));
            return Err(Stop);
        }
        if let Some(open) = self.take_punctuation("(") {
            let arguments = self.read_arguments()?;
            return self.expand_call(open, format!("{dot}{name}"), None, arguments);
        }
        if let Some((parts, open)) = self.message_brace() {
            let mut full = name;
            for _ in 0..parts {
                self.at += 1;
                full = format!("{full}.{}", self.current_token().text);
                self.at += 1;
            }
            self.at += 1;
            return self.read_message(open, full);
        }
        // Kubernetes has no container: a leading dot changes nothing.
        Ok(self.factory.make(position, Kind::Ident(name)))
    }

    /// Checks whether dotted names and then a brace follow. Returns their number and the place of the brace.
    fn message_brace(&self) -> Option<(usize, usize)> {
        let mut parts = 0;
        loop {
            let token = self.tokens.get(self.at + parts * 2)?;
            if token.kind != TokenKind::Punctuation {
                return None;
            }
            match token.text.as_str() {
                "{" => return Some((parts, token.position)),
                "." if self.is_ahead(parts * 2 + 1, |token| token.kind == TokenKind::Identifier) => parts += 1,
                _ => return None,
            }
        }
    }

    fn read_message(&mut self, position: usize, name: String) -> Result<Expr, Stop> {
        while self.take_punctuation("}").is_none() {
            self.take_punctuation("?");
            if self.current_token().kind != TokenKind::Identifier {
                return Err(self.report_unexpected("{'}', '?', ',', IDENTIFIER, ESC_IDENTIFIER}"));
            }
            self.at += 1;
            self.expect(":", "':'")?;
            self.read_expression()?;
            self.read_separator("}", "{'}', ','}")?;
        }
        Ok(self.factory.make(position, Kind::Message(name)))
    }

    fn read_list(&mut self, position: usize) -> Result<Expr, Stop> {
        let mut elements = Vec::new();
        if self.current_token().kind == TokenKind::End {
            return Err(self.report_unexpected(
                &OPERAND
                    .replace("'['", "'[', ']'")
                    .replace("'.'", "'.', ','")
                    .replace("'!'", "'!', '?'"),
            ));
        }
        self.take_punctuation(",");
        while self.take_punctuation("]").is_none() {
            let optional = self.take_punctuation("?").is_some();
            let value = self.read_expression()?;
            elements.push(Element { value, optional });
            self.read_separator("]", "{']', ','}")?;
        }
        Ok(self.factory.make(position, Kind::List(elements)))
    }

    fn read_map(&mut self, position: usize) -> Result<Expr, Stop> {
        let mut entries = Vec::new();
        if self.current_token().kind == TokenKind::End {
            return Err(self.report_unexpected(
                &OPERAND
                    .replace("'{'", "'{', '}'")
                    .replace("'.'", "'.', ','")
                    .replace("'!'", "'!', '?'"),
            ));
        }
        self.take_punctuation(",");
        while self.take_punctuation("}").is_none() {
            let optional = self.take_punctuation("?").is_some();
            let key = self.read_expression()?;
            if !self.next_is(":") && self.is_ahead(0, starts_operand) {
                let token = self.current_token();
                self.report_problem(token.position, format!("Syntax error: missing ':' at '{}'", token.text));
            } else {
                self.expect(":", "':'")?;
            }
            let value = self.read_expression()?;
            entries.push(Entry { key, value, optional });
            self.read_separator("}", "{'}', ','}")?;
        }
        Ok(self.factory.make(position, Kind::Map(entries)))
    }
}

fn starts_operand(token: &Token) -> bool {
    match token.kind {
        TokenKind::Identifier | TokenKind::Literal(_) | TokenKind::Integer | TokenKind::Float => true,
        TokenKind::Punctuation => matches!(token.text.as_str(), "[" | "{" | "(" | "." | "-" | "!"),
        TokenKind::In | TokenKind::Escaped | TokenKind::End => false,
    }
}

/// Names that can't be those of variables: they are kept for other languages.
pub(crate) fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "false"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "null"
            | "return"
            | "true"
            | "var"
            | "void"
            | "while"
    )
}
