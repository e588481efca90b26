//! Reads and prints numbers as Go's strconv and encoding/json do.

/// Reads an integer as `strconv.ParseInt(text, 0, 64)` and `ParseUint` do: a sign, then 0x, 0o, 0b or 0 prefixes.
pub(crate) fn parse_integer(text: &str) -> Option<i128> {
    let (negative, signed, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, true, rest),
        None => text
            .strip_prefix('+')
            .map_or((false, false, text), |rest| (false, true, rest)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = if let Some(hex) = lower.strip_prefix("0x") {
        (16, hex)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        (8, octal)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        (2, binary)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.get(1..)?)
    } else {
        (10, lower.as_str())
    };
    if body.is_empty() || !body.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from_str_radix(body, radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    // Only an unsigned 64-bit integer may be above the signed range, and only without a sign.
    let most = if signed {
        i128::from(i64::MAX)
    } else {
        i128::from(u64::MAX)
    };
    (i128::from(i64::MIN)..=most).contains(&value).then_some(value)
}

/// Reads a decimal float; `None` if the text isn't a float or overflows.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = body.splitn(2, ['e', 'E']);
    let mantissa = parts.next()?;
    let exponent = parts.next();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// Checks whether a float has YAML's form, which starts with a digit, or with a dot and a digit.
pub(crate) fn looks_like_yaml_float(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    match body.strip_prefix('.') {
        Some(rest) => rest.starts_with(|first: char| first.is_ascii_digit()),
        None => body.starts_with(|first: char| first.is_ascii_digit()),
    }
}

/// Prints a float as `strconv.FormatFloat(value, 'g', -1, 64)`.
pub(crate) fn format_general(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    let (negative, digits, point) = find_shortest_digits(value);
    let exponent = point - 1;
    let sign = if negative { "-" } else { "" };
    // With the shortest digits, 'g' decides by a precision of 6.
    if !(-4..6).contains(&exponent) {
        return format!("{sign}{}", with_exponent(&digits, exponent));
    }
    format!("{sign}{}", format_plain(&digits, point))
}

/// Prints a float as encoding/json does.
#[must_use]
pub fn format_json(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return if value.is_sign_negative() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    let (negative, digits, point) = find_shortest_digits(value);
    let sign = if negative { "-" } else { "" };
    if !(1e-6..1e21).contains(&magnitude) {
        let text = with_exponent(&digits, point - 1);
        // e-09 becomes e-9.
        let cleaned = match text.rsplit_once("e-0") {
            Some((mantissa, digit)) if digit.len() == 1 => format!("{mantissa}e-{digit}"),
            _ => text,
        };
        return format!("{sign}{cleaned}");
    }
    format!("{sign}{}", format_plain(&digits, point))
}

/// Returns the shortest digits that read back as the value, and where the decimal point is among them.
fn find_shortest_digits(value: f64) -> (bool, String, i32) {
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    (value < 0.0, digits, exponent + 1)
}

fn with_exponent(digits: &str, exponent: i32) -> String {
    let mut characters = digits.chars();
    let first: String = characters.next().into_iter().collect();
    let rest: String = characters.collect();
    let mantissa = if rest.is_empty() {
        first
    } else {
        format!("{first}.{rest}")
    };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

fn format_plain(digits: &str, point: i32) -> String {
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if point <= 0 {
        return format!("0.{}{digits}", "0".repeat(usize::try_from(-point).unwrap_or(0)));
    }
    if point >= length {
        return format!("{digits}{}", "0".repeat(usize::try_from(point - length).unwrap_or(0)));
    }
    let split = usize::try_from(point).unwrap_or(0);
    format!(
        "{}.{}",
        digits.get(..split).unwrap_or(""),
        digits.get(split..).unwrap_or("")
    )
}
