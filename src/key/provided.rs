//! The provided keys.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    rc::Rc,
    sync::Arc,
};

use crate::key::Key;

impl Key for () {}
impl Key for bool {}
impl Key for char {}
impl Key for str {}
impl Key for String {}
impl Key for u8 {}
impl Key for u16 {}
impl Key for u32 {}
impl Key for u64 {}
impl Key for u128 {}
impl Key for usize {}
impl Key for i8 {}
impl Key for i16 {}
impl Key for i32 {}
impl Key for i64 {}
impl Key for i128 {}
impl Key for isize {}
impl Key for IpAddr {}
impl Key for Ipv4Addr {}
impl Key for Ipv6Addr {}
impl Key for SocketAddr {}
impl Key for SocketAddrV4 {}
impl Key for SocketAddrV6 {}
impl Key for http::HeaderValue {}
impl Key for http::Method {}
impl Key for http::Uri {}
impl Key for http::uri::Authority {}
/// `None` is a key: all requests with it share one limit.
impl<K: Key> Key for Option<K> {}
impl<K: Key> Key for [K] {}
impl<K: Key, const N: usize> Key for [K; N] {}
impl<K: Key> Key for Vec<K> {}
impl<K: Key + ?Sized> Key for Box<K> {}
impl<K: Key + ?Sized> Key for Rc<K> {}
impl<K: Key + ?Sized> Key for Arc<K> {}
impl<K: Key + ToOwned + ?Sized> Key for Cow<'_, K> {}
impl<A: Key, B: Key> Key for (A, B) {}
impl<A: Key, B: Key, C: Key> Key for (A, B, C) {}
impl<A: Key, B: Key, C: Key, D: Key> Key for (A, B, C, D) {}
