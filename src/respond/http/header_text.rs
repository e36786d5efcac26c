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
    if let Some(text) = small(number).and_then(|text| str::from_utf8(text).ok()) {
        return HeaderValue::from_static(text);
    }
    let mut text = ValueBuffer::<20>::new();
    text.number(number);
    text.value()
}

/// Without leading zeros. `None` for 1,000 and above.
fn small(number: u64) -> Option<&'static [u8]> {
    let zeros = usize::from(number < 100) + usize::from(number < 10);
    three_digits(number)?.get(zeros..)
}

/// With leading zeros. `None` for 1,000 and above.
fn three_digits(number: u64) -> Option<&'static [u8]> {
    let at = 3 * usize::try_from(number)
        .ok()
        .filter(|number| *number < 1_000)?;
    THREE_DIGITS.get(at..at + 3)
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

    pub(super) fn number(&mut self, mut number: u64) {
        // Three digits at a time, and only divisions by a constant: others take longer than the rest.
        let (mut groups, mut count) = ([0; 7], 0);
        while number >= 1_000 {
            groups[count] = number % 1_000;
            number /= 1_000;
            count += 1;
        }
        self.text(small(number).unwrap_or_default());
        for group in groups[..count].iter().rev() {
            self.text(three_digits(*group).unwrap_or_default());
        }
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
