//! Headers, and numbers as their values, without allocating for the small ones.

use std::str;

use http::{HeaderMap, HeaderName, HeaderValue};

/// 000, 001 and so on to 999.
static THREE_DIGITS: [u8; 3_000] = {
    let mut threes = [b'0'; 3_000];
    let mut at = 0;
    while at < threes.len() {
        let (place, number) = (at % 3, at / 3);
        let digit = match place {
            0 => number / 100,
            1 => number / 10 % 10,
            _ => number % 10,
        };
        threes[at] += DIGIT_VALUES[digit];
        at += 1;
    }
    threes
};

const DIGIT_VALUES: [u8; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Sets one header. Not inlined: an insertion is 4 kB of code.
#[inline(never)]
pub(in crate::respond) fn set_header(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: HeaderValue,
) {
    headers.insert(name, value);
}

/// `number` in decimal.
pub(in crate::respond) fn digits(number: u64) -> HeaderValue {
    if let Some(text) = small(number) {
        return HeaderValue::from_static(text);
    }
    let mut text = ValueBuffer::<20>::new();
    text.number(number);
    text.value()
}

/// Without leading zeros.
fn small(number: u64) -> Option<&'static str> {
    let number = usize::try_from(number)
        .ok()
        .filter(|number| *number < 1_000)?;
    let zeros = usize::from(number < 100) + usize::from(number < 10);
    let digits = THREE_DIGITS.get(3 * number + zeros..3 * number + 3)?;
    str::from_utf8(digits).ok()
}

/// A short text on the stack. What does not fit is left out.
pub(super) struct ValueBuffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> ValueBuffer<N> {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        let end = self.len + text.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(text);
            self.len = end;
        }
    }

    pub(super) fn number(&mut self, number: u64) {
        if let Some(text) = small(number) {
            self.text(text.as_bytes());
            return;
        }
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        while rest > 0 {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        self.text(&digits[at..]);
    }

    /// The text as a header value; empty if it is not a valid one.
    pub(super) fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.bytes[..self.len]).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_always_are() {
        let around = [1_000, 86_400, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        for number in (0..1_100).chain(around) {
            assert_eq!(digits(number), number.to_string());
            let mut text = ValueBuffer::<64>::new();
            text.text(b"r=");
            text.number(number);
            assert_eq!(text.value(), format!("r={number}"));
        }
    }
}
