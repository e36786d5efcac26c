//! Headers and their values.

use std::{fmt, io::Write};

use http::HeaderValue;

/// The value of a header; an empty one if the text cannot be sent.
pub(in crate::respond) fn header_value(text: fmt::Arguments<'_>) -> HeaderValue {
    // On the stack, so that the value is one allocation.
    let mut short = [0; 128];
    let mut free = &mut short[..];
    let value = match free.write_fmt(text) {
        Ok(()) => {
            let unused = free.len();
            HeaderValue::from_bytes(&short[..128 - unused])
        }
        Err(_) => HeaderValue::from_str(&text.to_string()),
    };
    value.unwrap_or(HeaderValue::from_static(""))
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
        let found = header_value(format_args!("{}", u64::MAX));
        assert_eq!(found, u64::MAX.to_string());
    }
}
