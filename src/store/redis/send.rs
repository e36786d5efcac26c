//! How scripts are sent: by their digest, and again if that is safe.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    connection::{CallError, Connection},
    reply::ErrorClass,
};
use crate::clock::{Clock, MonotonicClock, Timer};

/// The delay before a call on a migrating slot is sent again.
const SLOT_RETRY_DELAY: Duration = Duration::from_millis(5);

/// The text of a script, and its digest, which is shorter.
pub(in crate::store) struct Text {
    pub(super) body: String,
    pub(super) hash: String,
}

impl Text {
    pub(super) fn new(body: impl Into<String>) -> Self {
        let body = body.into();
        Self {
            hash: sha1_smol::Sha1::from(&body).digest().to_string(),
            body,
        }
    }

    /// Runs the script with the arguments that `add_args` adds. What may have been executed is not sent
    /// again.
    pub(super) async fn send(
        &self,
        connection: &Arc<Connection>,
        add_args: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, CallError> {
        match connection.send(&self.command(false, &add_args)).await {
            // Boxed: few calls take this step, and its state is large.
            Err(error) => Box::pin(self.send_again(connection, add_args, error)).await,
            reply => reply,
        }
    }

    async fn send_again(
        &self,
        connection: &Arc<Connection>,
        add_args: impl Fn(&mut Cmd) + Send + Sync,
        mut error: CallError,
    ) -> Result<Value, CallError> {
        let mut retried = false;
        loop {
            let is_unknown = error.class == ErrorClass::NoScript;
            match error.class {
                ErrorClass::NoScript => {}
                // The next connection may lead to the right server.
                ErrorClass::WrongServer | ErrorClass::Redirected if !retried => {}
                ErrorClass::SlotMigrating if !retried => {
                    let until = MonotonicClock.now().plus(SLOT_RETRY_DELAY);
                    MonotonicClock.sleep_until(until).await;
                }
                _ => return Err(error),
            }
            retried |= !is_unknown;
            match connection.send(&self.command(is_unknown, &add_args)).await {
                // EVAL brings the text: NOSCRIPT would be an endless loop.
                Err(again) if !(is_unknown && again.class == ErrorClass::NoScript) => error = again,
                reply => return reply,
            }
        }
    }

    pub(super) fn command(&self, with_text: bool, add_args: impl Fn(&mut Cmd)) -> Cmd {
        let (name, script) = if with_text {
            ("EVAL", &self.body)
        } else {
            ("EVALSHA", &self.hash)
        };
        let mut command = redis::cmd(name);
        command.arg(script);
        add_args(&mut command);
        command
    }
}

/// Numbers as a script unpacks them.
#[expect(
    clippy::cast_precision_loss,
    reason = "below 2^53; a demand saturates before"
)]
pub(super) fn packed(numbers: impl IntoIterator<Item: Into<i128>>) -> Vec<u8> {
    let doubles = numbers.into_iter().map(|number| number.into() as f64);
    doubles.flat_map(f64::to_le_bytes).collect()
}
