//! How many connections a client may have, and how fast it may open them.

use std::{hash::Hash, net::IpAddr, sync::Arc};

use super::connection::{Connection, ConnectionPermit};
use super::refused::{Reason, Refused};
use super::signals::{ConnectionCounts, Signals};
use crate::algorithm::TokenBucket;
use crate::concurrency::{IntoLimit, Permits, permit::Permit};
use crate::error::ConfigError;
use crate::key::{ClientIp, Networks, Watched};
use crate::quota::Quota;
use crate::store::local::Local;

/// A limit on the connections of each client. See the [module](crate::accept).
///
/// Clones are the same limit, so listeners of several ports share it, and a clone that the program keeps
/// reads its counts.
///
/// ```
/// use tower_throttle::{Quota, accept::ConnectionLimit};
///
/// let limit = ConnectionLimit::new(2).rate(Quota::per_minute(3));
/// let client = "192.0.2.7".parse().unwrap();
/// let first = limit.admit(client, "a stream").unwrap();
/// let second = limit.admit(client, "a stream").unwrap();
/// let refused = limit.admit(client, "a stream").unwrap_err();
/// assert_eq!(refused.to_string(), "the client has too many open connections");
/// drop((first, second));
/// assert!(limit.admit(client, "a stream").is_ok());
/// let refused = limit.admit(client, "a stream").unwrap_err();
/// assert_eq!(refused.to_string(), "the client opens connections too fast");
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is given a listener, or asked to admit"]
pub struct ConnectionLimit {
    open: Arc<Permits>,
    total: Option<Arc<Permits>>,
    rate: Option<Local<TokenBucket>>,
    except: Option<Watched<Networks>>,
    signals: Arc<Signals>,
}

impl ConnectionLimit {
    /// At most `open` connections per client at a time.
    ///
    /// Many people may share one IPv4 address (a company, a mobile network), and a browser opens up to
    /// six connections to a server of HTTP/1.
    ///
    /// # Panics
    /// If `open` is 0: no connection would ever be accepted.
    #[track_caller]
    pub fn new(open: u32) -> Self {
        Self {
            open: permits(open),
            total: None,
            rate: None,
            except: None,
            signals: Arc::new(Signals::new("default")),
        }
    }

    /// Also at most so many new connections per client and time. A refused one does not count.
    ///
    /// It is a [`TokenBucket`], in a table for 100,000 clients.
    #[track_caller]
    pub fn rate(mut self, quota: Quota) -> Self {
        self.rate = Some(Local::new(TokenBucket::new(quota)));
        self
    }

    /// Also at most `open` connections of all clients together. Set it below the number of files that the
    /// process may open (`ulimit -n`).
    ///
    /// # Panics
    /// If `open` is 0.
    #[track_caller]
    pub fn total(mut self, open: u32) -> Self {
        self.total = Some(permits(open));
        self
    }

    /// Addresses that only the [total](Self::total) limits: proxies, and the probes of a load balancer.
    ///
    /// ```
    /// use tower_throttle::{accept::ConnectionLimit, key::Networks};
    ///
    /// let limit = ConnectionLimit::new(1).except(Networks::new(["10.0.0.0/8"]));
    /// let proxy = "10.0.0.2".parse().unwrap();
    /// let both = [limit.admit(proxy, ()), limit.admit(proxy, ())];
    /// assert!(both.iter().all(Result::is_ok));
    /// ```
    pub fn except(mut self, networks: impl Into<Watched<Networks>>) -> Self {
        self.except = Some(networks.into());
        self
    }

    /// The name of the limit in metrics and events; `default` unless set. Its counts begin at 0.
    pub fn name(mut self, name: &str) -> Self {
        self.signals = Arc::new(Signals::new(name));
        self
    }

    /// The stream with a place for a connection of `address`, until it is dropped.
    ///
    /// For an accept loop of your own, or if the address is known only later, as behind a proxy that
    /// speaks the PROXY protocol.
    ///
    /// # Errors
    /// If there is no place, or the client opens connections too fast. Nothing is taken then, and the stream is
    /// dropped.
    pub fn admit<S>(&self, address: IpAddr, stream: S) -> Result<Connection<S>, Refused> {
        self.permit(address).map(|permit| permit.hold(stream))
    }

    /// A place for a connection of `address`.
    pub(super) fn permit(&self, address: IpAddr) -> Result<ConnectionPermit, Refused> {
        let taken = self.take(address);
        let (of_client, of_all) = taken.inspect_err(|refused| self.signals.refused(*refused))?;
        let signals = Arc::clone(&self.signals);
        Ok(ConnectionPermit::new(of_client, of_all, signals))
    }

    fn take(&self, address: IpAddr) -> Result<(Option<Permit>, Option<Permit>), Refused> {
        let is_excepted = |networks: &Watched<Networks>| networks.get().contains(address);
        let of_all = match &self.total {
            Some(total) => Some(take(total, &()).ok_or(Refused(Reason::Total))?),
            None => None,
        };
        if self.except.as_ref().is_some_and(is_excepted) {
            return Ok((None, of_all));
        }
        let client = ClientIp::peer().key(address);
        let of_client = take(&self.open, &client).ok_or(Refused(Reason::Open))?;
        // Last: a permit is given back if a later limit refuses, and a token is not.
        match &self.rate {
            Some(rate) if rate.check(&client, 1).is_denied() => Err(Refused(Reason::Rate)),
            _ => Ok((Some(of_client), of_all)),
        }
    }

    /// How many connections the client at `address` has open.
    pub fn open(&self, address: IpAddr) -> u64 {
        self.open.in_flight(&ClientIp::peer().key(address))
    }

    /// Changes how many connections each client may have. A lower limit closes none.
    ///
    /// # Errors
    /// If `open` is 0. The limit stays as it was.
    ///
    /// ```
    /// use tower_throttle::accept::ConnectionLimit;
    ///
    /// let limit = ConnectionLimit::new(1);
    /// let client = "2001:db8::7".parse().unwrap();
    /// limit.set_limit(2).unwrap();
    /// let both = [limit.admit(client, ()), limit.admit(client, ())];
    /// assert!(both.iter().all(Result::is_ok));
    /// assert!(limit.set_limit(0).is_err());
    /// ```
    pub fn set_limit(&self, open: u32) -> Result<(), ConfigError> {
        self.open.set_limit(open)
    }

    /// How many connections were accepted and refused so far, and how many are open.
    pub fn counts(&self) -> ConnectionCounts {
        self.signals.counts()
    }

    pub(super) const fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }
}

#[track_caller]
fn permits(limit: u32) -> Arc<Permits> {
    Arc::new(limit.into_limit().0)
}

fn take<K: Hash>(permits: &Arc<Permits>, key: &K) -> Option<Permit> {
    let request = permits.request(key, 1, u8::MAX);
    Permit::try_take(permits, request)
        .ok()
        .map(|(permit, _)| permit)
}
