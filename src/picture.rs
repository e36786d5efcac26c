//! Pictures in the documentation.

/// A picture of `docs/img` as HTML that holds all of it: documentation has no folder for images.
///
/// The file has neither `#`, `%` nor `'`, so that it can be a URL as it is, and no blank line, which
/// would end the HTML.
macro_rules! picture {
    ($file:literal, $alt:literal) => {
        concat!(
            "<div><img style='max-width:100%' alt='",
            $alt,
            "' src='data:image/svg+xml,",
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/img/", $file)),
            "'></div>"
        )
    };
}

pub(crate) use picture;
