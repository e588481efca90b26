//! Owns text armor: base64 between lines of dashes, as OpenPGP and age write it. Refuses what isn't wholly between its lines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The base64 between the first pair of such lines, decoded, and what follows them; nothing if there is none or it is broken. Headers, as
/// OpenPGP writes them, end with an empty line; a line that begins with `=` there is a checksum, which is passed over.
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
