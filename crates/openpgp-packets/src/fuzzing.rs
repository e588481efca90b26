//! Checks of armor and packets over any bytes: for targets of cargo-fuzz, and as tests over their first inputs. The module exists only for tests and under
//! `cfg(fuzzing)`, which cargo-fuzz sets.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::armor::find_first;
use crate::packet::{MOST_PACKETS, take_mpi, take_number, take_packet};

/// Returns the packets, each with its tag and body, and whether all bytes belong to packets.
pub fn check_packets(bytes: &[u8]) -> (Vec<(u8, Vec<u8>)>, bool) {
    let mut rest = bytes;
    let mut packets = Vec::new();
    while packets.len() < MOST_PACKETS {
        let mut after = rest;
        let Some(packet) = take_packet(&mut after) else { break };
        assert!(
            packet.body.len() < rest.len() - after.len(),
            "a body is not longer than its packet"
        );
        rest = after;
        assert!(packet.tag < 64);
        packets.push((packet.tag, packet.body.to_vec()));
    }
    let mut number = bytes;
    if let Some(mpi) = take_mpi(&mut number) {
        let mut bits = bytes;
        assert_eq!(mpi.len(), take_number(&mut bits, 2).unwrap().div_ceil(8));
    }
    (packets, rest.is_empty())
}

/// Armors the bytes, and reads text with other text around the armor. The text itself may be armor, too.
pub fn check_armor(bytes: &[u8]) {
    let lines: Vec<String> = STANDARD
        .encode(bytes)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    let text = String::from_utf8_lossy(bytes);
    let armored = format!(
        "-----BEGIN PGP MESSAGE-----\nVersion: 1\n\n{}\n=abcd\n-----END PGP MESSAGE-----\n{text}",
        lines.join("\n")
    );
    let (found, rest) = find_first(&armored, "PGP MESSAGE", true).unwrap();
    assert_eq!(found.as_slice(), bytes);
    assert_eq!(rest, format!("\n{text}"));
    for is_openpgp in [false, true] {
        if let Some((found, rest)) = find_first(&text, "PGP MESSAGE", is_openpgp) {
            assert!(found.len() <= text.len() / 4 * 3);
            assert!(text.ends_with(rest));
        }
    }
}

/// Returns the first inputs: packets in all forms of lengths, and armor.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut long = vec![0xcb, 193, 0];
    long.resize(3 + 448, 7);
    vec![
        vec![0xcb, 3, 1, 2, 3, 0xc2, 0],
        long,
        vec![0xcb, 255, 0, 0, 0, 2, 8, 9],
        // Two parts, and the last.
        vec![0xd2, 225, 1, 2, 224, 3, 1, 4],
        vec![0xac, 2, 1, 2, 0xad, 0, 1, 5, 0xae, 0, 0, 0, 1, 6, 0xaf, 1, 2, 3],
        b"-----BEGIN PGP MESSAGE-----\nComment: x\n\nyxQAAAAA\n=abcd\n-----END PGP MESSAGE-----\n".to_vec(),
        b"-----BEGIN PGP MESSAGE-----\nAAAA\n-----END PGP MESSAGE-----".to_vec(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_around_the_first_inputs_keep_their_promises() {
        for seed in seeds() {
            for at in 0..seed.len() {
                for flip in [0, 1, 0x40, 0x80, 0xff] {
                    let mut bytes = seed.clone();
                    *bytes.get_mut(at).unwrap() ^= flip;
                    check_packets(&bytes);
                    check_armor(&bytes);
                    check_packets(bytes.get(..at).unwrap());
                }
            }
        }
    }
}
