//! URLs, addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use go_words::quote::quote;

use crate::extension::Extension;
use crate::failure::Failure;
use crate::functions::effort_of_values;
use crate::meter::Meter;
use crate::url::Url;
use crate::value::{Key, Map, Value};

pub(crate) fn call_url<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let url = match (function, arguments) {
        ("isURL", [Value::String(text)]) => return Ok(Value::Bool(Url::parse(text).is_ok())),
        ("url", [Value::String(text)]) => {
            return match Url::parse(text) {
                Ok(url) => Ok(Value::Extension(Extension::Url(Arc::new(url)))),
                Err(reason) => Err(Failure::new(format!(
                    "URL parse error during conversion from string: {reason}"
                ))),
            };
        }
        (_, [Value::Extension(Extension::Url(url))]) => url,
        _ => return Err(Failure::no_such_overload()),
    };
    let text = match function {
        "getScheme" => url.scheme.clone(),
        "getHost" => url.host.clone(),
        "getHostname" => url.hostname().to_owned(),
        "getPort" => url.port().to_owned(),
        "getEscapedPath" => url.path.clone(),
        "getQuery" => {
            meter.spend_effort(
                url.query
                    .len()
                    .saturating_add(effort_of_values(url.query.split('&').count())),
            )?;
            let entries = url.query_values().into_iter().map(|(name, values)| {
                let values: Vec<Value<'a>> = values.into_iter().map(Value::from).collect();
                (Key::String(name.into()), Value::from(values))
            });
            return Ok(Map::from_entries(entries.collect()));
        }
        _ => return Err(Failure::no_such_overload()),
    };
    Ok(Value::from(text))
}

pub(crate) fn call_address<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    Ok(match (function, arguments) {
        ("isIP", [Value::String(text)]) => Value::Bool(parse_address(text).is_ok()),
        ("ip", [Value::String(text)]) => Value::Extension(Extension::Ip(parse_address(text)?)),
        ("ip", [Value::Extension(Extension::Cidr(address, _))]) => Value::Extension(Extension::Ip(*address)),
        ("ip.isCanonical", [Value::String(text)]) => Value::Bool(parse_address(text)?.to_string() == **text),
        ("isCIDR", [Value::String(text)]) => Value::Bool(parse_network(text).is_ok()),
        ("cidr", [Value::String(text)]) => convert_network(text)?,
        ("containsIP", [Value::Extension(Extension::Cidr(address, bits)), other]) => {
            let other = match other {
                // A text that is no address is an error, not a different address.
                Value::String(text) => parse_address(text).map_err(|_| Failure::no_such_overload())?,
                Value::Extension(Extension::Ip(other)) => *other,
                _ => return Err(Failure::no_such_overload()),
            };
            Value::Bool(
                mask_address(other, *bits) == mask_address(*address, *bits) && other.is_ipv4() == address.is_ipv4(),
            )
        }
        ("containsCIDR", [Value::Extension(Extension::Cidr(address, bits)), other]) => {
            let other = match other {
                Value::String(text) => convert_network(text).map_err(|_| Failure::no_such_overload())?,
                other => other.clone(),
            };
            let Value::Extension(Extension::Cidr(inner, inner_bits)) = other else {
                return Err(Failure::no_such_overload());
            };
            let same = address.is_ipv4() == inner.is_ipv4();
            Value::Bool(same && *bits <= inner_bits && mask_address(inner, *bits) == mask_address(*address, *bits))
        }
        ("masked", [Value::Extension(Extension::Cidr(address, bits))]) => {
            Value::Extension(Extension::Cidr(mask_address(*address, *bits), *bits))
        }
        ("prefixLength", [Value::Extension(Extension::Cidr(_, bits))]) => Value::Int(i64::from(*bits)),
        (function, [Value::Extension(Extension::Ip(address))]) => match (function, address) {
            ("family", IpAddr::V4(_)) => Value::Int(4),
            ("family", IpAddr::V6(_)) => Value::Int(6),
            ("isUnspecified", address) => Value::Bool(address.is_unspecified()),
            ("isLoopback", address) => Value::Bool(address.is_loopback()),
            ("isLinkLocalMulticast", IpAddr::V4(address)) => Value::Bool(matches!(address.octets(), [224, 0, 0, _])),
            ("isLinkLocalMulticast", IpAddr::V6(address)) => {
                Value::Bool(address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02))
            }
            ("isLinkLocalUnicast", address) => Value::Bool(link_local(*address)),
            ("isGlobalUnicast", address) => {
                let broadcast = *address == IpAddr::V4(Ipv4Addr::BROADCAST);
                let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
                Value::Bool(!broadcast && !special && !link_local(*address))
            }
            _ => return Err(Failure::no_such_overload()),
        },
        _ => return Err(Failure::no_such_overload()),
    })
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xffc0 == 0xfe80),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, Failure> {
    let shown = quote(text);
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Err(Failure::new(format!(
            "IP address {shown} with zone value is not allowed"
        )));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        Failure::new(format!(
            "IP Address {shown} parse error during conversion from string: ParseAddr({shown}): {}",
            why_no_address(text)
        ))
    })?;
    match address {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => {
            Err(Failure::new(format!("IPv4-mapped IPv6 address {shown} is not allowed")))
        }
        address => Ok(address),
    }
}

