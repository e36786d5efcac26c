//! Reads the `RetryInfo` in the header `grpc-status-details-bin`.
//!
//! The header is a `google.rpc.Status` in base64. Its field 3 is a list of `Any`; one of them holds a
//! `google.rpc.RetryInfo`, whose field 1 is a duration.

use std::time::Duration;

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// How long the client is told to wait, if the header says so.
pub(crate) fn retry_delay(header: &str) -> Option<Duration> {
    let status = base64(header)?;
    let details = Fields(&status).filter_map(|field| field.message(3));
    let info = details.into_iter().find_map(|any| {
        let name = Fields(any).find_map(|field| field.message(1))?;
        (name == RETRY_INFO).then(|| Fields(any).find_map(|field| field.message(2)))?
    })?;
    let delay = Fields(info).find_map(|field| field.message(1))?;
    let seconds = Fields(delay).find_map(|field| field.number(1));
    let nanos = Fields(delay).find_map(|field| field.number(2));
    let nanos = u32::try_from(nanos.unwrap_or_default()).ok()?;
    Some(Duration::new(seconds.unwrap_or_default(), nanos))
}

/// The fields of a protobuf message.
struct Fields<'a>(&'a [u8]);

struct Field<'a> {
    tag: u64,
    value: Value<'a>,
}

enum Value<'a> {
    Number(u64),
    Message(&'a [u8]),
}

impl<'a> Field<'a> {
    fn message(&self, tag: u64) -> Option<&'a [u8]> {
        match self.value {
            Value::Message(bytes) if self.tag == tag => Some(bytes),
            _ => None,
        }
    }

    fn number(&self, tag: u64) -> Option<u64> {
        match self.value {
            Value::Number(number) if self.tag == tag => Some(number),
            _ => None,
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    /// Ends at the first field of a kind that a status does not have.
    fn next(&mut self) -> Option<Field<'a>> {
        let head = varint(&mut self.0)?;
        let value = match head & 7 {
            0 => Value::Number(varint(&mut self.0)?),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Message(bytes)
            }
            _ => return None,
        };
        Some(Field {
            tag: head >> 3,
            value,
        })
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Decodes base64 of either alphabet, with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}
