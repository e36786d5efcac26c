//! How long a gRPC client waits for the answer.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The timeout of a gRPC request, counted from when it was sent.
pub(in crate::respond) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    // At most eight digits and a unit.
    let (unit, digits) = headers.get(GRPC_TIMEOUT)?.as_bytes().split_last()?;
    let is_number = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    let count = digits.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let read = |value: &str| {
            grpc_timeout(
                &[(GRPC_TIMEOUT, value.parse().unwrap())]
                    .into_iter()
                    .collect(),
            )
        };
        for (value, expected) in [
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("0005u", Duration::from_micros(5)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(read(value), Some(expected), "{value}");
        }
        for wrong in [
            "",
            "S",
            "1",
            "123456789S",
            "-1S",
            "+1S",
            "1.5S",
            "1s",
            "1 S",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(grpc_timeout(&HeaderMap::new()), None);
    }
}
