//! Which replicas agree: the consistency in the requests that the driver sends.

use tower_throttle::store::cas::{CasStore, Swapped};

use super::{store, store_behind};
use crate::proxy::{Protocol, Proxy};
use crate::stored::{MINUTE, insert, load, value};

// The numbers of consistencies in the protocol.
const QUORUM: u16 = 4;
const LOCAL_QUORUM: u16 = 6;
const SERIAL: u16 = 8;
const LOCAL_SERIAL: u16 = 9;

/// What a request says about the replicas that execute its statement.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    consistency: u16,
    serial_consistency: Option<u16>,
    /// How many values are bound to the statement.
    values: u16,
}

impl Request {
    /// Reads a request of version 4 that executes a prepared statement.
    fn parse(frame: &[u8]) -> Self {
        const VALUES: u8 = 0x01;
        const PAGE_SIZE: u8 = 0x04;
        const PAGING_STATE: u8 = 0x08;
        const SERIAL_CONSISTENCY: u8 = 0x10;
        assert_eq!(frame[0], 4, "the version");
        let mut at = 9;
        let mut take = |count: usize| {
            at += count;
            let bytes = &frame[at - count..at];
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u32::from(*byte))
        };
        let short = |number| u16::try_from(number).expect("two bytes");
        let id = take(2);
        let _ = take(id as usize);
        let consistency = short(take(2));
        let flags = take(1).to_le_bytes()[0];
        assert_eq!(flags & VALUES, VALUES, "no statement is without values");
        assert_eq!(flags & PAGING_STATE, 0, "no statement has pages");
        let values = short(take(2));
        for _ in 0..values {
            let length = take(4);
            let _ = take(length as usize);
        }
        if flags & PAGE_SIZE != 0 {
            let _ = take(4);
        }
        let serial = (flags & SERIAL_CONSISTENCY != 0).then(|| short(take(2)));
        Self {
            consistency,
            serial_consistency: serial,
            values,
        }
    }
}

/// Shows promise 242.
#[tokio::test]
#[ignore = "it needs Java"]
async fn replicas_agree_in_one_data_center_or_in_all() {
    let (server, _) = store("agreement").await;
    let proxy = Proxy::before(Protocol::Cassandra, server.port());
    let of_each = store_behind(&proxy, "agreement").await;
    let of_all = of_each.clone().across_datacenters();
    for (key, store, serial, quorum) in [
        ("of each", of_each, LOCAL_SERIAL, LOCAL_QUORUM),
        ("of all", of_all, SERIAL, QUORUM),
    ] {
        proxy.records();
        insert(&store, key, &value(1, "first")).await;
        let new = value(2, "second");
        let swapped = store.swap(key, Some(1), &new, MINUTE).await;
        assert_eq!(swapped, Ok(Swapped::Done(None)));
        assert_eq!(load(&store, key).await, Some(new));
        let requests: Vec<_> = proxy
            .recorded()
            .iter()
            .map(|frame| Request::parse(frame))
            .collect();
        let [insert, update, load] = &requests[..] else {
            panic!("{requests:?}");
        };
        for (swap, values) in [(insert, 4), (update, 5)] {
            let expected = Request {
                consistency: quorum,
                serial_consistency: Some(serial),
                values,
            };
            assert_eq!(*swap, expected, "{key}");
        }
        // A read at a serial consistency finishes the swaps that have not ended.
        assert_eq!((load.consistency, load.values), (serial, 1), "{key}");
    }
}
