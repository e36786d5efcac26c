//! The delay of a `google.rpc.RetryInfo` in `grpc-status-details-bin`.
//!
//! `respond/grpc/protobuf.rs` describes the messages, and writes them.

use std::time::Duration;

use crate::respond::BASE64;
use crate::varint;

/// The delay in the value of the header, which is base64 with or without padding.
pub(super) fn retry_delay(header: &[u8]) -> Option<Duration> {
    let status = base64(header)?;
    let mut details = fields(&status).filter(|(number, _, _)| *number == 3);
    let is_info = |url: &[u8]| url.ends_with(b"google.rpc.RetryInfo");
    let (_, _, any) = details.find(|(_, _, any)| find(any, 1).is_some_and(|url| is_info(url.1)))?;
    let (_, delay) = find(find(any, 2)?.1, 1)?;
    let number = |of| find(delay, of).map_or(0, |value| value.0);
    // A negative number has ten bytes, and is above these.
    let seconds = i64::try_from(number(1)).ok()?;
    let nanos = u32::try_from(number(2)).ok()?;
    Some(
        Duration::from_secs(seconds.unsigned_abs())
            .saturating_add(Duration::from_nanos(nanos.into())),
    )
}

/// The value of a field, as a number or as bytes.
fn find(message: &[u8], number: u128) -> Option<(u128, &[u8])> {
    let mut fields = fields(message);
    fields.find_map(|(found, value, bytes)| (found == number).then_some((value, bytes)))
}

/// The fields up to the first that cannot be read: their number, and their value as a number or as bytes.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u128, u128, &[u8])> {
    std::iter::from_fn(move || {
        let tag = varint::read(&mut rest)?;
        let (number, length) = match tag & 7 {
            0 => (varint::read(&mut rest)?, 0),
            1 => (0, 8),
            2 => (0, usize::try_from(varint::read(&mut rest)?).ok()?),
            5 => (0, 4),
            _ => return None,
        };
        let bytes;
        (bytes, rest) = rest.split_at_checked(length)?;
        Some((tag >> 3, number, bytes))
    })
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len()), 0, 0);
    for digit in text.trim_ascii().iter().take_while(|digit| **digit != b'=') {
        let six = BASE64.iter().position(|known| known == digit)?;
        (bits, count) = ((bits << 6 | six) & 0x3fff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    Some(bytes)
}

// The models have no tonic.
#[cfg(all(test, not(tower_throttle_loom), not(miri)))]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn header(bytes: &[u8]) -> String {
        let status = tonic::Status::with_details(tonic::Code::Ok, "", bytes.to_vec().into());
        let headers = status.into_http::<()>().into_parts().0.headers;
        let value = headers.get("grpc-status-details-bin");
        value.map_or_else(String::new, |value| {
            value.to_str().expect("base64 is ASCII").to_owned()
        })
    }

    #[test]
    fn the_delay_that_other_programs_write_is_read() {
        for delay in [
            Duration::ZERO,
            Duration::from_millis(1_500),
            Duration::new(0, 999_999_999),
            Duration::from_secs(315_576_000_000),
        ] {
            let mut details = ErrorDetails::with_retry_info(Some(delay));
            details.set_debug_info(["a".to_owned()], "b");
            let status =
                tonic::Status::with_error_details(tonic::Code::Unavailable, "busy", details);
            for padding in ["", "=", "=="] {
                let header = header(status.details()) + padding;
                assert_eq!(retry_delay(header.as_bytes()), Some(delay));
            }
        }
    }

    #[test]
    fn no_text_panics_and_a_negative_delay_is_none() {
        let status = tonic::Status::with_error_details(
            tonic::Code::Unavailable,
            "busy",
            ErrorDetails::with_retry_info(Some(Duration::from_millis(1_500))),
        );
        let header = header(status.details());
        for end in 0..header.len() {
            retry_delay(&header.as_bytes()[..end]);
            for byte in [0, b'A', b'/', b'=', 0xff] {
                let mut harmed = header.clone().into_bytes();
                harmed[end] = byte;
                retry_delay(&harmed);
            }
        }
        // A duration of -1 s.
        let mut negative = vec![8];
        varint::write(&mut negative, u128::from(u64::MAX));
        let wrap = |mut out: Vec<u8>, tag: u8, inner: &[u8]| {
            out.extend([tag, u8::try_from(inner.len()).unwrap()]);
            out.extend(inner);
            out
        };
        let info = wrap(Vec::new(), 10, &negative);
        let url = wrap(Vec::new(), 10, b"type.googleapis.com/google.rpc.RetryInfo");
        let status = wrap(Vec::new(), 26, &wrap(url, 18, &info));
        assert_eq!(retry_delay(self::header(&status).as_bytes()), None);
    }
}
