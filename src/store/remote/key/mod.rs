//! How keys are written into names.

mod name;
mod provided;

pub use self::name::KeyName;

use crate::error::ConfigError;

/// A key that can be part of a name in a store on a server.
///
/// All [keys of this crate](crate::key) implement it.
///
/// # The name
/// The name of a key is `{prefix:policy:key}`. The braces make it one hash tag, so all limits of one
/// key are in one slot of a cluster.
///
/// - Text is written as it is if it has at most 64 bytes and consists of letters, digits and
///   `. _ : / @ + -`. Any other text is written as `~` and its SHA-256 in 64 digits.
/// - Secrets ([`HeaderKey`](crate::HeaderKey), and every
///   [`HeaderValue`](http::HeaderValue), which may hold one) are written as `~` and an HMAC-SHA-256
///   in 64 digits. The HMAC is keyed with the prefix and the policy, so one secret has different
///   names in different policies. A secret is never sent to Redis.
/// - Numbers and addresses are written as text.
/// - The parts of a tuple are separated by commas.
///
/// Different keys of one type have different names. The length of a name is bounded by its prefix,
/// its policy, and 66 bytes per part. A client that chooses a key chooses neither the form of the
/// name nor its slot.
///
/// # Keys of your own
/// Write them as one of the provided keys:
///
/// ```
/// use tower_throttle::store::remote::{KeyName, RemoteKey};
///
/// struct Tenant {
///     region: &'static str,
///     id: u64,
/// }
///
/// impl RemoteKey for Tenant {
///     fn write(&self, name: &mut KeyName) {
///         (self.region, self.id).write(name);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key in a remote store: write `impl RemoteKey for {Self}`",
    label = "not a `tower_throttle::store::remote::RemoteKey`",
    note = "`impl RemoteKey for {Self} {{ fn write(&self, name: &mut KeyName) {{ (self.region, self.id).write(name) }} }}`"
)]
pub trait RemoteKey {
    /// Appends the key to `name`.
    fn write(&self, name: &mut KeyName);

    /// Appends a list of keys to `name`. Bytes are overridden to be one part.
    fn write_slice(keys: &[Self], name: &mut KeyName)
    where
        Self: Sized,
    {
        name.push_display(keys.len());
        for key in keys {
            name.push_element(|name| key.write(name));
        }
    }
}

/// The name of `key`, after the prefix of its limit.
pub(crate) fn key_name<K: RemoteKey + ?Sized>(prefix: &str, key: &K) -> String {
    let mut name = KeyName::new(prefix);
    key.write(&mut name);
    name.finish()
}

/// Checks a part of the names of all keys of a limit.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), ConfigError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ConfigError::out_of_range(
        field,
        format!("{name:?}"),
        "1 to 64 letters, digits and any of . _ -",
    ))
}

/// Whether a table may have this name. Uppercase letters are refused: a shell finds such a table only in quotes.
#[cfg(any(feature = "postgres", feature = "cassandra"))]
pub(crate) fn is_table_name(name: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    name.len() <= longest
        && name.bytes().all(is_allowed)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests;