/// Returns Go's error for a text that is no address, for the usual cases.
fn why_no_address(text: &str) -> String {
    let separator = text.find(['.', ':', '%']).and_then(|at| text.get(at..)?.chars().next());
    match separator {
        Some('.') => {
            let fields: Vec<&str> = text.split('.').collect();
            let odd = text
                .char_indices()
                .find(|(_, letter)| !letter.is_ascii_digit() && *letter != '.');
            if let Some((at, _)) = odd {
                let rest = text.get(at..).unwrap_or_default();
                return format!("unexpected character (at {})", quote(rest));
            }
            if fields
                .iter()
                .any(|field| field.parse::<u32>().is_ok_and(|number| number > 255))
            {
                return "IPv4 field has value >255".to_owned();
            }
            if fields.iter().any(|field| field.len() > 1 && field.starts_with('0')) {
                return "IPv4 field has octet with leading zero".to_owned();
            }
            match fields.len() {
                0..4 => "IPv4 address too short".to_owned(),
                4 => "IPv4 field must have at least one digit".to_owned(),
                _ => "IPv4 address too long".to_owned(),
            }
        }
        Some('%') => "missing IPv6 address".to_owned(),
        Some(_) => format!("unexpected character (at {})", quote(text)),
        None => "unable to parse IP".to_owned(),
    }
}

fn convert_network<'a>(text: &str) -> Result<Value<'a>, Failure> {
    match parse_network(text) {
        Ok((address, bits)) => Ok(Value::Extension(Extension::Cidr(address, bits))),
        Err(reason) => Err(Failure::new(format!(
            "network address parse error during conversion from string: {reason}"
        ))),
    }
}

fn parse_network(text: &str) -> Result<(IpAddr, u8), String> {
    let shown = quote(text);
    let refuse = |reason: &str| {
        Err(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({shown}): {reason}"
        ))
    };
    let Some((address, bits)) = text.rsplit_once('/') else {
        return refuse("no '/'");
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return refuse(&format!("ParseAddr({}): {}", quote(address), why_no_address(address)));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (bits.len() > 1 && bits.starts_with('0')) {
        return refuse(&format!("bad bits after slash: {}", quote(bits)));
    }
    match bits.parse::<u8>() {
        Ok(bits) if bits <= most => match address {
            IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => {
                Err(format!("IPv4-mapped IPv6 address {shown} is not allowed"))
            }
            address => Ok((address, bits)),
        },
        _ => refuse("prefix length out of range"),
    }
}

fn mask_address(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}
