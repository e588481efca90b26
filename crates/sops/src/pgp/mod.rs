//! The part of OpenPGP (RFC 9580) that SOPS needs: a data key that is encrypted for secret keys without a passphrase. The module signs, verifies and looks up nothing,
//! and derives no key from a passphrase.

mod body;
mod key;
mod ocb;
mod session;

pub(crate) use key::{SecretKey, read_keys};
use zeroize::Zeroizing;

use crate::armor;
use crate::error::Error;
use crate::tries::Tries;

const MESSAGE: &str = "PGP MESSAGE";
const SESSION_KEY: u8 = 1;
/// The most session key packets of one message. SOPS makes one message per recipient.
const MOST_SESSION_KEYS: usize = 16;

/// Returns the literal data in the packets of a message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_literal(packets: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    body::find_literal(packets, body::DEEPEST)
}

/// Decrypts a data key; `None` if no key opens it or it is damaged. The result doesn't say which, so that an answer gives no help in guessing.
///
/// # Errors
/// When the tries are used up.
pub(crate) fn decrypt_data_key(
    armored: &str,
    keys: &[SecretKey],
    tries: &mut Tries,
) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some((message, _)) = armor::decode_first(armored, MESSAGE, true) else {
        return Ok(None);
    };
    let mut rest = message.as_slice();
    let mut sealed = Vec::new();
    for _ in 0..openpgp_packets::packet::MOST_PACKETS {
        let Some(packet) = openpgp_packets::packet::take_packet(&mut rest) else {
            return Ok(None);
        };
        if packet.tag == SESSION_KEY {
            if sealed.len() == MOST_SESSION_KEYS {
                return Ok(None);
            }
            sealed.push(packet);
            continue;
        }
        if !body::is_encrypted(packet.tag) {
            continue;
        }
        for one in &sealed {
            for key in keys {
                if let Some(session) = session::decrypt_session_key(&one.body, key, tries)?
                    && let Some(content) = body::decrypt_message(&packet, &session)
                {
                    return Ok(Some(content));
                }
            }
        }
        return Ok(None);
    }
    Ok(None)
}
