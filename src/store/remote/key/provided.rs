//! The names of the provided keys.

use std::{net::IpAddr, sync::Arc};

use http::HeaderValue;

use super::{KeyName, RemoteKey};
use crate::key::{Client, Either, Secret};

impl RemoteKey for Client {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RemoteKey for Secret {
    fn write(&self, name: &mut KeyName) {
        match self.value() {
            Some(value) => name.push_secret(value),
            None => name.push_display("-"),
        }
    }
}

/// A header may hold a token, and its value does not say so.
impl RemoteKey for HeaderValue {
    fn write(&self, name: &mut KeyName) {
        name.push_secret(self.as_bytes());
    }
}

#[cfg(feature = "axum")]
impl RemoteKey for crate::key::Route {
    fn write(&self, name: &mut KeyName) {
        self.path().write(name);
    }
}

impl<A: RemoteKey, B: RemoteKey> RemoteKey for Either<A, B> {
    fn write(&self, name: &mut KeyName) {
        match self {
            Self::Left(key) => {
                name.push_display("l");
                key.write(name);
            }
            Self::Right(key) => {
                name.push_display("r");
                key.write(name);
            }
        }
    }
}

impl RemoteKey for () {
    fn write(&self, _: &mut KeyName) {}
}

impl RemoteKey for str {
    fn write(&self, name: &mut KeyName) {
        name.push_bytes(self.as_bytes());
    }
}

impl RemoteKey for String {
    fn write(&self, name: &mut KeyName) {
        self.as_str().write(name);
    }
}

impl RemoteKey for u8 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }

    fn write_slice(bytes: &[Self], name: &mut KeyName) {
        name.push_bytes(bytes);
    }
}

impl RemoteKey for u32 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RemoteKey for u64 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RemoteKey for i32 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RemoteKey for i64 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RemoteKey for IpAddr {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl<K: RemoteKey> RemoteKey for Option<K> {
    fn write(&self, name: &mut KeyName) {
        match self {
            None => name.push_display("-"),
            Some(key) => {
                name.push_display('+');
                key.write(name);
            }
        }
    }
}

impl<K: RemoteKey> RemoteKey for [K] {
    fn write(&self, name: &mut KeyName) {
        K::write_slice(self, name);
    }
}

impl<K: RemoteKey> RemoteKey for Vec<K> {
    fn write(&self, name: &mut KeyName) {
        K::write_slice(self, name);
    }
}

impl<K: RemoteKey + ?Sized> RemoteKey for &K {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl<K: RemoteKey + ?Sized> RemoteKey for Arc<K> {
    fn write(&self, name: &mut KeyName) {
        (**self).write(name);
    }
}

impl<A: RemoteKey, B: RemoteKey> RemoteKey for (A, B) {
    fn write(&self, name: &mut KeyName) {
        name.push_element(|name| self.0.write(name));
        name.push_element(|name| self.1.write(name));
    }
}

impl<A: RemoteKey, B: RemoteKey, C: RemoteKey> RemoteKey for (A, B, C) {
    fn write(&self, name: &mut KeyName) {
        name.push_element(|name| self.0.write(name));
        name.push_element(|name| self.1.write(name));
        name.push_element(|name| self.2.write(name));
    }
}
