//! The little of protobuf that a `google.rpc.Status` with a `google.rpc.RetryInfo` needs.
//!
//! ```text
//! Status    { 1: int32 code, 2: string message, 3: repeated Any details }
//! Any       { 1: string type_url, 2: bytes value }
//! RetryInfo { 1: Duration retry_delay }
//! Duration  { 1: int64 seconds, 2: int32 nanos }
//! ```
//! A field is its number and wire type in one varint, then a varint (type 0), or a length and that
//! many bytes (type 2). Zeros are left out.

use std::time::Duration;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// The longest a protobuf `Duration` may be: 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;

/// A status that says when a retry makes sense.
pub(super) fn status_with_retry_info(code: u16, message: &str, wait: Duration) -> Vec<u8> {
    let mut delay = Vec::new();
    let seconds = wait.as_secs().min(MAX_SECONDS);
    number(&mut delay, 1, seconds);
    if seconds < MAX_SECONDS {
        number(&mut delay, 2, wait.subsec_nanos().into());
    }
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, code.into());
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        write(out, value);
    }
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    write(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Seven bits per byte, lowest first.
fn write(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// The digits of base64.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Without padding, as gRPC writes it.
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| usize::from(three.get(at).copied().unwrap_or_default());
        let (a, b, c) = (byte(0), byte(1), byte(2));
        let digits = [
            a >> 2,
            a << 4 & 0x30 | b >> 4,
            b << 2 & 0x3c | c >> 6,
            c & 0x3f,
        ];
        for digit in &digits[..=three.len()] {
            text.push(char::from(BASE64[*digit]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_vectors_of_its_standard_without_padding() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    /// Shows promise 74.
    #[test]
    fn a_wait_is_at_most_the_longest_of_protobuf() {
        let status = |wait| status_with_retry_info(8, "", wait);
        let longest = status(Duration::from_secs(MAX_SECONDS));
        assert_eq!(status(Duration::new(MAX_SECONDS, 5)), longest);
        assert_eq!(status(Duration::MAX), longest);
        assert_ne!(status(Duration::new(MAX_SECONDS - 1, 5)), longest);
    }
}
