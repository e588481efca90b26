//! Contents of certificates: names, purposes, lifetimes, serial numbers.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};

const DAY: i64 = 24 * 3600;
/// Lifetime of the CA's certificate in days.
pub(super) const AUTHORITY_DAYS: i64 = 3650;
/// Lifetime of the certificates that the CA signs, in days.
pub(super) const LEAF_DAYS: i64 = 365;
/// A certificate is replaced this many days before its end.
pub(super) const RENEW_DAYS: i64 = 30;

/// The purpose of a certificate that the CA signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The server's own.
    Serving,
    /// The admin's.
    Admin,
}

/// Creates the CA's certificate, signed with its own key.
pub(super) fn issue_authority(key: &KeyPair, now: Timestamp) -> Result<String, rcgen::Error> {
    let mut params = make_parameters(&[], now, AUTHORITY_DAYS)?;
    params.distinguished_name.push(DnType::CommonName, "tenure-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params.self_signed(key)?.pem())
}

/// Creates a certificate for `purpose`, signed by the CA.
pub(super) fn issue_leaf(
    purpose: Purpose,
    names: &[String],
    key: &KeyPair,
    issuer: &Issuer<'_, KeyPair>,
    now: Timestamp,
) -> Result<String, rcgen::Error> {
    let names = match purpose {
        Purpose::Serving => names,
        Purpose::Admin => &[],
    };
    let mut params = make_parameters(names, now, LEAF_DAYS)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let (common_name, organization, usage) = match purpose {
        Purpose::Serving => ("tenure-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth),
        Purpose::Admin => (
            "kubernetes-admin",
            Some(tenure_auth::identity::MASTERS),
            ExtendedKeyUsagePurpose::ClientAuth,
        ),
    };
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok(params.signed_by(key, issuer)?.pem())
}

fn make_parameters(names: &[String], now: Timestamp, days: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    // The validity begins five minutes before now, for clients with a slow clock.
    params.not_before = SystemTime::from(shift_time(now, -300)).into();
    params.not_after = SystemTime::from(shift_time(now, days.saturating_mul(DAY))).into();
    // One key may get several certificates: without a random serial number they would share one.
    let mut serial = [0_u8; 16];
    SystemRandom::new()
        .fill(&mut serial)
        .map_err(|_| rcgen::Error::RingUnspecified)?;
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn shift_time(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now)
}
