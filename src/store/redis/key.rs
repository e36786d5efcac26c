//! What a key is called in Redis.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// A key that Redis can hold a limit for.
///
/// The name in Redis is `{prefix:policy:key}`; the braces make it one hash tag. The key itself
/// stands there as text if that is at most 64 letters, digits and any of `. _ : / @ + -`. Every
/// other key (longer, binary, with a space or a brace) stands there as `~` and its SHA-1 in 40
/// digits, so no name is longer than its prefix, its policy and 64 bytes for each part of the key,
/// and nobody chooses a name's form or slot by choosing a key. The parts of a tuple are joined by
/// commas. Different keys of one type have different names.
///
/// Keys of your own write themselves as one of these:
///
/// ```
/// use tower_throttle::store::redis::{KeyName, RedisKey};
///
/// struct Tenant {
///     region: &'static str,
///     id: u64,
/// }
///
/// impl RedisKey for Tenant {
///     fn write(&self, name: &mut KeyName) {
///         (self.region, self.id).write(name);
///     }
/// }
/// ```
pub trait RedisKey {
    /// Writes the key to the end of its name.
    fn write(&self, name: &mut KeyName);
}

/// The name of a key, while it is written.
#[derive(Debug)]
pub struct KeyName(String);

const MAX_PLAIN_LEN: usize = 64;

impl KeyName {
    pub(super) fn new(start: &str) -> Self {
        let mut name = String::with_capacity(start.len() + MAX_PLAIN_LEN);
        name.push_str(start);
        Self(name)
    }

    /// The finished name.
    pub(super) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Writes a part of a key given as bytes: as text, or if that cannot be, as a digest.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= MAX_PLAIN_LEN && bytes.iter().copied().all(is_plain) => {
                self.0.push_str(text);
            }
            _ => {
                self.0.push('~');
                self.display(sha1_smol::Sha1::from(bytes).digest());
            }
        }
    }

    /// Writes what is known to be short and plain.
    fn display(&mut self, value: impl fmt::Display) {
        // Writing to a string never fails.
        let _ = write!(self.0, "{value}");
    }
}

/// Neither a brace nor a comma nor a tilde, which mean something in a name.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte)
}

impl RedisKey for [u8] {
    fn write(&self, name: &mut KeyName) {
        name.bytes(self);
    }
}

impl RedisKey for str {
    fn write(&self, name: &mut KeyName) {
        name.bytes(self.as_bytes());
    }
}

impl<const N: usize> RedisKey for [u8; N] {
    fn write(&self, name: &mut KeyName) {
        name.bytes(self);
    }
}

impl RedisKey for () {
    fn write(&self, _name: &mut KeyName) {}
}

impl RedisKey for String {
    fn write(&self, name: &mut KeyName) {
        self.as_str().write(name);
    }
}

impl RedisKey for Vec<u8> {
    fn write(&self, name: &mut KeyName) {
        self.as_slice().write(name);
    }
}

impl<K: RedisKey + ?Sized> RedisKey for &K {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl<K: RedisKey + ?Sized> RedisKey for Box<K> {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl<K: RedisKey + ?Sized> RedisKey for Arc<K> {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl<K: RedisKey + ToOwned + ?Sized> RedisKey for Cow<'_, K> {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl RedisKey for u64 {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for i64 {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for u128 {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for u32 {
    fn write(&self, name: &mut KeyName) {
        u64::from(*self).write(name);
    }
}

impl RedisKey for u16 {
    fn write(&self, name: &mut KeyName) {
        u64::from(*self).write(name);
    }
}

impl RedisKey for i32 {
    fn write(&self, name: &mut KeyName) {
        i64::from(*self).write(name);
    }
}

impl RedisKey for usize {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for IpAddr {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for Ipv4Addr {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl RedisKey for Ipv6Addr {
    fn write(&self, name: &mut KeyName) {
        name.display(self);
    }
}

impl<A: RedisKey, B: RedisKey> RedisKey for (A, B) {
    fn write(&self, name: &mut KeyName) {
        self.0.write(name);
        name.0.push(',');
        self.1.write(name);
    }
}

impl<A: RedisKey, B: RedisKey, C: RedisKey> RedisKey for (A, B, C) {
    fn write(&self, name: &mut KeyName) {
        self.0.write(name);
        name.0.push(',');
        self.1.write(name);
        name.0.push(',');
        self.2.write(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: impl RedisKey) -> String {
        let mut name = KeyName::new("{p:q:");
        key.write(&mut name);
        name.finish()
    }

    #[test]
    fn short_plain_keys_are_written_verbatim() {
        assert_eq!(name("ann@example.org"), "{p:q:ann@example.org}");
        assert_eq!(name(7_u64), "{p:q:7}");
        assert_eq!(name(IpAddr::from([127, 0, 0, 1])), "{p:q:127.0.0.1}");
        assert_eq!(name(("eu", 3_u32)), "{p:q:eu,3}");
        assert_eq!(name(()), "{p:q:}");
    }

    #[test]
    fn long_and_binary_keys_are_digested_and_bounded() {
        for key in [
            "x".repeat(65),
            "a b".into(),
            "}{".into(),
            "~abc".into(),
            "a,b".into(),
        ] {
            let name = name(&key);
            assert!(
                name.starts_with("{p:q:~") && name.len() == 5 + 41 + 1,
                "{name}"
            );
        }
        assert_eq!(name([0xff_u8, 0]).len(), 47);
        assert_eq!(name("x".repeat(64)).len(), 5 + 64 + 1);
    }

    #[test]
    fn different_keys_have_different_names() {
        assert_ne!(name(("a,b", "c")), name(("a", "b,c")));
        assert_ne!(name("a b"), name("a  b"));
        let digest = name("a b");
        let digest = &digest[5..digest.len() - 1];
        assert_ne!(name(digest), name("a b"), "a key that looks like a digest");
    }
}
