//! Kubernetes' resource quantities: parsed, compared, and printed in their canonical form.

use std::cmp::Ordering;

/// Text that is no quantity. The words are `resource.Quantity`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct QuantityError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// A parsed quantity: an exact number of billionths, saturating far beyond what Kubernetes allows.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANOS: i128 = 1_000_000_000;

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

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// Anything that is not a number with one of the known suffixes.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let split = text
            .find(|letter: char| !(letter.is_ascii_digit() || matches!(letter, '+' | '-' | '.')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (factor, format) = suffix_factor(suffix).ok_or(QuantityError)?;
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty())
            || !(whole.chars().chain(fraction.chars())).all(|c| c.is_ascii_digit())
        {
            return Err(QuantityError);
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().unwrap_or(i128::from(i64::MAX))
        };
        // Sixteen digits after the point are more than any suffix can make visible.
        let shown: String = fraction.chars().take(16).collect();
        let scale = 10i128.checked_pow(u32::try_from(shown.len()).unwrap_or(0)).unwrap_or(1);
        let fraction: i128 = if shown.is_empty() {
            0
        } else {
            shown.parse().map_err(|_| QuantityError)?
        };
        let nanos = match factor {
            Factor::Times(times) => {
                let nanos = whole.saturating_mul(times).saturating_mul(NANOS);
                let part = fraction.saturating_mul(times).saturating_mul(NANOS);
                nanos.saturating_add(div_up(part, scale))
            }
            Factor::Nanos(nanos) => whole
                .saturating_mul(nanos)
                .saturating_add(div_up(fraction.saturating_mul(nanos), scale)),
        };
        let limit = i128::from(i64::MAX).saturating_mul(NANOS);
        let nanos = nanos.min(limit);
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    /// Below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Rounded up to whole thousandths, as resource lists hold them.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        const MILLI: i128 = 1_000_000;
        Self {
            nanos: div_up(self.nanos, MILLI).saturating_mul(MILLI),
            ..self
        }
    }

    /// Nothing at all.
    #[must_use]
    pub fn zero() -> Self {
        Self {
            nanos: 0,
            format: Format::Decimal,
        }
    }

    /// A whole number.
    #[must_use]
    pub fn whole(number: usize) -> Self {
        Self {
            nanos: i128::try_from(number).unwrap_or(i128::MAX).saturating_mul(NANOS),
            format: Format::Decimal,
        }
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The sum, printed as the first one is, unless that is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format: if self.is_zero() { other.format } else { self.format },
        }
    }

    /// The difference, printed as the first one is, unless that is nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self {
            nanos: other.nanos.saturating_neg(),
            ..other
        })
    }

    /// Rounded up to a whole number.
    #[must_use]
    pub fn round_up(self) -> Self {
        Self {
            nanos: div_up(self.nanos, NANOS).saturating_mul(NANOS),
            ..self
        }
    }

    /// Near enough for a ratio.
    pub fn ratio_to(&self, other: &Self) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// Prints the canonical form.
    pub fn canonical(&self) -> String {
        let mut format = self.format;
        if self.nanos == 0 {
            return "0".to_owned();
        }
        // Kubernetes prints binary quantities below 1024, and fractional ones, as decimals.
        if format == Format::Binary && (self.nanos.abs() < 1024 * NANOS || self.nanos % NANOS != 0) {
            format = Format::Decimal;
        }
        if format == Format::Binary {
            let mut value = self.nanos / NANOS;
            let mut power = 0usize;
            while value % 1024 == 0 && power < 6 {
                value /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
                .get(power)
                .copied()
                .unwrap_or_default();
            return format!("{value}{suffix}");
        }
        let mut value = self.nanos;
        let mut power = -9i32;
        while value % 1000 == 0 && power < 18 {
            value /= 1000;
            power += 3;
        }
        if format == Format::Exponent {
            return if power == 0 {
                value.to_string()
            } else {
                format!("{value}e{power}")
            };
        }
        let suffix = match power {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        format!("{value}{suffix}")
    }
}

fn div_up(value: i128, by: i128) -> i128 {
    let rest = value % by;
    value / by + i128::from(rest != 0)
}

enum Factor {
    Times(i128),
    Nanos(i128),
}

fn suffix_factor(suffix: &str) -> Option<(Factor, Format)> {
    let decimal = |times| Some((Factor::Times(times), Format::Decimal));
    let binary = |power: u32| Some((Factor::Times(1i128 << (10 * power)), Format::Binary));
    match suffix {
        "" => decimal(1),
        "n" => Some((Factor::Nanos(1), Format::Decimal)),
        "u" => Some((Factor::Nanos(1_000), Format::Decimal)),
        "m" => Some((Factor::Nanos(1_000_000), Format::Decimal)),
        "k" => decimal(1_000),
        "M" => decimal(1_000_000),
        "G" => decimal(1_000_000_000),
        "T" => decimal(1_000_000_000_000),
        "P" => decimal(1_000_000_000_000_000),
        "E" => decimal(1_000_000_000_000_000_000),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let exponent = exponent.clamp(-30, 18);
            let factor = match u32::try_from(exponent) {
                Ok(power) => Factor::Times(10i128.checked_pow(power)?),
                Err(_) => Factor::Nanos(10i128.checked_pow(u32::try_from(9 + exponent).unwrap_or(0))?),
            };
            Some((factor, Format::Exponent))
        }
    }
}

/// The canonical form of a quantity's text.
///
/// # Errors
/// Text that is no quantity.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    Ok(Quantity::parse(text)?.canonical())
}

#[cfg(test)]
mod tests {
    use super::canonical;

    /// Pairs printed by the real server for container limits.
    #[test]
    fn canonical_form_is_the_real_servers() {
        for (given, want) in [
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("100", "100"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("1000", "1k"),
            ("0.1m", "100u"),
            ("1.25", "1250m"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("-1", "-1"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("129M", "129M"),
            ("123Mi", "123Mi"),
            ("2048", "2048"),
            ("0.5Ki", "512"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(want), "{given}");
        }
        for refused in ["", "a", "1.2.3", "1Kb", "1 Gi", "e3", "."] {
            assert!(canonical(refused).is_err(), "{refused}");
        }
    }
}
