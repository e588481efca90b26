//! The timestamps that Go's YAML libraries recognise, and their form in RFC 3339.

/// Reads text as a timestamp and renders it as Go's JSON encoder does; `None` if the text isn't a timestamp.
pub(crate) fn normalize(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 4 || text.as_bytes().get(4) != Some(&b'-') {
        return None;
    }
    let mut cursor = Cursor { rest: text };
    let year = cursor.read_number(4, 4)?;
    cursor.expect('-')?;
    let month = cursor.read_number(1, 2)?;
    cursor.expect('-')?;
    let day = cursor.read_number(1, 2)?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if cursor.rest.is_empty() {
        return Some(format!("{date}T00:00:00Z"));
    }
    let zoned = match cursor.rest.chars().next()? {
        'T' | 't' => true,
        ' ' => false,
        _ => return None,
    };
    cursor.skip(1);
    let hour = cursor.read_number(1, 2)?;
    cursor.expect(':')?;
    let minute = cursor.read_number(1, 2)?;
    cursor.expect(':')?;
    let second = cursor.read_number(1, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = cursor.read_fraction();
    let zone = if zoned { cursor.read_zone()? } else { "Z".to_owned() };
    cursor
        .rest
        .is_empty()
        .then(|| format!("{date}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"))
}

/// The rest of the text that has not been read.
struct Cursor<'text> {
    rest: &'text str,
}

impl Cursor<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(wanted)?;
        Some(())
    }

    fn read_number(&mut self, least: usize, most: usize) -> Option<u32> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return None;
        }
        let value = self.rest.get(..digits)?.parse().ok()?;
        self.skip(digits);
        Some(value)
    }

    fn read_fraction(&mut self) -> String {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else {
            return String::new();
        };
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return String::new();
        }
        let kept: String = after.chars().take(digits.min(9)).collect();
        self.skip(1 + digits);
        let trimmed = kept.trim_end_matches('0');
        if trimmed.is_empty() {
            String::new()
        } else {
            format!(".{trimmed}")
        }
    }

    fn read_zone(&mut self) -> Option<String> {
        if self.rest == "Z" {
            self.skip(1);
            return Some("Z".to_owned());
        }
        let sign = self.rest.chars().next().filter(|sign| matches!(sign, '+' | '-'))?;
        self.skip(1);
        let hours = self.read_number(2, 2)?;
        self.expect(':')?;
        let minutes = self.read_number(2, 2)?;
        if hours > 24 || minutes > 59 {
            return None;
        }
        Some(if hours == 0 && minutes == 0 {
            "Z".to_owned()
        } else {
            format!("{sign}{hours:02}:{minutes:02}")
        })
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}
