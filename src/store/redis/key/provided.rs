//! The provided keys in Redis.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    rc::Rc,
    sync::Arc,
};

use http::{HeaderValue, Method, Uri, uri::Authority};

use super::{KeyName, RedisKey};
use crate::key::{Client, Either, ExtensionKey, Secret};

impl RedisKey for Client {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for Secret {
    fn write(&self, name: &mut KeyName) {
        match self.value() {
            Some(value) => name.push_secret(value),
            None => name.push_display("-"),
        }
    }
}

/// A header may hold a token, and its value does not say so.
impl RedisKey for HeaderValue {
    fn write(&self, name: &mut KeyName) {
        name.push_secret(self.as_bytes());
    }
}

#[cfg(feature = "axum")]
impl RedisKey for crate::key::Route {
    fn write(&self, name: &mut KeyName) {
        self.path().write(name);
    }
}

impl<T: RedisKey> RedisKey for ExtensionKey<T> {
    fn write(&self, name: &mut KeyName) {
        self.value().write(name);
    }
}

impl<A: RedisKey, B: RedisKey> RedisKey for Either<A, B> {
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

impl RedisKey for () {
    fn write(&self, _: &mut KeyName) {}
}

impl RedisKey for bool {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for char {
    fn write(&self, name: &mut KeyName) {
        self.encode_utf8(&mut [0; 4]).write(name);
    }
}

impl RedisKey for str {
    fn write(&self, name: &mut KeyName) {
        name.push_bytes(self.as_bytes());
    }
}

impl RedisKey for String {
    fn write(&self, name: &mut KeyName) {
        self.as_str().write(name);
    }
}

impl RedisKey for u8 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }

    fn write_slice(bytes: &[Self], name: &mut KeyName) {
        name.push_bytes(bytes);
    }
}

impl RedisKey for u16 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for u32 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for u64 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for u128 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for usize {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for i8 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for i16 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for i32 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for i64 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for i128 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for isize {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for IpAddr {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for Ipv4Addr {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for Ipv6Addr {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

impl RedisKey for SocketAddr {
    fn write(&self, name: &mut KeyName) {
        match self {
            Self::V4(address) => address.write(name),
            Self::V6(address) => address.write(name),
        }
    }
}

impl RedisKey for SocketAddrV4 {
    fn write(&self, name: &mut KeyName) {
        name.push_display(self);
    }
}

/// Its `Display` leaves out the flow label, which `Hash` includes.
impl RedisKey for SocketAddrV6 {
    fn write(&self, name: &mut KeyName) {
        (self.ip(), self.port(), self.flowinfo(), self.scope_id()).write(name);
    }
}

impl RedisKey for Method {
    fn write(&self, name: &mut KeyName) {
        self.as_str().write(name);
    }
}

/// In lower case, as hosts are compared.
impl RedisKey for Authority {
    fn write(&self, name: &mut KeyName) {
        self.as_str().to_ascii_lowercase().write(name);
    }
}

/// Scheme and host in lower case, as they are compared.
impl RedisKey for Uri {
    fn write(&self, name: &mut KeyName) {
        let scheme = self.scheme_str().map(str::to_ascii_lowercase);
        (scheme, self.authority(), self.path(), self.query()).write(name);
    }
}

impl<K: RedisKey> RedisKey for Option<K> {
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

impl<K: RedisKey> RedisKey for [K] {
    fn write(&self, name: &mut KeyName) {
        K::write_slice(self, name);
    }
}

impl<K: RedisKey, const N: usize> RedisKey for [K; N] {
    fn write(&self, name: &mut KeyName) {
        K::write_slice(self, name);
    }
}

impl<K: RedisKey> RedisKey for Vec<K> {
    fn write(&self, name: &mut KeyName) {
        K::write_slice(self, name);
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

impl<K: RedisKey + ?Sized> RedisKey for Rc<K> {
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

impl<A: RedisKey, B: RedisKey> RedisKey for (A, B) {
    fn write(&self, name: &mut KeyName) {
        name.push_element(|name| self.0.write(name));
        name.push_element(|name| self.1.write(name));
    }
}

impl<A: RedisKey, B: RedisKey, C: RedisKey> RedisKey for (A, B, C) {
    fn write(&self, name: &mut KeyName) {
        name.push_element(|name| self.0.write(name));
        name.push_element(|name| self.1.write(name));
        name.push_element(|name| self.2.write(name));
    }
}

impl<A: RedisKey, B: RedisKey, C: RedisKey, D: RedisKey> RedisKey for (A, B, C, D) {
    fn write(&self, name: &mut KeyName) {
        name.push_element(|name| self.0.write(name));
        name.push_element(|name| self.1.write(name));
        name.push_element(|name| self.2.write(name));
        name.push_element(|name| self.3.write(name));
    }
}
