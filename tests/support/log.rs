//! What a test logs.

use std::{cell::RefCell, io, sync::Once};

use tracing::Level;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to a log of the thread, so each test has its own.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One subscriber for the whole process. tracing caches whether an event is enabled, so a subscriber of
/// one thread would miss events that another thread reached first.
pub fn subscribe(level: Level) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(|| Log)
            .init();
    });
}

/// What was logged on this thread since the last call.
pub fn log() -> String {
    String::from_utf8(LOG.take()).expect("text")
}
