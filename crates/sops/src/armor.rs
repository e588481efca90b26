//! Reads text armor within the cost limits of a file.

use zeroize::Zeroizing;

/// Returns the first armored block of a text, decoded, and the text after it; see [`openpgp_packets::armor::find_first`].
pub(crate) fn decode_first<'a>(text: &'a str, what: &str, is_openpgp: bool) -> Option<(Zeroizing<Vec<u8>>, &'a str)> {
    let found = openpgp_packets::armor::find_first(text, what, is_openpgp);
    let bytes = found.as_ref().map_or(0, |(bytes, _)| bytes.len());
    go_yaml::meter::count_steps(1 + bytes / 12);
    found
}
