//! What a statement returned. Columns are found by their names: their number and order differ
//! between Cassandra and ScyllaDB.

use std::collections::HashMap;

use scylla::{
    response::query_result::QueryResult,
    value::{CqlValue, Row},
};

use crate::error::StoreError;
use crate::store::cas::{Loaded, Swapped, Value};

/// The columns of the first row that are not null.
type Columns = HashMap<String, CqlValue>;

fn first_row(result: QueryResult) -> Result<Columns, StoreError> {
    let rows = result
        .into_rows_result()
        .map_err(|error| unreadable(&error))?;
    let row = rows
        .maybe_first_row::<Row>()
        .map_err(|error| unreadable(&error))?;
    let names = rows
        .column_specs()
        .iter()
        .map(|spec| spec.name().to_owned());
    let columns = row.into_iter().flat_map(|row| row.columns);
    let named = names.zip(columns);
    Ok(named
        .filter_map(|(name, value)| Some((name, value?)))
        .collect())
}

pub(super) fn loaded(result: QueryResult) -> Result<Loaded, StoreError> {
    first_row(result).map(|mut row| found(&mut row))
}

/// The value, which is absent if one of its columns is.
fn found(row: &mut Columns) -> Loaded {
    Loaded {
        value: match (row.remove("version"), row.remove("value")) {
            (Some(CqlValue::BigInt(version)), Some(CqlValue::Blob(bytes))) => {
                let version = u64::from_ne_bytes(version.to_ne_bytes());
                Some(Value { version, bytes })
            }
            _ => None,
        },
        server_time: None,
    }
}

pub(super) fn swapped(result: QueryResult) -> Result<Swapped, StoreError> {
    let mut row = first_row(result)?;
    match row.get("[applied]") {
        Some(CqlValue::Boolean(true)) => Ok(Swapped::Done(None)),
        Some(CqlValue::Boolean(false)) => Ok(Swapped::Conflict(Some(found(&mut row)))),
        _ => Err(unreadable(&"no column [applied]")),
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(format!("Cassandra: a reply cannot be read: {error}"), false)
}
