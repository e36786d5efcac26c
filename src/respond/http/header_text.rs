//! Headers and their values.

use std::fmt::{self, Write};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Sets one header. Not generic, because an insertion is 4 kB of code.
pub(in crate::respond) fn set_header(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: HeaderValue,
) {
    headers.insert(name, value);
}

/// `text` as a header value; empty if it is not a valid one.
pub(in crate::respond) fn header_value(text: fmt::Arguments<'_>) -> HeaderValue {
    let mut short = ShortText {
        bytes: [0; 128],
        len: 0,
    };
    let value = match short.write_fmt(text) {
        Ok(()) => HeaderValue::from_bytes(&short.bytes[..short.len]),
        Err(fmt::Error) => HeaderValue::from_str(&text.to_string()),
    };
    value.unwrap_or(HeaderValue::from_static(""))
}

/// Text on the stack, so that a value is one allocation.
struct ShortText {
    bytes: [u8; 128],
    len: usize,
}

impl Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let free = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// A string of JSON; of a structured field if it is printable ASCII.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        // The last character of each part may be one that is escaped. A header is written with each response,
        // so characters are not written one by one.
        for part in self.0.split_inclusive(is_escaped) {
            let plain = part.trim_end_matches(is_escaped);
            f.write_str(plain)?;
            match part[plain.len()..].chars().next() {
                Some(c @ ('"' | '\\')) => write!(f, "\\{c}")?,
                Some(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                None => {}
            }
        }
        f.write_str("\"")
    }
}

const fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\' | '\0'..='\x1f')
}

/// A number with a text before it, or nothing.
pub(super) struct Labelled(pub(super) &'static str, pub(super) Option<u64>);

impl fmt::Display for Labelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(number) => {
                f.write_str(self.0)?;
                number.fmt(f)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 126 bytes and two quotes are the longest text on the stack.
    #[test]
    fn long_text_is_written_as_short_text() {
        for length in [0, 1, 62, 63, 64, 125, 126, 127, 500] {
            for (character, escaped) in [("a", "a"), ("\"", "\\\""), ("\\", "\\\\")] {
                let quoted = Quoted(&character.repeat(length)).to_string();
                assert_eq!(quoted, format!("\"{}\"", escaped.repeat(length)));
                assert_eq!(header_value(format_args!("{quoted}")), *quoted);
            }
        }
        assert_eq!(header_value(format_args!("a\nb")), "");
        assert_eq!(
            header_value(format_args!("{}", u64::MAX)),
            u64::MAX.to_string()
        );
        let labelled = [Some(7), None].map(|number| Labelled(";t=", number).to_string());
        assert_eq!(labelled, [";t=7", ""]);
    }
}
