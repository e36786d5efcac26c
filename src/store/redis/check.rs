//! A check that limits work in a server, by a limit on keys of its own.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use redis::{Cmd, FromRedisValue, Value};

use super::{
    connection::CallError, kernel::Kernels, reply::ErrorClass, script::SCRIPT, server::Redis,
};
use crate::algorithm::TokenBucket;
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock};
use crate::error::StoreError;
use crate::quota::Quota;
use crate::store::deadline::within;

/// So many keys are in different slots.
const KEYS: usize = 16;
/// So many random keys reach every master of a cluster, if there are few.
const CLUSTER_KEYS: usize = 64;
/// The limit of the keys, which are forgotten after a minute if the check does not end.
const LIMIT: TokenBucket = TokenBucket::new(Quota::per_minute(9));

impl Redis {
    /// Checks that limits work in this server and that it keeps them, for the start of a program.
    /// Returns a warning that says what to change if it may lose limits.
    ///
    /// It runs the commands that limiters use, on keys of its own under the prefix, and reads `INFO`
    /// if the user may. Of a cluster it checks every master, or most of them if there are many.
    ///
    /// # Errors
    /// Transient if the server does not reply. Permanent, with what to change, if
    ///
    /// - the user may not run a command, or not on the keys under the prefix,
    /// - the server is part of a cluster of several masters, and this is not the
    ///   [client of a cluster](Self::with_cluster).
    ///
    /// ```no_run
    /// # async fn example(redis: tower_throttle::store::redis::Redis) {
    /// match redis.check().await {
    ///     Ok(Some(warning)) => eprintln!("limits in Redis: {warning}"),
    ///     Ok(None) => {}
    ///     Err(error) if error.is_transient() => eprintln!("Redis does not reply yet: {error}"),
    ///     Err(error) => panic!("{error}"),
    /// }
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Option<String>, StoreError> {
        let mut warnings = self.evictions().await;
        let is_cluster = self.connection.is_cluster();
        let count = if is_cluster { CLUSTER_KEYS } else { KEYS };
        // They are random, so that they are spread over servers, and checks of several machines do not meet. No name of
        // a policy has a `~`.
        let (prefix, hasher) = (&self.settings.prefix, RandomState::new());
        let key = |index| format!("{{{prefix}:~check:{:x}}}", hasher.hash_one(index));
        let keys: Vec<_> = (0..count).map(key).collect();
        if !is_cluster {
            match self.try_script(Op::Take(1), &keys).await {
                // Whether the cluster has several masters shows when each key is used.
                Err(error) if error.class == ErrorClass::CrossSlot => {
                    self.stop_batching();
                    warnings.push(
                        "the server is a cluster of one master: calls are not batched, and will fail when \
                         another master has slots; connect with Redis::with_cluster"
                            .to_owned(),
                    );
                }
                taken => drop(taken.map_err(|error| error.error)?),
            }
        }
        for key in keys {
            // A user may be allowed to send the text of the script, or only its digest.
            for op in [Op::Take(1), Op::Take(1), Op::Reset] {
                let used = self.try_script(op, std::slice::from_ref(&key)).await;
                used.map_err(|error| error.error)?;
            }
        }
        warnings.dedup();
        Ok(Some(warnings.join("; ")).filter(|text| !text.is_empty()))
    }

    /// Of the servers that evict keys. None if they may not be asked.
    async fn evictions(&self) -> Vec<String> {
        let replies = match self.try_send(&redis::cmd("INFO")).await {
            Ok(Value::Map(replies)) => replies.into_iter().map(|(_, info)| info).collect(),
            Ok(reply) => vec![reply],
            Err(_) => Vec::new(),
        };
        let warning = |reply| {
            let info = String::from_redis_value(reply).ok()?;
            let mut lines = info.lines();
            let policy = lines.find_map(|line| line.strip_prefix("maxmemory_policy:"))?;
            (policy != "noeviction").then(|| {
                format!(
                    "maxmemory-policy is {policy}: a full server evicts keys, and their limits start \
                     fresh; set it to noeviction"
                )
            })
        };
        replies.into_iter().filter_map(warning).collect()
    }

    /// Runs the script on some keys: a take by its text, a reset by its digest.
    async fn try_script(&self, op: Op, keys: &[String]) -> Result<Value, CallError> {
        let kernels = Kernels::of(&LIMIT);
        let args = kernels.map_or_else(Vec::new, |kernels| kernels.args(op, &LIMIT));
        let command = SCRIPT.command(op != Op::Reset, |command| {
            command.arg(keys.len()).arg(keys).arg("").arg(&args);
        });
        self.try_send(&command).await
    }

    async fn try_send(&self, command: &Cmd) -> Result<Value, CallError> {
        let timeout = Duration::from_secs(2).max(self.settings.deadline);
        let ends_at = MonotonicClock.now().plus(timeout);
        let sent = within(ends_at, self.connection.send(command)).await;
        sent.unwrap_or_else(|| {
            let text = format!("Redis: no answer within {timeout:?}");
            Err(CallError {
                class: ErrorClass::Indeterminate,
                error: StoreError::new(text, true),
            })
        })
    }
}
