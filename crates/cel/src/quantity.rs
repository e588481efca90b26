//! Kubernetes' quantities: `1.5Gi`, `100m`, `2e3`. Exact, as numbers of nano-units.

use std::cmp::Ordering;

/// A quantity in units of 10⁻⁹. Kubernetes rounds what is smaller up, and caps what is larger than 2⁶³−1 units.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    /// Whether it is written without fraction, and not too large: only then it counts as an integer.
    whole: bool,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

const NANO: i128 = 1_000_000_000;

/// The largest quantity is this many units.
const LARGEST: i128 = i64::MAX as i128;

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// With Kubernetes' words for what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let whole = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = unsigned.split_at(whole);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        let well_formed = {
            let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
            let rest = suffix.get(letters..).unwrap_or_default();
            let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
            rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !well_formed {
            return Err(FORMAT);
        }
        let (binary, power) = suffix_of(suffix).ok_or(SUFFIX)?;
        let scaled = scale(digits, fraction, binary, power);
        let nano = scaled.min(LARGEST * NANO);
        let length = (digits.len() + fraction.len()) as i64;
        let whole = if binary > 0 {
            // So many digits are left of those that a machine's integer has.
            fraction.is_empty() && 15 - length - i64::from(binary) * 3 / 10 > 0
        } else {
            length <= 18 && i64::from(power) >= fraction.len() as i64
        };
        Ok(Self {
            nano: if negative { -nano } else { nano },
            whole,
        })
    }

    /// So many units.
    pub(crate) fn whole(units: i64) -> Self {
        Self {
            nano: i128::from(units) * NANO,
            whole: true,
        }
    }

    /// The number of units, if it is whole.
    pub(crate) fn as_integer(self) -> Option<i64> {
        if !self.whole || self.nano % NANO != 0 {
            return None;
        }
        i64::try_from(self.nano / NANO).ok()
    }

    pub(crate) fn approximate(self) -> f64 {
        if self.nano % NANO == 0 {
            (self.nano / NANO) as f64
        } else {
            self.nano as f64 / NANO as f64
        }
    }

    pub(crate) fn sign(self) -> i64 {
        self.nano.signum() as i64
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            whole: self.whole && other.whole,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_sub(other.nano),
            whole: self.whole && other.whole,
        }
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

/// The suffix's powers of two and ten.
fn suffix_of(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => (0, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// The number in nano-units, rounded up; at least beyond the largest if it is that large.
fn scale(digits: &str, fraction: &str, binary: u32, power: i32) -> i128 {
    let beyond = LARGEST.saturating_mul(NANO).saturating_add(NANO);
    let all: String = digits.chars().chain(fraction.chars()).collect();
    let significant = all.trim_start_matches('0');
    // The exponent of the last digit, in nano-units.
    let mut exponent = i64::from(power) + 9 - fraction.len() as i64;
    // More digits than a number holds: the last ones only round up.
    let kept = significant.len().min(36);
    let mut value: i128 = significant.get(..kept).unwrap_or_default().parse().unwrap_or(0);
    if value == 0 {
        return 0;
    }
    let dropped = significant.get(kept..).unwrap_or_default();
    exponent += dropped.len() as i64;
    let mut inexact = dropped.bytes().any(|digit| digit != b'0');
    for _ in 0..binary {
        if exponent < 0 && value > i128::MAX / 4 {
            inexact |= value % 10 != 0;
            value /= 10;
            exponent += 1;
        }
        value = match value.checked_mul(2) {
            Some(doubled) => doubled,
            None => return beyond,
        };
    }
    while exponent > 0 {
        value = match value.checked_mul(10) {
            Some(more) if more <= beyond => more,
            _ => return beyond,
        };
        exponent -= 1;
    }
    while exponent < 0 {
        inexact |= value % 10 != 0;
        value /= 10;
        exponent += 1;
        if value == 0 {
            break;
        }
    }
    value + i128::from(inexact)
}
