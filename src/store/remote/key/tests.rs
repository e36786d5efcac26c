use std::{collections::HashMap, fmt::Debug, net::IpAddr};

use http::HeaderValue;

use super::*;
use crate::key::{ClientIp, Either, HeaderKey};

fn name(key: impl RemoteKey) -> String {
    let mut name = KeyName::new("{p:q:");
    key.write(&mut name);
    name.finish()
}

/// The key as several calls of `push_bytes`, as a user may write it.
#[derive(Clone, Debug)]
struct Parts(Vec<&'static str>);

impl RemoteKey for Parts {
    fn write(&self, name: &mut KeyName) {
        for part in &self.0 {
            name.push_bytes(part.as_bytes());
        }
    }
}

#[test]
fn short_plain_keys_are_written_verbatim() {
    assert_eq!(name("ann@example.org"), "{p:q:ann@example.org}");
    assert_eq!(name(7_u64), "{p:q:7}");
    assert_eq!([name(-7_i32), name(-7_i64)], ["{p:q:-7}"; 2]);
    assert_eq!(name(IpAddr::from([127, 0, 0, 1])), "{p:q:127.0.0.1}");
    assert_eq!(name(("eu", 3_u32)), "{p:q:eu,3}");
    assert_eq!(name(("eu", "de", 3_u32)), "{p:q:eu,de,3}");
    assert_eq!(name((("eu", ("de", 3_u32)), ())), "{p:q:eu,de,3;2;2,;0}");
    assert_eq!(name(()), "{p:q:}");
    assert_eq!(name(vec!["a", "b"]), "{p:q:2,a,b}");
    assert_eq!(name(&b"bytes"[..]), "{p:q:bytes}");
    let client = ClientIp::peer().key("2001:db8::1".parse().unwrap());
    assert_eq!(name(client), "{p:q:2001:db8::/64}");
    assert_eq!(name(Some(5_u8)), "{p:q:+,5}");
    assert_eq!(name(None::<u8>), "{p:q:-}");
    let sides = [Either::Left("a"), Either::Right("a")].map(name);
    assert_eq!(sides, ["{p:q:l,a}", "{p:q:r,a}"]);
}

/// Shows promise 98.
#[test]
fn long_and_binary_keys_are_digested_and_bounded() {
    for key in [&"x".repeat(65), "a b", "}{", "~abc", "a,b", "a;2"] {
        let name = name(key);
        assert!(name.starts_with("{p:q:~") && name.len() == 5 + 65 + 1);
    }
    assert_eq!(name(vec![0xff_u8, 0]).len(), 71);
    assert_eq!(name("x".repeat(64)).len(), 5 + 64 + 1);
    let sha256 = "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65";
    assert_eq!(name(("x", "a b")), format!("{{p:q:x,~{sha256}}}"));
    // Many parts, which have 975 bytes and those of the last one.
    let long = |last| {
        let mut name = KeyName::new("{p:q:");
        for _ in 0..15 {
            name.push_bytes(&[b'x'; 64]);
        }
        name.push_bytes("y".repeat(last).as_bytes());
        name.finish()
    };
    assert_eq!(long(49).len(), 5 + 1_024 + 1);
    let digest = long(50);
    assert!(digest.starts_with("{p:q:~") && digest.ends_with(";long}"));
}

/// Shows promise 98.
#[test]
fn secrets_are_never_written_in_clear_text() {
    let secret = "hunter2";
    let header = HeaderValue::from_static(secret);
    let names = [
        name(HeaderKey::key(secret)),
        name(header.clone()),
        name((header, "x")),
        {
            let mut name = KeyName::new("{p:q:");
            name.push_secret(secret.as_bytes());
            name.finish()
        },
    ];
    // Computed by another implementation of RFC 2104, with the key "{p:q:".
    let hmac = "2bdc1d5b56f0b570ecbc6c3e01814de97e8b1a8524e585e83158e7cd67016b88";
    for name in names {
        assert!(name.starts_with(&format!("{{p:q:~{hmac}")), "{name}");
        assert!(!name.contains(secret));
    }
    let mut elsewhere = KeyName::new("{p:r:");
    HeaderKey::key(secret).write(&mut elsewhere);
    assert!(!elsewhere.finish().contains(hmac), "linked across policies");
}

#[test]
fn the_name_of_a_limit_has_1_to_64_plain_letters() {
    let is_allowed = |name: &str| check_name("name", name).is_ok();
    let names = ["", "a", &"a".repeat(64), &"a".repeat(65), "aZ09._-", "a:"];
    let expected = [false, true, true, false, true, false];
    assert_eq!(names.map(is_allowed), expected);
}

#[cfg(any(feature = "postgres", feature = "cassandra"))]
#[test]
fn the_name_of_a_table_begins_with_a_small_letter_and_is_bounded() {
    let names = ["a", "a_9", "abcd", "_a", "9a", "aB", "a.b", ""];
    let allowed = names.map(|name| is_table_name(name, 3));
    assert_eq!(allowed.map(u8::from), [1, 1, 0, 0, 0, 0, 0, 0]);
}

/// All lists of up to two of `items`.
fn lists<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    let mut lists = vec![vec![]];
    for a in items {
        lists.push(vec![a.clone()]);
        lists.extend(items.iter().map(|b| vec![a.clone(), b.clone()]));
    }
    lists
}

fn assert_names_differ<K: RemoteKey + Debug>(keys: Vec<K>) {
    let mut names = HashMap::new();
    for key in keys {
        if let Some(other) = names.insert(name(&key), format!("{key:?}")) {
            panic!("{other} and {key:?} have the name {}", name(&key));
        }
    }
}

fn pairs<T: Clone>(items: &[T]) -> Vec<(T, T)> {
    let pairs = items
        .iter()
        .flat_map(|a| items.iter().map(|b| (a.clone(), b.clone())));
    pairs.collect()
}

/// Shows promise 98.
#[test]
fn tuples_of_keys_with_varying_numbers_of_parts_have_different_names() {
    let parts: Vec<_> = lists(&["", "0", "2"]).into_iter().map(Parts).collect();
    assert_names_differ(pairs(&parts));
    let nested = pairs(&parts[..7]);
    assert_names_differ(pairs(&nested));
    let lists_of_parts = lists(&parts);
    assert_names_differ(pairs(&lists_of_parts[..60]));
    let options: Vec<_> = [None, Some("-"), Some("+"), Some("")].map(Some).into();
    let options = [options, vec![None]].concat();
    assert_names_differ(pairs(&options));
}
