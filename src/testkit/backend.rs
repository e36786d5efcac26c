//! What every operation of a backend does.

use super::is;
use crate::backend::{Backend, Op};
use crate::receipt::Receipt;

/// Checks that each operation of a backend takes and gives back what it says, and that keys are apart.
///
/// Both keys are unused, and the limit is 3 to 1,000 requests without a queue, of which none comes back during the check:
/// its period is an hour or more.
///
/// ```
/// use tower_throttle::testkit::check_backend;
/// use tower_throttle::{FixedWindow, Local, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let table = Local::new(FixedWindow::new(Quota::per_day(10)).anchored());
/// assert_eq!(check_backend(&table, "ann", "bob").await, Ok(()));
/// # }
/// ```
///
/// # Errors
/// If an operation does something else, or fails.
pub async fn check_backend<K: ?Sized, B: Backend<K>>(
    backend: &B,
    key: &K,
    other: &K,
) -> Result<(), String> {
    let apply = async |key: &K, op: Op| {
        let applied = backend.apply(key, op).await;
        applied.map_err(|error| format!("{op:?}: {error}"))
    };
    let left = async |key: &K| {
        apply(key, Op::Peek(0))
            .await
            .map(|decision| decision.remaining())
    };
    let limits = backend.quotas().len();
    if backend.limits() != limits {
        return Err(format!(
            "limits() is {}, quotas() are {limits}",
            backend.limits()
        ));
    }
    let limit = left(key).await?;
    is((3..=1_000).contains(&limit), || {
        format!("{limit} of an unused key are left, not 3 to 1,000")
    })?;

    // All of it is admitted, one by one, and no more.
    for taken in 0..limit {
        let peeked = apply(key, Op::Peek(1)).await?;
        let decision = apply(key, Op::Take(1)).await?;
        is(peeked.is_admitted() && decision.is_admitted(), || {
            format!("{taken} of {limit} are taken, and {decision:?} is no admission")
        })?;
        is(decision.remaining() == limit - taken - 1, || {
            format!("{decision:?} after {} of {limit}", taken + 1)
        })?;
        is(decision.policy < limits.max(1), || {
            format!("{decision:?} is of none of {limits} limits")
        })?;
    }
    for op in [Op::Take(1), Op::Peek(1), Op::Take(limit + 1)] {
        let decision = apply(key, op).await?;
        is(decision.is_denied(), || {
            format!("{op:?} above the limit: {decision:?}")
        })?;
    }
    is(apply(key, Op::Take(0)).await?.is_admitted(), || {
        "a cost of 0 was denied".into()
    })?;
    is(left(other).await? == limit, || {
        "another key has less than its limit".into()
    })?;

    // A refund gives back what the newest request has taken, and no more than that.
    let mut receipt = apply(key, Op::Reset).await?.receipt();
    let steps: [(&(dyn Fn(Receipt) -> Op + Sync), u64); 10] = [
        (&|_| Op::Take(limit), 0),
        (&|receipt| Op::Refund(1, receipt), 1),
        (&|_| Op::Take(2), 1),
        (&|_| Op::Take(1), 0),
        (&|receipt| Op::Cancel(1, receipt), 1),
        (&|_| Op::Charge(1), 0),
        (&|_| Op::Reset, limit),
        (&|receipt| Op::Refund(1, receipt), limit),
        (&|_| Op::Charge(limit + 1), 0),
        (&|_| Op::Reset, limit),
    ];
    for (op, expected) in steps {
        let op = op(receipt);
        let decision = apply(key, op).await?;
        if matches!(op, Op::Take(_)) && decision.is_admitted() {
            receipt = decision.receipt();
        }
        let left = left(key).await?;
        is(left == expected, || {
            format!("{left} are left after {op:?}, not {expected}")
        })?;
    }
    Ok(())
}
