//! The text of a rejection in the response.

use http::{HeaderMap, HeaderName};

use super::header_text::header_value;
use crate::error::{RateLimited, Rejection};

const X_RATELIMIT_ERROR: HeaderName = HeaderName::from_static("x-ratelimit-error");

/// Longer texts are cut off in the header, because clients limit the size of all headers.
const MAX_HEADER_LEN: usize = 1_024;

/// Writes the text of a rejection into the header `x-ratelimit-error`.
///
/// It is there whatever the type of the body, so `curl -i` shows why the request was rejected.
pub(super) fn error_header(headers: &mut HeaderMap, denied: &RateLimited) {
    if let Some(rejection) = denied.rejection() {
        let text = header_value(format_args!("{}", visible(rejection)));
        headers.insert(X_RATELIMIT_ERROR, text);
    }
}

fn visible(rejection: &Rejection) -> String {
    let text = rejection.to_string();
    let visible = text.bytes().take(MAX_HEADER_LEN).map(|byte| match byte {
        b' '..=b'~' => byte.into(),
        b'\n' | b'\r' | b'\t' => ' ',
        _ => '?',
    });
    visible.collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// Shows promise 76.
    #[test]
    fn a_header_holds_one_line_of_visible_text_of_bounded_length() {
        let header = |text: &str| {
            let rejection = Rejection::new(StatusCode::BAD_REQUEST, text.to_owned());
            let mut headers = HeaderMap::new();
            error_header(&mut headers, &rejection.into());
            headers[X_RATELIMIT_ERROR].to_str().unwrap().to_owned()
        };
        assert_eq!(header("a\r\nx: y\u{7f}\0"), "a  x: y??");
        assert_eq!(header("ü"), "??");
        assert_eq!(header(&"x".repeat(5_000)).len(), MAX_HEADER_LEN);
    }
}
