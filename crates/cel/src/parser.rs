//! Parses tokens into an expression: precedence, literals, optional syntax, and the limits on length and depth. The parser expands macros
//! with [`crate::macros`].

use crate::ast::{Element, Entry, Expr, Id, Kind, Literal};
use crate::factory::Factory;
use crate::lexer::{self, Token, TokenKind};
use crate::macros;
use crate::source::{CompileError, Problem};

/// An expression may not be longer, in code points.
const MOST_LETTERS: usize = 100_000;

/// Nor nest deeper: parser, checker and evaluator walk it by recursion. A link of a chain counts once, brackets count
/// [`BRACKETS`] times, since they take more of the stack.
pub(crate) const DEEPEST: usize = 250;

const BRACKETS: usize = 2;

const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// An expression, and one more than the highest number in it.
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
    let (tokens, problems) = lexer::tokens(source);
    let mut parser = Parser {
        tokens,
        at: 0,
        problems,
        factory: Factory::default(),
        depth: 0,
    };
    let root = parser.expression();
    if let Ok(root) = root {
        let rest = parser.current();
        if rest.kind != TokenKind::End {
            let what = if parser.ahead(1, |token| token.kind == TokenKind::End) {
                "extraneous"
            } else {
                "mismatched"
            };
            let message = format!("Syntax error: {what} input '{}' expecting <EOF>", rest.text);
            parser.problem(rest.position, message);
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

/// The parser has reported an error and stops.
struct Stop;

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    problems: Vec<Problem>,
    factory: Factory,
    depth: usize,
}

impl Parser {
    fn current(&self) -> Token {
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

    fn is(&self, text: &str) -> bool {
        self.tokens
            .get(self.at)
            .is_some_and(|token| token.kind == TokenKind::Punctuation && token.text == text)
    }

    fn ahead(&self, by: usize, test: impl Fn(&Token) -> bool) -> bool {
        self.tokens.get(self.at + by).is_some_and(test)
    }

    fn take(&mut self, text: &str) -> Option<usize> {
        let position = self.tokens.get(self.at)?.position;
        self.is(text).then(|| {
            self.at += 1;
            position
        })
    }

    fn problem(&mut self, position: usize, message: String) {
        self.problems.push(Problem { position, message });
    }

    fn unexpected(&mut self, expected: &str) -> Stop {
        let token = self.current();
        let message = format!("Syntax error: mismatched input '{}' expecting {expected}", token.text);
        self.problem(token.position, message);
        Stop
    }

    fn expect(&mut self, text: &str, expected: &str) -> Result<usize, Stop> {
        match self.take(text) {
            Some(position) => Ok(position),
            None => Err(self.unexpected(expected)),
        }
    }

    /// Skips and reports a superfluous token, if the expected token follows directly behind it.
    fn skips(&mut self, expected: &str, follows: impl Fn(&Token) -> bool) -> bool {
        if self.current().kind == TokenKind::End || !self.ahead(1, follows) {
            return false;
        }
        let token = self.current();
        let message = format!("Syntax error: extraneous input '{}' expecting {expected}", token.text);
        self.problem(token.position, message);
        self.at += 1;
        true
    }

    /// Reads the comma or the end of a list.
    fn separated(&mut self, end: &str, expected: &str) -> Result<(), Stop> {
        if self.take(",").is_some() || self.is(end) {
            return Ok(());
        }
        if self.skips(expected, |token| {
            token.kind == TokenKind::Punctuation && (token.text == end || token.text == ",")
        }) {
            self.take(",");
            return Ok(());
        }
        Err(self.unexpected(expected))
    }

    fn too_deep(&mut self) -> Stop {
        let position = self.current().position;
        self.problem(position, format!("expression recursion limit exceeded: {DEEPEST}"));
        Stop
    }

    fn expression(&mut self) -> Result<Expr, Stop> {
        self.depth += BRACKETS;
        if self.depth > DEEPEST {
            return Err(self.too_deep());
        }
        let condition = self.operators(1)?;
        let Some(position) = self.take("?") else {
            self.depth -= BRACKETS;
            return Ok(condition);
        };
        let yes = self.operators(1)?;
        self.expect(":", "':'")?;
        let no = self.expression()?;
        self.depth -= BRACKETS;
        Ok(self.factory.call(position, "_?_:_", vec![condition, yes, no]))
    }

    /// Returns the operator here: its rank and its function.
    fn operator(&self) -> Option<(u8, &'static str)> {
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
    fn operators(&mut self, least: u8) -> Result<Expr, Stop> {
        let before = self.depth;
        let mut left = self.unary()?;
        while let Some((rank, function)) = self.operator().filter(|(rank, _)| *rank >= least) {
            let position = self.current().position;
            self.at += 1;
            if rank > 2 {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(self.too_deep());
                }
            }
            let right = self.operators(rank + 1)?;
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
                    self.factory.call(position, function, vec![left, right])
                }
            };
        }
        self.depth = before;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Stop> {
        let signed_number =
            self.is("-") && self.ahead(1, |token| matches!(token.kind, TokenKind::Integer | TokenKind::Float));
        for (operator, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(operator) || signed_number {
                continue;
            }
            let position = self.current().position;
            let mut count = 0;
            while self.take(operator).is_some() {
                count += 1;
            }
            let operand = self.member()?;
            // Two of them cancel each other.
            return Ok(if count % 2 == 1 {
                self.factory.call(position, function, vec![operand])
            } else {
                operand
            });
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, Stop> {
        let before = self.depth;
        let mut expression = self.primary()?;
        loop {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.too_deep());
            }
            if let Some(position) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]", "']'")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                expression = self.factory.call(position, function, vec![expression, index]);
            } else if let Some(position) = self.take(".") {
                expression = self.field(expression, position)?;
            } else {
                break;
            }
        }
        self.depth = before;
        Ok(expression)
    }

    /// Parses the part after a dot: a field, an optional field, or a call.
    fn field(&mut self, operand: Expr, position: usize) -> Result<Expr, Stop> {
        let optional = self.take("?").is_some();
        let name = self.current();
        match name.kind {
            TokenKind::Identifier => self.at += 1,
            TokenKind::Escaped => {
                self.problem(name.position, "unsupported syntax: '`'".to_owned());
                return Err(Stop);
            }
            _ if optional => return Err(self.unexpected("{IDENTIFIER, ESC_IDENTIFIER}")),
            _ => {
                let message = format!("Syntax error: no viable alternative at input '.{}'", name.text);
                let message = if name.kind == TokenKind::End {
                    "Syntax error: no viable alternative at input '.'".to_owned()
                } else {
                    message
                };
                self.problem(name.position, message);
                return Err(Stop);
            }
        }
        if optional {
            let field = self
                .factory
                .make(name.position, Kind::Literal(Literal::String(name.text.into())));
            return Ok(self.factory.call(position, "_?._", vec![operand, field]));
        }
        if let Some(open) = self.take("(") {
            // Macros put their target inside a fold.
            self.depth += BRACKETS - 1;
            let arguments = self.arguments()?;
            return self.expand(open, name.text, Some(operand), arguments);
        }
        let kind = Kind::Select {
            operand: Box::new(operand),
            field: name.text,
            test: false,
        };
        Ok(self.factory.make(position, kind))
    }

    /// Makes a call, or expands the macro of that name.
    fn expand(
        &mut self,
        position: usize,
        function: String,
        target: Option<Expr>,
        arguments: Vec<Expr>,
    ) -> Result<Expr, Stop> {
        match macros::expand(&mut self.factory, position, &function, target, arguments) {
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

    fn arguments(&mut self) -> Result<Vec<Expr>, Stop> {
        let mut arguments = Vec::new();
        if self.take(")").is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if self.take(",").is_none() {
                break;
            }
        }
        if !self.is(")") && self.skips("')'", |token| token.kind == TokenKind::Punctuation && token.text == ")") {
            self.take(")");
            return Ok(arguments);
        }
        self.expect(")", "{')', ','}")?;
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Expr, Stop> {
        let token = self.current();
        match &token.kind {
            TokenKind::Literal(value) => {
                self.at += 1;
                match value {
                    Ok(value) => Ok(self.factory.make(token.position, Kind::Literal(value.clone()))),
                    Err(problem) => {
                        self.problem(token.position, problem.clone());
                        Err(Stop)
                    }
                }
            }
            TokenKind::Integer | TokenKind::Float => self.number(token.position, ""),
            TokenKind::Identifier => {
                self.at += 1;
                self.name(token.position, token.text, "")
            }
            TokenKind::Punctuation => self.bracketed(&token),
            TokenKind::In | TokenKind::Escaped | TokenKind::End => Err(self.unexpected(OPERAND)),
        }
    }

    fn bracketed(&mut self, token: &Token) -> Result<Expr, Stop> {
        self.at += 1;
        match token.text.as_str() {
            "(" => {
                let inner = self.expression()?;
                if self.current().kind == TokenKind::End {
                    let end = self.current().position;
                    self.problem(end, "Syntax error: missing ')' at '<EOF>'".to_owned());
                    return Err(Stop);
                }
                self.expect(")", "')'")?;
                Ok(inner)
            }
            "[" => self.list(token.position),
            "{" => self.map(token.position),
            "-" => self.number(token.position, "-"),
            "." => {
                let name = self.current();
                if name.kind != TokenKind::Identifier {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                self.at += 1;
                self.name(name.position, name.text, ".")
            }
            _ => {
                self.at -= 1;
                if self.skips(OPERAND, starts_operand) {
                    return self.primary();
                }
                Err(self.unexpected(OPERAND))
            }
        }
    }

    fn number(&mut self, position: usize, sign: &str) -> Result<Expr, Stop> {
        let token = self.current();
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
                self.problem(position, problem.to_owned());
                Err(Stop)
            }
        }
    }

    /// Returns a name: a variable, a call, or a message literal.
    fn name(&mut self, position: usize, name: String, dot: &str) -> Result<Expr, Stop> {
        if is_reserved(&name) {
            self.problem(position, format!("reserved identifier: {name}"));
            return Err(Stop);
        }
        if let Some(open) = self.take("(") {
            let arguments = self.arguments()?;
            return self.expand(open, format!("{dot}{name}"), None, arguments);
        }
        if let Some((parts, open)) = self.message_brace() {
            let mut full = name;
            for _ in 0..parts {
                self.at += 1;
                full = format!("{full}.{}", self.current().text);
                self.at += 1;
            }
            self.at += 1;
            return self.message(open, full);
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
                "." if self.ahead(parts * 2 + 1, |token| token.kind == TokenKind::Identifier) => parts += 1,
                _ => return None,
            }
        }
    }

    fn message(&mut self, position: usize, name: String) -> Result<Expr, Stop> {
        while self.take("}").is_none() {
            self.take("?");
            if self.current().kind != TokenKind::Identifier {
                return Err(self.unexpected("{'}', '?', ',', IDENTIFIER, ESC_IDENTIFIER}"));
            }
            self.at += 1;
            self.expect(":", "':'")?;
            self.expression()?;
            self.separated("}", "{'}', ','}")?;
        }
        Ok(self.factory.make(position, Kind::Message(name)))
    }

    fn list(&mut self, position: usize) -> Result<Expr, Stop> {
        let mut elements = Vec::new();
        if self.current().kind == TokenKind::End {
            return Err(self.unexpected(
                &OPERAND
                    .replace("'['", "'[', ']'")
                    .replace("'.'", "'.', ','")
                    .replace("'!'", "'!', '?'"),
            ));
        }
        self.take(",");
        while self.take("]").is_none() {
            let optional = self.take("?").is_some();
            let value = self.expression()?;
            elements.push(Element { value, optional });
            self.separated("]", "{']', ','}")?;
        }
        Ok(self.factory.make(position, Kind::List(elements)))
    }

    fn map(&mut self, position: usize) -> Result<Expr, Stop> {
        let mut entries = Vec::new();
        if self.current().kind == TokenKind::End {
            return Err(self.unexpected(
                &OPERAND
                    .replace("'{'", "'{', '}'")
                    .replace("'.'", "'.', ','")
                    .replace("'!'", "'!', '?'"),
            ));
        }
        self.take(",");
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            if !self.is(":") && self.ahead(0, starts_operand) {
                let token = self.current();
                self.problem(token.position, format!("Syntax error: missing ':' at '{}'", token.text));
            } else {
                self.expect(":", "':'")?;
            }
            let value = self.expression()?;
            entries.push(Entry { key, value, optional });
            self.separated("}", "{'}', ','}")?;
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
