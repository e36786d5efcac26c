//! The name of a key, while it is written.
//!
//! A name is a list of parts. No part contains a comma or a semicolon:
//!
//! ```text
//! name    = part *("," part)
//! part    = text *(";" count) / ";0"
//! ```
//!
//! or, if that is long, the digest of the list and `;long`.
//!
//! `;3` makes one element of the last three parts or elements, `;0` is an element without parts.
//! Elements of exactly one part have no mark. So the elements of a tuple are found again however
//! many parts each of them has, and different tuples have different names.

use std::fmt::{self, Write as _};

use hmac_sha256::{HMAC, Hash as Sha256};

/// The name of a key, while it is written by a [`RemoteKey`](super::RemoteKey).
///
/// Each call appends one part: `push_bytes(b"1")` and `push_bytes(b"23")` make another name than
/// `push_bytes(b"12")` and `push_bytes(b"3")`.
#[derive(Debug)]
pub struct KeyName {
    text: String,
    /// The length of `{prefix:policy:`.
    start: usize,
    /// How many parts and elements have been written.
    parts: usize,
}

const MAX_PLAIN_LEN: usize = 64;
/// The longest text of all parts.
const MAX_LEN: usize = 1_024;

impl KeyName {
    pub(super) fn new(start: &str) -> Self {
        let mut text = String::with_capacity(start.len() + MAX_PLAIN_LEN);
        text.push_str(start);
        Self {
            text,
            start: start.len(),
            parts: 0,
        }
    }

    /// The finished name. A long one is a digest: not every store has keys of any length.
    pub(super) fn finish(mut self) -> String {
        if self.text.len() > self.start + MAX_LEN {
            let digest = Sha256::hash(&self.text.as_bytes()[self.start..]);
            self.text.truncate(self.start);
            self.parts = 0;
            self.push_digest(digest);
            self.push_text(";long");
        }
        self.text.push('}');
        self.text
    }

    /// Appends a part, given as bytes: as text if that is possible, else as a digest.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= MAX_PLAIN_LEN && bytes.iter().copied().all(is_plain) => {
                self.push_display(text);
            }
            _ => self.push_digest(Sha256::hash(bytes)),
        }
    }

    /// Appends a part that must not leave the process, such as a token: always as a digest.
    ///
    /// ```
    /// use tower_throttle::store::remote::{KeyName, RemoteKey};
    ///
    /// struct SessionId(String);
    ///
    /// impl RemoteKey for SessionId {
    ///     fn write(&self, name: &mut KeyName) {
    ///         name.push_secret(self.0.as_bytes());
    ///     }
    /// }
    /// ```
    pub fn push_secret(&mut self, secret: &[u8]) {
        let policy = &self.text.as_bytes()[..self.start];
        self.push_digest(HMAC::mac(secret, policy));
    }

    fn push_digest(&mut self, digest: [u8; 32]) {
        self.separate();
        self.text.push('~');
        for byte in digest {
            self.push_text(format_args!("{byte:02x}"));
        }
    }

    /// Appends a part whose text is short and contains no comma, semicolon, tilde or brace.
    pub(super) fn push_display(&mut self, value: impl fmt::Display) {
        self.separate();
        self.push_text(value);
    }

    /// Appends the parts that `write` appends, as one element.
    pub(super) fn push_element(&mut self, write: impl FnOnce(&mut Self)) {
        let before = self.parts;
        write(self);
        match self.parts - before {
            0 => self.push_display(";0"),
            1 => {}
            count => {
                self.push_text(format_args!(";{count}"));
                self.parts = before + 1;
            }
        }
    }

    fn separate(&mut self) {
        if self.parts > 0 {
            self.text.push(',');
        }
        self.parts += 1;
    }

    fn push_text(&mut self, value: impl fmt::Display) {
        // Writing to a string never fails.
        let _ = write!(self.text, "{value}");
    }
}

/// Whether `byte` has no meaning of its own in a name, as a comma or a brace has.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte)
}
