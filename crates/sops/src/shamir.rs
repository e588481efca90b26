//! Shamir's secret sharing over GF(2^8), with which SOPS splits a data key for several key groups (HashiCorp Vault's form: the last byte of a share is its x coordinate).

use zeroize::Zeroizing;

/// Combines shares; `None` if there are fewer than two, two with the same x coordinate, or different lengths.
pub(crate) fn combine_shares(shares: &[Zeroizing<Vec<u8>>]) -> Option<Zeroizing<Vec<u8>>> {
    let length = shares.first()?.len();
    if shares.len() < 2 || length < 2 || shares.iter().any(|share| share.len() != length) {
        return None;
    }
    let places: Option<Vec<u8>> = shares.iter().map(|share| share.last().copied()).collect();
    let places = places?;
    let are_distinct = places
        .iter()
        .enumerate()
        .all(|(index, place)| *place != 0 && !places.iter().skip(index + 1).any(|other| other == place));
    if !are_distinct {
        return None;
    }
    let mut secret = Zeroizing::new(vec![0; length - 1]);
    for (share, place) in shares.iter().zip(&places) {
        // Lagrange's basis at 0: in this field, subtraction is addition.
        let basis = places.iter().filter(|other| *other != place).fold(1, |basis, other| {
            multiply(basis, multiply(*other, invert(*other ^ *place)))
        });
        for (byte, shared) in secret.iter_mut().zip(share.iter()) {
            *byte ^= multiply(*shared, basis);
        }
    }
    Some(secret)
}

/// Multiplies modulo x^8 + x^4 + x^3 + x + 1, in constant time.
fn multiply(one: u8, other: u8) -> u8 {
    (0..8).rev().fold(0_u8, |product, bit| {
        let reduced = (product << 1) ^ (0x1b & (product >> 7).wrapping_neg());
        reduced ^ (one & (other >> bit & 1).wrapping_neg())
    })
}

/// Inverts a value other than 0: its 254th power.
fn invert(value: u8) -> u8 {
    (0..254).fold(1, |power, _| multiply(power, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_shares_recover_the_secret() {
        // The secret 7 with the slope 5: f(x) = 7 + 5x.
        let share = |place: u8| Zeroizing::new(vec![7 ^ multiply(5, place), place]);
        for (one, other) in [(1, 2), (3, 200), (255, 17)] {
            assert_eq!(combine_shares(&[share(one), share(other)]).unwrap().as_slice(), [7]);
        }
        assert!(combine_shares(&[share(1), share(1)]).is_none());
        assert!(combine_shares(&[share(1)]).is_none());
        assert_eq!(multiply(0x53, 0xca), 1);
        assert_eq!(invert(0x53), 0xca);
    }
}
