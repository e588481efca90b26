//! Text armor: base64 between lines of dashes, as OpenPGP and age write it. Armor with a missing line is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Returns the decoded base64 of the first armored block, and the text after the block; `None` if its lines are missing or the base64 is damaged. The block begins
/// with `-----BEGIN <what>-----`. With `is_openpgp`, headers end with an empty line, and a line that begins with `=` is a checksum, which ends the base64.
#[must_use]
pub fn find_first<'a>(text: &'a str, what: &str, is_openpgp: bool) -> Option<(Zeroizing<Vec<u8>>, &'a str)> {
    let begin = format!("-----BEGIN {what}-----");
    let end = format!("-----END {what}-----");
    let (_, rest) = text.split_once(&begin)?;
    let (inside, rest) = rest.split_once(&end)?;
    let mut lines = inside.lines().skip(1).peekable();
    if is_openpgp && inside.lines().any(|line| line.contains(": ")) {
        lines.by_ref().find(|line| line.trim().is_empty())?;
    }
    let mut joined = Zeroizing::new(String::with_capacity(inside.len()));
    for line in lines {
        let line = line.trim();
        if is_openpgp && line.starts_with('=') {
            break;
        }
        joined.push_str(line);
    }
    let decoded = STANDARD.decode(joined.as_bytes()).ok()?;
    Some((Zeroizing::new(decoded), rest))
}
