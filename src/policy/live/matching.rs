//! Finds the limits of a file that apply to a request.

use http::{Request, StatusCode};

use super::active::{Active, MatchedLimits};
use super::limits::PolicyLimits;
use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor, KeyType};
use crate::respond::Event;

impl KeyType<()> for PolicyLimits {
    type Key = MatchedLimits;
}

impl<B> KeyExtractor<Request<B>> for PolicyLimits {
    type Key = MatchedLimits;

    /// A rejection of a limit is counted by that limit, and in shadow mode the others go on to decide.
    fn extract(&self, request: &Request<B>) -> Extracted<MatchedLimits> {
        self.find(request)
    }

    fn unread_proxy_header(&self, request: &Request<B>) -> bool {
        let generation = self.current();
        let any = |is: &dyn Fn(&Active) -> bool| generation.limits.iter().any(is);
        let has_lists = !generation.denies.is_empty() || any(&|active| active.except.is_some());
        any(&|active| active.keys.unread_proxy_header(request))
            || (has_lists && self.shared.environment.clients.unread_proxy_header(request))
    }
}

impl PolicyLimits {
    /// The limits that apply to a request. Each that has no key for it counts that.
    fn find<B>(&self, request: &Request<B>) -> Extracted<MatchedLimits> {
        let generation = self.current();
        match generation.denies(request) {
            Ok(false) => {}
            Ok(true) => {
                let rejection = Rejection::new(StatusCode::FORBIDDEN, "blocked");
                return Extracted::Reject(rejection);
            }
            Err(rejection) => return Extracted::Reject(rejection),
        }
        let mut limits = Vec::new();
        for (at, active) in generation.limits.iter().enumerate() {
            if active.is_override || !active.applies(request) {
                continue;
            }
            match active.keys.extract(request) {
                Extracted::Key(key) => {
                    let behind = active.behind(&key, request.headers());
                    limits.push((at + behind, key));
                }
                Extracted::Skip => active.record(Event::Skipped, false),
                Extracted::Reject(rejection) => {
                    let is_shadow = active.limit.shadow;
                    active.record(Event::Rejected(&rejection), is_shadow);
                    if !is_shadow {
                        return Extracted::Reject(rejection);
                    }
                }
            }
        }
        if limits.is_empty() {
            return Extracted::Skip;
        }
        Extracted::Key(MatchedLimits { generation, limits })
    }
}
