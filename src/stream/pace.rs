//! What of a body passes next, and what it costs.

use std::error::Error;
use std::task::{Context, Poll, ready};

use super::limit::{StreamLimit, StreamMeter};
use crate::error::RateLimited;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// How a body is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    /// Not bytes.
    pub(super) grpc_messages: bool,
    /// The fewest and the most bytes that are counted at once.
    pub(super) pieces: (u32, u32),
    /// The error of the body for what is denied.
    pub(super) on_denied: fn(RateLimited) -> BoxError,
}

impl Counting {
    pub(super) const fn new(grpc_messages: bool) -> Self {
        Self {
            grpc_messages,
            pieces: (1, 65_536),
            on_denied: From::from,
        }
    }
}

/// Takes the cost of a body from its limit.
#[derive(Debug)]
pub(super) struct Pace {
    meter: StreamMeter,
    counting: Counting,
    /// Bytes that are paid for and have not passed: less than the least piece.
    paid: u64,
    framing: Framing,
}

impl Pace {
    pub(super) fn new(limit: StreamLimit, counting: Counting) -> Self {
        Self {
            meter: StreamMeter::new(limit),
            counting,
            paid: 0,
            framing: Framing::default(),
        }
    }

    /// Takes the cost of the first bytes of `data`, which is not empty. Returns how many pass, at least one.
    pub(super) fn poll_pass(
        &mut self,
        data: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, BoxError>> {
        if self.counting.grpc_messages {
            let mut framing = self.framing;
            let (len, messages) = framing.next_piece(data);
            let taken = ready!(self.meter.poll_take(messages, false, cx));
            taken.map_err(self.counting.on_denied)?;
            self.framing = framing;
            return Poll::Ready(Ok(len));
        }
        if self.paid == 0 {
            let (least, most) = self.counting.pieces;
            let piece = (data.len() as u64).clamp(least.into(), most.into());
            let taken = ready!(self.meter.poll_take(piece, true, cx));
            self.paid = taken.map_err(self.counting.on_denied)?;
        }
        let len = usize::try_from(self.paid).map_or(data.len(), |paid| paid.min(data.len()));
        self.paid -= len as u64;
        Poll::Ready(Ok(len))
    }
}

/// Where in a gRPC message a body is: five bytes, the last four of which are its length, and the message.
#[derive(Clone, Copy, Debug, Default)]
struct Framing {
    /// How many bytes of the prefix have passed; 5 within a message.
    prefix: usize,
    /// The bytes of the message that have not passed, as far as they are known.
    left: u32,
}

impl Framing {
    /// The length of the first part of `data` that belongs to one message, and its cost: 1 if the message
    /// begins there.
    fn next_piece(&mut self, data: &[u8]) -> (usize, u64) {
        let cost = u64::from(self.prefix == 0);
        let prefix = data.len().min(5 - self.prefix);
        for byte in &data[..prefix] {
            // The first byte says whether the message is compressed, and is shifted out.
            self.left = self.left << 8 | u32::from(*byte);
        }
        self.prefix += prefix;
        if self.prefix < 5 {
            return (prefix, cost);
        }
        let within = u32::try_from(data.len() - prefix).map_or(self.left, |len| len.min(self.left));
        self.left -= within;
        if self.left == 0 {
            self.prefix = 0;
        }
        (prefix + within as usize, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that begin in each piece, if `data` arrives in frames of `frame` bytes.
    fn pieces(data: &[u8], frame: usize) -> Vec<(usize, u64)> {
        let mut framing = Framing::default();
        let mut pieces = Vec::new();
        for mut rest in data.chunks(frame) {
            while !rest.is_empty() {
                let piece = framing.next_piece(rest);
                rest = &rest[piece.0..];
                pieces.push(piece);
            }
        }
        pieces
    }

    /// Shows promise 343.
    #[test]
    fn messages_are_counted_once_however_they_are_cut() {
        // The lengths of the messages 3, 0, 300; the prefix of a compressed one.
        let mut data = [&[0, 0, 0, 0, 3, 7, 7, 7, 1, 0, 0, 0, 0, 0, 0, 0, 1, 44][..]].concat();
        data.resize(data.len() + 300, 9);
        assert_eq!(pieces(&data, data.len()), [(8, 1), (5, 1), (305, 1)]);
        for frame in 1..data.len() {
            let pieces = pieces(&data, frame);
            let (len, messages) = pieces
                .iter()
                .fold((0, 0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1));
            assert_eq!((len, messages), (data.len(), 3), "frames of {frame}");
        }
    }

    /// Shows promise 343.
    #[test]
    fn a_message_that_lies_about_its_length_is_one_message() {
        let lie = [0, 255, 255, 255, 255, 1, 2, 3];
        assert_eq!(pieces(&lie, 8), [(8, 1)]);
        assert_eq!(pieces(&lie, 4), [(4, 1), (4, 0)]);
    }
}
