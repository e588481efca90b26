//! Kubernetes' resource quantities (`1.5Gi`, `100m`, `2e3`): reading, arithmetic, comparison and the canonical form. Errors have the same
//! conditions and words as `resource.ParseQuantity`.
//!
//! Amounts are exact numbers of billionths. Kubernetes rounds smaller parts up, away from zero, and caps binary amounts at 2⁶³−1. This
//! module also caps decimal amounts at 10²⁹, which Kubernetes does not do.

use std::cmp::Ordering;

/// The reason why a text is no quantity, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// There is no digit before a suffix that makes the number very large or very small.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The form in which a quantity was written: with a binary suffix, a decimal suffix, or an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// An amount, and in which form it was written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// Whether Go stores the amount as an integer with a scale of at least one. Only then Go counts it as an integer.
    is_integer: bool,
}

const NANOS: i128 = 1_000_000_000;

/// The largest amount with a binary suffix.
const LARGEST_BINARY: i128 = (i64::MAX as i128) * NANOS;

/// The largest amount. Larger amounts become equal to it.
const LARGEST: i128 = 100_000_000_000_000_000_000_000_000_000 * NANOS;

/// The number of decimal digits that always fit in a machine integer.
const DIGITS: i64 = 18;

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

/// Returns the canonical form of a quantity's text. As in Kubernetes, that is the text itself if it could be canonical (`+5` is `+5`).
///
/// # Errors
/// Text that is no quantity.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let (quantity, is_kept) = read(text)?;
    Ok(if is_kept { text.to_owned() } else { quantity.canonical() })
}

/// The parts of a quantity's text. The whole digits are without leading zeros, but one is left.
struct Parts<'text> {
    negative: bool,
    whole: &'text str,
    fraction: &'text str,
    suffix: &'text str,
    has_digits: bool,
}

fn split_parts(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(digits(after)),
        None => ("", rest),
    };
    let exponent = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    let significant = whole.trim_start_matches('0');
    Ok(Parts {
        negative,
        whole: if significant.is_empty() { "0" } else { significant },
        fraction,
        suffix,
        has_digits: has_digits || suffix.is_empty(),
    })
}

/// Returns the suffix's powers of two and ten, and the form that it belongs to.
fn read_suffix(suffix: &str) -> Option<(u32, i64, Format)> {
    let decimal = |power| Some((0, power, Format::Decimal));
    let binary = |power| Some((power, 0, Format::Binary));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        exponent => {
            let power: i64 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Go keeps the lower half.
            Some((0, i64::from(power as i32), Format::Exponent))
        }
    }
}

/// Reads a quantity. The flag is true if the text is already canonical, as far as Kubernetes checks that.
fn read(text: &str) -> Result<(Quantity, bool), QuantityError> {
    let parts = split_parts(text)?;
    let (binary, power, format) = read_suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
    let length = (parts.whole.len() + parts.fraction.len()) as i64;
    let scale = power - parts.fraction.len() as i64;
    let nanos = count_nanos(&parts, binary, power);
    // Kubernetes' quick way: an integer and a power of ten. A binary suffix takes its share of the digits.
    let is_quick = if format == Format::Binary {
        let share = f64::from(binary) * 3.0 / 10.0;
        let room = DIGITS - 3 - parts.whole.len() as i64 - share as i64 - 1;
        parts.fraction.is_empty() && room >= 0 && nanos <= LARGEST_BINARY
    } else {
        length <= DIGITS && scale >= -9
    };
    if !is_quick && !parts.has_digits {
        return Err(QuantityError::Number);
    }
    let is_kept = is_quick
        && if format == Format::Binary {
            // The last three bits of the number are those of its last three digits.
            let start = parts.whole.len().saturating_sub(3);
            let tail: u32 = parts.whole.get(start..).and_then(|tail| tail.parse().ok()).unwrap_or(0);
            !tail.is_multiple_of(8)
        } else {
            // The number of final zeros that could become a suffix.
            let zeros = |digits: &str| digits.bytes().rev().take_while(|byte| *byte == b'0').count();
            let mut trailing = zeros(parts.fraction);
            if trailing == parts.fraction.len() {
                trailing += zeros(parts.whole);
            }
            scale % 3 == 0 && trailing < 3 && parts.whole != "0"
        };
    let is_below_one = nanos > 0 && nanos < NANOS;
    let quantity = Quantity {
        nanos: if parts.negative { -nanos } else { nanos },
        format: if format == Format::Binary && is_below_one {
            Format::Decimal
        } else {
            format
        },
        is_integer: is_quick && scale >= 0,
    };
    Ok((quantity, is_kept))
}

