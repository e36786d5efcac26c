//! Parsing lists of addresses from the right, the end that the nearest proxy wrote.
//!
//! The left end of `X-Forwarded-For` and `Forwarded` is sent by the client. Its content, malformed
//! or not, must not change how the elements to the right of it are parsed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::canonical;

/// Where a line is split into elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Comma,
    /// Commas outside of double quotes.
    UnquotedComma,
    Absent,
}

/// The elements of one line, from the right.
pub(super) struct ReverseElements<'a> {
    rest: Option<&'a [u8]>,
    split: Separator,
}

impl<'a> ReverseElements<'a> {
    pub(super) const fn new(line: &'a [u8], split: Separator) -> Self {
        Self {
            rest: Some(line),
            split,
        }
    }
}

impl<'a> Iterator for ReverseElements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let quotes = self.split == Separator::UnquotedComma;
        let commas = self.split != Separator::Absent;
        let mut quoted = false;
        for at in (0..rest.len()).rev() {
            match rest[at] {
                b'"' if quotes && !is_escaped(rest, at) => quoted = !quoted,
                b',' if commas && !quoted => {
                    self.rest = Some(&rest[..at]);
                    return Some(&rest[at + 1..]);
                }
                _ => {}
            }
        }
        Some(rest)
    }
}

/// Whether the byte at `at` follows a backslash that is not itself escaped.
fn is_escaped(text: &[u8], at: usize) -> bool {
    let before = text[..at].iter().rev();
    before.take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in an element of `X-Forwarded-For`, or in a header with one address.
pub(super) fn parse_address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element.trim_ascii()).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
                return None;
            }
            parse_v6(address)?
        }
        None => match text.split_once(':') {
            None => text.parse::<Ipv4Addr>().ok()?.into(),
            Some((_, more)) if more.contains(':') => parse_v6(text)?,
            Some((address, port)) if is_port(port) => address.parse::<Ipv4Addr>().ok()?.into(),
            Some(_) => return None,
        },
    };
    Some(canonical(address))
}

/// The address in an element of `Forwarded`, if it has exactly one `for`.
pub(super) fn parse_forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_pairs(element) {
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.trim_ascii().eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(value.trim_ascii());
        }
    }
    let value = found?;
    match value.strip_prefix(b"\"") {
        // A valid address has no escapes.
        Some(quoted) => parse_address(quoted.strip_suffix(b"\"")?),
        None => parse_address(value),
    }
}

/// The `name=value` pairs of an element, split at semicolons outside of quotes.
fn split_pairs(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    element.split(move |byte| {
        let literal = escaped;
        escaped = quoted && !literal && *byte == b'\\';
        if *byte == b'"' && !literal {
            quoted = !quoted;
        }
        *byte == b';' && !quoted
    })
}

/// An IPv6 address. Its zone is removed: zones are local to one machine.
fn parse_v6(text: &str) -> Option<IpAddr> {
    let address = text.split('%').next()?;
    Some(address.parse::<Ipv6Addr>().ok()?.into())
}

/// Whether `text` is a number, or an obfuscated port of `Forwarded`.
fn is_port(text: &str) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let obfuscated = text.strip_prefix('_').is_some_and(|name| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    });
    digits || obfuscated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_brackets_and_zones_are_parsed() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            (" 192.0.2.1\t", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("64:ff9b::192.0.2.1", "192.0.2.1"),
            ("2001:db8::192.0.2.1", "2001:db8::c000:201"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(parse_address(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_are_none() {
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "192.0.2",
            "192.0.2.256",
            "0300.0.2.1",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:80:80",
            "[2001:db8::1",
            "[2001:db8::1]80",
            "[192.0.2.1]",
            "2001:db8::1]",
            "1.1.1.1 2.2.2.2",
            "::1::",
            "localhost",
            "\u{661}.1.1.1",
        ] {
            assert_eq!(parse_address(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_address(b"\xff\xfe"), None);
    }
}