/// Returns the number in billionths, rounded up, at most the largest amount.
fn count_nanos(parts: &Parts<'_>, binary: u32, power: i64) -> i128 {
    let largest = if binary > 0 { LARGEST_BINARY } else { LARGEST };
    let digits: String = parts.whole.chars().chain(parts.fraction.chars()).collect();
    let significant = digits.trim_start_matches('0');
    // The exponent of the last digit, in billionths.
    let mut exponent = power + 9 - parts.fraction.len() as i64;
    // More digits than a number holds: the last ones only round up.
    let (kept, dropped) = significant.split_at(significant.len().min(36));
    let mut value: i128 = kept.parse().unwrap_or(0);
    if value == 0 {
        return 0;
    }
    exponent += dropped.len() as i64;
    let mut is_inexact = dropped.bytes().any(|digit| digit != b'0');
    for _ in 0..binary {
        if exponent < 0 && value > i128::MAX / 4 {
            is_inexact |= value % 10 != 0;
            value /= 10;
            exponent += 1;
        }
        value = match value.checked_mul(2) {
            Some(doubled) => doubled,
            None => return largest,
        };
    }
    while exponent > 0 {
        value = match value.checked_mul(10) {
            Some(more) if more <= largest => more,
            _ => return largest,
        };
        exponent -= 1;
    }
    while exponent < 0 && value > 0 {
        is_inexact |= value % 10 != 0;
        value /= 10;
        exponent += 1;
    }
    (value + i128::from(is_inexact)).min(largest)
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// Anything that is not a number with one of the known suffixes.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|(quantity, _)| quantity)
    }

    /// Returns zero.
    #[must_use]
    pub fn zero() -> Self {
        Self::whole(0)
    }

    /// Creates a whole number.
    #[must_use]
    pub fn whole(number: impl TryInto<i128>) -> Self {
        Self {
            nanos: number.try_into().unwrap_or(i128::MAX).saturating_mul(NANOS),
            format: Format::Decimal,
            is_integer: true,
        }
    }

    /// Returns whether the amount is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Returns whether the amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Returns whether the amount is a whole number.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Returns the sign: -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i64 {
        self.nanos.signum() as i64
    }

    /// Returns the whole number, if it is one and Kubernetes says that it is: not of one that was written with a fraction, or in too many digits.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        if !self.is_integer || !self.is_whole() {
            return None;
        }
        i64::try_from(self.nanos / NANOS).ok()
    }

    /// Returns the nearest float, or a neighbour of it.
    #[must_use]
    pub fn approximate(&self) -> f64 {
        if self.is_whole() {
            (self.nanos / NANOS) as f64
        } else {
            self.nanos as f64 / NANOS as f64
        }
    }

    /// Returns the ratio of two amounts, approximately.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// Returns the order of two amounts, independent of their notation.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// Returns the sum, in the format of the first amount, unless that is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format: if self.is_zero() { other.format } else { self.format },
            is_integer: self.is_integer && other.is_integer,
        }
    }

    /// Returns the difference, in the format of the first amount, unless that is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self {
            nanos: other.nanos.saturating_neg(),
            ..other
        })
    }

    /// Rounds up to a whole number.
    #[must_use]
    pub fn round_up(self) -> Self {
        self.round_up_to(NANOS)
    }

    /// Rounds up to whole thousandths, as in resource lists.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        self.round_up_to(NANOS / 1000)
    }

    /// Returns the whole thousandths, rounded down.
    #[must_use]
    pub fn thousandths_down(&self) -> i128 {
        self.nanos.div_euclid(NANOS / 1000)
    }

    /// Returns the whole thousandths, rounded up.
    #[must_use]
    pub fn thousandths_up(&self) -> i128 {
        self.nanos.saturating_add(NANOS / 1000 - 1).div_euclid(NANOS / 1000)
    }

    /// Returns an amount of `count` thousandths that prints in the format of this amount.
    #[must_use]
    pub fn with_thousandths(&self, count: i128) -> Self {
        Self {
            nanos: count.saturating_mul(NANOS / 1000),
            ..*self
        }
    }

    /// Rounds away from zero, to a multiple of `unit`.
    fn round_up_to(self, unit: i128) -> Self {
        let units = self.nanos / unit + i128::from(self.nanos % unit != 0) * self.nanos.signum();
        Self {
            nanos: units.saturating_mul(unit),
            ..self
        }
    }

    /// Prints the canonical form.
    #[must_use]
    pub fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        // Kubernetes prints binary quantities below 1024, and fractional ones, as decimals.
        if self.format == Format::Binary && self.nanos.abs() >= 1024 * NANOS && self.is_whole() {
            let (value, times) = without_factors(self.nanos / NANOS, 1024, 6);
            let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            return format!("{value}{}", suffixes.get(times).copied().unwrap_or_default());
        }
        if self.format == Format::Exponent {
            let (value, times) = without_factors(self.nanos, 1000, usize::MAX);
            return match times {
                3 => value.to_string(),
                0..3 => format!("{value}e-{}", 9 - 3 * times),
                _ => format!("{value}e{}", 3 * times - 9),
            };
        }
        let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let (value, times) = without_factors(self.nanos, 1000, suffixes.len() - 1);
        format!("{value}{}", suffixes.get(times).copied().unwrap_or_default())
    }
}

/// Returns a number without its factors, and the number of removed factors.
fn without_factors(mut value: i128, factor: i128, most: usize) -> (i128, usize) {
    let mut times = 0;
    while value % factor == 0 && value != 0 && times < most {
        value /= factor;
        times += 1;
    }
    (value, times)
}
